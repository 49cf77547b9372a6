"""`benchmarks/train_step.py`, `cuda.py` and `sixteen_bit.py`: that what they measure is training.

No times: those depend on the machine.
"""

import argparse

import keras
import numpy as np
import pytest

import keras_mp
from benchmarks import monitor, sixteen_bit, train_step
from benchmarks.on_a_gpu import jax_steps, measuring, models, states, table as tables, torch_steps
from benchmarks.on_a_gpu.policies import NARROW, REWRITE
from benchmarks.on_a_gpu.sizes import QUICK
from keras_mp.fused_rules import XLA
from tests.backends import on_one

BACKEND = keras.backend.backend()
TINY = argparse.Namespace(batch=4, steps=3, width=16, sequence=4, repeat=1)
NATIVE = {"torch": torch_steps.Torch, "jax": jax_steps.Jax}
VARIANTS = ["plain", "Keras' own", "ours", *([] if BACKEND == "jax" else ["ours, fused"])]


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (model, mode)
        for mode in monitor.MODES[BACKEND]
        for model in train_step.MODELS
        if mode != "xla" or model == "convnet"  # XLA takes half a minute for the other
    ],
)
def test_all_variants_train_alike(model, mode):
    found = train_step.measure(model, mode, TINY)["variants"]
    assert list(found) == VARIANTS
    losses = [each["loss"] for each in found.values()]
    # Scales are powers of two; what rounds elsewhere are kernels, and what XLA fuses.
    np.testing.assert_allclose(losses, losses[0], rtol=1e-4)
    fallback = found.pop(VARIANTS[-1])["fallback"]
    assert fallback == (XLA if mode == "xla" else None)
    assert all(each["fallback"] is None for each in found.values())


@on_one
def test_what_does_not_train_is_not_timed():
    make = train_step.makers(rate=0.0)["plain"]
    run = train_step.Run("transformer", make, False, TINY)
    with pytest.raises(ArithmeticError, match="does not train"):
        run.warm_up()


def test_weights_in_16_bits_learn_and_plain_ones_do_not():
    """Towards targets that are a few thousandths away."""
    task = sixteen_bit.tasks()["regression"]
    ends = {
        variant: np.mean(sixteen_bit.train(task, variant, 0, 250)[-50:])
        for variant in ("mixed", "plain bfloat16", "split", "StochasticRounding")
    }
    assert ends["split"] < 1.2 * ends["mixed"]
    assert ends["mixed"] < ends["StochasticRounding"] < 0.9 * ends["plain bfloat16"]


@on_one
def test_every_task_has_what_it_needs():
    for task in sixteen_bit.tasks().values():
        x, y = task.data(0)
        model = task.model()
        assert tuple(model(x[:2]).shape[:-1]) == y[:2].shape[: len(model.output_shape) - 1]


def test_sizes_are_those_of_the_model():
    size = QUICK["quick"]
    shapes = [tuple(variable.shape) for variable in models.decoder(size).trainable_variables]
    assert shapes == size.shapes()


def steps_of(found, name):
    """Takes a few steps of a variant, and returns how its loss scale ended."""
    steps = found[name]()
    before = steps.scale()
    for _ in range(2):
        steps.take()
    steps.wait()
    assert steps.scale() == before, "a step was skipped"
    return before


@pytest.mark.skipif(BACKEND == "tensorflow", reason="torch and JAX only")
def test_variants_for_a_device_take_their_steps(monkeypatch):
    monkeypatch.setattr(states, "KEPT", 1000)  # so that some states are made anew
    native = NATIVE[BACKEND](quick=False)
    peers = ["torch Adam", "GradScaler"] if BACKEND == "torch" else []
    updates = native.updates(QUICK["quick"])
    training = native.training(QUICK["quick"], 1024.0)
    assert list(updates) == list(training) == VARIANTS + peers
    for name in updates:
        unscaled = name in ("plain", "torch Adam")
        assert steps_of(updates, name) == (None if unscaled else 1.0)
        assert steps_of(training, name) == (None if unscaled else 1024.0)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="torch and JAX only")
@pytest.mark.parametrize("policy", [REWRITE, NARROW])
def test_other_ways_to_16_bits_take_their_steps(policy):
    native = NATIVE[BACKEND](quick=False)
    training = native.training(QUICK["quick images"], 1024.0, policy)
    scaled = [name for name in VARIANTS if name.startswith("ours")]
    narrow = ["MasterWeights", "MasterWeights, split", "StochasticRounding"]
    assert list(training) == (scaled if policy == REWRITE else narrow)
    for name in training:
        assert steps_of(training, name) == (1024.0 if policy == REWRITE else None)
    keras_mp.graph_rewrite.disable()
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.skipif(BACKEND == "tensorflow", reason="torch and JAX only")
def test_parts_come_as_they_are_measured():
    given = {"quick": True, "repeat": 1, "block": 0.001, "seconds": 300.0}
    options = argparse.Namespace(sizes=["quick images"], policies=["float32"], **given)
    head, table = measuring.inside(options)
    assert (head["backend"], head["device"]) == (BACKEND, "cpu")
    assert list(table["variants"])[:3] == VARIANTS[:3]
    rows = list(tables.rows_of(head | {"tables": [table]}, table))
    assert all(len(row) == len(tables.HEADS) for row in rows)
    assert rows[0][5] == "1.00", "plain float32 is as fast as itself"
    options.seconds = 0.0
    _, table = measuring.inside(options)
    assert table["left out"] == "no time was left"


@on_one
def test_only_the_section_is_replaced():
    before = f"head\n{tables.BEGIN}\nold\n{tables.END}\ntail\n"
    after = tables.replaced(before, "new")
    assert after == f"head\n{tables.BEGIN}\n\nnew\n\n{tables.END}\ntail\n"
    assert tables.replaced(after, "new") == after
    for wrong in ("", f"{tables.END}{tables.BEGIN}", before + before):
        with pytest.raises(ValueError, match="once each"):
            tables.replaced(wrong, "new")


@on_one
def test_the_table():
    """28 bytes for each of 1e9 parameters in 28 ms are 1e12 a second, half of what a copy does."""
    each = {"milliseconds": [27.0, 28.0, 29.0], "ratio": [1.0, 1.0, 1.0]}
    each |= {"skipped": False, "fallback": None}
    variants = {"plain": each, "ours": each | {"skipped": True}, "GradScaler": {"failed": "why"}}
    table = {"size": "1B", "parameters": 10**9, "policy": None}
    found = {"backend": "torch", "device": "D", "versions": {"torch": "2"}, "copy": 2e12}
    found["tables"] = [table | {"variants": variants}, table | {"left out": "too large"}]
    training = {"milliseconds": [13.0, 14.0, 15.0], "memory": 5 * 10**9, "waits": 1}
    found["tables"] += [
        table | {"policy": "mixed_float16", "variants": {"ours": each | training}},
        table | {"policy": "float32", "variants": {"plain": each}},
    ]
    text = tables.markdown([found], "2026-01-01", argparse.Namespace(repeat=9))
    times = "28.000 (27.000 to 29.000) | 1.000 (1.000 to 1.000)"
    half = "14.000 (13.000 to 15.000) | 1.000 (1.000 to 1.000)"
    assert text.splitlines()[-6:] == [
        f"| 1B | optimizer | plain | {times} | - | 0.50 | - | - |",
        f"| 1B | optimizer | ours (skipped) | {times} | - | 0.57 | - | - |",
        "| 1B | optimizer | GradScaler | why |  |  |  |  |  |",
        "| 1B | optimizer | all | left out: too large |  |  |  |  |  |",
        f"| 1B | training, mixed_float16 | ours | {half} | 2.00 | - | 5.00 | 1 |",
        f"| 1B | training, float32 | plain | {times} | 1.00 | - | - | - |",
    ]
