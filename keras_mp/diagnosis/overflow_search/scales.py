"""Which loss scale is too high for a batch, and which fits: tried, by powers of two."""

import contextlib
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras

from keras_mp.diagnosis.dry_run.layers import layers_of
from keras_mp.diagnosis.dry_run.program import StepPrograms, run_as_program
from keras_mp.diagnosis.dry_run.step import DryRun
from keras_mp.diagnosis.dry_run.tensors import is_finite
from keras_mp.diagnosis.overflow_search.analysis import analyse
from keras_mp.diagnosis.overflow_search.report import OverflowReport

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
