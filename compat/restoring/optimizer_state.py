"""Plans how the state of a Keras 2 optimizer, from any file, goes into a Keras 3 optimizer."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

import keras_mp
from keras_mp.backends import keras_hooks
from keras_mp.compat.file_formats.values import Value
from keras_mp.compat.keras2 import slots
from keras_mp.compat.restoring import variable_order
from keras_mp.compat.restoring.plan import Plan

NO_SCALE = (
    "the file holds no loss scale (none is saved if it is fixed, nor in HDF5 and .keras files): "
    "the optimizer starts from its initial_scale"
)
UNTRAINED = (
    "the saved optimizer had taken no step and had no slots yet: those of this one stay as they are"
)
WITHOUT_GRADIENT = (
    "the file has no slots of {}: TensorFlow made those of a weight at its first gradient, and "
    "this one never had any. They start as in a new optimizer"
)
NO_WRAPPER = "the file holds a loss scale, but the optimizer is not a keras_mp.LossScaleOptimizer"


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot.

    Attributes:
        name: As Keras 2 called it ("m", "rms"), or the attribute of a new optimizer of TF 2.11
            ("_momentums").
        variable: The variable of the Keras 3 model that it belongs to.
        value: Of its shape, or of that of the slot (Adafactor's).
    """

    name: str
    variable: Any
    value: Value


@dataclass(slots=True)
class OptimizerState:
    """The state of an optimizer of TF 1.15 to 2.15. What the file does not hold is None.

    Attributes:
        iterations: Step count.
        learning_rate: The current one, where it was a variable.
        hypers: "decay", "momentum", "rho", "beta_1", "beta_2".
        product: The product of Nadam's momenta (`momentum_cache`, `_u_product`).
        slots: Its slots.
        loss_scale: The current dynamic one.
        good_steps: Finite steps since it changed.
        counts_skipped_steps: Whether the writer counted a skipped step as an iteration.
        has_config: Whether the optimizer was made from the config in the same file, which holds the
            rate; then nothing is said of what only a config tells.
    """

    iterations: Value | None = None
    learning_rate: Value | None = None
    hypers: Mapping[str, Value] = field(default_factory=dict)
    product: Value | None = None
    slots: list[Slot] = field(default_factory=list)
    loss_scale: Value | None = None
    good_steps: Value | None = None
    counts_skipped_steps: bool | None = None
    has_config: bool = False


def plan_optimizer(plan: Plan, optimizer: Any, state: OptimizerState) -> None:
    """Plans to give a built optimizer the state of an old one.

    Args:
        plan: Gets the assignments, what nothing takes, what is missing, and notes.
        optimizer: A Keras 3 optimizer, with or without a `keras_mp.LossScaleOptimizer`; built.
        state: Of the old one.
    """
    wrapper = optimizer if isinstance(optimizer, keras_mp.LossScaleOptimizer) else None
    inner = optimizer.inner_optimizer if wrapper is not None else optimizer
    if state.iterations is not None:
        plan.assign(_whole(state.iterations), keras_hooks.step_counter(inner))
    if state.learning_rate is not None or not state.has_config:
        _plan_rate(plan, inner, state.learning_rate)
    for name, value in state.hypers.items():
        _plan_hyper(plan, inner, name, value)
    if state.product is not None:
        product = keras_hooks.momentum_product(inner)
        if product is None:
            plan.unused.append(state.product.source)
        else:
            plan.assign(state.product, product)
    trained = {id(variable) for variable in keras_hooks.trained_variables(inner)}
    for slot in state.slots:
        if id(slot.variable) in trained:
            _plan_slot(plan, inner, slot)
        else:
            plan.unused.append(f"{slot.value.source}: {slot.variable.path} is not trained")
    _plan_scale(plan, wrapper, state)
    if not state.slots and state.iterations is not None and int(state.iterations.array) == 0:
        plan.note(UNTRAINED)
        return
    new = _without_gradient(plan, inner, state.slots) | _stand_ins(inner)
    plan.missing += [
        variable.path
        for variable in inner.variables
        if not plan.has_value_for(variable)
        and variable is not keras_hooks.own_learning_rate(inner)
        and id(variable) not in new
    ]


def _without_gradient(plan: Plan, inner: Any, slots: list[Slot]) -> set[int]:
    """Returns ids of the slots of weights that had none in an optimizer of TF 2.10 and before."""
    if not slots or any(_is_new(slot.name) for slot in slots):
        return set()
    if plan.unused:  # which may be the slots that are sought here
        return set()
    had = {id(slot.variable) for slot in slots}
    new: set[int] = set()
    for index, variable in enumerate(keras_hooks.trained_variables(inner)):
        if id(variable) not in had:
            plan.note(WITHOUT_GRADIENT.format(variable.path))
            new |= {id(slots[index]) for slots in _kept(inner)}
    return new


def _kept(inner: Any) -> list[list[Any]]:
    """Returns the lists of slots of an optimizer: one a variable each."""
    own = ("_variables", "_trainable_variables")
    lists = [
        each
        for name, each in vars(inner).items()
        if name not in own and not name.startswith(variable_order.OF_TENSORFLOW)
    ]
    count = len(keras_hooks.trained_variables(inner))
    return [each for each in lists if isinstance(each, list) and len(each) == count]


def _stand_ins(inner: Any) -> set[int]:
    """Returns ids of what stands in a list for a slot that a variable has not (Adafactor's)."""
    return {
        id(slot)
        for slots in _kept(inner)
        for slot, variable in zip(slots, keras_hooks.trained_variables(inner), strict=True)
        if slot is not None and _stands_in(slot, variable)
    }


def _stands_in(slot: Any, variable: Any) -> bool:
    return len(slot.shape) == 0 < len(variable.shape)


def shaped_as(inner: Any, name: str, variable: Any) -> Any:
    """Returns the variable whose shape a slot has in a file.

    Args:
        inner: A built optimizer.
        name: Of the slot, as of `Slot`.
        variable: The model's, whose shape it has but for Adafactor's, which are rows and columns.
    """
    slot = _of_variable(inner, name, variable)
    return variable if slot is None or tuple(slot.shape) == tuple(variable.shape) else slot


def _of_variable(inner: Any, name: str, variable: Any) -> Any:
    for attribute in _attributes(inner, name):
        found = getattr(inner, attribute, None)
        if isinstance(found, list) and found:
            return found[keras_hooks.variable_index(inner, variable)]
    return None


def _is_new(name: str) -> bool:
    """Returns whether a slot is named as the attribute of an optimizer of TF 2.11."""
    return name.startswith("_") or name == "momentums"


def number(plan: Plan, value: Value | None) -> Value | None:
    """Returns the value of a step count, a counter or a hyperparameter, where it can be one.

    Args:
        plan: Gets it as unused, where it is not a single finite number.
        value: Of any shape and dtype.
    """
    if value is None:
        return None
    array = value.array
    if array.shape == () and array.dtype.kind in "iufV" and np.isfinite(array.astype("float64")):
        return value
    plan.unused.append(f"{value.source}: {array.dtype}{list(array.shape)} is not a finite number")
    return None


def _plan_rate(plan: Plan, inner: Any, rate: Value | None) -> None:
    if isinstance(
        keras_hooks.own_learning_rate(inner), keras.optimizers.schedules.LearningRateSchedule
    ):
        if rate is not None:
            plan.note(f"{rate.source} is not used: the optimizer has a learning rate schedule")
    elif rate is None:
        plan.note(
            "the file holds no learning rate (it was a schedule, or files of this kind have none): "
            f"it stays {float(inner.learning_rate)}"
        )
    else:
        plan.assign(rate, keras_hooks.own_learning_rate(inner))


def _plan_hyper(plan: Plan, inner: Any, name: str, value: Value) -> None:
    number = float(value.array)
    if name == "decay" and isinstance(inner, keras.optimizers.Nadam):
        name = "schedule_decay"  # which Keras 2 called so, too
    current = getattr(inner, name, None)
    if name in ("decay", "schedule_decay") and current is None:
        if number != 0:
            plan.unused.append(
                f"{value.source} = {number}: use the class of the same name in "
                f"keras_mp.compat.optimizers, which has {name}"
            )
    elif not isinstance(current, int | float):
        if number != 0:
            plan.unused.append(f"{value.source} = {number}")
    elif np.float32(current) != np.float32(number):
        plan.set(value, inner, name, number)
        plan.note(f"{name} of the optimizer was {current} and is now {number}, as in the file")


def _plan_slot(plan: Plan, inner: Any, slot: Slot) -> None:
    found = _of_variable(inner, slot.name, slot.variable)
    if found is not None:
        if not _stands_in(found, slot.variable):
            shaped = shaped_as(inner, slot.name, slot.variable)
            plan.assign(plan.laid_out(slot.value, shaped), found)
        return
    if slot.name in ("momentum", "momentums") and getattr(inner, "momentum", None) == 0:
        # SGD of TF 2.11 and later had them without momentum, too, and never read them.
        plan.note("momentum slots of SGD without momentum are left out: it never reads them")
        return
    plan.unused.append(slot.value.source)


def _attributes(inner: Any, name: str) -> list[str]:
    if name in ("average", "_model_variables_moving_average"):
        return ["_model_variables_moving_average"]
    of_class = slots.of_class(inner, slots.SLOTS) or {}
    names = [name, f"_{name.lstrip('_')}"] if _is_new(name) else []
    return [*names, of_class[name]] if name in of_class else names


def _plan_scale(plan: Plan, wrapper: Any, state: OptimizerState) -> None:
    if wrapper is None:
        if state.loss_scale is not None:
            plan.unused.append(f"{state.loss_scale.source}: {NO_WRAPPER}")
        return
    if state.loss_scale is None:
        if wrapper.dynamic and not state.has_config:
            plan.note(NO_SCALE)
    elif not wrapper.dynamic:
        plan.unused.append(
            f"{state.loss_scale.source}: a dynamic loss scale, but that of the optimizer is fixed "
            f"at {wrapper.initial_scale}"
        )
    else:
        plan.assign(state.loss_scale, wrapper.dynamic_scale)
        if state.good_steps is not None:
            plan.assign(_whole(state.good_steps), wrapper.step_counter)
    counts = state.counts_skipped_steps
    if counts is not None and counts != wrapper._settings.count_skipped_steps:
        settings = dataclasses.replace(wrapper._settings, count_skipped_steps=counts)
        plan.set(None, wrapper, "_settings", settings)
        plan.note(f"count_skipped_steps is set to {counts}, as in the TensorFlow that wrote it")


def _whole(value: Value) -> Value:
    return value.mapped(lambda array: array.astype("int64"))
