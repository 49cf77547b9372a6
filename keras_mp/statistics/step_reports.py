"""The part of the wrapper that reports the results of its steps: it reads `StepStatistics`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_mp.array_types import Tensor
from keras_mp.statistics.overflow_counts import FirstOverflow, NonfiniteVariable, OverflowCounts
from keras_mp.statistics.step_statistics import StepStatistics


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


class StepReports:
    """`last_step_applied`, `skipped_steps`, `nonfinite_kind`, and what `diagnose` counts."""

    _statistics: StepStatistics

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
        return ops.equal(self._statistics.read_kind(), 0)

    @property
    def skipped_steps(self) -> Tensor:
        """How many steps were skipped so far, an integer tensor of shape ()."""
        return ops.copy(self._statistics.read_skipped())

    @property
    def nonfinite_kind(self) -> Tensor:
        """Whether the last gradients were finite, inf or nan: an integer tensor of shape ().

        0: finite. 1: an inf and no nan, an overflow, which a smaller scale may fix. 2: a nan; it
        may follow from an inf (inf - inf, 0 * inf), or have nothing to do with the scale.
        """
        return ops.copy(self._statistics.read_kind())

    @property
    def consecutive_skips(self) -> Tensor | None:
        """Steps skipped in a row, an integer tensor of shape ().

        None without `max_consecutive_skips`.
        """
        runs = self._statistics.runs
        return None if runs is None else ops.copy(runs.read())

    def read_state(self: Any, optimizer_variables: Sequence[Tensor]) -> OptimizerState:
        """Returns the loss scale, counters and skips by name, from the values of `variables`.

        For a loop that passes the optimizer's state from step to step, as on JAX, inside the
        compiled step or outside. Does not change the variables.

        Args:
            optimizer_variables: Values of `variables`, in their order.

        Returns:
            A named tuple of scalars: `loss_scale`, `dynamic_counter`, `iterations`,
            `last_step_applied`, `skipped_steps`, `nonfinite_kind`, `consecutive_skips`.

        Raises:
            ValueError: The number of values differs from that of the variables.

        >>> import keras
        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8)
        >>> opt.build([keras.Variable([1.0])])
        >>> state = opt.read_state([variable.value for variable in opt.variables])
        >>> float(state.loss_scale), int(state.skipped_steps), bool(state.last_step_applied)
        (8.0, 0, True)
        """
        values, known = list(optimizer_variables), self.variables
        if len(values) != len(known):
            raise ValueError(
                f"optimizer_variables has {len(values)} values, but the optimizer has "
                f"{len(known)} variables: pass one for each of `optimizer.variables`, in "
                "their order."
            )
        with keras.StatelessScope(list(zip(known, values, strict=True))):
            return OptimizerState(
                self.loss_scale,
                self.dynamic_counter,
                ops.copy(self.iterations),
                self.last_step_applied,
                self.skipped_steps,
                self.nonfinite_kind,
                self.consecutive_skips,
            )

    def nonfinite_variables(self) -> list[NonfiniteVariable]:
        """Returns the variables with nonfinite gradients, the most frequent first.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        return self._diagnosed().all()

    def first_overflow(self) -> FirstOverflow | None:
        """Returns the first skipped step and its variable; None if there was none.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        return self._diagnosed().first()

    def last_nonfinite_variable(self) -> str | None:
        """Returns the variable that overflowed in the last skipped step.

        Chosen as in `FirstOverflow`. Needs `diagnose=True`, reads from the device.
        """
        return self._diagnosed().last()

    def _diagnosed(self) -> OverflowCounts:
        overflows = self._statistics.overflows
        if overflows is None:
            raise ValueError(
                "Overflows are counted by variable only with "
                "LossScaleOptimizer(..., diagnose=True)."
            )
        return overflows
