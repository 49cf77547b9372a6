"""`OverflowCounts`: counts nonfinite gradients by variable, with `diagnose=True`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from keras import ops

from keras_mp.array_types import Tensor, Variable
from keras_mp.backends.common.optimizers import path
from keras_mp.scaling.scaler import LossScaler
from keras_mp.statistics.step import KINDS, Step, StepCount
from keras_mp.variables.variable_factory import VariableFactory


@dataclass(frozen=True, slots=True)
class NonfiniteVariable:
    """A variable whose gradient was not finite, and how often; see `diagnose`."""

    path: str
    steps: int
    first_step: int


@dataclass(frozen=True, slots=True)
class FirstOverflow:
    """The first step that was skipped; see `diagnose`.

    `variable` is the last of the model's variables, in their order, whose gradient was not finite.
    If layers are listed in execution order, backpropagation reached it first: gradients nearer to
    the loss were still finite. After an overflow in the forward pass every gradient is nonfinite,
    and `variable` belongs to the last layer, whichever layer overflowed.
    """

    step: int
    variable: str
    kind: str
    scale_before: float
    scale_after: float

    def __str__(self) -> str:
        return (
            f"first overflow: step {self.step}, {self.variable} ({self.kind}), "
            f"scale {self.scale_before:g} -> {self.scale_after:g}"
        )


class OverflowCounts:
    """How often each variable's gradient was nonfinite, and where that began.

    Args:
        steps: The step counter, which counts a step before this object does.
        scaler: The loss scale, after the step.
        variables: Creates its variables.
    """

    def __init__(self, steps: StepCount, scaler: LossScaler, variables: VariableFactory) -> None:
        self._steps = steps
        self._scaler = scaler
        self._read = variables.backend.read
        self._last = variables.add("last_nonfinite", -1)
        self._first = variables.add("first_overflow", -1, "float32", (4,))
        self._trained: Sequence[Variable] = ()

    def build(self, trained: Sequence[Variable], variables: VariableFactory) -> None:
        """Adds a counter for each variable that the optimizer trains."""
        self._trained = trained
        self._counts = variables.add("nonfinite_counts", shape=(len(trained),))
        self._first_steps = variables.add("nonfinite_first_steps", shape=(len(trained),))
        # Indices into another model's variables mean nothing here.
        variables.save_extra(
            last_nonfinite=self._last,
            first_overflow=self._first,
            nonfinite_counts=self._counts,
            nonfinite_first_steps=self._first_steps,
        )

    # -- what a step writes ----------------------------------------------------------------------

    def note(self, step: Step) -> None:
        """Counts the variables of a step whose gradients are not finite."""
        if step.result.finite is True:
            return
        bad = ops.logical_not(step.result.each)
        places = [len(step.variables)] * len(self._trained)
        for i, variable in enumerate(step.variables):
            places[step.index_of(variable)] = i
        if places != list(range(len(step.variables))):
            bad = ops.take(ops.concatenate([bad, ops.zeros((1,), "bool")]), places)
        firsts = self._read(self._first_steps)
        is_new = ops.logical_and(bad, firsts == 0)
        self._first_steps.assign(ops.where(is_new, self._steps.read(), firsts))
        self._counts.assign_add(ops.cast(bad, self._counts.dtype))
        # The last True; keras.ops.max breaks the graph of torch.compile.
        index = len(places) - 1 - ops.argmax(ops.cast(ops.flip(bad), "int32"))
        skipped = step.skipped > 0
        self._last.assign(ops.where(skipped, index, self.read_last()))
        first = self._read(self._first)
        row = (index, step.kind, step.scale_before, self._scaler.read())
        stacked = ops.stack([ops.cast(each, "float32") for each in row])
        is_first = ops.logical_and(first[0] < 0, skipped)
        self._first.assign(ops.where(is_first, stacked, first))

    def read_last(self) -> Tensor:
        """Returns the index of the variable that overflowed last, or -1: integer, shape ()."""
        return self._read(self._last)

    # -- what users read -------------------------------------------------------------------------

    def all(self) -> list[NonfiniteVariable]:
        """Returns the variables whose gradients were not finite, the most frequent first."""
        if not self._trained:
            return []
        counts = ops.convert_to_numpy(self._counts)
        firsts = ops.convert_to_numpy(self._first_steps)
        variables = [
            NonfiniteVariable(path(self._trained[i]), int(counts[i]), int(firsts[i]))
            for i in map(int, np.flatnonzero(counts))
        ]
        return sorted(variables, key=lambda each: (-each.steps, each.first_step))

    def first(self) -> FirstOverflow | None:
        """Returns the first skipped step; None if there was none."""
        index, kind, before, after = ops.convert_to_numpy(self._first).tolist()
        if index < 0 or not self._trained:
            return None
        step = int(ops.convert_to_numpy(self._first_steps)[int(index)])
        variable = path(self._trained[int(index)])
        return FirstOverflow(step, variable, KINDS[int(kind)], before, after)

    def last(self) -> str | None:
        """Returns the path of the variable that overflowed in the last skipped step."""
        return self.path_of(int(ops.convert_to_numpy(self._last)))

    def path_of(self, index: int) -> str | None:
        """Returns the path of the variable with an index; None for -1."""
        return path(self._trained[index]) if 0 <= index < len(self._trained) else None
