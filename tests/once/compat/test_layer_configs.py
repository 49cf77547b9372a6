"""Layer configs that TF 1.15 to 2.15 wrote, key by key; that they load is tested beside keras."""

import copy
from typing import Any

import pytest

from keras_mp.compat.configs import convert, layer_tables
from keras_mp.compat.errors import LegacyError

Json = dict[str, Any]

FLOAT32 = {
    "module": "keras",
    "class_name": "DTypePolicy",
    "config": {"name": "float32"},
    "registered_name": None,
}
HARD_SIGMOID = {
    "module": "builtins",
    "class_name": "function",
    "config": "keras_mp>keras2_hard_sigmoid",
    "registered_name": "function",
}


def layer(kind: str, **config: Any) -> Json:
    return {"class_name": kind, "config": config}


def of(package: str, kind: str, **config: Any) -> Json:
    return {
        "module": f"keras.{package}",
        "class_name": kind,
        "config": config,
        "registered_name": None,
    }


CASES = {
    "input": (
        layer("InputLayer", batch_input_shape=[None, 3], dtype="int32", sparse=False, ragged=False),
        of("layers", "InputLayer", batch_shape=[None, 3], dtype="int32", sparse=False),
        {"batch_input_shape": "renamed", "ragged": "dropped"},
    ),
    "time_major": (
        layer("LSTM", units=2, time_major=False, implementation=2, unit_forget_bias=True),
        of("layers", "LSTM", units=2, unit_forget_bias=True),
        {"time_major": "dropped", "implementation": "dropped"},
    ),
    "hard_sigmoid": (
        layer("LSTM", units=2, recurrent_activation="hard_sigmoid", activation="tanh"),
        of("layers", "LSTM", units=2, recurrent_activation=HARD_SIGMOID, activation="tanh"),
        {"recurrent_activation": "rewritten"},
    ),
    "a GRU of before reset_after": (
        layer("GRU", units=2),
        of("layers", "GRU", units=2, reset_after=False),
        {"reset_after": "defaulted"},
    ),
    "an Embedding of Keras 2.0": (
        layer("Embedding", input_dim=3, output_dim=2, dtype="int32"),
        of("layers", "Embedding", input_dim=3, output_dim=2, dtype=FLOAT32),
        {"dtype": "rewritten"},
    ),
    "hard_sigmoid of 2.13": (
        layer("Activation", activation=HARD_SIGMOID | {"config": "hard_sigmoid"}),
        of("layers", "Activation", activation=HARD_SIGMOID),
        {"activation.config": "rewritten"},
    ),
    "a list of one axis": (
        layer("BatchNormalization", axis=[1], renorm=False),
        of("layers", "BatchNormalization", axis=1),
        {"axis": "rewritten", "renorm": "dropped"},
    ),
    "images": (
        layer("BatchNormalization", axis=[3]),
        of("layers", "BatchNormalization", axis=3),
        {"axis": "rewritten|differs"},
    ),
    "axes of LayerNormalization": (
        layer("LayerNormalization", axis=[1]),
        of("layers", "LayerNormalization", axis=[1]),
        {},
    ),
    "alpha": (
        layer("LeakyReLU", alpha=0.25),
        of("layers", "LeakyReLU", negative_slope=0.25),
        {"alpha": "renamed"},
    ),
    "alpha of ELU": (layer("ELU", alpha=0.25), of("layers", "ELU", alpha=0.25), {}),
    "SeparableConv2D": (
        layer("SeparableConv2D", filters=2, groups=1, kernel_initializer=None, kernel_size=[2, 2]),
        of("layers", "SeparableConv2D", filters=2, kernel_size=[2, 2]),
        {"groups": "dropped", "kernel_initializer": "dropped"},
    ),
    "Embedding": (
        layer("Embedding", input_dim=3, output_dim=2, input_length=4, batch_input_shape=[None, 4]),
        of("layers", "Embedding", input_dim=3, output_dim=2),
        {"input_length": "dropped", "batch_input_shape": "dropped"},
    ),
    "cells": (
        layer(
            "RNN", cell=[layer("LSTMCell", units=2, implementation=1), layer("LSTMCell", units=3)]
        ),
        of(
            "layers",
            "RNN",
            cell=of(
                "layers",
                "StackedRNNCells",
                cells=[of("layers", "LSTMCell", units=2), of("layers", "LSTMCell", units=3)],
            ),
        ),
        {"cell[0].config.implementation": "dropped"},
    ),
    "Bidirectional": (
        layer("Bidirectional", layer=layer("LSTM", units=2, time_major=False), merge_mode="sum"),
        of("layers", "Bidirectional", layer=of("layers", "LSTM", units=2), merge_mode="sum"),
        {"layer.config.time_major": "dropped"},
    ),
    "a backward layer": (
        layer(
            "Bidirectional",
            layer=layer("LSTM", units=2),
            backward_layer=layer("LSTM", units=2, go_backwards=True, time_major=False),
        ),
        of(
            "layers",
            "Bidirectional",
            layer=of("layers", "LSTM", units=2),
            backward_layer=of("layers", "LSTM", units=2, go_backwards=True),
        ),
        {"backward_layer.config.time_major": "dropped"},
    ),
    "no backward layer": (
        layer("Bidirectional", layer=layer("LSTM", units=2), backward_layer=None),
        of("layers", "Bidirectional", layer=of("layers", "LSTM", units=2), backward_layer=None),
        {},
    ),
    "no activation": (
        layer("Dense", units=1, activation=None),
        of("layers", "Dense", units=1, activation=None),
        {},
    ),
    "an activation of ours": (
        layer("Dense", units=1, activation="keras_mp>keras2_hard_sigmoid"),
        of("layers", "Dense", units=1, activation=HARD_SIGMOID),
        {},
    ),
    "a function as a part": (
        layer("Dense", units=1, kernel_initializer=HARD_SIGMOID | {"config": "my>init"}),
        of("layers", "Dense", units=1, kernel_initializer=HARD_SIGMOID | {"config": "my>init"}),
        {"kernel_initializer.config": "rewritten"},
    ),
    "a layer as activation": (
        layer("Dense", units=1, activation=layer("LeakyReLU", alpha=0.5)),
        of("layers", "Dense", units=1, activation=of("layers", "LeakyReLU", negative_slope=0.5)),
        {"activation.config.alpha": "renamed"},
    ),
    "an activation of one's own": (
        layer("Dense", units=1, activation="my>act"),
        of("layers", "Dense", units=1, activation=HARD_SIGMOID | {"config": "my>act"}),
        {"activation": "rewritten"},
    ),
    "initializers of 1.15": (
        layer(
            "Dense",
            units=1,
            kernel_initializer=layer(
                "VarianceScaling",
                scale=2.0,
                mode="fan_in",
                distribution="normal",
                seed=None,
                dtype="float32",
            ),
            bias_initializer=layer("Zeros", dtype="float32"),
        ),
        of(
            "layers",
            "Dense",
            units=1,
            kernel_initializer=of(
                "initializers",
                "VarianceScaling",
                scale=2.0,
                mode="fan_in",
                distribution="truncated_normal",
                seed=None,
            ),
            bias_initializer=of("initializers", "Zeros"),
        ),
        {
            "kernel_initializer.config.distribution": "rewritten",
            "kernel_initializer.config.dtype": "dropped",
            "bias_initializer.config.dtype": "dropped",
        },
    ),
    "names of parts": (
        layer("Dense", units=1, kernel_initializer="glorot_uniform", kernel_regularizer="l2"),
        of(
            "layers",
            "Dense",
            units=1,
            kernel_initializer=of("initializers", "GlorotUniform"),
            kernel_regularizer=of("regularizers", "L2"),
        ),
        {},
    ),
    "parts of one's own": (
        layer("Dense", units=1, kernel_constraint=layer("mine>Unit", axis=0)),
        of(
            "layers",
            "Dense",
            units=1,
            kernel_constraint={
                "module": None,
                "class_name": "Unit",
                "config": {"axis": 0},
                "registered_name": "mine>Unit",
            },
        ),
        {"kernel_constraint": "rewritten"},
    ),
    "shared parts": (
        layer("Dense", units=1, bias_initializer=layer("Zeros") | {"shared_object_id": 3}),
        of("layers", "Dense", units=1, bias_initializer=of("initializers", "Zeros")),
        {},
    ),
    "CuDNNLSTM": (
        layer("CuDNNLSTM", units=2, time_major=False),
        of("layers", "LSTM", units=2, recurrent_activation="sigmoid"),
        {"time_major": "dropped", "^class_name": "renamed"},
    ),
    "CuDNNGRU": (
        layer("CuDNNGRU", units=2),
        of("layers", "GRU", units=2, recurrent_activation="sigmoid", reset_after=True),
        {"^class_name": "renamed"},
    ),
    "ThresholdedReLU": (
        layer("ThresholdedReLU", theta=0.5),
        of("layers", "ReLU", threshold=0.5),
        {"theta": "renamed", "^class_name": "renamed"},
    ),
    "Experimental": (
        layer("Experimental>Rescaling", scale=0.5, offset=1.0),
        of("layers", "Rescaling", scale=0.5, offset=1.0),
        {},
    ),
    "a slash": (
        layer("Dense", units=1, name="conv1/dense"),
        of("layers", "Dense", units=1, name="conv1_dense"),
        {"name": "renamed"},
    ),
    "a dtype": (
        layer("Flatten", dtype="float32"),
        of("layers", "Flatten", dtype=FLOAT32),
        {},
    ),
    "no dtype": (layer("Flatten", dtype=None), of("layers", "Flatten", dtype=None), {}),
    "built": (
        layer("Dense", units=1) | {"build_config": {"input_shape": [None, 2]}},
        of("layers", "Dense", units=1) | {"build_config": {"input_shape": [None, 2]}},
        {},
    ),
    "one's own": (
        layer(
            "mine>Block",
            units=4,
            time_major=True,
            batch_input_shape=[None, 3],
            dtype={"class_name": "Policy", "config": {"name": "float32"}},
        ),
        {
            "module": None,
            "class_name": "Block",
            "config": {"units": 4, "time_major": True, "dtype": FLOAT32},
            "registered_name": "mine>Block",
        },
        {"batch_input_shape": "dropped", "dtype": "rewritten", "^": "rewritten"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_layer_becomes(case: str) -> None:
    old, today, changes = CASES[case]
    before = copy.deepcopy(old)
    done = convert(old, kind="layer")
    assert old == before
    assert (done.config, done.changed) == (today, True)
    kinds: dict[str, str] = {}
    for change in done.changes:
        path = change.path.removeprefix("$")
        path = path.removeprefix(".config.") if path.startswith(".config.") else f"^{path[1:]}"
        kinds[path] = f"{kinds[path]}|{change.kind}" if path in kinds else change.kind
    assert kinds == changes
    again = convert(done.config, kind="layer")
    assert (again.config, again.changed, again.changes) == (today, False, ())


def test_notes_tell_what_matters_once() -> None:
    hard = layer("LSTM", units=1, recurrent_activation="hard_sigmoid", activation="hard_sigmoid")
    (note,) = convert(layer("Bidirectional", layer=hard), kind="layer").notes
    assert "clip(0.2 x + 0.5, 0, 1)" in note
    assert not convert(CASES["time_major"][0], kind="layer").notes


@pytest.mark.parametrize(
    ("given", "path", "why"),
    [
        pytest.param(
            layer("LSTM", units=1, time_major=True),
            "$.config.time_major",
            "(batch, time, features)",
            id="time",
        ),
        pytest.param(
            layer("LSTM", units=1, time_major=0),
            "$.config.time_major",
            "(batch, time, features)",
            id="0",
        ),
        pytest.param(
            layer("BatchNormalization", renorm=True), "$.config.renorm", "renorm", id="renorm"
        ),
        pytest.param(
            layer("BatchNormalization", virtual_batch_size=2),
            "$.config.virtual_batch_size",
            "virtual",
            id="virtual_batch_size",
        ),
        pytest.param(
            layer("BatchNormalization", axis=[1, 2]), "$.config.axis", "one axis", id="axes"
        ),
        pytest.param(layer("Conv2DTranspose", groups=2), "$.config.groups", "one group", id="g"),
        pytest.param(layer("Attention", causal="x"), "$.config.causal", "or false", id="causal"),
        pytest.param(layer("InputLayer", ragged=True), "$.config.ragged", "ragged", id="ragged"),
        pytest.param(layer("Lambda", function=[]), "$.config.function", "write it as", id="Lambda"),
        pytest.param(
            layer("Lambda", function="mine"), "$.class_name", "saved by name only", id="by name"
        ),
        pytest.param(layer("TFOpLambda"), "$.class_name", "calls it", id="TFOpLambda"),
        pytest.param(
            layer("TFOpLambda") | {"module": "keras.src.layers.core.tf_op_layer"},
            "$.class_name",
            "calls it",
            id="TFOpLambda of 2.13",
        ),
        pytest.param(layer("DenseFeatures"), "$.class_name", "no such layer", id="gone"),
        pytest.param(
            layer("Dense", units=1, wings=2), "$.config.wings", "no Dense of TF", id="unknown key"
        ),
        pytest.param(
            layer("Dense", units=1) | {"wings": 2}, "$.wings", "no tf.keras", id="outside"
        ),
        pytest.param(
            layer("Dense", use_bias="yes"), "$.config.use_bias", "true or false", id="no flag"
        ),
        pytest.param(
            layer("Dense", kernel_initializer=layer("Zeros", a=1)),
            "$.config.kernel_initializer.config.a",
            "no Zeros of TF",
            id="part",
        ),
        pytest.param(
            layer("Dense", kernel_constraint=layer("RadialConstraint")),
            "$.config.kernel_constraint.class_name",
            "no such constraint",
            id="constraint",
        ),
        pytest.param(
            layer("TimeDistributed", layer=layer("Lambda", function=[])),
            "$.config.layer.config.function",
            "write it as",
            id="inside",
        ),
        pytest.param(
            layer("mine>Layer", dynamic=True), "$.config.dynamic", "dynamic", id="dynamic"
        ),
        pytest.param(
            layer("LeakyReLU", alpha=1.0, negative_slope=1.0),
            "$.config.negative_slope",
            "no LeakyReLU",
            id="both names",
        ),
        pytest.param(
            layer("CategoryEncoding", max_tokens=None, output_mode="binary", sparse=False),
            "$.config.max_tokens",
            "in code",
            id="adapted",
        ),
        pytest.param(
            layer("CategoryEncoding", max_tokens=9, output_mode="tf-idf", sparse=False),
            "$.config.output_mode",
            "in code",
            id="tf-idf",
        ),
        pytest.param(
            layer("Discretization", bins={"a": 1}), "$.config.bins", "a list of numbers", id="bins"
        ),
        pytest.param(
            layer("StackedRNNCells", cells={}), "$.config.cells", "a list of cells", id="cells"
        ),
        pytest.param(
            layer("InputLayer", dtype="int7"), "$.config.dtype", "name of a dtype", id="dtype"
        ),
        pytest.param(
            layer("Dense", kernel_regularizer=HARD_SIGMOID | {"config": {}}),
            "$.config.kernel_regularizer.config",
            "a function's name",
            id="function",
        ),
        pytest.param({"class_name": "Dense", "config": []}, "$.config", "an object", id="a list"),
        pytest.param(
            {"class_name": "Dense"}, "$.config", "what tf.keras serializes", id="no config"
        ),
        pytest.param({"config": {}}, "$.class_name", "tf.keras serializes", id="no class"),
        pytest.param({"class_name": 3, "config": {}}, "$.class_name", "a class", id="3"),
    ],
)
def test_what_is_refused(given: Json, path: str, why: str) -> None:
    with pytest.raises(LegacyError) as caught:
        convert(given, kind="layer")
    assert caught.value.path == path
    assert why in caught.value.why


def test_tables_speak_of_keys_that_they_have() -> None:
    for name, key in [*layer_tables.LEFT_OUT, *layer_tables.NOT_FLAGS, *layer_tables.KEYS]:
        if name in layer_tables.LAYERS:
            assert key in layer_tables.LAYERS[name] | layer_tables.SHARED, (name, key)
    assert not layer_tables.REFUSED.keys() & layer_tables.LAYERS.keys()
    assert layer_tables.CLASSES.keys() <= layer_tables.LAYERS.keys()
