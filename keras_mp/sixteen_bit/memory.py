"""`memory_report`: bytes per parameter, of weights, gradients, slots and masters."""

from collections.abc import Iterator
from dataclasses import dataclass

import keras
import numpy as np

from keras_mp.array_types import Model, Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import keeper_of_narrow_weights
from keras_mp.rendering.model import Column, Renderable, Table
from keras_mp.sixteen_bit.half_precision_weights import is_narrow
from keras_mp.sixteen_bit.storages import KNOWN, Storage

_KINDS = ("weights", "gradients", "slots", "masters")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that training keeps, besides activations.

    Attributes:
        name: The setup, as measured or as an alternative.
        parameters: Trained numbers.
        weights: Bytes of the trained weights.
        gradients: Bytes of their gradients, in the dtypes of the weights.
        slots: Bytes of the optimizer's variables, without masters.
        masters: Bytes of float32 copies, or lower halves.
    """

    name: str
    parameters: int
    weights: int
    gradients: int
    slots: int
    masters: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.weights + self.gradients + self.slots + self.masters

    def a_parameter(self) -> float:
        """Bytes per parameter."""
        return self.total / max(1, self.parameters)


@dataclass(frozen=True, slots=True, repr=False)
class MemoryReport(Renderable):
    """Bytes that training keeps, now and with other choices.

    Attributes:
        now: Measured from the arrays.
        layers: The same for each layer with trainable weights, without optimizer state that all
            layers share.
        others: The alternatives, computed from the shapes.
    """

    now: Memory
    layers: tuple[Memory, ...]
    others: tuple[Memory, ...]

    def _parts(self) -> Iterator[Table]:
        heads = (*_KINDS, "MB", "a parameter")
        rows = []
        for memory in (self.now, *self.others):
            each = [f"{getattr(memory, k) / max(1, memory.parameters):.2f}" for k in _KINDS]
            megabytes = f"{memory.total / 1e6:.1f}"
            rows.append((memory.name, *each, megabytes, f"{memory.a_parameter():.2f}"))
        yield Table((Column(""), *(Column(head, "number") for head in heads)), rows)


def memory_report(model: Model, optimizer: Optimizer | None = None) -> MemoryReport:
    """Returns the bytes per parameter that training keeps, besides activations.

    Args:
        model: Built.
        optimizer: Built, as after the first step; that of `model.compile` if None.

    Returns:
        The current setup, measured from the arrays; the same by layer; and the alternatives.
        Gradients are counted in the dtypes of the weights.

    Raises:
        ValueError: Model or optimizer is not built, or there is no optimizer.

    >>> model = keras.Sequential([keras.layers.Dense(8, use_bias=False)])
    >>> model.build((None, 4))
    >>> adam = keras.optimizers.Adam()
    >>> adam.build(model.trainable_variables)
    >>> round(memory_report(model, adam).now.a_parameter())  # and 8 bytes of counters
    16
    """
    optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    if optimizer is None or not model.built:
        raise ValueError(
            "memory_report needs a built model and an optimizer: compile the model first, or "
            "pass an optimizer."
        )
    if not optimizer.built:
        raise ValueError(
            "The optimizer is not built yet: call `optimizer.build(model.trainable_variables)`."
        )
    now = _memory_of("now", model.trainable_variables, optimizer)
    layers = [
        _memory_of(layer.path or layer.name, layer.trainable_variables, optimizer, by_variable=True)
        for layer in keras_hooks.inner_layers(model)
        if layer.trainable_variables and not keras_hooks.inner_layers(layer)
    ]
    return MemoryReport(now, tuple(layers), tuple(_alternatives(model, optimizer)))


def _memory_of(
    name: str, variables: list[Variable], optimizer: Optimizer, *, by_variable: bool = False
) -> Memory:
    parameters = sum(_size(variable) for variable in variables)
    weights = sum(map(bytes_of, variables))
    own = _storages(optimizer)
    masters = sum(bytes_of(v) for each in own for v in each.own)
    slots = sum(map(bytes_of, optimizer.variables)) - masters
    if by_variable:
        ids = {id(variable) for variable in variables}
        masters = sum(bytes_of(v) for each in own if id(each.variable) in ids for v in each.own)
        whole = sum(_size(variable) for variable in keras_hooks.trained_variables(optimizer))
        slots = round(slots * parameters / max(1, whole))
    return Memory(name, parameters, weights, weights, slots, masters)


def _alternatives(model: Model, optimizer: Optimizer) -> list[Memory]:
    """Returns the alternatives for the same rule, computed from shapes."""
    variables = model.trainable_variables
    parameters = sum(map(_size, variables))
    inner = optimizer
    while hasattr(inner, "inner_optimizer"):
        inner = inner.inner_optimizer
    masters = sum(_size(v) for each in _storages(optimizer) for v in each.own)
    in_slots = sum(map(_size, optimizer.variables)) - masters
    slots = in_slots / max(1, parameters)  # numbers per parameter

    def row(name: str, weight: int, slot: int, master: int) -> Memory:
        in_slots_now = round(slots * parameters)
        each = (weight * parameters, weight * parameters, slot * in_slots_now, master * parameters)
        return Memory(name, parameters, *each)

    alternatives = [
        row("mixed policy", 4, 4, 0),
        row("MasterWeights", 2, 4, 4),
        row("MasterWeights, split", 2, 4, 2),
        row("StochasticRounding", 2, 4, 0),
    ]
    if type(inner).__name__ in KNOWN:
        alternatives += [
            row("MasterWeights, split, slots in bfloat16", 2, 2, 2),
            row("StochasticRounding, slots in bfloat16", 2, 2, 0),
        ]
    return alternatives


def _storages(optimizer: Optimizer) -> list[Storage]:
    keeper = keeper_of_narrow_weights(optimizer)
    return [] if keeper is None else keeper._narrow_weights.storages


def _size(variable: Variable) -> int:
    return int(np.prod(variable.shape, dtype=np.int64))


def bytes_of(variable: Variable) -> int:
    """Returns the bytes that a variable takes."""
    if is_narrow(variable):
        return 2 * _size(variable)
    dtype = keras.backend.standardize_dtype(variable.dtype)
    return int(np.dtype(dtype).itemsize) * _size(variable)
