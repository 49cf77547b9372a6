"""What loss scaling adds to the traffic between devices, in the compiled step on JAX."""

import json
import subprocess
import sys
from pathlib import Path

import keras
import pytest

pytestmark = [
    pytest.mark.slow,
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
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(8, activation="tanh", name="hidden")
    model = keras.Sequential([keras.Input((6,)), hidden, keras.layers.Dense(1, name="out")])
    model.compile(optimizer, "mse")
    x, y = np.ones((24, 6), "float32"), np.ones((24, 1), "float32")
    model.fit(x, y, batch_size=24, verbose=0)
    sharding = NamedSharding(hidden.kernel.value.sharding.mesh, PartitionSpec("batch"))
    batch = tuple(jax.device_put(a, sharding) for a in (x, y))
    groups = (model.trainable_variables, model.non_trainable_variables, optimizer.variables,
              model.metrics_variables)
    state = tuple([v.value for v in group] for group in groups)
    step = jax.jit(lambda state, batch: model.train_step(state, batch))
    text = step.lower(state, batch).compile().as_text()
    kinds = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
    return re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text)

def sgd():
    return keras.optimizers.SGD(0.05, momentum=0.9)

print(json.dumps([collectives(sgd()), collectives(keras_mp.LossScaleOptimizer(sgd()))]))
"""


def of_steps(engine):
    """Returns the (shapes, kind) of each collective: without loss scaling, and with it."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, engine],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return json.loads(found.stdout.splitlines()[-1])


def test_data_parallel_adds_none():
    """Each device has the whole gradient, after the reduction that every training has."""
    plain, ours = of_steps("data parallel")
    assert [kind for _, kind in plain] == [kind for _, kind in ours] == ["all-reduce"]


def test_model_parallel_adds_one_of_scalars():
    plain, ours = of_steps("model parallel")
    assert all(kind == "all-reduce" for _, kind in plain + ours)
    shapes = [shape for shape, _ in ours if set(shape.strip("()").split(", ")) == {"f32[]"}]
    assert len(ours) == len(plain) + 1
    assert len(shapes) == 1
