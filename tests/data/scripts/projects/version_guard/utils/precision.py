"""Mixed precision on TF 2.1 up to now: the API moved out of `experimental` in 2.4."""
import tensorflow as tf
from packaging import version

STABLE_API = version.parse(tf.__version__) >= version.parse('2.4.0')

if version.parse(tf.__version__) >= version.parse('2.4.0'):
    from tensorflow.keras import mixed_precision
else:
    from tensorflow.keras.mixed_precision import experimental as mixed_precision


def set_precision(name):
    """Sets the policy for all layers that are made from now on: 'float32', 'mixed_float16'"""
    if STABLE_API:
        mixed_precision.set_global_policy(name)
    else:
        mixed_precision.set_policy(name)


def wrap_optimizer(optimizer):
    if version.parse(tf.__version__) >= version.parse('2.4.0'):
        return mixed_precision.LossScaleOptimizer(optimizer)
    else:
        return mixed_precision.LossScaleOptimizer(optimizer, loss_scale='dynamic')


def current_loss_scale(optimizer):
    """Returns the loss scale as a float; 1 if the optimizer is not wrapped"""
    if not isinstance(optimizer, mixed_precision.LossScaleOptimizer):
        return 1.0
    if version.parse(tf.__version__) < version.parse('2.4.0'):
        return float(optimizer.loss_scale())
    return float(optimizer.loss_scale)
