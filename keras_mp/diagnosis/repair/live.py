"""What a repair changes in a live model beside policies: nothing else of it is touched."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.backends import keras_hooks
from keras_mp.diagnosis.repair.changes import Change
from keras_mp.diagnosis.repair.denials import Denial
from keras_mp.graph_rewrite.enabling import deny
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.optimizer.widened import compile_anew, widen
from keras_mp.scaling.scaler import DynamicLossScaler


def make_changes(model: Any, changes: Iterable[Change | Denial]) -> None:
    """Makes changes for good, and has functions compiled anew."""
    some = list(changes)
    for change in some:
        if isinstance(change, Change):
            widen(change.objects(), change.dtype)
    if denied := [change.path for change in some if isinstance(change, Denial)]:
        deny(model, denied)
    compile_anew(model)


def restart_scale(optimizer: LossScaleOptimizer, scale: float) -> None:
    """Sets the loss scale, where it moves, and forgets how many steps were skipped in a row."""
    if isinstance(optimizer._scaler, DynamicLossScaler):
        optimizer._scaler.restart(scale)
    forget_streak(optimizer)


def forget_streak(optimizer: LossScaleOptimizer) -> None:
    """Forgets how many steps were skipped in a row, so that nobody stops the training for them."""
    if optimizer._statistics.runs is not None:
        optimizer._statistics.runs.clear()


def mend_statistics(model: Any) -> list[str]:
    """Begins moving statistics anew that skipped steps have left not finite; returns whose."""
    mended = []
    for layer in keras_hooks.all_layers(model):
        if not isinstance(layer, keras.layers.BatchNormalization) or not layer.built:
            continue
        moving = [(layer.moving_mean, ops.zeros), (layer.moving_variance, ops.ones)]
        if all(np.isfinite(ops.convert_to_numpy(variable)).all() for variable, _ in moving):
            continue
        for variable, start in moving:
            variable.assign(start(variable.shape, variable.dtype))
        mended.append(str(layer.path or layer.name))
    return mended
