"""Under ModelParallel the state lies as Keras' own does: slots as their weights, scalars whole."""

import json

import keras
import pytest

from tests import programs

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras shards on JAX"),
]

# Arguments: how many devices, what to do, and the file. Prints JSON, last.
PROGRAM = r"""
import hashlib, json, sys
from tests.engines import jax as engines

devices, todo, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if devices > 1:
    engines.model_parallel(devices)
import keras, numpy as np
import keras_mp

x = np.random.RandomState(0).randn(24, 6).astype("float32")
y = x.sum(1, keepdims=True)
bad = np.full_like(x, np.nan)

def optimizer():
    return keras.optimizers.Adam(0.01, use_ema=True, gradient_accumulation_steps=2)

def compiled(optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([
        keras.Input((6,)), keras.layers.Dense(8, name="hidden"), keras.layers.Dense(1, name="out")
    ])
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model

def wrapped():
    return keras_mp.LossScaleOptimizer(optimizer(), initial_scale=64.0, dynamic_growth_steps=2)

def step(model, x=x):
    model.train_on_batch(x, y)

def layouts(variables):
    "Of each variable the size of what each device holds of it."
    return [[list(s.data.shape) for s in v.value.addressable_shards] for v in variables]

def values(model):
    variables = [*model.variables, *model.optimizer.variables]
    numbers = [keras.ops.convert_to_numpy(variable) for variable in variables]
    return [hashlib.sha256(number.tobytes()).hexdigest() for number in numbers]

def told(model):
    opt = model.optimizer
    return {
        "weights": layouts(model.trainable_variables),
        "own": layouts(opt.variables[:4]),
        "inner": layouts(opt.inner_optimizer.variables),
        "values": values(model),
        "scale": float(opt.loss_scale),
        "counter": int(opt.dynamic_counter),
    }

if todo == "train":
    plain, ours = compiled(optimizer()), compiled(wrapped())
    for model in (plain, ours):
        model.optimizer.build(model.trainable_variables)
    found = {
        "plain, built": layouts(plain.optimizer.variables),
        "ours, built": layouts(ours.optimizer.inner_optimizer.variables),
    }
    for _ in range(3):
        step(plain)
        step(ours)
    step(ours, bad)
    found["plain, trained"] = layouts(plain.optimizer.variables)
    found["saved"] = told(ours)
    ours.save(f"{path}.keras")
    ours.save_weights(f"{path}.weights.h5")
    found["again"] = told(ours)
else:
    model = keras.saving.load_model(f"{path}.keras")
    found = {"load_model": told(model)}
    step(model, bad)
    step(model)
    found["continued"] = told(model)
    model = compiled(wrapped())
    model.optimizer.build(model.trainable_variables)
    model.load_weights(f"{path}.weights.h5")
    found["load_weights"] = told(model)
    model = compiled(wrapped())
    keras_mp.resume(model, f"{path}.weights.h5")
    found["resume"] = told(model)
print(json.dumps(found))
"""


def run(*arguments):
    said = programs.run("-c", PROGRAM, *arguments, timeout=100, imported=True)
    return json.loads(said.splitlines()[-1])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("sharded") / "model"


@pytest.fixture(scope="module")
def trained(path):
    """What training on four devices found; the files at `path` are written by then."""
    return run(4, "train", path)


def layout(shape, cut, devices):
    """What each device holds: the whole, or, of what is cut in two along an axis, a half."""
    shape = list(shape)
    if cut is not None and devices > 1:
        shape[cut] //= 2
    return [shape] * devices


def of_model(devices):
    """The layout of each trainable weight: the hidden layer's are cut, the others whole."""
    return [
        layout(shape, cut, devices)
        for shape, cut in [((6, 8), 1), ((8,), 0), ((8, 1), None), ((1,), None)]
    ]


def test_slots_lie_as_their_weights(trained):
    assert trained["saved"]["weights"] == of_model(4)
    slots = [layouts for layouts in trained["saved"]["inner"] if layouts[0]]
    assert len(slots) == 4 * 4  # two moments, an average and a sum of gradients for each
    for one in of_model(4):
        assert slots.count(one) >= 4
    assert trained["saved"]["own"] == [[[]] * 4] * 4


def test_as_those_of_the_plain_optimizer(trained):
    """Variable by variable, when built and after steps, one of them skipped."""
    assert trained["plain, built"] == trained["ours, built"]
    assert trained["plain, trained"] == trained["saved"]["inner"] == trained["ours, built"]
    assert (trained["saved"]["scale"], trained["saved"]["counter"]) == (64.0, 0)


def test_saving_changes_nothing(trained):
    assert trained["again"] == trained["saved"]


@pytest.mark.parametrize("devices", [8, 2, 1])
def test_is_restored_on_another_number_of_devices(trained, path, devices):
    """To the bit, and cut again as these devices have it."""
    found = run(devices, "load", path)
    for how in ("load_model", "load_weights", "resume", "continued"):
        assert found[how]["weights"] == of_model(devices)
        assert found[how]["own"] == [[[]] * devices] * 4
        assert [each[:1] for each in found[how]["inner"]] == [
            each[:1] if devices > 1 else layout(whole(each[0]), None, 1)
            for each in trained["saved"]["inner"]
        ]
        if how != "continued":
            assert found[how]["values"] == trained["saved"]["values"]
    assert (found["continued"]["scale"], found["continued"]["counter"]) == (32.0, 1)


def whole(shard):
    """The shape of the variable that a device of several holds this of."""
    return {(6, 4): [6, 8], (4,): [8]}.get(tuple(shard), shard)
