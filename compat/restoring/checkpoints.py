"""`restore`: a checkpoint of TF 1.15 to 2.15 into a Keras 3 model and its optimizer."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_mp.compat.checkpoints import Checkpoint
from keras_mp.compat.checkpoints.object_graph import ObjectGraph
from keras_mp.compat.checkpoints.optimizer_nodes import (
    OptimizerKeys,
    SlotKey,
    is_optimizer,
    keys_of,
    optimizers,
)
from keras_mp.compat.file_formats import saved_models, saved_objects
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.compat.file_formats.saved_objects import Table
from keras_mp.compat.file_formats.values import Value, value_of
from keras_mp.compat.restoring import (
    cudnn_weights,
    object_matching,
    preprocessing_state,
    v1_saver,
    variable_order,
)
from keras_mp.compat.restoring.optimizer_state import (
    OptimizerState,
    Slot,
    number,
    plan_optimizer,
)
from keras_mp.compat.restoring.plan import Plan, RestoreError, RestoreReport
from keras_mp.files.stores.urls import is_url, local_of
from keras_mp.rendering.text import printable

# Not restored: how often it was saved, and running metrics.
_IGNORED = re.compile(r"save_counter/|(.*/)?keras_api/metrics/")
# Where random generators stand, and what recurrent layers remember of the batch before.
_NO_WEIGHTS = re.compile(r"(.*/)?(_rng|_random_generator|keras_api/states)/.*")
APART = (
    "layers that were shared are layers of their own here, which begin equal and are trained "
    "apart: {}"
)
BESIDE = "not asked for, and left out: {}"
BEGINS_ANEW = (
    "what is not a weight starts fresh: the position of random layers in their random numbers, and "
    "the states of stateful layers that were built for another batch size"
)


class NeedsPath(ValueError):
    """Which object of a checkpoint is meant is not clear, or it has none of that path.

    Attributes:
        file: The checkpoint.
        what: What is wrong.
        option: "model_path" or "optimizer_path".
        names: The paths that there are.

    >>> raise NeedsPath("ckpt-1", "holds several optimizers", "optimizer_path", ("opt_g", "opt_d"))
    Traceback (most recent call last):
    keras_mp.compat.restoring.checkpoints.NeedsPath: ckpt-1 holds several optimizers: pass \
optimizer_path=, one of opt_g, opt_d.
    """

    def __init__(self, file: str, what: str, option: str, names: Iterable[str]) -> None:
        super().__init__(file, what, option, names)
        self.file, self.what, self.option, self.names = file, what, option, tuple(names)

    def __str__(self) -> str:
        return f"{printable(self.file)} {self.what_to_do(f'{self.option}=')}"

    def what_to_do(self, option: str) -> str:
        """Returns the message without the file, for an option that is called otherwise."""
        names = ", ".join(map(printable, self.names)) or "none: it has only its root"
        return f"{printable(self.what)}: pass {option}, one of {names}."


def restore(
    path: str | Path,
    model: Any,
    optimizer: Any = None,
    *,
    strict: bool = True,
    names: Mapping[str, str] | None = None,
    model_path: str | None = None,
    optimizer_path: str | None = None,
) -> RestoreReport:
    """Restores a checkpoint of TF 1.15 to 2.15, without TensorFlow: all of it, or nothing.

    Weights are found by the objects that held them (a layer's place in the model, attributes), not
    by their names. The optimizer gets its slots, step count, learning rate and hyperparameters,
    the loss scale and its counter, and `count_skipped_steps` of the TensorFlow that wrote them.

    Args:
        path: The prefix of a checkpoint, its `.index`, or a folder with a `checkpoint` file. From
            `tf.train.Checkpoint`, `CheckpointManager`, `model.save_weights`, a SavedModel, or
            `tf.compat.v1.train.Saver`. Or its address where fsspec reaches it, such as
            "s3://models/ckpt-1". HDF5 and `.keras` files on the disk are left to `load_weights`.
        model: The Keras 3 model, built; or a list or dict of variables, as `Checkpoint` was given.
        optimizer: The optimizer; `model.optimizer` if None, and none if that is None, too. Built
            here if it is not.
        strict: Whether a tensor that nothing takes, or a variable without a value, is an error.
            Where one of the paths below is given it is one in any case, and a note says what else
            the file holds.
        names: For a `Saver`'s file: name of a tensor -> path of the variable, where they differ.
        model_path: What the model was called in `tf.train.Checkpoint(...)`, where it is not clear.
        optimizer_path: What the optimizer was called, where there are several.

    Returns:
        What went where, with checksums, and what was assumed.

    Raises:
        Unreadable: The checkpoint does not exist, or damaged.
        RestoreError: It does not fit. Nothing was changed.
        ValueError: The model is not built, or a path names nothing.
    """
    local = local_of(path)
    if not is_url(path) and local.is_file() and kind_of(local) in ("h5", "keras"):
        from keras_mp.compat.restoring.models import load_weights  # late: it has this module

        if names or not isinstance(model, keras.layers.Layer):
            raise ValueError(f"{path} has the weights of one model: pass that, and no names=")
        paths = {"model_path": model_path, "optimizer_path": optimizer_path}
        return load_weights(path, model, optimizer, strict=strict, **paths)
    checkpoint = Checkpoint(path)
    weights = object_matching.weights(model)
    if not weights and not getattr(model, "built", False):
        raise ValueError("the model has no weights yet: build it, or call it once, first.")
    optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
    if optimizer is not None and not optimizer.built:
        optimizer.build([weight for weight in weights if weight.trainable])
    plan = Plan(checkpoint.prefix)
    if checkpoint.graph is None:
        v1_saver.plan(plan, checkpoint, weights, optimizer, names or {})
    else:
        if names:
            raise ValueError(
                f"names= is for files of tf.compat.v1.train.Saver; {checkpoint.prefix} has objects"
            )
        folder = saved_models.folder_of_variables(checkpoint.prefix)
        tables = () if folder is None else saved_objects.tables(folder)
        where = model_path, optimizer_path
        plan_objects(plan, checkpoint, checkpoint.graph, model, optimizer, *where, tables)
    return plan.run(strict=strict)


def plan_objects(
    plan: Plan,
    checkpoint: Checkpoint,
    graph: ObjectGraph,
    model: Any,
    optimizer: Any,
    model_path: str | None,
    optimizer_path: str | None,
    tables: Iterable[Table] = (),
) -> None:
    """Plans to restore objects: a model and, if it is not None, its built optimizer.

    Args are those of `restore`, and the lookup tables of a SavedModel; what fits nothing is noted
    in `plan`.
    """
    start = _model_node(plan.file, graph, model, model_path)
    found = object_matching.match(graph, start, model)
    pairs = object_matching.pairs(graph, start, model)
    taken = preprocessing_state.plan_objects(plan, checkpoint, graph, pairs, tables)
    if isinstance(model, keras.layers.Layer):
        there = [
            (variable, checkpoint.entry(str(graph.key(node))).shape)
            for node, variables in found.items()
            if graph.key(node) in checkpoint
            for variable in variables
        ]
        cudnn_weights.note_layouts(plan, model, [v for v, _ in there], [s for _, s in there])
    for node, variables in found.items():
        key = graph.key(node)
        if key is None or key not in checkpoint:
            continue
        for variable in variables:
            if _may_fit(plan, checkpoint, key, variable):
                taken.add(key)
                if not plan.has_value_for(variable):
                    plan.assign(plan.laid_out(value_of(checkpoint, key), variable), variable)
    apart = [variables[0].path for variables in found.values() if len(variables) > 1]
    if apart:
        plan.note(APART.format(", ".join(apart)))
    weights = object_matching.weights(model)
    plan.missing += [weight.path for weight in weights if not plan.has_value_for(weight)]
    keys = None if optimizer is None else optimizer_keys(plan.file, graph, optimizer_path)
    if optimizer is not None and keys is None:
        plan.missing.append(f"the state of {optimizer.name}: the file holds no optimizer")
    if keys is not None:
        taken |= keys.all()
        trained = [weight for weight in weights if weight.trainable]
        if isinstance(model, keras.layers.Layer):
            trained = variable_order.trainable(model)
        state = _state(plan, checkpoint, graph, keys, found, trained)
        if keys.layout == "v1":
            state.slots = v1_saver.slots_for_keras(plan, optimizer, state)
        plan_optimizer(plan, optimizer, state)
    unused = [key for key in checkpoint if key not in taken and not _IGNORED.match(key)]
    unmatched = [key for key in unused if not _NO_WEIGHTS.fullmatch(key)]
    if len(unmatched) < len(unused):
        plan.note(BEGINS_ANEW)
    if model_path is not None or optimizer_path is not None:
        plan.demanded = True
        wanted = graph.keys_below(start)
        beside = [key for key in unmatched if key not in wanted]
    else:  # a step count or an epoch, say
        alone = graph.nodes[0].children.values() if start else ()
        beside = [key for key in map(graph.key, alone) if key in unmatched]
    if beside:
        others = dict.fromkeys(key.partition("/")[0] for key in beside)
        plan.note(BESIDE.format(", ".join(others)))
    plan.unused += [key for key in unmatched if key not in set(beside)]


def _may_fit(plan: Plan, checkpoint: Checkpoint, key: str, variable: Any) -> bool:
    """Whether a shape that does not fit would be an error: not that of another batch size."""
    fits = checkpoint.entry(key).shape == plan.stored_shape(variable)
    return fits or not _NO_WEIGHTS.fullmatch(key)


def _model_node(file: str, graph: ObjectGraph, model: Any, path: str | None) -> int:
    if path is not None:
        node = graph.find(path)
        if node is None:
            what = f"has no object called {path!r}"
            raise NeedsPath(file, what, "model_path", graph.nodes[0].children)
        return node
    # The root, where save_weights and SavedModel have the model, or what stood in Checkpoint(...),
    # whose names may be those of single weights of the model.
    found = object_matching.match(graph, 0, model)
    if sum(map(len, found.values())) == len(object_matching.weights(model)):
        return 0
    at_root = len(found)
    counts = {
        node: len(object_matching.match(graph, node, model))
        for node in graph.nodes[0].children.values()
    }
    best = max(counts.values(), default=0)
    winners = [node for node in counts if counts[node] == best]
    if best <= at_root:
        return 0
    if len(winners) > 1:
        names = [name for name, node in graph.nodes[0].children.items() if node in winners]
        raise NeedsPath(file, "holds several models that fit", "model_path", names)
    return winners[0]


def optimizer_keys(file: str, graph: ObjectGraph, path: str | None) -> OptimizerKeys | None:
    """Returns where the state of the optimizer at `path`, or of the only one, is; None without."""
    if path is not None:
        node = graph.find(path)
        if node is None or not is_optimizer(graph.nodes[node], graph):
            names = [name for name, _ in optimizers(graph)]
            raise NeedsPath(file, f"has no optimizer called {path!r}", "optimizer_path", names)
        return keys_of(graph, node)
    found = optimizers(graph)
    if len(found) > 1:
        names = [name for name, _ in found]
        raise NeedsPath(file, "holds several optimizers", "optimizer_path", names)
    return keys_of(graph, found[0][1]) if found else None


def _state(
    plan: Plan,
    checkpoint: Checkpoint,
    graph: ObjectGraph,
    keys: OptimizerKeys,
    variables: dict[int, list[Any]],
    trained: list[Any],
) -> OptimizerState:
    def value(key: str | None) -> Value | None:
        return None if key is None or key not in checkpoint else value_of(checkpoint, key)

    found = {name.lstrip("_"): number(plan, value(key)) for name, key in keys.hypers.items()}
    hypers = {name: one for name, one in found.items() if one is not None}
    return OptimizerState(
        iterations=number(plan, value(keys.iterations)),
        learning_rate=hypers.pop("learning_rate", None),
        hypers=hypers,
        product=next((value(key) for key in keys.extras.values()), None),
        slots=list(_slots(plan, checkpoint, graph, keys.slots, variables, trained)),
        loss_scale=value(keys.loss_scale),
        good_steps=number(plan, value(keys.good_steps)),
        counts_skipped_steps=keys.counts_skipped_steps,
    )


def _slots(
    plan: Plan,
    checkpoint: Checkpoint,
    graph: ObjectGraph,
    keys: Sequence[SlotKey],
    variables: dict[int, list[Any]],
    trained: list[Any],
) -> Iterable[Slot]:
    by_name: dict[str, list[Any]] = {}
    for node, those in variables.items():
        full_name = next((a.full_name for a in graph.nodes[node].attributes), "")
        by_name[full_name] = [] if full_name in by_name else those
    by_name = {name: those for name, those in by_name.items() if those}
    listed = {slot.list: slot.position + 1 for slot in keys if slot.position is not None}
    for slot in keys:
        if slot.variable is not None:
            those = variables.get(slot.variable, [])
        else:
            those = _by_full_name(slot.full_name, by_name)
            # Where another number of variables was trained then, the places are others, too.
            if not those and slot.position is not None and listed[slot.list] == len(trained):
                those = [trained[slot.position]]
        if not those or slot.key not in checkpoint:
            plan.unused.append(slot.key)  # the model has no such variable
        else:
            for variable in those:
                yield Slot(slot.list, variable, value_of(checkpoint, slot.key))


def _by_full_name(name: str, variables: Mapping[str, list[Any]]) -> list[Any]:
    """Returns the variable "dense/kernel" for a slot "Adam/m/dense/kernel", if just one is it.

    It may be several where layers were shared then.
    """
    if not name:
        return []
    end = variable_order.longest_end(name.removesuffix(":0"), variables)
    return [] if end is None else variables[end]


__all__ = ["NeedsPath", "RestoreError", "RestoreReport", "restore"]
