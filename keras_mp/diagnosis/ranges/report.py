"""`range_report`: how large the numbers of a model are, and what float16 would make of them."""

import contextlib
import copy
import dataclasses
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_mp.backends.common.generators import unchanged_generators
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.batches import for_each
from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.dry_run.step import check_model, checked_scale
from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.diagnosis.ranges import drawing, file
from keras_mp.diagnosis.ranges.advice import advise
from keras_mp.diagnosis.ranges.measuring import EXPONENTS, Measurement
from keras_mp.files.json_files import json_values
from keras_mp.rendering import pictures
from keras_mp.rendering.model import Part, Renderable, Text
from keras_mp.rendering.text import pluralized

_SHOWN = 32  # rows of the table; `rows` has all
_LONG = 2.0  # seconds after which a progress bar appears


class RangeReport(Renderable):
    """What `range_report` measured.

    Args:
        ranges: The content of a `ranges.json`.

    Raises:
        ValueError: It is none; says where, and what was found.
    """

    def __init__(self, ranges: Mapping[str, Any]) -> None:
        file.check_ranges(ranges)
        file.check_measured(ranges)
        self._ranges = copy.deepcopy(dict(ranges))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Dicts with "path", "kind", "dtype", "count", "largest", "histogram", "float16", ...

        "kind" is "activation", "activation gradient", "weight" or "weight gradient". Gradients
        are unscaled. "float16" and "bfloat16" hold the fractions of numbers (zeros and nans left
        out) that round to "zero", to a "subnormal" number and to infinity ("overflow") there, of
        gradients at the current loss scale.
        """
        rows: list[dict[str, Any]] = self._ranges["rows"]
        return rows

    @property
    def advice(self) -> dict[str, Any]:
        """A dict with "initial_scale", "dtype", "float32_layers" and "text"."""
        advice: dict[str, Any] = self._ranges.get("advice", {})
        return advice

    @property
    def initial_scale(self) -> float | None:
        """The largest power of two at which no gradient overflows, less two doublings."""
        scale: float | None = self.advice.get("initial_scale")
        return scale

    @property
    def float32_layers(self) -> Float32Layers:
        """The layers that need float32 beside float16 layers, as code."""
        advice = self.advice
        if "float32" in advice:
            return Float32Layers.of(advice["float32"])
        # Written before there was one kind of advice.
        paths = advice.get("float32_paths", advice.get("float32_layers", ()))
        policies = tuple((f"^{re.escape(path)}$", "float32") for path in paths)
        return Float32Layers("mixed_float16", tuple(paths), policies)

    def policy_map(self, dtype: str | None = None) -> Any:
        """Returns the advice as a `keras.dtype_policies.DTypePolicyMap`.

        Set it with `keras_mp.set_global_policy` and build the model again. Layers are found by
        their names then: give names to layers and model, as Keras counts its own up.

        Args:
            dtype: "float16": the layers that are advised compute in float32; "bfloat16": all
                compute in that; None: what is advised.

        Returns:
            A `keras.dtype_policies.DTypePolicyMap`.

        Raises:
            ValueError: Another dtype.
        """
        dtype = self.advice.get("dtype", "float16") if dtype is None else dtype
        if dtype not in ("float16", "bfloat16"):
            raise ValueError(f'dtype must be "float16" or "bfloat16", but is {dtype!r}.')
        if dtype == "bfloat16":
            return Float32Layers("mixed_bfloat16").policy_map()
        return self.float32_layers.policy_map()

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON, as `ranges.json` has it."""
        return dict(json_values(self._ranges))

    def save(self, path: str | Path) -> None:
        """Writes it atomically.

        Args:
            path: A file that ends in .json; or a folder, which is made if it is not there, in which
                it is `ranges.json`.

        Raises:
            OSError: It cannot be written; what was there is as it was.
        """
        file.write_ranges(path, self._ranges)

    @classmethod
    def load(cls, path: str | Path) -> "RangeReport":
        """Reads what `save` wrote.

        Raises:
            ValueError: The file is none, or of a later version; names it.
            OSError: It cannot be read.
        """
        ranges = file.read_ranges(path)
        file.check_measured(ranges, str(path))
        return cls(ranges)

    def plot(self, path: str | Path | None = None, *, dark: bool = False) -> Any:
        """Returns a `matplotlib.figure.Figure` of the histograms, a heat map.

        Args:
            path: A .png, .svg or .pdf to write, too.
            dark: For a dark page.

        Raises:
            ImportError: matplotlib is not there: pip install 'keras-mp[plot]'.
        """
        return pictures.draw(drawing.chart(self.to_dict()), path, dark=dark)

    def _parts(self) -> Iterator[Part]:
        ranges = self._ranges
        steps = pluralized(ranges.get("steps") or 0, "step")
        yield Text(
            f"{ranges.get('model')}: {steps} at a loss scale of {ranges['loss_scale']:.10g}",
            "title",
        )
        yield from map(Text, self.advice.get("text", ()))
        if self.advice.get("dtype") == "float16":
            yield from self.float32_layers.parts()
        worst = sorted(self.rows, key=_badness, reverse=True)
        yield from drawing.parts(self.to_dict(), worst, most=_SHOWN, rest="rows")


def _badness(row: Mapping[str, Any]) -> tuple[float, ...]:
    half = row["float16"]
    return row["nans"] + row["infs"], half["overflow"], half["zero"], half["subnormal"]


def range_report(
    model: Any,
    dataset: Any,
    steps: int | None = None,
    *,
    loss_scale: float | None = None,
    batch_size: int | None = None,
) -> RangeReport:
    """Measures how float16 and bfloat16 represent activations, weights and gradients.

    Each batch is run forward and backward as `fit` does it, at the loss scale and in the dtypes
    that the model has, and its numbers are counted by power of two; none is kept. Where gradients
    overflow, the batch is run again at lower scales, for how large they are. A float32 model is
    measured as it is: what float16 would do to its numbers is in the fractions. Nothing changes:
    weights, moving statistics, seeds, metrics and the optimizer are as before.

    Args:
        model: A built and compiled `keras.Model`.
        dataset: (x, y) or (x, y, sample_weight) of arrays; a `tf.data.Dataset`, a torch
            `DataLoader`, a `keras.utils.PyDataset`, a generator of batches: what `fit` takes. A
            model with a preprocessor (a task of keras-hub) takes what that does, such as strings.
        steps: At most so many batches; None for all, once.
        loss_scale: What the loss is multiplied by. None: the loss scale that the model's optimizer
            has now, or 1 where it has none.
        batch_size: Of arrays; 32 if None.

    Returns:
        A `RangeReport`: `rows`, `advice`, `initial_scale`, `policy_map()`, `save(path)`, `plot()`;
        `str()` of it is a table, the worst first.

    Raises:
        TypeError: `model` is no `keras.Model`.
        ValueError: The model is not built or not compiled; there is no batch; a bad `steps`.

    >>> dense = keras.layers.Dense(1, kernel_initializer="ones", name="out")
    >>> model = keras.Sequential([keras.Input((4,)), dense], name="net")
    >>> model.compile("sgd", "mse")
    >>> report = range_report(model, (keras.ops.ones((8, 4)), keras.ops.zeros((8, 1))))
    >>> [row["largest"] for row in report.rows if row["kind"] == "weight gradient"]
    [8.0, 8.0]
    >>> report.initial_scale
    1024.0
    """
    check_model(model, compiled=True)
    scale = checked_scale(model, loss_scale)
    measurement = Measurement(model, scale)
    # What feeds the batches may draw random numbers, too.
    with unchanged_generators(), _progress(steps) as advance:

        def take(x: Any, y: Any, sample_weight: Any) -> None:
            measurement.add(x, y, sample_weight)
            advance()

        for_each(model, dataset, take, steps, batch_size)
    rows = measurement.rows()
    owners = {variable: path for variable, (path, _) in measurement.owners.items()}
    owners |= measurement.layers
    advice = advise(
        rows,
        owners,
        measurement.overflowing,
        measurement.largest_gradient,
        measurement.largest_loss,
        measurement.loss_finite,
    )
    # No policy reaches a part of a foreign module: the layer around it is to compute in float32.
    chosen = [measurement.layers.get(path, path) for path in advice["float32_layers"]]
    advice["float32"] = _float32_layers(model, list(dict.fromkeys(chosen))).to_dict()
    return RangeReport(
        {
            "format": file.FORMAT,
            "version": file.VERSION,
            "model": model.name,
            "backend": keras.backend.backend(),
            "loss_scale": scale,
            "steps": measurement.steps,
            "exponents": list(EXPONENTS),
            "rows": rows,
            "advice": advice,
        }
    )


def _float32_layers(model: Any, chosen: list[str]) -> Float32Layers:
    found = dict(layers_of(model))
    # A model is a container: that ops of its own overflow says nothing of its layers.
    layers = [
        found[path] for path in chosen if path in found and not isinstance(found[path], keras.Model)
    ]
    advised = layer_paths.float32_layers(model, layers, optimizer=model.optimizer)
    # One that the model makes in its call is not among its layers, and has Keras' path already.
    made = [path for path in chosen if path not in found]
    policies = ((f"^{re.escape(path)}(/.*)?$", "float32") for path in made)
    return dataclasses.replace(
        advised,
        layers=(*advised.layers, *made),
        policies=(*advised.policies, *policies),
    )


@contextlib.contextmanager
def _progress(total: int | None) -> Iterator[Any]:
    """Yields what to call after each step; shows a bar on a terminal where that takes long."""
    bar: Any = None
    began = time.monotonic()
    done = 0

    def advance() -> None:
        nonlocal bar, done
        done += 1
        if bar is None and sys.stderr.isatty() and time.monotonic() - began > _LONG:
            bar = _bar(total)
        if bar:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if bar:
            bar.stop()


def _bar(total: int | None) -> Any:
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        return False
    bar = Progress(console=Console(stderr=True), transient=True)
    bar.add_task("range report", total=total)
    bar.start()
    return bar
