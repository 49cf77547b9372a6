"""Files of `tf.compat.v1.train.Saver`: names of tensors, and no objects.

Source: TF 1.15, python/training/{adam,rmsprop,momentum,adagrad,adadelta,ftrl}.py and
slot_creator.py: a slot is called after its variable and its optimizer, numbered from the second on.
Optimizers of tf.keras, also in an estimator, have names of their own: "training/Adam/fc/kernel/m".
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

import keras_mp
from keras_mp.backends import keras_hooks
from keras_mp.compat.checkpoints import Checkpoint
from keras_mp.compat.checkpoints.optimizer_nodes import HYPERS
from keras_mp.compat.file_formats.values import Value, value_of
from keras_mp.compat.keras2 import slots
from keras_mp.compat.restoring import variable_order
from keras_mp.compat.restoring.optimizer_state import (
    OptimizerState,
    Slot,
    number,
    plan_optimizer,
)
from keras_mp.compat.restoring.plan import Plan
from keras_mp.float_formats import FLOAT32

# Class today -> name of the slot in a Saver's file -> slot of Keras 2.
SLOTS: dict[str, dict[str, str]] = {
    "SGD": {"Momentum": "momentum"},
    "Adam": {"Adam": "m", "Adam_1": "v"},
    "RMSprop": {"RMSProp": "rms", "RMSProp_1": "momentum"},
    "Adagrad": {"Adagrad": "accumulator"},
    "Adadelta": {"Adadelta": "accum_grad", "Adadelta_1": "accum_var"},
    "Ftrl": {"Ftrl": "accumulator", "Ftrl_1": "linear"},
}
# In object graphs the slots of tf.compat.v1.train have names of their own.
_RENAMED = {"accum": "accumulator", "accum_update": "accum_var"}
CENTERED = {"RMSProp": "rms", "RMSProp_1": "mg", "RMSProp_2": "momentum"}

MOMENTUM = (
    "tf.train.MomentumOptimizer kept momentum without the learning rate; it was multiplied by "
    "-learning_rate, which is the same rule while the learning rate stays"
)
NO_MOMENTUM = (
    "momentum slots of RMSPropOptimizer without momentum are left out: it never reads them"
)
_TINY = FLOAT32.smallest_normal
NO_RATE = "a Saver's file holds no hyperparameters: they stay those of the optimizer"


def plan(
    plan: Plan, checkpoint: Checkpoint, weights: list[Any], optimizer: Any, names: Mapping[str, str]
) -> None:
    """Plans to restore the tensors of a Saver's file.

    Args:
        plan: Gets the assignments.
        checkpoint: The file.
        weights: Of the model; they are found by their paths, such as "fc0/kernel".
        optimizer: Keras 3 optimizer, built, or None.
        names: Name of a tensor -> path, where they differ.

    Raises:
        ValueError: `names` has a name or a path that does not exist.
    """
    by_path = {weight.path: weight for weight in weights}
    for name, path in names.items():
        if name not in checkpoint:
            raise ValueError(f"names has {name!r}, which is not in {plan.file}")
        if path not in by_path:
            raise ValueError(
                f"names has {path!r}, but the weights of the model are {', '.join(by_path)}"
            )
    variables = {}
    for name in checkpoint:
        weight = by_path.get(names.get(name, name))
        if weight is not None:
            variables[name] = weight
            plan.assign(value_of(checkpoint, name), weight)
    plan.missing += [path for path, weight in by_path.items() if not plan.has_value_for(weight)]
    taken = set(variables)
    if optimizer is not None:
        state, used = _state(plan, checkpoint, optimizer, variables)
        taken |= used
        plan_optimizer(plan, optimizer, state)
        if state.learning_rate is None:
            plan.note(NO_RATE)
    plan.unused += [name for name in checkpoint if name not in taken]


def _state(
    plan: Plan, checkpoint: Checkpoint, optimizer: Any, variables: Mapping[str, Any]
) -> tuple[OptimizerState, set[str]]:
    inner = optimizer
    if isinstance(optimizer, keras_mp.LossScaleOptimizer):
        inner = optimizer.inner_optimizer
    used: set[str] = set()
    state = OptimizerState(counts_skipped_steps=False)

    def value(name: str) -> Value | None:
        if name not in checkpoint:
            return None
        used.add(name)
        return value_of(checkpoint, name)

    state.loss_scale = value("current_loss_scale")
    state.good_steps = number(plan, value("good_steps"))
    if state.loss_scale is None:
        state.counts_skipped_steps = None
    # Adam's powers of beta say again how many steps were taken.
    used |= {name for name in checkpoint if name.split("/")[-1] in ("beta1_power", "beta2_power")}
    prefix, of_keras = _of_keras(checkpoint, inner, variables)
    state.iterations = (
        number(plan, value(f"{prefix}/iter"))
        or number(plan, value("global_step"))
        or _implied(checkpoint, inner)
    )
    hypers = {hyper: number(plan, value(f"{prefix}/{hyper}")) for hyper in HYPERS}
    state.hypers = {hyper: one for hyper, one in hypers.items() if one is not None}
    state.learning_rate = state.hypers.pop("learning_rate", None)
    for name, variable in variables.items():
        for suffix, slot in _names(inner).items():
            saved = value(f"{name}/{suffix}")
            if saved is not None:
                state.slots.append(Slot(slot, variable, saved))
    state.slots = slots_for_keras(plan, inner, state)
    for name, slot, variable in of_keras:
        state.slots.append(Slot(slot, variable, value_of(checkpoint, name)))
        used.add(name)
    return state, used


def _of_keras(
    checkpoint: Checkpoint, inner: Any, variables: Mapping[str, Any]
) -> tuple[str, list[tuple[str, str, Any]]]:
    """Returns the slots of the one Keras optimizer in a file.

    Returns:
        What comes before its names, "" where there is none or several, and a (name, slot, variable)
        for each of its slots.
    """
    known = slots.of_class(inner, slots.SLOTS) or ()
    by_prefix: dict[str, list[tuple[str, str, Any]]] = {}
    for name in checkpoint:
        owner, _, last = name.rpartition("/")
        end = variable_order.longest_end(owner, variables)
        if last in known and end is not None and end != owner:
            prefix = owner.removesuffix(f"/{end}")
            by_prefix.setdefault(prefix, []).append((name, last, variables[end]))
        elif last == "learning_rate" and owner:
            by_prefix.setdefault(owner, [])
    return by_prefix.popitem() if len(by_prefix) == 1 else ("", [])


def _names(inner: Any) -> dict[str, str]:
    return CENTERED if getattr(inner, "centered", False) else slots.of_class(inner, SLOTS) or {}


def slots_for_keras(plan: Plan, optimizer: Any, state: OptimizerState) -> list[Slot]:
    """Returns the slots of an optimizer of `tf.compat.v1.train` as Keras has them.

    Args:
        plan: Gets notes.
        optimizer: The Keras 3 optimizer.
        state: Its slots as they were, and the step count.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    result = []
    for slot in state.slots:
        name, value = _RENAMED.get(slot.name, slot.name), slot.value
        if name == "momentum" and isinstance(inner, keras.optimizers.SGD):
            rate = np.float32(_rate(inner, state))
            value = value.mapped(functools.partial(np.multiply, -rate))
            plan.note(MOMENTUM)
        elif name == "momentum" and not getattr(inner, "momentum", None):
            plan.note(NO_MOMENTUM)
            continue
        result.append(Slot(name, slot.variable, value))
    return result


def _rate(inner: Any, state: OptimizerState) -> float:
    """Returns the learning rate at the step that is restored, not at that of the optimizer."""
    schedule = keras_hooks.own_learning_rate(inner)
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return float(inner.learning_rate)
    steps = 0 if state.iterations is None else int(state.iterations.array)
    return float(schedule(steps))


def _implied(checkpoint: Checkpoint, inner: Any) -> Value | None:
    """Returns the step count that a power of Adam's beta_1 stands for."""
    beta = getattr(inner, "beta_1", 0)
    for name in checkpoint if 0 < beta < 1 else ():
        if name.split("/")[-1] == "beta1_power":
            power = checkpoint[name]
            # A subnormal one has lost the digits that tell the step.
            if power.dtype.kind == "f" and power.shape == () and _TINY <= power < 1:
                steps = round(math.log(power) / math.log(beta) - 1)
                return Value.of(name, np.asarray(steps, "int64"))
    return None
