"""How the layers of a functional model are connected: nodes of Keras 2, rewritten as today's.

In Keras 2 a node was a list of `[layer, node, tensor, keyword arguments]`, one for each tensor of
the first argument. Today it holds all arguments, each tensor as `__keras_tensor__`.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from keras_mp.compat.configs import checks
from keras_mp.compat.configs.checks import at, describe
from keras_mp.compat.configs.layer_tables import RECURRENT
from keras_mp.compat.configs.layers import Json, checked_name
from keras_mp.compat.errors import LegacyError

CONSTANT, COMPOSITE = "_CONSTANT_VALUE", "_COMPOSITE_TYPE"
_NOT_A_TENSOR = "expected [layer, node, tensor]"


@dataclass(frozen=True, slots=True)
class Called:
    """One layer of a graph, as the old config had it.

    Attributes:
        name: Its name today.
        kind: Its class.
        nodes: Its calls; an input has one without tensors.
        base: The number of the first call: 1 where the layer is a model, which in Keras 2 began
            with a node of its own.
        is_functional: Whether Keras 3 counts that node, too, where outputs are named.
    """

    name: str
    kind: str
    nodes: list[object]
    base: int
    is_functional: bool


Graph = Mapping[str, Called]


def calls_by_layer(
    layers: list[Mapping[str, object]], ends: object, path: str
) -> dict[str, Called]:
    """Returns the layers of a graph by their old names.

    Args:
        layers: The "layers" of the config of a functional model.
        ends: Its "input_layers" and "output_layers".
        path: Where `layers` are.

    Raises:
        LegacyError: A name is there twice, or a call that no layer has is referred to.
    """
    names = [layer.get("name") for layer in layers]
    used: dict[object, set[int]] = {name: set() for name in names if isinstance(name, str)}
    for i, layer in enumerate(layers):
        where = f"{path}[{i}]"
        checks.require(layer, where, "name", "inbound_nodes")
        if not isinstance(layer["inbound_nodes"], list):
            why = "expected a list of calls"
            raise LegacyError(f"{where}.inbound_nodes", describe(layer["inbound_nodes"]), why)
    for reference in _references([layer["inbound_nodes"] for layer in layers] + [ends]):
        if reference[0] in used and _is_count(reference[1]):
            used[reference[0]].add(reference[1])
    graph: dict[str, Called] = {}
    todays: set[str] = set()
    for i, layer in enumerate(layers):
        where = f"{path}[{i}].name"
        name, nodes = layer["name"], layer["inbound_nodes"]
        today = checked_name(name, where)
        if today in todays:
            raise LegacyError(where, describe(name), "another layer of the model has this name")
        todays.add(today)
        assert isinstance(name, str)
        assert isinstance(nodes, list)
        kind = str(layer.get("class_name"))
        inside = layer.get("config")
        is_functional = isinstance(inside, Mapping) and "output_layers" in inside
        base = _base(used[name], len(nodes), is_functional, kind, inside)
        graph[name] = Called(today, kind, nodes or [None], base, is_functional)
    return graph


def nodes(name: str, graph: Graph, path: str) -> list[object]:
    """Returns today's "inbound_nodes" of the layer of the old name `name`."""
    called = graph[name]
    if called.nodes == [None]:
        return []
    return [_node(called, node, graph, f"{path}[{i}]") for i, node in enumerate(called.nodes)]


def ends(value: object, graph: Graph, path: str) -> object:
    """Returns today's "input_layers" or "output_layers".

    A list of one is that one: so Keras 2 read it, and Keras 3 since 3.11 does not.
    """
    if isinstance(value, list) and len(value) == 1 and not _is_reference(value):
        value = value[0]
    return _mapped(value, path, functools.partial(_end, graph=graph))


def check_order(graph: Graph, path: str) -> None:
    """Raises where a loop keeps a layer from being called; Keras 3.10 would try for ever."""
    done = dict.fromkeys(graph, 0)
    progress = True
    while progress:
        progress = False
        for name, called in graph.items():
            while done[name] < len(called.nodes) and all(
                done[str(source)] > index - graph[str(source)].base
                for source, index, *_ in _references(called.nodes[done[name]])
                if source in graph and _is_count(index)
            ):
                done[name] += 1
                progress = True
    stuck = [name for name, called in graph.items() if done[name] < len(called.nodes)]
    if stuck:
        raise LegacyError(path, f"has a loop at {stuck[0]!r}", "a layer needs its own output")


def _base(used: set[int], count: int, is_functional: bool, kind: str, inside: object) -> int:
    if 0 in used or not used:
        return 0
    if max(used) == count:
        return 1
    layers = inside.get("layers") if isinstance(inside, Mapping) else None
    # A Sequential that has no input yet began without a node, from TF 2.6 on.
    return int(is_functional or (kind == "Sequential" and _begins_with_input(layers)))


def _begins_with_input(layers: object) -> bool:
    first = layers[0] if isinstance(layers, list) and layers else None
    if not isinstance(first, Mapping):
        return False
    config = first.get("config")
    has_shape = isinstance(config, Mapping) and "batch_input_shape" in config
    return first.get("class_name") == "InputLayer" or has_shape


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_reference(value: object) -> TypeGuard[list[object]]:
    """Whether Keras 2 took a list for a tensor and not for a structure of tensors."""
    return isinstance(value, list) and len(value) in (3, 4) and isinstance(value[0], str)


def _references(value: object) -> Iterator[list[object]]:
    if _is_reference(value):
        yield value
        value = value[3:]
    if isinstance(value, Mapping):
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _references(item)


def _node(called: Called, node: object, graph: Graph, path: str) -> Json:
    if isinstance(node, Mapping) and node.keys() == {"args", "kwargs"}:
        return dict(node)
    kwargs = _keywords(node, graph, path)
    if isinstance(node, list) and len(node) == 1 and not _is_reference(node):
        node, path = node[0], f"{path}[0]"
    first = _mapped(node, path, functools.partial(_argument, graph=graph))
    if called.kind in RECURRENT and isinstance(first, list) and len(first) > 1:
        # Keras 2 took states that are Keras tensors for further inputs.
        return {"args": [first[0]], "kwargs": kwargs | {"initial_state": first[1:]}}
    return {"args": [first], "kwargs": kwargs}


def _keywords(node: object, graph: Graph, path: str) -> Json:
    """Every tensor of the first argument repeats the keyword arguments of the call."""
    result: Json = {}
    if _is_reference(node):
        if len(node) == 4:
            given = checks.mapping(node[3], f"{path}[3]")
            for key, value in given.items():
                if (key, value) not in (("mask", None), ("training", None)):
                    result[key] = _keyword(value, graph, at(f"{path}[3]", key))
        return result
    if isinstance(node, Mapping):
        for key, item in node.items():
            result |= _keywords(item, graph, at(path, key))
    elif isinstance(node, list):
        for i, item in enumerate(node):
            result |= _keywords(item, graph, f"{path}[{i}]")
    return result


def _keyword(value: object, graph: Graph, path: str) -> object:
    if isinstance(value, list) and value[:1] == [COMPOSITE]:
        raise LegacyError(path, "is a tensor of TensorFlow", "ragged or sparse: call it in code")
    if _is_reference(value) and value[0] in graph and all(map(_is_count, value[1:])):
        return _tensor(value, graph, path)
    if isinstance(value, list):
        return [_keyword(item, graph, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: _keyword(item, graph, at(path, key)) for key, item in value.items()}
    return value


def _mapped(value: object, path: str, of: Callable[[list[object], str], object]) -> object:
    """Returns tensors, nested in whatever way, with what `of` makes of each."""
    if _is_reference(value):
        return of(value, path)
    if isinstance(value, list) and value:
        return [_mapped(item, f"{path}[{i}]", of) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and value:
        return {key: _mapped(item, at(path, key), of) for key, item in value.items()}
    raise LegacyError(path, describe(value), _NOT_A_TENSOR)


def _argument(value: list[object], path: str, graph: Graph) -> object:
    if value[0] != CONSTANT:
        return _tensor(value, graph, path)
    if isinstance(value[2], list | dict):
        raise LegacyError(f"{path}[2]", "is a constant tensor", "call the layer in code")
    return value[2]


def _tensor(value: list[object], graph: Graph, path: str) -> Json:
    """Shape and dtype are stand-ins: Keras builds the tensor anew and reads only its origin."""
    name, index, tensor = _resolved(value, graph, path)
    config = {"shape": [], "dtype": "float32", "keras_history": [name, index, tensor]}
    return {"class_name": "__keras_tensor__", "config": config}


def _resolved(value: list[object], graph: Graph, path: str) -> tuple[str, int, int]:
    name, index, tensor = value[:3]
    if not isinstance(name, str) or name not in graph:
        raise LegacyError(f"{path}[0]", describe(name), "the model has no such layer")
    called = graph[name]
    if not isinstance(index, int) or not 0 <= index - called.base < len(called.nodes):
        raise LegacyError(f"{path}[1]", describe(index), f"{name!r} has no such call")
    if not isinstance(tensor, int) or not _is_count(tensor):
        raise LegacyError(f"{path}[2]", describe(tensor), _NOT_A_TENSOR)
    return called.name, index - called.base, tensor


def _end(value: list[object], path: str, graph: Graph) -> object:
    name, index, tensor = _resolved(value, graph, path)
    return [name, index + graph[str(value[0])].is_functional, tensor]
