"""KMP208: tf.train.Checkpoint and CheckpointManager, which save variables of TensorFlow.

before:  tf.train.Checkpoint(model=model, optimizer=optimizer).save(path)
after:   model.save_weights("last.weights.h5")

Weights files hold the optimizer of a compiled model, and `keras_mp.resume` continues from them.
What is in old checkpoints: `keras-mp migrate`, or `keras_mp.compat.restore` in a program.
"""

from keras_mp.migration.to_backend.uses import Use, message

ANCHOR = "checkpoints"
_WRITE = {"train.Checkpoint", "train.CheckpointManager", "train.Saver", "train.MonitoredSession"}
_READ = {
    *("train.latest_checkpoint", "train.load_checkpoint", "train.list_variables"),
    *("train.load_variable", "train.get_checkpoint_state", "train.checkpoints_iterator"),
}


def decide(use: Use) -> str | None:
    if not use.is_call:
        return None
    if use.tensorflow in _WRITE:
        do = "write model.save_weights, or keras.callbacks.BackupAndRestore with fit, and read by "
        do += "keras_mp.resume"
    elif use.tensorflow in _READ:
        do = "old checkpoints are read by keras_mp.compat.restore, and those to come are weights "
        do += "files"
    else:
        return None
    return message(f"tf.{use.tensorflow}", do, ANCHOR, use.target)
