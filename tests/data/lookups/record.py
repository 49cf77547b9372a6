"""Records models with adapted and given vocabularies and statistics, and what they predict.

python record.py, in this folder, with TF 2.15.1. Writes NAME.keras, and expected.npz with NAME/x
and NAME/y.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

L = tf.keras.layers
WORDS = np.array([["b"], ["a"], ["b"], ["c d"], ["a"], ["b"], ["é"]])
NUMBERS = np.array([[7], [3], [7], [-4], [3], [7]])
ASKED = np.array([["a"], ["é"], ["b"], ["unseen"], [""], ["c d"]])
ASKED_NUMBERS = np.array([[3], [7], [99], [-4], [0]])
FLOATS = np.random.RandomState(0).standard_normal((64, 3)).astype("float32") * [1, 10, 0.1] + 5
VOCABULARY = ["x", "a", "b"]


def string_lookups():
    for mode in ("int", "multi_hot", "count", "tf_idf", "one_hot"):
        yield f"string_{mode}", L.StringLookup(output_mode=mode)
    yield "string_oov_mask", L.StringLookup(num_oov_indices=2, mask_token="")
    yield "string_invertible", L.StringLookup(max_tokens=3)
    yield (
        "string_padded",
        L.StringLookup(max_tokens=9, output_mode="multi_hot", pad_to_max_tokens=True),
    )


def integer_lookups():
    for mode in ("int", "multi_hot", "tf_idf"):
        yield f"integer_{mode}", L.IntegerLookup(output_mode=mode)
    yield "integer_oov_mask", L.IntegerLookup(num_oov_indices=2, mask_token=0)


def vectorizations():
    yield "text_int", L.TextVectorization(output_sequence_length=4)
    yield "text_multi_hot", L.TextVectorization(output_mode="multi_hot")
    yield "text_tf_idf", L.TextVectorization(output_mode="tf_idf")


def given():
    weights = [0.5, 1.5, 2.5]
    yield "string_given", L.StringLookup(vocabulary=VOCABULARY)
    yield (
        "string_given_tf_idf",
        L.StringLookup(vocabulary=VOCABULARY, idf_weights=weights, output_mode="tf_idf"),
    )
    yield "text_given", L.TextVectorization(vocabulary=VOCABULARY, output_sequence_length=4)


def models():
    """Yields the name, the layers, and what is asked."""
    for cases, data, asked, dtype in (
        (string_lookups, WORDS, ASKED, "string"),
        (integer_lookups, NUMBERS, ASKED_NUMBERS, "int64"),
        (vectorizations, WORDS, ASKED, "string"),
    ):
        for name, layer in cases():
            layer.adapt(data)
            yield name, [layer], asked, dtype
    for name, layer in given():
        yield name, [layer], ASKED, "string"
    yield "integer_given", [L.IntegerLookup(vocabulary=[5, 3, 7])], ASKED_NUMBERS, "int64"
    for name, layer in (
        ("normalization", L.Normalization()),
        ("normalization_axes", L.Normalization(axis=None)),
        ("discretization", L.Discretization(num_bins=4)),
        ("discretization_multi_hot", L.Discretization(num_bins=4, output_mode="multi_hot")),
    ):
        layer.adapt(FLOATS)
        yield name, [layer], FLOATS[:4], "float32"
    lookup = L.StringLookup()
    lookup.adapt(WORDS)
    yield "embedded", [lookup, L.Embedding(6, 2), L.Flatten(), L.Dense(1)], ASKED, "string"
    lookup = L.StringLookup()
    lookup.adapt(WORDS)
    inner = tf.keras.Sequential([tf.keras.Input((1,), dtype="string"), lookup], name="inner")
    yield "nested", [inner], ASKED, "string"


def main():
    expected = {}
    for name, layers, asked, dtype in models():
        inputs = outputs = tf.keras.Input((asked.shape[1],), dtype=dtype)
        for layer in layers:
            outputs = layer(outputs)
        model = tf.keras.Model(inputs, outputs)
        x = tf.constant(asked)
        expected[f"{name}/x"], expected[f"{name}/y"] = asked, model(x).numpy()
        model.save(f"{name}.keras")
    np.savez_compressed("expected.npz", **expected)


if __name__ == "__main__":
    main()
