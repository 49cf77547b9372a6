"""`tf.compat.v1.mixed_precision`, deprecated name by name."""

import sys
from typing import TYPE_CHECKING

from keras_mp.compat import names
from keras_mp.compat.mixed_precision import experimental

if TYPE_CHECKING:
    from keras_mp.compat.train.experimental import (
        DynamicLossScale,
        FixedLossScale,
        LossScale,
        MixedPrecisionLossScaleOptimizer,
        disable_mixed_precision_graph_rewrite,
        enable_mixed_precision_graph_rewrite,
    )

__all__ = [
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "MixedPrecisionLossScaleOptimizer",
    "disable_mixed_precision_graph_rewrite",
    "enable_mixed_precision_graph_rewrite",
    "experimental",
]

__getattr__, __dir__ = names.namespace(__name__, "tf.compat.v1.mixed_precision")

# So that `import ...experimental` works, although it is a name for another module.
sys.modules[f"{__name__}.experimental"] = experimental
