"""The names of an optimizer's variables in their order, and its keys in files, as text.

`KERAS_BACKEND=tensorflow python -m tests.golden_state` writes tests/data/golden (only TensorFlow
has object graphs). A removed or moved line breaks users' files.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from keras_mp import LossScaleMonitor, LossScaleOptimizer, SharedLossScale

FOLDER = Path(__file__).parent / "data" / "golden"
MAKERS: dict[str, Callable[[], Any]] = {
    "default": lambda: LossScaleOptimizer(keras.optimizers.Adam()),
    "fixed": lambda: LossScaleOptimizer(
        keras.optimizers.SGD(), dynamic=False, initial_scale=8.0, skip_nonfinite=False
    ),
    "hysteresis": lambda: LossScaleOptimizer(keras.optimizers.SGD(momentum=0.9), hysteresis=2),
    "runs": lambda: LossScaleOptimizer(keras.optimizers.SGD(), max_consecutive_skips=3),
    "diagnose": lambda: LossScaleOptimizer(keras.optimizers.SGD(), diagnose=True),
    "everything": lambda: LossScaleOptimizer(
        keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2),
        hysteresis=2,
        diagnose=True,
        max_consecutive_skips=3,
    ),
    "shared": lambda: SharedLossScale(
        *(LossScaleOptimizer(keras.optimizers.SGD()) for _ in range(2))
    ).optimizers[1],
}


def trained(name: str) -> Any:
    """Returns a model trained for two steps, then for two more with a monitor."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="dense")], name="model")
    model.compile(MAKERS[name](), "mse")
    x = keras.ops.ones((4, 2))
    model.fit(x, x[:, :1], batch_size=2, verbose=0)
    if name not in ("default", "fixed", "shared"):
        monitor = LossScaleMonitor(trace=True)
        model.fit(x, x[:, :1], batch_size=2, verbose=0, callbacks=[monitor])
    return model


def order(model: Any) -> list[str]:
    """Returns the names of the optimizer's variables, in their order."""
    return [variable.name for variable in model.optimizer.variables]


def in_file(model: Any) -> list[str]:
    """Returns the keys of the optimizer in a `.weights.h5` file."""
    import h5py

    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        model.save_weights(f"{folder}/a.weights.h5")
        with h5py.File(f"{folder}/a.weights.h5") as file:
            file["optimizer"].visititems(
                lambda key, value: found.append(key) if isinstance(value, h5py.Dataset) else None
            )
    return sorted(found)


def in_object_graph(model: Any) -> list[str]:
    """Returns the keys of the optimizer in a checkpoint of TensorFlow."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(optimizer=model.optimizer).write(f"{folder}/a")
        return sorted(name for name, _ in tf.train.list_variables(path))


def write() -> None:
    """Writes the three files, from TensorFlow."""
    FOLDER.mkdir(exist_ok=True)
    models = {name: trained(name) for name in MAKERS}
    for what in (order, in_file, in_object_graph):
        found = {name: what(model) for name, model in models.items()}
        text = json.dumps(found, indent=1) + "\n"
        (FOLDER / f"{what.__name__}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
