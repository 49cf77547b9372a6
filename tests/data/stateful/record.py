"""Records SavedModels with tensors that are no weights: states, and generators of random numbers.

python record.py, in this folder, with TF 2.15.1. Writes the folders lstm, gru and augmented, and
expected.npz with NAME/x and NAME/y, what is predicted next.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

L = tf.keras.layers
RANDOM = np.random.RandomState(0)


def recurrent(kind):
    return tf.keras.Sequential([kind(3, stateful=True, batch_input_shape=(2, 4, 2)), L.Dense(1)])


def main():
    expected = {}
    for name, model in (
        ("lstm", recurrent(L.LSTM)),
        ("gru", recurrent(L.GRU)),
        (
            "augmented",
            tf.keras.Sequential(
                [L.RandomFlip(input_shape=(4, 4, 1)), L.RandomZoom(0.2), L.Flatten(), L.Dense(1)]
            ),
        ),
    ):
        x = RANDOM.standard_normal((2, *model.input_shape[1:])).astype("float32")
        model.predict(x, verbose=0)  # leaves states behind
        model.save(name)
        expected[f"{name}/x"], expected[f"{name}/y"] = x, model.predict(x, verbose=0)
    np.savez_compressed("expected.npz", **expected)


if __name__ == "__main__":
    main()
