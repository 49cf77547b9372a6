"""`SixteenBitOptimizer`: takes the steps of any Keras optimizer in float32, for 16-bit weights."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_mp import backends
from keras_mp.array_types import Gradient, Optimizer, Store, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.trainer_hook import keep_in_compile_config
from keras_mp.files import deserializing
from keras_mp.optimizer.configs import serialized
from keras_mp.optimizer.delegation import OptimizerWrapper
from keras_mp.optimizer.errors import check_optimizer
from keras_mp.optimizer.given_gradients import as_tensors
from keras_mp.sixteen_bit.half_precision_weights import HalfPrecisionWeights
from keras_mp.sixteen_bit.storages import Storage, check_slots
from keras_mp.variables.state_layout import match


class SixteenBitOptimizer(OptimizerWrapper, keras.optimizers.Optimizer):
    """The shared base of `MasterWeights` and `StochasticRounding`; see there."""

    _narrow_weights: HalfPrecisionWeights
    _immutable = frozenset({"master", "slots", "seed"})

    def __init__(
        self, inner_optimizer: Optimizer, *, slots: str, seed: int, name: str | None
    ) -> None:
        check_optimizer("inner_optimizer", inner_optimizer)
        if isinstance(inner_optimizer, keras.optimizers.LossScaleOptimizer):
            kind = type(self).__name__
            raise TypeError(
                f"inner_optimizer must not scale losses: put the loss scale around {kind}, "
                f"LossScaleOptimizer({kind}(optimizer))."
            )
        if isinstance(inner_optimizer, SixteenBitOptimizer):
            raise TypeError(
                f"inner_optimizer must not be a {type(inner_optimizer).__name__} itself; pass its "
                "inner_optimizer."
            )
        check_slots(slots, inner_optimizer)
        keras_hooks.mend_layers_in_16_bits()
        keras.optimizers.Optimizer.__init__(self, learning_rate=0.0, name=name)
        self._backend, self._slot_dtype, self._seed = backends.current(), slots, int(seed)
        parts = (inner_optimizer, self._storage, slots, self._seed, self._backend)
        self._narrow_weights = HalfPrecisionWeights(*parts)
        self._wrap(inner_optimizer)

    @property
    def slots(self) -> str:
        """The dtype of the moments that the inner optimizer keeps of 16-bit weights."""
        return self._slot_dtype

    @property
    def seed(self) -> int:
        """Seed of the random numbers, combined with the step."""
        return self._seed

    def _storage(self, variable: Variable) -> Storage:
        """Returns the storage of a 16-bit weight; each subclass has its own."""
        raise NotImplementedError

    # -- state -----------------------------------------------------------------------------------

    def build(self, variables: Sequence[Variable]) -> None:
        """Creates the state for `variables`. A second call changes nothing.

        Args:
            variables: The trainable `keras.Variable`s of the model. The inner optimizer updates
                float32 ones as usual.
        """
        if self.built:
            return
        variables = list(variables)
        inner = self.inner_optimizer
        if inner.built:
            raise ValueError(
                f"The inner optimizer of {type(self).__name__} is built already, for the 16-bit "
                "weights: create a new one."
            )
        with self._backend.init_scope():
            self._narrow_weights.build(variables)
        keras_hooks.build_for(self, variables)
        self.built = True

    @property
    def variables(self) -> list[Variable]:
        """The variables of the inner optimizer, then those kept for each 16-bit weight."""
        return self._narrow_weights.variables

    # -- the step --------------------------------------------------------------------------------

    def apply(
        self, grads: Iterable[Gradient], trainable_variables: Iterable[Variable] | None = None
    ) -> None:
        """Takes a step.

        Args:
            grads: One per variable, of any float dtype; None for a variable that does not affect
                the loss.
            trainable_variables: The variables, in the same order; None for all that the optimizer
                was built for.
        """
        gradients = list(grads)
        if not gradients:
            return
        variables = self._given_or_trained(trainable_variables)
        if not self.built:
            self.build(variables)
        keras_hooks.check_variables(self, variables)
        taken, known = keras_hooks.without_empty(self, gradients, variables)
        self._narrow_weights.apply(as_tensors(taken, known), known)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        """Lets the inner optimizer write final values (its moving averages) to the variables."""
        if not self.inner_optimizer.use_ema:
            return
        self._narrow_weights.finalize(var_list)

    # -- files -----------------------------------------------------------------------------------

    def save_own_variables(self, store: Store) -> None:
        """Writes the inner optimizer's state as that optimizer itself would, then the rest."""
        for i, variable in enumerate(self.variables):
            store[str(i)] = ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Store) -> None:
        """Restores what `store` holds, or warns and changes nothing.

        Accepts state of this class, and state that the inner optimizer wrote by itself for float32
        weights: then the value assigned to each weight becomes its master.
        `float32_weights_scope` restores masters exactly.
        """
        saved = {str(key): np.asarray(store[key]) for key in store.keys()}  # noqa: SIM118 - h5 entries
        try:
            found = match([self.variables, self._narrow_weights.of_the_rule], saved)
        except ValueError as error:
            warnings.warn(
                f"The saved state of optimizer '{self.name}' was not loaded: {error}. The "
                "optimizer is unchanged.",
                stacklevel=2,
            )
            return
        for variable, value in found:
            variable.assign(value)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        return {
            "name": self.name,
            "inner_optimizer": serialized(self.inner_optimizer),
            "slots": self.slots,
            "seed": self.seed,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Returns an optimizer from what `get_config` returned."""
        arguments = dict(config)
        inner = arguments.pop("inner_optimizer")
        if not isinstance(inner, keras.optimizers.Optimizer):
            inner = deserializing.deserialized(inner, custom_objects)
        return cls(inner, **arguments)


keep_in_compile_config(SixteenBitOptimizer, serialized)
