"""Layers that wrap modules of torch, flax and JAX, for the tests of each backend."""

import importlib.util

import keras
import numpy as np
import pytest

BACKEND = keras.backend.backend()
SIDE, CLASSES = 8, 3


def images(count=32, seed=0):
    """Returns images of bars and their classes: flat, upright, none."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    x = 0.2 * random.normal(size=(count, SIDE, SIDE, 1))
    for i, label in enumerate(labels):
        place = random.integers(1, SIDE - 1)
        if label < 2:
            x[(i, place, slice(None), 0) if label == 0 else (i, slice(None), place, 0)] += 1.0
    return x.astype("float32"), labels


def cnn(dtype=None, name="wrapped"):
    """Returns a layer around a small CNN with a batch normalization: (n, 8, 8, 1) to (n, 3)."""
    if BACKEND == "torch":
        return torch_layer(torch_cnn(), dtype, name)
    return flax_layer(dtype, name)


def torch_layer(module, dtype=None, name="wrapped", output_shape=(None, CLASSES)):
    return keras.layers.TorchModuleWrapper(
        module, output_shape=output_shape, dtype=dtype, name=name
    )


def torch_cnn():
    import torch
    from torch import nn

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(8, CLASSES)

        def forward(self, x):
            return self.out(x.mean((2, 3)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
            self.head = Head()

        def forward(self, x):
            return self.head(self.body(x.permute(0, 3, 1, 2)))

    torch.manual_seed(0)
    return Net()


def need_jax_layers():
    pytest.importorskip("jax")
    try:
        keras.layers.JaxLayer(lambda inputs: inputs)
    except ValueError:
        pytest.skip("of a later Keras: JaxLayer on TensorFlow")


def need_flax():
    need_jax_layers()
    if importlib.util.find_spec("flax") is None:
        pytest.skip("needs flax")


def flax_layer(dtype=None, name="wrapped", momentum=0.9, head=None):
    need_flax()
    import flax.linen as nn

    class Head(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(CLASSES, name="out", dtype=head)(x.mean((1, 2)))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x, training):
            x = nn.Conv(8, (3, 3))(x)
            x = nn.BatchNorm(use_running_average=not training, momentum=momentum)(x)
            return Head(name="head")(nn.relu(x))

    return keras.layers.FlaxLayer(Net(), dtype=dtype, name=name)


def model(dtype=None):
    """Returns a model of `cnn`."""
    return keras.Sequential([keras.Input((SIDE, SIDE, 1)), cnn(dtype)], name="net")
