"""Records files of tf.compat.v1.train.Saver, and of estimators, of models with Keras optimizers.

python record.py, in this folder, with TF 1.15.0 and 2.10.1. Writes tf1.15.0.zip and so on: a
checkpoint for each of OPTIMIZERS, by a Saver, those of an estimator in both of its formats, and
expected.npz: x, targets, and NAME/after, what the model predicts after two more steps with them (of
an estimator: NAME/y, what it predicts as it was saved).
"""

import os
import shutil
import tempfile
import zipfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

v1, keras = tf.compat.v1, tf.compat.v1.keras
OPTIMIZERS = {
    "adam": lambda: tf.keras.optimizers.Adam(0.02, beta_1=0.8),
    "momentum": lambda: tf.keras.optimizers.SGD(0.02, momentum=0.9),
    "sgd": lambda: tf.keras.optimizers.SGD(0.02),
    "rmsprop": lambda: tf.keras.optimizers.RMSprop(0.02, momentum=0.5),
}
FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


def model_of():
    inputs = tf.keras.Input((3,), name="x")
    x = tf.keras.layers.Dense(4, activation="tanh", name="fc0")(inputs)
    x = tf.keras.layers.BatchNormalization(name="bn")(x)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1, name="fc1")(x))


def main():
    v1.disable_eager_execution()
    random = np.random.RandomState(0)
    x = random.standard_normal((8, 3)).astype("float32")
    targets = x.sum(1, keepdims=True)
    expected = {"x": x, "targets": targets}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, make in OPTIMIZERS.items():
            keras.backend.clear_session()
            model = model_of()
            model.compile(make(), "mse")
            model.fit(x, targets, epochs=3, **FIT)
            v1.train.Saver().save(
                keras.backend.get_session(), str(folder / kind), write_meta_graph=False
            )
            model.fit(x, targets, **FIT)
            expected[f"{kind}/after"] = model.predict(x)
        for form in ("checkpoint", "saver"):
            keras.backend.clear_session()
            model = model_of()
            model.compile(OPTIMIZERS["adam"](), "mse")
            estimator = tf.keras.estimator.model_to_estimator(
                model, model_dir=str(folder / "estimator"), checkpoint_format=form
            )
            estimator.train(lambda: v1.data.Dataset.from_tensor_slices((x, targets)).batch(4))
            estimator.train(lambda: v1.data.Dataset.from_tensor_slices((x, targets)).batch(4))
            rows = estimator.predict(lambda: v1.data.Dataset.from_tensor_slices(x).batch(8))
            expected[f"estimator_{form}/y"] = np.array([next(iter(row.values())) for row in rows])
            for file in (folder / "estimator").glob("model.ckpt-4.*"):
                if file.suffix != ".meta":
                    file.rename(folder / f"estimator_{form}{file.name[len('model.ckpt-4') :]}")
            shutil.rmtree(folder / "estimator")
        np.savez_compressed(folder / "expected.npz", **expected)
        kept = f"tf{tf.__version__}.zip"
        with zipfile.ZipFile(kept, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(folder.iterdir()):
                if file.name != "checkpoint":
                    archive.write(file, file.name)


if __name__ == "__main__":
    main()
