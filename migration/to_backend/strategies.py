"""KMP209: tf.distribute, which runs TensorFlow on several devices.

before:  with tf.distribute.MirroredStrategy().scope():
after:   keras.distribution.set_distribution(keras.distribution.DataParallel())

That is JAX, before the model is made. On PyTorch it is DistributedDataParallel.
"""

from keras_mp.migration.to_backend.uses import Target, Use, message

ANCHOR = "strategies"
_DO: dict[Target, str] = {
    "jax": "call keras.distribution.set_distribution(keras.distribution.DataParallel()) before "
    "the model is made",
    "torch": "use torch.nn.parallel.DistributedDataParallel, a process for each device",
}


def decide(use: Use) -> str | None:
    if use.call is None or not use.tensorflow.startswith(("distribute.", "tpu.")):
        return None
    return message(f"tf.{use.tensorflow}", _DO, ANCHOR, use.target)
