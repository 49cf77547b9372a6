"""Reads what Keras wrote of the functions of sources.txt, by each version of Python."""

import json
from collections.abc import Iterator
from pathlib import Path

LAMBDAS = Path(__file__).parent
VERSIONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11")
RECORDED = json.loads((LAMBDAS / "recorded.json").read_text(encoding="utf-8"))


def fields(source: str) -> Iterator[tuple[str, list[object]]]:
    """Yields (version, `function` of the config of the layer)."""
    for versions, field in RECORDED[source].items():
        for version in versions.split():
            yield version, field if isinstance(field, list) else [field, None, None]
