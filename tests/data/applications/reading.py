"""Reads the recordings of tf.keras.applications, and builds the HDF5 files of then from them."""

import base64
import json
import lzma
from functools import lru_cache
from pathlib import Path

import h5py
import numpy as np

from tests.data.applications.weights import BATCH, images, weights

FOLDER = Path(__file__).parent
VERSIONS = ("tf23", "tf24", "tf210", "tf215")
LARGEST_ATTRIBUTE = 64512  # bytes; tf.keras cuts longer lists into parts


@lru_cache(maxsize=len(VERSIONS))
def _lines(version):
    with lzma.open(FOLDER / f"{version}.jsonl.xz", "rt", encoding="ascii") as file:
        names = json.loads(file.readline())["names"]
        return dict(zip(names, file, strict=True))


def names(version):
    """Returns the names of the recordings of a version, e.g. of "tf23"."""
    return list(_lines(version))


def read(version, name):
    """Returns what was recorded, its input and predictions as float32 arrays.

    Keys: function, arguments, policy (how it was made), keras_version, config (what HDF5 files
    have as `model_config`), json_config (what `to_json` wrote, where it differs: in tf215),
    layers ({layer name: [[weight name, shape], ...]} in the order of the file, those with
    weights; a dtype follows where it is not float32), levels (what `weights` takes), input,
    predictions, dtype (of the predictions), condition (by how much a small relative change of
    the input is amplified).
    """
    recorded = json.loads(_lines(version)[name])
    recorded["input"] = images(**recorded["input"])
    predictions = np.frombuffer(base64.b64decode(recorded["predictions"]), "<f4")
    recorded["predictions"] = predictions.astype(np.float32).reshape(BATCH, -1)
    return recorded


def _write_attribute(group, key, strings, old):
    """Writes a list of strings; h5py 2 wrote them with a fixed length."""
    data = [string.encode() for string in strings]
    parts = [np.asarray(data)]
    while any(part.nbytes > LARGEST_ATTRIBUTE for part in parts):
        parts = np.array_split(np.asarray(data), len(parts) + 1)
    if len(parts) == 1:
        group.attrs[key] = parts[0] if old else data
    else:
        for i, part in enumerate(parts):
            group.attrs[f"{key}{i}"] = part


def write_hdf5(path, version, name):
    """Writes the file that `model.save` of that version wrote for the uncompiled model."""
    recorded, old = read(version, name), version in ("tf23", "tf24")
    about = {"backend": "tensorflow", "keras_version": recorded["keras_version"]}
    layers = [layer["config"]["name"] for layer in recorded["config"]["config"]["layers"]]
    found = {layer: [] for layer in layers}
    for layer, weight_name, array in weights(recorded["layers"], recorded["levels"]):
        found[layer].append((weight_name, array))
    with h5py.File(path, "w") as file:
        file.attrs.update(about)
        file.attrs["model_config"] = json.dumps(recorded["config"]).encode()
        top = file.create_group("model_weights")
        top.attrs.update({key: value.encode() for key, value in about.items()})
        _write_attribute(top, "layer_names", layers, old)
        for layer in sorted(found):
            group = top.create_group(layer)
            _write_attribute(group, "weight_names", [name for name, _ in found[layer]], old)
            for weight_name, array in found[layer]:
                group.create_dataset(weight_name, data=array)
        if not old:  # TF 2.6 did not yet
            _write_attribute(top.create_group("top_level_model_weights"), "weight_names", [], old)
