"""The arguments of a LossScaleOptimizer, checked: pure Python, no framework.

`LossScaleOptimizer.__init__` hands them to `Settings.checked`; nothing else validates them.
"""

import math
import numbers
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from keras_mp.float_formats import FLOAT32

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000
# Settings that say what is told of a step, or how it is computed, not what the loss scale does: two
# optimizers may differ in them.
WATCHING = ("diagnose", "max_consecutive_skips", "fused")

# Options of keras.optimizers.Optimizer, with their defaults, that belong to the optimizer inside.
BASE_OPTIONS = {
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked arguments of a LossScaleOptimizer, in the order of its config.

    The one table of them: `LossScaleOptimizer` has a property for each, and its constructor the
    same defaults.

    >>> Settings.checked().initial_scale
    32768.0
    >>> Settings.checked(dynamic=False)
    Traceback (most recent call last):
    ValueError: initial_scale must be given when dynamic=False, such as initial_scale=1024.
    """

    dynamic: bool = _setting(True, "Whether the loss scale changes during training.")
    initial_scale: float = _setting(None, "The loss scale at the start of training.")
    dynamic_growth_steps: int | None = _setting(
        None, "Finite steps between two growths of the scale; None with a fixed scale."
    )
    growth_factor: float = _setting(2.0, "Multiplier of the scale when it grows.")
    backoff_factor: float = _setting(0.5, "Multiplier of the scale after an overflow.")
    min_scale: float = _setting(1.0, "Smallest scale.")
    max_scale: float | None = _setting(
        None, "What the scale never grows above; None for the largest float32."
    )
    hysteresis: int = _setting(1, "How many overflows since the last growth make the scale fall.")
    count_skipped_steps: bool = _setting(True, "Whether `iterations` advances on a skipped step.")
    skip_nonfinite: bool = _setting(
        True, "Whether steps with gradients that are not finite are skipped."
    )
    diagnose: bool = _setting(False, "Whether nonfinite gradients are counted by variable.")
    max_consecutive_skips: int | None = _setting(
        None, "Skipped steps in a row after which `LossScaleMonitor` stops the training."
    )
    fused: bool = _setting(
        False, "Whether to use fused kernels where possible; see `fused_fallback`."
    )

    @classmethod
    def checked(cls, **given: Any) -> Self:
        """Returns the settings, defaults filled in; raises TypeError or ValueError."""
        values: dict[str, Any] = {each.name: each.default for each in fields(cls)}
        values |= given
        _check_flags(values)
        dynamic, initial_scale = bool(values["dynamic"]), values["initial_scale"]
        steps, runs = values["dynamic_growth_steps"], values["max_consecutive_skips"]
        if not dynamic:
            _check_fixed(initial_scale, steps)
        elif not values["skip_nonfinite"]:
            raise ValueError(
                "skip_nonfinite=False needs dynamic=False: a dynamic scale shrinks by skipping "
                "the steps whose gradients are not finite."
            )
        scales = _scales(dynamic, initial_scale, values["min_scale"], values["max_scale"])
        values["initial_scale"], values["min_scale"], values["max_scale"] = scales
        values["growth_factor"] = _growth_factor(values["growth_factor"])
        values["backoff_factor"] = _backoff_factor(values["backoff_factor"])
        overflows = _count("hysteresis", values["hysteresis"])
        if not dynamic and overflows != 1:
            raise ValueError(
                "hysteresis must be 1 when dynamic=False (a fixed scale never shrinks), but got "
                f"{values['hysteresis']!r}."
            )
        values["hysteresis"] = overflows
        if not values["skip_nonfinite"] and (values["diagnose"] or runs is not None):
            raise ValueError(
                "diagnose and max_consecutive_skips need skip_nonfinite=True: without it no "
                "gradient is checked."
            )
        if dynamic:
            values["dynamic_growth_steps"] = growth_steps(GROWTH_STEPS if steps is None else steps)
        if runs is not None:
            values["max_consecutive_skips"] = _count("max_consecutive_skips", runs)
        return cls(**values | {name: bool(values[name]) for name in _FLAGS})

    def with_growth_steps(self, value: Any) -> Self:
        """Returns a copy with another number of growth steps."""
        return replace(self, dynamic_growth_steps=growth_steps(value))

    def as_config(self) -> dict[str, Any]:
        """Returns the arguments by name, as JSON-serializable values."""
        return asdict(self)


_FLAGS = ("dynamic", "count_skipped_steps", "skip_nonfinite", "diagnose", "fused")
# Settings fixed at construction.
IMMUTABLE = frozenset(each.name for each in fields(Settings)) - {"dynamic_growth_steps"}


def growth_steps(value: Any) -> int:
    """Returns `value` as a number of optimizer steps, at least 1.

    >>> growth_steps(500)
    500
    >>> growth_steps(0)
    Traceback (most recent call last):
    ValueError: dynamic_growth_steps must be an integer of at least 1, but got 0.
    """
    return _count("dynamic_growth_steps", value)


def unknown_keywords(names: Any) -> TypeError:
    """Returns the error for keywords that the constructor does not take, each with the remedy."""
    parts = []
    for name in names:
        if name == "loss_scale_factor":
            parts.append("loss_scale_factor (write dynamic=False, initial_scale=...)")
        elif name in (*BASE_OPTIONS, "learning_rate", "lr", "decay"):
            parts.append(f"{name} (set it on the inner optimizer)")
        elif name == "loss_scale":
            parts.append(
                "loss_scale (write initial_scale=..., with dynamic=False when it is a fixed number)"
            )
        else:
            parts.append(name)
    return TypeError(f"LossScaleOptimizer does not take {', '.join(parts)}.")


def _check_flags(values: Mapping[str, Any]) -> None:
    if not _is_bool(values["dynamic"]):
        raise TypeError(
            f"dynamic must be True or False, as in tf.keras, but got {values['dynamic']!r}. If "
            "this is an initial scale (keras.optimizers.LossScaleOptimizer takes initial_scale and "
            "dynamic_growth_steps as 2nd and 3rd positional arguments), name it: "
            f"LossScaleOptimizer(optimizer, initial_scale={values['dynamic']!r})."
        )
    for name in _FLAGS:
        if not _is_bool(values[name]):
            raise TypeError(f"{name} must be True or False, but got {values[name]!r}.")


def _check_fixed(initial_scale: object, dynamic_growth_steps: object) -> None:
    if initial_scale is None:
        raise ValueError(
            "initial_scale must be given when dynamic=False, such as initial_scale=1024."
        )
    if dynamic_growth_steps is not None:
        raise ValueError(
            "dynamic_growth_steps must be None when dynamic=False (a fixed scale never "
            f"grows), but got {dynamic_growth_steps!r}."
        )


def _scales(
    dynamic: bool, initial_scale: object, min_scale: object, max_scale: object
) -> tuple[float, float, float | None]:
    """Returns the initial, the smallest and the largest scale."""
    scale = INITIAL_SCALE if initial_scale is None else _positive("initial_scale", initial_scale)
    low = _positive("min_scale", min_scale)
    high = None if max_scale is None else _positive("max_scale", max_scale)
    if high is not None and low > high:
        raise ValueError(
            f"min_scale must not exceed max_scale, but got min_scale={low} and max_scale={high}."
        )
    if dynamic and (scale < low or (high is not None and scale > high)):
        raise ValueError(
            f"initial_scale must lie between min_scale and max_scale, but got "
            f"initial_scale={scale}, min_scale={low}, max_scale={high}. Set "
            f"{'min_scale' if scale < low else 'max_scale'}={scale} to start there."
        )
    return scale, low, high


def _growth_factor(given: object) -> float:
    factor = number("growth_factor", given)
    if not 1 < float32(factor) < math.inf:
        raise ValueError(
            f"growth_factor must be greater than 1 and finite, in float32, but got {given!r}."
        )
    return factor


def _backoff_factor(given: object) -> float:
    factor = number("backoff_factor", given)
    if not 0 < float32(factor) < 1:
        raise ValueError(f"backoff_factor must lie between 0 and 1 in float32, but got {given!r}.")
    return factor


def _is_bool(value: object) -> bool:
    # np.bool_ is not a subclass of bool; its class name is bool_ (NumPy 1) or bool (NumPy 2).
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def _count(name: str, value: Any) -> int:
    whole = isinstance(value, numbers.Real) and not _is_bool(value) and value == value // 1
    if not whole or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, but got {value!r}.")
    return int(value)


def number(name: str, value: Any) -> float:
    """Returns a number as a float: inf where it is an integer beyond float64.

    Raises:
        TypeError: It is none; says what `name` is.
    """
    if _is_bool(value) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, but got {value!r}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def float32(value: float) -> float:
    """Returns `value` as the float32 that the optimizer computes with."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]  # native: beyond it, inf
    return rounded


def _positive(name: str, value: Any) -> float:
    found = number(name, value)
    # XLA flushes smaller numbers to zero.
    if not FLOAT32.smallest_normal <= float32(found) < math.inf:
        raise ValueError(
            f"{name} must be positive and finite in float32 (at least 1.2e-38), but got {value!r}."
        )
    return found
