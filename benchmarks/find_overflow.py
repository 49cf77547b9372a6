"""What `find_overflow` and `range_report` take on a small GPT-2, ResNet and ViT.

python benchmarks/find_overflow.py [--backends BACKEND ...] [--models MODEL ...] [--blocks N]
    [--width N] [--repeat N] [--json FILE]

Each model computes in mixed_float16, and nothing in it overflows, so that the whole step is looked
at. Printed are the seconds of the first search, of a second one (the median of `--repeat`), and of
one after a process has searched another model, in which some is compiled already; then those of the
first report, and of a second one. The aims are 3 seconds for the first search and 2 for the first
report. On JAX, how many programs were compiled in each.
"""

import argparse
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import running
from benchmarks.running import versions

AIMS = {"search": 3.0, "report": 2.0}
CLASSES = 10
SIDE = 32  # of an image, in pixels; and tokens of a sentence
VOCABULARY = 1000


def block(x: Any, width: int, causal: bool) -> Any:
    from keras import layers

    y = layers.LayerNormalization()(x)
    y = layers.MultiHeadAttention(4, width // 4, dropout=0.1)(y, y, use_causal_mask=causal)
    x = layers.Add()([x, layers.Dropout(0.1)(y)])
    y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
    return layers.Add()([x, layers.Dropout(0.1)(layers.Dense(width)(y))])


def positions(x: Any, width: int) -> Any:
    import keras

    class Position(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=(shape[1], width), name="table")

        def call(self, x: Any) -> Any:
            return x + self.table

    return Position(name="position")(x)


def gpt2(blocks: int, width: int) -> Any:
    import keras
    from keras import layers

    inputs = keras.Input((SIDE,), dtype="int32")
    x = positions(layers.Embedding(VOCABULARY, width)(inputs), width)
    for _ in range(blocks):
        x = block(x, width, causal=True)
    x = layers.LayerNormalization()(x)
    return keras.Model(inputs, layers.Dense(VOCABULARY, dtype="float32")(x), name="gpt2")


def vit(blocks: int, width: int) -> Any:
    import keras
    from keras import layers

    inputs = keras.Input((SIDE, SIDE, 3))
    x = layers.Rescaling(1 / 255)(inputs)
    x = layers.Conv2D(width, 8, strides=8)(x)
    x = positions(layers.Reshape((16, width))(x), width)
    for _ in range(blocks):
        x = block(x, width, causal=False)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(CLASSES, dtype="float32")(x), name="vit")


def resnet(blocks: int, width: int) -> Any:
    import keras
    from keras import layers

    def normed(x: Any, filters: int, size: int, strides: int) -> Any:
        x = layers.Conv2D(filters, size, strides=strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    inputs = keras.Input((SIDE, SIDE, 3))
    x = layers.ReLU()(normed(inputs, width, 3, 1))
    for stage in range(blocks):
        filters = width * 2**stage
        for strides in (1 if stage == 0 else 2, 1):
            y = layers.ReLU()(normed(x, filters, 3, strides))
            y = normed(y, filters, 3, 1)
            if strides > 1:
                x = normed(x, filters, 1, strides)
            x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, dtype="float32")(x), name="resnet")


MODELS: dict[str, Callable[[int, int], Any]] = {"gpt2": gpt2, "resnet": resnet, "vit": vit}


def batch_of(model: Any) -> tuple[Any, Any]:
    random = np.random.RandomState(0)
    shape = (2, *model.inputs[0].shape[1:])
    if "int" in model.inputs[0].dtype:
        x = random.randint(0, VOCABULARY, shape).astype("int32")
    else:
        x = random.uniform(0, 1, shape).astype("float32")
    outputs = model.outputs[0].shape
    return x, random.randint(0, outputs[-1], (2, *outputs[1:-1])).astype("int32")


class _Count(logging.Handler):
    number = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.number += record.getMessage().startswith("Compiling")


@contextmanager
def compiled() -> Iterator[_Count]:
    """A scope that counts what JAX compiles; 0 on other backends."""
    import keras

    counter = _Count()
    if keras.backend.backend() != "jax":
        yield counter
        return
    import jax

    logger = logging.getLogger("jax")
    before = logger.propagate
    logger.addHandler(counter)
    logger.propagate = False
    try:
        with jax.log_compiles():
            yield counter
    finally:
        logger.propagate = before
        logger.removeHandler(counter)


def search(model: Any, x: Any, y: Any) -> tuple[float, int]:
    """Returns the seconds that a search takes, and how many programs it compiled."""
    import keras_mp

    with compiled() as counter:
        began = time.perf_counter()
        found = keras_mp.find_overflow(model, x, y, loss_scale=1.0)
        seconds = time.perf_counter() - began
    if found.first is not None:
        raise RuntimeError(f"{model.name}: {found.first}")
    return seconds, counter.number


def report(model: Any, x: Any, y: Any) -> tuple[float, int]:
    """Returns the seconds that a report on the same batch takes, and what it compiled."""
    import keras_mp

    with compiled() as counter:
        began = time.perf_counter()
        keras_mp.range_report(model, (x, y), loss_scale=1.0)
        return time.perf_counter() - began, counter.number


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import keras

    keras.utils.set_random_seed(0)
    model = MODELS[name](options.blocks, options.width)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    x, y = batch_of(model)
    found: dict[str, Any] = {"model": name, "variables": len(model.trainable_variables)}
    for tool, run in (("search", search), ("report", report)):
        taken = [run(model, x, y) for _ in range(1 + options.repeat)]
        again = [statistics.median(times) for times in zip(*taken[1:], strict=True)]
        found[tool] = {"first": taken[0], "again": again}
    return found


def inside(options: argparse.Namespace) -> dict[str, Any]:
    """Measures one model, or all of them in turn, on the backend of this process."""
    import keras

    keras.config.set_dtype_policy("mixed_float16")
    backend = keras.backend.backend()
    return {
        "backend": backend,
        "versions": versions(backend, f"{backend}-cpu"),
        "times": [measure(name, options) for name in options.models],
    }


def show(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    print(f"\n{found['backend']}: {versions}")
    for i, row in enumerate(found["times"]):
        for tool, aim in AIMS.items():
            (first, programs), (again, few) = row[tool]["first"], row[tool]["again"]
            over = f"  aim {aim:g}{', above' if first > aim else ''}" if i == 0 else ""
            more = f"  programs {programs}, then {few:g}" if programs else ""
            print(
                f"  {row['model']:8}{row['variables']:4} variables, {tool}  {first:6.2f} s, then "
                f"{again:.2f} s{more}{over}"
            )


def settings(options: argparse.Namespace) -> str:
    return f"{', '.join(options.models)}; {options.blocks} blocks, width {options.width}"


def main() -> int:
    parser = running.parser(__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--blocks", type=int, default=4, help="or stages of two, of the ResNet")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    return running.command(__file__, parser, inside, show, settings)


if __name__ == "__main__":
    raise SystemExit(main())
