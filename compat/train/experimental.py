"""`tf.train.experimental` of TF 1.14 to 2.8, and how an optimizer of your own joins in.

The names of TensorFlow are deprecated: the first use of each says what to write instead.
`register_loss_scale_wrapper` is not.
"""

from typing import TYPE_CHECKING

from keras_mp.compat import names
from keras_mp.compat.legacy_classes.wrapper_registry import (
    register_loss_scale_wrapper,
    unregister_loss_scale_wrapper,
)

if TYPE_CHECKING:
    from keras_mp.compat.legacy_classes.graph_rewriting import (
        disable_mixed_precision_graph_rewrite,
        enable_mixed_precision_graph_rewrite,
    )
    from keras_mp.compat.legacy_classes.loss_scale_optimizers import (
        ExperimentalLossScaleOptimizer as MixedPrecisionLossScaleOptimizer,
    )
    from keras_mp.compat.legacy_classes.loss_scales import (
        DynamicLossScale,
        FixedLossScale,
        LossScale,
    )

__all__ = [
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "MixedPrecisionLossScaleOptimizer",
    "disable_mixed_precision_graph_rewrite",
    "enable_mixed_precision_graph_rewrite",
    "register_loss_scale_wrapper",
    "unregister_loss_scale_wrapper",
]

__getattr__, _others = names.namespace(
    __name__, "tf.train.experimental", "tf.compat.v1.train.experimental"
)


def __dir__() -> list[str]:
    return sorted({*_others(), *globals()})
