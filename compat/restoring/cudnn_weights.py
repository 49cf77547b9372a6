"""Weights of CuDNNLSTM and CuDNNGRU, and their slots, laid out as LSTM and GRU have them.

Source: keras/saving/legacy/hdf5_format.py of Keras 2.13, `_convert_rnn_weights`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.compat.file_formats.values import Array
from keras_mp.compat.restoring.plan import Layout, Plan

_GATES = {"LSTM": 4, "GRU": 3}


def note_layouts(
    plan: Plan, layer: Any, weights: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> None:
    """Notes in `plan` which weights of a layer, and of those inside, are stored as CuDNN's.

    Args:
        plan: Gets it.
        layer: Any; an LSTM or GRU in it may be what a CuDNN layer became.
        weights: Its weights, in the order of the file.
        shapes: Of the stored ones.

    >>> import keras
    >>> layer = keras.layers.LSTM(2)
    >>> layer.build((None, 5, 3))
    >>> plan = Plan("model.h5")
    >>> note_layouts(plan, layer, layer.weights, [(3, 8), (2, 8), (8,)])
    >>> plan.layouts
    {}
    >>> note_layouts(plan, layer, layer.weights, [(3, 8), (2, 8), (16,)])
    >>> plan.stored_shape(layer.weights[2])
    (16,)
    """
    stored = {id(weight): shape for weight, shape in zip(weights, shapes, strict=False)}
    for each in keras_hooks.all_layers(layer):
        names = (cls.__name__ for cls in type(each).__mro__)
        gates = next((_GATES[name] for name in names if name in _GATES), None)
        trio = getattr(getattr(each, "cell", None), "weights", [])
        if gates is None or len(trio) != 3 or not all(id(weight) in stored for weight in trio):
            continue
        found = [stored[id(weight)] for weight in trio]
        wide = gates * each.units
        if found == [tuple(trio[0].shape), (each.units, wide), (2 * wide,)]:
            for weight, shape, convert in zip(trio, found, _conversions(gates), strict=True):
                plan.layouts[id(weight)] = Layout(shape, convert)


def _conversions(gates: int) -> list[Callable[[Array], Array]]:
    return [
        partial(_gate_by_gate, gates=gates, turned=lambda k: k.T.reshape(k.shape, order="F")),
        partial(_gate_by_gate, gates=gates, turned=np.transpose),
        partial(_halves, gates=gates),
    ]


def _gate_by_gate(kernel: Array, gates: int, turned: Callable[[Array], Array]) -> Array:
    return np.hstack([turned(gate) for gate in np.hsplit(kernel, gates)])


def _halves(bias: Array, gates: int) -> Array:
    halves = bias.reshape(2, -1)
    total: Array = halves.sum(axis=0) if gates == 4 else halves
    return total
