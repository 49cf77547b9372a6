"""The classic HDF5 files of Keras: `model.save("x.h5")`, `model.save_weights("x.h5")`.

Layers and weights have names there. Groups come in alphabetical order, so only the lists of names
tell the order in which Keras went through them.
"""

import re
from typing import Any

import keras
import numpy as np

from keras_mp.backends import keras_hooks
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.configs.serialized import allowed_name
from keras_mp.compat.file_formats.hdf5_groups import Group
from keras_mp.compat.file_formats.values import Value
from keras_mp.compat.keras2 import slots
from keras_mp.compat.restoring import cudnn_weights, preprocessing_state, variable_order
from keras_mp.compat.restoring.optimizer_state import (
    OptimizerState,
    Slot,
    number,
    plan_optimizer,
    shaped_as,
)
from keras_mp.compat.restoring.plan import Plan

_OWN = "top_level_model_weights"
NO_SCALE = (
    "HDF5 files hold neither the current loss scale nor its counter: the scale starts again at its "
    "initial value. A checkpoint or a SavedModel of the same training holds both"
)
NO_OPTIMIZER = (
    "the file holds no state of the optimizer: it had taken no step, or it was one of "
    "optimizers.experimental of TF 2.10, whose state HDF5 files do not have; it starts fresh"
)
NO_OWN = (
    "HDF5 files of TF 2.7 and before hold no weights that are the model's own, outside of its "
    "layers; kept as they are: "
)
NO_PRODUCT = (
    "the file does not hold the product of Nadam's momenta; it was recomputed from the step "
    "count, and differs from that of fit() by less than 1e-6 after twenty steps"
)
NO_STEPS = (
    "RMSprop, Adagrad and Adadelta of Keras 2.2 and before, without TensorFlow's, did not save the "
    "step count, which stays 0; it matters where there is decay"
)
_STEPS_OF_NADAM = 1000  # after which 1 - 0.5 * 0.96**step is 1 in float64
_STEP = re.compile(r"(iter|iteration|iterations)(_[0-9]+)?")
_PRODUCT = re.compile(r"(momentum_cache|m_schedule)(_[0-9]+)?")
# Up to Keras 2.0.8, without TensorFlow's, optimizers went through the variables by their names.
_BY_NAME = re.compile(r"2\.0\.[0-8]")


def is_classic(root: Group) -> bool:
    """Returns whether a file is of the classic layout."""
    return "model_weights" in root or root.texts("layer_names") is not None


def weights_of(root: Group) -> Group:
    """Returns the group that has `layer_names`."""
    return root.group("model_weights") if "model_weights" in root else root


Named = dict[str, list[Any]]


def plan_weights(plan: Plan, group: Group, model: Any) -> Named:
    """Plans to give a model the weights of a group with `layer_names`.

    Layers are found by their names, or one after another where the names of a model without config
    are others; weights in a layer by the ends of their names where each is there once, else in the
    order of Keras 2.

    Returns:
        Name of a weight in Keras 2 -> the variables that had it.
    """
    named: Named = {}
    for layer, name in _layers(plan, group, model):
        inside = group.group(name)
        names = inside.texts("weight_names") or []
        mine = (
            variable_order.own_weights(model) if layer is model else variable_order.weights(layer)
        )
        for variable, value, old in _weights(plan, inside, names, layer, mine):
            plan.assign(value, variable)
            named.setdefault(_bare(old), []).append(variable)
    for weight in model.weights:
        if not plan.has_value_for(weight):
            if _OWN not in group and any(
                weight is variable for variable in variable_order.own_weights(model)
            ):
                plan.lose(NO_OWN + weight.path)
            else:
                plan.missing.append(weight.path)
    return named


def _layers(plan: Plan, group: Group, model: Any) -> list[tuple[Any, str]]:
    """Returns (layer, name of its group), for all layers with weights."""
    names = group.texts("layer_names")
    if names is None:
        raise Unreadable(group.file, group.path, "has no attribute layer_names")
    filled = [name for name in names if _count(group, name)]
    layers = {layer.name: layer for layer in variable_order.layers(model) if _has_state(layer)}
    todays = {name: allowed_name(name) for name in filled}
    found = [(layers[todays[name]], name) for name in filled if todays[name] in layers]
    if len(found) < len(filled) and len(layers) == len(filled):
        found = list(zip(layers.values(), filled, strict=True))
    elif len(found) < len(filled):
        there = {name for _, name in found}
        plan.unused += [group.at(name) for name in filled if name not in there]
    if _OWN in group and _count(group, _OWN):
        found.append((model, _OWN))
    return found


def _has_state(layer: Any) -> bool:
    return bool(layer.weights) or any(
        preprocessing_state.adapts_bins(each) for each in keras_hooks.all_layers(layer)
    )


def _count(group: Group, name: str) -> int:
    return len(group.group(name).texts("weight_names") or ())


def _weights(
    plan: Plan, inside: Group, names: list[str], layer: Any, mine: list[Any]
) -> list[tuple[Any, Value, str]]:
    """Returns (variable, its value, the name that it had)."""
    names = preprocessing_state.plan_bins(plan, inside, names, layer)
    shapes = [inside.shape(name) for name in names]
    if len(names) != len(mine):
        what = f"{len(names)} weights ({', '.join(names)}), and {len(mine)} in the model"
        plan.unused.append(f"{inside.path}: {what}")
        return []
    ends = [_bare(name).rpartition("/")[2] for name in names]
    by_end = {variable.name: variable for variable in mine}
    if len(by_end) == len(mine) and set(by_end) == set(ends):
        mine = [by_end[end] for end in ends]
    cudnn_weights.note_layouts(plan, layer, mine, shapes)
    found = []
    for name, variable in zip(names, mine, strict=True):
        if (value := fitting(plan, inside, name, variable)) is not None:
            found.append((variable, plan.laid_out(value, variable), name))
    return found


def fitting(plan: Plan, group: Group, name: str, variable: Any) -> Value | None:
    """Returns a value that is to be that of a variable; notes one of another shape."""
    shape = group.shape(name)
    if shape == plan.stored_shape(variable):
        return group.value(name)
    plan.misfit(group.at(name), shape, variable)
    return None


def plan_state(
    plan: Plan, root: Group, model: Any, optimizer: Any, named: Named, *, has_config: bool = True
) -> None:
    """Plans to give an optimizer the state that is in `optimizer_weights`.

    Args:
        plan: Gets it.
        root: The file.
        model: Its model.
        optimizer: Made from the config of the file, built.
        named: What `plan_weights` returned.
        has_config: As of `OptimizerState`.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "dynamic", False):
        plan.lose(NO_SCALE)
    names = None
    if "optimizer_weights" in root:
        group = root.group("optimizer_weights")
        names = group.texts("weight_names")
    if not names:
        plan.lose(NO_OPTIMIZER)
        return
    state = OptimizerState(has_config=has_config)
    others = []
    for name in names:
        end = _bare(name).rpartition("/")[2]
        if _STEP.fullmatch(end) and group.shape(name) == () and state.iterations is None:
            state.iterations = number(plan, group.value(name))
        elif _PRODUCT.fullmatch(end) and group.shape(name) == ():
            state.product = group.value(name)
        else:
            others.append(name)
    trained = _trained(named, model)
    pairs: list[tuple[str, Any]] | None
    if _bare(names[0]) == "iteration":
        pairs = variable_order.new_slots(inner, trained)
        nadam_product(plan, inner, state, len(trained))
    else:
        pairs = _by_name(others, named) or _by_order(plan, group, inner, others, named, trained)
        if state.iterations is None:
            state.iterations = Value.of("not in the file", np.zeros((), "int64"))
            plan.lose(NO_STEPS)
    if pairs is None or len(pairs) != len(others):
        plan.unused += [group.at(name) for name in others]
    else:
        state.slots = slots_of(plan, group, inner, others, pairs)
    plan_optimizer(plan, optimizer, state)


def slots_of(
    plan: Plan, group: Group, inner: Any, names: list[str], pairs: list[tuple[str, Any]]
) -> list[Slot]:
    """Returns the slots that are stored under some names, each with what `pairs` says of it."""
    found = []
    for name, (slot, variable) in zip(names, pairs, strict=True):
        if slot == "vhat" and getattr(inner, "amsgrad", None) is False:
            continue  # a stand-in of one element, of Keras 2.1 and 2.2
        value = fitting(plan, group, name, shaped_as(inner, slot, variable))
        if value is not None:
            found.append(Slot(slot, variable, value))
    return found


def _by_name(names: list[str], named: Named) -> list[tuple[str, Any]] | None:
    """Returns (slot, variable) of "cond_1/Adam/dense/kernel/m:0"; None if a name is no such one."""
    found = []
    taken: dict[tuple[str, str], int] = {}
    for name in names:
        owner, _, slot = _bare(name).rpartition("/")
        known = variable_order.longest_end(owner, named)
        if known is None:
            return None
        # Two layers in different models may have the same name: then in their order.
        number = taken[slot, owner] = taken.get((slot, owner), -1) + 1
        if number >= len(named[known]):
            return None
        found.append((slot, named[known][number]))
    return found


def _by_order(
    plan: Plan, group: Group, inner: Any, names: list[str], named: Named, trained: list[Any]
) -> list[tuple[str, Any]] | None:
    """Returns (slot, variable) of "training/Adam/Variable_12:0", by places and shapes.

    Without TensorFlow's, Keras gave slots no names that say what they belong to.
    """
    shapes = [group.shape(name) for name in names]
    by_name = [v for name in sorted(named, key=lambda n: f"{n}:0") for v in named[name]]
    by_name = [variable for variable in by_name if variable.trainable]
    orders_tried = [trained, by_name]
    if _BY_NAME.fullmatch(group.root.text("keras_version") or ""):
        orders_tried.reverse()
    for variables in orders_tried:
        pairs = variable_order.old_slots(inner, variables, len(names))
        if pairs is not None and all(
            shape == plan.stored_shape(variable) or slot == "vhat"
            for shape, (slot, variable) in zip(shapes, pairs, strict=True)
        ):
            return pairs
    return None


def _trained(named: Named, model: Any) -> list[Any]:
    """Returns what was trained, in the order of the file; in the model's if the file has less."""
    variables = [variable for several in named.values() for variable in several]
    trained = [variable for variable in variables if variable.trainable]
    ordered = variable_order.trainable(model)
    is_all = {id(variable) for variable in trained} == {id(variable) for variable in ordered}
    return trained if is_all and not variable_order.own_weights(model) else ordered


def nadam_product(plan: Plan, inner: Any, state: OptimizerState, count: int) -> None:
    """Computes the product of Nadam's momenta, which no file of TF 2.11 and later holds.

    fit() multiplied it at every step once for each variable, not once in all (the counter that was
    to prevent it is a Python number, and was traced), so after a few steps it is next to nothing.

    Args:
        plan: Gets a note.
        inner: The optimizer.
        state: Its state; gets the product.
        count: How many variables were trained.
    """
    if state.iterations is None or not slots.of_class(inner, {"Nadam": True}):
        return
    steps = int(state.iterations.array)
    later = max(0, steps - _STEPS_OF_NADAM)
    product, beta = np.float32(1), np.float64(inner.beta_1)
    for step in range(1, steps - later + 1):
        product *= np.float32((beta * (1.0 - 0.5 * 0.96**step)) ** count)
    product *= np.float32(beta ** (float(count) * later))
    state.product = Value.of("computed from the step count", np.asarray(product, "float32"))
    plan.lose(NO_PRODUCT)


def _bare(name: str) -> str:
    return name.removesuffix(":0")


def finish(model: Any) -> None:
    """Lets layers that compute with statistics, such as Normalization, take what was assigned."""
    for layer in keras_hooks.all_layers(model):
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()
