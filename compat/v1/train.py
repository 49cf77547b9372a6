"""`tf.compat.v1.train`: it has `experimental`, whose names are those of `mixed_precision`."""

import sys

from keras_mp.compat.v1 import mixed_precision as experimental

__all__ = ["experimental"]

# So that `import ...experimental` works, although it is a name for another module.
sys.modules[f"{__name__}.experimental"] = experimental
