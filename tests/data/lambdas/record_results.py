"""Calls the functions of sources.txt in TensorFlow, and keeps what they give in results.json.

Run it as `python record_results.py`, with TF 2.15 and Python 3.11. Each is called with the first
of `INPUTS` that it takes; what takes none, needs a global variable, or is random is left out.
"""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
from inputs import INPUTS
from record import function, paragraphs

HERE = Path(__file__).resolve().parent
MOST = 1000  # numbers of a result
GLOBALS = {"tf": tf, "K": tf.keras.backend, "keras": tf.keras, "np": np}


def parts(value):
    """Returns a result as JSON keeps it: tensors as [dtype, nested lists]."""
    if isinstance(value, (list, tuple)) and value and not isinstance(value, tf.TensorShape):
        return [parts(one) for one in value]
    if not tf.is_tensor(value):
        raise TypeError("no tensor")
    array = value.numpy()
    if not np.all(np.isfinite(array)) or array.size > MOST:
        raise ValueError("not to be kept")
    return {"dtype": array.dtype.name, "shape": list(array.shape), "is": array.ravel().tolist()}


def result(source):
    """Returns (name of the input, what the function gives), or None."""
    call = function(source)
    call.__globals__.update(GLOBALS)
    for name, arrays in INPUTS.items():
        tensors = [tf.constant(array) for array in arrays]
        try:
            found = parts(call(tensors if name.startswith("two") else tensors[0]))
        except Exception:  # noqa: BLE001, whatever it is, the next input may do
            continue
        return [name, found]
    return None


if __name__ == "__main__":
    read, _ = paragraphs()
    sources = [source for source, _ in read if "random" not in source and "dropout" not in source]
    found = {source: result(source) for source in sources}
    kept = {source: one for source, one in found.items() if one}
    lines = [f"{json.dumps(source)}: {json.dumps(kept[source])}" for source in sorted(kept)]
    (HERE / "results.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(len(kept), "of", len(sources))
