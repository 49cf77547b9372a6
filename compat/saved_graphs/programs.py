"""Functions of a SavedModel as programs: steps in order, with where each takes its inputs.

A program is plain data: names of ops, numbers, and constants. It is what is evaluated, and what a
layer around a graph keeps.
"""

import functools
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.saved_graphs.attributes import Function
from keras_mp.compat.saved_graphs.nodes import Graph, Node

ARGUMENT = -1  # the step that stands for the arguments
_NORMALIZED = (
    *("y", "batch_mean", "batch_variance"),
    *("reserve_space_1", "reserve_space_2", "reserve_space_3"),
)
_RECURRENT = ("output", "output_h", "output_c", "reserve_space", "host_reserved")
# Ops with several results of different names -> these. Of others there is one, or a list.
_OUTPUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _NORMALIZED),
    **dict.fromkeys(
        ("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"),
        ("loss", "backprop"),
    ),
    **dict.fromkeys(("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), _RECURRENT),
    "TopKV2": ("values", "indices"),
    "Svd": ("s", "u", "v"),
    "Qr": ("q", "r"),
    "SelfAdjointEigV2": ("e", "v"),
    "LogMatrixDeterminant": ("sign", "log_abs_determinant"),
    "StatelessRandomGetKeyCounter": ("key", "counter"),
    "TensorListPopBack": ("output_handle", "tensor"),
    "TensorListConcatV2": ("tensor", "lengths"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One operation.

    Attributes:
        name: Of its node, for messages.
        op: What it does.
        inputs: (number of the step, or `ARGUMENT`; number of its result) of each input.
        attributes: As in `attributes`.
    """

    name: str
    op: str
    inputs: tuple[tuple[int, int], ...]
    attributes: Mapping[str, Any]

    @property
    def scope(self) -> str:
        """What its name starts with: the layers that it is of, as "net/dense"; "" without any."""
        return self.name.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Program:
    """A function, in order.

    Attributes:
        name: Its name.
        arguments: The dtypes of what it is called with.
        steps: What it does; those that nothing needs are left out.
        results: Where its results come from, as the inputs of a step.
    """

    name: str
    arguments: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[tuple[int, int], ...]

    def calls(self) -> Iterator[str]:
        """Yields the names of the functions that its steps call."""
        for step in self.steps:
            for value in step.attributes.values():
                for one in value if isinstance(value, list) else [value]:
                    if isinstance(one, Function):
                        yield one.name


def outputs_of_scopes(program: Program) -> dict[str, list[tuple[int, int]]]:
    """Returns scope -> what its steps hand to others or return, as the inputs of a step.

    >>> x, y = Step("n/a/x", "Abs", ((ARGUMENT, 0),), {}), Step("n/a/y", "Abs", ((0, 0),), {})
    >>> z = Step("n/b/z", "Abs", ((1, 0),), {})
    >>> outputs_of_scopes(Program("f", ("float32",), (x, y, z), ((2, 0),)))
    {'n/a': [(1, 0)], 'n': [(2, 0)], 'n/b': [(2, 0)]}
    """
    found: dict[str, list[tuple[int, int]]] = {}
    used = [(step.scope, place) for step in program.steps for place in step.inputs]
    for user, place in [*used, *(("", place) for place in program.results)]:
        parts = [] if place[0] == ARGUMENT else program.steps[place[0]].scope.split("/")
        for count in range(1, len(parts) + 1):
            scope = "/".join(parts[:count])
            is_inside = f"{user}/".startswith(f"{scope}/")
            if scope and not is_inside and place not in found.setdefault(scope, []):
                found[scope].append(place)
    return found


class Programs(Protocol):
    """Whatever has programs by their names."""

    def program(self, name: str) -> Program:
        """Returns the program of a function."""


def program_of(graph: Graph) -> Program:
    """Returns a function as a program.

    Raises:
        Malformed: A node names another one that there is not, or needs itself.
    """
    places = {name: i for i, (name, _) in enumerate(graph.arguments)}
    wanted = [_node_of(source) for _, source in graph.results]
    order = _ordered(graph.nodes, [*wanted, *graph.effects], places.keys())
    numbers = {name: i for i, name in enumerate(order)}

    @functools.cache
    def place(source: str) -> tuple[int, int]:
        name, *rest = source.split(":")
        if name in places and name not in graph.nodes:
            return ARGUMENT, places[name]
        return numbers[name], _result(graph.nodes[name].op, rest)

    steps = []
    for name in order:
        node = graph.nodes[name]
        inputs = tuple(place(one) for one in _inputs(node) if not one.startswith("^"))
        steps.append(Step(name, node.op, inputs, node.attributes()))
    results = tuple(place(source) for _, source in graph.results)
    return Program(graph.name, tuple(dtype for _, dtype in graph.arguments), tuple(steps), results)


def _node_of(source: str) -> str:
    return source.removeprefix("^").partition(":")[0]


def _inputs(node: Node) -> tuple[str, ...]:
    # What is asserted, and the texts that are said of it, are for nobody else.
    return () if node.op == "Assert" else node.inputs


def _result(op: str, rest: list[str]) -> int:
    """Returns the number of a result by what stands behind the name of a node."""
    if not rest:
        return 0
    if not rest[-1].isascii() or not rest[-1].isdigit():
        raise Malformed(f"names the result {rest[-1]!r}")
    number = int(rest[-1])
    names = _OUTPUTS.get(op, ())
    return names.index(rest[0]) + number if len(rest) > 1 and rest[0] in names else number


def _ordered(nodes: Mapping[str, Node], wanted: list[str], arguments: Set[str]) -> list[str]:
    """Returns the names of the nodes that are needed, each behind those that it needs."""
    order: list[str] = []
    done: dict[str, bool] = {}  # False while what it needs is looked at
    waiting = [name for name in reversed(wanted) if name in nodes or name not in arguments]
    while waiting:
        name = waiting[-1]
        if name in done:
            waiting.pop()
            if not done[name]:
                done[name] = True
                order.append(name)
            continue
        if name not in nodes:
            raise Malformed(f"needs {name!r}, and there is no such node")
        done[name] = False
        for source in reversed(_inputs(nodes[name])):
            before = _node_of(source)
            if before not in done and (before in nodes or before not in arguments):
                waiting.append(before)
            elif done.get(before) is False:  # it is looked at, further up
                raise Malformed(f"its node {name!r} needs itself")
    return order


# -- as JSON --------------------------------------------------------------------------------------


def as_json(program: Program, constants: list[Any]) -> dict[str, Any]:
    """Returns a program as JSON, with its constants in a list beside it.

    Args:
        program: The program.
        constants: What the constants, NumPy arrays, are appended to.
    """

    def value(one: object) -> object:
        match one:
            case np.ndarray():
                constants.append(one)
                return {"constant": len(constants) - 1}
            case Function(name):
                return {"function": name}
            case bytes():
                return {"bytes": one.hex()}
            case list():
                return [value(item) for item in one]
        return one

    steps = [
        {
            "name": step.name,
            "op": step.op,
            "inputs": [list(pair) for pair in step.inputs],
            "attributes": {key: value(one) for key, one in step.attributes.items()},
        }
        for step in program.steps
    ]
    return {
        "name": program.name,
        "arguments": list(program.arguments),
        "steps": steps,
        "results": [list(pair) for pair in program.results],
    }


def from_json(said: object, constants: list[Any]) -> Program:
    """Returns a program of a file.

    Raises:
        ValueError: It is none, with the reason.
    """
    match said:
        case {
            "name": str(name),
            "arguments": list(arguments),
            "steps": list(rows),
            "results": list(results),
        } if all(isinstance(one, str) for one in arguments):
            steps: list[Step] = []
            for row in rows:
                steps.append(_step(row, constants, tuple(arguments), len(steps)))
            sources = _sources(results, len(arguments), len(steps))
            return Program(name, tuple(arguments), tuple(steps), sources)
    raise ValueError("it is no program: name, arguments, steps and results are missing")


def _step(row: object, constants: list[Any], arguments: tuple[str, ...], before: int) -> Step:
    match row:
        case {"name": str(name), "op": str(op), "inputs": list(inputs), "attributes": dict(said)}:
            of = {str(key): _value(one, constants) for key, one in said.items()}
            return Step(name, op, _sources(inputs, len(arguments), before), of)
    raise ValueError(f"step {before} is none: name, op, inputs and attributes are missing")


def _sources(pairs: list[object], arguments: int, before: int) -> tuple[tuple[int, int], ...]:
    found = []
    for pair in pairs:
        match pair:
            case [int(step), int(number)] if (
                0 <= number < 1 << 16
                and ARGUMENT <= step < before
                and (step != ARGUMENT or number < arguments)
            ):
                found.append((step, number))
            case _:
                raise ValueError(f"an input {pair!r} names no earlier step")
    return tuple(found)


def _value(one: object, constants: list[Any]) -> object:
    match one:
        case {"constant": int(number)}:
            if not 0 <= number < len(constants):
                raise ValueError(f"there is no constant {number}")
            return constants[number]
        case {"function": str(name)}:
            return Function(name)
        case {"bytes": str(text)}:
            return bytes.fromhex(text)
        case list():
            return [_value(item, constants) for item in one]
        case str() | int() | float() | bool() | None:
            return one
    raise ValueError(f"an attribute has no {type(one).__name__}")
