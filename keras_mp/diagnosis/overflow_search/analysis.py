"""One step of a model, and what in it is not finite: causes, and what came of them."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np

from keras_mp.diagnosis.dry_run.observers import Site, every_step, observed_by
from keras_mp.diagnosis.dry_run.program import StepPrograms, observed_step
from keras_mp.diagnosis.dry_run.source_lines import definition
from keras_mp.diagnosis.dry_run.step import DryRun, ForwardPass
from keras_mp.diagnosis.dry_run.tensors import as_numpy, floats, is_finite, kind_of
from keras_mp.diagnosis.overflow_search.gradients import (
    Gradients,
    differentiate,
    eager_gradients,
    rerun,
)
from keras_mp.diagnosis.overflow_search.record import (
    CAST,
    FirstCauseError,
    LoopRecorder,
    Record,
    Recorder,
    Value,
)
from keras_mp.diagnosis.overflow_search.report import Finding, OverflowReport
from keras_mp.diagnosis.overflow_search.undefined import undefined
from keras_mp.float_formats import LARGEST
from keras_mp.graph_rewrite.tensors import dtype_of

_SCALING = "loss scale"
Found = tuple[Finding, Record | None]


@dataclass(frozen=True, eq=False)
class Analysis:
    """What is not finite in a step, and where each of it was computed.

    Attributes:
        report: What was found.
        found: Each finding with its record, or None.
        makers: The layers that made what the model returns.
        records: All ops of the forward pass.
    """

    report: OverflowReport
    found: tuple[Found, ...]
    makers: tuple[Any, ...]
    records: tuple[Record, ...] = ()

    @property
    def causes(self) -> list[Found]:
        """Those that do harm, and are no consequence of others."""
        return [(f, record) for f, record in self.found if f.cause and not f.harmless]


def analyse(dry_run: DryRun, programs: StepPrograms) -> Analysis:
    """Runs a step, records each op, differentiates, and tells causes from consequences.

    Args:
        dry_run: The step.
        programs: What was compiled for it at other loss scales; holds for the same layers only.
    """
    given = {"x": dry_run.x, "y": dry_run.y, "sample_weight": dry_run.sample_weight}
    given = {name: part for name, part in given.items() if part is not None}
    model = dry_run.model
    recorder = Recorder(model, given)
    out, program = observed_step(dry_run, recorder, programs)
    backward: list[Found] = []
    blamed: set[int] = set()
    if out.scaled_loss is not None and model.trainable_variables:
        if program is None:
            gradients = eager_gradients(dry_run, recorder)
        else:
            gradients = Gradients(recorder, program.of_variable, program.of_tensor)
        backward, blamed = _backward(recorder, gradients)
    ends = [*floats(out.outputs), out.loss, out.scaled_loss, *out.metrics.values()]
    harmful = blamed.union(*(_causes(recorder, end) for end in ends if end is not None))
    forward = list(_forward(recorder, harmful, dry_run.loss_scale, out))
    last = [found for found in forward if found[0].where == "metric"]
    before = [found for found in forward if found[0].where != "metric"]
    found = tuple(_without_repetitions((*before, *backward, *last)))
    found = _in_a_time_step(found, dry_run, given, out)
    loss = None if out.loss is None else float(as_numpy(out.loss))
    report = OverflowReport(
        findings=tuple(finding for finding, _ in found),
        loss=loss,
        loss_scale=dry_run.loss_scale,
        loss_finite_at_scale_1=None if loss is None else bool(np.isfinite(loss)),
    )
    made = [recorder.value(x) for x in floats(out.outputs)]
    makers = tuple(_makers(value) for value in made if value is not None)
    return Analysis(report, found, makers, tuple(recorder.records))


def _in_a_time_step(
    found: tuple[Found, ...], dry_run: DryRun, given: Any, out: ForwardPass
) -> tuple[Found, ...]:
    """Returns the findings with the op and the time step of the first, where its loop hid them."""
    causes = (i for i, (finding, _) in enumerate(found) if finding.cause and not finding.harmless)
    first = next(causes, None)
    finding, record = (None, None) if first is None else found[first]
    if first is None or finding is None or record is None or finding.where != "forward":
        return found
    layer = record.call.site.owner
    if not record.is_layer or not isinstance(layer, keras.layers.RNN):
        return found
    recorder = LoopRecorder(dry_run.model, given, layer)
    with contextlib.suppress(FirstCauseError), observed_by(recorder, dry_run.model), every_step():
        dry_run.run()
    if recorder.first is None:
        return found
    place = _cause(recorder.first, finding.harmless, dry_run.loss_scale, out)
    return (*found[:first], (place, recorder.first), *found[first + 1 :])


def _makers(value: Value) -> Any:
    """Returns the layer that made a value, or None."""
    return None if value.record is None else value.record.call.site.running


def _without_repetitions(found: Iterable[Found]) -> Iterator[Found]:
    """Yields one finding for those that a line has made several times, as in each time step."""
    alike: dict[Any, list[Found]] = {}
    for one in found:
        finding, _ = one
        key: Any = id(one)
        if finding.source is not None and finding.cause:
            where = finding.where, finding.layer, finding.op, finding.tensor
            key = (*where, finding.dtype, finding.harmless, finding.source)
        alike.setdefault(key, []).append(one)
    for several in alike.values():
        finding, record = several[0]
        if len(several) > 1:
            sizes = [other.largest for other, _ in several if other.largest is not None]
            largest = max(sizes, default=None)
            finding = replace(finding, times=len(several), largest=largest)
        yield finding, record


def _causes(recorder: Recorder, x: Any) -> frozenset[int]:
    value = recorder.value(x)
    if value is not None:
        return value.causes
    if isinstance(x, float):  # a metric as Keras 3.10 returns it
        metrics = [record for record in recorder.records if record.call.site.where == "metric"]
        bad = [v.causes for record in metrics for v in record.bad]
        return frozenset().union(*bad) if not np.isfinite(x) else frozenset()
    if not keras.ops.is_tensor(x) or is_finite(x) is not False:
        return frozenset()
    # Not seen how it came about: all that there is may have a part in it.
    return frozenset().union(*(value.causes for value in recorder.values()))


def _forward(
    recorder: Recorder, harmful: set[int], scale: float, out: ForwardPass
) -> Iterator[Found]:
    """Yields causes where they are, and after each layer that it returned a bad value."""
    affected: dict[int, list[tuple[Site, Value]]] = {}
    for until, site, value in recorder.affected:
        affected.setdefault(until, []).append((site, value))
    told: set[int] = set()
    for index in range(len(recorder.records) + 1):
        for site, value in affected.get(index, ()):
            made = value.record
            own = made is not None and made.is_cause and made.call.site.path == site.path
            if id(value) not in told and not own:
                told.add(id(value))
                finding = Finding(
                    "forward",
                    site.path,
                    site.class_name,
                    None,
                    "output",
                    dtype_of(value.tensor),
                    value.kind,
                    None,
                    cause=False,
                    harmless=not value.causes & harmful,
                    source=site.source,
                )
                yield finding, made
        if index < len(recorder.records) and recorder.records[index].is_cause:
            record = recorder.records[index]
            yield _cause(record, index not in harmful, scale, out), record


def _cause(record: Record, harmless: bool, scale: float, out: ForwardPass) -> Finding:
    site, op = record.call.site, record.call.op
    value = record.bad[0]
    dtype = dtype_of(value.tensor)
    note = ""
    if site.where in ("input", "weights"):
        numbers = as_numpy(value.tensor)
        bad = int((~np.isfinite(numbers)).sum())
        return Finding(
            site.where, site.path, "", None, "output", dtype, value.kind, None,
            harmless=harmless, note=f"{bad} of {numbers.size} values",
        )  # fmt: skip
    if site.path == _SCALING and out.loss is not None:
        largest = _largest(as_numpy(out.loss) * scale)
        note = f"the loss times {scale:.10g}"
    elif op == CAST:
        largest = _largest(as_numpy(record.sources[0].tensor))
        note = f"cast from {dtype_of(record.sources[0].tensor)}"
    elif note := undefined(record):
        largest = None
    else:
        again = rerun(record)
        largest = None if again is None else _largest(*again)
        constants = _constants_beyond(record, dtype)
        if constants:
            note = f"the constant {constants[0]:g} is {np.sign(constants[0]) * np.inf} in {dtype}"
    return Finding(
        site.where, site.path, site.class_name, op, "output", dtype, value.kind,
        largest, harmless=harmless, note=note, **_place(record),
    )  # fmt: skip


def _place(record: Record) -> dict[str, Any]:
    """Returns which line made a record, and in which time step."""
    call, line = record.call, record.call.source
    running = call.site.running
    runs = isinstance(running, keras.layers.Layer | keras.losses.Loss)
    if runs and (record.is_layer or line is None):  # Keras casts before the first line of `call`
        own = definition(getattr(running, "fn", type(running).call))
        line = own if own is not None and (own.is_of_user or line is None) else line
    return {"source": line, "time_step": call.time_step}


def _largest(*arrays: Any) -> float | None:
    """Returns the largest magnitude; nan is passed over, and None where there is nothing else."""
    sizes = [np.abs(array[~np.isnan(array)]) for array in map(np.asarray, arrays)]
    return max((float(size.max()) for size in sizes if size.size), default=None)


def _constants_beyond(record: Record, dtype: str) -> list[float]:
    """Returns finite numbers among the arguments that `dtype` does not have."""
    limit = LARGEST.get(dtype, np.inf)
    flat = keras.tree.flatten((record.call.args, record.call.kwargs))
    numbers = [float(x) for x in flat if isinstance(x, int | float | np.number)]
    return [x for x in numbers if np.isfinite(x) and abs(x) > limit]


def _backward(recorder: Recorder, gradients: Gradients) -> tuple[list[Found], set[int]]:
    """Returns the findings of the backward pass in its order, and the causes before it."""
    found: list[Found] = []
    blamed: set[int] = set()
    explained: set[int] = set()
    told: set[int] = set()
    for record in reversed(recorder.records):
        upstream = [gradients.of(value) for value in record.outputs]
        for value, gradient in zip(record.outputs, upstream, strict=True):
            if not _is_bad(gradient) or id(value) in explained:
                continue
            explained.add(id(value))
            later = [gradients.of(made) for user in value.users for made in user.outputs]
            if any(map(_is_bad, later)):
                continue
            causes = _causes_around(record, *value.users)
            blamed |= causes
            if not causes:
                found.append((_of_output(record, value, gradient, gradients), record))
        if all(g is None for g in upstream):
            continue
        # Sources and variables whose gradient is bad though that of what came of them is not.
        if not any(map(_is_bad, upstream)):
            causes = _causes_around(record)
            for finding, source in _handed_on(record, upstream, gradients, recorder.names):
                blamed |= causes
                if not causes:  # else a consequence of what the forward pass made there
                    found.append((finding, record))
                if source is not None:
                    explained.add(id(source))
        for value in record.sources:
            variable = value.tensor
            if isinstance(variable, keras.Variable):
                _add_consequence(variable, record, gradients, recorder.names, found, told)
        for variable in record.variables:
            _add_consequence(variable, record, gradients, recorder.names, found, told)
    return found, blamed


def _causes_around(*records: Record) -> set[int]:
    values = (value for record in records for value in (*record.sources, *record.outputs))
    return {cause for value in values for cause in value.causes}


def _handed_on(
    record: Record, upstream: Sequence[Any], gradients: Gradients, names: Mapping[int, str]
) -> Iterator[tuple[Finding, Value | None]]:
    """Yields what the backward pass of one op made of finite gradients."""
    suspects = [
        (i, value, *gradients.by(record, value))
        for i, value in enumerate(record.sources)
        if value.requires_gradient
    ]
    suspects = [suspect for suspect in suspects if _is_bad(suspect[2])]
    weights = [v for v in record.variables if _is_bad(gradients.of_variable.get(id(v)))]
    if not suspects and not weights:
        return
    site, op = record.call.site, record.call.op
    if op == CAST:
        _, value, gradient, _ = suspects[0]
        made = value.record
        # What computes in 16 bits is the one that cannot hold it.
        at = (record if made is None else made).call
        tensor = "gradient of its output" if made is not None else "gradient of its input"
        if isinstance(value.tensor, keras.Variable):
            tensor = f"gradient of {names.get(id(value.tensor), value.tensor.path)}"
        dtype = dtype_of(value.tensor)
        largest = _largest(*(as_numpy(g) for g in upstream if g is not None))
        op = CAST if made is not None else at.op
        yield Finding(
            "backward", at.site.path, at.site.class_name, op, tensor, dtype, kind_of(gradient),
            largest,
            note=f"cast from {dtype_of(record.outputs[0].tensor)}" if made is not None else "",
            **_place(record if made is None else made),
        ), value  # fmt: skip
        return
    again = None if record.has_custom_gradient else differentiate(record, upstream, weights)
    by_source, by_weight = again or ([None] * len(record.sources), [None] * len(weights))
    note = undefined(record, gradient=True)
    for i, value, gradient, alone in suspects:
        largest = None if by_source[i] is None else _largest(by_source[i])
        if (
            not alone
            and largest is not None
            and largest <= LARGEST.get(dtype_of(value.tensor), np.inf)
        ):
            continue  # another op's part is what is too large
        yield Finding(
            "backward", site.path, site.class_name, op, "gradient of its input",
            dtype_of(value.tensor), kind_of(gradient), None if note else largest, note=note,
            **_place(record),
        ), value  # fmt: skip
    for variable, array in zip(weights, by_weight, strict=True):
        gradient = gradients.of_variable[id(variable)]
        largest = None if array is None else _largest(array)
        dtype = dtype_of(record.outputs[0].tensor) if record.outputs else dtype_of(gradient)
        yield Finding(
            "backward", site.path, site.class_name, op,
            f"gradient of {names.get(id(variable), variable.path)}", dtype, kind_of(gradient),
            largest, **_place(record),
        ), None  # fmt: skip


def _of_output(record: Record, value: Value, gradient: Any, gradients: Gradients) -> Finding:
    """Returns the finding for a gradient that no single op has made so."""
    site = record.call.site
    parts = [gradients.by(user, value) for user in value.users]
    summed = [as_numpy(part) for part, alone in parts if alone and part is not None]
    largest = _largest(sum(summed)) if len(summed) == len(parts) > 1 else None
    note = f"sum of {len(value.users)} gradients" if len(value.users) > 1 else ""
    return Finding(
        "backward", site.path, site.class_name, record.call.op, "gradient of its output",
        dtype_of(value.tensor), kind_of(gradient), largest, note=note, **_place(record),
    )  # fmt: skip


def _add_consequence(
    variable: Any,
    record: Record,
    gradients: Gradients,
    names: Mapping[int, str],
    found: list[Found],
    told: set[int],
) -> None:
    """Adds that the gradient of a variable is bad, once, where that is a consequence."""
    gradient = gradients.of_variable.get(id(variable))
    if id(variable) in told or not _is_bad(gradient):
        return
    told.add(id(variable))
    name = f"gradient of {names.get(id(variable), variable.path)}"
    if any(finding.tensor == name for finding, _ in found):
        return
    kind, dtype = kind_of(gradient), dtype_of(gradient)
    path, class_name = record.call.site.path, record.call.site.class_name
    finding = Finding("backward", path, class_name, None, name, dtype, kind, None, cause=False)
    found.append((finding, record))


def _is_bad(gradient: Any) -> bool:
    return gradient is not None and is_finite(gradient) is False
