"""Checkpoints of TF 1.15 to 2.15, read without TensorFlow."""

from keras_mp.compat.checkpoints.checkpoint import Checkpoint
from keras_mp.compat.checkpoints.errors import Unreadable

__all__ = ["Checkpoint", "Unreadable"]
