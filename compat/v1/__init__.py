"""`tf.compat.v1`, as far as mixed precision goes: `mixed_precision`, `train`, `keras`."""
