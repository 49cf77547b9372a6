"""`range_report`: how large the numbers of a model are, and what float16 would make of them."""

import contextlib
import copy
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras

from keras_mp.backends.common.generators import unchanged_generators
from keras_mp.batches import for_each
from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.dry_run.checks import check_model, checked_scale
from keras_mp.diagnosis.dry_run.layers import layers_of
from keras_mp.diagnosis.float32_layers import listed
from keras_mp.diagnosis.ranges import file, html, plotting
from keras_mp.diagnosis.ranges.advice import advise
from keras_mp.diagnosis.ranges.measuring import EXPONENTS, Measurement
from keras_mp.files.json_files import as_json
from keras_mp.rendering.text import pluralized

_SHOWN = 24  # rows of the table; `as_json` has all
_LONG = 2.0  # seconds after which a progress bar appears


class RangeReport:
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

    def policy_map(self, dtype: str | None = None) -> Any:
        """Returns the dtype policies that are advised, by layer.

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
        policies = keras.dtype_policies.DTypePolicyMap(f"mixed_{dtype}")
        if dtype == "float16":
            for path in self.advice.get("float32_paths", self.advice.get("float32_layers", ())):
                # A key is a pattern to Keras, and to 3.10 one that may match within a path.
                policies[f"^{re.escape(path)}$"] = keras.DTypePolicy("float32")
        return policies

    def as_json(self) -> dict[str, Any]:
        """Returns all of it as plain JSON, as `ranges.json` has it."""
        plain: dict[str, Any] = as_json(self._ranges)  # type: ignore[assignment]
        return plain

    def save(self, path: str | Path) -> None:
        """Writes it, whole or not at all.

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
        return plotting.plot_ranges(self.as_json(), path, dark=dark)

    def __repr__(self) -> str:
        return (
            f"<RangeReport of {self._ranges.get('model')!r}: {len(self.rows)} rows, "
            f"{self._ranges.get('steps')} steps, initial scale {self.initial_scale}>"
        )

    def _repr_html_(self) -> str:
        """Returns heat maps for a notebook, as SVG, the worst rows first."""
        worst = sorted(self.rows, key=_badness, reverse=True)
        return html.notebook_output(self.as_json(), worst)

    def __str__(self) -> str:
        ranges = self._ranges
        steps = pluralized(ranges.get("steps") or 0, "step")
        scale = f"{ranges['loss_scale']:.10g}"
        lines = [f"{ranges.get('model')}: {steps} at a loss scale of {scale}", ""]
        rows = sorted(self.rows, key=_badness, reverse=True)
        cells: list[tuple[str, ...]] = [
            (
                "values of",
                "kind",
                "dtype",
                "log2",
                "zeros",
                "lost",
                "few bits",
                "overflow",
                "inf, nan",
            )
        ]
        cells += [_cells(row, ranges["exponents"][0]) for row in rows[:_SHOWN]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        if len(rows) > _SHOWN:
            lines.append(f"and {len(rows) - _SHOWN} more")
        return "\n".join([*lines, "", *self.advice.get("text", ())])


def _badness(row: Mapping[str, Any]) -> tuple[float, ...]:
    half = row["float16"]
    return row["nans"] + row["infs"], half["overflow"], half["zero"], half["subnormal"]


def _cells(row: Mapping[str, Any], first: int) -> tuple[str, ...]:
    counts, half = row["histogram"], row["float16"]
    filled = [first + i for i, count in enumerate(counts) if count]
    span = f"{filled[0]} to {filled[-1]}" if filled else "-"
    zeros = row["zeros"] / row["count"] if row["count"] else 0.0
    bad = (row["infs"] + row["nans"]) / row["count"] if row["count"] else 0.0
    parts = [zeros, half["zero"], half["subnormal"], half["overflow"], bad]
    shares = ["-" if part == 0 else f"{part:.1%}" if part >= 0.001 else "<0.1%" for part in parts]
    return row["path"], row["kind"], row["dtype"], span, *shares


def range_report(
    model: Any,
    dataset: Any,
    steps: int | None = None,
    *,
    loss_scale: float | None = None,
    batch_size: int | None = None,
) -> RangeReport:
    """Measures activations, weights and gradients of a model, and what float16 makes of them.

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
    advice = advise(
        rows,
        owners,
        measurement.overflowing,
        measurement.largest_gradient,
        measurement.largest_loss,
        measurement.loss_finite,
    )
    advice["float32_paths"] = list(_keras_paths(model, advice["float32_layers"]))
    if advice["dtype"] == "float16":
        advice["text"] += _unreached(model, advice["float32_layers"])
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


def _keras_paths(model: Any, chosen: list[str]) -> Iterator[str]:
    """Yields what Keras looks policies up by, for layers and those that they are made of."""
    found = dict(layers_of(model))
    # A model is a container: that ops of its own overflow says nothing of its layers.
    whole = [path for path in chosen if not isinstance(found.get(path), keras.Model)]
    for path, layer in found.items():
        if path in chosen or any(path.startswith(f"{one}/") for one in whole):
            yield layer.path or layer.name
    # One that the model makes in its call is not among its layers, and has Keras' path already.
    yield from (path for path in chosen if path not in found)


def _unreached(model: Any, chosen: list[str]) -> Iterator[str]:
    """Yields which layers need a `dtype` of their own, as `policy_map` has no key for them."""
    parts = {part.path: part for part in layer_paths.parts(model)}
    without = [parts[path] for path in chosen if path in parts]
    paths = [part.whole_path for part in without if not layer_paths.has_path(part.layer)]
    if paths:
        yield (
            f"No key of that map reaches {listed(list(dict.fromkeys(paths)))}, as Keras gives such "
            "layers no path: write dtype='float32' where you make them."
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
