"""What the operations and Lambda layers of an old model compute, in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from keras_mp.compat.configs import operation_layers
from keras_mp.compat.configs.operation_calls import references, tensor_name
from keras_mp.compat.configs.report import Report
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.operations import expressions

_MOST = 100  # models inside of models


@dataclass(frozen=True, slots=True)
class Computed:
    """A layer that is an operation or a Python function.

    Attributes:
        name: Of the layer.
        class_name: Such as "TFOpLambda" or "Lambda".
        expression: What it computes, "x / 255"; None where it has no counterpart.
        why: Why it has none.
    """

    name: str
    class_name: str
    expression: str | None = None
    why: str | None = None

    def __str__(self) -> str:
        if self.why is not None:
            return f"{self.name}: {self.why}"
        return f"{self.name} = {self.expression}"


def computed_of(config: object) -> list[Computed]:
    """Returns the layers of a model's config that compute with operations, in their order.

    >>> call = [["x", 0, 0, {"y": 2.0}]]
    >>> twice = {"class_name": "TFOpLambda", "name": "twice", "inbound_nodes": call}
    >>> twice["config"] = {"name": "twice", "function": "math.multiply", "dtype": "float32"}
    >>> x = {"class_name": "InputLayer", "name": "x", "config": {}, "inbound_nodes": []}
    >>> ends = {"input_layers": [["x", 0, 0]], "output_layers": [["twice", 0, 0]]}
    >>> print(*computed_of({"config": {"layers": [x, twice], **ends}}))
    twice = x * 2.0
    """
    return list(_in(config, "$", 0))


def _in(value: object, path: str, depth: int) -> Iterator[Computed]:
    inside = value.get("config") if isinstance(value, Mapping) else None
    layers = inside.get("layers") if isinstance(inside, Mapping) else inside
    if depth > _MOST:
        return
    if isinstance(layers, list):
        layers = [layer for layer in layers if isinstance(layer, Mapping)]
        if isinstance(inside, Mapping) and "output_layers" in inside:
            yield from _functional(layers, inside["output_layers"], f"{path}.config.layers")
        else:
            for i, layer in enumerate(layers):
                yield from _alone(layer, f"{path}.config.layers[{i}]")
        for i, layer in enumerate(layers):
            yield from _in(layer, f"{path}.config.layers[{i}]", depth + 1)
    elif isinstance(inside, Mapping) and isinstance(inside.get("layer"), Mapping):
        yield from _alone(inside["layer"], f"{path}.config.layer")
        yield from _in(inside["layer"], f"{path}.config.layer", depth + 1)


def _alone(layer: Mapping[str, object], path: str) -> Iterator[Computed]:
    if not operation_layers.is_one(layer):
        return
    kind, inside = str(layer["class_name"]), layer.get("config")
    name = str(inside.get("name")) if isinstance(inside, Mapping) else kind
    try:
        today = operation_layers.single_input_layer(layer, path, Report())
    except LegacyError as error:
        yield Computed(name, kind, why=str(error))
    else:
        yield Computed(name, kind, _shown(today, ["x"]))


def _functional(
    layers: Sequence[Mapping[str, object]], outputs: object, path: str
) -> Iterator[Computed]:
    kinds = {str(layer.get("name")): str(layer.get("class_name")) for layer in layers}
    report = Report()
    try:
        rows, _ = operation_layers.layers_of_today(layers, outputs, path, report)
    except LegacyError as error:
        yield Computed("?", "?", why=str(error))
        return
    why: dict[str, str] = {}
    for one in report.refused:
        number = one.path.removeprefix(f"{path}[").partition("]")[0]
        if number.isdecimal() and int(number) < len(layers):
            why.setdefault(str(layers[int(number)].get("name")), str(one))
    names = {str(row.get("name")) for row in rows}
    for row in rows:
        name = str(row.get("name"))
        old = name if name in kinds else name.rpartition("_call_")[0]
        if not str(row.get("registered_name")).startswith("keras_mp>"):
            continue
        if old in why:
            yield Computed(name, kinds[old], why=why[old])
        else:
            given = [tensor_name(one) for one in references(row.get("inbound_nodes"), names)]
            yield Computed(name, kinds.get(old, "?"), _shown(row, given))


def _shown(today: Mapping[str, object], inputs: Sequence[str]) -> str:
    config = today["config"]
    assert isinstance(config, Mapping)
    if "operation" not in config:
        return f"{today['class_name']}({', '.join(inputs)})"
    whole = {"operation": config["operation"], "arguments": config["arguments"]}
    steps = config.get("steps", [])
    assert isinstance(steps, list)

    return expressions.shown_program(steps, whole, lambda number: inputs[number])
