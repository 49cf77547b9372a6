"""Writes models of which some weights never had a gradient: python generate.py tf23

The second output has no loss, so its head has none, and the optimizers of TF 2.0 to 2.10 made no
slots for it. One HDF5 file and one checkpoint each, and a SavedModel. arrays.npz has the inputs
`x`, the targets `y`, the predictions `first` and `second` of the files, and `later` of `first`
after one step more.
"""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

OPTIMIZERS = {
    "adam": lambda: tf.keras.optimizers.Adam(0.01, amsgrad=True),
    "sgd": lambda: tf.keras.optimizers.SGD(0.05, momentum=0.9),
    "rmsprop": lambda: tf.keras.optimizers.RMSprop(0.01, centered=True),
}


def write(folder, optimizer):
    tf.keras.backend.clear_session()
    random = np.random.RandomState(3)
    tf.random.set_seed(3)
    image = tf.keras.Input((4,), name="image")
    hidden = tf.keras.layers.Dense(3, activation="tanh", name="hidden")(image)
    second = tf.keras.layers.Dense(3, name="second")(hidden)
    first = tf.keras.layers.Dense(2, name="first")(hidden)
    model = tf.keras.Model(image, [first, second])
    model.compile(optimizer(), loss=["mse", None])
    x, y = random.randn(8, 4).astype("float32"), random.randn(8, 2).astype("float32")
    for _ in range(3):
        model.train_on_batch(x, y)
    arrays = {"x": x, "y": y, **dict(zip(("first", "second"), model.predict(x)))}
    model.save(str(folder / "model.h5"))
    if folder.name == "adam":
        model.save(str(folder / "saved_model"), save_format="tf")
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.write(str(folder / "ckpt"))
    model.train_on_batch(x, y)
    np.savez(folder / "arrays.npz", later=model.predict(x)[0], **arrays)


if __name__ == "__main__":
    for name, optimizer in OPTIMIZERS.items():
        folder = Path(__file__).resolve().parent / sys.argv[1] / name
        folder.mkdir(parents=True)
        write(folder, optimizer)
