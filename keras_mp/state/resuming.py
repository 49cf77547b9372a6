"""`resume`: continues a training from a weights file, whole or not at all."""

import os
from pathlib import Path
from typing import Any

import keras
from keras import ops

from keras_mp.array_types import Model
from keras_mp.backends import keras_hooks
from keras_mp.optimizer.errors import unwrapped
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.optimizer.widened import compile_anew, widen_as_noted

_ENDINGS = (".weights.h5", ".weights.json", ".keras")


def resume(model: Model, path: str | os.PathLike[str]) -> int:
    """Resumes a training from a weights file: weights, optimizer state, loss scale.

    `model.load_weights` is for fine-tuning: before the first step it restores the weights only.
    `resume` restores the whole training state, learning rate and step count included, or changes
    nothing and lists the mismatches. It needs memory for a copy of all variables.

    ```python
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.Adam(1e-3)), "mse")
    steps = keras_mp.resume(model, "epoch-07.weights.h5")
    model.fit(x, y, epochs=20, initial_epoch=steps // steps_per_epoch)
    ```

    Args:
        model: A built model, compiled with a `keras_mp.LossScaleOptimizer` around the same kind of
            optimizer, and with the same trainable variables, as the one that wrote the file.
        path: What `model.save_weights`, `keras.callbacks.ModelCheckpoint` or `model.save` wrote:
            a file whose name ends in ".weights.h5", ".weights.json" (with its shards) or ".keras".

    Returns:
        `iterations`: the optimizer steps taken so far.

    Raises:
        TypeError: The model is not compiled with a `keras_mp.LossScaleOptimizer`.
        FileNotFoundError: There is no such file.
        ValueError: The model is not built, or the file is of another kind; or weights, optimizer
            state or loss scale differ from the model's: the message lists all that do.

    >>> import tempfile
    >>> def compiled(rate):
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     model.compile(LossScaleOptimizer(keras.optimizers.Adam(rate)), "mse")
    ...     return model
    >>> first, again = compiled(0.5), compiled(0.25)
    >>> _ = first.fit(keras.ops.ones((6, 2)), keras.ops.ones((6, 1)), batch_size=2, verbose=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first.save_weights(f"{folder}/a.weights.h5")
    ...     resume(again, f"{folder}/a.weights.h5")
    3
    >>> float(again.optimizer.learning_rate.numpy())
    0.5
    """
    optimizer = _checked(model, path)
    optimizer.build(model.trainable_variables)
    differs: list[str] = []
    before = [(v, ops.copy(v.value)) for v in (*model.variables, *optimizer.variables)]
    loaded = False
    try:
        with optimizer._saved_state.noting_misfits() as misfits:
            try:
                model.load_weights(path)
            except ValueError as error:
                differs.append(str(error))
        differs += misfits
        loaded = not differs
    finally:
        if not loaded:
            _put_back(model, before)
    if differs:
        listed = "".join(f"\n- {each}" for each in differs)
        raise ValueError(
            f"Cannot resume {os.fspath(path)} in this model; no variable was changed. "
            f"Mismatches:{listed}\n"
            "To start a new training from the weights alone, call model.load_weights."
        )
    # By keras_mp.PrecisionRepair, in the training that is continued.
    if widen_as_noted(model, optimizer):
        compile_anew(model)
    return int(optimizer.iterations)


def _put_back(model: Model, values: list[tuple[Any, Any]]) -> None:
    for variable, value in values:
        variable.assign(value)
    for layer in keras_hooks.all_layers(model):
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()  # its constants are made from its variables


def _checked(model: Model, path: str | os.PathLike[str]) -> LossScaleOptimizer:
    optimizer = getattr(model, "optimizer", None)
    if not isinstance(optimizer, LossScaleOptimizer):
        found = "is not compiled: call model.compile(keras_mp.LossScaleOptimizer(...)) first"
        if optimizer is not None:
            found = f"is compiled with {unwrapped(optimizer)}"
        raise TypeError(
            "resume needs a model that is compiled with a keras_mp.LossScaleOptimizer, but "
            f"{getattr(model, 'name', model)!r} {found}."
        )
    name = os.fspath(path)
    if not name.endswith(_ENDINGS):
        raise ValueError(
            f"resume reads files whose names end in {', '.join(_ENDINGS)}, but got {name}. "
            "For checkpoints and files of tf.keras see keras_mp.compat.restore."
        )
    if "://" not in name and not Path(name).is_file():
        raise FileNotFoundError(f"There is no file {name} to resume from.")
    if not model.built:
        raise ValueError(
            f"Model {model.name!r} is not built, so it has no variables to restore. Call it on a "
            "batch first, or model.build(input_shape)."
        )
    return optimizer
