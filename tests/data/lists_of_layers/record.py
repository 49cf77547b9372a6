"""Records where TF 2.13, 2.14 and 2.15 kept the weights of layers in lists, tuples and dicts.

python record.py, in this folder, in each of them. Writes tf213.zip: NAME.weights.h5, x.npy, and
NAME.npy, what the model predicts from it.
"""

import io
import os
import tempfile
import zipfile

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from models import models


def main():
    random = np.random.RandomState(0)
    x = random.standard_normal((3, 4)).astype("float32")
    version = "".join(tf.__version__.split(".")[:2])
    with zipfile.ZipFile(f"tf{version}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("x.npy", bytes_of(x))
        for name, make in models(tf.keras).items():
            model = make()
            model(x)
            for weight in model.weights:
                weight.assign(random.standard_normal(weight.shape))
            archive.writestr(f"{name}.npy", bytes_of(model(x).numpy()))
            with tempfile.TemporaryDirectory() as folder:
                file = f"{folder}/{name}.weights.h5"
                model.save_weights(file)
                archive.write(file, f"{name}.weights.h5")


def bytes_of(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
