"""`MasterWeights`: 16-bit weights whose exact values the optimizer keeps in float32."""

from typing import Any

import keras
from keras import ops

from keras_mp.array_types import Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.sixteen_bit.storages import Master, Split, Storage
from keras_mp.sixteen_bit.wrapper import SixteenBitOptimizer

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
        object.__setattr__(self, "_master", master)
        super().__init__(inner_optimizer, slots=slots, seed=seed, name=name or "master_weights")

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


# The public module, which configs, pickles and the documentation name. Doctest skips objects of
# other modules unless `__test__` lists them.
MasterWeights.__module__ = "keras_mp"
__test__ = {"MasterWeights": MasterWeights}
keras.saving.register_keras_serializable(package="keras_mp")(MasterWeights)
