"""Which layer each group of a `.weights.h5` of TF 2.12 to 2.15 belongs to.

Keras 2 went through the attributes of the model, of each layer in them, and so on. It saved a layer
where it met it first: by the name of the attribute, and in a list, tuple or dict by class and
number. In which order it went, and what used up a number, tells only what is in the file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import keras

from keras_mp.compat.file_formats.hdf5_groups import Group
from keras_mp.compat.restoring import variable_order

Place = tuple[str, ...]

# Of a model; they are restored otherwise, or not at all.
NO_STATE = ("optimizer", "metrics", "_metrics", "compiled_metrics", "compiled_loss")
# Lists of all layers of a model: in TF 2.12 to 2.14, and later.
_LISTS = ("_layer_checkpoint_dependencies", "layers")


@dataclass(frozen=True, slots=True)
class _Order:
    """How a TensorFlow went through attributes and lists.

    Attributes:
        backwards: Whether attributes came in the reverse of the alphabet.
        skips: Whether layers that were saved before used up no number of a list.
    """

    backwards: bool
    skips: bool


# TF 2.15; 2.14; 2.12 and 2.13. Source: `_walk_trackable` and `_save_container_state` of
# keras/src/saving/saving_lib.py.
_ORDERS = (_Order(True, True), _Order(False, True), _Order(False, False))


@dataclass(slots=True)
class Walk:
    """What was found in a file.

    Attributes:
        found: Place of a group, by names -> it, and the layer that it belongs to.
        left: Paths of variables that belong to no layer.
    """

    found: dict[Place, tuple[Group, Any]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def best_walk(root: Group, model: Any) -> Walk:
    """Returns what the layers of a model have in a file, by the order that leaves least over."""
    best, least = None, 0
    for order in _ORDERS:
        walk = _walk(root, model, order)
        have = {
            id(each)
            for _, layer in walk.found.values()
            for each in variable_order.own_weights(layer)
        }
        over = len(walk.left) + sum(id(weight) not in have for weight in model.weights)
        if best is None or over < least:
            best, least = walk, over
        if not over:
            break
    assert best is not None
    return best


def _walk(root: Group, model: Any, order: _Order) -> Walk:
    walk = Walk({(): (root, model)})
    visited, seen = {id(model)}, {root.address}
    waiting = [_inside(walk, (), order, visited)]
    while waiting:
        child = next(waiting[-1], None)
        if child is None:
            waiting.pop()
            continue
        place, group, layer = child
        if group.address not in seen:
            seen.add(group.address)
            visited.add(id(layer))
            walk.found[place] = group, layer
            waiting.append(_inside(walk, place, order, visited))
    return walk


def _inside(
    walk: Walk, place: Place, order: _Order, visited: set[int]
) -> Iterator[tuple[Place, Group, Any]]:
    """Yields the groups right inside one, and their layers; those of lists, too."""
    group, ours = walk.found[place]
    for name in sorted(group.names(), reverse=order.backwards):
        if name == "vars" or (name in NO_STATE and isinstance(ours, keras.Model)):
            continue
        if not group.is_group(name):
            walk.left.append(group.at(name))
            continue
        inside, value = group.group(name), _attribute(ours, name)
        if isinstance(value, keras.layers.Layer):
            if id(value) not in visited:  # else it is there twice
                yield (*place, name), inside, value
        elif isinstance(value, list):
            there = set(inside.names())
            for key, layer in _of_list(ours, value, order, visited):
                if key in there and inside.is_group(key):
                    there.remove(key)
                    if id(layer) not in visited:
                        yield (*place, name, key), inside.group(key), layer
            for key in sorted(there):
                is_group = inside.is_group(key)
                walk.left += _variables(inside.group(key)) if is_group else [inside.at(key)]
        else:
            walk.left += _variables(inside)


def _attribute(ours: Any, name: str) -> Any:
    """Returns a layer, or a list of all that Keras 2 found in a list, tuple or dict."""
    if name in _LISTS:
        is_model = isinstance(ours, keras.Model)
        layers: list[Any] = (variable_order.layers if is_model else variable_order.children)(ours)
        if name == _LISTS[0]:  # which had those with weights by a second name
            return [layer for layer in layers for _ in range(1 + bool(layer.weights))]
        return layers
    value = getattr(ours, name, None)
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else value


def _of_list(
    owner: Any, layers: list[Any], order: _Order, visited: set[int]
) -> Iterator[tuple[str, Any]]:
    """Yields what Keras called the layers of a list, and each of them.

    >>> dense = [keras.layers.Dense(1) for _ in range(3)]
    >>> [name for name, _ in _of_list(None, dense, _ORDERS[0], {id(dense[1])})]
    ['dense', 'dense_1']
    >>> [name for name, _ in _of_list(None, dense, _ORDERS[2], {id(dense[1])})]
    ['dense', 'dense_1', 'dense_2']
    """
    used: dict[str, int] = {}
    for layer in layers:
        is_counted = id(layer) not in visited or not order.skips
        if isinstance(layer, keras.layers.Layer) and is_counted:
            name = snake_case(variable_order.class_name(owner, layer))
            number = used[name] = used.get(name, -1) + 1
            yield f"{name}_{number}" if number else name, layer


def _variables(group: Group) -> Iterator[str]:
    """Yields the paths of everything in a group that is no group."""
    waiting, seen = [group], set()
    while waiting:
        group = waiting.pop()
        if group.address in seen:
            continue
        seen.add(group.address)
        for name in group.names():
            if group.is_group(name):
                waiting.append(group.group(name))
            else:
                yield group.at(name)


def snake_case(name: str) -> str:
    """Returns what Keras called a layer of a class.

    >>> snake_case("ReLU"), snake_case("Conv2D"), snake_case("LSTM")
    ('re_lu', 'conv2d', 'lstm')
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
