"""Facts about a whole program: which names hold wrapped optimizers, what is read from them."""

import re
from collections import defaultdict
from collections.abc import Container, Iterator

import libcst as cst

from keras_mp.migration.code.parsed import Program, chain, string
from keras_mp.migration.code.project import (
    CALLED_OF_KERAS_2,
    LIKE_A_POLICY,
    NOTHING,
    WRAPPERS,
    Elsewhere,
)

# What nothing else has than optimizers of Keras 2.
_OF_KERAS_2 = tuple(name for name in CALLED_OF_KERAS_2 if name != "variables")
_KERAS = re.compile(r"^\s*(import|from)\s+(tensorflow|keras|tf_keras)\b", re.MULTILINE)
_ADDONS = re.compile(r"\btensorflow_addons\b")
_OPTIMIZER = re.compile(r"optimizer", re.IGNORECASE)
_OTHER_TRAINING = re.compile(
    r"GradientTape|compute_gradients|EstimatorSpec|Estimator|minimize|\w*Session|train_step"
)


class Facts:
    """What is known of a program.

    Args:
        program: Its names resolved.
        elsewhere: What other files of the program tell.

    Attributes:
        methods: Function -> name -> calls, of the methods that scale losses and unscale gradients.
        is_concerned: Whether the program has any of the old names.
        policies_have_scales: Whether a loss scale is read of what is called a policy.
        compiles: Whether `compile` is called of something, and nothing trains otherwise.
        has_other_wrappers: Whether there are optimizers around others that are not of these names.
    """

    def __init__(self, program: Program, elsewhere: Elsewhere = NOTHING) -> None:
        self._program = program
        self.elsewhere = elsewhere
        found = _Uses(program)
        program.module.visit(found)
        self._uses = found
        self._of_compat: set[cst.CSTNode] = set()
        self._left_alone: set[cst.CSTNode] = set()
        # Of a name -> block -> where the first value in it ends.
        self._first_values: dict[tuple[object, str], dict[cst.CSTNode, int]] = {}
        self.methods = found.methods
        self.is_concerned = False
        self.policies_have_scales = found.policies_have_scales
        self.has_other_wrappers = found.has_other_wrappers or bool(_ADDONS.search(program.text))
        self._is_of_keras = bool(_KERAS.search(program.text))
        self.compiles = "compile" in found.called and not found.trains_otherwise

    def owner(self, function: cst.CSTNode) -> cst.CSTNode:
        """Returns the class of a method; the module of any other function, or of itself."""
        return self._program.around(function, cst.ClassDef) or self._program.module

    def is_wrapped(self, node: cst.CSTNode) -> bool:
        """Returns whether it is a wrapped optimizer: a call that makes one, or a name of one."""
        if isinstance(node, cst.Call):
            return _wraps(self._program, node)
        if chain(node) is None:
            return False
        place = self.key(node)
        values = self._uses.values[place]
        if self._is_narrowed(node, place) or self._is_wrapped_elsewhere(node):
            return True
        # An optimizer is made, then wrapped; what comes after that may be anything.
        return bool(values) and _wraps(self._program, values[-1])

    def is_another(self, node: cst.CSTNode) -> bool:
        """Returns whether what the files of the program hand on is no wrapped optimizer here."""
        return self._is_in(self.elsewhere.others, node)

    def is_module_of_layers(self, node: cst.CSTNode) -> bool:
        """Returns whether it is a tf.Module that holds layers of Keras."""
        return self._is_in(self.elsewhere.modules, node)

    def _is_wrapped_elsewhere(self, node: cst.CSTNode) -> bool:
        return self._is_in(self.elsewhere.wrapped, node)

    def _is_in(self, known: Container[tuple[int, int, str]], node: cst.CSTNode) -> bool:
        return bool(known) and (*self._program.where(node), self._program.source(node)) in known

    def _is_narrowed(self, node: cst.CSTNode, place: tuple[object, str]) -> bool:
        """Returns whether a name is in such a block, before which it has no value there."""
        blocks = self._uses.narrowed[place]
        if not blocks:
            return False
        if place not in self._first_values:
            ends: dict[cst.CSTNode, int] = {}
            for value in self._uses.values[place]:
                end = self._program.span(value)[1]
                for block in blocks & {*self._program.above(value)}:
                    ends[block] = min(end, ends.get(block, end))
            self._first_values[place] = ends
        ends, start = self._first_values[place], self._program.span(node)[0]
        within = blocks & {node, *self._program.above(node)}
        return any(ends.get(block, start + 1) > start for block in within)

    def values(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Returns what a name is assigned, but for itself; any other expression is its own."""
        if chain(node) is None:
            return [node]
        return [one for one in self._uses.values[self.key(node)] if one is not node]

    def is_unwrapped_before(self, node: cst.CSTNode) -> bool:
        """Returns whether a name was assigned its own inner optimizer, further up in the text."""
        return any(self._is_before(one, node) for one in self._uses.unwrapped[self.key(node)])

    def _is_before(self, first: cst.CSTNode, second: cst.CSTNode) -> bool:
        return self._program.span(first)[1] <= self._program.span(second)[0]

    def is_asked_for_its_inner(self, node: cst.CSTNode) -> bool:
        """Returns whether a program of Keras asks a name, by a string, for `_optimizer`."""
        return self._is_of_keras and chain(node) is not None and self.key(node) in self._uses.asked

    def note_compat(self, call: cst.Call) -> None:
        """Notes that a call makes an optimizer of keras_mp.compat, which has the old attributes."""
        self._of_compat.add(call)

    def is_of_compat(self, node: cst.CSTNode) -> bool:
        """Returns whether all that makes a wrapped optimizer is keras_mp.compat's."""
        if self._is_in(self.elsewhere.compat, node):
            return True
        return bool(self._makers(node)) and self._makers(node) <= self._of_compat

    def is_partly_of_compat(self, node: cst.CSTNode) -> bool:
        """Returns whether a name may be an optimizer of keras_mp.compat, or another wrapped one."""
        return not self.is_of_compat(node) and bool(self._makers(node) & self._of_compat)

    def note_left_alone(self, call: cst.Call) -> None:
        """Notes that a call that makes an optimizer stays as it is."""
        self._left_alone.add(call)

    def left_alone(self, node: cst.CSTNode) -> bool | None:
        """Returns whether all that makes the optimizer of an attribute stays as it is.

        None where nothing does.
        """
        if not self._left_alone:
            return None
        made = {one for part in _bases(node) for one in self._makers(part)}
        return made <= self._left_alone if made & self._left_alone else None

    def _makers(self, node: cst.CSTNode) -> set[cst.CSTNode]:
        if isinstance(node, cst.Call):
            return {node}
        if chain(node) is None:
            return set()
        return {one for one in self._uses.values[self.key(node)] if _wraps(self._program, one)}

    def why_keras_2(self, call: cst.Call | None) -> str | None:
        """Returns why what a call makes must be an optimizer of Keras 2; None where it need not."""
        used = self._uses
        if any(name in used.called for name in _OF_KERAS_2):
            return "the program calls what optimizers of Keras 2 had"
        wrapped = [place for place, values in used.values.items() if self._wraps_any(values)]
        for place in wrapped:
            if "weights" in used.read[place] or place[1] in used.called["variables"]:
                return "the program reads its variables as those of Keras 2"
        return None if call is None else self.elsewhere.keras_2.get(self._program.where(call))

    def _wraps_any(self, values: list[cst.CSTNode]) -> bool:
        return any(_wraps(self._program, value) for value in values)

    def assigned_to(self, node: cst.CSTNode) -> tuple[object, str] | None:
        """Returns what a value is assigned to, if it is one name."""
        return self._uses.assigned.get(node)

    def reads(self, target: tuple[object, str], name: str) -> bool:
        """Returns whether an attribute is read of a name anywhere in its scope."""
        return name in self._uses.read[target]

    def is_called(self, target: tuple[object, str]) -> bool:
        """Returns whether a name is called anywhere in its scope."""
        return target in self._uses.names_called

    def key(self, node: cst.CSTNode) -> tuple[object, str]:
        """Returns what tells a name apart from those of other scopes."""
        return key(self._program, node)


def key(program: Program, node: cst.CSTNode) -> tuple[object, str]:
    """Returns what tells a name apart from those of other scopes: self.x belongs to its class."""
    names = chain(node) or []
    text = ".".join(name.value for name in names)
    if len(names) > 1:
        is_own = names[0].value in ("self", "cls")
        return (program.around(node, cst.ClassDef) if is_own else None), text
    scope = program.scope(node)
    while scope is not None and text not in getattr(scope, "_assignments", {text: 0}):
        outer = scope.parent
        if outer is scope:
            break
        scope = outer
    return scope, text


def _bases(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields what an attribute is read of, and what that is; of getattr, what is asked."""
    if isinstance(node, cst.Call):
        node = node.args[0].value
        yield node
    while isinstance(node, cst.Attribute):
        node = node.value
        yield node


def _wraps(program: Program, node: cst.CSTNode) -> bool:
    """Returns whether it is a call that makes a wrapped optimizer."""
    old = program.old(node.func) if isinstance(node, cst.Call) else None
    return old is not None and old.name in WRAPPERS


class _Uses(cst.CSTVisitor):
    def __init__(self, program: Program) -> None:
        self.program = program
        self.assigned: dict[cst.CSTNode, tuple[object, str]] = {}
        self.values: dict[tuple[object, str], list[cst.CSTNode]] = defaultdict(list)
        # What is assigned its own inner optimizer -> these values.
        self.unwrapped: dict[tuple[object, str], list[cst.CSTNode]] = defaultdict(list)
        self.read: dict[tuple[object, str], set[str]] = defaultdict(set)
        self.called: dict[str, set[str]] = defaultdict(set)  # method -> of what
        self.names_called: set[tuple[object, str]] = set()
        # What is asked, in an `if`, to be a wrapped optimizer -> the blocks where it is one.
        self.narrowed: dict[tuple[object, str], set[cst.CSTNode]] = defaultdict(set)
        # Function -> names of methods of scaled losses -> calls.
        self.methods: dict[cst.CSTNode, dict[str, list[cst.Call]]] = {}
        self.asked: set[tuple[object, str]] = set()
        self.has_other_wrappers = False
        self.policies_have_scales = False
        self.trains_otherwise = False

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assign(target.target, node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._assign(node.target, node.value)

    def visit_For(self, node: cst.For) -> None:
        self._assign_unknown(node.target)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._assign_unknown(node.target)

    def visit_WithItem(self, node: cst.WithItem) -> None:
        if node.asname is not None:
            self._assign_unknown(node.asname.name)

    def _assign_unknown(self, target: cst.CSTNode) -> None:
        """Notes that names get values that are not written out."""
        if isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self._assign_unknown(element.value)
        elif chain(target) is not None:
            self.values[key(self.program, target)].append(target)

    def _assign(self, target: cst.CSTNode, value: cst.CSTNode) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            values = value.elements if isinstance(value, (cst.Tuple, cst.List)) else ()
            starred = any(isinstance(e, cst.StarredElement) for e in (*target.elements, *values))
            if len(target.elements) != len(values) or starred:
                self._assign_unknown(target)
                return
            for one, of in zip(target.elements, values, strict=True):
                self._assign(one.value, of.value)
            return
        if chain(target) is None:
            return
        place = key(self.program, target)
        if isinstance(value, cst.IfExp):
            branches = [value.orelse, value.body]
            wrapping = [one for one in branches if _wraps(self.program, one)]
            for branch in [*(one for one in branches if one not in wrapping), *wrapping]:
                self._assign(target, branch)
            return
        self.assigned[value] = place
        # `opt = opt._optimizer` says nothing of what `opt` was, nor does `opt = opt`.
        inner = self._of_inner(value)
        if inner is None or chain(inner) is None or key(self.program, inner) != place:
            self.values[place].append(value)
        elif inner is not value:
            self.unwrapped[place].append(value)
        if isinstance(target, cst.Attribute) and target.attr.value == "_optimizer":
            around = (up for up in self.program.above(target) if isinstance(up, cst.ClassDef))
            bases = [self.program.source(base) for up in around for base in up.bases]
            self.has_other_wrappers |= any(map(_OPTIMIZER.search, bases))

    def _of_inner(self, value: cst.CSTNode) -> cst.CSTNode | None:
        """Returns x of `x._optimizer`, of `getattr(x, "_optimizer", ...)`, and of x itself."""
        if isinstance(value, cst.Attribute) and value.attr.value == "_optimizer":
            return value.value
        if isinstance(value, cst.Call):
            return value.args[0].value if self._asks_for_inner(value) else None
        return value

    def _asks_for_inner(self, call: cst.Call) -> bool:
        asks = isinstance(call.func, cst.Name) and call.func.value in ("getattr", "hasattr")
        return asks and len(call.args) > 1 and string(call.args[1].value) == "_optimizer"

    def visit_If(self, node: cst.If) -> None:
        self._narrow_by(node.test, node.body)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        self._narrow_by(node.test, node.body)

    def visit_While(self, node: cst.While) -> None:
        self._narrow_by(node.test, node.body)

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        if isinstance(node.operator, cst.And):
            self._narrow_by(node.left, node.right)

    def _narrow_by(self, test: cst.CSTNode, block: cst.CSTNode) -> None:
        tests = [test]
        while tests:
            test = tests.pop()
            if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
                tests += [test.left, test.right]
            elif isinstance(test, cst.Call):
                self._narrow(test, block)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        name = node.attr.value
        if chain(node.value) is not None:
            self.read[key(self.program, node.value)].add(name)
        if name == "loss_scale":
            self.policies_have_scales |= bool(LIKE_A_POLICY.search(self.program.source(node.value)))
        self.trains_otherwise |= bool(_OTHER_TRAINING.fullmatch(name))

    def visit_Call(self, node: cst.Call) -> None:
        if chain(node.func) is not None:
            self.names_called.add(key(self.program, node.func))
        if self._asks_for_inner(node) and chain(node.args[0].value) is not None:
            self.asked.add(key(self.program, node.args[0].value))
        if not isinstance(node.func, cst.Attribute):
            return
        name = node.func.attr.value
        self.called[name].add(self.program.source(node.func.value))
        if name in ("get_scaled_loss", "get_unscaled_gradients"):
            calls = self.methods.setdefault(self.program.function(node), {})
            calls.setdefault(name, []).append(node)

    def _narrow(self, call: cst.Call, block: cst.CSTNode) -> None:
        if not isinstance(call.func, cst.Name) or call.func.value != "isinstance":
            return
        if len(call.args) != 2 or chain(call.args[0].value) is None:
            return
        old = self.program.old(call.args[1].value)
        if old is not None and old.name in WRAPPERS:
            self.narrowed[key(self.program, call.args[0].value)].add(block)
