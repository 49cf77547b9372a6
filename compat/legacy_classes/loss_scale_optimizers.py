"""The LossScaleOptimizers of TF 2.4 and, with `loss_scale` as an argument, of TF 1.15 to 2.3.

Both are `keras_mp.LossScaleOptimizer` with what old code calls on it.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import keras
from keras import ops

import keras_mp
from keras_mp.backends import keras_hooks
from keras_mp.compat.keras2 import slots
from keras_mp.compat.legacy_classes import loss_scales


class CallableList(list[Any]):
    """A list that returns itself when called: `optimizer.variables()` of Keras 2."""

    def __call__(self) -> list[Any]:
        return self


@keras.saving.register_keras_serializable("keras_mp", "mixed_precision.LossScaleOptimizer")
class LossScaleOptimizer(keras_mp.LossScaleOptimizer):
    """`tf.keras.mixed_precision.LossScaleOptimizer` of TF 2.4 to 2.15, on any backend.

    It is `keras_mp.LossScaleOptimizer`, arguments included, with the rest of what the optimizers
    of Keras 2 had. Programs written for today's Keras do not need it.

    >>> opt = LossScaleOptimizer(keras.optimizers.SGD(0.5, momentum=0.9), initial_scale=8)
    >>> weight = keras.Variable(1.0)
    >>> _ = opt.minimize(lambda: weight, [weight])
    >>> float(opt.get_slot(weight, "momentum").numpy())
    -0.5
    >>> opt.get_slot_names(), len(opt.variables()) == len(opt.variables)
    (['momentum'], True)
    """

    @property
    def _optimizer(self) -> Any:
        return self.inner_optimizer

    @property
    def variables(self) -> CallableList:
        """All variables, as a list; calling it gives the same list."""
        return CallableList(super().variables)

    @property
    def weights(self) -> list[Any]:
        """Step count and slots of the inner optimizer, in the order of Keras 2 before TF 2.11.

        First `iterations`; with Nadam the product of its momenta; then all of the first slot, all
        of the second, and so on (with Ftrl both of the first variable, both of the second); last
        those of `add_slot`.
        """
        inner = self.inner_optimizer
        if not self.built:
            return [inner.iterations]
        found = slots.of(inner)
        order = slots.in_order(inner, found, range(len(keras_hooks.trained_variables(inner))))
        product = keras_hooks.momentum_product(inner)
        return [
            inner.iterations,
            *([] if product is None else [product]),
            *(found[name][i] for name, i in order),
            *(slot for each in self._added_slots.values() for _, slot in each.values()),
        ]

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots that the inner optimizer has, as Keras 2 called them.

        Empty before the optimizer is built.
        """
        return list(self._slots())

    def get_slot(self, var: Any, slot_name: str) -> Any:
        """Returns the variable that the inner optimizer keeps for `var`.

        Args:
            var: A variable that the optimizer trains.
            slot_name: Its name in Keras 2, such as "m", "v", "momentum", "rms", or one made by
                `add_slot`.

        Returns:
            Variable of the shape of `var`.

        Raises:
            KeyError: There is no such slot, or the optimizer is not built.
            ValueError: `var` is not trained by it.
        """
        added = self._added_slots.get(slot_name, {})
        if (key := _key(var)) in added:
            return added[key][1]
        found = self._slots()
        if slot_name not in found:
            hint = ", ".join(found) or "none: it is not built, or has no slots"
            raise KeyError(
                f"{type(self.inner_optimizer).__name__} has no slot {slot_name!r}; it has {hint}"
            )
        trained = [_key(one) for one in keras_hooks.trained_variables(self.inner_optimizer)]
        if key not in trained:
            name = getattr(var, "path", getattr(var, "name", var))
            raise ValueError(f"{name} is not trained by this optimizer: it has no slots for it.")
        return found[slot_name][trained.index(key)]

    def add_slot(self, var: Any, slot_name: str, initializer: Any = "zeros") -> Any:
        """Makes a further variable of the shape and dtype of `var`, or returns the one made before.

        Args:
            var: A variable.
            slot_name: What `get_slot` finds it by.
            initializer: A Keras initializer or its name.
        """
        added = self._added_slots.setdefault(slot_name, {})
        if (key := _key(var)) not in added:
            with self._backend.init_scope():
                slot = self.inner_optimizer.add_variable_from_reference(
                    var, name=slot_name, initializer=initializer
                )
            # With the variable, whose id another one would get if it went.
            added[key] = (var, slot)
        return added[key][1]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets `variables`, or, from a list of tf.keras, `weights`.

        Args:
            weights: What `get_weights` gave, here (all `variables`) or in tf.keras (step count and
                slots; the loss scale stays as it is then).

        Raises:
            ValueError: It fits neither; nothing is set then.
        """
        values = [ops.convert_to_numpy(weight) for weight in weights]
        of_keras_2 = self.weights
        if len(values) != len(self.variables) and [v.shape for v in values] == [
            tuple(variable.shape) for variable in of_keras_2
        ]:
            for variable, value in zip(of_keras_2, values, strict=True):
                variable.assign(value)
        else:
            super().set_weights(weights)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        old = [name for name in ("get_scaled_loss", "get_unscaled_gradients") if name in vars(cls)]
        if old and not vars(cls).keys() & {"scale_loss", "apply"}:
            warnings.warn(
                f"{cls.__name__} overrides {' and '.join(old)}, which fit() of Keras 3 does not "
                "call: it calls scale_loss and apply. Override these.",
                stacklevel=2,
            )

    def __dir__(self) -> list[str]:
        # As the core hides `inner_optimizer`: Keras would save its state twice. And TensorFlow's
        # checkpoints ask for the slots of everything where they see get_slot_names.
        return sorted({*super().__dir__()} - {"_optimizer", "get_slot_names"})

    def _create_all_weights(self, var_list: Iterable[Any]) -> None:
        if not self.built:
            self.build(list(var_list))

    @property
    def _added_slots(self) -> dict[str, dict[Any, tuple[Any, Any]]]:
        if "_keras_2_slots" not in self.__dict__:
            object.__setattr__(self, "_keras_2_slots", {})  # past Keras' tracking
        found: dict[str, dict[Any, tuple[Any, Any]]] = self.__dict__["_keras_2_slots"]
        return found

    def _slots(self) -> dict[str, list[Any]]:
        found = slots.of(self.inner_optimizer) if self.inner_optimizer.built else {}
        added = {
            name: [slot for _, slot in each.values()] for name, each in self._added_slots.items()
        }
        return {**found, **{name: found.get(name, []) + added[name] for name in added}}


@keras.saving.register_keras_serializable("keras_mp", "experimental.LossScaleOptimizer")
class ExperimentalLossScaleOptimizer(LossScaleOptimizer):
    """`tf.keras.mixed_precision.experimental.LossScaleOptimizer` of TF 1.15 to 2.8.

    Args:
        optimizer: The Keras optimizer to wrap.
        loss_scale: "dynamic", a number of at least 1 for a fixed scale, a `FixedLossScale` or a
            `DynamicLossScale`, which from then on is the scale of this optimizer; given to a second
            one, it is copied, as each has a scale of its own. TensorFlow applied gradients that
            are not finite under a fixed scale; they are skipped here, unless `settings` has
            `skip_nonfinite=False`.
        settings: Further arguments of `keras_mp.LossScaleOptimizer`; or, as `from_config` hands
            them over, all of them instead of `loss_scale`.

    Raises:
        TypeError: `optimizer` is no Keras optimizer, or `loss_scale` a class of your own.
        ValueError: `loss_scale` is None or another string, or out of range.

    >>> opt = ExperimentalLossScaleOptimizer(keras.optimizers.SGD(), 128)
    >>> opt.dynamic, opt.initial_scale, float(opt.loss_scale())
    (False, 128.0, 128.0)
    """

    def __init__(self, optimizer: Any, loss_scale: Any = None, **settings: Any) -> None:
        scale = None
        if loss_scale is not None or "dynamic" not in settings:
            settings |= loss_scales.arguments(loss_scale)
            scale = loss_scales.get(loss_scale)
        super().__init__(optimizer, **settings)
        if scale is None:
            scale = self._its_loss_scale()
        if isinstance(scale, loss_scales.DynamicLossScale):
            scale = scale.followed(self.dynamic_scale, self.step_counter)
        object.__setattr__(self, "_loss_scale", scale)

    @property
    def loss_scale(self) -> Any:
        """The loss scale, as an object of TF 2.3 that can be used like the number of TF 2.4.

        `optimizer.loss_scale()`, `float(optimizer.loss_scale)` and products with tensors all give
        the current scale.
        """
        return self.__dict__["_loss_scale"]

    def _its_loss_scale(self) -> loss_scales.LossScale:
        if self.dynamic:
            return loss_scales.DynamicLossScale.of(self.initial_scale, self.dynamic_growth_steps)
        return loss_scales.FixedLossScale.of(self.initial_scale)


def _key(variable: Any) -> Any:
    # TensorFlow's own variables compare by value, but not their references.
    return variable.ref() if hasattr(variable, "ref") else id(variable)
