"""Keeps the batch that a model trained on last, for running it again.

Keras' callbacks do not get the data. On JAX and PyTorch a batch passes through Python, and is kept
by reference. On TensorFlow it never leaves the compiled function, so it is unknown there.
"""

import contextlib
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
        self._wrap(model, [])

    def follow_again(self, model: Model) -> None:
        """Goes on after the train function of `model` was made anew, for all that follow it."""
        self._wrap(model, self._kept)

    def _wrap(self, model: Model, kept: list[Any]) -> None:
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

    def show(self, model: Model, look: Callable[[Any], None]) -> bool:
        """Has `look` called with a batch, outside of any compiled function.

        That is the last one; on TensorFlow the next one, before the model trains on it.

        Returns:
            Whether it was called at once.
        """
        if self._kept:
            look(self._kept[0])
            return True
        if keras.backend.backend() == "tensorflow":
            _show_next(model, look)
        return False

    def end(self) -> None:
        """Restores the model and drops the batch."""
        self._end()
        self._kept.clear()


def _show_next(model: Model, look: Callable[[Any], None]) -> None:
    import tensorflow as tf

    before = model.train_function

    def showing(iterator: Any) -> Any:
        model.train_function = before  # `look` may have another one made
        strategy = model.distribute_strategy
        batches = [next(iterator)]
        with contextlib.suppress(StopIteration, tf.errors.OutOfRangeError):
            while len(batches) < model.steps_per_execution:
                batches.append(next(iterator))
        parts = [
            tf.nest.pack_sequence_as(batch, leaves)
            for batch in batches
            for leaves in zip(
                *map(strategy.experimental_local_results, tf.nest.flatten(batch)), strict=True
            )
        ]
        replicas = len(parts) // len(batches)
        look(_joined(parts[:replicas]))
        spec = tf.nest.map_structure(_spec_of_one, iterator.element_spec)

        def dataset(context: Any = None) -> Any:
            return tf.data.Dataset.from_generator(lambda: iter(parts), output_signature=spec)

        again = iter(strategy.distribute_datasets_from_function(dataset))
        return model.train_function(again)

    model.train_function = showing


def _spec_of_one(spec: Any) -> Any:
    """Returns what a replica is given, of what all are."""
    return spec._value_specs[0] if hasattr(spec, "_value_specs") else spec


def _joined(parts: list[Any]) -> Any:
    """Returns what several replicas are given as one batch."""
    if len(parts) == 1:
        return parts[0]
    import tensorflow as tf

    return tf.nest.map_structure(lambda *leaves: tf.concat(leaves, 0), *parts)
