"""State under compilation: nothing traced holds a stale constant, and no needless host sync."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer

BACKEND = keras.backend.backend()
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="about jax.jit")
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="about tf.function")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="about torch.compile and host syncs")


def sgd(**options):
    return keras.optimizers.SGD(0.25, **options)


def lso(**settings):
    return LossScaleOptimizer(sgd(), initial_scale=8.0, dynamic_growth_steps=2, **settings)


FACTORS = (1.0, 1.0, float("inf"), 1.0)
EXPECTED = (0.25, 8.0, 1, 4)  # weight, scale, counter, iterations after FACTORS


def found(opt, variable):
    return (
        float(variable.numpy()[0]),
        float(opt.loss_scale),
        int(opt.dynamic_counter),
        int(opt.iterations),
    )


@on_tensorflow
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("protocol", ["Keras 2", "Keras 3"])
def test_whole_step_in_a_tf_function(protocol, built, jit):
    import tensorflow as tf

    variable, opt = keras.Variable([1.0]), lso()
    if built:
        opt.build([variable])

    @tf.function(jit_compile=jit)
    def step(factor):
        with tf.GradientTape() as tape:
            loss = factor * tf.reduce_sum(variable.value)
            scaled = opt.scale_loss(loss) if protocol == "Keras 3" else opt.get_scaled_loss(loss)
        gradients = tape.gradient(scaled, [variable.value])
        if protocol == "Keras 2":
            gradients = opt.get_unscaled_gradients(gradients)
        opt.apply_gradients(zip(gradients, [variable], strict=True))

    for factor in FACTORS:
        step(tf.constant(factor))
    assert found(opt, variable) == EXPECTED


@on_tensorflow
def test_scale_loss_traced_before_build_follows_the_scale():
    """Keras' own class bakes the initial scale in: wrong step sizes for ever."""
    import tensorflow as tf

    variable, opt = keras.Variable([1.0]), lso()

    @tf.function
    def scaled(factor):
        return opt.scale_loss(factor * tf.reduce_sum(variable.value))

    for factor in FACTORS:
        with tf.GradientTape() as tape:
            loss = scaled(tf.constant(factor))
        opt.apply_gradients([(tape.gradient(loss, variable.value), variable)])
    assert found(opt, variable) == EXPECTED


@on_tensorflow
def test_momentum_is_built_inside_a_tf_function():
    import tensorflow as tf

    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(momentum=0.5), initial_scale=8.0)

    @tf.function
    def step(gradient):
        opt.apply_gradients([(gradient, variable)], gradients_scaled=True)

    for value in (8.0, float("nan"), 8.0 / 2):
        step(tf.constant([value]))
    assert variable.numpy().tolist() == [1.0 - 0.25 - (0.125 + 0.25)]


@on_tensorflow
def test_plain_tf_variables():
    import tensorflow as tf

    variable, opt = tf.Variable([1.0]), lso()
    opt.apply_gradients([(tf.constant([8.0]), variable)], gradients_scaled=True)
    assert variable.numpy().tolist() == [0.75]


@on_tensorflow
def test_cross_replica_context():
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable, opt = keras.Variable([1.0]), lso()
        opt.build([variable])
        with pytest.raises(ValueError, match=r"replica context.*strategy\.run"):
            opt.apply_gradients([(tf.constant([8.0]), variable)], gradients_scaled=True)
        with pytest.raises(ValueError, match="checks gradients only in a replica context"):
            opt.check_finite([tf.constant([8.0])])


@on_jax
@pytest.mark.parametrize("loop", ["jit", "scan"])
def test_whole_step_under_jit(loop):
    import jax
    import jax.numpy as jnp

    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])

    def step(state, factor):
        values, optimizer_values = state

        def loss(values):
            return opt.stateless_scale_loss(optimizer_values, factor * values[0].sum())

        gradients = jax.grad(loss)(values)
        return opt.stateless_apply(optimizer_values, gradients, values), None

    state = ([variable.value], [v.value for v in opt.variables])
    if loop == "scan":
        state, _ = jax.lax.scan(step, state, jnp.array(FACTORS))
    else:
        compiled = jax.jit(step, donate_argnums=0)
        state = jax.tree.map(jnp.copy, state)
        for factor in FACTORS:
            state, _ = compiled(state, factor)
    for v, value in zip([variable, *opt.variables], [*state[0], *state[1]], strict=True):
        v.assign(value)
    assert found(opt, variable) == EXPECTED


@on_jax
def test_apply_under_jit_in_a_stateless_scope():
    import jax

    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])
    everything = [variable, *opt.variables]

    @jax.jit
    def step(values, gradient):
        with keras.StatelessScope(zip(everything, values, strict=True)) as scope:
            opt.apply_gradients([(gradient, variable)], gradients_scaled=True)
        return [scope.get_current_value(v) for v in everything]

    values = [v.value for v in everything]
    for gradient in (8.0, float("nan"), 4.0):
        values = step(values, np.array([gradient], "float32"))
    assert float(values[0][0]) == 0.5


def syncs(function):
    """How many values `function` fetches from the device, each a wait for a GPU."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, op, types, args=(), kwargs=None):
            Count.number += "_local_scalar_dense" in str(op)
            return op(*args, **(kwargs or {}))

    with torch.no_grad(), Count():
        function()
    return Count.number


@on_torch
@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, 1),
        ({"dynamic": False, "initial_scale": 8.0}, 1),
        ({"dynamic": False, "initial_scale": 8.0, "skip_nonfinite": False}, 0),
    ],
    ids=["dynamic", "fixed", "no guard"],
)
@pytest.mark.parametrize("inner", ["SGD", "Adam"])
def test_host_syncs_per_step(inner, settings, more, monkeypatch):
    """One, the branch, above those of the plain optimizer; Keras' own class has two."""
    from keras_mp.backends.torch import batched as batched_torch

    monkeypatch.setattr(batched_torch, "is_host", lambda device: False)
    variables = [keras.Variable(np.ones(3, "float32")) for _ in range(5)]
    plain, opt = (getattr(keras.optimizers, inner)(0.1) for _ in range(2))
    opt = LossScaleOptimizer(opt, **settings)
    plain.build(variables)
    opt.build(variables)
    gradients = [ops.ones(3) for _ in variables]
    opt.scale_loss(1.0)
    opt.apply(gradients)
    plain.apply(gradients)
    expected = syncs(lambda: plain.apply(gradients)) + more
    assert syncs(lambda: opt.apply(gradients)) == expected


@on_torch
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_torch_compile_fullgraph(backend):
    """No graph break; Keras' own class has six."""
    import torch

    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])
    opt.scale_loss(1.0)

    @torch.compile(fullgraph=True, backend=backend)
    def step(gradient):
        with torch.no_grad():
            opt.apply([gradient], [variable])

    for value in (8.0, 8.0, float("inf"), 8.0):
        step(torch.tensor([value]))
    # The growth and the overflow cancel out: the last gradient is divided by 8 again.
    assert found(opt, variable) == EXPECTED


@on_torch
def test_a_warning_does_not_break_a_compiled_step():
    import torch

    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])

    @torch.compile(fullgraph=True, backend="eager")
    def step(gradient):
        with torch.no_grad():
            opt.apply([gradient], [variable])

    step(torch.tensor([8.0]))
    assert variable.numpy().tolist() == [0.75]
    with pytest.warns(UserWarning, match="scale_loss was never called"):
        opt.apply([torch.tensor([8.0])], [variable])


@on_jax
def test_a_scale_that_becomes_a_constant_is_warned_about():
    """jax.jit closes over values, not variables: the one stale constant we cannot prevent."""
    import jax

    opt = lso()
    with pytest.warns(UserWarning, match=r"constant.*stateless_scale_loss"):
        jax.jit(jax.grad(opt.scale_loss))(1.0)
    jax.grad(lso().scale_loss)(1.0)  # eager: the scale of now is the right one


@on_jax
def test_variables_of_the_scope_around_are_seen():
    """A learning rate that reads a variable, mapped by the caller of a jitted step."""
    import jax

    variable, rate = keras.Variable([1.0]), keras.Variable(0.125, trainable=False)
    opt = LossScaleOptimizer(keras.optimizers.SGD(lambda: rate.value), initial_scale=8.0)
    opt.build([variable])
    everything = [variable, rate, *opt.variables]

    @jax.jit
    def step(values, gradient):
        with keras.StatelessScope(zip(everything, values, strict=True)) as scope:
            opt.apply_gradients([(gradient, variable)], gradients_scaled=True)
        return scope.get_current_value(variable)

    values = [v.value for v in everything]
    values[1] = np.float32(0.5)
    assert float(step(values, np.array([8.0], "float32"))[0]) == 0.5
    with keras.StatelessScope([(variable, np.array([3.0], "float32"))]):
        [(none, _)] = opt.compute_gradients(lambda: variable * variable, rate)
        [(gradient, _)] = opt.compute_gradients(lambda: rate * variable**2, rate)
    assert (float(none), float(gradient)) == (0.0, 9.0)


def overwriting():
    """(v, u, optimizer) whose averages, 1, overwrite at each step; u is 3 by then."""
    v, u = keras.Variable([1.0]), keras.Variable([1.0])
    inner = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=1)
    opt = LossScaleOptimizer(inner, initial_scale=8.0)
    opt.build([v, u])
    zero = ops.array([0.0])
    opt.apply_gradients([(zero, v), (zero, u)], gradients_scaled=True)
    u.assign([3.0])
    return v, u, opt


@on_jax
def test_an_average_overwrites_variables_without_a_gradient_under_jit():
    import jax

    v, u, opt = overwriting()
    everything = [v, u, *opt.variables]

    @jax.jit
    def step(values, gradient):
        with keras.StatelessScope(zip(everything, values, strict=True)) as scope:
            opt.apply_gradients([(gradient, v)], gradients_scaled=True)
        return [scope.get_current_value(x) for x in (v, u)]

    values = [x.value for x in everything]
    assert [float(x[0]) for x in step(values, np.array([8.0], "float32"))] == [0.5, 2.0]
    assert [float(x[0]) for x in step(values, np.array([np.nan], "float32"))] == [1.0, 3.0]


@on_torch
def test_an_average_that_overwrites_is_gated_when_compiled():
    import torch

    v, u, opt = overwriting()

    @torch.compile(backend="eager")
    def step(gradient):
        opt.apply_gradients([(gradient, v)], gradients_scaled=True)

    step(torch.tensor([float("nan")]))
    assert (float(v.numpy()[0]), float(u.numpy()[0])) == (1.0, 3.0)


@on_torch
def test_stateless_apply_detaches():
    variable, opt = keras.Variable([1.0]), lso()
    opt.build([variable])
    opt.scale_loss(1.0)
    values = [v.value for v in opt.variables]
    new, _ = opt.stateless_apply(values, [ops.array([1.0])], [variable.value])
    assert not new[0].requires_grad
    assert not opt.loss_scale.requires_grad


@on_tensorflow
@pytest.mark.parametrize("bad", [1.0, float("nan")])
@pytest.mark.parametrize("kind", ["of unknown rank", "rows that XLA compiles"])
def test_gradients_as_tensorflow_has_them(kind, bad):
    import tensorflow as tf

    variable = keras.Variable(np.ones((2, 2), "float32"))
    opt = LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1.0)
    opt.build([variable])
    before = variable.numpy()
    if kind == "of unknown rank":

        @tf.function(input_signature=[tf.TensorSpec(None)], autograph=False)
        def step(gradient):
            opt.apply_gradients([(gradient, variable)], gradients_scaled=True)

    else:

        @tf.function(jit_compile=True, autograph=False)
        def step(gradient):
            rows = tf.IndexedSlices(gradient, tf.constant([0, 1]), (2, 2))
            opt.apply_gradients([(rows, variable)], gradients_scaled=True)

    step(tf.fill((2, 2), bad))
    assert (variable.numpy() != before).all() == (bad == 1.0)
    assert bool(opt.last_step_applied) == (bad == 1.0)
