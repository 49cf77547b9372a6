"""Layers that Keras 3 lacks: those of tf.keras that train differently, and operations."""

from keras_mp.compat.layers.applications import CustomScaleLayer, LayerScale, StochasticDepth
from keras_mp.compat.layers.attention import AdditiveAttention, Attention, MultiHeadAttention
from keras_mp.compat.layers.functional import Functional
from keras_mp.compat.layers.images import RandomCrop, RandomFlip
from keras_mp.compat.layers.keras2 import GRU, LSTM, BatchNormalization, TimeDistributed
from keras_mp.compat.layers.locally_connected import LocallyConnected1D, LocallyConnected2D
from keras_mp.compat.layers.merging import (
    Add,
    Average,
    Concatenate,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
)
from keras_mp.compat.layers.noise import GaussianNoise
from keras_mp.compat.layers.normalization import LayerNormalization
from keras_mp.compat.layers.operation import AddLoss, AddMetric, Operation
from keras_mp.compat.layers.pooling import AveragePooling1D, AveragePooling2D, AveragePooling3D
from keras_mp.compat.layers.random_sizes import RandomHeight, RandomWidth
from keras_mp.compat.layers.resizing import Resizing, UpSampling2D
from keras_mp.compat.layers.saved_function import SavedFunction
from keras_mp.compat.layers.separable import SeparableConv1D

__all__ = [
    "GRU",
    "LSTM",
    "Add",
    "AddLoss",
    "AddMetric",
    "AdditiveAttention",
    "Attention",
    "Average",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "BatchNormalization",
    "Concatenate",
    "CustomScaleLayer",
    "Functional",
    "GaussianNoise",
    "LayerNormalization",
    "LayerScale",
    "LocallyConnected1D",
    "LocallyConnected2D",
    "Maximum",
    "Minimum",
    "MultiHeadAttention",
    "Multiply",
    "Operation",
    "RandomCrop",
    "RandomFlip",
    "RandomHeight",
    "RandomWidth",
    "Resizing",
    "SavedFunction",
    "SeparableConv1D",
    "StochasticDepth",
    "Subtract",
    "TimeDistributed",
    "UpSampling2D",
]
