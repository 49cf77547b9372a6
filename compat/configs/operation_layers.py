"""Layers of TF 1.15 to 2.15 that are operations or Python functions, as layers of today.

TensorFlowOpLayer (TF 1.15 to 2.3), TFOpLambda and SlicingOpLambda (2.4 to 2.15), Lambda, AddLoss
and AddMetric: in a functional model each call of one becomes a layer. What only computes a shape
moves into the layers that use it, as shapes are no tensors on JAX and PyTorch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from keras_mp.compat.configs import checks, operation_calls, policies
from keras_mp.compat.configs.checks import describe
from keras_mp.compat.configs.operation_calls import IN_CODE, Call, Reference, references
from keras_mp.compat.configs.report import Report
from keras_mp.compat.configs.serialized import Config, allowed_name, of_ours
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.expressions import Expression, operation

Json = dict[str, object]
Key = tuple[str, int]  # layer, call

FUNCTIONS = ("TFOpLambda", "SlicingOpLambda")
GRAPH_OP = "TensorFlowOpLayer"
ADDED = ("AddLoss", "AddMetric")
KINDS = (*FUNCTIONS, GRAPH_OP, *ADDED, "Lambda")

READ = "{} = {} (read from its byte code; nothing was run)"
COMPUTES = "{} = {}"
MOVED = "{new!r} is the output now and passes on that of {old!r}: use this name in dicts of losses"
MOST_DEPTH = 50  # of shapes computed from shapes; written by hand they are of a few
_SEVERAL = ("split", "unstack", "moments", "top_k", "meshgrid", "as_list")


def is_one(given: Config) -> bool:
    """Returns whether a layer is for this module: all of `KINDS`, but Lambdas known by a name."""
    inside = given.get("config")
    by_name = isinstance(inside, Mapping) and isinstance(inside.get("function"), str)
    return given.get("class_name") in KINDS and not (given["class_name"] == "Lambda" and by_name)


def single_input_layer(given: Config, path: str, report: Report) -> Json:
    """Returns today's form of such a layer that has one input: in a Sequential, or in a wrapper.

    Raises:
        LegacyError: It has no counterpart.
    """
    kind = given.get("class_name")
    inside = checks.mapping(given.get("config"), f"{path}.config")
    if kind != "Lambda":
        why = f"what {kind} computes is saved only where a functional model calls it"
        raise LegacyError(f"{path}.class_name", describe(kind), why)
    call = operation_calls.lambda_call(inside, [("", 0, 0)], is_list=False, path=path)
    name = allowed_name(str(inside.get("name", "lambda")))
    return _layer(str(kind), call, name, inside, report)


def layers_of_today(
    layers: Sequence[Config], outputs: object, path: str, report: Report
) -> tuple[list[Config], object]:
    """Returns the layers and the outputs of a functional model, with today's in their places.

    Args:
        layers: As the old config has them.
        outputs: Its "output_layers".
        path: Where `layers` are.
        report: Takes the changes, and all that is refused.
    """
    if not any(map(is_one, layers)):
        return list(layers), outputs
    names = {str(layer.get("name")) for layer in layers}
    calls: dict[Key, Call] = {}
    kinds: dict[Key, str] = {}
    for i, layer in enumerate(layers):
        if is_one(layer):
            of_layer = _calls(layer, names, f"{path}[{i}]", report)
            calls |= of_layer
            kinds |= dict.fromkeys(of_layer, str(layer["class_name"]))
    plain = {key: call for key, call in calls.items() if kinds[key] not in ADDED}
    static = _inlined(plain, report)
    others = [layer for layer in layers if not is_one(layer)]
    used = set(references([[layer.get("inbound_nodes") for layer in others], outputs], names))
    used |= {one for key, call in calls.items() if kinds[key] in ADDED for one in call.inputs}
    wanted = {reference[:2] for reference in used}
    kept = [key for key in calls if key not in static or key in wanted]
    renamed = _names(kept, names)
    result: list[Config] = []
    for layer in layers:
        if not is_one(layer):
            nodes = _replaced(layer.get("inbound_nodes"), renamed)
            result.append({**layer, "inbound_nodes": nodes})
        for key in kept:
            if is_one(layer) and key[0] == layer["name"]:
                result.append(_emitted(layer, kinds[key], calls[key], key, renamed, report))
    added = [renamed[key] for key in kept if kinds[key] in ADDED]
    return _attached(result, _replaced(outputs, renamed), added, path, report)


def _calls(layer: Config, names: set[str], path: str, report: Report) -> dict[Key, Call]:
    checks.require(layer, path, "name", "config", "inbound_nodes")
    name, nodes, kind = layer["name"], layer["inbound_nodes"], str(layer["class_name"])
    if not isinstance(name, str):
        raise LegacyError(f"{path}.name", describe(name), "expected a name")
    if not isinstance(nodes, list):
        raise LegacyError(f"{path}.inbound_nodes", describe(nodes), "expected a list of calls")
    config = checks.mapping(layer["config"], f"{path}.config")
    result: dict[Key, Call] = {}
    refused: set[str] = set()
    for i, node in enumerate(nodes):
        where = f"{path}.inbound_nodes[{i}]"
        given = references(node, names)
        try:
            if kind in FUNCTIONS:
                call = operation_calls.function_call(config, node, names, path, where)
            elif not given:
                raise LegacyError(where, "has no tensor", "expected [layer, node, tensor]")
            elif kind == GRAPH_OP:
                call = operation_calls.graph_op_call(config, given, path)
            elif kind == "Lambda":
                several = isinstance(node, list) and len(node) > 1
                is_list = several and not operation_calls.is_reference(node, names)
                call = operation_calls.lambda_call(config, given, is_list=is_list, path=path)
            else:
                call = Call(path, None, given[:1])
        except LegacyError as error:
            if str(error) not in refused:  # once, where a layer is called often
                report.refuse(error)
            refused.add(str(error))
            call = Call(path, operation("identity", expressions.tensor(0)), given)
        result[name, i] = call
    return result


def _inlined(calls: dict[Key, Call], report: Report) -> set[Key]:
    """Moves what only computes shapes into what uses it, and returns those calls."""
    waiting, done, static = list(calls), set[Key](), set[Key]()
    while waiting:
        later = []
        for key in waiting:
            call = calls[key]
            if any(one[:2] in calls and one[:2] not in done for one in call.inputs):
                later.append(key)
                continue
            _inline(call, {key: calls[key] for key in static}, report)
            done.add(key)
            if not call.steps and expressions.is_static(call.result):
                static.add(key)
        if len(later) == len(waiting):
            break  # a loop, which is found where the layers are connected
        waiting = later
    return static


def _inline(call: Call, static: Mapping[Key, Call], report: Report) -> None:
    if not any(one[:2] in static for one in call.inputs):
        return
    call.depth = 1 + max(static[one[:2]].depth for one in call.inputs if one[:2] in static)
    if call.depth > MOST_DEPTH:
        _refuse_shapes(call, report)
        return
    inputs: list[Reference] = []
    parts: list[Expression] = []
    for one in call.inputs:
        source = static.get(one[:2])
        if source is None:
            parts.append(expressions.tensor(operation_calls.place(one, inputs)))
            continue
        places = [operation_calls.place(other, inputs) for other in source.inputs]
        part = _with(source.result, [expressions.tensor(number) for number in places])
        parts.append(operation("item", part, one[2]) if _has_several(source.result) else part)
    call.inputs = inputs
    call.steps = [_with(step, parts) for step in call.steps]
    call.result = _with(call.result, parts)
    if sum(1 for _ in expressions.walk(call.result)) > expressions.MOST_NODES:
        _refuse_shapes(call, report)


def _refuse_shapes(call: Call, report: Report) -> None:
    report.refuse(LegacyError(call.path, "computes too much with shapes", IN_CODE))
    call.result, call.steps = operation("identity", expressions.tensor(0)), []


def _has_several(value: Expression) -> bool:
    return isinstance(value, Mapping) and value.get("operation") in _SEVERAL


def _with(value: Expression, parts: Sequence[Expression]) -> Expression:
    """Returns an expression with others in the places of its tensors."""

    def change(part: Json) -> Expression | None:
        return parts[int(str(part["tensor"]))] if "tensor" in part else None

    return expressions.map_parts(value, change)


def _names(kept: Iterable[Key], names: set[str]) -> dict[Key, str]:
    """Returns the names of the layers that calls become: one layer has one call."""
    taken, found_names = {allowed_name(name) for name in names}, dict[Key, str]()
    seen: set[str] = set()
    for name, number in kept:
        own = name
        while own in seen or (own != name and allowed_name(own) in taken):
            own = f"{name}_call_{number}"
            number += 1
        seen.add(own)
        found_names[name, number if own == name else number - 1] = own
    return found_names


def _replaced(value: object, names: Mapping[Key, str]) -> object:
    """Returns calls or outputs, with the tensors of operations under their new names."""
    return _mapped(value, lambda one: (names[one[:2]], 0, one[2]) if one[:2] in names else one)


def _mapped(value: object, change: Callable[[Reference], Reference]) -> object:
    """Returns calls or outputs with what `change` returns in the place of each tensor."""
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) in (3, 4) and isinstance(value[0], str) and isinstance(value[1], int):
        head = change((value[0], value[1], value[2]))
        return [*head, *(_mapped(item, change) for item in value[3:])]
    return [_mapped(item, change) for item in value]


def _emitted(
    layer: Config, kind: str, call: Call, key: Key, names: Mapping[Key, str], report: Report
) -> Json:
    config = checks.mapping(layer["config"], f"{call.path}.config")
    today = _layer(kind, call, allowed_name(names[key]), config, report)
    inputs = [_replaced([*reference, {}], names) for reference in call.inputs]
    return today | {"name": names[key], "inbound_nodes": [inputs]}


def _layer(kind: str, call: Call, name: str, given: Config, report: Report) -> Json:
    dtype = policies.policy(given.get("dtype") or "float32", f"{call.path}.config.dtype", report)
    config: Json = {"name": name, "trainable": bool(given.get("trainable", True)), "dtype": dtype}
    if kind == "AddMetric":
        if given.get("aggregation") != "mean" or not isinstance(given.get("metric_name"), str):
            why = "only the mean of a value is kept; add the metric in code"
            where = f"{call.path}.config.aggregation"
            report.refuse(LegacyError(where, describe(given.get("aggregation")), why))
        config |= {"metric_name": str(given.get("metric_name")), "aggregation": "mean"}
    if kind in ADDED:
        report.add(call.path, "rewritten", f"keras_mp.compat.layers.{kind}")
        return of_ours("keras_mp.compat.layers", kind, config)
    result = call.result
    if not expressions.is_operation(result):
        several = isinstance(result, list)
        result = operation("as_list" if several else "identity", result)
    assert isinstance(result, Mapping)
    config |= {"operation": result["operation"], "arguments": result["arguments"]}
    if call.steps:
        config["steps"] = call.steps
    names = [operation_calls.tensor_name(one) for one in call.inputs] or ["?"]  # if it was refused
    shown = expressions.shown_program(call.steps, call.result, lambda number: names[number])
    text = (READ if kind == "Lambda" else COMPUTES).format(name, shown)
    report.add(call.path, "computes", text, matters=kind == "Lambda")
    return of_ours("keras_mp.compat.layers", "Operation", config)


def _attached(
    layers: list[Config], outputs: object, added: Sequence[str], path: str, report: Report
) -> tuple[list[Config], object]:
    """Puts each AddLoss and AddMetric that leads nowhere on the way to an output.

    In Keras 3 only what leads to an output is computed.
    """
    by_name = {str(layer["name"]): dict(layer) for layer in layers}
    for name in added:
        nodes = [layer["inbound_nodes"] for layer in by_name.values()]
        if any(one[0] == name for one in references([nodes, outputs], by_name.keys())):
            continue
        ends = references(outputs, by_name.keys())
        if not ends:
            continue  # no model, which is told where the layers are connected
        last = ends[0]
        before = references(by_name[last[0]]["inbound_nodes"], by_name.keys())
        if before and last[0] not in _ancestors(name, by_name):
            through = before[0]
            nodes_of = by_name[last[0]]["inbound_nodes"]
            by_name[last[0]]["inbound_nodes"] = _put(nodes_of, through, name)
        else:
            through = last
            outputs = _put(outputs, through, name)
            report.add(path, "differs", MOVED.format(new=name, old=last[0]), matters=True)
        (value,) = references(by_name[name]["inbound_nodes"], by_name.keys())
        by_name[name]["inbound_nodes"] = [[[*through, {}], [*value, {}]]]
    return list(by_name.values()), outputs


def _ancestors(name: str, layers: Mapping[str, Config]) -> set[str]:
    """Returns the layers that a layer needs, itself included."""
    seen, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            nodes = layers[one].get("inbound_nodes")
            waiting += [other[0] for other in references(nodes, layers.keys())]
    return seen


def _put(value: object, old: Reference, name: str) -> object:
    """Returns calls or outputs with another tensor in the place of one."""
    return _mapped(value, lambda one: (name, 0, 0) if one == old else one)
