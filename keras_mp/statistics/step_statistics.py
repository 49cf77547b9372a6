"""`StepStatistics`: the results of the steps, as values on the device that nothing waits for."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from keras import ops

from keras_mp.array_types import Tensor, Variable
from keras_mp.backends.common.numerics import StepResult, skip_count
from keras_mp.backends.protocol import Backend
from keras_mp.scaling.scaler import LossScaler
from keras_mp.statistics.overflow_counts import OverflowCounts
from keras_mp.statistics.step import SkipStreak, Step, StepCount
from keras_mp.statistics.step_log import StepLog
from keras_mp.variables.variable_factory import VariableFactory


class Part(Protocol):
    """A counter that records each step."""

    def note(self, step: Step) -> None:
        """Records a step."""


P = TypeVar("P", bound=Part)


class StepStatistics:
    """The kind of the last step, the number of skipped steps, and optional counters.

    Args:
        scaler: The owner of the loss scale; its settings say what is counted.
        variables: Creates the variables.
        backend: Keras' backend.
    """

    def __init__(self, scaler: LossScaler, variables: VariableFactory, backend: Backend) -> None:
        self._scaler = scaler
        self._backend = backend
        self._kind = variables.add_extra("nonfinite_kind")
        self._skipped = variables.add_extra("skipped_steps")
        self._parts: list[Part] = []
        self.runs: SkipStreak | None = None
        self.overflows: OverflowCounts | None = None
        self.log: StepLog | None = None
        self._count: StepCount | None = None
        if scaler.settings.max_consecutive_skips is not None:
            self.runs = self._added(SkipStreak(variables, backend))
        if scaler.settings.diagnose:
            self._count = self._added(StepCount(variables, backend))
            counts = OverflowCounts(self._count, scaler, variables, backend)
            self.overflows = self._added(counts)

    def _added(self, part: P) -> P:
        self._parts.append(part)
        return part

    def build(self, trained: Sequence[Variable], variables: VariableFactory) -> None:
        """Adds a counter for each variable that the optimizer trains, if asked for."""
        if self.overflows is not None:
            self.overflows.build(trained, variables)

    def keep_log(self, rows: int, variables: VariableFactory) -> bool:
        """Logs every step in a `StepLog` of `rows` rows; the first call decides their number.

        Returns:
            Whether the log is new: functions traced before do not write to it.
        """
        if self.log is not None:
            return False
        with self._backend.init_scope():
            if self._count is None:
                self._count = self._added(StepCount(variables, self._backend))
            log = StepLog(rows, self._count, self.overflows, variables, self._backend)
            self.log = self._added(log)
        return True

    def scale_before(self) -> Tensor:
        """Returns a copy of the loss scale for a `Step`; None if no counter reads it."""
        if self.overflows is None and self.log is None:
            return None
        return ops.copy(self._scaler.read())

    def note(
        self,
        result: StepResult,
        variables: Sequence[Variable],
        index_of: Callable[[Variable], int],
        scale_before: Tensor,
    ) -> None:
        """Records a step with gradients of `variables`; see `Step`."""
        # Operators, not keras.ops, which would copy Python numbers to the device, and wait.
        if result.finite is True:  # in a branch: then little changes
            kind = skipped = self._no_kind()
        else:
            kind = result.kind
            skipped = skip_count(result.finite, self._skipped)
            self._skipped.assign_add(skipped)
            self._kind.assign(kind)
        step = Step(result, variables, index_of, kind, skipped, scale_before)
        for part in self._parts:
            part.note(step)

    def _no_kind(self) -> Tensor:
        """Sets the last kind to that of finite gradients, and returns it."""
        before = self._backend.read(self._kind)
        if self._backend.is_at_hand(before) and not before:
            return before
        kind = ops.zeros_like(before)
        self._kind.assign(kind)
        return kind

    def path_of(self, index: int) -> str | None:
        """Returns the path of the variable with an index of the log; None for -1."""
        return None if self.overflows is None else self.overflows.path_of(index)

    def read_kind(self) -> Tensor:
        """Returns the kind of the last step: integer, shape ()."""
        return self._backend.read(self._kind)

    def read_skipped(self) -> Tensor:
        """Returns the number of skipped steps: integer, shape ()."""
        return self._backend.read(self._skipped)

    def skipped_in(self, variables: Sequence[Variable], values: Sequence[Tensor]) -> Tensor:
        """Returns the number of skipped steps, from the `values` of an optimizer's `variables`."""
        return values[next(i for i, v in enumerate(variables) if v is self._skipped)]
