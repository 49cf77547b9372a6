"""`ScaleState`: a loss scale with its counter and its rule, as handed over between frameworks."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import keras_mp
from keras_mp.backends.common.optimizers import class_path
from keras_mp.float_formats import FLOAT32
from keras_mp.settings import WATCHING, Settings, float32


@dataclass(frozen=True, slots=True)
class ScaleState:
    """A loss scale in the middle of training.

    Attributes:
        arguments: What `keras_mp.LossScaleOptimizer(inner, **arguments)` takes to go on by the same
            rule. Its `initial_scale` is the scale, or the bound next to it where a dynamic one is
            below `min_scale` or above `max_scale`; `apply` sets the scale itself, and the counter,
            which is no argument. With `hysteresis`, the overflows that are left until the scale
            falls are not carried: they start anew.
        scale: The current loss scale.
        counter: Finite steps since it changed; 0 if it is fixed.

    >>> import keras
    >>> from keras_mp.compat import scale_state
    >>> state = scale_state({"scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5,
    ...                      "growth_interval": 100, "_growth_tracker": 7})
    >>> optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), **state.arguments)
    >>> state.apply(optimizer)
    >>> float(optimizer.loss_scale), int(optimizer.dynamic_counter)
    (8.0, 7)
    """

    arguments: dict[str, Any]
    scale: float
    counter: int
    _warning: str = field(default="", repr=False, compare=False)

    def apply(self, optimizer: Any) -> None:
        """Sets the scale and the counter of `optimizer`.

        Args:
            optimizer: A `keras_mp.LossScaleOptimizer` with the settings of `arguments`; only
                `initial_scale` may be another, if the scale is dynamic.

        Raises:
            TypeError: It is something else.
            ValueError: A setting differs, which would let the scale take another course; all are
                named. Nothing is set then.
        """
        if not isinstance(optimizer, keras_mp.LossScaleOptimizer):
            raise TypeError(
                f"Expected a keras_mp.LossScaleOptimizer, but got {class_path(optimizer)}."
            )
        theirs = Settings.checked(**self.arguments).as_config()
        ours = optimizer._settings.as_config()
        differ = [
            f"{name} is {ours[name]}, not {value}"
            for name, value in theirs.items()
            if ours[name] != value
            and name not in WATCHING
            and not (name == "initial_scale" and (theirs["dynamic"] or _same(ours[name], value)))
        ]
        if differ:
            raise ValueError(
                f"This optimizer would go on by another rule: {'; '.join(differ)}. Make it with "
                "LossScaleOptimizer(inner, **state.arguments)."
            )
        optimizer.dynamic_scale.assign(self.scale)
        optimizer.step_counter.assign(self.counter)
        optimizer._scaler.restored()

    def to_torch_grad_scaler(self) -> dict[str, Any]:
        """Returns what `torch.amp.GradScaler().load_state_dict` takes.

        A GradScaler has no `min_scale` and no `max_scale`; a warning says so where there is one.
        Without loss scaling it is empty, which only GradScaler(enabled=False) takes.

        Raises:
            ValueError: The scale is fixed; a GradScaler's never is.

        >>> import keras
        >>> from keras_mp.compat import scale_state
        >>> inner = keras.optimizers.SGD()
        >>> state = scale_state(keras_mp.LossScaleOptimizer(inner, min_scale=2**-126))
        >>> state.to_torch_grad_scaler()["growth_interval"]
        2000
        """
        settings = Settings.checked(**self.arguments)
        if not settings.dynamic:
            if self.scale == 1.0 and not settings.skip_nonfinite:
                return {}
            raise ValueError(
                f"The loss scale is fixed at {self.scale}, but that of a torch GradScaler always "
                "changes: multiply the loss in your loop."
            )
        assert settings.dynamic_growth_steps is not None
        for name, value, bound in (
            ("min_scale", settings.min_scale, "below"),
            ("max_scale", settings.max_scale, "above"),
        ):
            if value is not None and value > FLOAT32.smallest_normal:
                warnings.warn(
                    f"{name}={value} is lost: a torch GradScaler has none, its scale may get "
                    f"{bound} it.",
                    stacklevel=2,
                )
        if settings.hysteresis > 1:
            warnings.warn(
                f"hysteresis={settings.hysteresis} is lost: a torch GradScaler shrinks its scale "
                "at every overflow.",
                stacklevel=2,
            )
        return {
            "scale": self.scale,
            "growth_factor": settings.growth_factor,
            "backoff_factor": settings.backoff_factor,
            "growth_interval": settings.dynamic_growth_steps,
            # Past it, a GradScaler would wait for an overflow; ours grows at the next step.
            "_growth_tracker": min(self.counter, settings.dynamic_growth_steps - 1),
        }


def _same(one: float, other: float) -> bool:
    return float32(one) == float32(other)
