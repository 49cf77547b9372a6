"""Which variables a training step writes beside the optimizer: what layers keep, and assign to.

What layers keep is known by how it was made. Weights, trained or frozen, that they assign to are
seen when it happens: `Assignments` keeps the value that a weight has before.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import keras

from keras_mp import backends
from keras_mp.array_types import Layer, Model
from keras_mp.backends import keras_hooks

SEED = "seed_generator_state"  # what Keras calls every variable of a SeedGenerator
_SEEN = "_keras_mp_assigned"  # marks a weight that was assigned to in a forward pass


def assigned_variables(model: Model) -> list[Any]:
    """Returns the variables that a step of `model` may write although it is skipped; no seeds.

    Those are the variables that layers made as not trainable, the states of stateful recurrent
    layers, the kernels of SpectralNormalization, and weights that `Assignments` saw before.

    >>> norm = keras.layers.BatchNormalization()
    >>> norm.build((None, 4))
    >>> [variable.name for variable in assigned_variables(norm)]
    ['moving_mean', 'moving_variance']
    """
    weights = {id(v): v for v in weights_of(model)}
    found = {id(v): v for v in model.variables if id(v) not in weights and v.name != SEED}
    for layer in keras_hooks.all_layers(model):
        if getattr(layer, "stateful", False) and getattr(layer, "states", None) is not None:
            found.update((id(v), v) for v in keras.tree.flatten(layer.states))
        found.update((id(v), v) for v in self_assigned_weights(layer))
    found.update((key, v) for key, v in weights.items() if hasattr(v, _SEEN))
    return list(found.values())


def weights_of(model: Model) -> Iterator[Any]:
    """Yields the weights of the layers: what an optimizer trains, or would if it was not frozen."""
    for layer in keras_hooks.all_layers(model):
        yield from keras_hooks.own_weights(layer)


def self_assigned_weights(layer: Layer) -> list[Any]:
    """Returns the weights that a layer of Keras is known to assign to while it is trained.

    >>> layer = keras.layers.SpectralNormalization(keras.layers.Dense(2))
    >>> layer.build((None, 4))
    >>> [variable.name for variable in self_assigned_weights(layer)]
    ['kernel']
    """
    return [layer.kernel] if isinstance(layer, keras.layers.SpectralNormalization) else []


class Assignments:
    """Keeps the values that weights had before a step first assigned to them.

    Seen is each `variable.assign`, `assign_add` and `assign_sub` of the same thread between `start`
    and `stop`, but for those of an optimizer's step. Not seen are changes of the tensor that a
    variable holds, and functions that TensorFlow traced earlier.

    Attributes:
        before: (variable, value) for each weight that was assigned to, in that order.

    >>> weight = keras.Variable([2.0])
    >>> assignments = Assignments([weight])
    >>> assignments.start()
    >>> weight.assign([3.0]), weight.assign([4.0])  # doctest: +ELLIPSIS
    (...)
    >>> assignments.stop()
    >>> [float(value[0]) for _, value in assignments.before]
    [2.0]
    """

    def __init__(self, weights: Iterable[Any]) -> None:
        self.before: list[tuple[Any, Any]] = []
        self._waiting = {id(weight) for weight in weights}
        self._optimizers = 0  # that step now

    def start(self) -> None:
        """Sees assignments from now on."""
        watch()
        self._thread = backends.current().thread()
        self._copy = backends.current().copier()
        _active.append(self)

    def stop(self) -> None:
        """Sees no more of them."""
        _active.remove(self)

    def note(self, variable: Any) -> None:
        """Keeps the value of `variable`, if this is the first assignment to one of the weights."""
        if self._optimizers or id(variable) not in self._waiting:
            return
        self._waiting.remove(id(variable))
        with keras_hooks.without_autocast():
            self.before.append((variable, self._copy(variable)))
        if not backends.current().is_compiling():  # torch.compile would compile the step again
            setattr(variable, _SEEN, True)

    def optimizer_steps(self, change: int) -> None:
        """Counts the optimizers that step: 1 when one begins, -1 when it ends."""
        self._optimizers += change

    def is_of_this_thread(self) -> bool:
        """Returns whether the calling thread is the one that called `start`."""
        return self._thread == backends.current().thread()


_active: list[Assignments] = []


def watch() -> None:
    """Has Keras tell `Assignments` of what is assigned; only the first call does anything.

    It cannot be done while torch.compile traces the step.
    """
    keras_hooks.watch_assignments(_before_assignment, _optimizer_steps)


def _before_assignment(variable: Any) -> None:
    for assignments in _active:
        if assignments.is_of_this_thread():
            assignments.note(variable)


def _optimizer_steps(change: int) -> None:
    for assignments in _active:
        if assignments.is_of_this_thread():
            assignments.optimizer_steps(change)
