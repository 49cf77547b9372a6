"""Keeps the batch that a model trained on last, for running it again.

Keras' callbacks do not get the data. On JAX and PyTorch a batch passes through Python, and is kept
by reference. On TensorFlow it never leaves the compiled function, so it is unknown there.
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
        """Starts; call it after the train function of `model` is made, before its first call.

        Several objects may follow one model: they share the batch, until one of them ends.
        """
        self.end()
        other = getattr(model.train_function, "last_batch", None)
        if other is not None and not other._kept:
            self._kept, self._end = other._kept, other._end
            return
        if other is not None:
            other.end()  # an interrupted fit left it, which would keep its batch forever
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
        """Returns the last argument of `train_step`, or None if it is unknown."""
        return self._kept[0] if self._kept else None

    def end(self) -> None:
        """Restores the model and drops the batch."""
        self._end()
        self._kept.clear()
