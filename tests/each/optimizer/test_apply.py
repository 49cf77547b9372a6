"""One step at a time: what a step does, what a skipped one leaves alone, what is refused."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer

INF, NAN = float("inf"), float("nan")
OPTIMIZERS = [
    "SGD",
    "Adam",
    "AdamW",
    "Adamax",
    "Nadam",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Ftrl",
    "Lion",
    "Adafactor",
]


def sgd(**options):
    return keras.optimizers.SGD(1.0, **options)


def step(opt, gradients, variables, scaled=True):
    """A step with gradients that are scaled already."""
    return opt.apply_gradients(
        list(zip(gradients, variables, strict=True)), gradients_scaled=scaled
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_same_weights_as_the_plain_optimizer(name):
    """Bit for bit: at a power of two, scaling and unscaling change nothing."""
    random = np.random.RandomState(0)
    plain, wrapped = getattr(keras.optimizers, name)(0.1), getattr(keras.optimizers, name)(0.1)
    start = random.randn(3, 2).astype("float32")
    v, w = keras.Variable(start), keras.Variable(start)
    opt = LossScaleOptimizer(wrapped, initial_scale=1024.0)
    plain.build([v])
    for _ in range(4):
        gradient = random.randn(3, 2).astype("float32")
        plain.apply([ops.array(gradient)], [v])
        step(opt, [ops.array(gradient * 1024)], [w])
        assert v.numpy().tobytes() == w.numpy().tobytes()
    assert [a.numpy().tobytes() for a in plain.variables] == [
        a.numpy().tobytes() for a in wrapped.variables
    ]


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_skipped_step_touches_nothing(name, bad, state):
    """One bad element in the last of several gradients: only counters and the scale change."""
    variables = [keras.Variable(np.ones((3, 2), "float32")), keras.Variable(np.ones(2, "float32"))]
    opt = LossScaleOptimizer(
        getattr(keras.optimizers, name)(0.1, use_ema=True, weight_decay=0.1), initial_scale=8.0
    )
    good = [ops.ones((3, 2)), ops.ones(2)]
    step(opt, good, variables)
    kept = [v for v in opt.inner_optimizer.variables if v is not opt.inner_optimizer._iterations]
    before = state([*variables, *kept])
    step(opt, [ops.ones((3, 2)), ops.array([1.0, bad])], variables)
    assert state([*variables, *kept]) == before
    assert (float(opt.loss_scale), int(opt.dynamic_counter), int(opt.iterations)) == (4.0, 0, 2)
    step(opt, good, variables)
    assert state(variables) != before[:2]


@pytest.mark.parametrize(("count", "after"), [(True, 3), (False, 2)])
def test_iterations_on_a_skipped_step(count, after):
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), count_skipped_steps=count)
    for value in (1.0, NAN, 1.0):
        returned = step(opt, [ops.array([value])], [variable])
    assert int(opt.iterations) == int(returned) == after


def test_a_skip_makes_the_accumulation_window_longer(state):
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(gradient_accumulation_steps=2), initial_scale=2.0)
    seen = []
    for value in (2.0, NAN, NAN, 6.0, 2.0, 2.0):
        step(opt, [ops.array([value])], [variable])
        seen.append((float(variable.numpy()[0]), int(opt.inner_optimizer._iterations)))
        opt.dynamic_scale.assign(2.0)
    assert seen == [(1.0, 1), (1.0, 1), (1.0, 1), (-1.0, 2), (-1.0, 3), (-2.0, 4)]


@pytest.mark.parametrize("count", [True, False])
def test_an_average_begins_with_the_first_step_that_is_taken(count):
    """Keras begins it at iteration 0, and else mixes 1 % of the weight into zeros."""
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(use_ema=True), initial_scale=8.0, count_skipped_steps=count)
    for value in (INF, NAN, 1.0):  # the scale is 2 at the third step
        step(opt, [ops.array([value])], [variable])
    assert variable.numpy().tolist() == [0.5]
    assert opt.inner_optimizer._model_variables_moving_average[0].numpy().tolist() == [0.5]
    seen = int(opt.iterations)
    step(opt, [ops.array([INF])], [variable])
    assert int(opt.iterations) - seen == count
    assert opt.inner_optimizer._model_variables_moving_average[0].numpy().tolist() == [0.5]


def test_no_floor_was_fatal():
    """170 bad steps: Keras' class is at scale 0 then, and the next good step writes nan."""
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd())
    for _ in range(170):
        step(opt, [ops.array([INF])], [variable])
    assert float(opt.loss_scale) == 1.0
    step(opt, [ops.array([0.5]) * opt.loss_scale], [variable])
    assert variable.numpy().tolist() == [0.5]


def test_no_growth_to_inf():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=2.0**126, dynamic_growth_steps=1)
    scales = []
    for _ in range(4):
        step(opt, [ops.array([0.0])], [variable])
        scales.append(float(opt.loss_scale))
    assert scales == [2.0**127] * 4
    step(opt, [ops.array([2.0**127])], [variable])
    assert variable.numpy().tolist() == [0.0]


def test_a_counter_beyond_the_period_grows():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0, dynamic_growth_steps=10)
    for _ in range(8):
        step(opt, [ops.array([0.0])], [variable])
    opt.dynamic_growth_steps = 4
    step(opt, [ops.array([0.0])], [variable])
    assert (float(opt.loss_scale), int(opt.dynamic_counter)) == (16.0, 0)


def test_gradients_that_overflow_only_when_unscaled_are_skipped():
    """A scale below 1 divides finite gradients into inf."""
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=2.0**-4, min_scale=2.0**-8)
    step(opt, [ops.array([1e38])], [variable])
    assert variable.numpy().tolist() == [1.0]
    assert float(opt.loss_scale) == 2.0**-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_gradients_are_unscaled_in_float32(dtype):
    """2**-8 / 2**20 is 0 in float16."""
    variable = keras.Variable([0.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=2.0**20)
    step(opt, [ops.cast(ops.array([2.0**-8]), dtype)], [variable])
    assert variable.numpy().tolist() == [-(2.0**-28)]


def test_fixed_scale_is_guarded_and_never_changes():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), dynamic=False, initial_scale=128.0)
    for value in (32.0, INF, NAN, 32.0):
        step(opt, [ops.array([value])], [variable])
    assert variable.numpy().tolist() == [0.5]
    assert (float(opt.loss_scale), int(opt.iterations)) == (128.0, 4)


def test_fixed_scale_without_guard_applies_inf_as_tf_keras_does():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), dynamic=False, initial_scale=128.0, skip_nonfinite=False)
    step(opt, [ops.array([128.0])], [variable])
    assert variable.numpy().tolist() == [0.0]
    step(opt, [ops.array([INF])], [variable])
    assert variable.numpy().tolist() == [-INF]


def test_clipping_is_of_unscaled_gradients():
    variable = keras.Variable([1.0, 1.0])
    opt = LossScaleOptimizer(sgd(global_clipnorm=5.0), initial_scale=64.0)
    step(opt, [ops.array([3.0, 4.0]) * 64.0 * 2.0], [variable])
    assert variable.numpy().tolist() == pytest.approx([-2.0, -3.0])


def test_apply_in_an_eager_loop():
    """On JAX too, where Keras' own class raises UnexpectedTracerError."""
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=8.0)
    opt.build([variable])
    for value in (1.0, INF, 2.0):
        opt.scale_loss(1.0)
        opt.apply([ops.array([value]) * opt.loss_scale], [variable])
    assert variable.numpy().tolist() == [0.25]
    assert float(opt.loss_scale) == 4.0


def test_iterators_of_gradients():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0)
    opt.scale_loss(1.0)
    opt.apply(iter([ops.array([4.0])]), iter([variable]))
    opt.apply_gradients(pair for pair in [(ops.array([4.0]), variable)])
    assert variable.numpy().tolist() == [0.0]


def test_none_gradients_are_passed_over():
    v, u = keras.Variable([1.0]), keras.Variable([2.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0)
    opt.build([v, u])
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        step(opt, [None, ops.array([8.0])], [v, u])
    assert (v.numpy()[0], u.numpy()[0]) == (1.0, 1.0)


def test_only_none_gradients():
    variable = keras.Variable([1.0], name="lonely")
    opt = LossScaleOptimizer(sgd())
    with pytest.raises(ValueError, match=r"^No gradients provided for any variable: lonely"):
        step(opt, [None], [variable])
    assert int(opt.iterations) == 0


def test_no_gradients_is_no_step():
    opt = LossScaleOptimizer(sgd())
    opt.build([keras.Variable([1.0])])
    opt.scale_loss(1.0)
    opt.apply([], [])  # of a model without trainable weights, as plain Keras takes it
    assert int(opt.iterations) == int(opt.dynamic_counter) == 0


@pytest.mark.parametrize("build", [True, False])
@pytest.mark.parametrize("wrap", [LossScaleOptimizer, lambda plain: plain], ids=["ours", "plain"])
def test_no_pairs_are_refused_as_by_plain_keras(wrap, build):
    opt = wrap(sgd())
    if build:
        opt.build([keras.Variable([1.0])])
    with pytest.raises(ValueError, match=r"without a pair of a gradient|not enough values"):
        opt.apply_gradients(iter([]))


def test_unknown_variables_are_refused_whatever_the_gradient():
    v, u = keras.Variable([1.0]), keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd())
    opt.build([v])
    for value in (1.0, INF):
        with pytest.raises(ValueError, match="Unknown variable"):
            step(opt, [ops.array([value])], [u])
    assert float(opt.loss_scale) == 2.0**15


def test_apply_without_variables():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0)
    opt.scale_loss(1.0)
    with pytest.raises(ValueError, match="needs a built optimizer"):
        opt.apply([ops.array([8.0])])
    opt.build([variable])
    opt.apply([ops.array([8.0])])
    assert variable.numpy().tolist() == [0.0]
    with pytest.raises(ValueError, match="2 gradients for 1 variables"):
        opt.apply([ops.array([8.0])] * 2)


def test_a_subset_of_the_variables(state):
    v, u = keras.Variable([1.0]), keras.Variable([1.0])
    opt = LossScaleOptimizer(keras.optimizers.SGD(1.0, momentum=0.9), initial_scale=8.0)
    opt.build([v, u])
    before = state([u])
    step(opt, [ops.array([8.0])], [v])
    assert v.numpy().tolist() == [0.0]
    assert state([u]) == before


def test_gradients_of_the_caller_are_left_alone():
    variable, gradient = keras.Variable([1.0]), ops.array([8.0])
    step(LossScaleOptimizer(sgd(), initial_scale=8.0), [gradient], [variable])
    assert ops.convert_to_numpy(gradient).tolist() == [8.0]


def test_keras_2_keywords_of_apply_gradients():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd())
    opt.apply_gradients(
        [(ops.array([1.0]), variable)],
        name="train",
        experimental_aggregate_gradients=False,
        gradients_scaled=False,
    )
    assert variable.numpy().tolist() == [0.0]


def test_forgotten_scaling_warns_with_the_line_to_add():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd())
    with pytest.warns(UserWarning, match=r"loss = optimizer\.scale_loss\(loss\)"):
        opt.apply([ops.array([1.0])], [variable])
    other = LossScaleOptimizer(sgd())
    with pytest.warns(UserWarning, match=r"loss = optimizer\.scale_loss\(loss\)"):
        other.apply_gradients([(ops.array([1.0]), variable)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.apply_gradients([(ops.array([1.0]), variable)])
    assert variable.numpy()[0] == pytest.approx(-1.0, abs=1e-4)


def test_stateless_apply(backend):
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(keras.optimizers.SGD(1.0, momentum=0.5), initial_scale=8.0)
    opt.build([variable])
    opt.scale_loss(1.0)
    values = [ops.copy(v.value) for v in opt.variables]
    if backend == "tensorflow":
        with pytest.raises(ValueError, match="not supported with the TensorFlow backend"):
            opt.stateless_apply(values, [ops.array([8.0])], [variable.value])
        return
    new, state = opt.stateless_apply(values, [ops.array([4.0])], [variable.value])
    assert ops.convert_to_numpy(new[0]).tolist() == [0.5]
    assert variable.numpy().tolist() == [1.0], "the live variable must not move"
    assert [float(ops.sum(v)) for v in opt.variables] == [float(ops.sum(v)) for v in values]
    new, state = opt.stateless_apply(state, [ops.array([INF])], new)
    assert ops.convert_to_numpy(new[0]).tolist() == [0.5]
    assert float(state[3]) == 4.0
    scaled = opt.stateless_scale_loss(state, ops.array(3.0))
    assert float(scaled) == 12.0
    with pytest.raises(ValueError, match="1:1"):
        opt.stateless_apply(state[:-2], [ops.array([4.0])], new)


def test_check_finite():
    opt = LossScaleOptimizer(sgd())
    assert bool(opt.check_finite([ops.array([1.0]), None]))
    assert not bool(opt.check_finite(iter([ops.array([1.0]), ops.array([1.0, NAN])])))
    assert not bool(opt.check_finite([ops.array([INF, -INF])]))
    assert not bool(opt.check_finite([np.array([1.0, INF], "float32")]))


def test_check_finite_of_nothing():
    opt = LossScaleOptimizer(sgd())
    assert bool(opt.check_finite([]))
    assert bool(opt.check_finite([None]))


@pytest.mark.parametrize("bad", [complex(1, NAN), complex(INF, 1), complex(1, -INF)])
def test_check_finite_of_complex_numbers(bad):
    opt = LossScaleOptimizer(sgd())
    assert bool(opt.check_finite([ops.array([1 + 1j], "complex64")]))
    assert not bool(opt.check_finite([ops.convert_to_tensor(np.array([bad], "complex64"))]))


def test_a_float64_gradient_beyond_float32(backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless jax_enable_x64 is set")
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0)
    step(opt, [ops.array([1e300], "float64")], [variable])
    assert (variable.numpy().tolist(), float(opt.loss_scale)) == ([1.0], 4.0)


def test_a_subset_of_the_variables_of_a_built_inner_optimizer():
    v, u = keras.Variable([1.0]), keras.Variable([1.0])
    inner = sgd()
    inner.build([v, u])
    opt = LossScaleOptimizer(inner, initial_scale=8.0)
    step(opt, [ops.array([8.0])], [u])
    assert (v.numpy()[0], u.numpy()[0]) == (1.0, 0.0)


def test_setting_iterations_while_accumulating():
    opt = LossScaleOptimizer(sgd(gradient_accumulation_steps=2))
    opt.iterations = 4
    assert int(opt.iterations) == 4


@pytest.mark.parametrize("scaled", [True, False])
def test_numpy_gradients(scaled):
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(), initial_scale=1.0)
    step(opt, [np.array([0.5], "float32")], [variable], scaled=scaled)
    step(opt, [np.array([NAN], "float32")], [variable], scaled=scaled)
    assert variable.numpy().tolist() == [0.5]


@pytest.mark.parametrize(
    ("settings", "value", "after"),
    [
        ({"dynamic_growth_steps": 1, "max_scale": 8.0}, 0.0, 8.0),
        ({"dynamic_growth_steps": 1, "growth_factor": 4.0}, 0.0, 32.0),
        ({"backoff_factor": 0.25}, NAN, 2.0),
        ({"min_scale": 6.0}, NAN, 6.0),
    ],
)
def test_the_settings_reach_the_rule(settings, value, after):
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0, **settings)
    step(opt, [ops.array([value])], [keras.Variable([1.0])])
    assert float(opt.loss_scale) == after


def test_a_warning_points_at_the_caller():
    opt, variable = LossScaleOptimizer(sgd()), keras.Variable([1.0])
    with pytest.warns(UserWarning, match="never called") as caught:
        opt.apply([ops.array([1.0])], [variable])
    assert [w.filename for w in caught] == [__file__]


def test_check_finite_of_many_float16():
    """Their sum, 80000, is inf in float16."""
    gradient = ops.cast(ops.array([40000.0, 40000.0]), "float16")
    assert bool(LossScaleOptimizer(sgd()).check_finite([gradient]))


@pytest.mark.parametrize("value", [8e5, -8e5])
def test_a_gradient_beyond_a_float16_variable(value):
    """100000 is finite in float32, and inf where the optimizer casts it."""
    variable = keras.Variable([1.0], dtype="float16")
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0)
    step(opt, [ops.array([value])], [variable])
    assert (variable.numpy().tolist(), float(opt.loss_scale)) == ([1.0], 4.0)


def test_float64_variables(backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless jax_enable_x64 is set")
    variable = keras.Variable(np.array([0.0]), dtype="float64")
    opt = LossScaleOptimizer(sgd(), initial_scale=8.0)
    step(opt, [ops.array([8e300], "float64")], [variable])
    assert (float(opt.loss_scale), variable.numpy().tolist()) == (8.0, [-1e300])
    assert bool(opt.check_finite([ops.array([1e300], "float64"), ops.array([1.0])]))


def test_aggregated_gradients_of_several_replicas_are_refused(monkeypatch):
    opt = LossScaleOptimizer(sgd())
    monkeypatch.setattr(opt._backend, "replicas", lambda: 2)
    with pytest.raises(ValueError, match="does not support more than one replica"):
        opt.apply_gradients(
            [(ops.array([1.0]), keras.Variable([1.0]))],
            experimental_aggregate_gradients=False,
            gradients_scaled=False,
        )


def test_gradients_that_require_gradients_on_torch(backend):
    """No slot of the optimizer becomes part of a graph."""
    if backend != "torch":
        pytest.skip("about autograd")
    opt, gradient = LossScaleOptimizer(keras.optimizers.Adam(0.1)), ops.array([1.0])
    gradient.requires_grad_(True)
    step(opt, [gradient * 2.0], [keras.Variable([1.0])])
    assert not any(v.value.requires_grad for v in opt.inner_optimizer.variables)
