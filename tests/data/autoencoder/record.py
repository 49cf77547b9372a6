"""Records an autoencoder of TF 2.10 whose loss reads inner tensors of its encoder.

python record.py, in this folder. Writes saved.zip, with a SavedModel, a checkpoint and the config
of the model, and expected.npz: x, and what it predicts.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tempfile
import zipfile
from pathlib import Path

import numpy as np
import tensorflow as tf

k = tf.keras


def make():
    inputs = k.Input((6,), name="inputs")
    hidden = k.layers.Dense(5, activation="relu", name="hidden")(inputs)
    mean = k.layers.Dense(2, name="mean")(hidden)
    spread = k.layers.Dense(2, name="spread")(hidden)
    encoder = k.Model(inputs, [mean, spread], name="encoder")
    code = k.Input((2,), name="code")
    decoder = k.Model(code, k.layers.Dense(6, name="out")(code), name="decoder")
    outputs = decoder(encoder(inputs)[0])
    model = k.Model(inputs, outputs, name="autoencoder")
    divergence = 1 + spread - tf.square(mean) - tf.exp(spread)
    model.add_loss(tf.reduce_mean(k.losses.mse(inputs, outputs)) - tf.reduce_mean(divergence) / 2)
    return model


def main():
    tf.keras.utils.set_random_seed(0)
    x = np.random.RandomState(0).standard_normal((8, 6)).astype("float32")
    model = make()
    model.compile("adam")
    model.fit(x, epochs=2, verbose=0)
    np.savez_compressed("expected.npz", x=x, y=model.predict(x, verbose=0))
    with tempfile.TemporaryDirectory() as made, zipfile.ZipFile("saved.zip", "w") as archive:
        model.save(f"{made}/saved", include_optimizer=True)
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(f"{made}/ckpt")
        Path(made, "model.json").write_text(model.to_json(), encoding="utf-8")
        for file in sorted(Path(made).rglob("*")):
            if file.is_file():
                inside = file.relative_to(made).as_posix()
                archive.writestr(inside, file.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
