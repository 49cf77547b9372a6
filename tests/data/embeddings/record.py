"""Records what tokens that a batch repeats train: three steps of each optimizer of TF 2.15.1.

python record.py, in this folder. Writes NAME.keras, as it was before, and expected.npz with x, y
and NAME/0, NAME/1, ...: the weights afterwards.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

o = tf.keras.optimizers
OPTIMIZERS = {
    "adam": lambda: o.Adam(0.1),
    "adamw": lambda: o.AdamW(0.1),
    "adamax": lambda: o.Adamax(0.1),
    "adadelta": lambda: o.Adadelta(1.0),
    "ftrl": lambda: o.Ftrl(0.1),
    "lion": lambda: o.Lion(0.1),
    "momentum": lambda: o.SGD(0.1, momentum=0.9),
    "nadam": lambda: o.Nadam(0.1),
}


def main():
    random = np.random.RandomState(0)
    x, y = random.randint(0, 4, (8, 5)), random.standard_normal((8, 1)).astype("float32")
    expected = {"x": x, "y": y}
    for name, make in OPTIMIZERS.items():
        tf.keras.utils.set_random_seed(0)
        layers = [tf.keras.Input((5,)), tf.keras.layers.Embedding(6, 2), tf.keras.layers.Flatten()]
        model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(1)])
        model.compile(make(), "mse")
        model.train_on_batch(x, y)  # so that the file has a state
        model.save(f"{name}.keras")
        for _ in range(3):
            model.train_on_batch(x, y)
        for i, weight in enumerate(model.get_weights()):
            expected[f"{name}/{i}"] = weight
    np.savez_compressed("expected.npz", **expected)


if __name__ == "__main__":
    main()
