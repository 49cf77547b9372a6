"""Members of its parts that a wrapping optimizer reads and sets: tables, and `OptimizerWrapper`.

The inner optimizer has the hyperparameters; other parts have further members for users.
"""

import functools
import gc
import numbers
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import keras

from keras_mp.array_types import Gradient, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import averages, flatten_optimizers
from keras_mp.backends.protocol import Backend
from keras_mp.settings import BASE_OPTIONS, IMMUTABLE

M = TypeVar("M")

# Keras' own loss_scale_factor is missing: the wrapper scales the loss.
_ALWAYS = ("learning_rate", *(name for name in BASE_OPTIONS if name != "loss_scale_factor"))

# The hyperparameters that each optimizer of TensorFlow 2.4 (python/keras/optimizer_v2) created with
# `_set_hyper`. All have learning_rate; Keras 3 dropped `decay`. AdamW, of TensorFlow 2.11, has
# those of Adam. MultiOptimizer, of Keras 3, has none; it is listed because its get_config()
# contains its optimizers.
KERAS_2: dict[str, tuple[str, ...]] = {
    "SGD": ("momentum",),
    "Adam": ("beta_1", "beta_2"),
    "AdamW": ("beta_1", "beta_2"),
    "Adamax": ("beta_1", "beta_2"),
    "Nadam": ("beta_1", "beta_2"),
    "RMSprop": ("rho", "momentum"),
    "Adadelta": ("rho",),
    "Adagrad": (),
    "MultiOptimizer": (),
    "Ftrl": (
        "learning_rate_power",
        "l1_regularization_strength",
        "l2_regularization_strength",
        "beta",
    ),
}


def delegated_names(optimizer: Optimizer) -> frozenset[str]:
    """Returns the attributes of `optimizer` that its wrapper delegates.

    For an optimizer of Keras 2 these are its hyperparameters of then; for any other, every number
    (no bool) in `get_config()` except epsilon. The options of the base class are always included.
    An optimizer that wraps another has those of the other.
    """
    if (inner := getattr(optimizer, "inner_optimizer", None)) is not None:
        return delegated_names(inner)
    known = KERAS_2.get(type(optimizer).__name__)
    if known is None or not type(optimizer).__module__.startswith("keras."):
        known = tuple(_numeric_keys(optimizer))
    # Without reading learning_rate: keras.optimizers.MultiOptimizer raises AttributeError for it,
    # with a message of its own that users should see.
    return frozenset((*_ALWAYS, *(name for name in known if hasattr(optimizer, name))))


def _numeric_keys(optimizer: Optimizer) -> list[str]:
    try:
        config = optimizer.get_config()
    except Exception:  # noqa: BLE001 - the user's code; wrapping does not need it
        return []
    return [
        key
        for key, value in config.items()
        if isinstance(value, numbers.Number) and not isinstance(value, bool) and key != "epsilon"
    ]


def delegated(part: str, member: M) -> M:
    """Returns a member of a part for the class of the wrapper, with its docstring and signature.

    A method is one frame further from its caller, which the `stacklevel` of warnings counts.

    Args:
        part: The wrapper's attribute that holds the part.
        member: A property or a method of the part's class.
    """
    own: Any = member
    if isinstance(own, property):
        return property(lambda self: own.__get__(getattr(self, part)), doc=own.__doc__)  # type: ignore[return-value]

    @functools.wraps(own)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return own(getattr(self, part), *args, **kwargs)

    return method  # type: ignore[return-value]


class _Inner:
    """A hyperparameter of the inner optimizer. Keras' constructor sets some before there is one."""

    def __init__(self, doc: str | None = None, name: str = "") -> None:
        self.__doc__ = doc
        self._name = name

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = self._name or name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        inner = instance.__dict__.get("inner_optimizer")
        return None if inner is None else getattr(inner, self._name)

    def __set__(self, instance: Any, value: Any) -> None:
        inner = instance.__dict__.get("inner_optimizer")
        if inner is None:
            return
        before_build = self._name in ("use_ema", "gradient_accumulation_steps")
        if before_build and inner.built and value and value != getattr(inner, self._name):
            raise ValueError(
                f"{self._name} must be set before the optimizer is built (it decides which "
                f"variables exist, and what they count), but got {value!r} on a built "
                f"{type(inner).__name__}."
            )
        setattr(inner, self._name, value)


class OptimizerWrapper:
    """The base of optimizers that take their steps with another one, as tf.keras' wrapper did.

    Attributes:
        inner_optimizer: The other one. Until `_wrap`, attributes are the wrapper's own.
    """

    inner_optimizer: Optimizer
    built: bool
    _backend: Backend
    _names: frozenset[str]
    _immutable: frozenset[str] = IMMUTABLE  # settings fixed at construction

    weight_decay = _Inner()
    clipnorm = _Inner()
    global_clipnorm = _Inner()
    clipvalue = _Inner()
    use_ema = _Inner()
    ema_momentum = _Inner()
    ema_overwrite_frequency = _Inner()
    gradient_accumulation_steps = _Inner()
    learning_rate = _Inner(
        "The learning rate of the inner optimizer; can be set to a number or a schedule."
    )
    lr = _Inner("Alias of `learning_rate`.", "learning_rate")

    def _wrap(self, inner: Optimizer) -> None:
        """Delegates hyperparameters to `inner` from now on."""
        self._names = delegated_names(inner)
        self.inner_optimizer = inner

    @property
    def iterations(self) -> Any:
        """Steps taken, an integer scalar of the inner optimizer.

        Skipped steps are included unless `count_skipped_steps=False`.
        """
        return self.inner_optimizer.iterations

    @iterations.setter
    def iterations(self, value: int) -> None:
        # The variable counts gradients: `gradient_accumulation_steps` of them an iteration.
        for part in flatten_optimizers(self.inner_optimizer):
            keras_hooks.step_counter(part).assign(value * (part.gradient_accumulation_steps or 1))

    @property
    def loss_scale_factor(self) -> None:
        """None: the loss scale replaces Keras' fixed factor."""
        return

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        if value is not None:
            raise ValueError(
                f"loss_scale_factor={value} cannot be set on a {type(self).__name__}. Write "
                f"LossScaleOptimizer(optimizer, dynamic=False, initial_scale={value})."
            )

    def exclude_from_weight_decay(
        self, var_list: Iterable[Variable] | None = None, var_names: Any = None
    ) -> None:
        """Excludes variables from the inner optimizer's weight decay.

        Raises:
            ValueError: The optimizer is built.
        """
        if self.inner_optimizer.built:
            raise ValueError(
                "exclude_from_weight_decay must be called before the optimizer is built."
            )
        self.inner_optimizer.exclude_from_weight_decay(var_list=var_list, var_names=var_names)

    def _given_or_trained(self, variables: Iterable[Variable] | None) -> list[Variable]:
        if variables is None:
            if not self.built:
                raise ValueError(
                    "apply(grads) without variables needs a built optimizer: call "
                    "`optimizer.build(model.trainable_variables)`, or pass the variables."
                )
            variables = keras_hooks.trained_variables(self)
        return list(variables)

    def stateless_apply(
        self,
        optimizer_variables: Sequence[Tensor],
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Tensor],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """`apply` without side effects, for functions that JAX transforms."""
        values: tuple[list[Tensor], list[Tensor]] = keras.optimizers.Optimizer.stateless_apply(
            self,
            self._backend.values_to_change(optimizer_variables),
            grads,
            self._backend.values_to_change(trainable_variables),
        )
        return values

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Lets the inner optimizer write final values (its moving averages) to the variables."""
        inner = self.inner_optimizer
        inner.finalize_variable_values(var_list)
        if averages(inner):
            self._backend.copy_shared_arrays(var_list)

    def __getattr__(self, name: str) -> Any:
        # Only reached when ordinary lookup fails, and never during construction.
        inner = self.__dict__.get("inner_optimizer")
        if inner is not None and name in self.__dict__["_names"]:
            return getattr(inner, name)
        if name == "epsilon" and hasattr(inner, "epsilon"):
            raise AttributeError(
                f"{type(self).__name__} has no epsilon: it is not a hyperparameter. Read "
                "`optimizer.inner_optimizer.epsilon`."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        inner = self.__dict__.get("inner_optimizer")
        if name in self._immutable:
            raise AttributeError(
                f"{name} of a {type(self).__name__} is fixed at construction: "
                f"{type(self).__name__}(inner, {name}={value!r})."
            )
        if inner is None or (name not in self.__dict__["_names"] and name != "inner_optimizer"):
            if inner is not None and self._is_only_the_inners(name):
                warnings.warn(
                    f"{name} is set on the {type(self).__name__} and is not forwarded to the inner "
                    f"optimizer. Set `optimizer.inner_optimizer.{name}`.",
                    stacklevel=2,
                )
            super().__setattr__(name, value)
        elif name == "inner_optimizer":
            raise AttributeError("inner_optimizer cannot be replaced; make a new wrapper.")
        elif hasattr(type(self), name):
            object.__setattr__(self, name, value)  # to the property
        else:
            setattr(inner, name, value)

    def _is_only_the_inners(self, name: str) -> bool:
        own = name.startswith("_") or name in self.__dict__ or hasattr(type(self), name)
        return not own and hasattr(self.__dict__["inner_optimizer"], name)

    def __dir__(self) -> list[str]:
        # Keras' saving walks dir() and would write the inner optimizer's state again under
        # `inner_optimizer`; `save_own_variables` includes it.
        names = self.__dict__.get("_names", ())
        return sorted({*super().__dir__(), *names} - {"inner_optimizer"})


def wrapper_of(optimizer: Optimizer) -> Any:
    """Returns the LossScaleOptimizer that wraps `optimizer`, if one is alive; else None."""
    wrapper = optimizer.__dict__.get("_keras_mp_wrapper")
    return wrapper() if wrapper else None


def note_wrapper(optimizer: Optimizer, wrapper: Optimizer) -> None:
    """Records that `wrapper` wraps `optimizer`."""
    object.__setattr__(optimizer, "_keras_mp_wrapper", weakref.ref(wrapper))


def check_unwrapped(optimizer: Optimizer) -> None:
    """Raises ValueError if a LossScaleOptimizer wraps `optimizer`."""
    if wrapper_of(optimizer) is not None:
        gc.collect()  # a wrapper that nothing uses may still be alive
    if wrapper_of(optimizer) is not None:
        raise ValueError(
            f"inner_optimizer is already wrapped by a LossScaleOptimizer: {optimizer}. "
            "Use that wrapper, or make a new optimizer."
        )
