"""`float32_weights_scope`: a scope in which a model's weights are its masters, for files."""

import contextlib
from collections.abc import Iterator
from typing import Any

from keras import ops

from keras_mp.array_types import Model, Optimizer
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import keeper_of_narrow_weights


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
