"""KMP210: tf.summary, which takes tensors of TensorFlow.

before:  tf.summary.scalar("loss", loss, step=step)
after:   writer.add_scalar("loss", float(loss), step)

With `fit`, keras.callbacks.TensorBoard or keras_mp.monitor do it. In a loop of your own a
SummaryWriter does, of torch.utils.tensorboard or of tensorboardX.
"""

from keras_mp.migration.to_backend.uses import Target, Use, message

ANCHOR = "summaries"
_DO: dict[Target, str] = {
    "jax": "write by a SummaryWriter of tensorboardX, or with fit by a callback",
    "torch": "write by a SummaryWriter of torch.utils.tensorboard, or with fit by a callback",
}


def decide(use: Use) -> str | None:
    if use.call is None or not use.tensorflow.startswith("summary."):
        return None
    return message(f"tf.{use.tensorflow}", _DO, ANCHOR, use.target)
