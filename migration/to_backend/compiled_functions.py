"""KMP205: @tf.function, which compiles with TensorFlow.

before:  @tf.function
after:   @jax.jit

Keras compiles what `fit` runs. A function of your own is compiled by `jax.jit`, if it takes all
state as arguments and returns it; on PyTorch it runs as it is. Left alone: functions that neither
call a model nor train one, such as those of a pipeline of tf.data.
"""

from keras_mp.migration.to_backend.uses import Target, Use, message

ANCHOR = "compiled-functions"
_DO: dict[Target, str] = {
    "jax": "write jax.jit, for a function that takes and returns all state; inside of a model "
    "remove it, because fit compiles",
    "torch": "remove it, or write torch.compile",
}


def decide(use: Use) -> str | None:
    if use.tensorflow != "function" or not use.is_call or not use.compiles_model:
        return None
    return message("tf.function", _DO, ANCHOR, use.target)
