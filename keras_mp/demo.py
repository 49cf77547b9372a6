"""`make demo`: trains on handwritten digits in mixed_float16, saves, reloads, continues, migrates.

The data are scikit-learn's digits (1797 images of 8 x 8), which its wheel carries: no download.
"""

import argparse
import importlib.resources
import importlib.util
import json
import math
import os
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keras_mp.migration.help_format import Help

BACKENDS = ("jax", "tensorflow", "torch")  # smallest first
GOAL = 0.97


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns 0, 1 if the accuracy stays below 97 %, or 2 if it cannot run."""
    parser = argparse.ArgumentParser(
        prog="keras-mp demo",
        description="Train on handwritten digits in mixed precision.",
        formatter_class=Help,
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, help="default: KERAS_BACKEND, or the first that is installed"
    )
    parser.add_argument(
        "--epochs", type=_positive, default=20, help="epochs before the model is saved (default 20)"
    )
    parser.add_argument(
        "--output", type=Path, help="keep the .keras file, and what the loss scale did, here"
    )
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    missing = _choose_backend(arguments.backend) or _missing_packages()
    if missing:
        print(f"keras-mp demo: {missing}", file=sys.stderr)
        return 2
    if arguments.output:
        try:
            arguments.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            print(
                f"keras-mp demo: {arguments.output} cannot be a folder: {error.strerror}",
                file=sys.stderr,
            )
            return 2
        return _run(arguments.epochs, arguments.output)
    with tempfile.TemporaryDirectory() as folder:
        code = _run(arguments.epochs, Path(folder))
    print("\nnothing is kept; --output FOLDER keeps the .keras file, and what the loss scale did")
    return code


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, but got {text}")
    return int(text)


def _choose_backend(wanted: str | None) -> str | None:
    """Sets KERAS_BACKEND unless keras is imported; returns an error message, or None."""
    if "keras" in sys.modules:
        import keras

        running = str(keras.backend.backend())
        if wanted not in (None, running):
            return f"keras runs on {running} already; start a new process for {wanted}"
        return None
    chosen = wanted or os.environ.get("KERAS_BACKEND")
    if chosen is None:
        chosen = next((name for name in BACKENDS if importlib.util.find_spec(name)), "jax")
    if chosen not in BACKENDS:
        return f"KERAS_BACKEND is {chosen}; it must be one of {', '.join(BACKENDS)}"
    if importlib.util.find_spec(chosen) is None:
        return f"{chosen} is not installed: pip install 'keras-mp[{chosen}]'"
    os.environ["KERAS_BACKEND"] = chosen
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return None


def _missing_packages() -> str | None:
    packages = {"sklearn": "scikit-learn", "rich": "rich"}
    missing = [name for key, name in packages.items() if importlib.util.find_spec(key) is None]
    return f"{' and '.join(missing)} missing: pip install 'keras-mp[demo]'" if missing else None


def _run(epochs: int, folder: Path) -> int:
    import keras

    import keras_mp

    keras.utils.set_random_seed(0)
    (x, y), (x_test, y_test) = _digits()
    print(
        f"keras {keras.__version__} on {keras.backend.backend()}, keras_mp {keras_mp.__version__}"
    )
    print(f"{len(x)} images to train on, {len(x_test)} to test on\n")

    with keras_mp.policy_scope("mixed_float16"):
        model = _model(keras)
    # A short growth period, so that a demo gets to see the scale grow, overflow and fall.
    optimizer = keras_mp.LossScaleOptimizer(
        keras.optimizers.Adam(2e-3), dynamic_growth_steps=20, diagnose=True
    )
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    run = folder / "run"
    trace = _fit(keras, model, x, y, epochs, "training", run)
    accuracy = model.evaluate(x_test, y_test, verbose=0)[1]
    print(f"after {epochs} epochs:")
    _report(model, accuracy, trace)
    if (first := optimizer.first_overflow()) is not None:
        print(first)

    path = folder / "digits.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    print(
        f"\nsaved {path.name}, reloaded it: loss scale {float(loaded.optimizer.loss_scale):.7g}, "
        f"counter {int(loaded.optimizer.dynamic_counter)}, "
        f"iterations {int(loaded.optimizer.iterations)}"
    )
    more = max(1, epochs // 4)
    trace = _fit(keras, loaded, x, y, more, "continuing", run)
    accuracy = loaded.evaluate(x_test, y_test, verbose=0)[1]
    print(f"after {more} more epochs:")
    _report(loaded, accuracy, trace)
    _migrate()
    if accuracy < GOAL:
        print(f"\nthe accuracy is below {GOAL:.0%}: train for longer (--epochs)", file=sys.stderr)
        return 1
    return 0


def _digits() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = (x[order] / 16.0).astype("float32"), y[order].astype("int32")
    return (x[360:], y[360:]), (x[:360], y[:360])


def _model(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((64,)),
            layers.Reshape((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            # The last layer in float32, so that the loss is computed from float32 numbers.
            layers.Dense(10, activation="softmax", dtype="float32"),
        ]
    )


def _fit(keras: Any, model: Any, x: Any, y: Any, epochs: int, title: str, run: Path) -> Any:
    """Trains with a progress bar; returns the trace of the loss scale."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    import keras_mp

    monitor = keras_mp.LossScaleMonitor(run)
    batch = 64
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=epochs * math.ceil(len(x) / batch))

        class Watch(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, step: int, logs: Any = None) -> None:
                text = f"loss {logs['loss']:.3f}  accuracy {logs['accuracy']:.1%}"
                progress.update(task, advance=1, description=text)

        model.fit(x, y, batch_size=batch, epochs=epochs, verbose=0, callbacks=[monitor, Watch()])
    return monitor.trace


def _report(model: Any, accuracy: float, trace: Any) -> None:
    from keras_mp.monitor import drawing
    from keras_mp.rendering import terminal

    scale = float(model.optimizer.loss_scale)
    scales = [*trace.scales.tolist(), scale]
    print(f"test accuracy  {accuracy:.2%}")
    print(f"loss scale     {scale:.7g}  (started at {scales[0]:.7g})")
    print(f"skipped steps  {trace.skipped} of {len(trace)}")
    bars = terminal.to_text([drawing.chart(replace(trace, end=scale))])
    print(f"scale by step  {bars}  {min(scales):.7g} to {max(scales):.7g}, logarithmic")


def _migrate() -> None:
    from keras_mp.compat.configs import convert

    text = importlib.resources.files("keras_mp.migration").joinpath("example_tf23.json").read_text()
    old = json.loads(text)
    print("\nan optimizer config of TensorFlow 2.3:")
    print(_as_lines(old))
    print("and what `keras-mp migrate` makes of it:")
    print(_as_lines(convert(old, kind="optimizer", tf_version="2.3").config))


def _as_lines(value: object) -> str:
    return textwrap.fill(json.dumps(value), 96, initial_indent="  ", subsequent_indent="  ")


if __name__ == "__main__":
    sys.exit(main())
