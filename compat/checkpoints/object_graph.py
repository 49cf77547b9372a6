"""The object graph of a checkpoint: which object a tensor belonged to, and as what.

Source: tensorflow/core/protobuf/trackable_object_graph.proto, TF 2.3.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from keras_mp.compat.checkpoints import wire
from keras_mp.compat.checkpoints.errors import Malformed

KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
# A name is stored once, so a small graph can ask for paths without end.
_PATHS_PER_BYTE = 64


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value that an object had.

    Attributes:
        name: "VARIABLE_VALUE" of a variable.
        full_name: The name of the variable in its graph, such as "dense/kernel"; may be empty.
        key: Of the tensor in the bundle.
    """

    name: str
    full_name: str
    key: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable that an optimizer kept for a variable of the model.

    Attributes:
        variable: Number of the model's variable.
        name: Such as "m" or "momentum".
        node: Number of the slot variable.
    """

    variable: int
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Node:
    """One object.

    Attributes:
        children: Name of the attribute -> number of the object.
        attributes: Its values.
        slots: Where it is an optimizer of Keras 2 or before, its slots.
    """

    children: dict[str, int]
    attributes: tuple[Attribute, ...]
    slots: tuple[Slot, ...]


class ObjectGraph:
    """All objects of a checkpoint. Number 0 is the root.

    Args:
        nodes: By their numbers.
    """

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes

    @classmethod
    def from_message(cls, message: bytes) -> "ObjectGraph":
        """Returns the graph from a TrackableObjectGraph.

        Raises:
            Malformed: It is not one, names an object that does not exist, or nests them too
                deeply.
        """
        nodes = tuple(
            _node(wire.content(value))
            for number, value in wire.fields(memoryview(message))
            if number == 1
        )
        for node in nodes:
            slots = ((slot.variable, slot.node) for slot in node.slots)
            for other in (*node.children.values(), *(one for pair in slots for one in pair)):
                if not 0 <= other < len(nodes):
                    raise Malformed(f"names the object {other}, of {len(nodes)}")
        if not nodes:
            raise Malformed("holds no object")
        _check_paths(nodes, _PATHS_PER_BYTE * len(message))
        return cls(nodes)

    def find(self, path: str, start: int = 0) -> int | None:
        """Returns the number of the object at a path such as "model/layers", or None."""
        at: int | None = start
        for name in path.split("/") if path else ():
            at = None if at is None else self.nodes[at].children.get(name)
        return at

    def key(self, number: int | None) -> str | None:
        """Returns the key of the value of a variable, or None if the object is not a variable."""
        if number is None:
            return None
        values = (a.key for a in self.nodes[number].attributes if a.name == "VARIABLE_VALUE")
        return next(values, None)

    def keys_below(self, start: int | None) -> set[str]:
        """Returns the keys of the values of an object and of all that it reaches."""
        seen: set[int] = set()
        waiting = [] if start is None else [start]
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting += self.nodes[number].children.values()
        return {attribute.key for number in seen for attribute in self.nodes[number].attributes}

    def paths(self) -> Iterator[tuple[str, int]]:
        """Yields (shortest path, number) of every object that the root reaches, nearest first."""
        seen, level = {0}, [("", 0)]
        while level:
            yield from level
            after = []
            for path, number in level:
                for name, child in self.nodes[number].children.items():
                    if child not in seen:
                        seen.add(child)
                        after.append((f"{path}/{name}" if path else name, child))
            level = after


def place_of(name: str) -> int | None:
    """Returns the position of a child in a list, which TensorFlow calls by it; None for others.

    >>> place_of("12"), place_of("kernel"), place_of("\u00b2")
    (12, None, None)
    """
    return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else None


def _check_paths(nodes: tuple[Node, ...], most: int) -> None:
    seen, waiting = {0}, deque([(0, 0)])
    while waiting:
        number, length = waiting.popleft()
        most -= length
        if most < 0:
            raise Malformed("its objects are nested too deeply")
        for name, child in nodes[number].children.items():
            if child not in seen:
                seen.add(child)
                waiting.append((child, length + len(name) + 1))


def _node(message: memoryview) -> Node:
    children, attributes, slots = {}, [], []
    for number, value in wire.fields(message):
        if number == 1:
            child, name = reference(wire.content(value))
            children[name] = child
        elif number == 2:
            texts = wire.single(wire.content(value), dict.fromkeys((1, 2, 3), wire.text))
            attributes.append(Attribute(texts.get(1, ""), texts.get(2, ""), texts.get(3, "")))
        elif number == 3:
            slots.append(_slot(wire.content(value)))
    return Node(children, tuple(attributes), tuple(slots))


def reference(message: memoryview) -> tuple[int, str]:
    """Returns the number of an object, and the attribute by which another one has it."""
    found = wire.single(message, {1: wire.signed, 2: wire.text})
    return found.get(1, 0), found.get(2, "")


def _slot(message: memoryview) -> Slot:
    found = wire.single(message, {1: wire.signed, 2: wire.text, 3: wire.signed})
    return Slot(found.get(1, 0), found.get(2, ""), found.get(3, 0))
