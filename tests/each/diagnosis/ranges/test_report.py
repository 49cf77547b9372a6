"""`range_report` against casts by NumPy and ml_dtypes, plain loops and known models."""

import json
import math
import random
import sys

import keras
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from keras import layers, ops

from keras_mp import LossScaleOptimizer
from keras_mp.diagnosis.overflow_search.search import find_overflow
from keras_mp.diagnosis.ranges import file, report as module
from keras_mp.diagnosis.ranges.advice import advise
from keras_mp.diagnosis.ranges.magnitudes import (
    FIRST,
    LAST,
    MagnitudeStatistics,
    fraction_below,
    highest_scale,
)
from keras_mp.diagnosis.ranges.report import RangeReport, range_report
from keras_mp.rendering.style import DARK, LIGHT
from tests.backends import on_one
from tests.fuzzing import examples

ONES, ZEROS = np.ones((8, 4), "float32"), np.zeros((8, 1), "float32")
constant = keras.initializers.Constant


def net(*stack, shape=(4,), loss="mse", optimizer="sgd", name="net"):
    model = keras.Sequential([keras.Input(shape), *stack], name=name)
    model.compile(optimizer, loss)
    return model


def dense(value, name, units=1, **kwargs):
    return layers.Dense(
        units, kernel_initializer=constant(value), use_bias=False, name=name, **kwargs
    )


def mean_prediction(y, prediction):
    return ops.mean(prediction)


def row(report, path, kind):
    [found] = [row for row in report.rows if (row["path"], row["kind"]) == (path, kind)]
    return found


def kernel(model, layer):
    return model.get_layer(layer).kernel.path


# -- counting --------------------------------------------------------------------------------------

NUMBERS = st.lists(
    st.floats(width=32)
    | st.builds(math.ldexp, st.floats(-2, 2), st.integers(-30, 17))
    | st.builds(lambda e, d: math.ldexp(1 + d / 4096, e), st.integers(-30, 16), st.integers(-4, 4))
    | st.sampled_from([0.0, 2.0**-25, 2.0**-24, 2.0**-14, 65504.0, 65519.0, 65520.0, 2.0**-133]),
    min_size=1,
    max_size=40,
)


@on_one
@given(NUMBERS)
@settings(deadline=None, max_examples=examples(200))
def test_fractions_agree_with_casts(numbers):
    with np.errstate(all="ignore"):
        values = np.array(numbers, np.float32)
        tally = MagnitudeStatistics()
        tally.add(values)
        real = values[~np.isnan(values) & (values != 0)]
        for name, dtype, tiny in (
            ("float16", np.float16, 2.0**-14),
            ("bfloat16", ml_dtypes.bfloat16, 2.0**-126),
        ):
            cast = np.abs(real.astype(dtype).astype(np.float64))
            expected = [
                int((cast == 0).sum()),
                int(((cast > 0) & (cast < tiny)).sum()),
                int(np.isinf(cast).sum()),
            ]
            assert tally.lost[name] == expected
            if real.size:
                found = tally.fractions(name)
                assert list(found.values()) == [count / real.size for count in expected]


@on_one
@given(NUMBERS, st.integers(-8, 20))
@settings(deadline=None, max_examples=examples(200))
def test_the_histogram_agrees_with_a_loop(numbers, exponent):
    values = np.array(numbers, np.float32)
    tally = MagnitudeStatistics()
    tally.add(values[: len(values) // 2], 2.0**exponent)
    tally.add(values[len(values) // 2 :], 2.0**exponent)
    counts, zeros, infs, nans, sizes = [0] * (LAST - FIRST + 1), 0, 0, 0, []
    for value in values.tolist():
        if math.isnan(value):
            nans += 1
        elif math.isinf(value):
            infs += 1
        elif value == 0:
            zeros += 1
        else:
            size = abs(value) / 2.0**exponent
            sizes.append(size)
            e = FIRST
            while e < LAST and size >= 2.0 ** (e + 1):
                e += 1
            counts[e - FIRST] += 1
    assert tally.histogram.tolist() == counts
    assert (tally.count, tally.zeros, tally.infs, tally.nans) == (len(values), zeros, infs, nans)
    assert tally.largest == (max(sizes) if sizes else None)
    assert tally.smallest == (min(sizes) if sizes else None)
    below = fraction_below(counts, -14)
    assert below == (sum(size < 2.0**-14 for size in sizes) / len(sizes) if sizes else 0.0)


@on_one
@given(st.floats(1e-30, 1e30), st.integers(0, 4))
def test_the_highest_scale_by_brute_force(largest, margin):
    with np.errstate(over="ignore"):
        fits = [
            k
            for k in range(-130, 130)
            if np.isfinite(np.float16(np.float64(largest) * 2.0 ** (k + margin)))
        ]
    assert highest_scale(largest, margin) == max(fits)


@on_one
def test_more_numbers_than_a_chunk():
    tally = MagnitudeStatistics()
    tally.add(np.full(3_000_000, 2.0**-20, np.float16))
    assert tally.count == tally.histogram[-20 - FIRST] == 3_000_000
    assert tally.fractions("float16") == {"zero": 0.0, "subnormal": 1.0, "overflow": 0.0}


# -- known models ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "part"), [(1.0, "zero"), (4.0, "subnormal"), (2.0**12, None), (2.0**43, "overflow")]
)
def test_a_gradient_of_known_size(scale, part):
    # Of the mean of 8 predictions by an output of a: 2**-23 / 8.
    model = net(dense(1.0, "a"), dense(2.0**-23, "head"), loss=mean_prediction)
    report = range_report(model, (ONES, ZEROS), loss_scale=scale)
    found = row(report, "a", "activation gradient")
    assert found["largest"] == found["smallest"] == 2.0**-26
    assert found["histogram"][-26 - FIRST] == found["count"] == 8
    expected = {name: float(name == part) for name in ("zero", "subnormal", "overflow")}
    assert found["float16"] == expected
    assert found["bfloat16"] == {"zero": 0.0, "subnormal": 0.0, "overflow": 0.0}
    weight = row(report, kernel(model, "a"), "weight gradient")
    assert weight["largest"] == 2.0**-23
    activation = row(report, "a", "activation")
    assert (activation["largest"], activation["count"], activation["class"]) == (4.0, 8, "Dense")
    assert row(report, kernel(model, "head"), "weight")["largest"] == 2.0**-23


def test_what_float16_has_lost_is_a_zero():
    a = dense(1.0, "a", dtype="mixed_float16")
    model = net(a, dense(2.0**-23, "head", dtype="float32"), loss=mean_prediction)
    found = row(range_report(model, (ONES, ZEROS)), "a", "activation gradient")
    assert (found["dtype"], found["zeros"], found["largest"]) == ("float16", 8, None)
    found = row(range_report(model, (ONES, ZEROS), loss_scale=8.0), "a", "activation gradient")
    assert (found["zeros"], found["largest"], found["float16"]["subnormal"]) == (0, 2.0**-26, 1.0)


def test_several_batches_are_counted_and_shared_layers_too():
    x = keras.Input((4,))
    shared = layers.Dense(4, name="shared")
    model = keras.Model(x, layers.Dense(1, name="head")(shared(shared(x))), name="net")
    model.compile("sgd", "mse")
    data = np.random.default_rng(0).normal(size=(70, 4)), np.zeros((70, 1))
    report = range_report(model, data)
    assert report.to_dict()["steps"] == 3
    assert row(report, "shared", "activation")["count"] == 2 * 70 * 4
    assert row(report, "shared", "activation gradient")["count"] == 2 * 70 * 4
    assert row(report, kernel(model, "shared"), "weight gradient")["count"] == 3 * 16
    assert row(report, kernel(model, "shared"), "weight")["count"] == 16


class Chooses(keras.Model):
    """Calls another layer where its input says so."""

    def __init__(self):
        super().__init__(name="net")
        self.a, self.b = dense(1.0, "a", 2), dense(2.0, "b", 2)
        self.head = dense(1.0, "head")
        for layer, width in ((self.a, 4), (self.b, 4), (self.head, 2)):
            layer.build((None, width))

    def call(self, x):
        chosen = self.b if float(ops.max(x)) > 5 else self.a
        return self.head(chosen(x))


def test_layers_that_not_every_batch_calls():
    model = Chooses()
    x = np.concatenate([ONES * 9, ONES, ONES * 9])
    model(x[:8])
    model.compile("sgd", "mse")
    report = range_report(model, (x, np.zeros((24, 1))), batch_size=8)
    for layer, batches in (("a", 1), ("b", 2), ("head", 3)):
        count = batches * 8 * (1 if layer == "head" else 2)
        for kind in ("activation", "activation gradient"):
            assert row(report, layer, kind)["count"] == count


def test_two_variables_of_one_path():
    parts = []
    for i, policy in enumerate(("float32", "mixed_float16")):
        x = keras.Input((4,))
        parts.append(keras.Model(x, dense(0.1, "d", 4, dtype=policy)(x), name=f"part{i}"))
    x = keras.Input((4,))
    model = keras.Model(x, dense(1.0, "head")(parts[1](parts[0](x))), name="net")
    model.compile("sgd", "mse")
    report = range_report(model, (ONES, ZEROS))
    kernels = [model.get_layer(part.name).get_layer("d").kernel.path for part in parts]
    twice = kernels[0] == kernels[1]
    names = ["part0/d/kernel", "part1/d/kernel"] if twice else kernels
    for name, dtype in zip(names, ("float32", "float16"), strict=True):
        assert row(report, name, "weight")["count"] == 16
        found = row(report, name, "weight gradient")
        assert (found["count"], found["dtype"]) == (16, dtype)


# -- the advice ------------------------------------------------------------------------------------


def overflows_at(model, scale, x, y):
    return find_overflow(model, x, y, loss_scale=scale).first is not None


@pytest.mark.parametrize("weight", [1e-3, 0.7, 40.0])
def test_two_doublings_of_the_initial_scale_are_left(weight):
    model = net(
        dense(weight, "a", 3, dtype="mixed_float16"),
        dense(weight, "b", 3, dtype="mixed_float16"),
        dense(1.0, "head", dtype="float32"),
    )
    k = round(math.log2(range_report(model, (ONES, ZEROS)).initial_scale))
    tried = {i: overflows_at(model, 2.0 ** (k + i), ONES, ZEROS) for i in (0, 2, 3, 5)}
    assert tried == {0: False, 2: False, 3: True, 5: True}


@pytest.mark.parametrize("start", [1.0, 2.0**15, 2.0**30])
def test_the_initial_scale_does_not_hang_on_the_current_one(start):
    model = net(dense(0.7, "a", 3, dtype="mixed_float16"), dense(1.0, "head", dtype="float32"))
    expected = range_report(model, (ONES, ZEROS), loss_scale=64.0).initial_scale
    report = range_report(model, (ONES, ZEROS), loss_scale=start)
    assert report.initial_scale == expected
    assert (row(report, "a", "activation gradient")["infs"] > 0) == (start >= 2.0**15)


def test_a_float32_model_would_do_in_float16():
    report = range_report(net(dense(0.5, "a"), dense(0.5, "head")), (ONES, ZEROS))
    assert report.advice["dtype"] == "float16"
    assert report.advice["float32_layers"] == []
    assert "float16 holds" in str(report)


def block(x, name):
    return layers.Add(name=f"add_{name}")(
        [x, layers.Dense(4, name=f"dense_{name}", kernel_initializer=constant(0.1))(x)]
    )


def build(big):
    x = keras.Input((4,))
    h = x
    for i in range(4):
        h = block(h, str(i))
    h = layers.Dense(4, kernel_initializer=constant(big), use_bias=False, name="big")(h)
    h = layers.Dense(4, kernel_initializer=constant(1e-7), name="small", use_bias=False)(h)
    h = layers.Dense(1, name="head", dtype="float32")(h)
    model = keras.Model(x, h, name="net")
    model.compile("sgd", "mse")
    return model


def test_the_policy_map_works_when_the_model_is_built_again():
    keras.config.set_dtype_policy("mixed_float16")
    model = build(60000.0)
    assert find_overflow(model, ONES, ZEROS).first.layer == "big"
    report = range_report(model, (ONES, ZEROS))
    assert report.advice["float32_layers"] == ["big"]  # and not what comes after
    policies = report.policy_map("float16")
    again = keras.dtype_policies.deserialize(keras.dtype_policies.serialize(policies))
    for policy in (policies, again):
        keras.config.set_dtype_policy(policy)
        built = build(60000.0)
        dtypes = {layer.name: layer.compute_dtype for layer in built.layers}
        assert dtypes["big"] == "float32"
        assert dtypes["dense_0"] == "float16"
        built.set_weights(model.get_weights())
        found = find_overflow(built, ONES, ZEROS)
        assert "big" not in [place.layer for place in found.findings if place.where == "forward"]


def test_the_policy_map_reaches_into_nested_and_composed_layers():
    def make():
        inner_x = keras.Input((3, 4))
        attention = layers.MultiHeadAttention(
            1, 4, name="attend", kernel_initializer=constant(50.0), flash_attention=False
        )
        inner = keras.Model(inner_x, attention(inner_x, inner_x), name="inner")
        x = keras.Input((3, 4))
        h = layers.Flatten(name="flat")(inner(x))
        model = keras.Model(x, layers.Dense(1, name="head", dtype="float32")(h), name="net")
        model.compile("sgd", "mse")
        return model

    keras.config.set_dtype_policy("mixed_float16")
    x = np.full((2, 3, 4), 60.0)
    report = range_report(make(), (x, np.zeros((2, 1))), loss_scale=2.0**-8)
    # Which op overflows hangs on how the backend computes attention.
    [chosen] = report.advice["float32_layers"]
    assert chosen in ("inner/attend", "inner/attend/attention_output")
    keras.config.set_dtype_policy(report.policy_map("float16"))
    built = make()
    attend = built.get_layer("inner").get_layer("attend")
    inside = {layer.name: layer.compute_dtype for layer in attend._flatten_layers() if layer.path}
    assert inside["attention_output"] == "float32"
    if chosen == "inner/attend":
        assert set(inside.values()) == {"float32"}
    assert built.get_layer("flat").compute_dtype == "float16"


def test_what_no_key_of_the_map_reaches_is_told():
    """Keras gives no path to layers that it builds as they are made."""
    small = [dense(0.25, f"d{i}", 4, dtype="float32") for i in range(8)]
    big, relu = dense(30000.0, "big", 4, dtype="float32"), layers.ReLU(name="relu", dtype="float32")
    end = dense(1e-7, "end", 1, dtype="float32")
    told = str(range_report(net(*small, big, relu, end), (ONES, ZEROS)))
    assert "No key reaches relu," in told
    assert "No key" not in str(range_report(net(*small, big, end), (ONES, ZEROS)))


def test_bfloat16_where_much_is_too_large():
    model = net(*(dense(300.0, f"d{i}", 4) for i in range(4)), dense(1e-3, "head", dtype="float32"))
    report = range_report(model, (ONES * 100, ZEROS))
    assert report.advice["dtype"] == "bfloat16"
    assert "bfloat16 holds" in str(report)
    assert report.policy_map().default_policy.name == "mixed_bfloat16"
    with pytest.raises(ValueError, match="dtype must be"):
        report.policy_map("float8")


def test_a_loss_that_is_not_finite_has_no_scale():
    report = range_report(net(dense(1.0, "head")), (ONES, ZEROS + np.nan))
    assert report.initial_scale is None
    assert "no loss scale can cure" in str(report)
    assert "holds" not in str(report)


def test_a_layer_of_the_models_call():
    class Made(keras.Sequential):
        def call(self, x, training=None, mask=None):
            return super().call(layers.Rescaling(1e6, name="big")(x))

    model = Made([keras.Input((4,)), dense(1.0, "head")], name="net")
    model.compile("sgd", "mse")
    [chosen] = range_report(model, (ONES, ZEROS)).advice["float32_layers"][:1]
    assert chosen.endswith("big")


def advised(*, kind="activation", overflowing=(), gradient=1.0, loss_finite=True, **change):
    histogram = [0] * (LAST - FIRST + 1)
    histogram[1 - FIRST] = 5
    values = {"path": "dense", "kind": kind, "dtype": "float32", "largest": 3.0, "infs": 0}
    one = {**values, "nans": 0, "histogram": histogram, **change}
    return advise([one], {}, dict(overflowing), gradient, 1.0, loss_finite)


NO_VERDICT = ("float16 holds", "bfloat16 holds", "policy_map")


@pytest.mark.parametrize(
    ("how", "dtype", "told", "untold"),
    [
        pytest.param(
            {"loss_finite": False, "gradient": math.inf}, "float16", "no loss scale", NO_VERDICT,
            id="the loss is not finite",
        ),
        pytest.param(
            {"overflowing": {"dense": "float32"}, "gradient": math.inf, "nans": 4}, "float16",
            "inf or a nan, though they do not compute in float16: dense",
            ("beyond 65504", *NO_VERDICT), id="a float32 layer made nans",
        ),
        pytest.param(
            {"overflowing": {"dense": "float16"}, "dtype": "float16", "loss_finite": False,
             "gradient": math.inf},
            "bfloat16", "inf or a nan in float16: dense", ("beyond 65504", "bfloat16 holds"),
            id="a float16 layer made an inf",
        ),
        pytest.param(
            {"gradient": 0.0}, "float16", "float16 holds activations;", ("gradients",),
            id="no gradients",
        ),
        pytest.param(
            {"gradient": 1.0, "kind": "weight gradient"}, "float16",
            "float16 holds activations and gradients", (), id="gradients",
        ),
        pytest.param(
            {"gradient": 1e7, "kind": "weight gradient"}, "bfloat16",
            "below 1: with float16, set min_scale too. bfloat16 holds all", ("float16 holds act",),
            id="a scale below 1",
        ),
        pytest.param(
            {"largest": 1e6}, "bfloat16", "bfloat16 holds all of it", ("inf or a nan",),
            id="beyond float16",
        ),
    ],
)  # fmt: skip
def test_the_advice_says_what_was_measured(how, dtype, told, untold):
    advice = advised(**how)
    text = " ".join(advice["text"])
    assert advice["dtype"] == dtype
    assert told in text
    assert not [each for each in untold if each in text]


def test_a_few_layers_are_to_compute_in_float32():
    rows = [
        {"path": f"dense_{i}", "kind": "activation", "largest": 3.0, "histogram": []}
        for i in range(8)
    ]
    advice = advise(rows, {}, {"dense_3": "float16"}, 1.0, 1.0, True)
    assert (advice["dtype"], advice["float32_layers"]) == ("float16", ["dense_3"])
    assert advice["text"][-1] == "Let these layers compute in float32: policy_map() says so."


def test_a_container_is_not_blamed_for_a_layer_that_it_calls_again():
    x, y = keras.Input((4,)), keras.Input((4,))
    inner = keras.Model(x, dense(60000.0, "big", 4, dtype="mixed_float16")(x), name="inner")
    model = keras.Model([x, y], layers.Add(name="sum")([inner(x), inner(y)]), name="net")
    model.compile("sgd", "mse")
    report = range_report(model, ([ONES, ONES], ONES))
    assert report.advice["float32_layers"] == ["inner/big"]


def test_what_float32_does_not_cure_is_not_advised():
    assert advised(overflowing={"dense": "float32"})["float32_layers"] == []
    assert advised(overflowing={"dense": "float16"})["float32_layers"] == ["dense"]


# -- data ------------------------------------------------------------------------------------------


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return ONES, ZEROS


def generator():
    while True:
        yield ONES, ZEROS


def tf_data():
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(
        (np.tile(ONES, (5, 1)), np.tile(ZEROS, (5, 1)))
    ).batch(8)


def loader():
    torch = pytest.importorskip("torch")
    data = [(torch.ones(4), torch.zeros(1)) for _ in range(40)]
    return torch.utils.data.DataLoader(data, batch_size=8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (np.tile(ONES, (5, 1)), np.tile(ZEROS, (5, 1))),
        lambda: (np.tile(ONES, (5, 1)), np.tile(ZEROS, (5, 1)), np.ones(40)),
        Sequence,
        generator,
        tf_data,
        loader,
    ],
    ids=["arrays", "weighted", "PyDataset", "generator", "tf.data", "DataLoader"],
)
def test_data(make):
    model = net(dense(0.5, "a"), dense(1.0, "head"))
    report = range_report(
        model, make(), steps=3, batch_size=8 if isinstance(make(), tuple) else None
    )
    assert report.to_dict()["steps"] == 3
    assert row(report, "a", "activation")["count"] == 24


def test_fewer_batches_than_steps():
    model = net(dense(0.5, "head"))
    assert range_report(model, (ONES, ZEROS), steps=9).to_dict()["steps"] == 1


# -- files, text, and what stays -------------------------------------------------------------------


def test_save_and_load(tmp_path):
    report = range_report(
        net(dense(60000.0, "a", dtype="float16"), dense(1.0, "head")), (ONES, ZEROS)
    )
    report.save(tmp_path / "here.json")
    again = RangeReport.load(tmp_path / "here.json")
    assert again.to_dict() == report.to_dict()
    assert str(again) == str(report)
    assert again.float32_layers == report.float32_layers
    assert len(again.policy_map("float16")) == len(report.policy_map("float16")) == 1
    report.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.json", "ranges.json"]
    report.save(tmp_path / "runs" / "first")
    assert RangeReport.load(tmp_path / "runs" / "first").to_dict() == report.to_dict()
    whole = json.loads((tmp_path / "ranges.json").read_text())
    assert (whole["format"], whole["version"]) == ("keras_mp.ranges", 1)
    assert whole["backend"] == keras.backend.backend()
    whole["version"] = 99
    (tmp_path / "here.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=r"here\.json: version is 99"):
        RangeReport.load(tmp_path / "here.json")
    (tmp_path / "here.json").write_text("{}")
    with pytest.raises(ValueError, match=r"here\.json: format"):
        RangeReport.load(tmp_path / "here.json")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    report = range_report(net(dense(1.0, "head")), (ONES, ZEROS))
    (tmp_path / "ranges.json").write_text("old")
    monkeypatch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        report.save(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


WHOLE = {
    "path": "a",
    "kind": "activation",
    "dtype": "float32",
    "histogram": [1, 0],
    "largest": 1.0,
    **dict.fromkeys(("count", "zeros", "infs", "nans"), 1),
    "float16": {"zero": 0, "subnormal": 0, "overflow": 0},
}


def test_ranges_made_by_hand(tmp_path):
    given = {"exponents": [4, 5], "rows": [WHOLE], "loss_scale": 1.0, "steps": 2000, "model": "m"}
    report = RangeReport(given)
    lines = str(report).splitlines()
    assert lines[0] == "m: 2,000 steps at a loss scale of 1"
    assert "4 to 4" in lines[3]
    assert repr(report) == str(report)
    report.save(tmp_path)
    assert str(RangeReport.load(tmp_path)) == str(report)


@pytest.mark.parametrize("key", ["float32_paths", "float32_layers"])
def test_the_advice_of_earlier_files_is_read(key):
    advice = {"dtype": "float16", key: ["net/big.1"]}
    given = {"exponents": [4, 5], "rows": [WHOLE], "loss_scale": 1.0, "advice": advice}
    policies = RangeReport(given).policy_map()
    assert policies.default_policy.name == "mixed_float16"
    assert policies["net/big.1"].name == "float32"
    assert policies["net/big_1"].name == "mixed_float16"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"loss_scale": None}, "loss_scale is null: expected a number"),
        ({"advice": None}, "advice is null: expected an object"),
        ({"advice": {"float32": []}}, r"advice.float32 is \[\]: expected what Float32Layers"),
        ({"advice": {"float32": {"default": "float16", "layers": 3}}}, "advice.float32 is"),
        *(
            ({"rows": [{k: v for k, v in WHOLE.items() if k != key}]}, rf"rows\[0\].{key} is null")
            for key in ("dtype", "count", "zeros", "infs", "nans", "float16")
        ),
        ({"rows": [{**WHOLE, "float16": {"zero": 0}}]}, r"rows\[0\].float16 is"),
    ],
)
def test_ranges_that_are_not_whole_are_named(tmp_path, change, told):
    given = {"exponents": [4, 5], "rows": [WHOLE], "loss_scale": 1.0, **change}
    with pytest.raises(ValueError, match=rf"^ranges: {told}"):
        RangeReport(given)
    file.write_ranges(tmp_path, given)
    with pytest.raises(ValueError, match=rf"ranges\.json: {told}"):
        RangeReport.load(tmp_path / "ranges.json")


def test_the_table_has_the_worst_first():
    keras.config.set_dtype_policy("mixed_float16")
    lines = str(range_report(build(60000.0), (ONES, ZEROS))).splitlines()
    assert lines[0].startswith("net: 1 step at a loss scale of ")
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("values of")) :]
    assert table[1].split()[0] in ("big", "small")
    assert table[1].endswith((" inf", " nan"))


def test_a_notebook_shows_the_worst_first():
    model = net(dense(300.0, "large", 4), dense(1e-3, "<head>", 1, dtype="float32"))
    shown = range_report(model, (ONES * 100, ZEROS))._repr_html_()
    assert shown.startswith('<div class="keras-mp">')
    assert shown.index(">large<") < shown.index(">&lt;head&gt;<")
    assert "<head>" not in shown
    assert "<svg" in shown


def test_plot(tmp_path):
    colors = pytest.importorskip("matplotlib.colors")
    report = range_report(net(dense(1.0, "head")), (ONES, ZEROS))
    for of_page, dark in ((LIGHT, {}), (DARK, {"dark": True})):
        figure = report.plot(tmp_path / "ranges.svg", **dark)
        assert figure.get_facecolor() == colors.to_rgba(of_page.ground)
        svg = (tmp_path / "ranges.svg").read_text(encoding="utf-8")
        assert len(svg) > 1000
        assert of_page.ground in svg


@pytest.mark.parametrize("rich", [True, False])
def test_a_bar_on_a_terminal(monkeypatch, capsys, rich):
    monkeypatch.setattr(module, "_LONG", -1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    if rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    report = range_report(net(dense(1.0, "head")), generator(), steps=2)
    assert report.to_dict()["steps"] == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert ("range report" in said.err) == rich


OPTIMIZERS = {
    "keras_mp": lambda: LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=2.0**10),
    "keras": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), 2.0**10),
    "plain": lambda: keras.optimizers.SGD(),
}


def random_state():
    """What Python, NumPy and, on torch, the framework draw from."""
    states = [random.getstate(), np.random.get_state()[1].tolist()]
    if keras.backend.backend() == "torch":
        import torch

        states.append(torch.random.get_rng_state().tolist())
    return states


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_nothing_changes(optimizer):
    model = net(
        dense(0.5, "a", 4, dtype="mixed_float16"),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
        dense(1.0, "head"),
        optimizer=OPTIMIZERS[optimizer](),
    )
    model.fit(ONES, ZEROS, verbose=0)
    kept = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    before = [np.array(variable.numpy()) for variable in kept]
    drawn = random_state()
    report = range_report(model, (ONES, ZEROS))
    assert random_state() == drawn
    assert report.to_dict()["loss_scale"] == (1.0 if optimizer == "plain" else 2.0**10)
    for old, variable in zip(before, kept, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())


def test_the_report_does_not_grow_with_the_batches():
    model = net(dense(0.5, "a"), dense(1.0, "head"))
    few = json.dumps(range_report(model, generator(), steps=1).to_dict())
    many = json.dumps(range_report(model, generator(), steps=12).to_dict())
    assert len(many) < len(few) * 1.05


def test_errors():
    model = net(dense(1.0, "head"))
    with pytest.raises(TypeError, match=r"model must be a keras\.Model"):
        range_report("net", (ONES, ZEROS))
    with pytest.raises(ValueError, match="is not built"):
        range_report(keras.Sequential([layers.Dense(1)]), (ONES, ZEROS))
    with pytest.raises(ValueError, match="is not compiled"):
        range_report(keras.Sequential([keras.Input((4,)), layers.Dense(1)]), (ONES, ZEROS))
    with pytest.raises(ValueError, match="steps must be"):
        range_report(model, (ONES, ZEROS), steps=0)
    with pytest.raises(ValueError, match="must be \\(x, y\\)"):
        range_report(model, (ONES,) * 4)
    with pytest.raises(ValueError, match="loss_scale must be a positive"):
        range_report(model, (ONES, ZEROS), loss_scale=-1.0)
    with pytest.raises(ValueError, match="exponents"):
        RangeReport({"rows": []})


class Nothing(Sequence):
    def __len__(self):
        return 0


@pytest.mark.filterwarnings("ignore")  # of Keras, of data that hold nothing
def test_data_without_a_batch_is_said():
    with pytest.raises(ValueError, match=r"no batch|length 0"):
        range_report(net(dense(1.0, "head")), Nothing())


def test_without_targets_and_with_whole_numbers_among_the_weights():
    class Counts(layers.Layer):
        def build(self, shape):
            self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

        def call(self, x):
            return x

    report = range_report(net(Counts(), dense(1.0, "head")), (ONES,))
    assert {row["kind"] for row in report.rows} == {"activation", "weight"}
    assert len(report.rows) == 2


def test_in_a_callback_of_fit():
    model = net(dense(0.5, "a"), dense(1.0, "head"), optimizer=OPTIMIZERS["keras_mp"]())
    found = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            found.append(range_report(self.model, (ONES, ZEROS)))

    model.fit(ONES, ZEROS, epochs=2, callbacks=[Look()], verbose=0)
    assert [one.to_dict()["loss_scale"] for one in found] == [2.0**10, 2.0**10]
