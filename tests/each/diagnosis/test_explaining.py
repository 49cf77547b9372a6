"""`explain`: what it finds in which model, that it finds nothing else, and that what it says is so.

The measurements that its texts quote are repeated by test_explain_numbers.py.
"""

import json
import math

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleOptimizer, MasterWeights, graph_rewrite
from keras_mp.diagnosis.explaining import explain
from tests.explained import codes, hidden, ours, out, sequential


class Subclassed(keras.Model):
    def __init__(self, policy="mixed_float16", activation=None, **options):
        super().__init__(dtype=policy, name="subclassed")
        self.first = layers.Dense(8, dtype=policy, name="first")
        self.last = layers.Dense(
            3, activation=activation, name="last", **{"dtype": "float32", **options}
        )

    def call(self, x):
        return self.last(self.first(x))


# -- nothing to find -------------------------------------------------------------------------------


def functional(policy):
    keras.config.set_dtype_policy(policy)
    inputs = keras.Input((8, 8, 3), dtype="float32")
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Add()([x, layers.Conv2D(4, 1)(x)])
    x = layers.AveragePooling2D(2)(x)
    x = layers.Reshape((16, 4))(x)
    x = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.LayerNormalization(epsilon=1e-7)(x)
    x = layers.Bidirectional(layers.LSTM(3))(x)
    x = layers.Dense(6, activation="softmax", name="gate")(x)
    x = layers.Dropout(0.5)(layers.Dense(4, kernel_regularizer="l2")(x))
    keras.config.set_dtype_policy("float32")
    return keras.Model(inputs, layers.Dense(3, activation="softmax", dtype="float32")(x))


CLEAN = {
    "float32": lambda: (sequential(hidden, out(), policy="float32"), keras.optimizers.Adam()),
    "float32, no optimizer": lambda: (sequential(hidden, out(), policy="float32"), None),
    "mixed_bfloat16": lambda: (sequential(hidden, policy="mixed_bfloat16"), keras.optimizers.SGD()),
    "bfloat16": lambda: (
        sequential(hidden, policy="bfloat16"),
        MasterWeights(keras.optimizers.SGD()),
    ),
    "mixed_float16": lambda: (sequential(hidden, out()), ours()),
    "fixed scale": lambda: (sequential(hidden, out()), ours(dynamic=False, initial_scale=128)),
    "many layers, mixed_float16": lambda: (functional("mixed_float16"), ours()),
    "many layers, float32": lambda: (functional("float32"), keras.optimizers.Adam()),
    "many layers, mixed_bfloat16": lambda: (functional("mixed_bfloat16"), None),
    "softmax in float32": lambda: (
        sequential(hidden, lambda: layers.Activation("softmax", dtype="float32")),
        ours(),
    ),
    "float32 layers in a mixed functional model": lambda: (
        sequential(out(), policy="mixed_float16"),
        keras.optimizers.SGD(),
    ),
}


@pytest.mark.parametrize("case", CLEAN.values(), ids=CLEAN)
def test_nothing_to_find(case):
    model, optimizer = case()
    assert codes(model, optimizer) == set()
    if optimizer is not None:
        model.compile(optimizer, "mse", metrics=["mse"], auto_scale_loss=False)
        assert codes(model) == set()


def test_nothing_to_find_in_a_subclassed_model():
    model = Subclassed(activation="softmax")
    model(np.zeros((1, 4), "float32"))
    assert codes(model, ours()) == set()


def test_nothing_to_find_under_our_optimizer_after_fit(fit, data):
    model = fit(ours(), *data, model=sequential(hidden, out()))
    found = explain(model)
    assert found.findings == ()
    assert found.loss_scale.value == float(model.optimizer.loss_scale)


# -- rows, loss scale, casts -----------------------------------------------------------------------


def test_rows():
    block = keras.Sequential(
        [layers.Dense(3, dtype="float16", name="a"), layers.Dropout(0.1, dtype="mixed_bfloat16")],
        name="block",
    )
    block.layers[1].name = "b"
    inputs = keras.Input((4,), name="x")
    shared = layers.Dense(4, dtype="mixed_float16", name="shared")
    x = shared(shared(inputs))
    model = keras.Model(inputs, layers.Dense(1, name="out")(block(x)))
    rows = {row.path: row for row in explain(model).rows}
    assert list(rows) == ["shared", "block", "block/a", "block/b", "out"]
    found = {
        path: (row.kind, row.policy, row.compute_dtype, row.variable_dtype, row.casts)
        for path, row in rows.items()
    }
    assert found == {
        "shared": ("Dense", "mixed_float16", "float16", "float32", ("float32",)),
        "block": ("Sequential", "float32", "float32", None, ()),
        "block/a": ("Dense", "float16", "float16", "float16", ()),
        "block/b": ("Dropout", "mixed_bfloat16", "bfloat16", None, ("float16",)),
        "out": ("Dense", "float32", "float32", "float32", ("bfloat16",)),
    }
    assert all(row.built and row.quantization is None for row in rows.values())


def test_variables_are_what_they_are_and_not_what_the_policy_says():
    """A policy that is set after `build` does not reach them."""
    model = sequential(hidden, out(), policy="float16")
    model.layers[0].dtype_policy = "mixed_float16"
    row = explain(model).rows[0]
    assert (row.policy, row.variable_dtype) == ("mixed_float16", "float16")
    assert ("no_master_copy", "hidden") in codes(model, ours())


def test_float16_variables_need_a_loss_scale_too():
    """Their gradients are float16, whatever the layer computes in."""
    model = sequential(out(dtype="float16"))
    model.layers[0].dtype_policy = "float32"
    found = explain(model, keras.optimizers.SGD())
    assert (found.rows[0].compute_dtype, found.loss_scale.needed) == ("float32", True)


def test_the_policy_of_a_functional_model_computes_nothing():
    inner = sequential(out())
    inner.dtype_policy = "mixed_float16"
    inputs = keras.Input((4,))
    found = explain(keras.Model(inputs, inner(inputs)), keras.optimizers.SGD())
    assert [row.policy for row in found.rows] == ["mixed_float16", "float32"]
    assert (found.loss_scale.needed, found.findings) == (False, ())


def test_a_layer_of_two_models_is_listed_once():
    shared, inputs = layers.Dense(4, name="shared"), keras.Input((4,))
    one = keras.Sequential([shared], name="one")
    two = keras.Sequential([shared], name="two")
    paths = [row.path for row in explain(keras.Model(inputs, two(one(inputs)))).rows]
    assert paths == ["one", "one/shared", "two"]


def test_a_policy_map():
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_float16")
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1, dtype=policies, name="d")])
    (row,) = explain(model).rows
    assert (row.policy, row.compute_dtype, row.variable_dtype) == (
        "mixed_float16",  # what the map says of it, and not the name of the map
        "float16",
        "float32",
    )


def test_each_layer_of_a_map_has_a_policy_of_its_own():
    policies = keras.dtype_policies.DTypePolicyMap(
        "mixed_float16", {"^net/a$": keras.DTypePolicy("float32")}
    )
    stack = [layers.Dense(1, dtype=policies, name="a"), layers.ReLU(dtype=policies, name="b")]
    model = keras.Sequential([keras.Input((4,)), *stack], name="net")
    assert [row.policy for row in explain(model).rows] == ["float32", "mixed_float16"]


def test_layers_inside_layers():
    attention = layers.MultiHeadAttention(2, 4, dtype="mixed_float16", name="mha")
    inputs = keras.Input((3, 4))
    model = keras.Model(inputs, attention(inputs, inputs))
    paths = [row.path for row in explain(model).rows]
    assert paths[0] == "mha"
    assert {path.split("/")[0] for path in paths} == {"mha"}
    assert any(path.startswith("mha/softmax") for path in paths)


def test_a_layer_alone():
    (row,) = explain(layers.Dense(1, dtype="mixed_float16", name="d")).rows
    assert (row.path, row.built, row.variable_dtype, row.input_dtypes) == (
        "d",
        False,
        "float32",
        None,
    )


SCALES = {
    "ours": (ours, "keras_mp.LossScaleOptimizer", True, 2.0**15),
    "fixed": (
        lambda: ours(dynamic=False, initial_scale=64),
        "keras_mp.LossScaleOptimizer",
        False,
        64.0,
    ),
    "Keras'": (
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0),
        "keras.optimizers.LossScaleOptimizer",
        True,
        8.0,
    ),
    "factor": (
        lambda: keras.optimizers.SGD(loss_scale_factor=128),
        "loss_scale_factor",
        False,
        128.0,
    ),
    "none": (keras.optimizers.SGD, "none", None, None),
}


@pytest.mark.parametrize("case", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize(
    ("policy", "needed"), [("mixed_float16", True), ("float16", True), ("mixed_bfloat16", False)]
)
def test_loss_scale(case, policy, needed):
    make, kind, dynamic, value = case
    scale = explain(sequential(hidden, policy=policy), make()).loss_scale
    assert (scale.needed, scale.kind, scale.dynamic, scale.value, scale.optimizer) == (
        needed,
        kind,
        dynamic,
        value,
        "SGD",
    )


def test_the_text_names_the_scale_of_an_optimizer():
    found = explain(sequential(hidden, out()), keras.optimizers.SGD(loss_scale_factor=128))
    assert "loss_scale_factor=128 of SGD, fixed" in found.text()


def test_long_paths_are_cut_in_the_middle_where_layers_are_grouped():
    name = "encoder_" * 8 + "query"
    first = layers.Dense(3, name=name, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((4,)), first, *map(layers.Dense, [2] * 40)])
    (row,) = (line for line in explain(model).text().splitlines() if "query (Dense)" in line)
    path = row.split()[0]
    assert len(path) == 34
    assert path.startswith("encoder_")
    assert "\N{HORIZONTAL ELLIPSIS}" in path


def test_the_scale_of_now():
    optimizer = ours()
    optimizer.dynamic_scale.assign(4.0)
    assert explain(sequential(hidden), optimizer).loss_scale.value == 4.0


def test_the_optimizer_given_goes_before_the_model_s_own():
    model = sequential(hidden, out())
    model.compile(ours(), "mse")
    assert explain(model, keras.optimizers.SGD()).loss_scale.kind == "none"
    assert explain(model).loss_scale.kind == "keras_mp.LossScaleOptimizer"


# -- findings of the optimizer ---------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["mixed_float16", "float8_from_mixed_float16"])
def test_no_loss_scale(policy):
    model = sequential(hidden, out())
    for layer in model.layers[:1]:
        layer.dtype_policy = "mixed_float16"
        if policy.startswith("float8"):
            layer.quantize("float8")
    assert model.layers[0].dtype_policy.name == policy
    (finding,) = explain(model, keras.optimizers.SGD()).findings
    assert (finding.code, finding.level, finding.path) == ("no_loss_scale", "error", "optimizer")
    assert "keras_mp.LossScaleOptimizer(optimizer)" in finding.remedy


def test_no_loss_scale_says_what_compile_does():
    mixed = sequential(hidden, out())
    mixed.dtype_policy = "mixed_float16"
    by_layer = sequential(hidden, out())
    by_layer.dtype_policy = "float32"
    for model, words in ((mixed, "compile() would wrap it with Keras'"), (by_layer, "is float32")):
        (finding,) = explain(model, keras.optimizers.SGD()).findings
        assert words in finding.why
        model.compile(keras.optimizers.SGD(), "mse")
        theirs = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        assert theirs is (model is mixed)
    mixed.compile(keras.optimizers.SGD(), "mse", auto_scale_loss=False)
    (finding,) = explain(mixed).findings
    assert "did not wrap" in finding.why


def test_no_optimizer_is_a_note():
    (finding,) = explain(sequential(hidden, out())).findings
    assert (finding.code, finding.level) == ("no_optimizer", "note")


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_loss_scale_that_nothing_needs(policy):
    found = explain(sequential(hidden, policy=policy), ours()).findings
    assert [(finding.code, finding.level) for finding in found] == [("unneeded_loss_scale", "note")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("way", ["given", "compiled", "applied", "inside"])
def test_the_graph_rewrite(way, dtype):
    """No layer is of float16, and still its loss scale is needed."""
    model = sequential(hidden, out(), policy="float32")
    optimizer = graph_rewrite.enable(keras.optimizers.SGD(), dtype=dtype)
    try:
        if way == "compiled":
            model.compile(optimizer, "mse")
        elif way == "given":
            graph_rewrite.apply(model, dtype=dtype)
        elif way in ("applied", "inside"):
            graph_rewrite.disable()
            graph_rewrite.apply(model, dtype=dtype)
            optimizer = keras.optimizers.SGD()
        outer = keras.Sequential([model]) if way == "inside" else model
        found = explain(outer, None if way == "compiled" else optimizer)
        assert found.loss_scale.needed == (dtype == "float16")
        expected = {"graph_rewrite"}
        if way in ("applied", "inside") and dtype == "float16":
            expected.add("no_loss_scale")
            assert "graph_rewrite.enable(optimizer)" in found.findings[0].remedy
        assert {finding.code for finding in found.findings} == expected
    finally:
        graph_rewrite.disable()
    assert "graph_rewrite" not in {code for code, _ in codes(model, keras.optimizers.SGD())}


def test_fixed_scales_without_a_guard():
    unguarded = ours(dynamic=False, initial_scale=8, skip_nonfinite=False)
    model = sequential(hidden, out())
    assert codes(model, unguarded) == {("unguarded_fixed_scale", "optimizer")}
    factor = keras.optimizers.SGD(loss_scale_factor=8.0)
    assert codes(model, factor) == {("unguarded_fixed_scale", "optimizer")}


def test_keras_own():
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    assert codes(sequential(hidden, out()), theirs) == {("no_floor", "optimizer")}


def test_double_scaling():
    model = sequential(hidden, out())
    optimizer = ours()
    optimizer.inner_optimizer.loss_scale_factor = 128.0
    (finding,) = explain(model, optimizer).findings
    assert (finding.code, finding.level) == ("double_scaling", "error")
    assert "too small 128 times" in finding.why
    twice = keras.optimizers.LossScaleOptimizer(ours())
    assert codes(model, twice) == {("double_scaling", "optimizer"), ("no_floor", "optimizer")}


# -- findings of the layers ------------------------------------------------------------------------


def test_pure_float16():
    model = sequential(hidden, layers.BatchNormalization, out(), policy="float16")
    norm = model.layers[1].name
    assert codes(model, LossScaleOptimizer(keras.optimizers.Adam())) == {
        ("no_master_copy", "hidden"),
        ("no_master_copy", norm),
        ("float16_statistics", norm),
        ("float16_slots", "optimizer"),
    }
    model.layers[0].trainable = False
    model.layers[1].trainable = False
    assert codes(model, ours()) == {("float16_statistics", norm)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Adam", "by 59 instead of 0.1"),
        ("AdamW", "by 59 instead of 0.1"),
        ("Nadam", "by 652"),
        ("Adamax", "gradient of 0 gives nan"),
        ("Adafactor", "1e-4 and less give nan"),
        ("Lamb", "move nothing"),
        ("SGD", None),
        ("RMSprop", None),
        ("Lion", None),
    ],
)
def test_optimizers_with_float16_slots(name, said):
    optimizer = LossScaleOptimizer(getattr(keras.optimizers, name)())
    found = explain(sequential(hidden, out(), policy="float16"), optimizer).findings
    texts = [finding.why for finding in found if finding.code == "float16_slots"]
    assert texts == [] if said is None else said in texts[0]


SOFTMAX = {
    "activation": ([hidden, out(activation="softmax", dtype="mixed_float16")], "out"),
    "Softmax": ([hidden, lambda: layers.Softmax(name="s")], "s"),
    "Activation": ([hidden, lambda: layers.Activation("softmax", name="s")], "s"),
    "cast too late": (
        [
            lambda: layers.Dense(3, activation="softmax", name="s"),
            lambda: layers.Activation("linear", dtype="float32"),
        ],
        "s",
    ),
    "reshaped": (
        [
            lambda: layers.Dense(4, activation="softmax", name="s"),
            lambda: layers.Reshape((2, 2), dtype="float32"),
        ],
        "s",
    ),
}


@pytest.mark.parametrize("case", SOFTMAX.values(), ids=SOFTMAX)
def test_softmax(case):
    parts, path = case
    found = codes(sequential(*parts), ours())
    assert ("float16_softmax", path) in found
    assert found <= {("float16_softmax", path), ("float16_output", path)}


def test_softmax_in_a_nested_model():
    keras.config.set_dtype_policy("mixed_float16")
    inner = keras.Sequential(
        [layers.Dense(3), layers.Dense(3, activation="softmax", name="s")], name="inner"
    )
    inputs = keras.Input((4,), dtype="float32")
    model = keras.Model(inputs, layers.Activation("linear", dtype="float32")(inner(inputs)))
    assert codes(model, ours()) == {("float16_softmax", "inner/s")}
    behind = keras.Model(inputs, layers.Dense(1, dtype="float32")(inner(inputs)))
    assert codes(behind, ours()) == set()


def test_softmax_in_a_subclassed_model():
    """What it returns is not known: layers of its own are taken for its last."""
    model = Subclassed(activation="softmax", dtype="mixed_float16")
    model(np.zeros((1, 4), "float32"))
    (finding,) = explain(model, ours()).findings
    assert (finding.code, finding.path, finding.level) == ("float16_softmax", "last", "warning")


def test_softmax_and_sigmoid_that_are_for_no_loss():
    """Inside of attention, and gates."""

    class Attending(Subclassed):
        def __init__(self):
            super().__init__()
            policy = "mixed_float16"
            self.attention = layers.MultiHeadAttention(2, 4, dtype=policy, name="attention")
            self.gate = layers.Dense(8, activation="sigmoid", dtype=policy, name="gate")

        def call(self, x):
            x = self.first(x)
            return self.last(self.attention(x, x) * self.gate(x))

    model = Attending()
    model(np.zeros((1, 3, 4), "float32"))
    assert codes(model, ours()) == set()


def test_softmax_before_the_model_is_built():
    model = keras.Sequential([layers.Dense(3, activation="softmax", dtype="float16", name="s")])
    assert codes(model, ours()) == {("float16_softmax", "s"), ("float16_output", "s")}
    assert not model.built


def test_sigmoid():
    model = sequential(hidden, out(activation="sigmoid", dtype="mixed_float16"))
    assert codes(model, ours()) == {("float16_sigmoid", "out"), ("float16_output", "out")}


def test_outputs():
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((4,), dtype="float32")
    x = layers.Dense(2, name="a")(inputs)
    model = keras.Model(inputs, {"a": x, "b": layers.Dense(2, dtype="float32")(x), "c": x * 2})
    found = codes(model, ours())
    assert {code for code, _ in found} == {"float16_output"}
    assert len(found) == 2
    assert ("float16_output", "a") in found


def test_losses():
    model = sequential(hidden, out())
    model.compile(ours(), keras.losses.MeanSquaredError(dtype="float16"))
    assert codes(model) == {("float16_loss", "loss")}
    model.compile(ours(), "mse")
    assert codes(model) == set()
    keras.config.set_floatx("float16")
    try:
        assert codes(model) == {("float16_loss", "loss")}
        model.compile(ours(), keras.losses.MeanSquaredError(dtype="float32"))
        assert codes(model) == set()
    finally:
        keras.config.set_floatx("float32")


@pytest.mark.parametrize(
    "metric",
    [
        "mse",
        "mean_squared_error",
        keras.losses.mean_squared_error,
        "MeanSquaredError",
        "cosine_similarity",
        "kl_divergence",
        "squared_hinge",
    ],
)
def test_metrics(metric):
    model = sequential(hidden, out(dtype="mixed_float16"))
    metric = keras.metrics.MeanSquaredError() if metric == "MeanSquaredError" else metric
    for key in ("metrics", "weighted_metrics"):
        model.compile(ours(), "mse", **{key: ["mae", metric]})
        paths = [path for code, path in codes(model) if code == "float16_metric"]
        assert paths == ["metrics"]


def test_other_metrics():
    model = sequential(hidden, out(dtype="mixed_float16"))
    model.compile(ours(), "mse", metrics=["mae", "accuracy", lambda y, p: ops.mean(p)])
    assert codes(model) == {("float16_output", "out")}
    model.compile(ours(), "mse")
    assert codes(model) == {("float16_output", "out")}


def test_regularizers():
    model = sequential(
        lambda: layers.Dense(2, kernel_regularizer="l2", name="k"),
        lambda: layers.Dense(2, activity_regularizer="l2", name="a"),
        lambda: layers.ActivityRegularization(l2=0.1, name="r"),
        lambda: layers.ActivityRegularization(l2=0.1, dtype="float32"),
        out(),
    )
    assert codes(model, ours()) == {("float16_regularizer", "a"), ("float16_regularizer", "r")}
    pure = sequential(
        lambda: layers.Dense(2, kernel_regularizer="l2", name="k"), out(), policy="float16"
    )
    assert ("float16_regularizer", "k") in codes(pure, ours())


def test_calls_whose_training_keras_overrides():
    inputs = keras.Input((2,))
    base = keras.Sequential([keras.Input((2,)), layers.BatchNormalization()], name="base")
    x = layers.Dropout(0.5, name="always")(base(inputs, training=False), training=True)
    outputs = layers.Dense(1, name="out")(layers.Dropout(0.5, name="sometimes")(x))
    found = {each for each in codes(keras.Model(inputs, outputs)) if each[0][:4] == "over"}
    assert found == {("overridden_training", "base"), ("overridden_training", "always")}
    kept = keras_mp.compat.layers.Functional(inputs, outputs)
    assert not any(each[0] == "overridden_training" for each in codes(kept))


def test_sums(backend):
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((32, 32, 1), dtype="float32")
    small = layers.AveragePooling2D(8, name="small")(inputs)
    large = layers.AveragePooling2D(16, name="large")(inputs)
    flat = layers.Flatten()(large)
    x = layers.UnitNormalization(name="unit")(flat)
    x = layers.Dot(1, normalize=True, name="cosine")([x, x])
    y = layers.Attention(name="attention")([layers.Reshape((16, 1))(small)] * 2)
    y = layers.AdditiveAttention(name="additive")([y, y])
    model = keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.Flatten()(y) + x))
    expected = {("float16_sum", "unit"), ("float16_sum", "cosine"), ("float16_sum", "attention")}
    if backend != "torch":
        expected.add(("float16_sum", "large"))
    assert codes(model, ours()) == expected


# -- what is not known -----------------------------------------------------------------------------


class Late(keras.Model):
    """Makes its layers when it is built."""

    def build(self, shape):
        self.dense = layers.Dense(1, dtype="mixed_float16", name="dense")
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)


def test_layers_that_do_not_exist_yet():
    model = Late(name="late")
    found = explain(model, keras.optimizers.SGD())
    assert found.loss_scale.needed is None
    assert [(f.code, f.level, f.path) for f in found.findings] == [("unbuilt", "note", "late")]
    assert "not known whether it is needed" in str(found)
    model(np.zeros((1, 4), "float32"))
    found = explain(model, keras.optimizers.SGD())
    assert found.loss_scale.needed is True
    assert [f.code for f in found.findings] == ["no_loss_scale"]


def test_an_unbuilt_model_of_keras_layers_is_known():
    model = keras.Sequential([layers.Dense(3, name="d")], name="s")
    found = explain(model, keras.optimizers.SGD())
    assert (found.loss_scale.needed, found.findings) == (False, ())
    assert (found.rows[0].built, found.rows[0].variable_dtype) == (False, "float32")
    assert "not built" in str(found)
    assert not model.built
    assert codes(keras.Sequential()) == set()


def test_quantized():
    model = sequential(hidden, out(), policy="mixed_bfloat16")
    model.layers[0].quantize("int8")
    found = explain(model, keras.optimizers.SGD())
    row = found.rows[0]
    assert (row.quantization, row.policy, row.variable_dtype) == (
        "int8",
        "int8_from_mixed_bfloat16",
        "float32, int8",
    )
    assert [(f.code, f.path, f.level) for f in found.findings] == [("quantized", "hidden", "note")]
    assert not model.layers[0].kernel.trainable


# -- at any time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ours, "theirs"])
def test_in_a_callback(data, make):
    seen = []

    class Explain(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(explain(self.model))

    plain = keras.optimizers.SGD(0.1)
    optimizer = ours() if make is ours else keras.optimizers.LossScaleOptimizer(plain)
    model = sequential(hidden, out())
    model.compile(optimizer, "mse")
    model.fit(*data, batch_size=32, verbose=0, callbacks=[Explain()])
    assert len(seen) == 2
    assert {found.loss_scale.kind for found in seen} == {explain(model).loss_scale.kind}
    for found in seen:
        assert found.loss_scale.value is None or found.loss_scale.value > 0
        assert [row.path for row in found.rows] == ["hidden", "out"]


@pytest.mark.parametrize("eagerly", [False, True])
def test_while_a_step_is_traced(data, eagerly):
    seen = []

    class Explains(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1, dtype="mixed_float16", name="dense")

        def call(self, x):
            return ops.cast(self.dense(x), "float32")

        def compute_loss(self, *args, **kwargs):
            seen.append(explain(self))
            return super().compute_loss(*args, **kwargs)

    model = Explains()
    model.compile(ours(), "mse", run_eagerly=eagerly)
    model.fit(*data, batch_size=32, verbose=0)
    assert seen
    assert all(found.loss_scale.needed for found in seen)


def test_it_changes_nothing(data, state):
    model = sequential(hidden, out())
    model.compile(ours(), "mse")
    model.fit(*data, batch_size=32, verbose=0)
    variables = [*model.variables, *model.optimizer.variables]
    before, config, attributes = state(variables), model.get_config(), set(vars(model))
    explain(model)
    assert state(variables) == before
    assert model.get_config() == config
    assert set(vars(model)) == attributes


# -- text and JSON ---------------------------------------------------------------------------------


def everything():
    keras.config.set_dtype_policy("float16")
    inputs = keras.Input((64,), dtype="float32")
    x = inputs
    for i in range(12):
        x = layers.Dense(4, name=f"a_very_long_name_of_a_layer_in_a_very_long_model_{i}")(x)
    model = keras.Model(inputs, layers.Dense(2, activation="softmax", name="out")(x), name="wide")
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    theirs.inner_optimizer.loss_scale_factor = 2.0
    model.compile(theirs, keras.losses.MeanSquaredError(dtype="float16"), metrics=["mse"])
    return model


def test_it_prints_nothing_by_itself_and_a_prompt_shows_it(capsys):
    found = explain(everything())
    assert capsys.readouterr().out == ""
    assert repr(found) == str(found)
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)
    header = next(line for line in lines if line.startswith("layer"))
    column = header.index("computes in")
    table = lines[lines.index(header) + 1 :]
    assert len(table) == 13
    assert {line[column:].split()[0] for line in table} == {"float16"}, "columns are aligned"


def blocks(count):
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((3, 4), dtype="float32")
    x = inputs
    for _ in range(count):
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, x)])
        x = layers.Dense(4)(layers.LayerNormalization()(x))
    outputs = layers.Dense(2, dtype="float32", name="head")(x)
    return keras.Model(inputs, outputs, name="blocks")


def test_findings_come_before_the_layers():
    lines = str(explain(everything())).splitlines()
    assert lines[0] == "wide: 13 layers, 4 errors, 4 warnings"
    heads = ("error: ", "warning: ", "To compute ", "loss scale: ", "casts: ", "layer ", "out ")
    first = [next(i for i, x in enumerate(lines) if x.startswith(head)) for head in heads]
    assert first == sorted(first)
    assert (first[0], first[-1]) == (2, len(lines) - 1)


def test_layers_that_are_alike_are_folded_in_large_models():
    model = blocks(6)
    found = explain(model, ours())
    short = str(found)
    table = short[short.index("layers ") :].splitlines()
    assert [line.split("  ")[0] for line in table[1:-2]] == [
        "6 x MultiHeadAttention",
        "6 x Add",
        "6 x LayerNormalization",
        "6 x Dense",
        "head (Dense)",
    ]
    assert table[1].split()[3:] == ["mixed_float16", "float16", "float32"]
    assert f"Each of the {len(found.rows)} layers" in table[-1]
    long = str(explain(model, ours(), all_layers=True))
    assert long == found.text(all_layers=True)
    listed = long[long.index("layer ") :].splitlines()[1:]
    assert len(listed) == len(found.rows) > 40
    assert "Each of the" not in long


def test_what_computes_in_another_dtype_than_what_it_is_in_has_a_line_of_its_own():
    model = blocks(6)
    attention = next(x for x in model.layers if isinstance(x, layers.MultiHeadAttention))
    attention._query_dense.dtype_policy = "float32"
    table = str(explain(model, ours()))
    assert "/query (EinsumDense)  float32" in table


def test_like_findings_are_told_together():
    found = explain(everything())
    assert sum(finding.code == "no_master_copy" for finding in found.findings) == 13
    assert str(found).count("[no_master_copy]") == 1
    assert "and 7 more" in str(found)


def test_errors_come_first():
    levels = [finding.level for finding in explain(everything()).findings]
    assert levels == sorted(levels, key=("error", "warning", "note").index)
    assert {"error", "warning"} <= set(levels)


def test_to_dict_is_json():
    found = explain(everything())
    read = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert read == found.to_dict()
    assert set(read) == {"model", "rows", "loss_scale", "findings", "float32_layers"}
    assert set(read["findings"][0]) == {"code", "level", "path", "what", "why", "remedy"}
    assert read["rows"][0]["input_dtypes"] == ["float32"]
    words = explain(keras.Sequential([keras.Input((3,), dtype="int32"), layers.Embedding(4, 2)]))
    assert words.rows[0].input_dtypes == ()
    assert words.to_dict()["rows"][0]["input_dtypes"] == []


def test_every_finding_says_what_to_do():
    for finding in explain(everything()).findings:
        assert all((finding.what, finding.why, finding.remedy))


# -- wrong objects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "model", keras.Sequential, 3])
def test_what_is_no_model(given):
    with pytest.raises(TypeError, match=r"model must be a keras\.Model or a layer, but got"):
        explain(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("adam", r"write keras\.optimizers\.get\('adam'\)"),
        (keras.optimizers.Adam, r"write Adam\(\)"),
        (1e-3, "the number"),
    ],
)
def test_what_is_no_optimizer(given, words):
    with pytest.raises(TypeError, match=rf"^optimizer must be a keras\.optimizers\.O.*{words}"):
        explain(sequential(hidden), given)


def test_what_is_not_known_is_null_for_machines():
    listed = json.loads(json.dumps(explain(Subclassed()).to_dict()))
    assert None in [row["input_dtypes"] for row in listed["rows"]]


class Other(keras.optimizers.LossScaleOptimizer):
    """What somebody has derived."""


def test_an_optimizer_derived_from_that_of_keras_goes_by_its_own_name():
    found = explain(sequential(hidden, out()), Other(keras.optimizers.SGD()))
    assert found.loss_scale.kind.endswith("Other")


def test_compile_would_wrap_it_where_that_was_asked_for():
    undo = keras_mp.auto_wrap()
    try:
        (finding,) = explain(sequential(hidden, out()), keras.optimizers.SGD()).findings
    finally:
        undo()
    assert finding.code == "no_loss_scale"
    assert "compile() would wrap it, because keras_mp.auto_wrap() is active" in str(finding)


def test_a_model_with_an_optimizer_of_another_kind():
    model = sequential(hidden, out())
    object.__setattr__(model, "optimizer", type("SGD", (), {"__module__": "torch.optim"})())
    found = explain(model)
    assert (found.loss_scale.kind, found.findings) == ("unknown", ())
    assert "not known, as model.optimizer is a torch.optim.SGD" in str(found)
    single = sequential(hidden, policy="float32")
    object.__setattr__(single, "optimizer", model.optimizer)
    assert explain(single).findings == ()


# -- mixing by hand --------------------------------------------------------------------------------

BY_HAND = {
    "mixed_float16 next to float32": ("mixed_float16", "float32", "mixed_float16"),
    "float16 next to float32": ("float16", "float32", "float16"),
    "all three": ("float32", "mixed_float16", "float16"),
}


@pytest.mark.parametrize("policies", BY_HAND.values(), ids=BY_HAND)
@pytest.mark.parametrize("start", [2.0**10, 2.0**30], ids=["fits", "overflows at first"])
def test_layers_mixed_by_hand_train(policies, start, data, weights):
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            *[layers.Dense(8, activation="tanh", dtype=policy) for policy in policies],
            layers.Dense(1, dtype="float32"),
        ]
    )
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=start)
    model.compile(optimizer, keras.losses.MeanSquaredError())
    found = explain(model)
    changes = [
        (b, a)
        for b, a in zip(("float32", *dtypes(policies)), [*dtypes(policies), "float32"], strict=True)
    ]
    assert [row.casts for row in found.rows] == [(b,) if a != b else () for b, a in changes]
    assert {f.code for f in found.findings} == (
        {"no_master_copy"} if "float16" in policies else set()
    )
    history = model.fit(*data, batch_size=8, epochs=12, shuffle=False, verbose=0).history["loss"]
    assert history[-1] < history[0] / 4
    assert np.isfinite(weights(model)).all()
    scale = float(optimizer.loss_scale)
    assert int(optimizer.iterations) == 96
    if start == 2.0**10:
        assert scale == start
    else:
        assert scale < start, "steps were skipped until the scale fitted"
        assert math.log2(scale).is_integer()


def dtypes(policies):
    return [policy.removeprefix("mixed_") for policy in policies]
