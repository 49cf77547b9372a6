"""`Stepper`: takes the steps of the inner optimizer, by a fused kernel or by the default path."""

from collections.abc import Sequence

from keras import ops

from keras_mp import backends
from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common import fused_rules
from keras_mp.backends.common.numerics import StepResult, Update, skip_count
from keras_mp.backends.common.optimizers import flatten_optimizers, overwrites_with_gradient
from keras_mp.backends.protocol import Backend
from keras_mp.settings import Settings


class Stepper:
    """Takes a step of `optimizer` if the gradients are finite, and skips it otherwise.

    Args:
        optimizer: The inner optimizer.
        settings: The wrapper's settings.
        backend: Keras' backend.

    Raises:
        ValueError: With `fused=True`: no fused kernel has the rule of this optimizer.
    """

    def __init__(self, optimizer: Optimizer, settings: Settings, backend: Backend) -> None:
        self._optimizer = optimizer
        self.settings = settings
        self._backend = backend
        self._fused = FusedStep(optimizer) if settings.fused else None

    def __call__(
        self, gradients: list[Gradient], variables: list[Variable], scale: Tensor | None
    ) -> StepResult:
        """Takes a step with `gradients / scale`, or skips it if one is not finite.

        Args:
            gradients: One per variable, or None; no NumPy arrays.
            variables: Of the model.
            scale: float32, shape (); None if the gradients are not scaled.

        Returns:
            Whether the gradients were finite; with `skip_nonfinite=False` nothing is checked.
        """
        skip_unscale = list(map(overwrites_with_gradient, variables))
        update = Update(self._optimizer, gradients, variables, scale, skip_unscale)
        if self._fused is not None:
            result = self._fused(update, self.settings)
            if result is not None:
                return result
        if not self.settings.skip_nonfinite:
            if scale is not None:
                gradients = self._backend.unscale(gradients, scale, skip_unscale)
            self._backend.apply(self._optimizer, gradients, variables)
            return StepResult(True, None, None)
        result = self._backend.apply_if_finite(update, self.settings.diagnose)
        if self.settings.count_skipped_steps:
            self._count_skip(result.finite)
        return result

    def fused_fallback(self, variables: Sequence[Variable]) -> str | None:
        """Returns why steps are not fused; None if they are, or if `fused` is off."""
        return None if self._fused is None else self._fused.fallback(variables)

    def _count_skip(self, finite: Tensor) -> None:
        if finite is True:
            return
        for optimizer in flatten_optimizers(self._optimizer):
            # An optimizer built without variables forwards its steps, and counts none of them.
            counts = optimizer.built and len(keras_hooks.trained_variables(optimizer)) > 0
            if counts and not optimizer.gradient_accumulation_steps:
                counter = keras_hooks.step_counter(optimizer)
                skipped = skip_count(finite, counter)
                if optimizer.use_ema:  # Keras begins averages at iteration 0, else from zeros
                    skipped = skipped * ops.cast(counter.value > 0, counter.dtype)
                counter.assign_add(skipped)


class FusedStep:
    """Takes the steps of an optimizer with a fused kernel, with `fused=True`.

    Args:
        optimizer: The inner optimizer.

    Raises:
        ValueError: No fused kernel has the rule of this optimizer.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._narrow = getattr(optimizer, "_narrow_weights", None)
        self._optimizer = optimizer if self._narrow is None else optimizer.inner_optimizer
        fused_rules.check(self._optimizer)
        # Looked up once: torch.compile cannot trace an import.
        self._kernels = backends.fused_kernels()
        self._last_fallback: dict[str, str | None] = {}

    def fallback(self, variables: Sequence[Variable]) -> str | None:
        """Returns why the last step was not fused, or None if it was.

        Before the first step: why a step with dense float32 gradients would not be fused.
        """
        if self._last_fallback:
            return self._last_fallback["reason"]
        if self._narrow is not None:
            if self._narrow.rounds:
                return fused_rules.ROUNDED
            variables = self._narrow.targets(variables)
        if self._kernels is None:
            return fused_rules.XLA
        return self._kernels.fallback(self._optimizer, [None] * len(variables), variables)

    def __call__(self, update: Update, settings: Settings) -> StepResult | None:
        """Takes a step with a fused kernel, if one supports it.

        Args:
            update: Of the inner optimizer; no NumPy arrays.
            settings: The wrapper's settings.

        Returns:
            Whether the gradients were finite (with `skip_nonfinite=False` nothing is checked, and
            `finite` is True); None if the caller must take the default path.

        Raises:
            ValueError: An option that kernels lack was set on the optimizer after construction.
        """
        if self._narrow is not None and self._narrow.rounds:
            self._last_fallback["reason"] = fused_rules.ROUNDED
            return None
        fused_rules.check(self._optimizer)
        if self._narrow is None:
            return self._apply(update, settings)
        _, gradients, variables, scale, skip_unscale = update
        with self._narrow.in_float32(gradients, variables) as (wide, targets):
            inside = Update(self._optimizer, wide, targets, scale, skip_unscale)
            return self._apply(inside, settings)

    def _apply(self, update: Update, settings: Settings) -> StepResult | None:
        if self._kernels is None:
            self._last_fallback["reason"] = fused_rules.XLA
            return None
        taken = self._kernels.apply(update, settings)
        self._last_fallback["reason"] = taken if isinstance(taken, str) else None
        return None if isinstance(taken, str) else taken
