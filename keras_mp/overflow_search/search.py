"""`find_overflow`: which layer is the first whose values leave the range of float16.

Runs one batch dry, records every op (`record.py`) and differentiates (`gradients.py`), or does all
of it in one program (`program.py`). Then tells causes from consequences.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_mp.backends.compiling import without_optimization
from keras_mp.backends.generators import unchanged_generators
from keras_mp.batches import one_batch
from keras_mp.dry_run.calls import Site
from keras_mp.dry_run.checks import check_model
from keras_mp.dry_run.observers import observed_by
from keras_mp.dry_run.program import run_as_program
from keras_mp.dry_run.step import DryRun, ForwardPass
from keras_mp.dry_run.tensors import as_numpy, floats, is_finite, kind_of
from keras_mp.float_formats import LARGEST
from keras_mp.graph_rewrite.rewritten import check_not_rewritten
from keras_mp.graph_rewrite.tensors import dtype_of
from keras_mp.overflow_search.finding import Finding
from keras_mp.overflow_search.float32_suggestions import with_cure
from keras_mp.overflow_search.gradients import (
    Gradients,
    differentiate,
    eager_gradients,
    rerun,
)
from keras_mp.overflow_search.record import CAST, Record, Recorder, Value
from keras_mp.overflow_search.report import OverflowReport

_SCALING = "loss scale"


def find_overflow(
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    loss_scale: float | None = None,
    training: bool = True,
) -> OverflowReport:
    """Runs one batch and names the first op whose values leave the range of their dtype.

    Forward pass, loss, regularizers, metrics and backward pass are computed as `fit` computes
    them, and the result of each op of each layer is looked at: one that makes an inf or a nan of
    finite numbers is a cause. The op is then computed again in float32, for how large the number
    would have been. Nothing changes: weights, moving statistics, seeds, metrics and the optimizer
    are as before, bit for bit.

    What a layer computes past Keras (`jax.numpy`, `tf.math`, `torch`), or inside a loop that the
    framework traces (LSTM on JAX), is seen as that layer's, without an op. A `train_step` of your
    own is not run: it is `model(x)`, `compute_loss` and `compute_metrics`.

    Where the forward pass overflows in float16, it searches again with these layers in float32, up
    to eight times, and proposes a `keras.dtype_policies.DTypePolicyMap` as Python code.

    Costs several eager steps and the memory of all values of the batch: take a small one. On JAX
    on a CPU it compiles one program for them.

    Args:
        model: A built `keras.Model`. Compiled, where `y` is given.
        x: One batch of inputs: an array, a tensor, or nested ones. Or what makes batches of inputs
            and targets, of which the first is taken: a `tf.data.Dataset`, a torch `DataLoader`, a
            `keras.utils.PyDataset`, a generator. A model with a preprocessor (a task of keras-hub)
            takes what its `fit` does, such as strings, and preprocesses it.
        y: Its targets; None for the forward pass only, and, where the model is compiled without a
            loss, the losses that layers add.
        sample_weight: Its weights.
        loss_scale: What the loss is multiplied by. None: the loss scale that the model's optimizer
            has now, or 1 where it has none.
        training: Whether layers are called as in training.

    Returns:
        An object with `first` (None where nothing overflows), `findings`, `loss`,
        `loss_finite_at_scale_1` and `as_json()`; `str()` of it is to be read. `float32_layers` are
        the layers that were tried in float32 (None where none was), `float32_layers.code()` the
        Python for it, `policy_map()` the map, and `then` what still overflows, or None.

    Raises:
        TypeError: `model` is no `keras.Model`.
        ValueError: The model is not built, or not compiled; the graph rewrite holds for it; the
            arrays have different lengths.

    >>> from keras import layers
    >>> planted = layers.Dense(2, kernel_initializer="ones", dtype="mixed_float16", name="planted")
    >>> model = keras.Sequential([keras.Input((4,)), planted, layers.Dense(1)], name="net")
    >>> found = find_overflow(model, np.full((1, 4), 30000.0))
    >>> print(str(found.first).partition(":")[2].strip())
    planted (Dense), op matmul, float16: largest magnitude 1.2e+05 (limit 65504)
    >>> find_overflow(model, np.ones((1, 4))).first is None
    True
    """
    check_model(model, compiled=y is not None)
    # What feeds the batch may draw random numbers, too.
    with unchanged_generators():
        batch = one_batch(model, x, y, sample_weight)
    return find_in_batch(model, *batch, loss_scale=loss_scale, training=training)


def find_in_batch(
    model: Any,
    x: Any,
    y: Any,
    sample_weight: Any,
    *,
    loss_scale: float | None = None,
    training: bool = True,
) -> OverflowReport:
    """Does what `find_overflow` does with a batch that `model(x)` takes as it is."""
    dry_run = DryRun(model, x, y, sample_weight, loss_scale=loss_scale, training=training)
    check_not_rewritten(model)
    given = {"x": dry_run.x, "y": dry_run.y, "sample_weight": dry_run.sample_weight}
    given = {name: part for name, part in given.items() if part is not None}
    with np.errstate(all="ignore"), without_optimization():
        report = _search(dry_run, given)
        if report.first is None:
            return report
        return with_cure(report, model, lambda: _search(dry_run, given))


def _search(dry_run: DryRun, given: Any) -> OverflowReport:
    model = dry_run.model
    recorder = Recorder(model.variables, given)
    program = run_as_program(dry_run)
    if program is None:
        with observed_by(recorder, model):
            out = dry_run.run(metrics=True)
    else:
        out = program.out
        program.replay(recorder)
    backward: list[Finding] = []
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
    last = [found for found in forward if found.where == "metric"]
    before = [found for found in forward if found.where != "metric"]
    loss = None if out.loss is None else float(as_numpy(out.loss))
    return OverflowReport(
        findings=(*before, *backward, *last),
        loss=loss,
        loss_scale=dry_run.loss_scale,
        loss_finite_at_scale_1=None if loss is None else bool(np.isfinite(loss)),
    )


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
) -> Iterator[Finding]:
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
                yield Finding(
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
                )
        if index < len(recorder.records) and recorder.records[index].is_cause:
            yield _cause(recorder.records[index], index not in harmful, scale, out)


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
    else:
        again = rerun(record)
        largest = None if again is None else _largest(*again)
        constants = _constants_beyond(record, dtype)
        if constants:
            note = f"the constant {constants[0]:g} is {np.sign(constants[0]) * np.inf} in {dtype}"
    return Finding(
        site.where, site.path, site.class_name, op, "output", dtype, value.kind,
        largest, harmless=harmless, note=note,
    )  # fmt: skip


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


def _backward(recorder: Recorder, gradients: Gradients) -> tuple[list[Finding], set[int]]:
    """Returns the findings of the backward pass in its order, and the causes before it."""
    found: list[Finding] = []
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
                found.append(_of_output(record, value, gradient, gradients))
        if all(g is None for g in upstream):
            continue
        # Sources and variables whose gradient is bad though that of what came of them is not.
        if not any(map(_is_bad, upstream)):
            causes = _causes_around(record)
            for finding, source in _handed_on(record, upstream, gradients):
                blamed |= causes
                if not causes:  # else a consequence of what the forward pass made there
                    found.append(finding)
                if source is not None:
                    explained.add(id(source))
        for value in record.sources:
            variable = value.tensor
            if isinstance(variable, keras.Variable):
                _add_consequence(variable, record, gradients, found, told)
        for variable in record.variables:
            _add_consequence(variable, record, gradients, found, told)
    return found, blamed


def _causes_around(*records: Record) -> set[int]:
    values = (value for record in records for value in (*record.sources, *record.outputs))
    return {cause for value in values for cause in value.causes}


def _handed_on(
    record: Record, upstream: Sequence[Any], gradients: Gradients
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
            tensor = f"gradient of {value.tensor.path}"
        dtype = dtype_of(value.tensor)
        largest = _largest(*(as_numpy(g) for g in upstream if g is not None))
        op = CAST if made is not None else at.op
        yield Finding(
            "backward", at.site.path, at.site.class_name, op, tensor, dtype, kind_of(gradient),
            largest,
            note=f"cast from {dtype_of(record.outputs[0].tensor)}" if made is not None else "",
        ), value  # fmt: skip
        return
    again = None if record.has_custom_gradient else differentiate(record, upstream, weights)
    by_source, by_weight = again or ([None] * len(record.sources), [None] * len(weights))
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
            dtype_of(value.tensor), kind_of(gradient), largest,
        ), value  # fmt: skip
    for variable, array in zip(weights, by_weight, strict=True):
        gradient = gradients.of_variable[id(variable)]
        largest = None if array is None else _largest(array)
        dtype = dtype_of(record.outputs[0].tensor) if record.outputs else dtype_of(gradient)
        yield Finding(
            "backward", site.path, site.class_name, op,
            f"gradient of {variable.path}", dtype, kind_of(gradient), largest,
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
        dtype_of(value.tensor), kind_of(gradient), largest, note=note,
    )  # fmt: skip


def _add_consequence(
    variable: Any, record: Record, gradients: Gradients, found: list[Finding], told: set[int]
) -> None:
    """Adds that the gradient of a variable is bad, once, where that is a consequence."""
    gradient = gradients.of_variable.get(id(variable))
    if id(variable) in told or not _is_bad(gradient):
        return
    told.add(id(variable))
    name = f"gradient of {variable.path}"
    if any(finding.tensor == name for finding in found):
        return
    kind, dtype = kind_of(gradient), dtype_of(gradient)
    path, class_name = record.call.site.path, record.call.site.class_name
    found.append(Finding("backward", path, class_name, None, name, dtype, kind, None, cause=False))


def _is_bad(gradient: Any) -> bool:
    return gradient is not None and is_finite(gradient) is False
