"""Measures how large activations, weights and their gradients are, batch by batch."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from keras_mp.backends.common.foreign_parts import Part, variable_names
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.diagnosis.dry_run.observers import Call, Observer, Site, observed_by, unobserved
from keras_mp.diagnosis.dry_run.program import Program, StepPrograms, observed_step
from keras_mp.diagnosis.dry_run.step import DryRun
from keras_mp.diagnosis.dry_run.tensors import (
    Perturber,
    TensorKey,
    as_numpy,
    floats,
    is_finite,
    numbers_of,
    zeros_like,
)
from keras_mp.diagnosis.ranges.magnitudes import FIRST, FORMATS, LAST, MagnitudeStatistics
from keras_mp.graph_rewrite.tensors import dtype_of, shape_of

_BACKOFF = 2.0**-4  # multiplies the loss scale until gradients are finite
_LOWEST = 2.0**-40


@dataclass(eq=False)
class _Row:
    path: str
    kind: str
    layer_class: str | None
    dtype: str
    magnitudes: MagnitudeStatistics = field(default_factory=MagnitudeStatistics)

    def to_dict(self) -> dict[str, Any]:
        found = self.magnitudes
        return {
            "path": self.path,
            "class": self.layer_class,
            "kind": self.kind,
            "dtype": self.dtype,
            "count": found.count,
            "zeros": found.zeros,
            "infs": found.infs,
            "nans": found.nans,
            "largest": found.largest,
            "smallest": found.smallest,
            "histogram": found.histogram.tolist(),
            **{form.name: found.fractions(form.name) for form in FORMATS},
        }


class _Outputs(Observer):
    """Takes each output of a layer once: that of a model is that of its last layer.

    Attributes:
        overflowing: (path, dtype that it computes in) of each call of a layer that made an inf or a
            nan of finite numbers, where none of the layers inside did.
        held: Not looked at.
    """

    def __init__(self, take: Callable[[Call, int, Any], None]) -> None:
        self.held: Mapping[int, Any] = {}
        self.overflowing: list[tuple[str, str]] = []
        self._take = take
        self._seen: dict[int, tuple[Any, bool]] = {}  # the tensor, and whether it is finite

    def note(self, call: Call, result: Any) -> None:
        """Does nothing: ops are not asked for."""

    def layer(self, call: Call) -> Any:
        before = len(self.overflowing)
        with unobserved():
            given = [self._is_finite(x) for x in floats(call.site.given, call.args, call.kwargs)]
        result = call.run()
        with unobserved():
            for i, x in enumerate(floats(result)):
                if id(x) not in self._seen:
                    self._take(call, i, x)
            made = [self._is_finite(x) for x in floats(result)]
        if all(given) and not all(made) and len(self.overflowing) == before:
            self.overflowing.append((call.site.path, call.site.owner.compute_dtype))
        return result

    def _is_finite(self, x: Any) -> bool:
        if id(x) not in self._seen:
            self._seen[id(x)] = (x, is_finite(x) is not False)
        return self._seen[id(x)][1]


class Measurement:
    """What was measured so far; memory does not grow with the batches.

    Args:
        model: A built and compiled `keras.Model`.
        loss_scale: What the loss is multiplied by.

    Attributes:
        steps: How many batches.
        largest_gradient: Of what float16 would hold or does hold, unscaled and finite; inf where
            there is no scale at which all are.
        largest_loss: Magnitude, unscaled.
        loss_finite: Whether every loss was.
        overflowing: Of layers that made an inf or a nan of finite numbers: by their path the dtype
            that they compute in.
        owners: (path, layer) by the name of each variable: its path, or, where several have that,
            the path of its layer and its own name.
        layers: Path of the layer, by the path of each part of a foreign module that was called.
    """

    def __init__(self, model: Any, loss_scale: float) -> None:
        self.model, self.loss_scale = model, loss_scale
        self.steps, self.largest_loss, self.loss_finite = 0, 0.0, True
        self.overflowing: dict[str, str] = {}
        owners = {
            id(v): (v, path, layer) for path, layer in layers_of(model) for v in layer.variables
        }
        names = variable_names(model)
        alike = Counter(names[key] for key in owners)
        self._names = {
            key: names[key] if alike[names[key]] == 1 else f"{path}/{v.name}"
            for key, (v, path, _) in owners.items()
        }
        self.layers: dict[str, str] = {}
        self._paths = {id(layer): path for path, layer in layers_of(model)}
        self.owners = {self._names[key]: (path, layer) for key, (_, path, layer) in owners.items()}
        self._rows: dict[tuple[str, str], _Row] = {}
        self._zeros: dict[TensorKey, Any] = {}
        self._programs = StepPrograms(model, with_ops=False)
        self._peaks = {"float16": 0.0, "other": 0.0}
        self._safe = loss_scale
        for variable in model.weights:
            if keras.backend.is_float_dtype(dtype_of(variable)):
                row = self._row(self._names[id(variable)], "weight", dtype_of(variable))
                row.magnitudes.add(keras.ops.convert_to_numpy(variable))

    @property
    def largest_gradient(self) -> float:
        """Of those computed in float16; of all where none is."""
        computes = any(
            row.dtype == "float16" for row in self._rows.values() if "gradient" in row.kind
        )
        return self._peaks["float16"] if computes else max(self._peaks.values())

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of `ranges.json`."""
        return [row.to_dict() for row in self._rows.values()]

    def add(self, x: Any, y: Any, sample_weight: Any) -> None:
        """Adds one batch."""
        dry_run = DryRun(self.model, x, y, sample_weight, loss_scale=self.loss_scale)
        outputs: dict[TensorKey, tuple[Site, Any]] = {}

        def take(call: Call, i: int, tensor: Any) -> None:
            outputs[TensorKey(call.key, "output", i)] = (call.site, tensor)
            if isinstance(call.site.owner, Part):
                self.layers[call.site.path] = self._paths[id(call.site.owner.layer)]

        with np.errstate(all="ignore"):
            observer = _Outputs(take)
            out, program = observed_step(dry_run, observer, self._programs, ops=False)
            self.overflowing.update(observer.overflowing)
            for key, (site, tensor) in list(outputs.items()):
                numbers = numbers_of(tensor)
                if numbers is None:
                    del outputs[key]
                    continue
                row = self._row(site.path, "activation", dtype_of(tensor), site.class_name)
                row.magnitudes.add(numbers)
            if out.scaled_loss is not None:
                self._note_loss(float(as_numpy(out.loss)))
                self._add_gradients(dry_run, outputs, program)
        self.steps += 1

    def _note_loss(self, loss: float) -> None:
        if np.isfinite(loss):
            self.largest_loss = max(self.largest_loss, abs(loss))
        else:
            self.loss_finite = False

    def _add_gradients(
        self,
        dry_run: DryRun,
        outputs: dict[TensorKey, tuple[Site, Any]],
        program: Program | None,
    ) -> None:
        as_program = program is not None and outputs.keys() <= program.of_tensor.keys()
        rows = []
        for key, (site, tensor) in outputs.items():
            kept = self._zeros.get(key)
            shape, dtype = shape_of(tensor), dtype_of(tensor)
            unlike = kept is None or tuple(kept.shape) != shape or kept.dtype != dtype
            if unlike and not as_program:
                self._zeros[key] = zeros_like(tensor)
            rows.append((site.path, "activation gradient", dtype, site.class_name))
        weights = list(self.model.trainable_variables)
        for variable in weights:
            name = self._names[id(variable)]
            _, layer = self.owners[name]
            dtype = layer.compute_dtype or variable.dtype
            rows.append((name, "weight gradient", dtype, type(layer).__name__))
        keys = list(outputs)
        outputs.clear()  # the tensors are not needed any more
        scale = self.loss_scale
        if not as_program:
            program = None
        found = self._gradients(dry_run, keys, weights, program)
        peaks = self._peaks_of(rows, found, scale)
        for row, array in zip(rows, found, strict=True):
            if array is not None:
                self._row(*row).magnitudes.add(array, scale)
        while float("inf") in peaks.values() and self.loss_finite and scale > _LOWEST:
            scale = min(scale * _BACKOFF, self._safe)
            dry_run.loss_scale = self._safe = scale
            if program is not None:
                program = self._programs.run(dry_run)
            peaks = self._peaks_of(rows, self._gradients(dry_run, keys, weights, program), scale)
        self._peaks = {name: max(peak, peaks[name]) for name, peak in self._peaks.items()}

    def _gradients(
        self, dry_run: DryRun, keys: list[TensorKey], weights: list[Any], program: Program | None
    ) -> list[Any]:
        if program is None:
            zeros = {key: self._zeros[key] for key in keys}
            added = list(zeros.values())
            observed = observed_by(Perturber(zeros), self.model, ops=False)
            found = dry_run.gradients([*added, *weights], added, observed)
        else:
            found = [program.of_tensor[key] for key in keys]
            found += [program.of_variable[id(variable)] for variable in weights]
        return [None if g is None else keras.ops.convert_to_numpy(g) for g in found]

    def _peaks_of(self, rows: list[Any], found: list[Any], scale: float) -> dict[str, float]:
        """Returns the largest unscaled magnitude by dtype; inf where one is not finite."""
        peaks = {"float16": 0.0, "other": 0.0}
        for row, array in zip(rows, found, strict=True):
            if array is None or not array.size:
                continue
            peak = float(np.abs(array).max()) / scale
            name = "float16" if row[2] == "float16" else "other"
            peaks[name] = max(peaks[name], peak if np.isfinite(peak) else float("inf"))
        return peaks

    def _row(self, path: str, kind: str, dtype: str, layer_class: str | None = None) -> _Row:
        if layer_class is None and path in self.owners:
            layer_class = type(self.owners[path][1]).__name__
        return self._rows.setdefault((path, kind), _Row(path, kind, layer_class, dtype))


EXPONENTS = (FIRST, LAST)
