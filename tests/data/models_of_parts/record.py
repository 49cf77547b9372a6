"""Records a GAN whose discriminator is compiled, too, and a model that counts words; TF 2.15.

python record.py, in this folder. Writes saved.zip, with each as .keras and SavedModel, and
expected.npz: NAME/x, and what it predicts.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tempfile
import zipfile
from pathlib import Path

import numpy as np
import tensorflow as tf

k = tf.keras


def gan():
    judge = k.Sequential([k.Input((3,)), k.layers.Dense(4), k.layers.Dense(1)], name="judge")
    judge.compile(k.optimizers.SGD(0.1, momentum=0.9), "mse")
    x = np.random.RandomState(0).standard_normal((4, 3)).astype("float32")
    judge.train_on_batch(x, x[:, :1])
    judge.trainable = False
    maker = k.Sequential([k.Input((3,)), k.layers.Dense(3)], name="maker")
    model = k.Sequential([maker, judge], name="gan")
    model.compile(k.optimizers.Adam(0.1), "mse")
    model.train_on_batch(x, x[:, :1])
    model.train_on_batch(x, x[:, :1])
    return model, x


def counting():
    lookup = k.layers.IntegerLookup(output_mode="count", name="lookup")
    lookup.adapt(np.array([[1, 5], [5, 9]]))
    inputs = k.Input((2,), dtype="int64")
    model = k.Model(inputs, k.layers.Dense(2)(tf.cast(lookup(inputs), "float32")))
    model.compile("sgd", "mse")
    return model, np.array([[1, 5], [8, 8]])


def main():
    expected = {}
    with tempfile.TemporaryDirectory() as made, zipfile.ZipFile("saved.zip", "w") as archive:
        for make in (gan, counting):
            tf.keras.utils.set_random_seed(0)
            model, x = make()
            expected[f"{make.__name__}/x"] = x
            expected[f"{make.__name__}/y"] = model.predict(x, verbose=0)
            model.save(f"{made}/{make.__name__}.keras")
            model.save(f"{made}/{make.__name__}")
        for file in sorted(Path(made).rglob("*")):
            if file.is_file():
                inside = file.relative_to(made).as_posix()
                archive.writestr(inside, file.read_bytes(), zipfile.ZIP_DEFLATED)
    np.savez_compressed("expected.npz", **expected)


if __name__ == "__main__":
    main()
