"""Records SavedModels with adapted and given vocabularies, bins and statistics, and predictions.

python record_saved.py, in this folder, with TF 2.4.4, 2.10.1 or 2.15.1. Writes saved-VERSION.zip:
the folders NAME, and expected.npz with NAME/x and NAME/y.
"""

import os
import shutil
import sys
import zipfile
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf
from record import ASKED, ASKED_NUMBERS, FLOATS, NUMBERS, VOCABULARY, WORDS

NEW = not tf.__version__.startswith("2.4")
L = tf.keras.layers if NEW else tf.keras.layers.experimental.preprocessing


def adapted(layer, data):
    layer.adapt(data)
    return layer


def strings():
    yield "string_int", [adapted(L.StringLookup(), WORDS)]
    yield "string_given", [L.StringLookup(vocabulary=VOCABULARY)]
    Path("words.txt").write_text("\n".join(VOCABULARY))
    yield "string_file", [L.StringLookup(vocabulary="words.txt")]
    yield "string_oov_mask", [adapted(L.StringLookup(num_oov_indices=2, mask_token=""), WORDS)]
    yield "text_int", [adapted(L.TextVectorization(output_sequence_length=4), WORDS)]
    yield "text_given", [given(L.TextVectorization(output_sequence_length=4))]
    yield "text_tf_idf", [adapted(tf_idf(L.TextVectorization), WORDS)]
    dense = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)]
    lookup = adapted(L.StringLookup(), WORDS)
    yield "embedded", [lookup, tf.keras.layers.Embedding(7, 2), *dense]
    lookup = adapted(L.StringLookup(), WORDS)
    inner = [tf.keras.Input((1,), dtype="string"), lookup, tf.keras.layers.Embedding(7, 2)]
    yield "nested", [tf.keras.Sequential(inner, name="inner"), *dense[:1], tf.keras.layers.Dense(2)]
    if NEW:
        for mode in ("multi_hot", "tf_idf"):
            yield f"string_{mode}", [adapted(L.StringLookup(output_mode=mode), WORDS)]


def tf_idf(make):
    return make(output_mode="tf_idf" if NEW else "tf-idf")


def given(layer):
    layer.set_vocabulary(VOCABULARY)
    return layer


def of_itself(attention):
    return lambda x: attention([x, x])


def integers():
    yield "integer_int", [adapted(L.IntegerLookup(), NUMBERS)]
    yield "integer_given", [L.IntegerLookup(vocabulary=[5, 3, 7])]
    back = {"vocabulary": ["[UNK]", *VOCABULARY] if NEW else VOCABULARY, "invert": True}
    yield "string_inverted", [L.StringLookup(**back)]


def floats():
    yield "normalization", [adapted(L.Normalization(), FLOATS)]
    dense = [tf.keras.layers.Dense(2)]
    yield "normalized", [adapted(L.Normalization(axis=None), FLOATS), *dense]
    if NEW:
        for mode in ("int", "multi_hot"):
            bins = adapted(L.Discretization(num_bins=4, output_mode=mode), FLOATS)
            yield f"discretization_{mode}", [bins]
        yield "inverted", [adapted(L.Normalization(invert=True), FLOATS)]
        for make in (L.Attention, L.AdditiveAttention):
            yield f"causal_{make.__name__}", [L.Reshape((3, 1)), of_itself(make(causal=True))]
    else:
        yield "discretization_int", [L.Discretization([0.0, 4.5, 5.5])]


def main():
    expected = {}
    shutil.rmtree("saved", ignore_errors=True)
    for cases, asked, dtype in (
        (strings, ASKED, "string"),
        (integers, ASKED_NUMBERS, "int64"),
        (floats, FLOATS[:4], "float32"),
    ):
        for name, layers in cases():
            inputs = outputs = tf.keras.Input((asked.shape[1],), dtype=dtype)
            for layer in layers:
                outputs = layer(outputs)
            model = tf.keras.Model(inputs, outputs)
            if model.trainable_weights:
                model.compile("adam", "mse")
                model.fit(tf.constant(asked), np.ones(len(asked)), verbose=0)
            expected[f"{name}/x"], y = asked, model(tf.constant(asked)).numpy()
            expected[f"{name}/y"] = y.astype(str) if y.dtype == object else y
            model.save(f"saved/{name}")
    np.savez_compressed("saved/expected.npz", **expected)
    with zipfile.ZipFile(f"saved-{tf.__version__}.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(Path("saved").rglob("*")):
            if path.is_file():
                moment = zipfile.ZipInfo(str(path.relative_to("saved")))
                moment.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(moment, path.read_bytes())
    shutil.rmtree("saved")
    Path("words.txt").unlink()


if __name__ == "__main__":
    sys.exit(main())
