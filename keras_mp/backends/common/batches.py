"""Keeps the batch that a model trained on last, so that it can be run again.

Keras' callbacks are not shown the data. On JAX and PyTorch a batch passes through Python, and is
kept by reference. On TensorFlow it never leaves the compiled function, so there it is not known.
"""

from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_mp.array_types import Model


class LastBatch:
    """Remembers the last batch of `fit`.

    >>> LastBatch().get() is None
    True
    """

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._end: Callable[[], None] = lambda: None

    def follow(self, model: Model) -> None:
        """Begins; once the train function of `model` is made, before it is called.

        Several may follow one model: they share what is kept, until one of them ends.
        """
        self.end()
        other = getattr(model.train_function, "last_batch", None)
        if other is not None and not other._kept:
            self._kept, self._end = other._kept, other._end
            return
        if other is not None:
            other.end()  # an interrupted fit has left it, which would hold its batch for ever
        kept: list[Any] = []
        self._kept = kept
        before = model.train_function

        def keep(data: Any) -> Any:
            kept[:] = [data]
            return data

        match keras.backend.backend():
            case "jax":

                def following(state: Any, iterator: Iterator[Any]) -> Any:
                    return before(state, map(keep, iterator))

            case "torch":

                def following(data: Any) -> Any:  # type: ignore[misc]
                    keep(data[0])
                    return before(data)

            case _:
                return
        following.last_batch = self  # type: ignore[attr-defined]
        model.train_function = following

        def end() -> None:
            if model.train_function is following:
                model.train_function = before

        self._end = end

    def get(self) -> Any:
        """Returns what `train_step` was given last, or None if that is not known."""
        return self._kept[0] if self._kept else None

    def end(self) -> None:
        """Leaves the model as it was found, and forgets the batch."""
        self._end()
        self._kept.clear()
