"""Makes SavedModels of layers and options that Keras 3 computes otherwise, or that configs lack.

And some whose functions in the file are peculiar: `attentive`, `halved`, and CuDNN's layers, which
compute on GPUs only.

    python record.py FOLDER

Ran with TensorFlow 2.15.1, 2.12.1 (`inverted` alone, whose config lacks `invert`), 2.4.4 (attention
that ignores masks) and 1.15.0 (of CuDNN). FOLDER gets VERSION.zip, with a folder for each model.
"""

import os
import sys
import tempfile
import zipfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

keras = tf.keras
layers = keras.layers


def one_after_the_other(shape, *parts):
    return keras.Sequential([keras.Input(shape), *parts])


def called(training):
    """A normalization inside a model that is called with `training=...`."""
    base = one_after_the_other((4,), layers.Dense(3), layers.BatchNormalization(momentum=0.5))
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(1)(base(inputs, training=training)))


def merged():
    """A recurrent layer behind two masks."""
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    embedded = [layers.Embedding(5, 3, mask_zero=True)(one) for one in inputs]
    return keras.Model(inputs, layers.SimpleRNN(2)(layers.Add()(embedded)))


def attentive():
    """A recurrent layer behind attention; the mask of that is in the exported function alone."""
    inputs = keras.Input((4,), dtype="int32")
    embedded = layers.Embedding(5, 3, mask_zero=True)(inputs)
    return keras.Model(
        inputs, layers.SimpleRNN(2)(layers.MultiHeadAttention(1, 2)(embedded, embedded))
    )


def halved():
    """Two outputs, in another order than their names, in float16."""
    inputs = keras.Input((3,))
    hidden = layers.Dense(4, activation="tanh", dtype="mixed_float16")(inputs)
    outputs = [
        layers.Dense(2, dtype="mixed_float16", name=name)(hidden) for name in ("second", "first")
    ]
    return keras.Model(inputs, outputs)


def models():
    image = (6, 6, 2)
    pooled = layers.AveragePooling2D(3, strides=2, padding="same", name="pooled")
    resized = layers.Resizing(4, 5, interpolation="bicubic", name="resized")
    yield "cropped", one_after_the_other(image, layers.RandomCrop(4, 3, name="cropped"))
    yield "pooled", one_after_the_other(image, pooled, layers.Flatten(), layers.Dense(1))
    yield "resized", one_after_the_other(image, resized, layers.Flatten(), layers.Dense(1))
    gate = layers.LSTM(2, recurrent_activation="hard_sigmoid", name="gated")
    yield "gated", one_after_the_other((5, 3), gate)
    yield "merged", merged()
    yield "attentive", attentive()
    yield "halved", halved()
    yield "called_without_training", called(training=False)
    yield "called_with_training", called(training=True)


def of_cudnn():
    of_v1 = tf.compat.v1.keras.layers
    for name, kind in (("cudnn_lstm", of_v1.CuDNNLSTM), ("cudnn_gru", of_v1.CuDNNGRU)):
        inputs = keras.Input((4, 3))
        yield name, keras.Model(inputs, kind(2, return_sequences=True)(inputs))


def inverted():
    layer = layers.Normalization(invert=True, name="inverted")
    layer.adapt(np.random.normal(3.0, 2.0, (50, 3)))
    yield "inverted", one_after_the_other((3,), layer)


def ignores_masks():
    yield "ignores_masks", attentive()


def main(out):
    made = {
        "2.15.1": models,
        "2.12.1": inverted,
        "2.4.4": ignores_masks,
        "1.15.0": of_cudnn,
    }[tf.__version__]
    with zipfile.ZipFile(Path(out, tf.__version__ + ".zip"), "w", zipfile.ZIP_DEFLATED) as file:
        for name, model in made():
            for variable in model.trainable_variables:
                variable.assign_add(0.1 * np.abs(np.random.normal(size=variable.shape)))
            with tempfile.TemporaryDirectory() as folder:
                keras.models.save_model(model, folder, save_format="tf")
                for path in sorted(Path(folder).rglob("*")):
                    if path.is_file():
                        file.write(path, str(Path(name, path.relative_to(folder))))


if __name__ == "__main__":
    tf.compat.v1.enable_v2_behavior()
    np.random.seed(1)
    tf.compat.v1.set_random_seed(1)
    main(sys.argv[1])
