"""`tf.keras.mixed_precision` of TF 2.4 to 2.15, and of 2.1 to 2.8 as `experimental`.

`from keras_mp.compat import mixed_precision` replaces `from tensorflow.keras import
mixed_precision`; the rest of the program stays.

>>> from keras_mp.compat import mixed_precision
>>> mixed_precision.set_global_policy("mixed_bfloat16")
>>> mixed_precision.global_policy().compute_dtype
'bfloat16'
>>> mixed_precision.set_global_policy("float32")
"""

from keras_mp.compat.legacy_classes.loss_scale_optimizers import LossScaleOptimizer
from keras_mp.compat.legacy_classes.policies import Policy, set_global_policy
from keras_mp.compat.mixed_precision import experimental
from keras_mp.policies.policy import global_policy

__all__ = [
    "LossScaleOptimizer",
    "Policy",
    "experimental",
    "global_policy",
    "set_global_policy",
]
