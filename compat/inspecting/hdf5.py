"""What is in an HDF5 file: `model.h5`, `weights.h5`, and `.weights.h5` of TF 2.12 and later."""

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.hdf5_groups import (
    FAILURES,
    as_text,
    excess_size,
    is_own,
    leads_to,
    members,
    reason,
)
from keras_mp.compat.inspecting import configs, versions
from keras_mp.compat.inspecting.inspection import Damage, Inspection, Optimizer, Tensor

NO_SCALE = "HDF5 files hold neither the current loss scale nor its counter"
NO_CHECKSUMS = "HDF5 has no checksums: that every array can be read is all that was checked"
UNNAMED = "by position"
_PIECE = 1 << 24


def fill_from_hdf5(
    found: Inspection, file: str | BinaryIO, shown: str, *, check: bool = True
) -> None:
    """Fills in what an HDF5 file says.

    Args:
        found: Gets it.
        file: Its path, or the file itself, which was opened.
        shown: What to call it in errors.
        check: Whether to read every array, or single numbers only.

    Raises:
        Unreadable: It cannot be opened.
    """
    import h5py

    try:
        opened = h5py.File(file, "r")
    except FAILURES as error:
        raise Unreadable(shown, "", f"cannot be opened: {reason(error)}") from None
    with opened as root:
        try:
            _read(found, root, shown, check)
        except FAILURES as error:
            found.damage.append(Damage(shown, "", reason(error)))
    if check and not found.damage:
        found.notes.append(NO_CHECKSUMS)


def _read(found: Inspection, root: Any, shown: str, check: bool) -> None:
    attributes = root.attrs
    if "model_config" in attributes or is_own(root, "model_weights"):
        found.layout = "HDF5, model.save"
        _read_model(found, root, shown)
    elif "layer_names" in attributes:
        found.layout = "HDF5, model.save_weights, classic"
        found.notes.append("weights only: neither a config of the model nor its optimizer")
    else:
        _read_v3(found, root)
    version = attributes.get("keras_version")
    if version is not None:
        training = _config(found, root, "training_config", shown) or {}
        optimizer = training.get("optimizer_config")
        found.written_by, found.why = versions.of_keras_version(as_text(version), optimizer)
    arrays = dict(_arrays(found, root, shown, check))
    _read_state(found, root, arrays)


def _read_v3(found: Inspection, root: Any) -> None:
    import h5py

    arrays = (path for path, _, child in members(root) if isinstance(child, h5py.Dataset))
    if not any("vars" in path.split("/") for path in arrays):
        found.layout = "HDF5, not of Keras"
        found.notes.append("it holds neither a model nor weights: was saving it interrupted?")
        return
    found.layout = found.layout or "HDF5, .weights.h5 (v3)"
    if found.written_by == "unknown":
        found.written_by, found.why = versions.of_layers_group(set(root))


def _read_model(found: Inspection, root: Any, shown: str) -> None:
    model = _config(found, root, "model_config", shown)
    if model is None:
        found.notes.append("it holds no config of a model")
    else:
        configs.describe_model(found, model)
    training = _config(found, root, "training_config", shown)
    optimizer = configs.optimizer_of((training or {}).get("optimizer_config"))
    if optimizer is not None:
        found.optimizers = [optimizer]


def _config(found: Inspection, root: Any, name: str, shown: str) -> configs.Config | None:
    text = root.attrs.get(name)
    if text is None:
        return None
    try:
        return configs.json_object(as_text(text))
    except configs.Nonsense as error:
        damage = Damage(shown, name, str(error))
        if damage not in found.damage:
            found.damage.append(damage)
        return None


def _arrays(found: Inspection, root: Any, shown: str, check: bool) -> Iterator[tuple[str, Any]]:
    """Reads the arrays, all of them where they are checked; yields those of a single number."""
    import h5py

    checked = set()  # one may be linked under many names
    for path, link, dataset in members(root):
        try:
            where = leads_to(link, dataset)
            if where is not None:
                found.damage.append(Damage(shown, path, where))
            if not isinstance(dataset, h5py.Dataset):
                continue
            shape, dtype = tuple(dataset.shape), str(dataset.dtype)
            size = math.prod(shape) * dataset.dtype.itemsize
            found.tensors.append(
                Tensor(path, shape, "string" if dataset.dtype.kind in "OSU" else dtype, size)
            )
            address = h5py.h5o.get_info(dataset.id).addr
            if check and where is None and address not in checked:
                checked.add(address)
                _check(dataset, shape, size)
            if where is None and shape == () and dataset.dtype.kind in "iuf":
                yield path, dataset[()]
        except FAILURES as error:
            found.damage.append(Damage(shown, path, reason(error)))


def _check(dataset: Any, shape: tuple[int, ...], size: int) -> None:
    if (what := excess_size(dataset)) is not None:
        raise ValueError(what)
    if not shape or size <= _PIECE:
        dataset[()]
        return
    rows = max(1, _PIECE * shape[0] // size)
    for start in range(0, shape[0], rows):
        dataset[start : start + rows]


def _read_state(found: Inspection, root: Any, small: dict[str, Any]) -> None:
    paths = [tensor.key for tensor in found.tensors]
    if is_own(root, "optimizer_weights"):
        names = root["optimizer_weights"].attrs.get("weight_names", ())
        names = [as_text(name) for name in names]
        count = _first(small, [f"optimizer_weights/{name}" for name in names])
        slots = len(names) - 1
    else:
        count = _first(small, ["optimizer/vars/0"])
        slots = sum(path.startswith("optimizer/vars/") for path in paths) - 1
    if count is None and not found.optimizers:
        return
    if not found.optimizers:
        found.optimizers = [Optimizer()]
    optimizer = found.optimizers[0]
    optimizer.iterations = count
    if optimizer.loss_scaler is not None or optimizer.class_name is None:
        optimizer.note = NO_SCALE
    if versions.is_keras_3(found.written_by):
        optimizer.note, slots = None, 0  # not told apart from the loss scaler's own
        _read_scale(optimizer, small)
    if count is None:
        found.notes.append("it holds no state of the optimizer")
    elif slots > 0:
        optimizer.slots = {UNNAMED: slots}


def _read_scale(optimizer: Optimizer, small: dict[str, Any]) -> None:
    # The order of keras.optimizers.LossScaleOptimizer, and of ours.
    counter, scale, count = (small.get(f"optimizer/vars/{i}") for i in (2, 3, 4))
    if optimizer.loss_scaler is not None and counter is not None and scale is not None:
        optimizer.counter, optimizer.loss_scale = int(counter), float(scale)
        optimizer.iterations = None if count is None else int(count)


def _first(small: dict[str, Any], paths: list[str]) -> int | None:
    value = small.get(paths[0]) if paths else None
    if value is None or value.dtype.kind not in "iuf" or value.shape != ():
        return None
    # Keras 2.0.5 and 2.0.6 counted in float32.
    return int(value) if math.isfinite(value) and value == int(value) else None
