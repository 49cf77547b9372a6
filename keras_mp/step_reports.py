"""The part of the wrapper that tells users what came of its steps: it reads `StepStatistics`."""

from keras import ops

from keras_mp.array_types import Tensor
from keras_mp.overflow_counts import FirstOverflow, NonfiniteVariable, OverflowCounts
from keras_mp.step_statistics import StepStatistics


class StepReports:
    """`last_step_applied`, `skipped_steps`, `nonfinite_kind`, and what `diagnose` counts."""

    _statistics: StepStatistics

    @property
    def last_step_applied(self) -> Tensor:
        """Whether the last step was taken, not skipped: a bool tensor of shape ().

        Like the two below it is a value on the device, for schedules, averages and loops that
        depend on it without waiting for it. True before the first step, and where nothing is
        checked (`skip_nonfinite=False`).

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
        """What the gradients of the last step held, an integer tensor of shape ().

        0: finite. 1: an inf and no nan, an overflow, which a smaller scale may cure. 2: a nan; it
        may follow from an inf (inf - inf, 0 * inf), or from no scale at all.
        """
        return ops.copy(self._statistics.read_kind())

    @property
    def consecutive_skips(self) -> Tensor | None:
        """Steps skipped in a row, an integer tensor of shape (); with `max_consecutive_skips`.

        None without.
        """
        runs = self._statistics.runs
        return None if runs is None else ops.copy(runs.read())

    def nonfinite_variables(self) -> list[NonfiniteVariable]:
        """Returns the variables whose gradients were not finite, the most frequent first.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        return self._diagnosed().all()

    def first_overflow(self) -> FirstOverflow | None:
        """Returns the first step that was skipped, and the variable; None if there was none.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        return self._diagnosed().first()

    def last_nonfinite_variable(self) -> str | None:
        """Returns the variable that overflowed in the last step that was skipped.

        Chosen as in `FirstOverflow`. Needs `diagnose=True`, reads from the device.
        """
        return self._diagnosed().last()

    def _diagnosed(self) -> OverflowCounts:
        overflows = self._statistics.overflows
        if overflows is None:
            raise ValueError(
                "Which variables overflow is counted with diagnose=True only: "
                "LossScaleOptimizer(..., diagnose=True)."
            )
        return overflows
