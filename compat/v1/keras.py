"""`tf.compat.v1.keras`: it has `mixed_precision`."""

import sys

from keras_mp.compat import mixed_precision

__all__ = ["mixed_precision"]

# So that `import ...mixed_precision` works, although it is a name for another module.
sys.modules[f"{__name__}.mixed_precision"] = mixed_precision
sys.modules[f"{__name__}.mixed_precision.experimental"] = mixed_precision.experimental
