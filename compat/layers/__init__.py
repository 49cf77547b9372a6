"""Layers that Keras 3 has not: those of tf.keras that train in another way, and operations."""

from keras_mp.compat.layers.applications import CustomScaleLayer, LayerScale, StochasticDepth
from keras_mp.compat.layers.functional import Functional
from keras_mp.compat.layers.images import RandomCrop
from keras_mp.compat.layers.keras2 import GRU, LSTM, BatchNormalization, TimeDistributed
from keras_mp.compat.layers.noise import GaussianNoise
from keras_mp.compat.layers.operation import AddLoss, AddMetric, Operation

__all__ = [
    "GRU",
    "LSTM",
    "AddLoss",
    "AddMetric",
    "BatchNormalization",
    "CustomScaleLayer",
    "Functional",
    "GaussianNoise",
    "LayerScale",
    "Operation",
    "RandomCrop",
    "StochasticDepth",
    "TimeDistributed",
]
