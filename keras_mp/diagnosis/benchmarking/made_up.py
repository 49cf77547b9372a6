"""Random batches for a model's declared inputs, used without data."""

from typing import Any

import keras
import numpy as np

from keras_mp.array_types import Model
from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite.examples import declared, filled
from keras_mp.graph_rewrite.tensors import dtype_of

_CLASSES = ("sparse_categorical", "sparsecategorical")
_ONE_HOT = ("categorical_crossentropy", "categoricalcrossentropy", "categorical_focal")
_BINARY = ("binary", "hinge")


def inputs(model: Model, batch: int, random: np.random.Generator) -> Any:
    """Returns a batch for the declared inputs of a model.

    Floats are normal; whole numbers are in the range of every Embedding of the model, or 0 and 1 if
    there is none.

    Args:
        model: Functional or Sequential, or with `inputs`.
        batch: The number of samples. Other open sides are 16, of images 64.
        random: Generates the numbers.

    Raises:
        ValueError: The model declares no inputs.

    >>> model = keras.Sequential([keras.Input((3,), dtype="int32"), keras.layers.Embedding(7, 2)])
    >>> x = inputs(model, 4, np.random.default_rng(0))
    >>> x.shape, bool(((0 <= x) & (x < 7)).all())
    ((4, 3), True)
    """
    found = declared(model)
    if found is None:
        raise ValueError(
            f"Model {model.name!r} declares no inputs, so no data can be made up for it: pass "
            "data=(x, y)."
        )
    tables = [
        int(layer.input_dim)
        for layer in keras_hooks.all_layers(model)
        if "Embedding" in type(layer).__name__
        and isinstance(getattr(layer, "input_dim", None), int)
    ]
    most = min(tables, default=2)

    def fill(x: Any) -> Any:
        shape = (batch, *x.shape[1:])
        dtype = keras.backend.standardize_dtype(x.dtype)
        if dtype == "string":
            raise ValueError(
                f"Model {model.name!r} takes strings, which benchmark cannot make up: pass "
                "data=(x, y)."
            )
        if dtype == "bool":
            return random.integers(2, size=shape).astype("bool")
        if "int" in dtype:
            return random.integers(most, size=shape).astype(dtype)
        return random.normal(size=shape).astype("float64" if dtype == "float64" else "float32")

    return without_lists(keras.tree.map_structure(fill, filled(found)))


def without_lists(part: Any) -> Any:
    """Returns nested arrays with tuples instead of lists, as in TensorFlow's data sets.

    >>> without_lists([1, {"a": [2]}])
    (1, {'a': (2,)})
    """
    if isinstance(part, list | tuple):
        return tuple(map(without_lists, part))
    if isinstance(part, dict):
        return {name: without_lists(value) for name, value in part.items()}
    return part


def targets(outputs: Any, loss: Any, random: np.random.Generator) -> Any:
    """Returns targets for a batch of outputs, as a loss expects them.

    Args:
        outputs: Nested tensors.
        loss: One for all, or nested like the outputs, or None.
        random: Generates the numbers.

    >>> ones, random = np.ones((5, 3)), np.random.default_rng(0)
    >>> targets(ones, "sparse_categorical_crossentropy", random).shape
    (5,)
    >>> targets(ones, "categorical_crossentropy", random).sum(axis=-1).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    return None if loss is None else _for(outputs, loss, random)


def _for(outputs: Any, loss: Any, random: np.random.Generator) -> Any:
    # An output without a loss still gets numbers: data sets cannot hold None.
    if isinstance(outputs, dict):
        return {
            name: _for(each, loss.get(name) if isinstance(loss, dict) else loss, random)
            for name, each in outputs.items()
        }
    if isinstance(outputs, list | tuple):
        several = list(loss.values()) if isinstance(loss, dict) else loss
        several = several if isinstance(several, list | tuple) else [loss] * len(outputs)
        return tuple(_for(each, one, random) for each, one in zip(outputs, several, strict=True))
    if isinstance(loss, dict | list | tuple):  # of a model with one output
        losses = list(loss.values()) if isinstance(loss, dict) else list(loss)
        loss = losses[0]
    return _of_one(tuple(outputs.shape), name_of(loss), random)


def _of_one(shape: tuple[int, ...], loss: str, random: np.random.Generator) -> Any:
    if any(word in loss for word in _CLASSES):
        return random.integers(shape[-1], size=shape[:-1])
    if any(word in loss for word in _BINARY):
        return random.integers(2, size=shape).astype("float32")
    if any(word in loss for word in _ONE_HOT):
        return np.eye(shape[-1], dtype="float32")[random.integers(shape[-1], size=shape[:-1])]
    return random.normal(size=shape).astype("float32")


def name_of(loss: Any) -> str:
    """Returns the name of a loss, in lower case.

    >>> name_of(keras.losses.MeanSquaredError()), name_of("mse")
    ('mean_squared_error', 'mse')
    """
    if isinstance(loss, str) or loss is None:
        return (loss or "").lower()
    name = getattr(loss, "name", None) or getattr(loss, "__name__", type(loss).__name__)
    return str(name).lower()


def default_loss(y: Any, outputs: Any) -> str:
    """Returns the default loss for a model that is not compiled.

    >>> default_loss(np.zeros(4, "int64"), np.zeros((4, 3))), default_loss(None, np.zeros((4, 3)))
    ('sparse_categorical_crossentropy', 'mse')
    """
    whole = hasattr(y, "shape") and "int" in str(dtype_of(y))
    if whole and hasattr(outputs, "shape") and int(outputs.shape[-1]) > 1:
        y_shape, output_shape = tuple(y.shape), tuple(outputs.shape)
        if y_shape in (output_shape[:-1], (*output_shape[:-1], 1)):
            return "sparse_categorical_crossentropy"
    return "mse"


def described(x: Any, y: Any) -> str:
    """Describes the shapes and dtypes of a batch.

    >>> described(np.zeros((2, 3), "float32"), None)
    'x (2, 3) float32'
    """
    words = []
    for name, part in (("x", x), ("y", y)):
        leaves = [leaf for leaf in keras.tree.flatten(part) if hasattr(leaf, "shape")]
        leaves_in_words = [f"{tuple(map(int, leaf.shape))} {dtype_of(leaf)}" for leaf in leaves]
        if leaves_in_words:
            words.append(f"{name} {', '.join(leaves_in_words)}")
    return "; ".join(words)
