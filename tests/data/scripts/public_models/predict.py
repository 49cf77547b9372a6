"""What the TensorFlow that is installed predicts with each HDF5 model below a folder.

python predict.py FOLDER predicted.pkl. Writes {path: (inputs, outputs)}, or {path: why not}.
"""

import os
import pathlib
import pickle
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf


def inputs_of(model):
    """Returns random inputs; whole numbers where the model has an Embedding."""
    random = np.random.RandomState(0)
    has_words = any(isinstance(one, tf.keras.layers.Embedding) for one in model._flatten_layers())
    found = []
    for tensor in model.inputs:
        sizes = [2, *(6 if one is None else one for one in tensor.shape.as_list()[1:])]
        values = random.randint(0, 3, sizes) if has_words else random.rand(*sizes)
        found.append(values.astype("float32"))
    return found


def predicted(path):
    tf.keras.backend.clear_session()
    try:
        model = tf.keras.models.load_model(path, compile=False)
        inputs = inputs_of(model)
        outputs = model.predict(inputs if len(inputs) > 1 else inputs[0], batch_size=2)
    except Exception as error:  # noqa: BLE001 - of any model
        return f"{type(error).__name__}: {error}"
    return inputs, outputs if isinstance(outputs, list) else [outputs]


def main(folder, out):
    files = [p for p in pathlib.Path(folder).rglob("*") if p.suffix in (".h5", ".hdf5", ".keras")]
    found = {str(path): predicted(str(path)) for path in sorted(files)}
    pathlib.Path(out).write_bytes(pickle.dumps(found))
    print(f"{len(found)} files, {sum(isinstance(one, tuple) for one in found.values())} predict")


if __name__ == "__main__":
    main(*sys.argv[1:])
