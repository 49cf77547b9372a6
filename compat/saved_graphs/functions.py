"""Functions of a SavedModel as Python calls them: tensors in by signature, tensors out."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.operations.computing.evaluating import as_result
from keras_mp.compat.operations.computing.values import Value, as_tensor, dtype_of, is_tensor
from keras_mp.compat.saved_graphs import structures
from keras_mp.compat.saved_graphs.reading import Concrete, SavedGraphs
from keras_mp.compat.saved_graphs.running import NotEvaluated, Run, Watch
from keras_mp.compat.saved_graphs.values import Handle, Unknown
from keras_mp.compat.saved_graphs.widening import InFloat32, wide

MOST_NUMBERS = 1 << 33  # of all variables that a function is given


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What a function gave.

    Attributes:
        results: Its results, in the structure of its signature.
        updates: Number of a variable -> the value that it was given.
    """

    results: Any
    updates: Mapping[int, Value]

    @property
    def outputs(self) -> list[Any]:
        """The results in order."""
        return structures.flat(self.results)


def evaluate(
    graphs: SavedGraphs,
    concrete: Concrete,
    inputs: Iterable[Value],
    *,
    variables: Mapping[int, Value] | None = None,
    seed: Any = None,
    watch: Watch | None = None,
    in_float32: bool = False,
) -> Evaluated:
    """Returns what a function of a SavedModel gives, computed with keras.ops.

    Args:
        graphs: The SavedModel.
        concrete: One of its functions.
        inputs: Arrays or tensors, in the order of `concrete.inputs`; cast to the dtypes there.
        variables: Number -> value, instead of those of the file.
        seed: A `keras.random.SeedGenerator`, for functions that draw random numbers.
        watch: Is shown each program that ran.
        in_float32: Whether what is in 16 bits is computed in float32, inputs included.

    Raises:
        NotEvaluated: An op of it cannot be evaluated; the message names it.
        ValueError: There are not as many inputs.
    """
    specs = concrete.inputs
    given = list(inputs)
    if len(given) != len(specs):
        raise ValueError(f"{concrete.name} takes {len(specs)} tensors, and got {len(given)}")
    dtypes = [wide(spec.dtype) if in_float32 else spec.dtype for spec in specs]
    tensors = [_as_input(one, dtype) for one, dtype in zip(given, dtypes, strict=True)]
    known = values_of(graphs, [concrete]) if variables is None else variables
    captured = [capture(graphs, number) for number in concrete.captured]
    if in_float32:
        known = {number: as_tensor(one, wide(dtype_of(one))) for number, one in known.items()}
        captured = [
            dataclasses.replace(one, dtype=wide(one.dtype)) if isinstance(one, Handle) else one
            for one in captured
        ]
    run = Run(InFloat32(graphs) if in_float32 else graphs, known, seed, watch)
    found = [as_result(one) for one in run.call(concrete.name, [*tensors, *captured])]
    return Evaluated(structures.packed(concrete.results, iter(found)), run.updates)


def _as_input(value: Value, dtype: str) -> Any:
    if is_tensor(value):
        return as_tensor(value, dtype)
    if dtype in ("string", "resource", "variant"):
        raise NotEvaluated(f"an input of the dtype {dtype}")
    return as_tensor(
        np.asarray(value, "float32") if dtype == "bfloat16" else np.asarray(value), dtype
    )


def capture(graphs: SavedGraphs, number: int) -> Any:
    """Returns what a function is given of an object: a handle, or a constant."""
    variable = graphs.variables.get(number)
    if variable is not None:
        return Handle(number, variable.dtype, variable.name)
    constant = graphs.constant(number)
    return Unknown("a table or another resource") if constant is None else constant


def values_of(graphs: SavedGraphs, functions: Iterable[Concrete]) -> dict[int, Value]:
    """Returns number -> value, a tensor, of the variables that functions are given.

    Those without a value in the checkpoint are left out.

    Raises:
        Unreadable: A value is damaged, or all together are too large.
    """
    numbers = {number for one in functions for number in one.captured}
    found: dict[int, Value] = {}
    total = 0
    for number in sorted(numbers):
        variable = graphs.variables.get(number)
        if variable is None or variable.key is None or variable.dtype in ("string", "resource"):
            continue
        total += math.prod(graphs.checkpoint.entry(variable.key).shape)
        if total > MOST_NUMBERS:
            raise Unreadable(str(graphs.folder), "", f"more than {MOST_NUMBERS} numbers")
        found[number] = as_tensor(graphs.checkpoint[variable.key], variable.dtype)
    return found


__all__ = ["Evaluated", "NotEvaluated", "capture", "evaluate", "values_of"]
