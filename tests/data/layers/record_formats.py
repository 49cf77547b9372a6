"""Saves all layers of a recording as one model, in each format that this TensorFlow has.

python record_formats.py, in this folder, with TF 2.4.4, 2.10.1 or 2.15.1, after record.py. Writes
formats-VERSION.zip: model.h5, the folder saved, and, with TF 2.15, model.keras. The layer of each
case has the name of the case; so has its input, with "_in" behind it.
"""

import os
import shutil
import zipfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf


def main():
    version = tf.__version__
    recorded = np.load(f"tf{version}.npz")
    inputs, outputs, layers = [], [], []
    for case in sorted({key.split("/")[0] for key in recorded}):
        x = recorded[f"{case}/x"]
        alone = tf.keras.models.model_from_json(str(recorded[f"{case}/config"])).layers[1]
        layer = type(alone).from_config({**alone.get_config(), "name": case})
        dtype = "int32" if x.dtype.kind == "i" else "float32"
        inputs.append(tf.keras.Input(x.shape[1:], dtype=dtype, name=f"{case}_in"))
        outputs.append(layer(inputs[-1]))
        layers.append((case, layer))
    model = tf.keras.Model(inputs, outputs)
    for case, layer in layers:
        count = len(layer.get_weights())
        layer.set_weights([recorded[f"{case}/w{i}"] for i in range(count)])
    folder = Path("formats")
    shutil.rmtree(folder, ignore_errors=True)
    model.save(folder / "model.h5")
    model.save(folder / "saved", save_traces=False)
    if version.startswith("2.15"):
        model.save(folder / "model.keras")
    with zipfile.ZipFile(f"formats-{version}.zip", "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                member = zipfile.ZipInfo(str(path.relative_to(folder)))
                member.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(member, path.read_bytes())
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
