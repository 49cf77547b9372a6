"""The smallest change with which a batch does not overflow, or why there is none.

First tried is what `find_overflow` suggests, and of that as little as helps. Where it does not
help, parts are left out of a model that is all float32, as long as it stays finite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.dry_run.program import StepPrograms
from keras_mp.diagnosis.dry_run.step import DryRun
from keras_mp.diagnosis.dry_run.tensors import as_numpy
from keras_mp.diagnosis.float32_layers import listed
from keras_mp.diagnosis.overflow_search.analysis import Analysis, analyse
from keras_mp.diagnosis.overflow_search.float32_suggestions import suggested
from keras_mp.diagnosis.overflow_search.report import Finding
from keras_mp.diagnosis.overflow_search.undefined import folded_away
from keras_mp.diagnosis.repair.changes import Change, all_changes, in_float32
from keras_mp.diagnosis.repair.record import Verdict
from keras_mp.diagnosis.repair.trials import Trials
from keras_mp.float_formats import LARGEST

_FEW = 4  # layers of which all may be changed without being asked for


@dataclass(frozen=True, eq=False)
class Found:
    """What to change.

    Attributes:
        changes: All that is needed, and nothing else.
        scale: The loss scale at which the batch is finite with it.
        finding: What overflows first without.
        note: What of the step was not searched, or "".
    """

    changes: tuple[Change, ...]
    scale: float
    finding: Finding | None
    note: str = ""


def smallest_change(
    dry_run: DryRun, scale: float, tolerated: float, everything: bool = False
) -> Found | Verdict:
    """Returns what to have compute in float32 so that a step is finite, or why nothing helps.

    Args:
        dry_run: The batch.
        scale: The loss scale of a healthy training.
        tolerated: The loss scale down to which nothing has to be changed.
        everything: Whether, as the last resort, all layers may.
    """
    if (bad := _bad_data(dry_run)) or (bad := _bad_weights(dry_run.model)):
        return bad
    dry_run.loss_scale = scale
    trials = Trials(dry_run, scale)
    analysis = _analysed(dry_run)
    if _compiles(dry_run.model):
        trials.lose(tuple({c: None for record in analysis.records for c in folded_away(record)}))
    if (fits := trials.fitting_scale((), tolerated)) is not None:
        return Verdict(
            "nothing", f"Nothing overflows on this batch at a loss scale of {fits:.10g}."
        )
    units = all_changes(dry_run.model)
    if not units or not trials.helps(units):
        return _hopeless(dry_run, units)
    targets = _suggested(analysis, dry_run)
    likely = [unit for unit in units if any(unit.target is each for each in targets)]
    chosen = least(likely, trials.helps) if trials.helps(likely) else least(units, trials.helps)
    if len(chosen) == len(units) > _FEW and not everything:
        return Verdict(
            "parts",
            f"Only with all {len(units)} layers in float32 nothing overflows. "
            "all_float32=True allows it; better train with mixed_bfloat16.",
        )
    found_scale = trials.fitting_scale(chosen)
    assert found_scale is not None
    return Found(tuple(chosen), found_scale, _first(analysis))


def _first(analysis: Analysis) -> Finding | None:
    """Returns what overflows first: not what earlier steps have left in moving statistics."""
    causes = [finding for finding, _ in analysis.causes]
    computed = (each for each in causes if each.where not in ("input", "weights"))
    return next(computed, analysis.report.first)


def least(units: Sequence[Change], helps: Callable[[Sequence[Change]], bool]) -> list[Change]:
    """Returns a part of `units` that helps, and of which nothing can be left out.

    Tries one of them alone, then leaves out halves, quarters, and so on.

    >>> needed = lambda some: {2, 5} <= set(some)
    >>> least([1, 2, 3, 4, 5, 6], needed)
    [2, 5]
    """
    kept = list(units)
    if len(kept) <= 4:
        for one in kept:
            if helps([one]):
                return [one]
    size = max(1, len(kept) // 2)
    while True:
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if helps(rest):
                kept = rest
            else:
                start += size
        if size == 1:
            return kept
        size = max(1, size // 2)


def _analysed(dry_run: DryRun) -> Analysis:
    return analyse(dry_run, StepPrograms(dry_run.model))


def _suggested(analysis: Analysis, dry_run: DryRun) -> list[Any]:
    try:
        return suggested(analysis, dry_run)
    except Exception:  # noqa: BLE001 - then all parts are searched
        return []


def _compiles(model: Any) -> bool:
    """Returns whether the step is computed as a compiler has it, not op by op."""
    return not model.run_eagerly and (keras.backend.backend() != "torch" or model.jit_compile)


def _bad_data(dry_run: DryRun) -> Verdict | None:
    parts = {"x": dry_run.x, "y": dry_run.y, "sample_weight": dry_run.sample_weight}
    for name, part in parts.items():
        for array in keras.tree.flatten(part):
            numbers = _numbers(array)
            bad = 0 if numbers is None else int((~np.isfinite(numbers)).sum())
            if bad:
                assert numbers is not None
                kind = "nan" if np.isnan(numbers).any() else "inf"
                return Verdict(
                    "data",
                    f"The batch holds {kind}: {bad} of {numbers.size} values of {name}. Precision "
                    "does not help: look at the data.",
                )
    return None


def _bad_weights(model: Any) -> Verdict | None:
    limit = LARGEST["float16"]
    for layer in keras_hooks.all_layers(model):
        for variable in keras_hooks.own_weights(layer):
            numbers = _numbers(variable)
            if numbers is None or not numbers.size:
                continue
            largest = float(np.abs(numbers).max())
            if not np.isfinite(largest):
                what = f"{variable.path} is not finite"
            elif layer.compute_dtype == "float16" and largest > limit:
                what = f"{variable.path} has reached {largest:.2g}, beyond float16"
            else:
                continue
            return Verdict(
                "weights",
                f"The weights have blown up: {what}. Precision does not help: lower the learning "
                "rate, or clip gradients (clipnorm), and begin again from a checkpoint.",
            )
    return None


def _numbers(array: Any) -> Any:
    if array is None:
        return None
    dtype = keras.backend.standardize_dtype(getattr(array, "dtype", "int32"))
    return as_numpy(array) if "float" in dtype else None


def _hopeless(dry_run: DryRun, units: Sequence[Change]) -> Verdict:
    with in_float32(units):
        first = _analysed(dry_run).report.first
    if first is not None and first.dtype == "float16":
        at = "" if first.source is None else f" at {first.source.short}"
        narrow = [
            part.path
            for part in layer_paths.parts(dry_run.model)
            if part.layer.variable_dtype == "float16"
        ]
        if narrow:
            return Verdict(
                "code",
                f"The weights of {listed(narrow)} are float16, so no policy makes them compute in "
                f"float32 now: {first}. Make the model with mixed_float16.",
            )
        return Verdict(
            "code",
            f"The code of {first.layer} computes in float16{at}, whatever its policy is: {first}. "
            "Cast to float32 there.",
        )
    what = "" if first is None else f": {first}"
    return Verdict(
        "float32",
        f"The step is not finite in float32 either{what}. Precision does not help: look at the "
        "loss, the learning rate and the data.",
    )
