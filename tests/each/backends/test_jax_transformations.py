"""A step under the transformations of JAX, against the rule written again in plain Python."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from tests import programs

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="about JAX")

INF, NAN = float("inf"), float("nan")
FACTORS = [1.0, 2.0, INF, 1.0, NAN, 0.5, 1.0, 3.0]  # gradients of the one weight, each a step
SCALE, GROWTH, RATE, MOMENTUM = 8.0, 2, 0.25, 0.5


def by_hand(factors, scale=SCALE):
    """The rule: (weight, scale, counter, iterations) after steps with these gradients."""
    weight, velocity, counter = 1.0, 0.0, 0
    for factor in factors:
        if not np.isfinite(factor):
            scale, counter = max(scale / 2, 1.0), 0
            continue
        velocity = MOMENTUM * velocity - RATE * factor
        weight += velocity
        scale, counter = (scale * 2, 0) if counter + 1 == GROWTH else (scale, counter + 1)
    return weight, scale, counter, len(factors)


class Training:
    """An optimizer of one weight as pure functions of a state, ([weight], optimizer values)."""

    def __init__(self, shape=(1,)):
        self.weight = keras.Variable(np.ones(shape, "float32"))
        self.optimizer = LossScaleOptimizer(
            keras.optimizers.SGD(RATE, momentum=MOMENTUM),
            initial_scale=SCALE,
            dynamic_growth_steps=GROWTH,
        )
        self.optimizer.build([self.weight])
        self.variables = [self.weight, *self.optimizer.variables]

    def state(self):
        return [ops.copy(self.weight.value)], [ops.copy(v.value) for v in self.optimizer.variables]

    def step(self, state, factor):
        import jax

        values, optimizer_values = state

        def loss(values):
            loss = factor * values[0].sum()
            return self.optimizer.stateless_scale_loss(optimizer_values, loss)

        return self.optimizer.stateless_apply(optimizer_values, jax.grad(loss)(values), values)

    def found(self, state):
        for variable, value in zip(self.variables, [*state[0], *state[1]], strict=True):
            variable.assign(value)
        optimizer = self.optimizer
        numbers = optimizer.loss_scale, optimizer.dynamic_counter, optimizer.iterations
        (weight,) = {float(each) for each in np.ravel(self.weight.numpy())}
        return (weight, *(float(ops.convert_to_numpy(number)) for number in numbers))


@pytest.fixture
def training():
    return Training()


def scan(training, state, factors):
    import jax

    return jax.lax.scan(lambda s, f: (training.step(s, f), None), state, factors)[0]


def fori_loop(training, state, factors):
    import jax

    return jax.lax.fori_loop(
        0, len(factors), lambda i, state: training.step(state, factors[i]), state
    )


def while_loop(training, state, factors):
    import jax

    def step(carried):
        i, state = carried
        return i + 1, training.step(state, factors[i])

    return jax.lax.while_loop(lambda carried: carried[0] < len(factors), step, (0, state))[1]


def checkpoint(training, state, factors):
    import jax

    step = jax.jit(jax.checkpoint(training.step))
    for factor in factors:
        state = step(state, factor)
    return state


def donated(training, state, factors):
    import jax

    step = jax.jit(training.step, donate_argnums=0)
    for factor in factors:
        given, state = state, step(state, factor)
        assert given[0][0].is_deleted()  # what is only passed on is not
    return state


def ahead_of_time(training, state, factors):
    import jax

    step = jax.jit(training.step, donate_argnums=0).lower(state, factors[0]).compile()
    for factor in factors:
        state = step(state, factor)
    return state


@pytest.mark.filterwarnings("error:Some donated buffers were not usable")
@pytest.mark.parametrize("loop", [scan, fori_loop, while_loop, checkpoint, donated, ahead_of_time])
def test_steps_follow_the_rule(training, loop):
    import jax.numpy as jnp

    state = loop(training, training.state(), jnp.array(FACTORS))
    assert training.found(state) == by_hand(FACTORS)


def test_an_ensemble_has_a_scale_each(training):
    """vmap: the branch becomes a choice, member by member; some skip while others do not."""
    import jax
    import jax.numpy as jnp

    scales = [8.0, 1.0, 1024.0, 2.0]
    members = [FACTORS, FACTORS[::-1], [1.0] * len(FACTORS), [INF] * len(FACTORS)]
    values, optimizer_values = jax.tree.map(lambda v: jnp.stack([v] * 4), training.state())
    index = [v.path for v in training.optimizer.variables].index(
        training.optimizer.dynamic_scale.path
    )
    optimizer_values[index] = jnp.array(scales)
    state = values, optimizer_values
    step = jax.jit(jax.vmap(training.step))
    for factors in np.array(members, "float32").T:
        state = step(state, factors)
    for i, (factors, scale) in enumerate(zip(members, scales, strict=True)):
        member = jax.tree.map(lambda v, i=i: v[i], state)
        assert training.found(member) == by_hand(factors, scale)


def test_gradient_through_a_step(training):
    """d(new weight)/d(factor) of a step that is taken, -rate; of one that is skipped, 0."""
    import jax

    def new_weight(factor):
        return training.step(training.state(), factor)[0][0].sum()

    assert float(jax.jit(jax.grad(new_weight))(2.0)) == -RATE

    def bad(bias):
        values, optimizer_values = training.state()
        new, _ = training.optimizer.stateless_apply(
            optimizer_values, [ops.array([INF])], [values[0] + bias]
        )
        return new[0].sum()

    assert float(jax.jit(jax.grad(bad))(1.0)) == 1.0


def test_one_function_for_models_of_several_shapes():
    """Traced again for each."""
    import jax

    first, second, traced = Training((2,)), Training((3, 4)), []

    @jax.jit
    def double(state, factor):
        traced.append(state[0][0].shape)
        training = first if state[0][0].ndim == 1 else second
        return training.step(training.step(state, factor), factor)

    for training in (first, second, first):
        state = training.state()
        before = training.found(state)
        assert training.found(double(state, INF))[1] == max(before[1] / 4, 1.0)
    assert traced == [(2,), (3, 4)]


@pytest.mark.parametrize("steps", [1, 4])
def test_fit_donates_its_state(fit, with_nan, weights, steps):
    """Compiled, with several steps an execution: as the run without the bad batch."""
    ends = []
    for data in with_nan:
        optimizer = LossScaleOptimizer(
            keras.optimizers.SGD(0.05, momentum=0.9), initial_scale=256.0, dynamic_growth_steps=3
        )
        model = fit(optimizer, *data, epochs=2, jit_compile=True, steps_per_execution=steps)
        ends.append((weights(model), float(optimizer.loss_scale), int(optimizer.iterations)))
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    scale, counter = 256.0, 0
    for step in range(16):
        if step % 8 == 3:
            scale, counter = scale / 2, 0
        elif counter + 1 == 3:
            scale, counter = scale * 2, 0
        else:
            counter += 1
    assert ends[0][1:] == (scale, 16)


MAPPED = r"""
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec
from tests.each.backends.test_jax_transformations import FACTORS, Training, by_hand

training = Training()
optimizer = training.optimizer

def step(state, factor):
    values, optimizer_values = state
    def loss(values):
        loss = factor.sum() * values[0].sum()
        return optimizer.stateless_scale_loss(optimizer_values, loss)
    local = jax.grad(loss)(values)
    # First the sum over the devices: what one has to skip, all have.
    gradients = jax.tree.map(lambda g: jax.lax.psum(g, "batch"), local)
    return optimizer.stateless_apply(optimizer_values, gradients, values)

state = training.state()
if sys.argv[1] == "shard_map":
    mesh, spec = Mesh(np.array(jax.devices()), ["batch"]), PartitionSpec
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    # Checked, a replicated weight's gradient would be summed by JAX already.
    options = {"check_vma": False} if hasattr(jax, "shard_map") else {"check_rep": False}
    mapped = jax.jit(shard_map(step, mesh=mesh, in_specs=(spec(), spec("batch")),
                               out_specs=spec(), **options))
    shape = (4,)
else:
    mapped = jax.pmap(step, axis_name="batch")
    state = jax.tree.map(lambda v: jnp.stack([v] * 4), state)
    shape = (4, 1)
for i, factor in enumerate(FACTORS):
    # A fault is on one device only, another one each time.
    rows = np.full(4, factor / 4) if np.isfinite(factor) else np.full(4, 0.25)
    if not np.isfinite(factor):
        rows[i % 4] = factor
    state = mapped(state, jnp.array(rows, "float32").reshape(shape))
for device in range(4):
    of = (lambda v: v[device]) if sys.argv[1] == "pmap" else (
        lambda v: v.addressable_shards[device].data)
    here = jax.tree.map(lambda v: jnp.asarray(np.asarray(of(v))), state)
    assert training.found(here) == by_hand(FACTORS), (device, training.found(here))
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", ["shard_map", "pmap"])
def test_devices_that_sum_their_gradients_agree(how):
    """In a process of its own, as devices must exist before JAX starts."""
    programs.run("-c", MAPPED, how, timeout=100, imported=True)
