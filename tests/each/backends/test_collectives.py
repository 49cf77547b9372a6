"""What loss scaling adds to the traffic between devices, in the compiled step on JAX."""

import json
import re

import keras
import pytest

from tests import programs
from tests.durations import shared

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="reads the HLO of XLA"),
]

PROGRAM = r"""
import json, re, sys
from tests.engines import jax as engines

getattr(engines, sys.argv[1].replace(" ", "_"))(8)
import jax, keras, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
import keras_mp

def collectives(optimizer):
    "The (shapes, kind) of each, in the step that Keras compiles."
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(8, activation="tanh", name="hidden")
    model = keras.Sequential([keras.Input((6,)), hidden, keras.layers.Dense(1, name="out")])
    model.compile(optimizer, "mse")
    x, y = np.ones((24, 6), "float32"), np.ones((24, 1), "float32")
    model.evaluate(x, y, batch_size=24, verbose=0)  # makes the metrics, for less than a fit
    optimizer.build(model.trainable_variables)
    sharding = NamedSharding(hidden.kernel.value.sharding.mesh, PartitionSpec("batch"))
    batch = tuple(jax.device_put(a, sharding) for a in (x, y))
    groups = (model.trainable_variables, model.non_trainable_variables, optimizer.variables,
              model.metrics_variables)
    state = tuple([v.value for v in group] for group in groups)
    step = jax.jit(lambda state, batch: model.train_step(state, batch))
    text = step.lower(state, batch).compile().as_text()
    kinds = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
    return re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text)

made = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "clipnorm": lambda: keras.optimizers.Adam(0.05, clipnorm=0.5),
    "global_clipnorm": lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.5),
    "use_ema": lambda: keras.optimizers.Adam(0.05, use_ema=True, ema_overwrite_frequency=2),
    "accumulation": lambda: keras.optimizers.SGD(0.05, gradient_accumulation_steps=2),
}
print(json.dumps({
    name: [collectives(make()), collectives(keras_mp.LossScaleOptimizer(make()))]
    for name, make in made.items()
}))
"""


OPTIMIZERS = ["momentum", "clipnorm", "global_clipnorm", "use_ema", "accumulation"]


@pytest.fixture(scope="module")
def of_steps():
    """A function of an engine: (shapes, kind) of each collective of the plain step, and of ours."""

    @shared
    def found(engine):
        said = programs.run("-c", PROGRAM, engine, imported=True)
        return json.loads(said.splitlines()[-1])

    return lambda engine, optimizer: found(engine)[optimizer]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_data_parallel_adds_none(of_steps, optimizer):
    """Each device has the whole gradient, after the reduction that every training has."""
    plain, ours = of_steps("data parallel", optimizer)
    assert [kind for _, kind in plain] == [kind for _, kind in ours] == ["all-reduce"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_model_parallel_adds_one_of_scalars_at_most(of_steps, optimizer):
    """None where norms are reduced anyway: XLA sends the sums of the check along."""
    plain, ours = of_steps("model parallel", optimizer)
    assert all(kind == "all-reduce" for _, kind in plain + ours)
    assert len(ours) <= len(plain) + 1
    assert len(ours) - len(scalars(ours)) == len(plain) - len(scalars(plain))


def scalars(collectives):
    """Returns the shapes of those that hold numbers only, no array."""
    shapes = [shape for shape, _ in collectives]
    return [shape for shape in shapes if set(re.findall(r"\w+\[.*?\]", shape)) == {"f32[]"}]
