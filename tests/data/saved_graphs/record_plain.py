"""Makes SavedModels of Keras' own layers, and of a class that only has the name of one.

    python record_plain.py FOLDER

Ran with TensorFlow 2.15.1. FOLDER gets NAME.zip and NAME.npz as record.py writes them.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

keras = tf.keras


class Dense(keras.layers.Dense):
    def call(self, x):
        return 0.4 * super().call(x)


def models():
    layers = keras.layers
    yield (
        "named_like_keras",
        [
            layers.Dense(5, activation="tanh", input_shape=(3,)),
            Dense(4, name="own"),
            layers.Dense(2),
        ],
    )
    yield (
        "batch_norm",
        [
            layers.Conv2D(3, 3, input_shape=(6, 6, 2)),
            layers.BatchNormalization(momentum=0.9),
            layers.GlobalMaxPooling2D(),
            layers.BatchNormalization(momentum=0.8),
            layers.Dense(2),
        ],
    )
    yield (
        "dropout",
        [
            layers.Dense(5, activation="tanh", input_shape=(3,)),
            layers.Dropout(0.5),
            layers.Dense(2),
        ],
    )


def main(out):
    for name, parts in models():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(parts)
        for variable in model.variables:
            variable.assign_add(0.1 * np.abs(np.random.normal(size=variable.shape)))
        folder = str(Path(tempfile.mkdtemp(), name))
        model.save(folder, save_format="tf")
        shape = model.input_shape[1:]
        x = [np.random.normal(size=(n, *shape)).astype("float32") for n in (4, 2)]
        shutil.rmtree(Path(folder, "assets"), ignore_errors=True)
        shutil.make_archive(str(Path(out, name)), "zip", folder)
        kept = {f"x{i}": one for i, one in enumerate(x)}
        kept |= {f"y{i}": model(one).numpy() for i, one in enumerate(x)}
        np.savez_compressed(Path(out, name + ".npz"), **kept)


if __name__ == "__main__":
    main(sys.argv[1])
