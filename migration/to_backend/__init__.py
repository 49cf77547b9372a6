"""What keeps a program on TensorFlow: `keras-mp migrate --target jax` or `torch` reports it."""
