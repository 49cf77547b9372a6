"""`ranges.json`: what was measured, on the disk, and the checks of what is read from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.files.json_files import (
    bad_value,
    check_rows,
    file_in,
    is_text,
    is_whole,
    is_whole_or_null,
    read,
    write,
)

FILE = "ranges.json"
FORMAT, VERSION = "keras_mp.ranges", 1
WRITER = "RangeReport.save"
FRACTIONS = ("zero", "subnormal", "overflow")


def read_ranges(path: str | Path) -> dict[str, Any]:
    """Returns what a `ranges.json` says, given it or its folder.

    Raises:
        ValueError: It is none, or of a later version.
        OSError: It cannot be read.
    """
    file = file_in(path, FILE)
    found = read(file, FORMAT, VERSION, WRITER)
    check_ranges(found, str(file))
    return found


def check_ranges(ranges: Mapping[str, Any], name: str = "ranges") -> None:
    """Checks what the pictures rely on.

    Raises:
        ValueError: It is otherwise; says where, and what was found.
    """
    ends = ranges.get("exponents")
    if not (isinstance(ends, list | tuple) and len(ends) == 2 and all(map(is_whole, ends))):
        raise bad_value(name, "exponents", ends, "two whole numbers")
    bins = ends[1] - ends[0] + 1

    def is_histogram(value: object) -> bool:
        return isinstance(value, list) and len(value) == bins and all(map(is_whole, value))

    if "rows" not in ranges:
        raise bad_value(name, "rows", None, "a list")
    beside = dict.fromkeys(("infs", "nans"), is_whole_or_null)
    check_rows(name, ranges, "rows", {"path": is_text, "kind": is_text, **beside})
    for i, row in enumerate(ranges["rows"]):
        if not is_histogram(row.get("histogram")):
            wanted = f"a list of {bins} counts, as of the exponents {list(ends)}"
            raise bad_value(name, f"rows[{i}].histogram", row.get("histogram"), wanted)


def check_measured(ranges: Mapping[str, Any], name: str = "ranges") -> None:
    """Checks what the table relies on, beyond `check_ranges`.

    Raises:
        ValueError: It is otherwise; says where, and what was found.
    """
    counts = dict.fromkeys(("count", "zeros", "infs", "nans"), is_whole)
    check_rows(name, ranges, "rows", {"dtype": is_text, **counts})
    for i, row in enumerate(ranges["rows"]):
        half = row.get("float16")
        parts = [half.get(key) for key in FRACTIONS] if isinstance(half, dict) else [None]
        if not all(isinstance(part, int | float) for part in parts):
            wanted = f"the fractions {', '.join(FRACTIONS)}"
            raise bad_value(name, f"rows[{i}].float16", half, wanted)
    if not isinstance(ranges.get("loss_scale"), int | float):
        raise bad_value(name, "loss_scale", ranges.get("loss_scale"), "a number")
    advice = ranges.get("advice", {})
    if not isinstance(advice, dict):
        raise bad_value(name, "advice", advice, "an object")
    float32 = advice.get("float32", {"default": ""})
    if not Float32Layers.is_plain(float32):
        raise bad_value(name, "advice.float32", float32, "what Float32Layers.to_dict returns")


def write_ranges(path: str | Path, ranges: Mapping[str, Any]) -> None:
    """Writes a `ranges.json`, given it or its folder, whole or not at all; the folder is made.

    "format" and "version" are added. What JSON lacks (inf, nan) becomes text.
    """
    write(file_in(path, FILE), FORMAT, VERSION, ranges)
