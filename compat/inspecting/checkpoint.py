"""What is in a checkpoint, whose tensors are all read and checked."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from keras_mp.compat.checkpoints import Checkpoint, Unreadable
from keras_mp.compat.checkpoints.bundle import Array, Bundle, Entry
from keras_mp.compat.checkpoints.locating import data_files
from keras_mp.compat.checkpoints.object_graph import KEY, ObjectGraph
from keras_mp.compat.checkpoints.optimizer_nodes import OptimizerKeys, keys_of, optimizers
from keras_mp.compat.file_formats import saved_models
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.compat.inspecting.inspection import Damage, Inspection, Optimizer, Tensor

_NO_SCALE = "there is no dynamic loss scale; a checkpoint does not hold a fixed one"
_DAMAGED = "its object graph is damaged, so nothing says which tensor is which"

# Name of the slot in a Saver's file -> the optimizer of tf.compat.v1.train that made it.
V1_SLOTS = {
    slot: slot.partition("_")[0]
    for slot in (
        *("Adam", "Adam_1", "Momentum", "Adagrad", "Adadelta", "Adadelta_1", "Ftrl", "Ftrl_1"),
        *("RMSProp", "RMSProp_1", "RMSProp_2"),
    )
}


def fill_from_checkpoint(found: Inspection, prefix: str, *, check: bool = True) -> None:
    """Fills in what the checkpoint says.

    Raises:
        Unreadable: Its index is missing or damaged, so that nothing is known.
    """
    bundle = Bundle(prefix)
    small = _read(found, bundle, check=check)
    try:
        checkpoint = Checkpoint(f"{prefix}.index")
    except Unreadable as error:
        found.layout = found.layout or "objects"
        found.notes.append(_DAMAGED)
        damage = Damage(error.file, error.where, error.why)
        if damage not in found.damage:
            found.damage.append(damage)
        return
    graph = checkpoint.graph
    if graph is None:
        found.layout = found.layout or "names, of tf.compat.v1.train.Saver"
        found.written_by = "TensorFlow 1, or tf.compat.v1"
        found.why = "it holds names and no objects"
        _read_names(found, small)
        return
    found.layout = found.layout or "objects"
    found.save_counter = _whole(small.get("save_counter/.ATTRIBUTES/VARIABLE_VALUE"))
    there = optimizers(graph)
    names: dict[str, list[str]] = defaultdict(list)  # key -> names of what is stored there
    for node in graph.nodes:
        for attribute in node.attributes:
            names[attribute.key].append(attribute.full_name)
    found.optimizers = [
        _optimizer(path, keys_of(graph, number), names, small) for path, number in there
    ]
    if found.written_by == "unknown":
        if there:
            found.written_by, found.why = _version(there[0][1], graph, names)
        else:
            found.written_by, found.why = "TensorFlow 1.15 to 2.15", "it has objects, no optimizer"


def state_of_optimizers(path: str | Path) -> set[str]:
    """Returns the keys of a checkpoint, or of a SavedModel's, that are state of an optimizer.

    Raises:
        Unreadable: It does not exist, or damaged.
    """
    is_model = kind_of(path) == "saved_model"
    checkpoint = Checkpoint(saved_models.variables_of(path) if is_model else path)
    graph, keys = checkpoint.graph, set(checkpoint)
    if graph is None:
        own = {"global_step", "current_loss_scale", "good_steps"}
        powers = {key for key in keys if key.split("/")[-1] in ("beta1_power", "beta2_power")}
        return (own & keys) | powers | {key for key in keys if _is_v1_slot(key, keys)}
    found: set[str] = set()
    for _, number in optimizers(graph):
        found |= keys_of(graph, number).all()
        # A loss scale may be of the user's own class.
        found |= graph.keys_below(graph.nodes[number].children.get("loss_scale"))
    return found


def _is_v1_slot(key: str, keys: set[str]) -> bool:
    owner, _, slot = key.rpartition("/")
    return slot in V1_SLOTS and owner in keys


def _read(found: Inspection, bundle: Bundle, *, check: bool) -> dict[str, Array]:
    """Reads the tensors, all of them where they are checked; returns those of a single number."""
    small = {}
    unread = _stored(bundle)
    for key in bundle:
        try:
            entry = bundle.entry(key)
            tensor = _tensor(key, entry)
            if key != KEY:
                found.tensors.append(tensor)
            if not check and entry.shape != ():
                continue
            if unread < 0:  # no two tensors have the same bytes
                why = "those before it have more bytes than there are: not read"
                raise Unreadable(bundle.file_of(key), key, why)
            array = bundle[key]
            unread -= tensor.size
        except Unreadable as error:
            found.damage.append(Damage(error.file, error.where, error.why))
            continue
        if array.shape == ():
            small[key] = array
    return small


def _stored(bundle: Bundle) -> int:
    """Returns the bytes of all data files; where one is missing, more than there can be."""
    prefix = Path(bundle.prefix)
    files = [prefix.parent / name for _, name in data_files(prefix.parent, prefix.name)]
    if len(files) < bundle.shards:
        return 1 << 62  # reading it says so
    return sum(file.stat().st_size for file in files)


def _tensor(key: str, entry: Entry) -> Tensor:
    size = entry.size
    if entry.slices:
        tensor = Tensor(key, entry.shape, entry.dtype, 0)
        size = _bytes(tensor)
    return Tensor(key, entry.shape, entry.dtype, size)


def _bytes(tensor: Tensor) -> int:
    bits = 8 if tensor.dtype == "bool" else int(re.sub(r"\D", "", tensor.dtype))
    return math.prod(tensor.shape) * bits // 8


def _optimizer(
    path: str, keys: OptimizerKeys, names: Mapping[str, list[str]], small: dict[str, Array]
) -> Optimizer:
    config = {
        name.lstrip("_"): _number(small.get(key))
        for name, key in (keys.hypers | keys.extras).items()
    }
    scale, counter = (small.get(key or "") for key in (keys.loss_scale, keys.good_steps))
    return Optimizer(
        path=path,
        layout=keys.layout,
        name=_name(keys, names),
        loss_scaler="LossScaleOptimizer" if keys.is_wrapped else None,
        config={name: value for name, value in config.items() if value is not None},
        slots=dict(Counter(slot.list.lstrip("_") for slot in keys.slots)),
        iterations=_whole(small.get(keys.iterations or "")),
        loss_scale=_number(scale),
        counter=_whole(counter),
        note=_NO_SCALE if keys.loss_scale is None else None,
    )


def _name(keys: OptimizerKeys, names: Mapping[str, list[str]]) -> str | None:
    """Returns "Adam" of "cond_1/Adam/iter" or "Adam/m/dense/kernel"."""
    those = names.get(keys.iterations or "", [])
    if keys.layout == "new":
        those = [slot.full_name for slot in keys.slots]
    for name in those:
        parts = [p for p in name.split("/") if not re.fullmatch(r"cond(_\d+)?", p)]
        if len(parts) > 1 and (keys.layout != "new" or parts[0][:1].isupper()):
            return parts[0]
    return None


def _version(number: int, graph: ObjectGraph, names: Mapping[str, list[str]]) -> tuple[str, str]:
    node = graph.nodes[number]
    keys = keys_of(graph, number)
    if keys.layout == "base_optimizer":
        return "TensorFlow 1.15 to 2.2", "the optimizer is a child of its loss scaler"
    if keys.layout == "v1":
        return "TensorFlow 1", "an optimizer of tf.compat.v1.train"
    if keys.layout == "new":
        variables = node.children.get("_variables")
        first = None if variables is None else graph.nodes[variables].children.get("0")
        if first != node.children.get("_iterations"):
            return "TensorFlow 2.10", "slots of optimizers.experimental, numbered from 0"
        if not keys.slots:
            return "TensorFlow 2.11 to 2.15", "a new optimizer"
        if _name(keys, names):
            return "TensorFlow 2.11 to 2.13", "a new optimizer, whose slots begin with its name"
        return "TensorFlow 2.14 or 2.15", "a new optimizer, whose slots have its name no more"
    if keys.is_wrapped:
        return "TensorFlow 2.3 to 2.15", "the optimizer is one with its loss scaler"
    return "TensorFlow 1.15 to 2.15", "an optimizer without a loss scaler is the same in all"


def _read_names(found: Inspection, small: dict[str, Array]) -> None:
    keys = {tensor.key for tensor in found.tensors}
    slots: Counter[str] = Counter()
    for key in keys:
        if _is_v1_slot(key, keys):
            slots[key.rpartition("/")[2]] += 1
    scale = small.get("current_loss_scale")
    if not slots and scale is None and "global_step" not in keys:
        return
    classes = sorted({V1_SLOTS[slot] for slot in slots})
    found.optimizers = [
        Optimizer(
            name="+".join(classes) or None,
            loss_scaler=None if scale is None else "LossScaleOptimizer",
            slots=dict(sorted(slots.items())),
            iterations=_whole(small.get("global_step")),
            loss_scale=_number(scale),
            counter=_whole(small.get("good_steps")),
            note=_NO_SCALE if scale is None else None,
        )
    ]
    found.notes.append("a Saver's file holds no hyperparameters")


def _number(array: Array | None) -> float | None:
    return None if array is None or array.dtype.kind in "Oc" else float(array)


def _whole(array: Array | None) -> int | None:
    return None if array is None or array.dtype.kind not in "iu" else int(array)
