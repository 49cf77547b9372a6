"""Layers of tf.keras with many of their options predict as then, or are in the table below.

tests/data/layers has what TF 2.4.4, 2.10.1 and 2.15.1 predicted, and the script that recorded it.
"""

import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp.compat.configs import convert
from keras_mp.compat.restoring import building, hdf5

FOLDER = Path(__file__).parents[2] / "data" / "layers"
RECORDED = {path.stem.removeprefix("tf"): np.load(path) for path in FOLDER.glob("tf*.npz")}
KINDS = {
    (version, key.split("/")[0].rpartition("_")[0])
    for version, recorded in RECORDED.items()
    for key in recorded
}
# What Keras 3 does otherwise in a graph than eagerly, or might.
PREDICTED = (
    "Discretization",
    "Hashing",
    "CategoryEncoding",
    "Resizing",
    "CenterCrop",
    "RandomCrop",
)

# (backends, versions, layer, a part of its config) -> what is otherwise.
ALL = "jax tensorflow torch"
DIFFERENT = {
    (ALL, "2.10", "Normalization_3", ""): "invert=True, which TF 2.10 did not write into configs",
}


def expected_difference(version, kind, case, layer):
    text = json.dumps(layer["config"], sort_keys=True)
    for (backends, versions, kinds, part), what in DIFFERENT.items():
        if (
            keras.backend.backend() in backends
            and version.startswith(versions)
            and (re.fullmatch(kinds, kind) or kinds == case)
            and re.search(part, text)
        ):
            return what
    return None


def difference(recorded, case, version, config, kind):
    """Returns how far predictions are from TensorFlow's, in parts of the largest; or the error."""
    try:
        done = convert(config, kind="model", tf_version=version)
        model = building.model(str(Path(__file__)), done.config, {}, safe_mode=True)
        weights = [recorded[f"{case}/w{i}"] for i in range(20) if f"{case}/w{i}" in recorded]
        if model.weights:
            model.set_weights(weights)
            hdf5.finish(model)
        x, y = recorded[f"{case}/x"], recorded[f"{case}/y"]
        found = (
            model.predict(x, verbose=0)
            if kind in PREDICTED
            else keras.ops.convert_to_numpy(model(x, training=False))
        )
    except Exception as error:  # noqa: BLE001 - of Keras or a framework, whatever it is
        return f"{type(error).__name__}: {error}"
    if found.shape != y.shape:
        return f"shape {found.shape} in place of {y.shape}"
    return float(np.abs(found - y).max() / max(1.0, float(np.abs(y).max())))


def kinds():
    """What a conversion makes of a version is the same on all backends: torch is the fastest."""
    for version, kind in sorted(KINDS):
        if version == "2.15.1" or kind in PREDICTED or keras.backend.backend() == "torch":
            yield version, kind


@pytest.mark.parametrize(("version", "kind"), list(kinds()))
def test_predictions(version, kind):
    recorded = RECORDED[version]
    cases = {key.split("/")[0] for key in recorded if key.startswith(f"{kind}_")}
    for case in sorted(cases):
        config = json.loads(str(recorded[f"{case}/config"]))
        layer = config["config"]["layers"][1]
        known = expected_difference(version, kind, case, layer)
        found = difference(recorded, case, version, config, kind)
        is_same = isinstance(found, float) and found < 1e-5
        assert is_same == (known is None), (case, layer["config"], found, known)
