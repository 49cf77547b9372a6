"""`keras_mp.benchmark`: copies train as the model would, and the model is left alone."""

import random

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp.diagnosis.benchmarking import made_up
from keras_mp.diagnosis.benchmarking.rebuilding import VARIANTS, Blueprint, retyped
from keras_mp.graph_rewrite import hooks, rewritten
from tests.backends import on_one

BACKEND = keras.backend.backend()
LAYERS = keras.layers
SHORT = {"steps": 1, "rounds": 1}


def net(optimizer=None, dropout=0.5, **settings):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            LAYERS.Dense(8, activation="relu", name="hidden"),
            LAYERS.BatchNormalization(name="norm"),
            LAYERS.Dropout(dropout),
            LAYERS.Dense(1, name="out"),
        ],
        name="net",
    )
    model.compile(optimizer or keras.optimizers.Adam(1e-2), "mse", **settings)
    return model


def data(samples=8):
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(samples, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def arrays(variables):
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def state_of(model):
    seeds = [seed.state for layer in model._flatten_layers() for seed in layer._seed_generators]
    parts = (model.weights, model.optimizer.variables, model.metrics_variables, seeds)
    return [array.tobytes() for part in parts for array in arrays(part)]


def globals_now():
    dense = LAYERS.Dense(1, trainable=False)
    return (
        keras.config.dtype_policy().name,
        random.random(),
        np.random.random(),
        float(keras.random.uniform(())),
        int(dense.name.partition("_")[2] or 0),
    )


def test_everything_is_as_before():
    model = net(metrics=["mae"])
    model.fit(*data(), epochs=2, verbose=0)
    before, function = state_of(model), model.train_function
    keras.utils.set_random_seed(3)
    expected = globals_now()
    keras.utils.set_random_seed(3)
    variants = ["mixed_float16", "graph rewrite"]
    keras_mp.benchmark(model, data(), variants=variants, **SHORT)
    *same, number = globals_now()
    assert same == list(expected[:-1])
    assert number == expected[-1] + 1, "the copies counted names up"
    assert state_of(model) == before
    assert model.train_function is function
    assert not rewritten.all_models()
    assert not hooks.is_installed()


def test_copies_train_as_the_model_does():
    """All variants for twelve steps, and the model itself with the same batches."""
    model = net(dropout=0.0)
    x, y = data(24)
    weights = (y[:, 0] > 0).astype("float32") + 0.5
    report = keras_mp.benchmark(model, (x, y, weights), batch_size=8, steps=4, rounds=2)
    # Two steps, two more, and two rounds of four; three batches again and again.
    for begin, steps in ((0, 2), (2, 2), (4, 4), (8, 4)):
        rows = np.concatenate([np.arange(8) + 8 * ((begin + i) % 3) for i in range(steps)])
        history = model.fit(
            x[rows], y[rows], sample_weight=weights[rows], batch_size=8, shuffle=False, verbose=0
        ).history
    found = {result.name: result.loss for result in report.results}
    assert found["float32"] == pytest.approx(history["loss"][0], rel=1e-5)
    missing = ["mixed_float16, fused"] if BACKEND == "jax" else []
    assert list(report.failed) == missing
    assert all("XLA fuses the default path" in why for why in report.failed.values())
    assert list(found) == [name for name in VARIANTS if name not in missing]
    for result in report.results:
        assert result.steps == 12
        # A skip at first, while the loss scale falls, leaves one of twelve steps out.
        assert result.loss == pytest.approx(
            found["float32"], rel=0.02 + 0.2 * (result.skipped or 0)
        )
    scaled = [result.name for result in report.results if result.loss_scale is not None]
    assert scaled == [name for name in found if "_float16" in name or "rewrite" in name]
    memory = {result.name: result.memory for result in report.results}
    scaling = memory["mixed_float16"] - memory["float32"]
    assert 0 < scaling < 64, "a few counters"
    assert memory["16-bit weights"] < memory["float32"]
    assert report.recommended in memory
    assert report.backend == BACKEND


def test_copies_drop_out_alike():
    """As two optimizers of rate 0 would show that did not."""
    model = net(keras.optimizers.SGD(0.0))
    losses = [
        keras_mp.benchmark(model, data(), variants=[], **SHORT).results[0].loss for _ in range(2)
    ]
    assert losses[0] == losses[1]
    x, y = data()
    assert losses[0] != pytest.approx(net(keras.optimizers.SGD(0.0), 0.0).evaluate(x, y, verbose=0))


def test_the_bytes_are_those_of_the_arrays():
    """4 a weight, 4 its gradient, 8 its moments; 4 a statistic; and the optimizer's counters."""
    report = keras_mp.benchmark(net(), data(), variants=[], **SHORT)
    trained, statistics = 4 * 8 + 8 + 2 * 8 + 8 + 1, 2 * 8
    adam = keras.optimizers.Adam()
    counters = sum(array.nbytes for array in arrays([adam.iterations, adam.learning_rate]))
    assert report.memory == "counted"
    assert report.results[0].memory == 16 * trained + counters + 4 * statistics


def test_skipped_steps_are_told():
    scaled = keras_mp.LossScaleOptimizer(
        keras.optimizers.SGD(1e-3), dynamic=False, initial_scale=2.0**60
    )
    report = keras_mp.benchmark(net(scaled), data(), variants=["mixed_float16"], steps=3, rounds=2)
    float32, half = report.results
    assert (float32.skipped, float32.loss_scale) == (None, None)
    assert (half.skipped, half.steps, half.late_skips) == (10, 10, 6)
    assert half.loss_scale == 2.0**60
    assert report.recommended == "float32"


def policies(model):
    return {layer.name: layer.dtype_policy.name for layer in model.layers}


def blueprint(model):
    return Blueprint.of(model, None, None, model.optimizer, "mse")


@on_one
def test_outputs_of_a_float32_model_stay_in_float32():
    plan = blueprint(net())
    float32 = plan.made(VARIANTS["float32"])
    assert set(policies(float32).values()) == {"float32"}
    found = policies(plan.made(VARIANTS["mixed_float16"]))
    assert (found["hidden"], found["out"]) == ("mixed_float16", "float32")
    narrow = plan.made(VARIANTS["16-bit weights"], float32)
    found = {layer.name: (layer.compute_dtype, layer.variable_dtype) for layer in narrow.layers}
    assert found["hidden"] == ("bfloat16", "bfloat16")
    assert found["norm"] == ("bfloat16", "float32")


@on_one
def test_what_somebody_chose_stays():
    with keras_mp.policy_scope("mixed_float16"):
        inner = keras.Sequential([LAYERS.Dense(3, name="deep")], name="inner")
        model = keras.Sequential(
            [
                keras.Input((4,)),
                LAYERS.Dense(3, name="a"),
                LAYERS.Dense(3, name="b", dtype="float32"),
                inner,
                LAYERS.Dense(1, name="out"),
            ]
        )
    model.compile("sgd", "mse")
    plan = blueprint(model)
    for variant, policy in (("mixed_bfloat16", "mixed_bfloat16"), ("float32", "float32")):
        made = plan.made(VARIANTS[variant])
        found = policies(made)
        assert (found["a"], found["b"], found["out"]) == (policy, "float32", policy)
        assert made.get_layer("inner").layers[0].dtype_policy.name == policy


@on_one
def test_a_map_of_policies():
    """As `range_report(...).policy_map()` is: each layer has all of it."""
    chosen = keras.dtype_policies.DTypePolicyMap("mixed_float16")
    chosen["b"] = keras.DTypePolicy("float32")
    model = keras.Sequential(
        [keras.Input((4,)), *(LAYERS.Dense(1, name=name, dtype=chosen) for name in "ab")]
    )
    model.compile("sgd", "mse")
    plan = blueprint(model)

    def dtypes(variant, float32=None):
        made = plan.made(VARIANTS[variant], float32)
        return [layer.compute_dtype for layer in made.layers]

    assert dtypes("mixed_float16") == ["float16", "float32"]
    assert dtypes("mixed_bfloat16") == ["bfloat16", "float32"]
    assert dtypes("float32") == ["float32", "float32"]
    assert dtypes("16-bit weights", plan.made(VARIANTS["float32"])) == ["bfloat16", "bfloat16"]


@on_one
def test_casts_and_inputs_keep_their_dtypes():
    """An operation of the graph has a dtype that is no policy."""
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.ops.cast(LAYERS.Dense(1)(inputs), "float32"))
    config = keras.saving.serialize_keras_object(model)
    by = {"class_name": "DTypePolicy", "config": {"name": "mixed_float16"}}
    found = retyped(config, frozenset(["float32"]), by, frozenset())
    one, dense, cast = found["config"]["layers"]
    assert one["config"]["dtype"] == "float32"
    assert dense["config"]["dtype"] == by
    assert "float32" in str(cast["config"])


class Made(keras.Model):
    """Makes its layers itself, of which its config says nothing."""

    def __init__(self, units, **settings):
        super().__init__(**settings)
        self.units = units
        self.dense = LAYERS.Dense(units, activation=squared)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def squared(x):
    return x * x


def made(units=2, build=True):
    model = Made(units)
    if build:
        model.build((None, 4))
    model.compile("sgd", "mse")
    return model


@on_one
def test_a_class_that_nobody_registered():
    x = np.ones((4, 4), "float32")
    variants = ["mixed_bfloat16"]
    report = keras_mp.benchmark(made(), (x, x[:, :2]), variants=variants, **SHORT)
    assert [result.name for result in report.results] == ["float32", *variants]
    plan = blueprint(made())
    assert plan.made(VARIANTS["mixed_bfloat16"]).dense.dtype_policy.name == "mixed_bfloat16"


@on_one
def test_functions_that_nobody_registered():
    """A lambda that needs a global name, and a function by its name."""
    layers = [LAYERS.Lambda(lambda x: squared(x)), LAYERS.Dense(1, activation=squared)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile("sgd", "mse")
    x = np.ones((2, 4), "float32")
    made = blueprint(model).made(VARIANTS["float32"])
    np.testing.assert_array_equal(arrays([made(x)])[0], arrays([model(x)])[0])


class Hides(Made):
    def get_config(self):
        return {"units": 3}


@on_one
def test_refusals():
    x = np.ones((4, 4), "float32")
    with pytest.raises(TypeError, match=r"model must be a keras\.Model"):
        keras_mp.benchmark(LAYERS.Dense(1))
    with pytest.raises(ValueError, match="is not built"):
        keras_mp.benchmark(made(build=False), (x, x[:, :2]))
    with pytest.raises(ValueError, match="declares no inputs, so no data can be made up"):
        keras_mp.benchmark(made())
    hides = Hides(2, name="hides")
    hides.build((None, 4))
    hides.compile("sgd", "mse")
    with pytest.raises(ValueError, match="get_config is incomplete"):
        keras_mp.benchmark(hides, (x, x[:, :2]))
    model = net()
    with pytest.raises(ValueError, match=r"could not be rebuilt .* and trained in float32"):
        keras_mp.benchmark(model, (x[:, :3], x[:, :1]))
    for bad, match in (
        ({"steps": 0}, "steps must be at least 1, or None, but is 0"),
        ({"rounds": 0}, "rounds must be at least 1, but is 0"),
        ({"seconds": float("nan")}, "seconds must be positive, but is nan"),
        ({"batch_size": 0}, "batch_size must be at least 1, but is 0"),
        ({"variants": ["float8"]}, r"variants must be names among .*, but is \['float8'\]"),
        ({"variants": "float32"}, "variants must be names among"),
    ):
        with pytest.raises(ValueError, match=match):
            keras_mp.benchmark(model, **bad)
    model.compile(loss="mse", optimizer=None)
    with pytest.raises(ValueError, match="compiled without an optimizer"):
        keras_mp.benchmark(model)


def test_what_a_kernel_does_not_know_is_told():
    model = net(keras.optimizers.Adam(clipnorm=1.0))
    report = keras_mp.benchmark(model, data(), variants=["mixed_float16, fused"], **SHORT)
    assert report.failed["mixed_float16, fused"].startswith(
        "fused=True does not support clipnorm=1.0 of Adam"
    )
    assert [result.name for result in report.results] == ["float32"]
    assert "not measured, mixed_float16, fused: fused=True does not support" in str(report)


def test_too_slow_variants_are_left_out(monkeypatch):
    from keras_mp.diagnosis.benchmarking import trial

    train = trial.Trial.train

    def slowly(self, batches, steps):
        taken = train(self, batches, steps)
        if isinstance(self.model.optimizer, keras_mp.LossScaleOptimizer):
            self.seconds[-1] = taken = 1000.0
        return taken

    monkeypatch.setattr(trial.Trial, "train", slowly)
    report = keras_mp.benchmark(net(), data(), variants=["mixed_float16"], seconds=0.5, rounds=1)
    assert "times that of float32: allow more seconds" in report.failed["mixed_float16"]


@on_one
def test_data_is_made_up():
    words = keras.Input((None,), dtype="int32", name="words")
    images = keras.Input((8, 8, 3), name="images")
    masks = keras.Input((2,), dtype="bool", name="masks")
    y = LAYERS.GlobalAveragePooling1D()(LAYERS.Embedding(5, 3)(words))
    z = LAYERS.Flatten()(images)
    joined = LAYERS.Concatenate()([y, z, keras.ops.cast(masks, "float32")])
    outputs = {
        "kind": LAYERS.Dense(4, activation="softmax", name="kind")(joined),
        "size": LAYERS.Dense(1, name="size")(joined),
    }
    model = keras.Model({"words": words, "images": images, "masks": masks}, outputs)
    x = made_up.inputs(model, 6, np.random.default_rng(0))
    assert (x["words"].shape, x["images"].shape) == ((6, 16), (6, 8, 8, 3))
    assert set(np.unique(x["words"])) == set(range(5))
    assert x["masks"].dtype == "bool"
    model.compile("sgd", {"kind": "sparse_categorical_crossentropy", "size": "mse"})
    report = keras_mp.benchmark(model, variants=[], batch_size=6, **SHORT)
    assert report.made_up
    assert "(6,) int64, (6, 1) float32" in report.batch


@on_one
@pytest.mark.parametrize(
    ("loss", "shape", "values"),
    [
        ("binary_crossentropy", (400, 3), [0.0, 1.0]),
        (keras.losses.CategoricalCrossentropy(), (400, 3), [0.0, 1.0]),
        (keras.losses.SparseCategoricalCrossentropy(), (400,), [0, 1, 2]),
        (keras.losses.Huber(), (400, 3), None),
        (["mae"], (400, 3), None),
        ({"out": "hinge"}, (400, 3), [0.0, 1.0]),
    ],
)
def test_targets_are_of_the_kind_that_the_loss_takes(loss, shape, values):
    y = made_up.targets(np.ones((400, 3)), loss, np.random.default_rng(0))
    assert y.shape == shape
    assert values is None or np.unique(y).tolist() == values


@on_one
def test_targets_of_several_outputs():
    numbers = np.random.default_rng(0)
    outputs = [np.ones((4, 3)), np.ones((4, 2))]
    found = made_up.targets(outputs, ["mse", "sparse_categorical_crossentropy"], numbers)
    assert [y.shape for y in found] == [(4, 3), (4,)]
    assert [y.shape for y in made_up.targets(outputs, "mse", numbers)] == [(4, 3), (4, 2)]
    assert [y.shape for y in made_up.targets(outputs, ["mse", None], numbers)] == [(4, 3), (4, 2)]
    assert made_up.targets(outputs, None, numbers) is None


def test_a_model_that_is_not_compiled_gets_a_loss():
    model = keras.Sequential([keras.Input((4,)), LAYERS.Dense(3, activation="softmax")])
    x, _ = data()
    report = keras_mp.benchmark(model, (x, np.arange(8) % 3), variants=[], **SHORT)
    assert report.notes == (
        "The model is not compiled: Adam() and the loss 'sparse_categorical_crossentropy' were "
        "used.",
    )
    assert keras_mp.benchmark(model, variants=[], **SHORT).notes[0].endswith("'mse' were used.")
    assert not model.compiled


@on_one
def test_batches_of_another_size_are_left_out():
    """They would be compiled anew while others are timed."""
    sizes = [3, 3, 2]
    batches = ((np.ones((size, 4), "float32"), np.ones((size, 1))) for size in sizes)
    report = keras_mp.benchmark(net(), batches, variants=[], **SHORT)
    assert report.batch.startswith("x (3, 4) float32")
