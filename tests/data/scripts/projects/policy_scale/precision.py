import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision


def make_policy(name, initial=2 ** 12, period=4):
    """A policy with a loss scale that adapts faster than the default one."""
    if name != 'mixed_float16':
        return mixed_precision.Policy(name)
    scale = tf.mixed_precision.experimental.DynamicLossScale(
        initial_loss_scale=initial, increment_period=period, multiplier=2.)
    policy = mixed_precision.Policy('mixed_float16', loss_scale=scale)
    mixed_precision.set_policy(policy)
    return policy
