"""Records SavedModels of TF 1.15: of Sequentials without an input shape, and exported ones.

python record.py, in this folder. Writes saved.zip and expected.npz: x, and what each predicts.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tempfile
import zipfile
from pathlib import Path

import numpy as np
import tensorflow as tf

k = tf.keras


def unshaped():
    norm = k.layers.BatchNormalization()
    return k.Sequential([k.layers.Dense(4, activation="relu"), norm, k.layers.Dense(3)])


def in_functional():
    inputs = k.Input((6,))
    return k.Model(inputs, k.layers.Dense(2)(unshaped()(inputs)))


MODELS = {
    "flat": unshaped,
    "nested": lambda: k.Sequential([unshaped(), k.layers.Dense(2)]),
    "in_functional": in_functional,
    "exported": lambda: k.Sequential([k.layers.Dense(4, input_shape=(6,)), unshaped()]),
    "exported_functional": in_functional,
}


def main():
    random = np.random.RandomState(0)
    x = random.standard_normal((8, 6)).astype("float32")
    expected = {"x": x}
    with tempfile.TemporaryDirectory() as made, zipfile.ZipFile("saved.zip", "w") as archive:
        for name, make in MODELS.items():
            k.backend.clear_session()
            tf.compat.v1.set_random_seed(0)
            model = make()
            outputs = 2 if name in ("nested", "in_functional", "exported_functional") else 3
            model.compile("adam", "mse")
            model.fit(x, x[:, :outputs], epochs=2, verbose=0)
            expected[name] = model.predict(x)
            folder = Path(made, name)
            if name.startswith("exported"):
                k.experimental.export_saved_model(model, str(folder))
            else:
                model.save(str(folder), save_format="tf")
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    inside = file.relative_to(made).as_posix()
                    archive.writestr(inside, file.read_bytes(), zipfile.ZIP_DEFLATED)
    np.savez_compressed("expected.npz", **expected)


if __name__ == "__main__":
    main()
