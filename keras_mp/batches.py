"""The batches of any data that `fit` accepts, as Keras' data adapters pass them to a step.

They pass through the model's own preprocessing first, where its class overrides `evaluate` to
prepare the data: a keras-hub task tokenizes strings there.
"""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_mp.array_types import Model


class _Feeder(keras.Model):
    """A model without layers, whose test step forwards each batch.

    `evaluate` of a model with a custom `test_step` is the public way to Keras' data adapters.
    """

    def __init__(self, take: Callable[[Any], None]) -> None:
        super().__init__(name="feeder", dtype="float32")
        object.__setattr__(self, "_take", take)
        self.built = True
        self.compile(optimizer=None, run_eagerly=True, jit_compile=False)

    @property
    def metrics(self) -> list[Any]:
        """Empty: Keras would read the loss metric, which has no value before a batch."""
        return []

    def test_step(self, *state_and_data: Any) -> Any:
        *state, data = state_and_data
        self._take(data)
        logs = {"taken": keras.ops.zeros(())}  # TensorFlow rejects empty logs
        return (logs, *state) if state else logs


def for_each(
    model: Model,
    dataset: Any,
    take: Callable[[Any, Any, Any], None],
    steps: int | None = None,
    batch_size: int | None = None,
) -> None:
    """Calls `take(x, y, sample_weight)` with each batch, and keeps none.

    Args:
        model: Its preprocessing is applied to the data, if it has any.
        dataset: A tuple (x, y) or (x, y, sample_weight) of arrays, or of other data that `fit` of
            the model accepts; or a source of batches: a `tf.data.Dataset`, a torch `DataLoader`, a
            `keras.utils.PyDataset`, a generator.
        take: Called once per batch.
        steps: Maximum number of batches; None for all.
        batch_size: For arrays; 32 if None.

    Raises:
        ValueError: `steps` is not positive, or there is no batch.

    >>> sizes, model = [], keras.Sequential([keras.Input((1,))])
    >>> def take(x, y, sample_weight):
    ...     sizes.append(len(x))
    >>> for_each(model, (keras.ops.ones((5, 1)),), take, batch_size=2)
    >>> sizes
    [2, 2, 1]
    """
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ValueError(f"steps must be a whole number of at least 1, or None, but is {steps!r}.")
    if isinstance(dataset, tuple):
        if not 1 <= len(dataset) <= 3:
            raise ValueError(
                "dataset must be (x, y) or (x, y, sample_weight), but is a tuple of "
                f"{len(dataset)}."
            )
        x, y, weight = (*dataset, None, None)[:3]
        # Without a batch size Keras would split the arrays into `steps` parts.
        parts = {"x": x, "y": y, "sample_weight": weight, "batch_size": batch_size or 32}
    else:
        parts = {"x": dataset, "batch_size": batch_size}
    _feed(model, take, **parts, steps=steps)


def one_batch(
    model: Model, x: Any, y: Any = None, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """Returns (x, y, sample_weight) of one batch, as a step of `fit` receives it.

    Args:
        model: Its preprocessing is applied to the data, if it has any.
        x: Any input of the model's `fit`. Arrays are one batch; a source of batches gives its
            first.
        y: Targets, if `x` does not include them.
        sample_weight: Likewise.

    Raises:
        ValueError: There is no batch.

    >>> model = keras.Sequential([keras.Input((1,))])
    >>> x, y, sample_weight = one_batch(model, ((np.ones((3, 1)), np.ones(3)) for _ in range(2)))
    >>> tuple(x.shape), tuple(y.shape), sample_weight
    ((3, 1), (3,), None)
    """
    if not prepares(model, x) and all(map(are_numbers, (x, y, sample_weight))):
        return x, y, sample_weight
    found: list[Any] = []

    def take(*batch: Any) -> None:
        found.append(batch)

    _feed(model, take, x=x, y=y, sample_weight=sample_weight, batch_size=_sample_count(x), steps=1)
    x, y, sample_weight = found[0]
    return x, y, sample_weight


def prepares(model: Model, x: Any) -> bool:
    """Returns whether the class of a model overrides `evaluate` with preprocessing that `x` needs.

    Data named as the model's inputs are preprocessed already: preprocessing takes no such names.

    >>> prepares(keras.Sequential([keras.Input((1,))]), np.ones((2, 1)))
    False
    """
    own = getattr(type(model), "evaluate", None)
    if own is None or own is keras.Model.evaluate:
        return False
    inputs = getattr(model, "input", None)
    if not isinstance(x, dict) or not isinstance(inputs, dict):
        return True
    return set(x) != set(inputs) or not are_numbers(x)


def are_numbers(part: Any) -> bool:
    """Returns whether nested `part` is arrays and numbers only: no string, and no dataset.

    >>> are_numbers({"a": np.ones(2), "b": [1, 2]}), are_numbers(["a text"])
    (True, False)
    """
    return all(map(_is_number, keras.tree.flatten(part)))


def _is_number(leaf: Any) -> bool:
    if leaf is None or isinstance(leaf, keras.KerasTensor) or keras.ops.is_tensor(leaf):
        return True
    if not isinstance(leaf, int | float | complex) and not hasattr(leaf, "__array__"):
        return False
    return np.asarray(leaf).dtype.kind not in "OSTU"


def _sample_count(x: Any) -> int | None:
    """Returns the number of samples in arrays or a list; None for a source of batches."""
    while isinstance(x, dict | tuple) and x:
        x = next(iter(x.values())) if isinstance(x, dict) else x[0]
    if isinstance(x, list) and x:
        x = x[0] if getattr(x[0], "shape", ()) else np.empty(len(x))  # several inputs, or one
    shape: tuple[Any, ...] = tuple(getattr(x, "shape", ()))
    return int(shape[0]) or None if shape else None


def _feed(model: Model, take: Callable[[Any, Any, Any], None], **parts: Any) -> None:
    taken = 0

    def take_one(data: Any) -> None:
        nonlocal taken
        taken += 1
        take(*keras.utils.unpack_x_y_sample_weight(data))

    feeder = _Feeder(take_one)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        if prepares(model, parts["x"]):
            fed = _proxy(model, feeder)
            type(fed).evaluate(fed, **parts, verbose=0)
        else:
            feeder.evaluate(**parts, verbose=0)
    if not taken:
        raise ValueError("The dataset has no batch.")


def _proxy(model: Model, feeder: _Feeder) -> Any:
    """Returns a proxy of the model whose `evaluate` ends in that of `feeder`.

    Its class has the feeder's `evaluate` where `super()` would find Keras'. The proxy shares the
    model's attributes, but sets up, compiles and resets nothing in the model.
    """

    class Last(keras.Model):
        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            return feeder.evaluate(*args, **kwargs)

    fed: Any = object.__new__(type(type(model).__name__, (type(model), Last), {}))
    object.__setattr__(fed, "__dict__", vars(model))
    return fed
