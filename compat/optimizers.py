"""Optimizers with the update rules that TF 1.15 to 2.15 had.

Ordinary Keras 3 optimizers, named as in `tf.keras.optimizers` and `tfa.optimizers`. Only what
trained otherwise than Keras 3 trains is here: where the rules are the same and none of
`LegacyOptions` is wanted, `keras.optimizers` has the class to use. Slots are those of Keras 3.
"""

from typing import Any

import keras
from keras import ops

from keras_mp.backends import keras_hooks
from keras_mp.compat.keras2 import update_rules
from keras_mp.compat.keras2.optimizer_options import LegacyOptions


class SGD(LegacyOptions, keras.optimizers.SGD):
    """`keras.optimizers.SGD`, with `decay` and `sparse_variables` (see `LegacyOptions`).

    A row that is not in the batch keeps its momentum and does not move.

    >>> optimizer = SGD(1.0, decay=0.5)
    >>> weight = keras.Variable([0.0])
    >>> for _ in range(3):
    ...     optimizer.apply([ops.ones(1)], [weight])
    >>> round(float(weight.numpy()[0]), 4)  # -(1 + 1 / 1.5 + 1 / 2)
    -2.1667
    >>> float(optimizer.learning_rate.numpy())
    1.0
    """

    def _row_state(self, variable: Any) -> list[Any]:
        """Variable and momentum; without momentum a row without gradient stays anyway."""
        momentum = self._slots(variable, "momentums")
        return [variable, *momentum] if momentum else []

    def _shrink(self, variable: Any, touched: Any) -> None:
        # Addons' SGDW without momentum never decayed variables with sparse gradients.
        if touched is None or self.momentum:
            super()._shrink(variable, touched)


class Adam(LegacyOptions, keras.optimizers.Adam):
    """`keras.optimizers.Adam`, with `decay` (see `LegacyOptions`).

    Sparse gradients follow the dense rule, amsgrad too: every row moves while it has momentum.

    >>> Adam(0.01, decay=1e-3).get_config()["decay"]
    0.001
    """


class AdamW(LegacyOptions, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW`, which sums the rows that a sparse gradient names twice.

    See `LegacyOptions`, which says what Keras 3 does on TensorFlow.

    >>> AdamW(0.01, weight_decay=0.1).get_config()["weight_decay"]
    0.1
    """


class Lion(LegacyOptions, keras.optimizers.Lion):
    """`keras.optimizers.Lion`, which sums the rows that a sparse gradient names twice.

    See `LegacyOptions`, which says what Keras 3 does on TensorFlow.

    >>> Lion(0.01).get_config()["beta_1"]
    0.9
    """


class LazyAdam(LegacyOptions, keras.optimizers.Adam):
    """`tfa.optimizers.LazyAdam`: Adam in which rows that are not in the batch stay.

    Give `sparse_variables` (see `LegacyOptions`); without any it is Adam.

    Source: TensorFlow Addons 0.11.2, optimizers/lazy_adam.py.

    >>> optimizer = LazyAdam(1.0, sparse_variables=["table"])
    >>> table = keras.Variable([[1.0], [1.0]], name="table")
    >>> for rows in ([[1.0], [1.0]], [[1.0], [0.0]]):
    ...     optimizer.apply([ops.array(rows)], [table])
    >>> [round(float(row[0]), 3) for row in table.numpy()]
    [-1.0, 0.0]
    """

    def _row_state(self, variable: Any) -> list[Any]:
        """Everything."""
        return [variable, *self._slots(variable, "_momentums", "_velocities")]


class LAMB(LegacyOptions, keras.optimizers.Lamb):
    """`tfa.optimizers.LAMB`, which decays weights inside the trust ratio.

    Sparse gradients follow the dense rule.

    Args:
        *args: As of `keras.optimizers.Lamb`.
        weight_decay_rate: See `update_rules.lamb`. Keras' `weight_decay` is another thing.
        **kwargs: As of `keras.optimizers.Lamb` and `LegacyOptions`. `epsilon` is 1e-6 by default,
            as in Addons; 1e-7 in Keras.

    Source: TensorFlow Addons 0.11.2, optimizers/lamb.py.

    >>> LAMB(0.1, weight_decay_rate=0.01).get_config()["weight_decay_rate"]
    0.01
    """

    def __init__(self, *args: Any, weight_decay_rate: float = 0.0, **kwargs: Any) -> None:
        if len(args) < 4 and kwargs.get("epsilon") is None:  # it is the fourth
            kwargs["epsilon"] = 1e-6
        super().__init__(*args, **kwargs)
        self.weight_decay_rate = weight_decay_rate

    def _dense_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """The rule: `update_rules.lamb`."""
        dtype = variable.dtype
        momentum, velocity = self._slots(variable, "_momentums", "_velocities")
        step, new_momentum, new_velocity = update_rules.lamb(
            ops.cast(gradient, dtype),
            ops.convert_to_tensor(variable),
            momentum,
            velocity,
            ops.cast(self.iterations + 1, dtype),
            rate=ops.cast(learning_rate, dtype),
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            weight_decay_rate=self.weight_decay_rate,
        )
        self.assign(momentum, new_momentum)
        self.assign(velocity, new_velocity)
        self.assign_sub(variable, step)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        return {**super().get_config(), "weight_decay_rate": self.weight_decay_rate}


class Adamax(LegacyOptions, keras.optimizers.Adamax):
    """`keras.optimizers.Adamax`, with `decay` and `sparse_variables` (see `LegacyOptions`).

    A row that is not in the batch keeps its slots and does not move.

    >>> Adamax(0.01, sparse_variables=["embeddings"]).get_config()["sparse_variables"]
    ['embeddings']
    """

    def _row_state(self, variable: Any) -> list[Any]:
        """Everything."""
        return [variable, *self._slots(variable, "_m", "_u")]


class Adadelta(LegacyOptions, keras.optimizers.Adadelta):
    """`keras.optimizers.Adadelta`, with `decay` and `sparse_variables` (see `LegacyOptions`).

    A row that is not in the batch keeps its slots.

    >>> Adadelta(1.0, decay=0.1).get_config()["decay"]
    0.1
    """

    def _row_state(self, variable: Any) -> list[Any]:
        """Everything."""
        return [variable, *self._slots(variable, "_accumulated_grads", "_accumulated_delta_vars")]


class Ftrl(LegacyOptions, keras.optimizers.Ftrl):
    """`keras.optimizers.Ftrl`, with `decay` and `sparse_variables` (see `LegacyOptions`).

    A row that is not in the batch keeps its value and its slots; the dense rule sets a row that
    never had a gradient to zero.

    >>> Ftrl(0.1, decay=0.1).get_config()["decay"]
    0.1
    """

    def _row_state(self, variable: Any) -> list[Any]:
        """Everything."""
        return [variable, *self._slots(variable, "_accumulators", "_linears")]


class Adagrad(LegacyOptions, keras.optimizers.Adagrad):
    """Adagrad that divides by `sqrt(accumulator) + epsilon`; Keras 3 by `sqrt(a + epsilon)`.

    The two agree but for accumulators near epsilon, such as with
    `initial_accumulator_value=0`. Arguments as of `keras.optimizers.Adagrad` and `LegacyOptions`;
    a row without gradient stays in the dense rule, too.

    Source: TF 2.3.4, python/keras/optimizer_v2/adagrad.py.

    >>> optimizer = Adagrad(1.0, initial_accumulator_value=0.0)
    >>> weight = keras.Variable([0.0])
    >>> optimizer.apply([ops.array([1e-6])], [weight])
    >>> round(float(weight.numpy()[0]), 4)
    -0.9091
    """

    def _dense_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """The rule: `update_rules.adagrad`."""
        (accumulator,) = self._slots(variable, "_accumulators")
        step, new = update_rules.adagrad(
            ops.cast(gradient, variable.dtype),
            accumulator,
            rate=ops.cast(learning_rate, variable.dtype),
            epsilon=self.epsilon,
        )
        self.assign(accumulator, new)
        self.assign_sub(variable, step)


class RMSprop(LegacyOptions, keras.optimizers.RMSprop):
    """RMSprop that divides by `sqrt(v) + epsilon` where there is no momentum.

    Keras 3 divides by `sqrt(v + epsilon)`, as did `tf.keras` with momentum. Arguments as of
    `keras.optimizers.RMSprop` and `LegacyOptions`. A row that is not in the batch keeps its slots
    and does not move if there is momentum; without, the dense rule leaves it where it is, too.

    Source: TF 2.3.4, python/keras/optimizer_v2/rmsprop.py.

    >>> optimizer = RMSprop(1.0, rho=0.75)
    >>> weight = keras.Variable([0.0])
    >>> optimizer.apply([ops.array([1e-6])], [weight])
    >>> round(float(weight.numpy()[0]), 4)
    -1.6667
    """

    def _row_state(self, variable: Any) -> list[Any]:
        """Everything with momentum, nothing without."""
        slots = self._slots(variable, "_velocities", "_momentums", "_average_gradients")
        return [variable, *slots] if self.momentum > 0 else []

    def _dense_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """The rule: `update_rules.rmsprop` without momentum."""
        if self.momentum > 0:
            super()._dense_step(gradient, variable, learning_rate)
            return
        velocity, *averages = self._slots(variable, "_velocities", "_average_gradients")
        step, new, average = update_rules.rmsprop(
            ops.cast(gradient, variable.dtype),
            velocity,
            averages[0] if averages else None,
            rate=ops.cast(learning_rate, variable.dtype),
            rho=self.rho,
            epsilon=self.epsilon,
        )
        self.assign(velocity, new)
        for slot in averages:
            self.assign(slot, average)
        self.assign_sub(variable, step)


class ExperimentalRMSprop(LegacyOptions, keras.optimizers.RMSprop):
    """`tf.keras.optimizers.experimental.RMSprop` of TF 2.10, a rule of its own.

    See `update_rules.rmsprop_2_10`. Arguments as of `keras.optimizers.RMSprop` and
    `LegacyOptions`; its sparse rule was the dense one.

    >>> optimizer = ExperimentalRMSprop(0.5, rho=0.75, momentum=0.5)
    >>> weight = keras.Variable([0.0])
    >>> for _ in range(2):
    ...     optimizer.apply([ops.array([2.0])], [weight])
    >>> round(float(weight.numpy()[0]), 4)  # -0.5 * (2 + (0.5 * 2 + 2 / sqrt(0.75 + 1)))
    -2.2559
    """

    def _dense_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """The rule: `update_rules.rmsprop_2_10`."""
        (velocity,) = self._slots(variable, "_velocities")
        averages = self._slots(variable, "_average_gradients")
        momenta = self._slots(variable, "_momentums")
        step, new, average, momentum = update_rules.rmsprop_2_10(
            ops.cast(gradient, variable.dtype),
            velocity,
            averages[0] if averages else None,
            momenta[0] if momenta else None,
            rate=ops.cast(learning_rate, variable.dtype),
            rho=self.rho,
            momentum_rate=self.momentum,
            epsilon=self.epsilon,
        )
        self.assign(velocity, new)
        for slot in averages:
            self.assign(slot, average)
        for slot in momenta:
            self.assign(slot, momentum)
        self.assign_sub(variable, step)


class Nadam(LegacyOptions, keras.optimizers.Nadam):
    """Nadam whose momentum tends to `beta_1` as `0.96 ** (schedule_decay * t)`.

    In Keras 3 it does as `0.96 ** t`. The product of all momenta, `momentum_cache` in checkpoints
    of TensorFlow, is the variable `_u_product`, as in Keras 3. A row that is not in the batch
    does not move, but its slots decay.

    Args:
        *args: As of `keras.optimizers.Nadam`.
        schedule_decay: 0.004 if `tf.keras` was told nothing else. Its configs called it `decay`;
            `decay` here is that of `LegacyOptions`, which Nadam did not have.
        **kwargs: As of `keras.optimizers.Nadam` and `LegacyOptions`.

    Source: TF 2.3.4, python/keras/optimizer_v2/nadam.py.

    >>> optimizer = Nadam(0.1)
    >>> optimizer.build([keras.Variable([1.0])])
    >>> optimizer.apply([ops.ones(1)])
    >>> round(float(optimizer._u_product.numpy()), 4)  # 0.9 * (1 - 0.5 * 0.96 ** 0.004)
    0.4501
    """

    def __init__(self, *args: Any, schedule_decay: float = 0.004, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not schedule_decay >= 0:
            raise ValueError(f"schedule_decay must be zero or more, but got {schedule_decay!r}.")
        self.schedule_decay = schedule_decay

    def _row_state(self, variable: Any) -> list[Any]:
        """The variable alone."""
        return [variable]

    def _backend_update_step(
        self, grads: Any, trainable_variables: Any, learning_rate: Any
    ) -> None:
        # Once a step, where Keras' Nadam has its own schedule, which is therefore passed over.
        product = keras_hooks.momentum_product(self)
        now = update_rules.nadam_momentum(
            ops.cast(self.iterations + 1, product.dtype),
            beta_1=self.beta_1,
            schedule_decay=self.schedule_decay,
        )
        self.assign(product, product * now)
        super(keras.optimizers.Nadam, self)._backend_update_step(
            grads, trainable_variables, learning_rate
        )

    def _dense_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """The rule: `update_rules.nadam`."""
        dtype = variable.dtype
        momentum, velocity = self._slots(variable, "_momentums", "_velocities")
        step, new_momentum, new_velocity = update_rules.nadam(
            ops.cast(gradient, dtype),
            momentum,
            velocity,
            ops.cast(keras_hooks.momentum_product(self), dtype),
            ops.cast(self.iterations + 1, dtype),
            rate=ops.cast(learning_rate, dtype),
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            schedule_decay=self.schedule_decay,
            epsilon=self.epsilon,
        )
        self.assign(momentum, new_momentum)
        self.assign(velocity, new_velocity)
        self.assign_sub(variable, step)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        return {**super().get_config(), "schedule_decay": self.schedule_decay}


for _class in (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    Adamax,
    ExperimentalRMSprop,
    Ftrl,
    LAMB,
    LazyAdam,
    Lion,
    Nadam,
    RMSprop,
):
    keras.saving.register_keras_serializable(package="keras_mp")(_class)
