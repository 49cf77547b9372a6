"""`FusedStep`: takes steps with a fused kernel of the framework, where there is one."""

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
        ValueError: There are no fused kernels for the rule of this optimizer.
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

        Before the first step: why one with dense float32 gradients of `variables` would not be.
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
        """Takes a step with a fused kernel, if there is one for it.

        Args:
            gradients: One a variable, or None; no NumPy arrays.
            variables: Of the model.
            scale: What to divide the gradients by, float32, shape (); None for nothing.
            settings: Those of the wrapper.

        Returns:
            What the gradients were (with `skip_nonfinite=False`: nothing was looked at, and
            `finite` is True); None if no step was taken, and the default path is to be.

        Raises:
            ValueError: The optimizer was given an option meanwhile that kernels do not have.
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
