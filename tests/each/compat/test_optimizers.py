"""Optimizers of then, against what TF 2.3 and Addons did and against plain NumPy rules."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat import optimizers
from keras_mp.compat.configs import convert
from keras_mp.compat.errors import LegacyError

FOLDER = Path(__file__).parents[2] / "data" / "legacy" / "optimizers"
RECORDED = json.loads((FOLDER / "recorded_tf23.json").read_text(encoding="utf-8"))
RECORDED_2_10 = json.loads((FOLDER / "recorded_tf210.json").read_text(encoding="utf-8"))
CASES = {name: case for name, case in RECORDED["cases"].items() if "after" in case}
BACKEND = keras.backend.backend()
only_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="has sparse gradients")


def variables() -> list[Any]:
    return [keras.Variable(RECORDED[name], name=name) for name in ("table", "dense")]


def sparse_gradient(step: dict[str, Any], *, dense: bool = False) -> Any:
    """What the table's gradient is: IndexedSlices on TensorFlow, dense elsewhere."""
    values, rows = np.array(step["values"], "float32"), step["rows"]
    if BACKEND == "tensorflow" and not dense:
        import tensorflow as tf

        return tf.IndexedSlices(tf.constant(values), tf.constant(rows), (5, 3))
    total = np.zeros((5, 3), "float32")
    np.add.at(total, rows, values)
    return ops.convert_to_tensor(total)


def trained(
    optimizer: Any, steps: Any = RECORDED["steps"], *, dense: bool = False
) -> list[list[np.ndarray]]:
    """Returns [table, dense] after each of the recorded steps."""
    weights, after = variables(), []
    optimizer.build(weights)
    for step in steps:
        gradients = [sparse_gradient(step, dense=dense), ops.array(step["dense"], "float32")]
        optimizer.apply(gradients, weights)
        after.append([ops.convert_to_numpy(weight) for weight in weights])
    return after


def distance(found: list[list[np.ndarray]], expected: list[list[Any]], which: int) -> float:
    """The largest difference over all steps, as a share of the largest movement."""
    name = ("table", "dense")[which]
    start = np.array(RECORDED[name])
    wanted = np.array([step[which] for step in expected])
    return float(
        np.abs(np.array([step[which] for step in found]) - wanted).max()
        / np.abs(wanted - start).max()
    )


def built(case: dict[str, Any], sparse: tuple[str, ...] = ("table",)) -> Any:
    done = convert(case["config"], kind="optimizer", sparse_variables=sparse)
    return keras.optimizers.deserialize(copy.deepcopy(done.config))


TOLERANCE = 1e-5
CONVERTED = {}
for _name, _case in CASES.items():
    try:
        convert(_case["config"], kind="optimizer")
    except LegacyError:
        continue
    CONVERTED[_name] = _case


def test_what_converts() -> None:
    """Of tf.keras everything, of Addons these."""
    assert {name for name in CASES if not name.startswith("addons")} <= CONVERTED.keys()
    assert {name for name in CONVERTED if name.startswith("addons")} == {
        "addons_adamw",
        "addons_adamw_decay",
        "addons_adamw_schedule",
        "addons_sgdw",
        "addons_sgdw_nesterov",
        "addons_lazyadam",
        "addons_lamb",
        "addons_lamb_decay",
        "addons_lamb_weight_decay",
    }


@pytest.mark.parametrize("name", CONVERTED)
def test_trains_as_tf_2_3_did(name: str) -> None:
    """Dense and sparse gradients of five sizes, rows that rest and rows named twice."""
    found = trained(built(CASES[name]))
    for which in (0, 1):
        assert distance(found, CASES[name]["after"], which) < TOLERANCE


@pytest.mark.parametrize("name", RECORDED_2_10["cases"])
def test_trains_as_tf_2_10_did(name: str) -> None:
    """RMSprop of optimizers.experimental; there the sparse rule was the dense one."""
    steps = [
        {
            "rows": step["rows"],
            "values": 0.1 * np.sign(step["values"]),
            "dense": 0.1 * np.sign(step["dense"]),
        }
        for step in RECORDED["steps"]
    ]
    case = RECORDED_2_10["cases"][name]
    optimizer = built(case, ())
    assert type(optimizer) is optimizers.ExperimentalRMSprop
    found = trained(optimizer, steps)
    for which in (0, 1):
        assert distance(found, case["after"], which) < TOLERANCE


SPARSE_MATTERS = {
    "sgd_momentum",
    "sgd_nesterov_decay",
    "rmsprop_momentum",
    "rmsprop_centered_momentum",
    "adamax",
    "adamax_decay",
    "nadam",
    "nadam_schedule_decay",
    "adadelta",
    "adadelta_decay",
    "ftrl",
    "ftrl_decay",
    "addons_lazyadam",
    "addons_adamw",
    "addons_adamw_decay",
    "addons_adamw_schedule",
    "addons_sgdw",
    "addons_sgdw_nesterov",
}


@pytest.mark.parametrize("name", CONVERTED)
def test_without_sparse_variables_rows_may_move(name: str) -> None:
    """The dense rule is another one, exactly where the table of the rules says so."""
    other = distance(trained(built(CASES[name], ()), dense=True), CASES[name]["after"], 0)
    assert (other > 1e-3) == (name in SPARSE_MATTERS), other


def by_numpy(optimizer: Any, gradients: list[float]) -> float:
    """The rules again, in float64: where one weight that starts at 1 gets to."""
    c = optimizer.get_config()
    w, v, m, a, product = 1.0, 0.0, 0.0, 0.0, 1.0
    if "initial_accumulator_value" in c:
        v = c["initial_accumulator_value"]
    for t, g in enumerate(gradients):
        rate = c["learning_rate"] / (1 + c["decay"] * t)
        match type(optimizer).__name__:
            case "Adagrad":
                v += g**2
                w -= rate * g / (v**0.5 + c["epsilon"])
            case "RMSprop":
                v = c["rho"] * v + (1 - c["rho"]) * g**2
                a = c["rho"] * a + (1 - c["rho"]) * g if c["centered"] else 0.0
                if c["momentum"]:
                    m = c["momentum"] * m + rate * g / (v - a**2 + c["epsilon"]) ** 0.5
                    w -= m
                else:
                    w -= rate * g / ((v - a**2) ** 0.5 + c["epsilon"])
            case "ExperimentalRMSprop":
                v = c["rho"] * v + (1 - c["rho"]) * g**2
                if c["centered"]:
                    a = c["rho"] * a + (1 - c["rho"]) * g**2
                    v -= a**2
                m = c["momentum"] * m + g / (v**0.5 + c["epsilon"])
                w -= rate * m
            case "Nadam":
                now, following = (
                    c["beta_1"] * (1 - 0.5 * 0.96 ** (c["schedule_decay"] * k))
                    for k in (t + 1, t + 2)
                )
                product *= now
                m = c["beta_1"] * m + (1 - c["beta_1"]) * g
                v = c["beta_2"] * v + (1 - c["beta_2"]) * g**2
                mean = (1 - now) * g / (1 - product) + following * m / (1 - product * following)
                w -= rate * mean / ((v / (1 - c["beta_2"] ** (t + 1))) ** 0.5 + c["epsilon"])
            case "SGD":
                m = c["momentum"] * m - rate * g
                w += m
    return w


MADE = {
    "Adagrad": lambda: optimizers.Adagrad(0.1, initial_accumulator_value=0.0),
    "Adagrad, decay": lambda: optimizers.Adagrad(0.1, initial_accumulator_value=0.0, decay=0.3),
    "RMSprop": lambda: optimizers.RMSprop(0.1),
    "RMSprop, centered": lambda: optimizers.RMSprop(0.1, centered=True, decay=0.3),
    "RMSprop, momentum": lambda: optimizers.RMSprop(0.1, momentum=0.8, decay=0.3),
    "RMSprop of 2.10": lambda: optimizers.ExperimentalRMSprop(0.1),
    "RMSprop of 2.10, momentum": lambda: optimizers.ExperimentalRMSprop(0.1, momentum=0.8),
    "RMSprop of 2.10, centered": lambda: optimizers.ExperimentalRMSprop(
        0.1, centered=True, momentum=0.8, rho=0.9
    ),
    "Nadam": lambda: optimizers.Nadam(0.1),
    "Nadam, decay": lambda: optimizers.Nadam(0.1, schedule_decay=0.5, decay=0.3),
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9, decay=0.3),
}


@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_rules_from_a_fresh_state(make: Any, size: float) -> None:
    random = np.random.RandomState(3)
    gradients = [float(g) for g in np.float32(size * random.uniform(0.2, 1, 8))]
    optimizer, weight = make(), keras.Variable([1.0])
    for gradient in gradients:
        optimizer.apply([ops.array([gradient], "float32")], [weight])
    expected = by_numpy(make(), gradients)
    found = float(ops.convert_to_numpy(weight)[0])
    # The movement; of the weight, float32 knows 1e-7.
    assert abs(found - expected) <= 1e-5 * abs(expected - 1) + 2e-7


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_configs(make: Any, tmp_path: Path) -> None:
    optimizer = make()
    config = optimizer.get_config()
    assert json.loads(json.dumps(config)) == config
    again = type(optimizer).from_config(copy.deepcopy(config))
    assert again.get_config() == config
    for load in (keras.optimizers.deserialize, keras.saving.deserialize_keras_object):
        serialized = keras.optimizers.serialize(optimizer)
        assert serialized["module"] == "keras_mp.compat.optimizers"
        assert serialized["registered_name"] == f"keras_mp>{type(optimizer).__name__}"
        assert not convert(serialized, kind="optimizer").changed
        loaded = load(copy.deepcopy(serialized))
        assert type(loaded) is type(optimizer)
        assert loaded.get_config() == config
    assert pickle.loads(pickle.dumps(type(optimizer))) is type(optimizer)


def fits(make: Any, data: Any, make_model: Any, **compile: Any) -> list[np.ndarray]:
    model = make_model()
    model.compile(make(), keras.losses.MeanSquaredError(), **compile)
    model.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return [ops.convert_to_numpy(weight) for weight in model.trainable_weights]


def stepped(make: Any, data: Any, make_model: Any) -> list[np.ndarray]:
    """The same training, gradient by gradient and without a compiler."""
    return fits(make, data, make_model, run_eagerly=True, jit_compile=False)


# Without the one that roots a difference, which soon is below zero.
SOUND = {name: make for name, make in MADE.items() if name != "RMSprop of 2.10, centered"}


@pytest.mark.parametrize("make", SOUND.values(), ids=SOUND)
def test_fit_is_the_eager_rule(make: Any, data: Any, make_model: Any) -> None:
    for one, other in zip(
        fits(make, data, make_model), stepped(make, data, make_model), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["SGD", "Nadam, decay"])
def test_fit_with_a_loss_scale_is_the_eager_rule(name: str, data: Any, make_model: Any) -> None:
    """One whose state is a list a weight, one with state of its own besides."""
    make = MADE[name]
    found = fits(lambda: keras_mp.LossScaleOptimizer(make(), initial_scale=256.0), data, make_model)
    for one, other in zip(found, stepped(make, data, make_model), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


OPTIONS: dict[str, dict[str, Any]] = {
    "ema": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
    "clipnorm": {"clipnorm": 0.1},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.01},
    "weight_decay": {"weight_decay": 0.1},
    "accumulation": {"gradient_accumulation_steps": 2},
}


# What the wrapper takes part in: averages, accumulators, and a norm of the unscaled gradients.
WITH_THE_WRAPPER = ("ema", "accumulation", "global_clipnorm")


@pytest.mark.parametrize(
    ("name", "scaled"),
    [
        *(pytest.param(name, False, id=f"plain-{name}") for name in OPTIONS),
        *(pytest.param(name, True, id=f"scaled-{name}") for name in WITH_THE_WRAPPER),
    ],
)
def test_options_of_keras(name: str, scaled: bool, data: Any, make_model: Any) -> None:
    """They do what they do around SGD: with no decay, ours is SGD."""

    def make(home: Any) -> Any:
        optimizer = home.SGD(0.1, momentum=0.5, **OPTIONS[name])
        return keras_mp.LossScaleOptimizer(optimizer, initial_scale=8.0) if scaled else optimizer

    found = fits(lambda: make(optimizers), data, make_model)
    expected = fits(lambda: make(keras.optimizers), data, make_model)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_state_is_saved(make: Any, make_model: Any, tmp_path: Path) -> None:
    model = make_model()
    model.compile(make(), keras.losses.MeanSquaredError())
    weights = model.trainable_variables
    model.optimizer.apply([ops.ones(weight.shape) for weight in weights], weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    before, after = model.optimizer.variables, loaded.optimizer.variables
    assert len(before) == len(after) > 2
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(other))


def test_callbacks_set_the_rate_before_the_decay(data: Any, make_model: Any) -> None:
    """`learning_rate` stays what was set; an InverseTimeDecay could not be set."""
    model = make_model()
    model.compile(optimizers.SGD(0.1, decay=0.5), keras.losses.MeanSquaredError())
    rates = []

    def schedule(epoch: int, rate: float) -> float:
        rates.append(round(rate, 6))
        return rate / 2

    callback = keras.callbacks.LearningRateScheduler(schedule)
    model.fit(*data, batch_size=8, epochs=3, verbose=0, callbacks=[callback])
    assert rates == [0.1, 0.05, 0.025]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "tf.function"])
@only_tensorflow
def test_a_row_that_is_named_counts_even_without_gradient(compiled: bool) -> None:
    """IndexedSlices say which rows were in the batch; a dense gradient can only guess."""
    import tensorflow as tf

    optimizer = optimizers.SGD(1.0, momentum=0.5, sparse_variables=["table"])
    table = keras.Variable(np.zeros((3, 1)), name="table")
    optimizer.build([table])

    def step(values: Any, rows: Any) -> None:
        optimizer.apply([tf.IndexedSlices(values, rows, None)], [table])

    if compiled:
        step = tf.function(step)
    step(tf.constant([[1.0], [1.0], [1.0]]), tf.constant([0, 1, 2]))
    step(tf.constant([[0.0], [1.0], [1.0]]), tf.constant([0, 1, 1]))
    assert ops.convert_to_numpy(table).ravel().tolist() == [-1.5, -3.5, -1.0]
    dense = optimizers.SGD(1.0, momentum=0.5, sparse_variables=["table"])
    other = keras.Variable(np.zeros((3, 1)), name="table")
    for rows in ([1.0, 1.0, 1.0], [0.0, 2.0, 0.0]):
        dense.apply([tf.reshape(tf.constant(rows), (3, 1))], [other])
    assert ops.convert_to_numpy(other).ravel().tolist() == [-1.0, -3.5, -1.0]


def row_of_token_9(optimizer: Any, batches: int) -> np.ndarray:
    """The row of the table after some batches, of which only the first has that token."""
    keras.utils.set_random_seed(3)
    table = keras.layers.Embedding(10, 4, name="tokens")
    layers = [keras.Input((3,), dtype="int32"), table, keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(optimizer, keras.losses.MeanSquaredError())
    tokens = np.random.RandomState(0).randint(0, 9, (4 * batches, 3))
    tokens[0, 0] = 9
    model.fit(tokens, tokens.sum(1) / 9, batch_size=4, shuffle=False, verbose=0)
    return ops.convert_to_numpy(table.embeddings)[9]


@pytest.mark.parametrize(
    ("make", "scaled"),
    [
        pytest.param(optimizers.SGD, False, id="SGD"),
        pytest.param(optimizers.SGD, True, id="SGD, scaled"),
        pytest.param(optimizers.RMSprop, False, id="RMSprop"),
        pytest.param(optimizers.Adamax, False, id="Adamax"),
    ],
)
def test_embeddings_in_fit(make: Any, scaled: bool) -> None:
    """A row stays where the last batch that had it left it; without the option it goes on."""

    def optimizer(**options: Any) -> Any:
        momentum = {} if make is optimizers.Adamax else {"momentum": 0.9}
        made = make(0.01, **momentum, **options)
        return keras_mp.LossScaleOptimizer(made, initial_scale=8.0) if scaled else made

    left, right = (
        row_of_token_9(optimizer(sparse_variables=["tokens/embeddings"]), n) for n in (1, 6)
    )
    np.testing.assert_array_equal(left, right)
    left, right = (row_of_token_9(optimizer(), n) for n in (1, 6))
    assert np.abs(left - right).min() > 1e-4


@pytest.mark.parametrize(
    ("args", "options", "epsilon"),
    [
        ((), {}, 1e-6),
        ((0.1,), {"epsilon": None}, 1e-6),
        ((), {"lr": 0.1, "epsilon": 1e-3}, 1e-3),
        ((0.1, 0.9, 0.999, 1e-4), {}, 1e-4),
    ],
)
def test_epsilon_of_lamb(args: Any, options: Any, epsilon: float) -> None:
    optimizer = optimizers.LAMB(*args, **options)
    assert optimizer.epsilon == epsilon
    assert optimizers.LAMB.from_config(optimizer.get_config()).epsilon == epsilon


def test_epsilon_of_none_is_the_default() -> None:
    assert optimizers.Nadam(epsilon=None).epsilon == keras.optimizers.Nadam().epsilon


def test_is_built_once() -> None:
    optimizer = optimizers.Nadam()
    optimizer.build([keras.Variable(np.ones(2), name="v")])
    before = list(optimizer.variables)
    optimizer.build([keras.Variable(np.ones(3), name="w")])
    assert all(a is b for a, b in zip(optimizer.variables, before, strict=True))


def test_says_which_pattern_is_nowhere() -> None:
    optimizer = optimizers.SGD(0.1, sparse_variables=["tabel"])
    with pytest.warns(UserWarning, match=r"sparse_variables has 'tabel', but .*: table, dense\."):
        optimizer.build(variables())
    assert optimizer.built


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimizers.SGD(decay=-1.0), "decay must be zero or more, but got -1.0"),
        (lambda: optimizers.SGD(decay=float("nan")), "decay must be zero or more, but got nan"),
        (lambda: optimizers.Nadam(schedule_decay=-1.0), "schedule_decay must be zero or more"),
        (
            lambda: optimizers.Adam(decoupled_weight_decay=-1.0),
            "decoupled_weight_decay must be zero or more",
        ),
    ],
)
def test_refuses_numbers_below_zero(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_excluded_weights_do_not_decay() -> None:
    """`exclude_from_weight_decay`, as around Keras' own decay."""
    optimizer = optimizers.SGD(0.1, decoupled_weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["dense"])
    weights = variables()
    optimizer.apply([ops.zeros(weight.shape) for weight in weights], weights)
    table, dense = (ops.convert_to_numpy(weight) for weight in weights)
    np.testing.assert_allclose(table, 0.5 * np.array(RECORDED["table"]), rtol=1e-6)
    np.testing.assert_array_equal(dense, np.array(RECORDED["dense"], "float32"))
