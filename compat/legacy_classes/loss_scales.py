"""`LossScale`, `FixedLossScale` and `DynamicLossScale` of TF 1.14 to 2.4.

There a loss scale was an object, which the loss-scale optimizer took as an argument. In keras_mp
the optimizer holds the scale, and the object reads it there.
"""

import abc
import math
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, Self

import keras
from keras import ops

from keras_mp import backends
from keras_mp.compat.configs import checks
from keras_mp.scaling.loss_scale import next_scale
from keras_mp.settings import float32, number

CHOICES = (
    "expected 'dynamic', a number of at least 1, a FixedLossScale or a DynamicLossScale, but got "
)


class LossScale(abc.ABC):
    """The base of `FixedLossScale` and `DynamicLossScale`.

    A subclass of your own is not taken by an optimizer, as in TF 2.4 and later: its rule would not
    be followed.
    """

    @abc.abstractmethod
    def __call__(self) -> Any:
        """Returns the current loss scale, a float32 tensor of shape ()."""

    @abc.abstractmethod
    def update(self, grads: Iterable[Any]) -> tuple[None, Any]:
        """Follows the gradients of a step.

        Args:
            grads: Unscaled gradients, tensors of any shapes, None among them.

        Returns:
            (None, whether these gradients may be applied: bool or bool tensor of shape ()).
        """

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the loss scale that had this `get_config()`."""
        return cls(**config)

    def _add_weight(self, name: str, initial_value: Any, dtype: Any = None) -> Any:
        """Makes a variable for the state of a subclass, as in TensorFlow."""
        return keras.Variable(initial_value, trainable=False, dtype=dtype, name=name)

    def __float__(self) -> float:
        return float(self())

    def __int__(self) -> int:
        return int(float(self))

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)

    @property
    def dtype(self) -> str:
        """That of the number."""
        return "float32"

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        return self() if dtype is None else ops.cast(self(), dtype.name)

    def __jax_array__(self) -> Any:
        return self()

    def __eq__(self, other: object) -> Any:
        if self is other or isinstance(other, LossScale):
            return self is other
        if isinstance(other, numbers.Real):
            return float(self) == other
        return self() == other if ops.is_tensor(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self() != other if ops.is_tensor(other) else super().__ne__(other)

    def __lt__(self, other: float) -> bool:
        return float(self) < other

    def __gt__(self, other: float) -> bool:
        return float(self) > other

    def __le__(self, other: float) -> bool:
        return float(self) <= other

    def __ge__(self, other: float) -> bool:
        return float(self) >= other

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Any:
        return self() + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self() - other

    def __rsub__(self, other: Any) -> Any:
        return other - self()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return ops.convert_to_numpy(self()).astype(dtype or "float32")

    def numpy(self) -> Any:
        """Returns the current loss scale, float32."""
        return ops.convert_to_numpy(self())

    def __mul__(self, other: Any) -> Any:
        return self() * other

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self()


class FixedLossScale(LossScale):
    """A loss scale that stays.

    Args:
        loss_scale_value: At least 1.

    Raises:
        ValueError: It is less, or not finite in float32.
        TypeError: It is not a number.

    Source: TF 2.3, python/training/experimental/loss_scale.py.

    >>> scale = FixedLossScale(8)
    >>> float(scale()), scale.get_config()
    (8.0, {'loss_scale_value': 8.0})
    """

    def __init__(self, loss_scale_value: float) -> None:
        self._value = _finite("loss_scale_value", loss_scale_value)
        if self._value < 1:
            raise ValueError(
                f"loss_scale_value must be at least 1, but got {loss_scale_value}."
                + _taken_today(self._value, f"dynamic=False, initial_scale={loss_scale_value}")
            )

    @classmethod
    def of(cls, scale: float) -> Self:
        """Returns the object for a scale that may be below 1, as optimizers have them today."""
        self = cls(1.0)
        self._value = scale
        return self

    def __call__(self) -> Any:
        return ops.convert_to_tensor(self._value, "float32")

    def update(self, grads: Iterable[Any]) -> tuple[None, Any]:
        return None, True

    def get_config(self) -> dict[str, Any]:
        return {"loss_scale_value": self._value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self._value})"


class DynamicLossScale(LossScale):
    """A loss scale that is doubled after a number of finite steps, and halved by an overflow.

    Args:
        initial_loss_scale: The loss scale to start with.
        increment_period: Steps with finite gradients in a row until it is doubled.
        multiplier: Must be 2, as in TF 2.4 and later.

    Raises:
        ValueError: `multiplier` is another one, and the text says what to write; or a number is
            out of its range.
        TypeError: An argument is not a number.

    Source: TF 2.3, python/training/experimental/loss_scale.py.

    >>> scale = DynamicLossScale(initial_loss_scale=2048, increment_period=500)
    >>> float(scale()), scale.increment_period
    (2048.0, 500)
    >>> _, may_apply = scale.update([ops.array([float("nan")])])
    >>> bool(may_apply), float(scale())
    (False, 1024.0)
    """

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None:
        self._initial = _finite("initial_loss_scale", initial_loss_scale)
        steps = _finite("increment_period", increment_period)
        if not 1 <= steps <= checks.INT32_MAX or steps != int(steps):
            raise ValueError(
                f"increment_period must be a whole number from 1 to {checks.INT32_MAX}, but got "
                f"{increment_period}."
            )
        self._period = int(steps)
        factor = _finite("multiplier", multiplier)
        if factor != 2:
            raise ValueError(
                f"multiplier must be 2, but got {multiplier}, which TensorFlow took up to 2.3. "
                + _with_factor(self._initial, self._period, factor)
            )
        if self._initial < 1:
            raise ValueError(
                f"initial_loss_scale must be at least 1, but got {initial_loss_scale}."
                + _taken_today(
                    self._initial, f"initial_scale={self._initial}, min_scale={self._initial}"
                )
            )
        self._variables: tuple[Any, Any] | None = None
        self._is_followed = False

    @classmethod
    def of(cls, scale: float, period: int | None) -> Self:
        """Returns the object for a scale that may be below 1, as optimizers have them today."""
        self = cls(increment_period=period or 2000)
        self._initial = scale
        return self

    @property
    def initial_loss_scale(self) -> float:
        """The loss scale to start with."""
        return self._initial

    @property
    def increment_period(self) -> int:
        """Steps with finite gradients in a row until the scale is doubled."""
        return self._period

    @property
    def multiplier(self) -> float:
        """2.0, always."""
        return 2.0

    def followed(self, scale: Any, counter: Any) -> "DynamicLossScale":
        """Returns the loss scale that is in variables of an optimizer from now on.

        This object, with the state that it had; or a copy, if it is that of another optimizer.

        Args:
            scale: Variable, float32, shape ().
            counter: Variable, integer, shape ().
        """
        if self._is_followed:
            return type(self).from_config(self.get_config()).followed(scale, counter)
        if self._variables is not None:
            for ours, theirs in zip(self._variables, (scale, counter), strict=True):
                theirs.assign(ops.cast(backends.current().read(ours), theirs.dtype))
        self._variables, self._is_followed = (scale, counter), True
        return self

    @property
    def _current_loss_scale(self) -> Any:
        return self._state()[0]

    @property
    def _num_good_steps(self) -> Any:
        return self._state()[1]

    def _state(self) -> tuple[Any, Any]:
        if self._variables is None:
            with backends.current().init_scope():
                scale = keras.Variable(self._initial, trainable=False, dtype="float32")
                self._variables = scale, keras.Variable(0, trainable=False, dtype="int32")
        return self._variables

    def __call__(self) -> Any:
        return ops.copy(backends.current().read(self._current_loss_scale))

    def update(self, grads: Iterable[Any]) -> tuple[None, Any]:
        backend = backends.current()
        finite = backend.all_finite(list(grads))
        scale, counter = self._state()
        new = next_scale(
            backend.read(scale), backend.read(counter), finite, growth_steps=self._period
        )
        scale.assign(new[0])
        counter.assign(new[1])
        return None, finite

    def get_config(self) -> dict[str, Any]:
        return {
            "initial_loss_scale": self._initial,
            "increment_period": self._period,
            "multiplier": 2.0,
        }

    def __repr__(self) -> str:
        return (
            f"DynamicLossScale(initial_loss_scale={self._initial}, "
            f"increment_period={self._period}, multiplier=2.0)"
        )


def get(identifier: Any) -> LossScale | None:
    """Returns the loss scale that an old argument `loss_scale` stands for.

    Args:
        identifier: "dynamic", a number of at least 1, a `FixedLossScale`, a `DynamicLossScale`, or
            one of these as TensorFlow serialized it, `{"class_name": ..., "config": ...}`; or None,
            which stays None.

    Raises:
        TypeError: It is a LossScale of another class, or nothing of this kind.
        ValueError: It is another string, or a number below 1.

    >>> get("dynamic"), get(123), get(None)
    (DynamicLossScale(initial_loss_scale=32768.0, increment_period=2000, multiplier=2.0), \
FixedLossScale(123.0), None)
    """
    if identifier is None or type(identifier) in (FixedLossScale, DynamicLossScale):
        return identifier  # type: ignore[no-any-return]
    if isinstance(identifier, LossScale):
        raise TypeError(
            f"loss_scale is a {type(identifier).__name__}, a class of your own, and its rule would "
            "not be followed (TF 2.4 and later refuse it, too): use a FixedLossScale or a "
            "DynamicLossScale, or override what you need in a subclass of "
            "keras_mp.LossScaleOptimizer."
        )
    if isinstance(identifier, Mapping):
        known = {cls.__name__: cls for cls in (FixedLossScale, DynamicLossScale)}
        name = identifier.get("class_name")
        if name not in known:
            raise ValueError(f"loss_scale: {CHOICES}the config of {name!r}.")
        return known[name].from_config(dict(identifier.get("config") or {}))
    if isinstance(identifier, str):
        if identifier == "dynamic":
            return DynamicLossScale()
        raise ValueError(f"loss_scale: {CHOICES}{identifier!r}.")
    if isinstance(identifier, numbers.Real) and not isinstance(identifier, bool):
        return FixedLossScale(_finite("loss_scale", identifier))
    raise TypeError(f"loss_scale: {CHOICES}{identifier!r} of type {type(identifier).__name__}.")


def arguments(loss_scale: Any) -> dict[str, Any]:
    """Returns the arguments of `keras_mp.LossScaleOptimizer` that an old `loss_scale` stands for.

    Args:
        loss_scale: As for `get`, but not None.

    Raises:
        ValueError: It is None, or as from `get`.
        TypeError: As from `get`.

    >>> arguments(DynamicLossScale(2048, 500))
    {'dynamic': True, 'initial_scale': 2048.0, 'dynamic_growth_steps': 500}
    >>> arguments(123)
    {'dynamic': False, 'initial_scale': 123.0}
    """
    match get(loss_scale):
        case None:
            raise ValueError(
                f"loss_scale: {CHOICES}None. To train without a loss scale use the optimizer "
                "itself, without a LossScaleOptimizer."
            )
        case DynamicLossScale() as scale:
            return {
                "dynamic": True,
                "initial_scale": scale.initial_loss_scale,
                "dynamic_growth_steps": scale.increment_period,
            }
        case scale:
            return {"dynamic": False, "initial_scale": scale.get_config()["loss_scale_value"]}


def _taken_today(scale: float, arguments: str) -> str:
    taken = f" keras_mp.LossScaleOptimizer(optimizer, {arguments}) takes it."
    return taken if scale > 0 else ""


def _finite(name: str, value: Any) -> float:
    found = number(name, value)
    if not math.isfinite(float32(found)):
        raise ValueError(f"{name} must be finite in float32, but got {value}.")
    return found


def _with_factor(scale: float, steps: int, factor: float) -> str:
    if not factor > 1:
        return "It must be greater than 1 in any case."
    return (
        f"Write keras_mp.LossScaleOptimizer(optimizer, initial_scale={scale}, "
        f"dynamic_growth_steps={steps}, growth_factor={factor}, backoff_factor={1 / factor})."
    )
