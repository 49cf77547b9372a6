"""`tf.keras.mixed_precision.experimental` and `tf.mixed_precision.experimental`.

The names are deprecated, as they were in TensorFlow since 2.4; the first use of each says what to
write instead.
"""

from typing import TYPE_CHECKING

from keras_mp.compat import names

if TYPE_CHECKING:
    from keras_mp.compat.legacy_classes.loss_scale_optimizers import (
        ExperimentalLossScaleOptimizer as LossScaleOptimizer,
    )
    from keras_mp.compat.legacy_classes.loss_scales import (
        DynamicLossScale,
        FixedLossScale,
        LossScale,
    )
    from keras_mp.compat.legacy_classes.policies import (
        ExperimentalPolicy as Policy,
        get_layer_policy,
        global_experimental_policy as global_policy,
        set_experimental_policy as set_policy,
    )

__all__ = [
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "LossScaleOptimizer",
    "Policy",
    "get_layer_policy",
    "global_policy",
    "set_policy",
]

__getattr__, __dir__ = names.namespace(
    __name__, "tf.keras.mixed_precision.experimental", "tf.mixed_precision.experimental"
)
