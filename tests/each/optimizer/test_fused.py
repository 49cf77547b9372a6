"""`fused=True`: kernels against Keras' rules in NumPy, and against the default path."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer, SharedLossScale
from tests.compiled_steps import compiled_step, settled
from tests.fused_cases import (
    BACKEND,
    CASES,
    DEFAULT,
    EPSILON,
    FUSED,
    INF,
    NAN,
    SCALE,
    SHAPES,
    apart,
    apply,
    distance,
    floats,
    fused_only,
    make,
    numpy,
    o,
    on_torch,
    unscaled,
)

# -- the rule --------------------------------------------------------------------------------------


@fused_only
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_rule_and_with_the_default(name):
    inner, rule, options, lr, weight_decay = CASES[name]
    (fused, weights), (plain, plain_weights) = make(inner(), fused=True), make(inner())
    assert (fused.fused_fallback is None) == (name in FUSED)
    expected = numpy(weights)
    path, states = [0 * abs(w) for w in expected], [{} for _ in expected]
    for t in range(1, 41):
        gradients = unscaled(t)
        apply(fused, weights, gradients)
        apply(plain, plain_weights, gradients)
        for i, g in enumerate(gradients):
            old = expected[i]
            decayed = old * (1 - weight_decay * lr(t))
            expected[i] = rule(states[i], decayed, g.astype("float64"), lr(t), t, **options)
            path[i] = path[i] + abs(expected[i] - old)
        if t == 20:
            assert distance(numpy(weights), expected, path) < apart(name)
    assert distance(numpy(weights), numpy(plain_weights), path) < apart(name)
    for slot, other in zip(numpy(floats(fused)), numpy(floats(plain)), strict=True):
        assert np.max(abs(slot - other)) < 2 * apart(name) * np.max(abs(other))
    assert int(fused.iterations) == int(plain.iterations) == 40
    if name in DEFAULT:
        assert [w.numpy().tobytes() for w in weights] == [
            w.numpy().tobytes() for w in plain_weights
        ]


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(lambda: o.Adam(0.01, beta_1=0), id="beta_1 of GANs"),
        pytest.param(lambda: o.AdamW(0.01, *np.array([0.1, 0.5, 0.99, 1e-3])), id="AdamW"),
        pytest.param(lambda: o.SGD(0.01, np.float64(0.9)), id="SGD"),
        pytest.param(lambda: o.RMSprop(0.01, *np.array([0.8, 0.9, 1e-7])), id="RMSprop"),
    ],
)
def test_numbers_of_any_type(inner):
    """Integers and those of NumPy."""
    (fused, weights), (plain, others) = make(inner(), fused=True), make(inner())
    for step in range(3):
        apply(fused, weights, unscaled(step))
        apply(plain, others, unscaled(step))
    for weight, other in zip(numpy(weights), numpy(others), strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-5, atol=1e-6)


@fused_only
def test_learning_rate_set_meanwhile():
    (fused, weights), (plain, others) = make(o.SGD(0.5), fused=True), make(o.SGD(0.5))
    for step, value in enumerate([0.5, 0.25, 0.0, 1e-3]):
        fused.learning_rate = plain.learning_rate = value
        apply(fused, weights, unscaled(step))
        apply(plain, others, unscaled(step))
        for weight, other in zip(numpy(weights), numpy(others), strict=True):
            np.testing.assert_allclose(weight, other, rtol=4 * EPSILON, atol=1e-7)


@fused_only
@pytest.mark.parametrize("name", ["momentum", "AdamW"])
def test_learning_rate_of_zero(name):
    inner = CASES[name][0]()
    optimizer, variables = make(inner, fused=True)
    inner.learning_rate = 0.0
    before = numpy(variables)
    apply(optimizer, variables, unscaled(1))
    assert all(np.array_equal(a, b) for a, b in zip(numpy(variables), before, strict=True))


# -- skipped steps ---------------------------------------------------------------------------------


@fused_only
@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize(("value", "kind"), [(INF, 1), (-INF, 1), (NAN, 2)])
@pytest.mark.parametrize("name", CASES)
def test_a_skipped_step_changes_no_bit(name, value, kind, count, state):
    inner = CASES[name][0]
    fused, weights = make(inner(), fused=True, count_skipped_steps=count)
    plain, others = make(inner(), count_skipped_steps=count)
    for place in (0, -1):
        for each in ((fused, weights), (plain, others)):
            apply(*each, unscaled(1))
        before = state([*weights, *floats(fused)])
        gradients = unscaled(2)
        gradients[place].flat[-1] = value
        for each in ((fused, weights), (plain, others)):
            apply(*each, gradients, float(each[0].loss_scale))
        assert state([*weights, *floats(fused)]) == before
        assert (int(fused.nonfinite_kind), bool(fused.last_step_applied)) == (kind, False)
        assert int(fused.iterations) == int(plain.iterations)
        assert float(fused.loss_scale) == float(plain.loss_scale) < SCALE
    apply(fused, weights, unscaled(3), float(fused.loss_scale))
    assert state(weights) != before[: len(weights)]
    assert int(fused.nonfinite_kind) == 0
    assert int(fused.skipped_steps) == 2


@fused_only
def test_inf_beside_nan_is_nan():
    optimizer, variables = make(o.Adam(), fused=True)
    apply(
        optimizer,
        variables,
        [np.full(s, x, "float32") for s, x in zip(SHAPES, (INF, NAN, 1), strict=True)],
    )
    assert int(optimizer.nonfinite_kind) == 2


@fused_only
@pytest.mark.parametrize("name", ["Adam", "momentum"])
def test_the_largest_numbers_are_finite(name):
    optimizer, variables = make(CASES[name][0](), fused=True, initial_scale=1.0)
    apply(optimizer, variables, [np.full(shape, 3e38, "float32") for shape in SHAPES], 1.0)
    assert int(optimizer.nonfinite_kind) == 0


@fused_only
@pytest.mark.parametrize("inner", [o.Adam, o.SGD])
def test_dividing_by_less_than_one_may_overflow(inner, state):
    optimizer, variables = make(inner(), fused=True, initial_scale=0.25, min_scale=2.0**-4)
    before = state(variables)
    apply(optimizer, variables, [np.full(shape, 1e38, "float32") for shape in SHAPES], 1.0)
    assert state(variables) == before
    assert (int(optimizer.nonfinite_kind), float(optimizer.loss_scale)) == (1, 0.125)


@fused_only
@pytest.mark.parametrize("scale", [2.0**127, 3.0, 2.0**-20])
def test_any_scale(scale):
    settings = {"initial_scale": scale, "min_scale": 2.0**-20}
    fused, weights = make(o.SGD(1.0), fused=True, **settings)
    plain, others = make(o.SGD(1.0), **settings)
    for each in ((fused, weights), (plain, others)):
        apply(*each, [np.full(shape, 0.75, "float32") for shape in SHAPES], scale)
    for weight, other in zip(numpy(weights), numpy(others), strict=True):
        np.testing.assert_allclose(weight, other, rtol=2 * EPSILON, atol=2 * EPSILON)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name != "schedule"])
def test_any_scale_at_any_learning_rate(name, fused, state):
    """Powers of two leave no trace, though scale / rate is above all floats, and rate / scale 0."""

    def after_steps(scale, rate):
        optimizer, variables = make(CASES[name][0](), fused=fused, initial_scale=scale)
        optimizer.learning_rate = rate
        for step in range(2):
            apply(optimizer, variables, [g.clip(-1, 1) for g in unscaled(step)], scale)
        assert int(optimizer.skipped_steps) == 0
        return state([*variables, *optimizer.inner_optimizer.variables])

    for rate in (1e-8, 1e-3, 10.0):
        plain = after_steps(1.0, rate)
        for scale in (2.0**100, 2.0**119, 2.0**127):
            assert after_steps(scale, rate) == plain, (rate, scale)


@fused_only
@pytest.mark.parametrize("name", ["Adam", "momentum"])
def test_diagnosis(name):
    fused, weights = make(CASES[name][0](), fused=True, diagnose=True)
    plain, others = make(CASES[name][0](), diagnose=True)
    for value in (1.0, INF, NAN, -INF):
        gradients = unscaled(1)
        gradients[1].flat[3] = value
        for each in ((fused, weights), (plain, others)):
            apply(*each, gradients)
    assert fused.nonfinite_variables() == plain.nonfinite_variables() != []
    assert fused.first_overflow() == plain.first_overflow() is not None
    assert fused.last_nonfinite_variable() == "v1"


@fused_only
@pytest.mark.parametrize("name", ["Adam", "momentum", "Adagrad"])
@pytest.mark.parametrize("scaled", [True, False])
def test_without_a_guard(name, scaled):
    settings = {"dynamic": False, "initial_scale": SCALE, "skip_nonfinite": False}
    fused, weights = make(CASES[name][0](), fused=True, **settings)
    plain, others = make(CASES[name][0](), **settings)
    for each in ((fused, weights), (plain, others)):
        for step in (1, 2, 3):
            given = [ops.array(g * np.float32(SCALE if scaled else 1)) for g in unscaled(step)]
            each[0].apply_gradients(zip(given, each[1], strict=True), gradients_scaled=scaled)
    path = [1 + abs(w) for w in numpy(others)]
    assert distance(numpy(weights), numpy(others), path) < apart("Adam")
    assert int(fused.iterations) == 3
    apply(fused, weights, [np.full(shape, NAN, "float32") for shape in SHAPES])
    assert all(np.isnan(w).all() for w in numpy(weights))


# -- the gradients ---------------------------------------------------------------------------------


@fused_only
@pytest.mark.parametrize("settings", [{}, {"diagnose": True}])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("name", ["Adam", "SGD", "momentum", "Adagrad"])
def test_gradients_of_the_caller_are_left_alone(name, scaled, settings, state):
    optimizer, variables = make(CASES[name][0](), fused=True, **settings)
    gradients = [ops.array(g) for g in unscaled(1)]
    before = state(gradients)
    optimizer.apply_gradients(zip(gradients, variables, strict=True), gradients_scaled=scaled)
    assert state(gradients) == before
    assert int(optimizer.nonfinite_kind) == 0


@pytest.mark.parametrize("settings", [{}, {"diagnose": True}])
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_none_is_passed_over(settings, state):
    optimizer, variables = make(o.Adam(), fused=True, **settings)
    before = state(variables)
    gradients = [None, *(ops.array(g) for g in unscaled(1)[1:])]
    optimizer.apply(gradients, variables)
    after = state(variables)
    assert [a == b for a, b in zip(after, before, strict=True)] == [True, False, False]
    assert optimizer.fused_fallback is None or BACKEND == "jax"


@fused_only
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_16_bits(dtype):
    fused, weights = make(o.SGD(0.5), fused=True)
    plain, others = make(o.SGD(0.5))
    for each in ((fused, weights), (plain, others)):
        each[0].apply([ops.cast(ops.array(100 * g), dtype) for g in unscaled(1)], each[1])
    assert distance(numpy(weights), numpy(others), [abs(w) for w in numpy(others)]) < 4 * EPSILON
    fused.apply([ops.cast(ops.full(s, 1e9), "float16") for s in SHAPES], weights)
    assert int(fused.nonfinite_kind) == 1
    assert fused.fused_fallback is None


@on_torch
def test_gradients_that_lie_otherwise_in_memory():
    import torch

    optimizer, (matrix, _, _) = make(o.SGD(1.0), fused=True)
    before = numpy([matrix])[0]
    values = np.arange(35, dtype="float32").reshape(5, 7)
    transposed = torch.from_numpy(values).T
    optimizer.apply_gradients([(transposed, matrix)], gradients_scaled=False)
    np.testing.assert_allclose(numpy([matrix])[0], before - values.T, rtol=1e-5)
    optimizer.apply_gradients([(torch.ones(()).expand(7, 5), matrix)], gradients_scaled=False)
    np.testing.assert_allclose(numpy([matrix])[0], before - values.T - 1, rtol=1e-5)


def test_constraints(state):
    variable = keras.Variable(np.ones(4, "float32"))
    variable.constraint = keras.constraints.NonNeg()
    optimizer = LossScaleOptimizer(o.SGD(1.0), fused=True, initial_scale=1.0)
    optimizer.build([variable])
    variable.assign([-1.0, 1.0, 1.0, 1.0])
    before = state([variable])
    optimizer.apply_gradients([(ops.array([INF, 0, 0, 0]), variable)], gradients_scaled=True)
    assert state([variable]) == before
    optimizer.apply_gradients([(ops.array([0.0, 3, 0.5, 0]), variable)], gradients_scaled=True)
    assert numpy([variable])[0].tolist() == [0, 0, 0.5, 1]


# -- compiled steps, fit, files --------------------------------------------------------------------


# XLA compiles the default path of each, which needs no test for every optimizer here.
XLA = ("Adam", "amsgrad", "nesterov") if BACKEND == "tensorflow" else ()


@fused_only
@pytest.mark.parametrize(
    ("name", "jit"),
    [*((name, BACKEND == "torch") for name in CASES), *((name, True) for name in XLA)],
)
def test_compiled(name, jit, state):
    fused, weights = make(CASES[name][0](), fused=True)
    plain, others = make(CASES[name][0]())
    step = compiled_step(fused, weights, jit, fullgraph=True)
    for t in range(4):
        gradients = unscaled(t)
        gradients[0].flat[0] *= INF if t == 2 else 1
        before = state(weights)
        step([g * np.float32(fused.loss_scale) for g in gradients])
        apply(plain, others, gradients, float(plain.loss_scale))
        assert (state(weights) == before) == (t == 2)
    path = [1 + abs(w) for w in numpy(others)]
    assert distance(numpy(weights), numpy(others), path) < apart(name)
    assert (int(fused.iterations), int(fused.skipped_steps)) == (4, 1)
    xla = jit and BACKEND == "tensorflow"
    assert (fused.fused_fallback is None) == (name in FUSED and not xla)


@pytest.mark.parametrize(
    ("jit", "policy"), [(False, "float32"), (False, "mixed_float16"), (True, "mixed_float16")]
)
def test_fit(fit, with_nan, weights, policy, jit, quick_compile, compiled_once):
    # On PyTorch it takes half a minute to compile the plain one, too, for the same numbers.
    jits = {True: jit, False: jit and BACKEND != "torch"}
    optimizers = [LossScaleOptimizer(o.Adam(0.01), fused=fused) for fused in jits]
    fused, plain = (
        fit(settled(optimizer), *with_nan[0], policy=policy, jit_compile=jits[optimizer.fused])
        for optimizer in optimizers
    )
    skipped = [int(model.optimizer.skipped_steps) for model in (fused, plain)]
    assert skipped[0] == skipped[1] >= 1
    tolerance = 1e-5 if policy == "float32" else 1e-3
    np.testing.assert_allclose(weights(fused), weights(plain), rtol=tolerance, atol=tolerance)
    xla = BACKEND == "jax" or (jit and BACKEND == "tensorflow")
    why = "XLA fuses the default path by itself" if xla else None
    assert fused.optimizer.fused_fallback == why


@pytest.mark.parametrize("name", ["AdamW", "momentum", "Adagrad"])
@pytest.mark.parametrize("fused", [True, False])
def test_files_are_read_by_either(fit, data, tmp_path, name, fused, state):
    inner = CASES[name][0]
    model = fit(LossScaleOptimizer(inner(), fused=fused), *data)
    model.save_weights(tmp_path / "a.weights.h5")
    model.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras")
    assert again.optimizer.fused is fused
    assert state(again.optimizer.variables) == state(model.optimizer.variables)
    other = fit(LossScaleOptimizer(inner(), fused=not fused), *data)
    names = [
        [(variable.path.split("/")[-1], variable.shape) for variable in each.optimizer.variables]
        for each in (other, again)
    ]
    assert names[0] == names[1]
    other.load_weights(tmp_path / "a.weights.h5")
    assert state(other.optimizer.variables) == state(model.optimizer.variables)


def test_config():
    config = LossScaleOptimizer(o.Adam(), fused=True).get_config()
    assert config["fused"] is True
    assert LossScaleOptimizer.from_config(config).fused is True
    del config["fused"]  # as written before there was such an option
    assert LossScaleOptimizer.from_config(config).fused is False
    assert LossScaleOptimizer(o.Adam()).fused is False


def test_a_shared_scale_takes_both():
    pair = [LossScaleOptimizer(o.Adam(), fused=fused) for fused in (True, False)]
    SharedLossScale(*pair)
    assert [each.fused for each in pair] == [True, False]
