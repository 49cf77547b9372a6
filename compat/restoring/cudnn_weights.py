"""Weights of CuDNNLSTM and CuDNNGRU, laid out as LSTM and GRU have them.

Source: keras/saving/legacy/hdf5_format.py of Keras 2.13, `_convert_rnn_weights`.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_mp.compat.file_formats.values import Array

_GATES = {"LSTM": 4, "GRU": 3}
Conversion = Callable[[list[Array]], list[Array]]


def of_cudnn(layer: Any, shapes: list[tuple[int, ...]]) -> Conversion | None:
    """Returns what turns stored weights into those of `layer`; None if they are not CuDNN's.

    Args:
        layer: Of the model; its LSTM is what CuDNNLSTM became.
        shapes: Of the stored weights.

    >>> layer = keras.layers.LSTM(2)
    >>> layer.build((None, 5, 3))
    >>> of_cudnn(layer, [(3, 8), (2, 8), (8,)]) is None
    True
    >>> of_cudnn(layer, [(3, 8), (2, 8), (16,)])([np.ones((3, 8)), np.ones((2, 8)), np.ones(16)])[2]
    array([2., 2., 2., 2., 2., 2., 2., 2.])
    """
    if isinstance(layer, keras.layers.Bidirectional):
        first = of_cudnn(layer.forward_layer, shapes[:3])
        second = of_cudnn(layer.backward_layer, shapes[3:])
        if first is None or second is None:
            return None
        return lambda arrays: [*first(arrays[:3]), *second(arrays[3:])]
    gates = next((_GATES[c.__name__] for c in type(layer).__mro__ if c.__name__ in _GATES), None)
    if gates is None or len(shapes) != 3 or len(shapes[0]) != 2:
        return None
    units = layer.units
    wide = gates * units
    if (shapes[0][1], *shapes[1:]) != (wide, (units, wide), (2 * wide,)):
        return None
    return lambda arrays: _converted(arrays, units, gates)


def _converted(arrays: list[Array], units: int, gates: int) -> list[Array]:
    kernel, recurrent, bias = arrays
    kernel = _gate_by_gate(kernel, gates, lambda k: k.T.reshape(k.shape, order="F"))
    recurrent = _gate_by_gate(recurrent, gates, np.transpose)
    halves = bias.reshape(2, -1)
    return [kernel, recurrent, halves.sum(axis=0) if gates == 4 else halves]


def _gate_by_gate(kernel: Array, gates: int, turned: Callable[[Array], Array]) -> Array:
    return np.hstack([turned(gate) for gate in np.hsplit(kernel, gates)])
