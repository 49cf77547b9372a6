"""`FusedStep`: takes steps with a fused kernel of the framework, if there is one."""

from collections.abc import Sequence

from keras_mp import backends
from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends.common import fused_rules
from keras_mp.backends.common.numerics import StepResult
from keras_mp.settings import Settings


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

    def __call__(
        self,
        gradients: list[Gradient],
        variables: list[Variable],
        scale: Tensor | None,
        settings: Settings,
    ) -> StepResult | None:
        """Takes a step with a fused kernel, if one supports it.

        Args:
            gradients: One per variable, or None; no NumPy arrays.
            variables: Of the model.
            scale: Divides the gradients: float32, shape (); None for no division.
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
            return self._apply(gradients, variables, scale, settings)
        with self._narrow.in_float32(gradients, variables) as (wide, targets):
            return self._apply(wide, targets, scale, settings)

    def _apply(
        self,
        gradients: list[Gradient],
        variables: list[Variable],
        scale: Tensor | None,
        settings: Settings,
    ) -> StepResult | None:
        if self._kernels is None:
            self._last_fallback["reason"] = fused_rules.XLA
            return None
        taken = self._kernels.apply(self._optimizer, gradients, variables, scale, settings)
        self._last_fallback["reason"] = taken if isinstance(taken, str) else None
        return None if isinstance(taken, str) else taken
