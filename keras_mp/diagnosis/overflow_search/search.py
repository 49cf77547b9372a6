"""`find_overflow`: which layer is the first whose values leave the range of float16.

Runs one batch dry, records every op (`record.py`) and differentiates (`gradients.py`), or does all
of it in one program (`program.py`). Then tells causes from consequences (`analysis.py`), tries what
cures it (`float32_suggestions.py`), and which loss scale is too high, by powers of two.
"""

import contextlib
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from keras_mp.backends.common.compiling import without_optimization
from keras_mp.backends.common.generators import unchanged_generators
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.batches import one_batch
from keras_mp.diagnosis.dry_run.program import StepPrograms, run_as_program
from keras_mp.diagnosis.dry_run.step import DryRun, check_model
from keras_mp.diagnosis.dry_run.tensors import is_finite
from keras_mp.diagnosis.overflow_search.analysis import analyse
from keras_mp.diagnosis.overflow_search.float32_suggestions import with_cure
from keras_mp.diagnosis.overflow_search.report import OverflowReport
from keras_mp.graph_rewrite.rewritten import check_not_rewritten


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
    are as before, bit for bit. What metrics have summed up before is no part of the search.

    Each finding has the line of source code that computes it: the innermost of your code, or, where
    there is none, of the layer or loss in Keras. A gradient has the line of the forward pass. What
    time steps of a recurrent layer have in common is one finding.

    What a layer computes past Keras (`jax.numpy`, `tf.math`, `torch`), or inside a loop that the
    framework traces, is seen as that layer's, without an op. JAX traces the loops of recurrent
    layers of more than 10 steps; there it looks at the steps of the first cause only, where that is
    in the forward pass. A `train_step` of your own is not run: it is `model(x)`, `compute_loss` and
    `compute_metrics`.

    Remedies are tried on the batch before they are told:

    - Layers, losses and metrics in float32. It searches again up to eight times, and proposes a
      `keras.dtype_policies.DTypePolicyMap` as Python code.
    - A line that casts to float16 itself, in float32: there no policy helps.
    - A larger epsilon, where float16 has rounded one to 0.
    - `from_logits=True`, where a sigmoid or softmax stands before a crossentropy.
    - A lower loss scale, where only gradients overflow.

    Where nothing overflows, and the optimizer is a `LossScaleOptimizer`, it tries which higher loss
    scale would be the first that is too high, up to 65536 times that of now.

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
        `loss_finite_at_scale_1` and `to_dict()`; `str()` of it is to be read. `first.source` is the
        line, with `file`, `line`, `function` and `code`. `float32_layers` are the layers that were
        tried in float32 (None where none was), `float32_layers.code()` the Python for it,
        `policy_map()` the map, and `then` what still overflows, or None. `remedies` are the others,
        each with `kind`, `text` and `then`; `error` is what a trial raised. `fitting_scale` is the
        lower loss scale that fits, `next_scale` the higher one that does not, and `at_next_scale`
        what overflows there.

    Raises:
        TypeError: `model` is no `keras.Model`.
        ValueError: The model is not built, or not compiled; the graph rewrite holds for it; the
            arrays have different lengths.

    >>> import keras
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
    with np.errstate(all="ignore"), without_optimization():
        programs = StepPrograms(model)
        analysis = analyse(dry_run, programs)
        if analysis.report.first is None:
            return with_next_scale(analysis.report, dry_run, programs)
        report = with_fitting_scale(analysis.report, dry_run, programs)
        return with_cure(replace(analysis, report=report), dry_run)


_DOUBLINGS = 16


def with_next_scale(
    report: OverflowReport, dry_run: DryRun, programs: StepPrograms
) -> OverflowReport:
    """Returns the report of a batch without overflow with the first scale that is too high.

    Only where the optimizer has a loss scale that may grow, and some layer computes in float16.

    Args:
        report: What was found at the scale of now.
        dry_run: The batch.
        programs: What was compiled for it.
    """
    model = dry_run.model
    scales = isinstance(getattr(model, "optimizer", None), keras.optimizers.LossScaleOptimizer)
    float16 = any(layer.compute_dtype == "float16" for _, layer in layers_of(model))
    if report.loss is None or report.findings or not scales or not float16:
        return report
    doublings = _first(lambda n: not _fits(dry_run, programs, report.loss_scale * 2**n))
    if doublings is None:
        return report
    scale = report.loss_scale * 2**doublings
    found = analyse(_at(dry_run, scale), programs).report.first
    return report if found is None else replace(report, next_scale=scale, at_next_scale=found)


def with_fitting_scale(
    report: OverflowReport, dry_run: DryRun, programs: StepPrograms
) -> OverflowReport:
    """Returns the report with the largest scale that fits, where only gradients overflow.

    Args:
        report: What was found at the scale of now.
        dry_run: The batch.
        programs: What was compiled for it.
    """
    causes = [found for found in report.findings if found.cause and not found.harmless]
    if report.loss_scale <= 1 or not causes or any(f.where != "backward" for f in causes):
        return report
    halvings = _first(
        lambda n: _fits(dry_run, programs, max(report.loss_scale / 2**n, 1.0)),
        most=max(1, round(report.loss_scale).bit_length() - 1),
    )
    if halvings is None:
        return report
    return replace(report, fitting_scale=max(report.loss_scale / 2**halvings, 1.0))


def _at(dry_run: DryRun, scale: float) -> DryRun:
    other = copy.copy(dry_run)
    other.loss_scale = scale
    return other


def _fits(dry_run: DryRun, programs: StepPrograms, scale: float) -> bool:
    """Returns whether all gradients of the weights are finite: whether the step would be taken."""
    at_scale, weights = _at(dry_run, scale), list(dry_run.model.trainable_variables)
    program = run_as_program(at_scale, programs)
    gradients: list[Any]
    if program is None:
        gradients = at_scale.gradients(weights, [], contextlib.nullcontext())
    else:
        gradients = [program.of_variable.get(id(weight)) for weight in weights]
    return all(gradient is None or is_finite(gradient) is not False for gradient in gradients)


def _first(holds: Callable[[int], bool], most: int = _DOUBLINGS) -> int | None:
    """Returns the first number from 1 to `most` for which `holds`; then for all that follow.

    >>> _first(lambda n: n >= 6)
    6
    >>> _first(lambda n: False) is None
    True
    """
    low, high = 0, 1
    while not holds(high):
        if high == most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
