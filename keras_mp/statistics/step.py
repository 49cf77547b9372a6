"""`Step`: the record of a step, for counters; the numbers of steps and of skips in a row."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_mp.array_types import Tensor, Variable
from keras_mp.backends.common.numerics import StepResult
from keras_mp.variables.variable_factory import VariableFactory

KINDS = {0: "finite", 1: "inf", 2: "nan"}


class Step(NamedTuple):
    """The record of a step, for counters.

    `index_of`: returns the index of a variable among all that the optimizer trains. `kind`:
    integer, shape (), of `KINDS`. `skipped`: integer, shape (), 1 for a skipped step.
    `scale_before`: float32, shape (); None if no counter reads it.
    """

    result: StepResult
    variables: Sequence[Variable]
    index_of: Callable[[Variable], int]
    kind: Tensor
    skipped: Tensor
    scale_before: Tensor


class StepCount:
    """The number of steps."""

    def __init__(self, variables: VariableFactory) -> None:
        self._backend = variables.backend
        self._steps = variables.add_extra("steps")

    def note(self, step: Step) -> None:
        """Counts a step."""
        # Always 1, but computed from the gradients: when its data are exhausted, a function of
        # TensorFlow still runs the ops that do not depend on the data.
        one = 1 if isinstance(step.result.finite, bool) else step.skipped | 1
        self._steps.assign(self.read() + one)

    def read(self) -> Tensor:
        """Returns the number of steps: integer, shape ()."""
        return self._backend.read(self._steps)

    def wait(self) -> int:
        """Returns the number of steps; waits for the device."""
        return int(ops.convert_to_numpy(self._steps))


class SkipStreak:
    """The steps skipped in a row, now and at most, for `max_consecutive_skips`."""

    def __init__(self, variables: VariableFactory) -> None:
        self._backend = variables.backend
        self._now = variables.add_extra("consecutive_skips")
        self._most = variables.add_extra("most_skips")
        self._unseen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(self, step: Step) -> None:
        """Counts a step."""
        run = (self.read() + 1) * step.skipped
        self._now.assign(run)
        self._most.assign(ops.maximum(self._backend.read(self._most), run))

    def read(self) -> Tensor:
        """Returns the current number of steps skipped in a row: integer, shape ()."""
        return self._backend.read(self._now)

    def take_most(self, asker: Any = None) -> int:
        """Returns the longest run of skipped steps since the last call with the same `asker`.

        Each `asker` gets every run; a new one gets every run since the last read. Reads from the
        device.
        """
        most = int(ops.convert_to_numpy(self._most))
        if most:
            self._most.assign(ops.zeros((), self._most.dtype))
        asker = self if asker is None else asker
        for each in {*self._unseen, asker}:
            self._unseen[each] = max(self._unseen.get(each, 0), most)
        most, self._unseen[asker] = self._unseen[asker], 0
        return most

    def clear(self) -> None:
        """Begins to count anew, for everyone who asks: what made the steps skip is mended."""
        for each in (self._now, self._most):
            each.assign(ops.zeros((), each.dtype))
        self._unseen.clear()
