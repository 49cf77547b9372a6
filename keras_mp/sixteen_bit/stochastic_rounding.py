"""`StochasticRounding`: 16-bit weights, rounded up or down at random after each step."""

import keras

from keras_mp.array_types import Optimizer, Variable
from keras_mp.sixteen_bit.storages import Rounded, Storage, Transient
from keras_mp.sixteen_bit.wrapper import SixteenBitOptimizer


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

    def __init__(
        self,
        inner_optimizer: Optimizer,
        *,
        slots: str = "float32",
        seed: int = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            inner_optimizer, slots=slots, seed=seed, name=name or "stochastic_rounding"
        )

    def _storage(self, variable: Variable) -> Storage:
        return Rounded(variable, Transient(variable, variable.name, variable.path))


# See MasterWeights.
StochasticRounding.__module__ = "keras_mp"
__test__ = {"StochasticRounding": StochasticRounding}
keras.saving.register_keras_serializable(package="keras_mp")(StochasticRounding)
