"""Type aliases for signatures. Keras and the frameworks ship no types: to mypy each is `Any`."""

from collections.abc import Sequence
from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # of the backend; in a traced step, a symbolic one
Variable: TypeAlias = Any  # a keras.Variable
Optimizer: TypeAlias = Any  # a keras.optimizers.Optimizer
Gradient: TypeAlias = Any  # a tensor, a sparse one (tf.IndexedSlices, jax BCOO), or None
Gradients: TypeAlias = Sequence[Gradient]
Layer: TypeAlias = Any  # a keras.layers.Layer
Model: TypeAlias = Any  # a keras.Model
Store: TypeAlias = Any  # a key-value store of Keras' saving: arrays by key
