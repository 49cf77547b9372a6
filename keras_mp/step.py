"""`Step`: what the parts that count are told of a step; `StepCount` numbers the steps."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from keras import ops

from keras_mp.array_types import Tensor, Variable
from keras_mp.backends.numerics import StepResult
from keras_mp.backends.protocol import Backend
from keras_mp.variable_factory import VariableFactory

KINDS = {0: "finite", 1: "inf", 2: "nan"}


class Step(NamedTuple):
    """A step, as the parts that count are told of it.

    `index_of`: returns the place of a variable among all that the optimizer trains. `kind`:
    integer, shape (), of `KINDS`. `skipped`: integer, shape (), 1 for a skipped step.
    `scale_before`: float32, shape (); None where no part looks at it.
    """

    result: StepResult
    variables: Sequence[Variable]
    index_of: Callable[[Variable], int]
    kind: Tensor
    skipped: Tensor
    scale_before: Tensor


class StepCount:
    """How many steps there were."""

    def __init__(self, variables: VariableFactory, backend: Backend) -> None:
        self._backend = backend
        self._steps = variables.add_extra("steps")

    def note(self, step: Step) -> None:
        """Counts a step."""
        # Always 1, but known by the gradients: a function of TensorFlow whose data have come to
        # their end still does what does not depend on them.
        one = 1 if isinstance(step.result.finite, bool) else step.skipped | 1
        self._steps.assign(self.read() + one)

    def read(self) -> Tensor:
        """Returns the number of steps: integer, shape ()."""
        return self._backend.read(self._steps)

    def wait(self) -> int:
        """Returns the number of steps; reads from the device."""
        return int(ops.convert_to_numpy(self._steps))
