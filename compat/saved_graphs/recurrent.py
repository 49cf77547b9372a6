"""CuDNN's recurrent layers, with their weights in one flat buffer: LSTM and GRU in one direction.

The buffer has for each gate the kernel, (units, inputs), then the recurrent kernels, (units,
units), then the biases of both, twice (gates, units). Gates of an LSTM: input, forget, new, output;
of a GRU: reset, update, new.

Source: NVIDIA's cuDNN, cudnnRNNMode_t; tensorflow/core/ops/cudnn_rnn_ops.cc of TF 2.15.
"""

from typing import Any

from keras import ops

from keras_mp.compat.errors import NotComputed
from keras_mp.compat.operations.computing.values import tensor
from keras_mp.compat.saved_graphs.programs import Step

_GATES = {"lstm": 4, "gru": 3}
# What the attributes say where the file leaves them out, of which nothing else is evaluated.
_PLAIN = {
    "input_mode": "linear_input",
    "direction": "unidirectional",
    "num_proj": 0,
    "dropout": 0.0,
}


def _recurrent(run: Any, step: Step, given: list[Any]) -> list[Any]:
    said = step.attributes
    mode = said.get("rnn_mode", "lstm")
    if mode not in _GATES:
        raise NotComputed(f"rnn_mode={mode}: lstm and gru can be evaluated")
    for key, plain in _PLAIN.items():
        if said.get(key, plain) not in (plain, "auto_select" if key == "input_mode" else plain):
            raise NotComputed(f"{key}={said[key]}: {plain} can be evaluated")
    x, *states, weights = map(tensor, given[:4])
    unused = states[len(states) if mode == "lstm" else 1 :]  # a GRU has one state only
    states = states[: len(states) - len(unused)]
    lengths = tensor(given[4], "int32") if len(given) > 4 else None
    of_batches = not said.get("time_major", True)
    if of_batches:
        x, *states = (ops.swapaxes(one, 0, 1) for one in (x, *states))
    if states[0].shape[0] != 1:
        raise NotComputed(f"{states[0].shape[0]} layers: one can be evaluated")
    outputs, last = _run(mode, x, [one[0] for one in states], weights, lengths)
    found = [outputs, *(ops.expand_dims(one, 0) for one in last)]
    if of_batches:
        found = [ops.swapaxes(one, 0, 1) for one in found]
    return [*found, *unused, *[ops.zeros((0,))] * 2]  # what is reserved for the gradient


def _run(
    mode: str, x: Any, states: list[Any], weights: Any, lengths: Any
) -> tuple[Any, tuple[Any, ...]]:
    gates, inputs, units = _GATES[mode], int(x.shape[-1]), int(states[0].shape[-1])
    sizes = [gates * units * inputs, gates * units * units, gates * units, gates * units]
    if weights.shape[0] not in (None, sum(sizes)):
        raise NotComputed(f"{weights.shape[0]} weights, of {sum(sizes)}")
    parts, at = [], 0
    for size in sizes:
        parts.append(weights[at : at + size])
        at += size
    kernel, recurrent = (
        ops.transpose(ops.reshape(part, (gates * units, wide)))
        for part, wide in zip(parts[:2], (inputs, units), strict=True)
    )
    by_input = ops.add(ops.matmul(x, kernel), parts[2])
    turn = {"lstm": _lstm, "gru": _gru}[mode]

    def scanned(before: tuple[Any, ...], given: Any) -> tuple[tuple[Any, ...], Any]:
        by_input, there = given if lengths is not None else (given, None)
        after = turn(before, by_input, ops.add(ops.matmul(before[0], recurrent), parts[3]))
        if there is not None:
            after = tuple(ops.where(there, *pair) for pair in zip(after, before, strict=True))
        return after, after  # on TensorFlow both have the same structure

    there = None
    if lengths is not None:
        times = ops.reshape(ops.arange(ops.shape(x)[0], dtype="int32"), (-1, 1, 1))
        there = ops.less(times, ops.reshape(lengths, (1, -1, 1)))
    given = by_input if there is None else (by_input, there)
    last, (outputs, *_) = ops.scan(scanned, tuple(states), given)
    if there is not None:
        outputs = ops.where(there, outputs, ops.zeros_like(outputs))
    return outputs, tuple(last)


def _lstm(before: tuple[Any, ...], by_input: Any, by_state: Any) -> tuple[Any, ...]:
    take, forget, new, give = ops.split(ops.add(by_input, by_state), 4, axis=-1)
    cell = ops.add(
        ops.multiply(ops.sigmoid(forget), before[1]),
        ops.multiply(ops.sigmoid(take), ops.tanh(new)),
    )
    return ops.multiply(ops.sigmoid(give), ops.tanh(cell)), cell


def _gru(before: tuple[Any, ...], by_input: Any, by_state: Any) -> tuple[Any, ...]:
    (reset, update, new), (of_reset, of_update, of_new) = (
        ops.split(one, 3, axis=-1) for one in (by_input, by_state)
    )
    reset, kept = ops.sigmoid(ops.add(reset, of_reset)), ops.sigmoid(ops.add(update, of_update))
    now = ops.tanh(ops.add(new, ops.multiply(reset, of_new)))
    return (ops.add(now, ops.multiply(kept, ops.subtract(before[0], now))),)


KERNELS = dict.fromkeys(("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"), _recurrent)
"""For each op its kernel."""
