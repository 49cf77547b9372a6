"""The step of a loop, traced once and then run without Python between its ops.

For eager torch, where deciding each of a step's small ops in Python would dominate its time. JAX,
TensorFlow and torch.compile trace a step by themselves.
"""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import keras

from keras_mp.graph_rewrite import hooks
from keras_mp.graph_rewrite.loop_calls import Body
from keras_mp.graph_rewrite.tensors import dtype_of, shape_of

_SIMPLE = (bool, int, float, str, type(None))


class TracedSteps:
    """The traced steps of a model, by key."""

    def __init__(self, layers: Iterable[Any] = ()) -> None:
        self._layers = [weakref.ref(layer) for layer in layers]
        self._known: dict[Any, tuple[Any, _Step]] = {}

    def _alive(self) -> list[Any]:
        return [layer for held in self._layers if (layer := held()) is not None]

    def step(self, key: Any, body: Body) -> Body:
        """Returns `body` for one run of a loop: traces its first step, and runs the trace later."""
        held: list[Body] = []

        def step(state: Any, elements: Any) -> tuple[Any, Any]:
            if not held:
                traced = self._traced(key, body, state, elements)
                held.append(body if traced is None else traced.begin())
            return held[0](state, elements)

        return step

    def _traced(self, key: Any, body: Body, state: Any, elements: Any) -> "_Step | None":
        structure = (state, elements)
        leaves = keras.tree.flatten(structure)
        if not all(keras.ops.is_tensor(x) for x in leaves):
            return None
        key = (key, *((shape_of(x), dtype_of(x)) for x in leaves))
        layers = self._alive()
        settings = [*_settings(layers)]
        traced = self._known.get(key)
        if traced is not None and traced[0] == settings and traced[1].run.is_valid():
            return traced[1]
        made: list[Any] = []

        def flat(*tensors: Any) -> list[Any]:
            made[:] = [body(*keras.tree.pack_sequence_as(structure, tensors))]
            return list(keras.tree.flatten(made[0]))

        run = hooks.traced(flat, leaves, [v for layer in layers for v in layer.variables])
        if run is None or not all(keras.ops.is_tensor(x) for x in keras.tree.flatten(made[0])):
            return None
        step = _Step(run, keras.tree.map_structure(lambda x: None, made[0]))
        if run.is_lasting:
            self._known[key] = settings, step
        return step


@dataclass(frozen=True)
class _Step:
    """A traced body.

    Attributes:
        run: A `Traced`, from flat tensors to flat tensors.
        structure: The structure of the body's result.
    """

    run: Any
    structure: Any

    def begin(self) -> Body:
        """Returns the body for one run of the loop."""
        run, structure = self.run.begin(), self.structure

        def step(state: Any, elements: Any) -> tuple[Any, Any]:
            leaves: list[Any] = []
            _flatten((state, elements), leaves)
            state, elements = _packed(structure, iter(run(*leaves)))
            return state, elements

        return step


def _flatten(structure: Any, leaves: list[Any]) -> None:
    # Keras' own flatten takes longer than the ops of a small step.
    if type(structure) in (list, tuple):
        for each in structure:
            _flatten(each, leaves)
    else:
        leaves.extend(
            [structure] if keras.ops.is_tensor(structure) else keras.tree.flatten(structure)
        )


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure is None:
        return next(leaves)
    if type(structure) in (list, tuple):
        return type(structure)([_packed(each, leaves) for each in structure])
    return keras.tree.map_structure(lambda _: next(leaves), structure)


def _settings(layers: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields the numbers and names in layers' attributes, on which a trace may depend."""
    for layer in layers:
        yield {key: value for key, value in vars(layer).items() if isinstance(value, _SIMPLE)}
