import numpy as np
import tensorflow as tf


def load(batch_size, rank=0, size=1):
    """House prices, made up. Each worker reads its own part."""
    rng = np.random.RandomState(1)
    x = rng.normal(size=(160, 6)).astype(np.float32)
    y = (x @ rng.normal(size=(6, 1)) + 0.1 * rng.normal(size=(160, 1))).astype(np.float32)
    y[37] = 4e6  # someone typed cents
    data = tf.data.Dataset.from_tensor_slices((x, y))
    return data.shard(size, rank).batch(batch_size, drop_remainder=True)
