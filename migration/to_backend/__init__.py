"""What keeps a program on TensorFlow, for `keras-mp migrate --target jax` or `torch`; only reports."""
