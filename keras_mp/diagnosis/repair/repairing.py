"""`repair`: finds the smallest change that ends an overflow on a batch, and applies it for good."""

from dataclasses import replace
from typing import Any

import keras
import numpy as np

from keras_mp.backends.common.compiling import without_optimization
from keras_mp.backends.common.generators import unchanged_generators
from keras_mp.backends.keras_hooks import layers_of
from keras_mp.batches import one_batch
from keras_mp.diagnosis import layer_paths
from keras_mp.diagnosis.dry_run.step import DryRun, check_model, current_scale
from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.diagnosis.overflow_search.float32_suggestions import SMALL_SCALE
from keras_mp.diagnosis.repair.live import (
    make_changes,
    mend_statistics,
    restart_scale,
)
from keras_mp.diagnosis.repair.record import Repair, Repairs, Verdict
from keras_mp.diagnosis.repair.search import Found, smallest_change
from keras_mp.graph_rewrite.rewritten import check_not_rewritten
from keras_mp.graph_rewrite.submodels import has_own_step
from keras_mp.optimizer.errors import unwrapped
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.optimizer.widened import compile_anew, note_widened, widen_as_noted, widened_paths


def repair(
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    loss_scale: float | None = None,
    all_float32: bool = False,
) -> Repairs:
    """Ends the overflow of a batch: the smallest part of the model that helps computes in float32.

    It tries layers and losses on the batch, as `find_overflow` does, and of what helps leaves out
    what is not needed. The change holds at once: `layer.dtype_policy` of these layers is float32,
    functions that were compiled are compiled anew when they are called next, and a dynamic loss
    scale returns to `loss_scale`, or as high as the batch allows. Weights, slots, averages and
    counters stay. Moving statistics of BatchNormalization that skipped steps left at inf or nan
    begin anew; `keras_mp.protect_state` keeps them from that.

    A layer stands for all in it, and for the outermost layer of a library that it is in, such as
    MultiHeadAttention: that is what can be given a `dtype`, so it lasts in `model.save`.

    For a loop of your own, after many skipped steps; in `fit` there is `keras_mp.PrecisionRepair`.
    A step that you have compiled yourself you compile again after a repair. Of several processes
    each repairs what its own batch needs: give all the same.

    Args:
        model: A built `keras.Model`, compiled with a `keras_mp.LossScaleOptimizer`.
        x: One batch of inputs, or what makes batches, as `find_overflow` takes it.
        y: Its targets, or None.
        sample_weight: Its weights, or None.
        loss_scale: That of a healthy training; None for the initial one of the optimizer, or that
            of now where it is higher.
        all_float32: Whether all layers may compute in float32, where nothing less helps.

    Returns:
        `Repairs`: true where something was changed, each with its layers and a sentence. Else
        `verdict` says why not, such as data that hold nan. `code()` is a `DTypePolicyMap` to paste.

    Raises:
        TypeError: `model` is no `keras.Model`, or has another optimizer.
        ValueError: It is not built or not compiled; the graph rewrite holds for it.

    >>> planted = keras.layers.Dense(
    ...     2, kernel_initializer="ones", dtype="mixed_float16", name="planted"
    ... )
    >>> model = keras.Sequential([keras.Input((4,)), planted, keras.layers.Dense(1)], name="net")
    >>> model.compile(LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=256), "mae")
    >>> done = repair(model, np.full((1, 4), 30000.0), np.ones((1, 1)))
    >>> done.layers, planted.compute_dtype
    (('planted',), 'float32')
    >>> bool(repair(model, np.ones((1, 4)), np.ones((1, 1))))
    False
    """
    check_model(model, compiled=True)
    optimizer = optimizer_of(model, "repair")
    with unchanged_generators():
        batch = one_batch(model, x, y, sample_weight)
    scale = healthy_scale(optimizer) if loss_scale is None else loss_scale
    found = searched(model, batch, scale, SMALL_SCALE, all_float32)
    return as_found(model, found, int(optimizer.skipped_steps))


def optimizer_of(model: Any, who: str) -> LossScaleOptimizer:
    """Returns the optimizer of a compiled model; TypeError where it is another one."""
    optimizer = model.optimizer
    if not isinstance(optimizer, LossScaleOptimizer):
        raise TypeError(
            f"{who} needs a model compiled with keras_mp.LossScaleOptimizer, but the optimizer is "
            f"{unwrapped(optimizer)}."
        )
    check_not_rewritten(model)
    return optimizer


def healthy_scale(optimizer: LossScaleOptimizer) -> float:
    """Returns the loss scale that a training has when all goes well."""
    now = current_scale(optimizer)
    return max(now, optimizer.initial_scale) if optimizer.dynamic else now


def as_found(model: Any, found: Found | Verdict, skipped: int) -> Repairs:
    """Makes the change that was found, if there is one."""
    if isinstance(found, Verdict):
        return Repairs(verdict=found)
    return carried_out(model, found, skipped)


def searched(
    model: Any,
    batch: tuple[Any, Any, Any],
    scale: float,
    tolerated: float,
    all_float32: bool,
) -> Found | Verdict:
    """Returns what to change, or why nothing helps; changes nothing.

    Down to a loss scale that is `tolerated` no change is needed. Of a model with a `train_step` of
    its own, such as a GAN, that cannot be run without it, the forward passes of the models in it
    are run that take such inputs.
    """
    with np.errstate(all="ignore"), without_optimization():
        try:
            dry_run = DryRun(model, *batch, loss_scale=scale)
            return smallest_change(dry_run, scale, tolerated, all_float32)
        except Exception:
            if not has_own_step(model):
                raise
            return _searched_in_parts(model, batch[0], scale, tolerated, all_float32)


def _searched_in_parts(
    model: Any, x: Any, scale: float, tolerated: float, all_float32: bool
) -> Found | Verdict:
    run = []
    for path, inner in [(model.name, model), *layers_of(model)]:
        if not isinstance(inner, keras.Model) or not inner.built:
            continue
        try:
            dry_run = DryRun(inner, x, loss_scale=scale)
            found = smallest_change(dry_run, scale, tolerated, all_float32)
        except Exception:  # noqa: BLE001 - it takes other inputs
            continue
        run.append(path)
        if isinstance(found, Verdict):
            if found.ends:
                return found
            continue
        below = "" if inner is model else f"{path}/"
        changes = (replace(each, path=below + each.path) for each in found.changes)
        note = f"Only the forward pass of {path} was searched: train_step is the model's own."
        return replace(found, changes=tuple(changes), note=note)
    names = ", ".join(run) or "no model in it"
    return Verdict(
        "unsearched",
        f"train_step is the model's own: of {names} the forward pass could be run, and nothing "
        "overflows there. Give the layer that overflows dtype='float32', or call "
        "keras_mp.repair with a model and batch of the step.",
    )


def carried_out(model: Any, found: Found, skipped: int) -> Repairs:
    """Makes a change that was found."""
    optimizer = model.optimizer
    before = current_scale(optimizer)
    scale = found.scale if optimizer.dynamic else before
    mended = mend_statistics(model)
    make_changes(model, found.changes)
    restart_scale(optimizer, scale)
    note_widened(optimizer, [change.path for change in found.changes])
    notes = [found.note] if found.note else []
    if mended:
        notes.append(
            f"Moving statistics of {', '.join(mended)} were not finite and begin anew: "
            "keras_mp.protect_state(model) keeps them."
        )
    done = Repair(
        layers=tuple(change.path for change in found.changes if change.is_layer),
        losses=tuple(change.path for change in found.changes if not change.is_layer),
        finding=found.finding,
        step=int(keras.ops.convert_to_numpy(optimizer.iterations)),
        skipped=skipped,
        scale_before=before,
        scale=scale,
        notes=tuple(notes),
    )
    return Repairs((done,), None, as_float32_layers(model))


def as_float32_layers(model: Any) -> Float32Layers | None:
    """Returns all layers of a model that were repaired, as a map to paste; None without any."""
    paths = set(widened_paths(model.optimizer))
    chosen = [part.whole for part in layer_paths.parts(model) if part.whole_path in paths]
    if not chosen:
        return None
    by_hand = [
        each for each in chosen if not all(map(layer_paths.has_path, layer_paths.inside(each)))
    ]
    return layer_paths.float32_layers(model, chosen, by_hand=by_hand, optimizer=model.optimizer)


def repair_again(model: Any) -> tuple[str, ...]:
    """Repairs a model as the restored state of its optimizer says; returns what was changed."""
    paths = widen_as_noted(model)
    if paths:
        compile_anew(model)
    return paths
