"""A model as a readable Keras 3 program: `keras-mp migrate --as-code`.

Knows Keras' configs of today. What the program builds has the same layers, by the same names, in
the same order: weights of the model load into it.
"""

import inspect
import json
import keyword
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.compat import recursion
from keras_mp.compat.layers import Functional, Operation
from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.expressions import operation
from keras_mp.compat.operations.vocabulary import SAME_IN_KERAS
from keras_mp.files.deserializing import deserialized

_WIDTH = 88
_HEAD = '''"""{title}

`build()` returns the model, without weights. They are in the file that was migrated:

    model = build()
    model.load_weights("{weights}")
"""
'''
# More layers one behind another than Python's stack has room for, as Keras goes through them.
_DEEP = 500
_ROOM = """\
import sys

{imports}
# Keras goes from layer to layer by a call inside of a call.
sys.setrecursionlimit(max(sys.getrecursionlimit(), {limit}))
"""
# Arguments for which None always means the same.
_RESOLVED = ("activation", "data_format")
_BUILTIN_NAMES = ("keras", "keras_mp", "layers", "ops", "build")


class NoCode(ValueError):
    """A model that cannot be written as a program; says why."""


def model_code(
    model: Any, *, title: str = "A model, as code.", weights: str = "model.keras"
) -> str:
    """Returns a program that builds a model, with a function `build`.

    Args:
        model: Functional or Sequential, with any of these inside.
        title: The first line of its docstring.
        weights: The file that its docstring names.

    Raises:
        NoCode: The model, or one inside, is a class of one's own.

    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")], name="net")
    >>> print(model_code(model).partition("def build():")[2].strip())
    return keras.Sequential(
            [
                keras.Input((3,)),
                layers.Dense(2, name="out"),
            ],
            name="net",
        )
    """
    head = _HEAD.format(title=_in_docstring(title), weights=_in_docstring(weights))
    why = ""
    with recursion.enough_for(_layers(model)):
        for several in (True, False):
            text = f"{head}\n{_program(model, several=several)}"
            why = _difference(text, model)
            if not why:
                return text
    raise NoCode(f"{model.name} has no code: what was written {why}")


def _layers(model: Any) -> int:
    return sum(1 for _ in keras_hooks.all_layers(model))


def _in_docstring(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")


def _difference(text: str, model: Any) -> str:
    """Returns in which way a program builds another model, or "".

    The program is ours: of the model it has literals only. Files have weights in the order of
    layers.
    """
    scope: dict[str, Any] = {}
    try:
        exec(compile(text, "<model_code>", "exec"), scope)
        with keras.StatelessScope(initialize_variables=False):
            made = scope["build"]()
    except Exception as error:  # noqa: BLE001 - of Keras, whatever it is
        return f"does not build it: {error}"
    is_same = _weights(made) == _weights(model)
    return "" if is_same else "has its weights in another order"


def _weights(model: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(weight.path, tuple(weight.shape)) for weight in model.weights]


def _program(model: Any, *, several: bool) -> str:
    """Returns the imports and the functions.

    Args:
        model: The model.
        several: Whether an operation may become several of keras.ops, which may change the order in
            which Keras has the layers.
    """
    writer = _Writer(several=several)
    body = writer.function(model, "build")
    functions = [*writer.functions, body]
    text = "\n\n\n".join(functions)
    uses = {name: f"{name}." in text for name in ("layers", "ops")}
    imports = "import keras\n"
    named = [name for name, used in uses.items() if used]
    if named:
        imports += f"from keras import {', '.join(named)}\n"
    if "keras_mp." in text:
        imports += "\nimport keras_mp.compat.activations\nimport keras_mp.compat.layers\n"
    if (layers := _layers(model)) > _DEEP:
        imports = _ROOM.format(imports=imports, limit=recursion.limit_for(layers))
    return f"{imports}\n\n{text}\n"


class _Writer:
    def __init__(self, *, several: bool) -> None:
        self.several = several
        self.functions: list[str] = []
        self.names: set[str] = {*_BUILTIN_NAMES, *keyword.kwlist}
        self.built: dict[int, str] = {}

    def function(self, model: Any, name: str) -> str:
        """Returns the text of the function that builds a model."""
        if isinstance(model, keras.Sequential):
            lines = [f"return {self.sequential(model)}"]
        elif hasattr(model, "operations") and model.get_config().get("input_layers") is not None:
            lines = list(self.functional(model))
        else:
            kind = type(model).__name__
            raise NoCode(f"{model.name} is of the class {kind}, which is not in the file: no code")
        body = "\n".join(textwrap.indent(line, "    ") for line in lines)
        return f"def {name}():\n{body}"

    def sequential(self, model: Any) -> str:
        items = []
        if model.built and model.inputs:
            items.append(_input(model.inputs[0], None))
        items += [self.layer(layer) for layer in model.layers]
        return _call("keras.Sequential", [_list(items)], {"name": _plain(model.name)})

    def functional(self, model: Any) -> Iterator[str]:
        config = model.get_config()
        local = _Names(self.names)
        layers = {layer.name: layer for layer in model.layers}
        # Keras makes masks by operations of its own, and will again.
        rows = [row for row in config["layers"] if row["name"] in layers]
        calls = {row["name"]: row["inbound_nodes"] for row in rows}
        known: dict[tuple[str, int, int], str] = {}
        shared: dict[str, str] = {}
        waiting = [(name, i) for name, nodes in calls.items() for i in range(max(1, len(nodes)))]
        while waiting:
            later = []
            for name, number in waiting:
                node = calls[name][number] if calls[name] else None
                needed = [one for one in _tensors(node) if one[0] in layers]
                if any(one not in known for one in needed):
                    later.append((name, number))
                    continue
                layer = layers[name]
                result = local.new(name if number == 0 else f"{name}_{number}")
                if node is None:
                    yield f"{result} = {_input(layer.output, layer)}"
                else:
                    if len(calls[name]) > 1 and name not in shared:
                        shared[name] = local.new(f"{name}_layer")
                        yield f"{shared[name]} = {self.layer(layer)}"
                    made = shared.get(name)
                    yield from self.called(layer, made, node, known, result, local)
                for i in range(_outputs(layer, number)):
                    several = _outputs(layer, number) > 1
                    known[name, number, i] = f"{result}[{i}]" if several else result
            if len(later) == len(waiting):
                raise NoCode(f"the layers of {model.name} have no order")
            waiting = later
        ends = [_structure(config[key], known) for key in ("input_layers", "output_layers")]
        kind = "keras.Model"
        if isinstance(model, Functional):
            kind = "keras_mp.compat.layers.Functional"
        yield f"return {_call(kind, ends, {'name': _plain(model.name)})}"

    def called(
        self,
        layer: Any,
        made: str | None,
        node: Mapping[str, Any],
        known: Mapping[tuple[str, int, int], str],
        result: str,
        local: "_Names",
    ) -> Iterator[str]:
        given = [_value(one, known) for one in node["args"]]
        options = {
            key: _value(one, known)
            for key, one in node["kwargs"].items()
            if (one is not None or key == "training")
            and all(tensor in known for tensor in _tensors(one))
        }
        if isinstance(layer, Operation) and made is None:
            inputs = [known[one] for one in _tensors(node)]
            lines = _as_ops(layer, inputs, result, local, several=self.several)
            if lines is not None:
                yield from lines
                return
        if not all(key.isidentifier() for key in options):
            raise NoCode(f"{layer.name} is called with {', '.join(options)}")
        maker = made or self.layer(layer)
        line = f"{result} = {maker}({', '.join([*given, *_keyword_arguments(options)])})"
        is_short = len(line.splitlines()[-1]) <= _WIDTH - 4
        yield line if is_short else f"{result} = {maker}{_call('', given, options, wrap=True)}"

    def layer(self, layer: Any) -> str:
        """Returns what makes a layer."""
        if isinstance(layer, keras.Model):
            if id(layer) not in self.built:
                name = _Names(self.names).new(f"build_{layer.name}")
                self.names.add(name)
                self.built[id(layer)] = name
                self.functions.append(self.function(layer, name))
            return f"{self.built[id(layer)]}()"
        return self.object(layer, layer.get_config(), type(layer))

    def object(self, made: Any, config: Mapping[str, Any], kind: type) -> str:
        """Returns what makes an object of Keras, or of ours, without its defaults."""
        place = _place(kind)
        parameters = inspect.signature(kind).parameters
        defaults = _defaults(kind, config)
        given, options = [], {}
        first = [name for name in ("operation", "arguments") if name in parameters]
        first = first or list(parameters)[:1]
        for key, value in sorted(config.items(), key=lambda item: item[0] not in first):
            takes = key in parameters or any(
                one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()
            )
            takes = takes or key == "name"
            if not takes:
                continue
            default = parameters[key].default if key in parameters else value
            # None may stand for something that other arguments say: strides, which are pool_size.
            is_said = default is not None or value is None or key in _RESOLVED
            if key != "name" and is_said and key in defaults and defaults[key] == value:
                continue
            text = self.literal(getattr(made, key, value) if _is_object(value) else value, value)
            if key in first and parameters[key].default is inspect.Parameter.empty:
                given.append(text)
            else:
                options[key] = text
        name = options.pop("name", None)
        if name is not None:
            options["name"] = name
        return _call(place, given, options)

    def literal(self, made: Any, value: Any) -> str:
        """Returns a value of a config."""
        if isinstance(value, list | tuple):
            items = [self.literal(item, item) for item in value]
            inner = ", ".join(items)
            if isinstance(value, tuple):
                return f"({inner},)" if len(items) == 1 else f"({inner})"
            return f"[{inner}]"
        if not isinstance(value, Mapping):
            return _plain(value)
        kind, inside = value.get("class_name"), value.get("config")
        if kind is None or "module" not in value:
            items = [f"{_plain(key)}: {self.literal(one, one)}" for key, one in value.items()]
            return f"{{{', '.join(items)}}}"
        if kind == "function":
            return _function(str(inside))
        if kind == "DTypePolicy" and isinstance(inside, Mapping):
            return _plain(inside["name"])
        if isinstance(made, Mapping):
            made = deserialized(dict(value))
        if isinstance(made, keras.layers.Layer):
            return self.layer(made)
        if not isinstance(inside, Mapping):
            raise NoCode(f"{kind} cannot be written as code")
        return self.object(made, made.get_config(), type(made))


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping) and "class_name" in value


class _Names:
    """Names of variables, each once."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = set(taken)

    def new(self, wanted: str) -> str:
        """Returns a name that is not taken, near to the one that is wanted."""
        name = re.sub(r"\W", "_", wanted.removeprefix("tf."), flags=re.ASCII).lower().strip("_")
        name = re.sub(r"^(?=\d)|^$", "x", name)
        own, number = name, 1
        while own in self.taken:
            own, number = f"{name}_{number}", number + 1
        self.taken.add(own)
        return own


def _place(kind: type) -> str:
    for package, short in (
        (keras.layers, "layers"),
        (keras.initializers, "keras.initializers"),
        (keras.regularizers, "keras.regularizers"),
        (keras.constraints, "keras.constraints"),
        (keras.dtype_policies, "keras.dtype_policies"),
    ):
        if getattr(package, kind.__name__, None) is kind:
            return f"{short}.{kind.__name__}"
    if kind.__module__.startswith("keras_mp.compat.layers"):
        return f"keras_mp.compat.layers.{kind.__name__}"
    raise NoCode(f"{kind.__name__} is a class that is not in the file: no code for it")


def _function(name: str) -> str:
    known = keras.saving.get_registered_object(name)
    if known is not None and known.__module__.startswith("keras_mp."):
        return f"keras_mp.compat.activations.{known.__name__}"
    if known is None and hasattr(keras.activations, name):
        return _plain(name)
    raise NoCode(f"the function {name} is not in the file: no code for it")


def _defaults(kind: type, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the config of an object that was given no more than it needs."""
    needed = {
        name: config[name]
        for name, one in inspect.signature(kind).parameters.items()
        if one.default is inspect.Parameter.empty and name in config
    }
    makers: list[Any] = [lambda: kind(**needed), lambda: kind.from_config(dict(needed))]  # type: ignore[attr-defined]
    for make in makers:
        try:
            found = make().get_config()
        except (AttributeError, KeyError, TypeError, ValueError):
            continue  # a layer inside, say, which is made of its config only
        return {key: value for key, value in found.items() if key not in needed}
    return {}


def _plain(value: object) -> str:
    """Returns a value as Python, texts in double quotes."""
    if isinstance(value, float) and not np.isfinite(value):
        return f'float("{value}")'
    if not isinstance(value, str):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\x85\u2028\u2029]", lambda end: f"\\u{ord(end[0]):04x}", text)  # end lines


def _input(tensor: Any, layer: Any) -> str:
    shape = tensor.shape
    options = {}
    if shape[0] is not None:
        options["batch_shape"] = repr(tuple(shape))
    given = [] if options else [repr(tuple(shape[1:]))]
    if str(tensor.dtype) != "float32":
        options["dtype"] = _plain(str(tensor.dtype))
    if layer is not None:
        options["name"] = _plain(layer.name)
    return _call("keras.Input", given, options)


def _outputs(layer: Any, number: int) -> int:
    nodes = keras_hooks.calls_of(layer)
    return len(nodes[min(number, len(nodes) - 1)].output_tensors) if nodes else 1


def _tensors(value: Any) -> Iterator[tuple[str, int, int]]:
    if isinstance(value, Mapping):
        if value.get("class_name") == "__keras_tensor__":
            name, node, tensor = value["config"]["keras_history"]
            yield name, node, tensor
            return
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _value(value: Any, known: Mapping[tuple[str, int, int], str]) -> str:
    if isinstance(value, Mapping):
        if value.get("class_name") == "__keras_tensor__":
            return known[next(_tensors(value))]
        return "{" + ", ".join(f"{k!r}: {_value(v, known)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item, known) for item in value) + "]"
    return _plain(value)


def _structure(value: Any, known: Mapping[tuple[str, int, int], str]) -> str:
    """Returns the inputs or outputs of a model."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_structure(v, known)}" for k, v in value.items()) + "}"
    items = list(value)
    if len(items) == 3 and isinstance(items[0], str) and isinstance(items[1], int):
        name, node, tensor = items
        key = (name, node, tensor)
        # A submodel's own node is counted where outputs are named.
        return known[key] if key in known else known[name, node - 1, tensor]
    return "[" + ", ".join(_structure(item, known) for item in items) + "]"


def _as_ops(
    layer: Operation, inputs: Sequence[str], result: str, local: "_Names", *, several: bool
) -> list[str] | None:
    """Returns an operation in keras.ops; None where these compute something else."""
    tensors = keras_hooks.calls_of(layer)[0].input_tensors
    ranks = [len(tensor.shape) for tensor in tensors]
    *before, last = [_in_keras(part, ranks) for part in (*layer.steps, layer.operation)]
    if not all(_is_same(part, layer.compute_dtype) for part in (*before, last)):
        return None
    if not several and sum(map(expressions.is_operation, expressions.walk([*before, last]))) > 1:
        return None
    steps = [local.new(f"{result}_{i}") for i in range(len(before))]
    names = [*inputs, *steps]

    def text(value: Any) -> str:
        # A step is to a program what an input is.
        named = expressions.map_parts(value, lambda part: _as_tensor(part, len(inputs)))
        return expressions.as_source(named, names.__getitem__, runs=True)

    lines = [f"{name} = {text(one)}" for name, one in zip(steps, before, strict=True)]
    lines.append(f"{result} = {text(last)}")
    return lines if _gives_the_same(layer, lines, inputs, result) else None


def _as_tensor(part: Mapping[str, Any], inputs: int) -> Any:
    return {"tensor": inputs + part["step"]} if "step" in part else None


def _gives_the_same(
    layer: Operation, lines: Sequence[str], inputs: Sequence[str], result: str
) -> bool:
    """Returns whether lines of keras.ops compute what an operation does, tried with numbers.

    keras.ops has other rules for dtypes: a mean of whole numbers, and lists beside tensors.
    """
    random = np.random.default_rng(0)
    symbols = keras_hooks.calls_of(layer)[0].input_tensors
    given = [_numbers(tensor, random) for tensor in symbols]
    try:
        for tensors in (symbols, given):
            scope: dict[str, Any] = {"ops": keras.ops, **dict(zip(inputs, tensors, strict=True))}
            exec("\n".join(lines), scope)
        pairs = zip(
            keras.tree.flatten(scope[result]), keras.tree.flatten(layer(given)), strict=True
        )
        return all(
            a.dtype == b.dtype
            and np.allclose(keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b), rtol=1e-6)
            for a, b in pairs
        )
    except Exception:  # noqa: BLE001 - of Keras: it does not take them
        return False


def _numbers(tensor: Any, random: np.random.Generator) -> Any:
    shape, dtype = [3 if size is None else size for size in tensor.shape], str(tensor.dtype)
    is_floating = dtype.startswith(("float", "bfloat"))
    numbers = (
        random.normal(size=shape)
        if is_floating
        else random.integers(0, 2 if dtype == "bool" else 5, shape)
    )
    return keras.ops.cast(keras.ops.convert_to_tensor(numbers), dtype)


def _in_keras(value: Any, ranks: Sequence[int]) -> Any:
    """Returns an expression with x[:, 0] for StridedSlice, and transposes apart from products."""

    def change(part: Any) -> Any:
        if part.get("operation") == "strided_slice":
            return _as_key(part["arguments"], ranks)
        if part.get("operation") == "matmul":
            arguments = dict(part["arguments"])
            for name in "ab":
                matrix = arguments[name]
                if arguments.get(f"transpose_{name}") is True and "tensor" in matrix:
                    *rest, one, other = range(ranks[matrix["tensor"]])
                    turned = operation("transpose", matrix, [*rest, other, one])
                    arguments |= {name: turned, f"transpose_{name}": False}
            return operation("matmul", **arguments)
        return None

    return expressions.map_parts(value, change)


def _as_key(given: Mapping[str, Any], ranks: Sequence[int]) -> Any:
    of, begin, end = (given[key] for key in ("x", "begin", "end"))
    steps = given.get("strides") or [1] * len(begin)
    if not expressions.is_literal([begin, end, steps]) or not isinstance(begin, list):
        return None

    def has(mask: str, place: int) -> bool:
        return bool(given.get(f"{mask}_mask", 0) & (1 << place))

    key: list[Any] = []
    for i, (start, stop, step) in enumerate(zip(begin, end, steps, strict=True)):
        if has("ellipsis", i):
            key.append({"ellipsis": True})
        elif has("new_axis", i):
            key.append(None)
        elif has("shrink_axis", i):
            key.append(start)
        else:
            first, last = None if has("begin", i) else start, None if has("end", i) else stop
            key.append({"slice": [first, last, None if step == 1 else step]})
    return operation("get_item", _in_keras(of, ranks), key if len(key) > 1 else key[0])


def _is_same(value: Any, dtype: str) -> bool:
    for part in expressions.walk(value):
        if isinstance(part, Mapping) and "operation" in part:
            name, arguments = part["operation"], part["arguments"]
            assert isinstance(arguments, Mapping)
            if name not in SAME_IN_KERAS or not arguments.keys() <= SAME_IN_KERAS[str(name)]:
                return False
            # In float16 a list would be float32, and PyTorch keeps the digits of numbers.
            plain = [value for value in arguments.values() if not isinstance(value, Mapping)]
            if dtype != "float32" and not all(map(_is_exact_in_float16, plain)):
                return False
    return True


def _is_exact_in_float16(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, int) for item in value)
    return not isinstance(value, float) or float(np.float16(value)) == value


def _list(items: Sequence[str]) -> str:
    inner = "".join(f"{textwrap.indent(item, '    ')},\n" for item in items)
    return f"[\n{inner}]"


def _keyword_arguments(options: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in options.items()]


def _call(
    name: str, given: Sequence[str], options: Mapping[str, str], *, wrap: bool = False
) -> str:
    """Returns a call: on one line, or an argument a line."""
    arguments = [*given, *_keyword_arguments(options)]
    line = f"{name}({', '.join(arguments)})"
    if len(line) <= _WIDTH - 16 and "\n" not in line and not wrap:
        return line
    inner = "".join(f"{textwrap.indent(argument, '    ')},\n" for argument in arguments)
    return f"{name}(\n{inner})"


__all__ = ["NoCode", "model_code"]
