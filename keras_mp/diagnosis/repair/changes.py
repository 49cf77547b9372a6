"""`Change`: a layer or loss that is to compute in float32, for a trial or for good."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import keras

from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.repair.denials import Denial, all_denials, denied
from keras_mp.optimizer import widened
from keras_mp.optimizer.widened import float16_losses, narrow_inside


@dataclass(frozen=True, eq=False)
class Change:
    """One thing that is to compute in float32, or in bfloat16.

    Attributes:
        path: Names from the model down to the layer, or the name of the loss.
        target: The layer, with all in it, or the loss.
        dtype: "float32" or, of a layer, "bfloat16".
    """

    path: str
    target: Any
    dtype: str = "float32"

    @property
    def is_layer(self) -> bool:
        """Whether it is a layer, not a loss."""
        return isinstance(self.target, keras.layers.Layer)

    def objects(self) -> list[Any]:
        """Returns what gets the policy: a layer and all in it that computes in float16."""
        return narrow_inside(self.target) if self.is_layer else [self.target]


def all_changes(model: Any) -> list[Change | Denial]:
    """Returns what can be changed in a model: the smallest units that its author can give a dtype.

    Of a model of the graph rewrite, that has been run: the layers that can be denied.

    >>> dense = keras.layers.Dense(1, dtype="mixed_float16", name="out")
    >>> model = keras.Sequential([keras.Input((2,)), dense])
    >>> [change.path for change in all_changes(model)]
    ['out']
    """
    found: dict[int, Change] = {}
    for part in layer_paths.parts(model):
        whole = Change(part.whole_path, part.whole)
        if not isinstance(part.whole, keras.Model) and whole.objects():
            found.setdefault(id(part.whole), whole)
    losses = [Change(str(loss.name), loss) for loss in float16_losses(model)]
    return [*found.values(), *losses, *all_denials(model)]


@contextlib.contextmanager
def in_float32(changes: Iterable[Change | Denial]) -> Iterator[None]:
    """A scope in which changes hold."""
    some = list(changes)
    with contextlib.ExitStack() as scopes:
        for change in some:
            if isinstance(change, Change):
                scopes.enter_context(widened.in_float32(change.objects(), change.dtype))
        scopes.enter_context(denied(each for each in some if isinstance(each, Denial)))
        yield
