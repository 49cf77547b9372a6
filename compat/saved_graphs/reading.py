"""A SavedModel as what can be evaluated: functions, signatures, objects and their variables.

Files are mapped into memory; a function is read when it is asked for.
"""

import dataclasses
import functools
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from keras_mp.compat.checkpoints import Checkpoint, Unreadable, object_graph, wire
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.wire import all_of as _all
from keras_mp.compat.file_formats import saved_models
from keras_mp.compat.file_formats.saved_models import GRAPH, parsed_file
from keras_mp.compat.file_formats.values import Array
from keras_mp.compat.saved_graphs import attributes, structures
from keras_mp.compat.saved_graphs.nodes import Graph, Node, graph_of, name_of, nodes_of
from keras_mp.compat.saved_graphs.programs import Program, program_of
from keras_mp.compat.saved_graphs.structures import Spec

SIGNATURES = "signatures"  # attribute of the root
_VALUE = "VARIABLE_VALUE"
# Fields of SavedObject.
_USER_OBJECT, _FUNCTION, _VARIABLE, _BARE_FUNCTION, _CONSTANT = 4, 6, 7, 8, 9
_NAMED = (_USER_OBJECT, _FUNCTION, _BARE_FUNCTION, _CONSTANT)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the SavedModel.

    Attributes:
        number: Of its object.
        name: As TensorFlow had it, such as "dense/kernel".
        shape: Its shape.
        dtype: Its name.
        trainable: Whether it is trained.
        key: Of its value in the checkpoint; None where it has none.
    """

    number: int
    name: str
    shape: tuple[int | None, ...] | None
    dtype: str
    trainable: bool
    key: str | None


@dataclass(frozen=True, slots=True)
class Concrete:
    """A function with its signature.

    Attributes:
        name: Of its graph.
        captured: Numbers of the objects that it is given behind its arguments.
        arguments: (positional, by name), as `structures.structure` has them.
        results: The structure that it returns.
    """

    name: str
    captured: tuple[int, ...]
    arguments: tuple[tuple[object, ...], dict[str, object]]
    results: object

    @property
    def inputs(self) -> list[Spec]:
        """The tensors that it takes, in order."""
        return structures.specs(self.arguments)

    @property
    def flags(self) -> list[bool]:
        """Its arguments that are True or False, as whether it trains."""
        return [leaf for leaf in structures.flat(self.arguments) if isinstance(leaf, bool)]

    @property
    def outputs(self) -> list[Spec]:
        """The tensors that it returns, in order."""
        return structures.specs(self.results)


@dataclass(frozen=True, slots=True)
class _Object:
    children: dict[str, int]
    kind: int  # the field of SavedObject that it has
    names: tuple[str, ...]  # of its functions or its constant, or what Keras called it


class SavedGraphs:
    """What a SavedModel can compute.

    Args:
        folder: The folder, or its `saved_model.pb`.

    Raises:
        Unreadable: It is damaged, or has no objects, as SavedModels of TF 1.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = saved_models.folder_of(folder)
        self.file = self.folder / GRAPH
        self._objects: list[_Object] = []
        self._variables: list[Variable] = []  # without their keys
        self._concrete: dict[str, memoryview] = {}
        self._functions: dict[str, memoryview] = {}
        self._main: dict[str, Node] = {}
        self._programs: dict[str, Program] = {}
        self.version: str | None = None
        parsed_file(self.file, self._fill)
        if not self._objects:
            why = "has graphs without objects: a SavedModel of TF 1, which is not evaluated here"
            raise Unreadable(str(self.folder), "", why)

    def _fill(self, message: memoryview) -> None:
        for meta_graph in _all(message, 2):
            for number, value in wire.fields(meta_graph):
                if number == 1:
                    versions = map(wire.text, _all(wire.content(value), 5))
                    self.version = next(versions, self.version)
                elif number == 2:
                    for library in _all(wire.content(value), 2):
                        for function in _all(library, 1):
                            self._functions[name_of(function)] = function
                    self._main = {node.name: node for node in nodes_of(wire.content(value), 1)}
                elif number == 7:
                    self._fill_objects(wire.content(value))
            break

    def _fill_objects(self, message: memoryview) -> None:
        for node in _all(message, 1):
            children: dict[str, int] = {}
            kind, inside = 0, memoryview(b"")
            for number, value in wire.fields(node):
                if number == 1:
                    child, name = object_graph.reference(wire.content(value))
                    children[name] = child
                elif 4 <= number <= 12 and isinstance(value, memoryview) and number != 11:
                    kind, inside = number, value
            if kind == _VARIABLE:
                self._variables.append(_variable(len(self._objects), inside))
            names = _all(inside, 1) if kind in _NAMED else ()
            self._objects.append(_Object(children, kind, tuple(map(wire.text, names))))
        for one in self._objects:
            for child in one.children.values():
                if not 0 <= child < len(self._objects):
                    raise Malformed(f"names the object {child}, of {len(self._objects)}")
        for entry in _all(message, 2):
            key = next((wire.text(value) for value in _all(entry, 1)), "")
            self._concrete[key] = next(_all(entry, 2), memoryview(b""))

    def __repr__(self) -> str:
        return f"<SavedGraphs of {self.folder}>"

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of all functions with a graph."""
        return tuple(self._functions)

    def graph(self, name: str) -> Graph:
        """Returns the graph of a function.

        Raises:
            Unreadable: There is no such function, or its graph is damaged.
        """
        if name not in self._functions:
            raise Unreadable(str(self.file), name, "is called, and there is no such function")
        try:
            return graph_of(name, self._functions[name])
        except Malformed as error:
            raise Unreadable(str(self.file), name, str(error)) from None

    def program(self, name: str) -> Program:
        """Returns a function as steps in order; raises what `graph` does."""
        if name not in self._programs:
            graph = self.graph(name)
            try:
                self._programs[name] = program_of(graph)
            except Malformed as error:
                raise Unreadable(str(self.file), name, str(error)) from None
        return self._programs[name]

    def concrete(self, name: str) -> Concrete:
        """Returns a function with its signature.

        Raises:
            Unreadable: There is none of this name.
        """
        if name not in self._concrete:
            raise Unreadable(str(self.file), name, "is no function with a signature")
        try:
            return _signature(name, self._concrete[name])
        except Malformed as error:
            raise Unreadable(str(self.file), name, str(error)) from None

    @property
    def objects(self) -> int:
        """How many objects there are."""
        return len(self._objects)

    def find(self, path: str, start: int = 0) -> int | None:
        """Returns the number of the object at a path such as "layer-1/kernel", or None."""
        at: int | None = start
        for name in path.split("/") if path else ():
            at = None if at is None else self._objects[at].children.get(name)
        return at

    def children(self, number: int) -> Mapping[str, int]:
        """Returns attribute -> number of the objects that an object has."""
        return self._objects[number].children

    def identifier(self, number: int) -> str:
        """Returns what Keras called an object: "_tf_keras_layer"; "" for others."""
        one = self._objects[number]
        return next(iter(one.names), "") if one.kind == _USER_OBJECT else ""

    def concrete_of(self, number: int | None) -> list[Concrete]:
        """Returns the functions that an object is, one for each way in which it was called."""
        if number is None:
            return []
        one = self._objects[number]
        names = one.names if one.kind in (_FUNCTION, _BARE_FUNCTION) else ()
        return [self.concrete(name) for name in names if name in self._concrete]

    @property
    def signatures(self) -> dict[str, Concrete]:
        """The functions that were exported by name, such as "serving_default"."""
        place = self.find(SIGNATURES)
        found = {} if place is None else self._objects[place].children
        return {
            name: concrete[0]
            for name, number in found.items()
            if (concrete := self.concrete_of(number))
        }

    def constant(self, number: int) -> Array | None:
        """Returns the value of an object that is a constant; None of another."""
        one = self._objects[number]
        if one.kind != _CONSTANT:
            return None
        name = next(iter(one.names), "")
        node = self._main.get(name)
        try:
            value = node.attributes().get("value") if node and node.op == "Const" else None
        except Malformed as error:
            raise Unreadable(str(self.file), name, str(error)) from None
        if value is None:
            raise Unreadable(str(self.file), name, "is no constant of the main graph")
        return value  # type: ignore[return-value]

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """Its checkpoint."""
        return Checkpoint(saved_models.variables_of(self.folder))

    @functools.cached_property
    def variables(self) -> dict[int, Variable]:
        """The variables that a function may be given, by the numbers of their objects."""
        keys = self._keys()
        return {
            one.number: dataclasses.replace(one, key=keys.get(one.number))
            for one in self._variables
        }

    def _keys(self) -> dict[int, str]:
        """Returns number of a variable -> its key, by the paths that both graphs have."""
        if not (self.folder / "variables" / "variables.index").exists():
            return {}
        graph = self.checkpoint.graph
        if graph is None:
            return {}
        found: dict[int, str] = {}
        seen, waiting = {0}, deque([(0, 0)])
        while waiting:
            ours, theirs = waiting.popleft()
            for one in graph.nodes[theirs].attributes:
                if one.name == _VALUE:
                    found[ours] = one.key
            for name, child in self._objects[ours].children.items():
                other = graph.nodes[theirs].children.get(name)
                if other is not None and child not in seen:
                    seen.add(child)
                    waiting.append((child, other))
        return found


def _variable(number: int, message: memoryview) -> Variable:
    shape: list[int | None] | None = []
    dtype, trainable, name = 0, False, ""
    for field, value in wire.fields(message):
        if field == 1:
            dtype = wire.integer(value)
        elif field == 2:
            shape = attributes.shape(wire.content(value))
        elif field == 3:
            trainable = bool(wire.integer(value))
        elif field == 6:
            name = wire.text(value)
    sizes = None if shape is None else tuple(shape)
    return Variable(number, name, sizes, attributes.type_name(dtype), trainable, None)


def _signature(name: str, message: memoryview) -> Concrete:
    captured: list[int] = []
    arguments: object = ((), {})
    results: object = None
    for number, value in wire.fields(message):
        if number == 2:
            captured += [value] if isinstance(value, int) else _numbers(value)
        elif number == 3:
            arguments = structures.structure(wire.content(value))
        elif number == 4:
            results = structures.structure(wire.content(value))
    match arguments:
        case (tuple(positional), dict(named)):
            return Concrete(name, tuple(captured), (positional, named), results)
    raise Malformed("has a signature of another form")


def _numbers(packed: memoryview) -> Iterator[int]:
    at = 0
    while at < len(packed):
        one, at = wire.varint(packed, at)
        yield one
