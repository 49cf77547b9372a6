"""A function in a file, read without running it, as the Python expression that it returns."""

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from keras_mp.compat.code_objects.copying import copies_of
from keras_mp.compat.code_objects.errors import CodeError, Malformed, Refused
from keras_mp.compat.code_objects.expressions import Expressions, identifier, is_plain
from keras_mp.compat.code_objects.forks import State
from keras_mp.compat.code_objects.instructions import has_lines_of_3_10, instructions_of
from keras_mp.compat.code_objects.known import Known
from keras_mp.compat.code_objects.marshalled import LAYOUTS, Code, layout_of, read_code
from keras_mp.compat.code_objects.opcodes import VERSIONS, Version
from keras_mp.compat.code_objects.stack_items import Variables
from keras_mp.compat.code_objects.steps import Names
from keras_mp.compat.code_objects.walking import Setting, Walk
from keras_mp.compat.code_objects.wrappers import wrapped

MOST_WORK = 20_000  # instructions that are walked, and what is copied on the way

_LONGEST_TEXT, _MOST_SHOWN = 200, 20

_INPUTS = "inputs"  # of a function of TensorFlow, whatever its parameter is called
_OF_A_FUNCTION = 0x01 | 0x02  # CO_OPTIMIZED, CO_NEWLOCALS
_FLAGS = {
    0x80 | 0x100 | 0x200: "async",
    0x20: "a generator",
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function as an expression of its parameters.

    Attributes:
        name: "<lambda>", or the name of its `def`.
        python: The version whose byte code it was read as. Others may write the same bytes.
        parameters: In order; those that are given by keyword only come last.
        defaults: Parameter -> its default, where the file has a plain one.
        closure: Variable of the function around it -> its value, where the file has a plain one.
        steps: (name, value), the assignments before the result, in order. No name comes twice:
            `x = f(x)` makes `x_2`.
        assumed: Parameters whose defaults decided what the steps and the result are: they hold for
            these values only.
        result: What it returns. Its variables are parameters, steps, variables of the function
            around it, and globals.
        unknown: Those of the function around it that it uses and `closure` does not have.
    """

    name: str
    python: tuple[int, int]
    parameters: tuple[str, ...]
    defaults: Mapping[str, object]
    closure: Mapping[str, object]
    steps: tuple[tuple[str, ast.expr], ...]
    result: ast.expr
    unknown: tuple[str, ...] = ()
    assumed: frozenset[str] = frozenset()

    def source(self) -> str:
        """Returns the steps and the result as Python: "y = tf.nn.relu(x); y * 2"."""
        return _text(self.steps, self.result)


def read_function(
    code: bytes,
    defaults: Sequence[object] | None = None,
    closure: Sequence[object] | None = None,
    kwdefaults: Mapping[str, object] | None = None,
    python: tuple[int, int] | None = None,
    module: object = None,
) -> Function:
    """Returns a function out of what `marshal.dumps(function.__code__)` wrote. Nothing is run.

    Args:
        code: The bytes.
        defaults: As `function.__defaults__`.
        closure: What the cells of `function.__closure__` hold.
        kwdefaults: As `function.__kwdefaults__`.
        python: The version that wrote it, 3.5 to 3.11. It decides only where the bytes mean one
            thing to one version and another to another.
        module: The name of the module that has the function, which is needed where TensorFlow
            put another around it.

    Raises:
        CodeError: They are no function of these versions, or it is no expression.
    """
    if python is not None and python not in VERSIONS:
        raise CodeError(f"is said to be of Python {'.'.join(map(str, python))}, not 3.5 to 3.11")
    named = _of_tensorflow(code, closure or (), module)
    if named:
        return named
    try:
        attempts = _attempts(code, closure or (), defaults or (), kwdefaults or {})
    except RecursionError:  # where the caller left little of the stack
        raise CodeError("is nested too deeply to be read here") from None
    if any(one.python == (3, 10) and one.stage >= _REFUSED for one in attempts):
        # Only its line table tells 3.10 from 3.8 and 3.9, which count jumps in other units.
        attempts = [one for one in attempts if one.python not in _BEFORE_3_10 - {python}]
    found = [attempt for attempt in attempts if not attempt.error]
    if not found:
        best = max(attempts, key=lambda one: (one.stage, one.python == python, one.python))
        raise CodeError(best.error, best.so_far)
    chosen = next((one for one in found if one.python == python), found[0])
    if chosen.python != python and len({one.text for one in found}) > 1:
        ways = ", ".join(f"{one.python[0]}.{one.python[1]}: {one.text}" for one in found)
        raise CodeError(f"means different things to versions of Python ({ways}): name one")
    return _function(chosen, defaults or (), closure, kwdefaults or {})


def _of_tensorflow(data: bytes, closure: Sequence[object], module: object) -> Function | None:
    """Returns a function of TensorFlow itself as one that calls it."""
    for layout in LAYOUTS:
        with suppress(Malformed):
            code = read_code(data, layout)
            try:
                name = wrapped(code, closure, module)
                call = None if name is None else _call_of(name)
            except Refused as error:
                raise CodeError(str(error)) from None
            if call is not None:
                return Function(code.name, layout, (_INPUTS,), {}, {}, (), call)
    return None


def _call_of(name: str) -> ast.expr:
    root, *rest = map(identifier, name.split("."))
    of: ast.expr = ast.Name(id=root, ctx=ast.Load())
    for part in rest:
        of = ast.Attribute(value=of, attr=part, ctx=ast.Load())
    return ast.Call(func=of, args=[ast.Name(id=_INPUTS, ctx=ast.Load())], keywords=[])


# How far an attempt came.
_UNREAD, _READ, _DECODED, _REFUSED, _DONE = range(5)
_BEFORE_3_10: frozenset[Version | None] = frozenset({(3, 8), (3, 9)})


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one version of Python makes of the bytes.

    Attributes:
        python: The version.
        stage: How far it came.
        error: Why no further; empty if it is done.
        so_far: What was read.
        code: The code object, if it came to that.
        steps: If it is done.
        result: If it is done.
        assumed: If it is done.
    """

    python: Version
    stage: int
    error: str = ""
    so_far: str = ""
    code: Code | None = None
    steps: tuple[tuple[str, ast.expr], ...] = ()
    result: ast.expr | None = None
    assumed: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """Steps and result, as Python."""
        return _text(self.steps, self.result)


def _text(steps: Sequence[tuple[str, ast.expr]], result: ast.expr | None) -> str:
    lines = [f"{name} = {ast.unparse(value)}" for name, value in steps]
    return "; ".join([*lines, *([ast.unparse(result)] if result else [])])


def shortened(text: str) -> str:
    """Returns a text for a message: the beginning, if it is long."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."


def _attempts(
    data: bytes,
    closure: Sequence[object],
    defaults: Sequence[object],
    kwdefaults: Mapping[str, object],
) -> list[_Attempt]:
    attempts = []
    for layout in LAYOUTS:
        versions = [python for python in VERSIONS if layout_of(python) == layout]
        try:
            code = read_code(data, layout)
        except Malformed as error:
            attempts += [_Attempt(python, _UNREAD, _malformed(error)) for python in versions]
            continue
        around, own = _closure(code, closure), _defaults(code, defaults, kwdefaults)
        attempts += [_attempt(code, python, around, own) for python in versions]
    return attempts


def _attempt(
    code: Code, python: Version, closure: Mapping[str, object], defaults: Mapping[str, object]
) -> _Attempt:
    if python == (3, 10) and not has_lines_of_3_10(code):
        return _Attempt(python, _UNREAD, "is no function of Python 3.10: its line table ends early")
    try:
        instructions_of(code, python)
    except Malformed as error:
        later = " (a later version may have written it)" if python >= (3, 11) else ""
        return _Attempt(python, _READ, _malformed(error) + later)
    walked = _Walked(code, python, closure, defaults)
    try:
        steps, result = walked.result()
    except Malformed as error:
        return _Attempt(python, _DECODED, _malformed(error), walked.so_far())
    except Refused as error:
        return _Attempt(python, _REFUSED, f"holds {error}", walked.so_far())
    assumed = frozenset(walked.known.assumed)
    return _Attempt(python, _DONE, code=code, steps=steps, result=result, assumed=assumed)


def _malformed(error: Malformed) -> str:
    return f"is no function of Python 3.5 to 3.11: it {error}"


class _Walked:
    """A function, walked as one version of Python."""

    def __init__(
        self,
        code: Code,
        python: Version,
        closure: Mapping[str, object],
        defaults: Mapping[str, object],
    ) -> None:
        self._code = code
        self._left = MOST_WORK
        self._names = Names(code)
        self._make = Expressions(self._spend)
        self.known = Known(self._make, self._names, closure, defaults, self._spend)
        self._setting = Setting(python, self._make, self._names, self.known, self._spend)
        self._walk: Walk | None = None
        self._result: ast.expr | None = None

    def result(self) -> tuple[tuple[tuple[str, ast.expr], ...], ast.expr]:
        """Returns the steps and the result.

        Raises:
            Malformed: That version did not write it.
            Refused: It did, and it is no expression.
        """
        flags = self._code.flags
        for flag, what in _FLAGS.items():
            if flags & flag:
                raise Refused(what)
        if flags & _OF_A_FUNCTION != _OF_A_FUNCTION:
            raise Refused("code of a module or class")
        variables = [*self._code.parameters, *self._code.free]
        if len(set(variables)) != len(variables):
            raise Malformed("has two variables of one name")
        self._walk = Walk(self._setting, self._code)
        begun: Variables = {name: identifier(name) for name in variables}
        begun |= self._starred()
        self._result = self._walk.value(State((), begun), steps=True)
        nodes = [*(value for _, value in self._names.steps), self._result]
        *steps, result = copies_of(self._make, nodes)
        names = (name for name, _ in self._names.steps)
        return tuple(zip(names, steps, strict=True)), result

    def _starred(self) -> Variables:
        """Returns `*rest` and `**options`: Keras gave no more by position than the inputs."""
        found: Variables = {}
        for name, kind in self._code.starred:
            if kind == "*" and self._code.positional:
                found[name] = self._make.sequence(ast.Tuple, [])
            else:
                found[name] = self._make.missing("parameter", "a parameter with * or **")
        return found

    def so_far(self) -> str:
        """Returns what was read before an error, as Python."""
        steps = self._names.steps[-_MOST_SHOWN:]
        parts = [f"{name} = {self._make.text(value)}" for name, value in steps]
        if self._result is not None:
            parts.append(self._make.text(self._result))
        elif self._walk is not None:
            stack = self._walk.stack[-_MOST_SHOWN:]
            values = (item for item in stack if isinstance(item, ast.expr))
            parts.append(", ".join(self._make.text(value) for value in values))
        text = "; ".join(part for part in parts if part)
        return shortened(text)

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise Refused(f"more than {MOST_WORK} instructions to walk")


def _closure(code: Code, values: Sequence[object]) -> dict[str, object]:
    """Returns the plain ones of the values of the variables around a function, by name."""
    return {n: v for n, v in zip(code.free, values, strict=False) if is_plain(v)}


def _defaults(
    code: Code, defaults: Sequence[object], kwdefaults: Mapping[str, object]
) -> dict[str, object]:
    """Returns the plain ones of the defaults, by the parameters that have them."""
    count = min(len(defaults), code.positional)
    positional = code.parameters[code.positional - count : code.positional]
    given = dict(zip(positional, defaults[len(defaults) - count :], strict=True))
    given |= {n: v for n, v in kwdefaults.items() if n in code.parameters[code.positional :]}
    return {name: value for name, value in given.items() if is_plain(value)}


def _function(
    attempt: _Attempt,
    defaults: Sequence[object],
    closure: Sequence[object] | None,
    kwdefaults: Mapping[str, object],
) -> Function:
    code = attempt.code
    assert code is not None
    assert attempt.result is not None
    if closure is not None and len(closure) != len(code.free):
        raise CodeError(f"has {len(closure)} values for {len(code.free)} variables around it")
    if len(defaults) > code.positional:
        raise CodeError(f"has {len(defaults)} defaults for {code.positional} parameters")
    known = _closure(code, closure or ())
    used = {
        node.id
        for tree in (*(value for _, value in attempt.steps), attempt.result)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
    }
    return Function(
        name=code.name,
        python=attempt.python,
        parameters=code.parameters,
        defaults=_defaults(code, defaults, kwdefaults),
        closure=known,
        steps=attempt.steps,
        result=attempt.result,
        unknown=tuple(name for name in code.free if name in used and name not in known),
        assumed=attempt.assumed,
    )
