"""Whatever a converted layer computes or trains otherwise has a line of its own.

The layers are those of tests/data/layers: every class of tf.keras with its options.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_mp.compat.configs import Change, convert

FOLDER = Path(__file__).parents[2] / "data" / "layers"
RECORDED = {path.stem.removeprefix("tf"): np.load(path) for path in FOLDER.glob("tf*.npz")}
CASES = [
    (version, key.partition("/")[0])
    for version, recorded in sorted(RECORDED.items())
    for key in recorded
    if key.endswith("/config")
]
# Parts of a layer of ours, whose line is that of the whole.
PARTS = {"keras2_hard_sigmoid"}


def ours(value: Any) -> Iterator[str]:
    """Yields the names of what is of keras_mp in a converted config."""
    if isinstance(value, list):
        for item in value:
            yield from ours(item)
    elif isinstance(value, dict):
        name = value.get("registered_name")
        if isinstance(name, str) and name.startswith("keras_mp>"):
            yield name.removeprefix("keras_mp>")
        for item in value.values():
            yield from ours(item)


def told(changes: tuple[Change, ...]) -> list[str]:
    return [change.what for change in changes if change.matters]


@pytest.mark.parametrize("version", sorted(RECORDED))
def test_layers_of_ours_are_named(version: str) -> None:
    seen = set()
    for there, case in CASES:
        if there != version:
            continue
        config = json.loads(str(RECORDED[version][f"{case}/config"]))
        for exact in (False, True):
            done = convert(config, kind="model", tf_version=version, exact_training=exact)
            for name in ours(done.config):
                seen.add(name)
                computes = any(change.kind == "computes" for change in done.changes)
                lines = told(done.changes)
                assert computes or any(name in line for line in lines), (case, exact, name, lines)
    assert len(seen) > 5


def is_alike(layer: Any) -> bool:
    """Whether it trains as then, or shows only when the model is built that it does not."""
    if "BatchNormalization" in layer["class_name"]:  # of an image or of a vector
        return layer["config"]["axis"] not in (3, [3])
    inside = json.dumps(layer["config"])
    parts = ('"class_name": "BatchNorm', '"activity_regularizer": {')
    return layer["class_name"] == "TimeDistributed" and not any(part in inside for part in parts)


@pytest.mark.parametrize("version", sorted(RECORDED))
def test_what_exact_training_would_replace_is_told_without(version: str) -> None:
    replaced = 0
    for there, case in CASES:
        if there != version:
            continue
        config = json.loads(str(RECORDED[version][f"{case}/config"]))
        plain = convert(config, kind="model", tf_version=version)
        exact = convert(config, kind="model", tf_version=version, exact_training=True)
        more = set(ours(exact.config)) - set(ours(plain.config))
        if more and not is_alike(config["config"]["layers"][1]):
            replaced += 1
            assert any("exact_training=True" in line for line in told(plain.changes)), (case, more)
    assert replaced > 5
