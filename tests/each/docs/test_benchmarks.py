"""`benchmarks/train_step.py`, `cuda.py` and `sixteen_bit.py`: that what they measure is training.

`benchmarks/saved_graphs.py`: that graph and model predict the same.

No times: those depend on the machine.
"""

import argparse
import sys

import keras
import numpy as np
import pytest

import keras_mp
from benchmarks import cuda, monitor, saved_graphs, sixteen_bit, train_step
from benchmarks.on_a_gpu import measuring, models, states, table as tables, tensorflow_steps, timing
from benchmarks.on_a_gpu.policies import NARROW, REWRITE
from benchmarks.on_a_gpu.sizes import QUICK, Size
from keras_mp.backends.common.fused_rules import XLA
from keras_mp.compat import load_model
from tests.backends import on_one, on_torch
from tests.fixtures import DATA

BACKEND = keras.backend.backend()
TINY = argparse.Namespace(batch=4, steps=3, width=16, sequence=4, repeat=1)
VARIANTS = ["plain", "Keras' own", "ours", *([] if BACKEND == "jax" else ["ours, fused"])]


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (model, mode)
        for mode in monitor.MODES[BACKEND]
        for model in train_step.MODELS
        # The other takes half a minute to compile, and its losses are compared on PyTorch.
        if model == "convnet" or BACKEND == "torch"
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


@on_torch
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


def test_variants_for_a_device_take_their_steps(monkeypatch):
    monkeypatch.setattr(states, "KEPT", 1000)  # so that some states are made anew
    native = measuring.NATIVE[BACKEND](quick=False)
    peers = ["torch Adam", "GradScaler"] if BACKEND == "torch" else []
    updates = native.updates(QUICK["quick"])
    training = native.training(QUICK["quick"], 1024.0)
    assert list(updates) == list(training) == VARIANTS + peers
    for name in updates:
        unscaled = name in ("plain", "torch Adam")
        assert steps_of(updates, name) == (None if unscaled else 1.0)
        assert steps_of(training, name) == (None if unscaled else 1024.0)


@pytest.mark.parametrize("policy", [REWRITE, NARROW])
def test_other_ways_to_16_bits_take_their_steps(policy):
    native = measuring.NATIVE[BACKEND](quick=False)
    training = native.training(QUICK["quick images"], 1024.0, policy)
    scaled = [name for name in VARIANTS if name.startswith("ours")]
    narrow = ["MasterWeights", "MasterWeights, split", "StochasticRounding"]
    assert list(training) == (scaled if policy == REWRITE else narrow)
    for name in training:
        assert steps_of(training, name) == (1024.0 if policy == REWRITE else None)
    keras_mp.graph_rewrite.disable()
    assert keras.config.dtype_policy().name == "float32"


@on_one
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


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the others have one way to compile")
def test_graphs_stand_beside_what_xla_compiles():
    """As on a GPU."""
    native = measuring.NATIVE[BACKEND](quick=False)
    native.xla = True
    found = native.updates(Size(1, 8, 1, vocabulary=10, sequence=4))
    graphs = ["plain, graph", "ours, graph", "ours, fused, graph"]
    assert list(found) == ["plain", "Keras' own", "ours", *graphs]
    for name in ("ours", "ours, fused, graph"):
        assert steps_of(found, name) == 1.0
        assert found[name]().fallback() is None


@pytest.mark.skipif(BACKEND != "tensorflow", reason="others make new arrays")
def test_variables_are_emptied_and_filled(monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(states, "KEPT", 3)
    small, large, weight = (keras.Variable(np.full(n, 2.0, "float32")) for n in (3, 4, 5))
    state = tensorflow_steps.State([weight], [small, large])
    for _ in range(2):
        state.empty()
        held = [tf.raw_ops.VariableShape(input=v.value.handle) for v in (small, large, weight)]
        assert [shape.numpy().tolist() for shape in held] == [[3], [0], [0]]
        small.assign([1.0, 1.0, 1.0])
        state.fill()
        np.testing.assert_array_equal(small.numpy(), [2.0, 2.0, 2.0])
        np.testing.assert_array_equal(large.numpy(), [0.0, 0.0, 0.0, 0.0])
        assert 0 < np.abs(weight.numpy()).max() < 0.1


@pytest.mark.skipif(BACKEND != "tensorflow", reason="an error of TensorFlow's own kind")
def test_what_does_not_fit_is_left_out():
    import tensorflow as tf

    native = measuring.NATIVE[BACKEND](quick=False)
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    assert isinstance(error, native.failures)
    assert timing.why_left_out(error, native) == "out of memory"


def test_a_backend_that_sees_no_gpu_or_is_not_there(monkeypatch):
    assert not measuring.sees_a_device(BACKEND)
    monkeypatch.setitem(sys.modules, BACKEND, None)
    assert not measuring.sees_a_device(BACKEND)


@on_one
def test_the_others_go_on_without_it(monkeypatch, capsys):
    asked = []

    def as_measured(backend, options):
        if "look" in options:
            yield {"seen": backend != "tensorflow"}
        else:
            asked.append((backend, options["seconds"]))
            yield {"backend": backend, "device": "D", "versions": {}, "copy": 0.0}
            yield {"size": "125M", "policy": None, "left out": "why"}

    monkeypatch.setattr(cuda, "as_measured", as_measured)
    monkeypatch.setattr(sys, "argv", ["cuda.py", "--seconds", "100"])
    assert cuda.main() == 0
    backends, seconds = zip(*asked, strict=True)
    assert backends == ("torch", "jax")
    np.testing.assert_allclose(seconds, (60, 40), rtol=0.01)
    told = capsys.readouterr()
    assert told.err.startswith("No CUDA device is visible to tensorflow: nothing is measured there")
    assert told.out.count("| 125M | optimizer | all | left out: why |") == 2
    monkeypatch.setattr(sys, "argv", ["cuda.py", "--backends", "tensorflow"])
    assert cuda.main() == 2


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
    variants = {
        "plain": each,
        "plain, graph": each,
        "ours": each | {"skipped": True},
        "GradScaler": {"failed": "why"},
    }
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
    assert text.splitlines()[-7:] == [
        f"| 1B | optimizer | plain | {times} | - | 0.50 | - | - |",
        f"| 1B | optimizer | plain, graph | {times} | - | 0.50 | - | - |",
        f"| 1B | optimizer | ours (skipped) | {times} | - | 0.57 | - | - |",
        "| 1B | optimizer | GradScaler | why |  |  |  |  |  |",
        "| 1B | optimizer | all | left out: too large |  |  |  |  |  |",
        f"| 1B | training, mixed_float16 | ours | {half} | 2.00 | - | 5.00 | 1 |",
        f"| 1B | training, float32 | plain | {times} | 1.00 | - | - | - |",
    ]


def test_graphs_predict_what_is_measured_beside_them(tmp_path):
    folder = DATA.parent / "saved_graphs"
    found = dict(saved_graphs.saved_models(folder, tmp_path))
    assert {"batch_norm", "dropout", "module"} <= found.keys()
    model = load_model(found["batch_norm"])
    graph = load_model(found["batch_norm"], from_graph=True)
    arrays = saved_graphs.batch_of(model, 3)
    assert [one.shape for one in arrays] == [(3, 6, 6, 2)]
    results = [saved_graphs.predicting(one, arrays)() for one in (model, graph)]
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
    options = argparse.Namespace(batch=2, calls=1, repeat=1)
    assert saved_graphs.measured(found["batch_norm"], options).keys() == {"milliseconds", "ratio"}
