"""`StepStatistics`: the results of the steps, as values on the device that nothing waits for.

`StepLog` has the last of them in a ring buffer, for the monitor.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from keras import ops

from keras_mp.array_types import Tensor, Variable
from keras_mp.backends.common.numerics import StepResult, skip_count
from keras_mp.scaling.scaler import LossScaler
from keras_mp.statistics.overflow_counts import FirstOverflow, NonfiniteVariable, OverflowCounts
from keras_mp.statistics.step import SkipStreak, Step, StepCount
from keras_mp.variables.variable_factory import VariableFactory


class OptimizerState(NamedTuple):
    """The result of `read_state`: scalars by name, which a JAX-compiled function may return.

    Attributes:
        loss_scale: float32.
        dynamic_counter: Integer. Finite steps since the last overflow, or since growth was last
            due; None with a fixed scale.
        iterations: Integer. Steps taken, skipped ones included unless `count_skipped_steps=False`.
        last_step_applied: bool. Whether the last step was taken, not skipped.
        skipped_steps: Integer.
        nonfinite_kind: Integer. Of the gradients of the last step: 0 finite, 1 inf, 2 nan.
        consecutive_skips: Integer. Steps skipped in a row; None without `max_consecutive_skips`.
    """

    loss_scale: Tensor
    dynamic_counter: Tensor | None
    iterations: Tensor
    last_step_applied: Tensor
    skipped_steps: Tensor
    nonfinite_kind: Tensor
    consecutive_skips: Tensor | None


class StepStatistics:
    """The kind of the last step, the number of skipped steps, and optional counters.

    Args:
        scaler: The owner of the loss scale; its settings say what is counted.
        variables: Creates the variables.
    """

    def __init__(self, scaler: LossScaler, variables: VariableFactory) -> None:
        self._scaler = scaler
        self._backend = variables.backend
        self._kind = variables.add_extra("nonfinite_kind")
        self._skipped = variables.add_extra("skipped_steps")
        counts_skips = scaler.settings.max_consecutive_skips is not None
        self.runs = SkipStreak(variables) if counts_skips else None
        self._count: StepCount | None = None
        self.overflows: OverflowCounts | None = None
        self.log: StepLog | None = None
        if scaler.settings.diagnose:
            self._count = StepCount(variables)
            self.overflows = OverflowCounts(self._count, scaler, variables)

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
                self._count = StepCount(variables)
            self.log = StepLog(rows, self._count, self.overflows, variables)
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
        for part in (self.runs, self._count, self.overflows, self.log):
            if part is not None:
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

    def skipped_in(self, variables: Sequence[Variable], values: Sequence[Tensor]) -> Tensor:
        """Returns the number of skipped steps, from the `values` of an optimizer's `variables`."""
        return values[next(i for i, v in enumerate(variables) if v is self._skipped)]

    # -- what users read -------------------------------------------------------------------------

    @property
    def last_step_applied(self) -> Tensor:
        """Whether the last step was taken, not skipped: a bool tensor of shape ().

        Like `skipped_steps` and `nonfinite_kind` it is a value on the device: schedules, averages
        and loops use it without waiting. True before the first step, and without checks
        (`skip_nonfinite=False`).

        >>> import keras
        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD())
        >>> weight = keras.Variable([1.0])
        >>> opt.build([weight])
        >>> _ = opt.apply_gradients([(ops.array([float("nan")]), weight)], gradients_scaled=True)
        >>> bool(opt.last_step_applied), int(opt.skipped_steps), int(opt.nonfinite_kind)
        (False, 1, 2)
        """
        return ops.equal(self._backend.read(self._kind), 0)

    @property
    def skipped_steps(self) -> Tensor:
        """How many steps were skipped so far, an integer tensor of shape ()."""
        return ops.copy(self._backend.read(self._skipped))

    @property
    def nonfinite_kind(self) -> Tensor:
        """Whether the last gradients were finite, inf or nan: an integer tensor of shape ().

        0: finite. 1: an inf and no nan, an overflow, which a smaller scale may fix. 2: a nan; it
        may follow from an inf (inf - inf, 0 * inf), or have nothing to do with the scale.
        """
        return ops.copy(self._backend.read(self._kind))

    @property
    def consecutive_skips(self) -> Tensor | None:
        """Steps skipped in a row, an integer tensor of shape ().

        None without `max_consecutive_skips`.
        """
        return None if self.runs is None else ops.copy(self.runs.read())

    def nonfinite_variables(self) -> list[NonfiniteVariable]:
        """Returns the variables with nonfinite gradients, the most frequent first.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        return self._required_counts().all()

    def first_overflow(self) -> FirstOverflow | None:
        """Returns the first skipped step and its variable; None if there was none.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        return self._required_counts().first()

    def last_nonfinite_variable(self) -> str | None:
        """Returns the variable that overflowed in the last skipped step.

        Chosen as in `FirstOverflow`. Needs `diagnose=True`, reads from the device.
        """
        return self._required_counts().last()

    def _required_counts(self) -> OverflowCounts:
        if self.overflows is None:
            raise ValueError(
                "Overflows are counted by variable only with "
                "LossScaleOptimizer(..., diagnose=True)."
            )
        return self.overflows


ROW = ("loss_scale", "kind", "variable")  # the record of a step


class StepLog:
    """The last steps, a row each: the loss scale before the step, its kind, the variable.

    The variable is the index of the one that overflowed; -1 for none, or if that is not counted.

    Args:
        rows: How many steps it holds.
        steps: The step counter, which counts a step before this object does.
        counts: Knows the variable; None if nothing counts it.
        variables: Creates its variable.
    """

    def __init__(
        self,
        rows: int,
        steps: StepCount,
        counts: OverflowCounts | None,
        variables: VariableFactory,
    ) -> None:
        self.rows = rows
        self._steps = steps
        self._counts = counts
        self._read = variables.backend.read
        # Not part of the extra state: files do not need it.
        self._table = variables.add("recorded", -1, "float32", (rows, len(ROW)))

    def note(self, step: Step) -> None:
        """Writes a row."""
        last = -1 if self._counts is None else self._counts.read_last()
        row = (step.scale_before, step.kind, (last + 1) * step.skipped - 1)
        stacked = ops.stack([ops.cast(each, "float32") for each in row])
        # Not slice_update: on torch, older Keras reads the index from the device.
        place = ops.reshape((self._steps.read() - 1) % self.rows, (1, 1))
        table = ops.scatter_update(self._read(self._table), place, ops.expand_dims(stacked, 0))
        self._table.assign(table)

    def since(self, step: int) -> tuple[int, list[tuple[int, float, int, int]]]:
        """Returns the number of steps so far, and (step, *row) of the steps after `step`.

        Overwritten rows are missing, and so are steps before a restore, of which only the number
        is known. Reads from the device.
        """
        steps = self._steps.wait()
        table = ops.convert_to_numpy(self._table).tolist()
        numbers = range(max(step, steps - len(table)), steps)
        rows = [(number + 1, *table[number % len(table)]) for number in numbers]
        return steps, [(n, scale, int(kind), int(i)) for n, scale, kind, i in rows if kind >= 0]
