"""`explain`: what it finds in which model, that it finds nothing else, and that what it says is so.

The last part repeats the measurements that its texts quote.
"""

import json
import math

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import LossScaleOptimizer
from keras_mp.diagnosis.explaining import explain


def ours(**settings):
    return LossScaleOptimizer(keras.optimizers.SGD(0.1), **settings)


def sequential(*parts, policy="mixed_float16", shape=(4,)):
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input(shape, dtype="float32"), *[part() for part in parts]])
    keras.config.set_dtype_policy("float32")
    return model


def hidden():
    return layers.Dense(8, activation="relu", name="hidden")


def out(**options):
    return lambda: layers.Dense(1, name="out", **{"dtype": "float32", **options})


class Subclassed(keras.Model):
    def __init__(self, policy="mixed_float16", activation=None, **options):
        super().__init__(dtype=policy, name="subclassed")
        self.first = layers.Dense(8, dtype=policy, name="first")
        self.last = layers.Dense(
            3, activation=activation, name="last", **{"dtype": "float32", **options}
        )

    def call(self, x):
        return self.last(self.first(x))


def codes(model, optimizer=None):
    """{(code, path)} of all findings; fails if there is one twice."""
    found = explain(model, optimizer).findings
    listed = [(finding.code, finding.path) for finding in found]
    assert len(set(listed)) == len(listed)
    return set(listed)


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
    "bfloat16": lambda: (sequential(hidden, policy="bfloat16"), keras.optimizers.SGD()),
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
        "map_mixed_float16",
        "float16",
        "float32",
    )


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


def test_sums(backend):
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((32, 32, 1), dtype="float32")
    small = layers.AveragePooling2D(8, name="small")(inputs)
    large = layers.AveragePooling2D(16, name="large")(inputs)
    flat = layers.Flatten()(large)
    x = layers.UnitNormalization(name="unit")(flat)
    x = layers.Dot(1, normalize=True, name="cosine")([x, x])
    y = layers.Attention(name="attention")([layers.Reshape((16, 1))(small)] * 2)
    model = keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.Flatten()(y) + x))
    expected = {("float16_sum", "unit"), ("float16_sum", "cosine"), ("float16_sum", "attention")}
    if backend != "torch":
        expected.add(("float16_sum", "large"))
    assert codes(model, ours()) == expected


def test_rms_normalization_of_keras_3_10():
    """Said where it is so: measured on the Keras that runs."""
    model = sequential(lambda: layers.RMSNormalization(name="rms"), out())
    found = codes(model, ours())
    lost = half(layers.RMSNormalization, [[3e4, 3e4]])[0] == 0
    assert found == ({("float16_sum", "rms")} if lost else set())


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


def test_it_prints_what_it_returns(capsys):
    found = explain(everything())
    assert capsys.readouterr().out == f"{found}\n"
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)
    assert repr(found).startswith("<Explanation of 'wide': ")
    header = next(line for line in lines if line.startswith("layer"))
    column = header.index("computes in")
    table = lines[lines.index(header) + 1 : lines.index("", lines.index(header))]
    assert len(table) == 13
    assert {line[column:].split()[0] for line in table} == {"float16"}, "columns are aligned"


def test_like_findings_are_told_together():
    found = explain(everything())
    assert sum(finding.code == "no_master_copy" for finding in found.findings) == 13
    assert str(found).count("[no_master_copy]") == 1
    assert "and 7 more" in str(found)


def test_errors_come_first():
    levels = [finding.level for finding in explain(everything()).findings]
    assert levels == sorted(levels, key=("error", "warning", "note").index)
    assert {"error", "warning"} <= set(levels)


def test_as_dict_is_json():
    found = explain(everything())
    read = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert read == found.as_dict()
    assert set(read) == {"model", "rows", "loss_scale", "findings"}
    assert set(read["findings"][0]) == {"code", "level", "path", "what", "why", "remedy"}
    assert read["rows"][0]["input_dtypes"] == ["float32"]


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


# -- what the texts say is so ----------------------------------------------------------------------


def numbers(tensor):
    return ops.convert_to_numpy(tensor).astype("float64").ravel()


def moved(optimizer, dtype, gradient, steps=10, start=0.5):
    variable = keras.Variable([start], dtype=dtype)
    optimizer.build([variable])
    for _ in range(steps):
        optimizer.apply([ops.cast(ops.array([gradient]), dtype)], [variable])
    return numbers(variable)[0] - start


def test_small_updates_of_float16_vanish():
    assert moved(keras.optimizers.SGD(1e-3), "float16", 0.1, steps=100, start=1.0) == 0
    change = moved(keras.optimizers.SGD(1e-3), "float32", 0.1, steps=100, start=1.0)
    assert change == pytest.approx(-0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "gradient", "float16", "float32"),
    [
        ("Adam", 1e-3, -59, -0.1),
        ("Nadam", 1e-3, -652, -0.08),
        ("Adafactor", 1e-4, math.nan, -0.048),
        ("Adamax", 0.0, math.nan, 0),
        ("Lamb", 1e-3, 0, -0.048),
    ],
)
def test_slots_in_float16(name, gradient, float16, float32):
    make = getattr(keras.optimizers, name)
    found = moved(make(0.01), "float16", gradient)
    assert found == pytest.approx(float16, rel=0.01, nan_ok=True)
    assert moved(make(0.01), "float32", gradient) == pytest.approx(float32, rel=0.05, abs=1e-9)


def test_moving_statistics_in_float16():
    random = np.random.RandomState(0)
    norm = layers.BatchNormalization(dtype="float16")
    for _ in range(2000):
        norm((5 + 0.01 * random.randn(64, 2)).astype("float32"), training=True)
    assert (numbers(norm.moving_mean) == 4.8125).all()
    wide = layers.BatchNormalization(dtype="float16")
    for _ in range(800):
        wide(np.array([[400.0], [-400.0]], "float32"), training=True)
    assert np.isinf(numbers(wide.moving_variance)).all()


def confident(activation, loss, dtype, logit):
    """12 steps on labels that the model is sure are wrong, by `logit`."""
    width = 3 if activation == "softmax" else 1
    bias = [logit, 0.0, 0.0][:width]
    dense = layers.Dense(width, dtype="mixed_float16", kernel_initializer="zeros")
    last = layers.Activation(activation, dtype=dtype)
    model = keras.Sequential([keras.Input((4,)), dense, last])
    dense.bias.assign(bias)
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.1)), loss)
    x = np.random.RandomState(0).randn(8, 4).astype("float32")
    y = np.full((8, 1), 1 if width == 3 else 0)
    for _ in range(12):
        model.train_on_batch(x, y)
    return float(model.optimizer.loss_scale), numbers(dense.bias)[0] - logit


def test_softmax_in_float16():
    loss = "sparse_categorical_crossentropy"
    assert confident("softmax", loss, "mixed_float16", 12.0) == (8.0, 0.0)
    assert confident("softmax", loss, "mixed_float16", 17.0) == (2.0**15, 0.0)
    scale, change = confident("softmax", loss, "float32", 12.0)
    assert scale == 2.0**15
    assert change < -1


def test_sigmoid_in_float16():
    loss = "binary_crossentropy"
    assert confident("sigmoid", loss, "mixed_float16", 9.0) == (2.0**15, 0.0)
    scale, change = confident("sigmoid", loss, "float32", 9.0)
    assert scale == 2.0**15
    assert change < -1


def predicting(value, dtype, loss="mse", metrics=()):
    """{name: result} for predictions of `value` where -1 or 0 is right."""
    dense = layers.Dense(1, dtype=dtype, kernel_initializer=keras.initializers.Constant(value))
    model = keras.Sequential([keras.Input((1,)), dense])
    model.compile("sgd", loss, metrics=list(metrics), auto_scale_loss=False)
    y = -np.ones((2, 1), "float32")
    return model.evaluate(np.ones((2, 1), "float32"), y, verbose=0, return_dict=True)


def test_losses_and_metrics_of_float16_predictions():
    names = ["mse", keras.metrics.MeanSquaredError(name="of_class"), "squared_hinge"]
    found = predicting(300.0, "mixed_float16", metrics=names)
    assert found["loss"] == pytest.approx(301**2)
    assert all(math.isinf(found[name]) for name in ("mse", "of_class", "squared_hinge")), found
    assert math.isinf(
        predicting(300.0, "float32", keras.losses.MeanSquaredError(dtype="float16"))["loss"]
    )
    assert predicting(300.0, "float32", metrics=["mse"])["mse"] == pytest.approx(301**2)


def metric(function, predictions, labels):
    half = ops.cast(ops.array(predictions), "float16")
    return numbers(function(labels, half)).mean(), numbers(function(labels, predictions)).mean()


def test_cosine_and_divergence_of_float16_predictions():
    large, ones = np.full((1, 2), 300.0, "float32"), np.ones((1, 2), "float32")
    half, single = metric(keras.losses.cosine_similarity, large, ones)
    assert half == 0
    assert abs(single) == pytest.approx(1)
    sure, label = np.array([[1.0, 1e-8]], "float32"), np.array([[0.0, 1.0]], "float32")
    half, single = metric(keras.losses.kl_divergence, sure, label)
    assert math.isinf(half)
    assert math.isfinite(single)


def test_regularizers_in_float16():
    full = keras.initializers.Constant(20.0)
    for policy, expected in (("float16", math.inf), ("mixed_float16", 16384.0)):
        dense = layers.Dense(64, kernel_regularizer="l2", kernel_initializer=full, dtype=policy)
        dense(np.zeros((1, 64), "float32"))
        assert numbers(dense.losses[0])[0] == expected
    activity = layers.ActivityRegularization(l2=1e-4, dtype="mixed_float16")
    activity(np.full((8, 64), 128.0, "float32"))
    assert math.isinf(numbers(activity.losses[0])[0])


def half(layer, *given):
    layer = layer(dtype="mixed_float16")
    arrays = [np.array(one, "float32") for one in given]
    return numbers(layer(arrays if len(arrays) > 1 else arrays[0]))


def test_norms_in_float16():
    assert (half(layers.UnitNormalization, [[182.0, 182.0]]) == 0).all(), "a norm of 257"
    assert half(layers.UnitNormalization, [[180.0, 180.0]]) == pytest.approx(0.7071, rel=0.01)
    assert np.isinf(half(layers.UnitNormalization, [[1.6e-4]])).all()
    assert np.isnan(half(layers.UnitNormalization, [[0.0, 0.0]])).all()
    big = [[182.0, 182.0]]
    cosine = half(lambda dtype: layers.Dot(1, normalize=True, dtype=dtype), big, big)
    assert (cosine == 0).all()


def test_sums_in_float16(backend):
    pooled = half(
        lambda dtype: layers.AveragePooling2D(16, dtype=dtype), np.full((1, 16, 16, 1), 257.0)
    )
    assert pooled == pytest.approx(257.0 if backend == "torch" else math.inf)
    whole = half(layers.GlobalAveragePooling2D, np.full((1, 16, 16, 1), 1000.0))
    assert whole == pytest.approx(1000.0)
    query = np.full((1, 2, 64), 40.0)
    assert np.isnan(half(layers.Attention, query, query)).all()


@pytest.mark.parametrize(
    "make",
    [
        layers.LayerNormalization,
        lambda **options: layers.GroupNormalization(1, **options),
        lambda **options: Training(layers.BatchNormalization(axis=0, **options)),
    ],
)
@pytest.mark.parametrize("epsilon", [1e-7, 1e-8])
def test_normalizations_are_no_finding(make, epsilon):
    """Keras computes these in float32: an epsilon that float16 cannot hold is no fault."""
    small = np.array([[1e-3, -1e-3]], "float32")
    single = numbers(make(epsilon=epsilon, dtype="float32")(small))
    for policy in ("mixed_float16", "float16"):
        assert numbers(make(epsilon=epsilon, dtype=policy)(small)) == pytest.approx(
            single, rel=2e-3
        )


class Training:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return self.layer(x, training=True)


def test_two_factors_make_steps_too_small(data, fit, weights):
    def trained(factor):
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=8.0)
        optimizer.inner_optimizer.loss_scale_factor = factor
        keras.utils.set_random_seed(3)
        model = sequential(hidden, out(), policy="float32")
        before = weights(model)
        return np.abs(weights(fit(optimizer, *data, model=model)) - before).max()

    assert trained(128.0) == pytest.approx(trained(None) / 128, rel=0.3)
