"""`MasterWeights`, `StochasticRounding`: a Keras optimizer steps in float32, for 16-bit weights."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_mp import backends
from keras_mp.array_types import Gradient, Model, Optimizer, Store, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import keeper_of_narrow_weights
from keras_mp.backends.common.trainer_hook import keep_in_compile_config
from keras_mp.files import deserializing
from keras_mp.optimizer.configs import serialized
from keras_mp.optimizer.delegation import OptimizerWrapper
from keras_mp.optimizer.errors import check_optimizer
from keras_mp.optimizer.given_gradients import as_tensors
from keras_mp.sixteen_bit.half_precision_weights import HalfPrecisionWeights
from keras_mp.sixteen_bit.storages import Master, Rounded, Split, Storage, Transient, check_slots
from keras_mp.variables.state_layout import match


class SixteenBitOptimizer(OptimizerWrapper, keras.optimizers.Optimizer):
    """The shared base of `MasterWeights` and `StochasticRounding`; see there."""

    _narrow_weights: HalfPrecisionWeights
    _default_name: str
    _immutable = frozenset({"master", "slots", "seed"})

    def __init__(
        self,
        inner_optimizer: Optimizer,
        *,
        slots: str = "float32",
        seed: int = 0,
        name: str | None = None,
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
        keras.optimizers.Optimizer.__init__(self, 0.0, name=name or self._default_name)
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


MASTERS = ("float32", "split")


class MasterWeights(SixteenBitOptimizer):
    """An optimizer that updates float16 or bfloat16 weights through float32 master weights.

    A model with the policy "bfloat16", or with layers of `dtype="float16"`, has 16-bit weights.
    Keras updates them in 16 bits: an update smaller than 2**-9 of a weight changes nothing, and
    training stalls. Here the inner optimizer updates a float32 copy of each weight, with float32
    slots, and the weight is that copy, rounded.

    >>> weight = keras.Variable([1.0], dtype="bfloat16")
    >>> optimizer = MasterWeights(keras.optimizers.SGD(1.0))
    >>> for _ in range(8):
    ...     optimizer.apply([ops.array([-0.001])], [weight])
    >>> float(weight.numpy()[0])  # a step of 0.001 alone would leave it at 1
    1.0078125

    The inner optimizer updates float32 variables as usual. For float16 add loss scaling:
    `LossScaleOptimizer(MasterWeights(optimizer))`.

    A value assigned to a weight between steps (`load_weights`, `set_weights`) becomes its new
    master, unless the old one rounds to the same number. On PyTorch an assignment through `.data`
    is not seen.

    Args:
        inner_optimizer: The `keras.optimizers.Optimizer` to wrap. It keeps its own variables and
            must not be used by itself any more.
        master: "float32": a copy of each 16-bit weight. "split": for bfloat16 only, the lower 16
            bits of each master, whose upper half is the weight itself: 2 bytes per weight instead
            of 4, and the same steps. The weight is rounded to nearest, with ties away from zero
            instead of to even.
        slots: "float32"; or "bfloat16", for moments of half the size, rounded at random. For Adam,
            AdamW, Lion, SGD, RMSprop and Adafactor.
        seed: Seed of the random numbers for `slots`, combined with the step.
        name: Name of the optimizer; defaults to "master_weights".

    Raises:
        TypeError: `inner_optimizer` is not a Keras 3 optimizer, or scales losses, or has masters.
        ValueError: An unknown `master` or dtype of slots, or slots of another optimizer. At
            `build`: "split" with weights in float16.

    Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.1.
    """

    _default_name = "master_weights"

    def __init__(
        self,
        inner_optimizer: Optimizer,
        master: str = "float32",
        *,
        slots: str = "float32",
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        if master not in MASTERS:
            raise ValueError(f"master must be 'float32' or 'split', but got {master!r}.")
        super().__init__(inner_optimizer, slots=slots, seed=seed, name=name)
        self._master = master

    @property
    def master(self) -> str:
        """How the masters are kept: "float32" or "split"."""
        return self._master

    def _storage(self, variable: Variable) -> Storage:
        if self.master == "split":
            if keras.backend.standardize_dtype(variable.dtype) != "bfloat16":
                raise ValueError(
                    f"master='split' needs bfloat16 weights, but {variable.path} is in "
                    f"{variable.dtype}, which is not half of a float32. Use master='float32'."
                )
            return Split(variable, self._beside(variable, "int16", "rest"))
        target = self._beside(variable, "float32", "master")
        target._path = variable.path  # by which optimizers name slots and choose weights
        target._name = variable.name
        target.constraint = getattr(variable, "constraint", None)
        target.assign(ops.cast(variable.value, "float32"))
        return Master(variable, target)

    def _beside(self, variable: Variable, dtype: str, name: str) -> Any:
        kept = self.add_variable(
            shape=variable.shape,
            dtype=dtype,
            layout=keras_hooks.layout_of(variable),
            name=f"{variable.path.replace('/', '_')}_{name}",
        )
        self._backend.shard_like(kept, variable)
        return kept

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable.

        >>> MasterWeights(keras.optimizers.SGD(), "split").get_config()["master"]
        'split'
        """
        return {**super().get_config(), "master": self.master}


class StochasticRounding(SixteenBitOptimizer):
    """An optimizer that rounds float16 or bfloat16 weights up or down at random.

    The inner optimizer computes each step in float32. The new weight is rounded up or down, with a
    higher probability for the nearer number: the mean is the exact value, so small updates
    eventually take effect. There is no copy of the weights. `MasterWeights` follows float32
    exactly, for two more bytes per weight.

    >>> weight = keras.Variable([1.0] * 4096, dtype="bfloat16")
    >>> optimizer = StochasticRounding(keras.optimizers.SGD(1.0))
    >>> optimizer.apply([keras.ops.full((4096,), -0.001)], [weight])
    >>> abs(float(weight.numpy().astype("float32").mean()) - 1.001) < 3e-4
    True

    The random numbers depend on the seed and on `iterations`: a resumed training continues as if
    it had never stopped, and every replica draws the same numbers.

    Args:
        inner_optimizer: The `keras.optimizers.Optimizer` to wrap. It keeps its own variables and
            must not be used by itself any more.
        slots: "float32"; or "bfloat16", for moments of half the size, rounded at random. For Adam,
            AdamW, Lion, SGD, RMSprop and Adafactor.
        seed: Seed of the random numbers, combined with the step.
        name: Name of the optimizer; defaults to "stochastic_rounding".

    Raises:
        TypeError: `inner_optimizer` is not a Keras 3 optimizer, or scales losses, or has masters.
        ValueError: An unknown dtype of slots, or slots of another optimizer.

    Source: Gupta et al. 2015, "Deep Learning with Limited Numerical Precision".
    """

    _default_name = "stochastic_rounding"

    def _storage(self, variable: Variable) -> Storage:
        return Rounded(variable, Transient(variable, variable.name, variable.path))


@contextlib.contextmanager
def float32_weights_scope(model: Model) -> Iterator[None]:
    """A scope in which a model's 16-bit weights are in float32, with the values of their masters.

    For files that other programs read or wrote. In the scope `save_weights` writes what the same
    model has under a mixed policy, or in float32; `load_weights` of such a file gives the masters
    their exact values. So training can switch in the middle, both ways:

    ```python
    with keras_mp.float32_weights_scope(model):      # compiled with MasterWeights, and built
        model.load_weights("mixed.weights.h5")
    with keras_mp.float32_weights_scope(model):
        model.save_weights("for_inference.weights.h5")
    ```

    The optimizer's state is then that of its inner optimizer alone. After `model.save` the config
    still says 16 bits.

    Args:
        model: Compiled with `MasterWeights` or `StochasticRounding`, or with a
            `LossScaleOptimizer` around one; built, as after the first step of `fit`. Without
            masters its weights are cast to float32.

    Raises:
        TypeError: The optimizer of the model has no 16-bit weights.
        ValueError: It is not built yet: call `model.optimizer.build(model.trainable_variables)`.

    >>> import keras, numpy as np
    >>> from keras_mp import MasterWeights
    >>> model = keras.Sequential([keras.layers.Dense(1, dtype="bfloat16", use_bias=False)])
    >>> model.build((None, 1))
    >>> model.compile(MasterWeights(keras.optimizers.SGD()), loss="mse")
    >>> model.optimizer.build(model.trainable_variables)
    >>> with float32_weights_scope(model):
    ...     model.set_weights([np.array([[0.1]])])
    >>> float(model.get_weights()[0][0, 0])
    0.10009765625
    >>> with float32_weights_scope(model):
    ...     print(model.get_weights()[0])
    [[0.1]]
    """
    narrow_weights = _wrapper_of(getattr(model, "optimizer", None))._narrow_weights
    storages = {id(storage.variable): storage for storage in narrow_weights.storages}
    narrow = [variable for variable in model.variables if id(variable) in storages]
    with narrow_weights.as_inner(), contextlib.ExitStack() as stack:
        for variable in narrow:
            wide = storages[id(variable)].wide()
            stack.enter_context(keras_hooks.holding(variable, wide))
        yield
        values = [ops.copy(variable.value) for variable in narrow]
    for variable, value in zip(narrow, values, strict=True):
        storages[id(variable)].set(value)


def _wrapper_of(optimizer: Optimizer) -> Any:
    optimizer = keeper_of_narrow_weights(optimizer)
    if optimizer is None:
        raise TypeError(
            "The model is not compiled with keras_mp.MasterWeights or "
            "keras_mp.StochasticRounding: its files hold its weights as they are."
        )
    if not optimizer.built:
        raise ValueError(
            f"{type(optimizer).__name__} is not built yet, and has no masters: call "
            "`model.optimizer.build(model.trainable_variables)`."
        )
    return optimizer


# The public module, which configs, pickles and the documentation name. Doctest skips objects of
# other modules unless `__test__` lists them.
__test__ = {"MasterWeights": MasterWeights, "StochasticRounding": StochasticRounding}
for _each in __test__.values():
    _each.__module__ = "keras_mp"
    keras.saving.register_keras_serializable(package="keras_mp")(_each)
keep_in_compile_config(SixteenBitOptimizer, serialized)
