"""The part of the wrapper that reads and sets hyperparameters of the inner optimizer."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from keras_mp.array_types import Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import averages, flatten_optimizers
from keras_mp.backends.protocol import Backend
from keras_mp.settings import IMMUTABLE


class _Delegated:
    """An option of the Keras base class, which the base sets on the wrapper in its constructor."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

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


class InnerHyperparameters:
    """Reads and sets hyperparameters of `inner_optimizer`, as tf.keras' wrapper did.

    Expects `inner_optimizer` and `_names` (see `hyperparameters.names`) in the instance's
    dictionary; until then attributes are the wrapper's own.
    """

    inner_optimizer: Optimizer
    _backend: Backend
    _immutable: frozenset[str] = IMMUTABLE  # settings fixed at construction

    weight_decay = _Delegated()
    clipnorm = _Delegated()
    global_clipnorm = _Delegated()
    clipvalue = _Delegated()
    use_ema = _Delegated()
    ema_momentum = _Delegated()
    ema_overwrite_frequency = _Delegated()
    gradient_accumulation_steps = _Delegated()

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
    def learning_rate(self) -> Any:
        """The learning rate of the inner optimizer; can be set to a number or a schedule."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    @property
    def lr(self) -> Any:
        """Alias of `learning_rate`."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value

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
