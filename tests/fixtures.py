"""The recorded artefacts of TF 1.15 to 2.15: the bundled ones, or the whole set."""

import json
import os
from pathlib import Path

DATA = Path(__file__).parent / "data" / "legacy"
FIXTURES = Path(os.environ.get("KERAS_MP_FIXTURES") or DATA)
HAS_ALL = FIXTURES != DATA


def oracles():
    """Yields the folder of each recorded training, as `tf23/name`, and its recorded values."""
    for path in sorted(FIXTURES.glob("tf*/*/oracle.json")):
        folder = path.parent.relative_to(FIXTURES).as_posix()
        yield folder, json.loads(path.read_text(encoding="utf-8"))


def recorded_configs():
    """Yields (TF version, id, config) of each optimizer that was serialized alone."""
    for path in sorted(FIXTURES.glob("configs/optimizer_configs_tf*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for record in document["configs"]:
            if "serialized" in record:
                yield document["tf_version"], record["id"], record["serialized"]
