"""What old names of LossScaleOptimizer become."""

OURS = "keras_mp.LossScaleOptimizer"
KERAS_2 = "keras_mp.compat.mixed_precision.LossScaleOptimizer"
EXPERIMENTAL = "keras_mp.compat.mixed_precision.experimental.LossScaleOptimizer"
