"""The batches of whatever `fit` takes, one after the other, by the data adapters of Keras."""

import warnings
from collections.abc import Callable
from typing import Any

import keras


class _Feeder(keras.Model):
    """A model without layers, whose test step hands each batch on.

    `evaluate` of a model with a `test_step` of its own is the public way to Keras' data adapters.
    """

    def __init__(self, take: Callable[[Any], None]) -> None:
        super().__init__(name="feeder", dtype="float32")
        object.__setattr__(self, "_take", take)
        self.built = True
        self.compile(optimizer=None, run_eagerly=True, jit_compile=False)

    @property
    def metrics(self) -> list[Any]:
        """None: Keras would ask that of the loss for a value, which it lacks without a batch."""
        return []

    def test_step(self, *state_and_data: Any) -> Any:
        *state, data = state_and_data
        self._take(data)
        logs = {"taken": keras.ops.zeros(())}  # TensorFlow takes no empty ones
        return (logs, *state) if state else logs


def for_each(
    dataset: Any,
    take: Callable[[Any, Any, Any], None],
    steps: int | None = None,
    batch_size: int | None = None,
) -> None:
    """Calls `take(x, y, sample_weight)` with each batch, which none keeps.

    Args:
        dataset: A tuple of arrays (x, y) or (x, y, sample_weight); or what makes batches itself: a
            `tf.data.Dataset`, a torch `DataLoader`, a `keras.utils.PyDataset`, a generator.
        take: Called once a batch.
        steps: At most so many; None: all that there are.
        batch_size: Of arrays; 32 if None.

    Raises:
        ValueError: `steps` is not positive, or there is no batch.

    >>> sizes = []
    >>> for_each((keras.ops.ones((5, 1)),), lambda x, y, weight: sizes.append(len(x)), batch_size=2)
    >>> sizes
    [2, 2, 1]
    """
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ValueError(f"steps must be a whole number of at least 1, or None, but is {steps!r}.")
    taken = 0

    def take_one(data: Any) -> None:
        nonlocal taken
        taken += 1
        take(*keras.utils.unpack_x_y_sample_weight(data))

    if isinstance(dataset, tuple):
        if not 1 <= len(dataset) <= 3:
            raise ValueError(
                "dataset must be (x, y) or (x, y, sample_weight), but is a tuple of "
                f"{len(dataset)}."
            )
        x, y, weight = (*dataset, None, None)[:3]
        # Else Keras takes the number of steps for that of parts to cut the arrays into.
        parts = {"x": x, "y": y, "sample_weight": weight, "batch_size": batch_size or 32}
    else:
        parts = {"x": dataset, "batch_size": batch_size}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        _Feeder(take_one).evaluate(**parts, steps=steps, verbose=0)
    if not taken:
        raise ValueError("The dataset has no batch.")
