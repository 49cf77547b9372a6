"""Chooses input sizes for a report without an example, if the model does not declare all.

An open axis says nothing about the sizes that the model supports: a table of positions may end at
12. So sizes are tried, those of its weights among them, each in an abstract run.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite.graph import Graph, Origin

BATCH = 4
STEPS = 16
PIXELS = 64
_LARGEST = 4096  # side of weights that is tried
_MOST = 24  # number of sizes that are tried


def declared(model: Any) -> Any:
    """Returns the `keras.KerasTensor`s of a model's inputs, nested; None if it declares none."""
    try:
        inputs = model.inputs
    except AttributeError:  # not a Model, or a Sequential that has not been called
        return None
    if not inputs:
        return None
    return inputs[0] if isinstance(model, keras.Sequential) else model.input


def filled(inputs: Any, steps: int = STEPS, pixels: int = PIXELS) -> Any:
    """Returns nested `inputs` with every side of their `keras.KerasTensor`s known.

    >>> filled(keras.KerasTensor((None, None, 8))).shape
    (4, 16, 8)
    """

    def known(x: Any) -> Any:
        if not isinstance(x, keras.KerasTensor):
            return x
        inner = pixels if len(x.shape) >= 4 else steps
        sides = [s if s is not None else inner if i else BATCH for i, s in enumerate(x.shape)]
        return keras.KerasTensor(sides, x.dtype, sparse=x.sparse)

    return keras.tree.map_structure(known, inputs)


def recorded(
    model: Any, inputs: Any, record: Callable[[Any], Graph], calls: Sequence[Graph] = ()
) -> Graph:
    """Returns `record(inputs)`, with sizes for open axes at which the model can be run.

    Args:
        model: Its weights suggest sizes.
        inputs: The model's declared inputs.
        record: Records the model; raises if it does not accept a size.
        calls: Recorded calls of the model: their sizes are tried first.

    Raises:
        ValueError: The model runs at none of the sizes.
    """
    open_ranks = {len(x.shape) for x in keras.tree.flatten(inputs) if None in x.shape[1:]}
    if not open_ranks:
        return record(filled(inputs))
    refused, tried = "", []
    for sizes in _sizes(model, open_ranks, calls):
        try:
            return record(filled(inputs, **sizes))
        except Exception as error:  # noqa: BLE001  whatever the model says of that size
            refused = refused or f"{type(error).__name__}: {_first_line(error)}"
            tried.append(sizes)
    names = list(dict.fromkeys(name for sizes in tried for name in sizes))
    tried_sizes = " and ".join(
        f"{', '.join(str(sizes[name]) for sizes in tried if name in sizes)} {name}"
        for name in names
    )
    shapes = ", ".join(str(tuple(x.shape)) for x in keras.tree.flatten(inputs))
    # Not from that error: its frames are of a trial run that the user did not request.
    raise ValueError(
        f"Model {model.name!r} declares inputs of shape {shapes}, but could not be run with "
        f"{tried_sizes}: pass inputs=, an example of its inputs. The first error was: {refused}"
    ) from None


def _first_line(error: Exception) -> str:
    """Returns the first line with the cause of an error: Keras puts its own line before it."""
    lines = re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines()
    texts = [line.strip() for line in lines if line.strip()]
    return next((line for line in texts if not line.startswith("Exception encountered")), "")


def _sizes(model: Any, ranks: set[int], calls: Sequence[Graph]) -> Iterator[dict[str, int]]:
    """Yields sizes to try, as arguments of `filled`."""
    seen = [
        v.shape for graph in calls for v in graph.values if v.origin is Origin.INPUT and v.shape
    ]
    kinds = [("pixels", PIXELS, [r for r in ranks if r >= 4])]
    kinds += [("steps", STEPS, [r for r in ranks if r < 4])]
    weights = sorted({side for v in model.variables for side in v.shape if 1 < side <= _LARGEST})
    for name, usual, wanted in kinds:
        if not wanted:
            continue
        called = [side for shape in seen if len(shape) in wanted for side in shape[1:2] if side]
        smaller = [side for side in reversed(weights) if side < usual]
        larger = [side for side in weights if side > usual]
        halves = [usual >> i for i in range(1, usual.bit_length())]
        doubles = [usual << i for i in range(1, 6)]
        every = [*called, usual, *smaller, *halves, *larger, *doubles]
        yield from [{name: side} for side in list(dict.fromkeys(every))[:_MOST]]


def only_called_inside(model: Any, has_inputs: bool) -> list[str]:
    """Returns the names of the models in `model`, if only they are called, and `model` is not.

    Args:
        model: One with its own `train_step` and no `call`; or one that declares no inputs, whose
            `call` was not reached, but that of models in it was.
        has_inputs: Whether inputs exist to call it with, if it has a `call`.
    """
    if not isinstance(model, keras.Model):
        return []
    below = keras_hooks.child_layers(model)
    inner = [layer for layer in below if isinstance(layer, keras.Model)]
    if type(model).call in (keras.Model.call, keras.layers.Layer.call):
        return [layer.name for layer in inner]
    if has_inputs or declared(model) is not None or keras_hooks.was_called(model):
        return []
    return [layer.name for layer in inner if keras_hooks.was_called(layer)]
