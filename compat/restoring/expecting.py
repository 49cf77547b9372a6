"""Compares a model with predictions that old TensorFlow recorded of it.

`keras-mp record-script` prints the program that records them.
"""

import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.zip_archives import ZIP_FAILURES
from keras_mp.compat.restoring.comparing import calls_of, largest_difference, rounding_of
from keras_mp.compat.restoring.comparison import Comparison, Part

FORMAT = 1
RECORDING = "the recording"
_MOST_BYTES = 1 << 31
_TRIALS = 2


def expect(path: str | Path, model: Any) -> Comparison:
    """Returns how far a model predicts what was recorded.

    Args:
        path: Of the recording, an `.npz`; nothing in it is unpickled.
        model: The model, with its weights.

    Raises:
        Unreadable: It is no recording, or is damaged.
    """
    arrays = _read(Path(path))
    allowed = rounding_of(model)
    shapes, parts = [], []
    for trial in range(_TRIALS):
        inputs, expected = (_numbered(arrays, f"{kind}{trial}") for kind in "xy")
        if not inputs or not expected:
            raise Unreadable(str(path), f"x{trial}, y{trial}", "are missing")
        shapes.append(tuple(one.shape for one in inputs))
        try:
            results = keras.tree.flatten(_called(model, inputs))
        except Exception as error:
            text = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise Unreadable(str(path), "", f"its inputs do not fit the model: {text}") from error
        parts.append(Part(largest_difference(results, expected), allowed))
    part = max(parts, key=lambda one: one.largest)
    if part.differs:
        part = _with_layer(part, arrays, model)
    return Comparison(tuple(shapes), part, source=RECORDING)


def _with_layer(part: Part, arrays: dict[str, Any], model: Any) -> Part:
    """Returns a part with the first layer whose output is another than that recorded."""
    names = [str(name) for name in arrays.get("layers", ())]
    places = {name: i for i, name in enumerate(names)}
    inputs = _numbered(arrays, "x0")
    for call in calls_of(model, lambda: _called(model, inputs)):
        place = places.get(call.layer.name)
        if place is None or call.layer is model:
            continue
        expected = _numbered(arrays, f"layer{place}")
        difference = largest_difference(call.outputs, expected)
        if not difference <= part.allowed:
            name = f"{call.path} ({type(call.layer).__name__})"
            return Part(part.largest, part.allowed, name, difference)
    return part


def _called(model: Any, inputs: list[Any]) -> Any:
    tensors = [keras.ops.convert_to_tensor(one) for one in inputs]
    with keras.StatelessScope():
        return model(tensors if len(tensors) > 1 else tensors[0], training=False)


def _numbered(arrays: dict[str, Any], name: str) -> list[Any]:
    found: list[Any] = []
    while f"{name}/{len(found)}" in arrays:
        found.append(arrays[f"{name}/{len(found)}"])
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(one.file_size for one in archive.infolist())
        if total > _MOST_BYTES:
            raise Unreadable(str(path), "", f"holds {total} bytes; {_MOST_BYTES} are allowed")
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except ZIP_FAILURES as error:
        raise Unreadable(str(path), "", f"is no recording: {error}") from None
    if "format" not in arrays or not np.array_equal(arrays["format"], FORMAT):
        raise Unreadable(str(path), "format", "is none that keras-mp record-script writes")
    for name, array in arrays.items():
        if name != "layers" and array.dtype.kind not in "fiub":
            raise Unreadable(str(path), name, f"holds {array.dtype}: numbers are expected")
    return arrays
