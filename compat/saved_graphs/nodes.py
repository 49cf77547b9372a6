"""Graphs of TensorFlow as a file has them: functions and their nodes."""

from collections.abc import Iterator
from dataclasses import dataclass

from keras_mp.compat.checkpoints import wire
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.wire import all_of as _all
from keras_mp.compat.saved_graphs import attributes

MOST_NODES = 1 << 18  # of one function


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a graph.

    Attributes:
        name: Its name, unique in its function.
        op: What it does, such as "MatMul".
        inputs: "node:output:0" or an argument; "^node" runs before and gives nothing.
        message: The NodeDef, for its attributes.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    message: memoryview

    def attributes(self) -> dict[str, object]:
        """Returns what it says of itself, as in `attributes`.

        Raises:
            Malformed: A value cannot be read.
        """
        found = {}
        for entry in _all(self.message, 5):
            key = next((wire.text(name) for name in _all(entry, 1)), "")
            for value in _all(entry, 2):
                # Underscores start what is for TensorFlow's own passes.
                if not key.startswith("_"):
                    found[key] = attributes.attribute(value)
        return found


@dataclass(frozen=True, slots=True)
class Graph:
    """The body of a function.

    Attributes:
        name: Of the function.
        arguments: (name, dtype) of what it is called with, what it captured included.
        results: (name, where it comes from) of what it returns.
        effects: Nodes that run for what they change.
        nodes: Name -> node.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str], ...]
    effects: tuple[str, ...]
    nodes: dict[str, Node]


def name_of(function: memoryview) -> str:
    """Returns the name of a FunctionDef."""
    for signature in _all(function, 1):
        return next((wire.text(name) for name in _all(signature, 1)), "")
    return ""


def nodes_of(message: memoryview, field: int) -> Iterator[Node]:
    """Yields the nodes of a GraphDef, or of a FunctionDef, from the field that has them."""
    for count, node in enumerate(_all(message, field)):
        if count >= MOST_NODES:
            raise Malformed(f"has more than {MOST_NODES} nodes")
        name = op = ""
        inputs = []
        for number, value in wire.fields(node):
            if number == 1:
                name = wire.text(value)
            elif number == 2:
                op = wire.text(value)
            elif number == 3:
                inputs.append(wire.text(value))
        yield Node(name, op, tuple(inputs), node)


def graph_of(name: str, message: memoryview) -> Graph:
    """Returns the body of a FunctionDef.

    Raises:
        Malformed: It has too many nodes, or does not say what it returns.
    """
    arguments: list[tuple[str, str]] = []
    names: list[str] = []
    returned, effects = {}, []
    for number, value in wire.fields(message):
        if number == 1:
            for field, argument in wire.fields(wire.content(value)):
                if field == 2:
                    arguments.append(_argument(wire.content(argument)))
                elif field == 3:
                    names.append(_argument(wire.content(argument))[0])
        elif number in (4, 6):
            entry = wire.content(value)
            key, of = (next((wire.text(v) for v in _all(entry, n)), "") for n in (1, 2))
            if number == 4:
                returned[key] = of
            else:
                effects.append(of)
    missing = [one for one in names if one not in returned]
    if missing:
        raise Malformed(f"does not say what it returns as {missing[0]}")
    nodes = {node.name: node for node in nodes_of(message, 3)}
    results = tuple((one, returned[one]) for one in names)
    return Graph(name, tuple(arguments), results, tuple(effects), nodes)


def _argument(message: memoryview) -> tuple[str, str]:
    name, dtype = "", 0
    for number, value in wire.fields(message):
        if number == 1:
            name = wire.text(value)
        elif number == 3:
            dtype = wire.integer(value)
    return name, attributes.type_name(dtype)
