"""Whether `load_model` predicts what predict.py wrote, on the backend that is set.

python compare.py predicted.pkl. A difference is one of more than 1e-4 of the largest output.
"""

import collections
import pathlib
import pickle
import sys

import keras
import numpy as np

from keras_mp.compat import load_model


def outcome(path, expected):
    keras.utils.clear_session()
    try:
        model = load_model(path, compile=False)
        if isinstance(expected, str):
            return "loaded, and not by TensorFlow"
        inputs, outputs = expected
        found = model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=2, verbose=0)
    except Exception as error:  # noqa: BLE001 - of any model
        if isinstance(expected, str):
            return "refused, by TensorFlow, too"
        print(path, type(error).__name__, error, flush=True)
        return "refused"
    for one, other in zip(found if isinstance(found, list) else [found], outputs, strict=True):
        if one.shape != other.shape:
            return "another shape"
        are_close = np.allclose(one, other, rtol=0, atol=1e-4 * max(1, np.nanmax(abs(other))))
        if not are_close and not np.isnan(other).any():
            print(path, "differs", flush=True)
            return "differs"
    return "the same"


def main(recorded):
    expected = pickle.loads(pathlib.Path(recorded).read_bytes())
    counts = collections.Counter(outcome(*item) for item in expected.items())
    for what, count in counts.most_common():
        print(f"{count:5d} {what}")


if __name__ == "__main__":
    main(*sys.argv[1:])
