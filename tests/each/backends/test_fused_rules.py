"""What `fused=True` refuses, where it takes the default path, and what is left of a step."""

import functools
import re

import keras
import numpy as np
import pytest
from keras import ops

from benchmarks import monitor as benchmark
from keras_mp import LossScaleOptimizer
from keras_mp.backends.common.fused_rules import XLA
from tests import programs
from tests.fused_cases import (
    BACKEND,
    CASES,
    FUSED,
    INF,
    SCALE,
    apply,
    fused_only,
    make,
    numpy,
    o,
    on_tensorflow,
    on_torch,
    unscaled,
)

# -- errors ----------------------------------------------------------------------------------------


class MyAdam(o.Adam):
    pass


def own_method():
    optimizer = o.Adam()
    object.__setattr__(optimizer, "update_step", lambda *args: None)
    return optimizer


def excluding():
    optimizer = o.AdamW()
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


CLASSES = "supports Adam, AdamW, SGD, Adagrad, RMSprop of keras.optimizers, but inner_optimizer"
REFUSED = {
    "class": (o.Lion, f"{CLASSES} is of the class Lion. Use one of them, or use fused=False."),
    "subclass": (
        MyAdam,
        f"{CLASSES} is of the class MyAdam, a subclass of Adam that may have another rule. Use one "
        "of them, or use fused=False.",
    ),
    "method": (own_method, "does not support the update_step that was set on this Adam: fused"),
    "excluded": (excluding, "does not support exclude_from_weight_decay of AdamW: fused kernels"),
    "accumulation": (
        lambda: o.SGD(gradient_accumulation_steps=2),
        "does not support gradient_accumulation_steps=2 of SGD: fused kernels have no such rule. "
        "Leave gradient_accumulation_steps out, or use fused=False.",
    ),
    "clipnorm": (lambda: o.Adam(clipnorm=1.0), "does not support clipnorm=1.0 of Adam"),
    "clipvalue": (lambda: o.SGD(clipvalue=0.5), "does not support clipvalue=0.5 of SGD"),
    "global": (
        lambda: o.Adam(global_clipnorm=1.0),
        "does not support global_clipnorm=1.0 of Adam",
    ),
    "EMA": (lambda: o.RMSprop(use_ema=True), "does not support use_ema=True of RMSprop"),
}


@pytest.mark.parametrize(("inner", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(inner, message):
    with pytest.raises(ValueError, match=f"^fused=True {re.escape(message)}"):
        LossScaleOptimizer(inner(), fused=True)
    LossScaleOptimizer(inner())  # not without


@pytest.mark.parametrize("option", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_refused_when_set_later(option, state):
    optimizer, variables = make(o.Adam(), fused=True)
    apply(optimizer, variables, unscaled(1))
    before = state([*variables, *optimizer.variables])
    setattr(optimizer, option, 0.5)
    with pytest.raises(ValueError, match=f"does not support {option}=0.5 of Adam"):
        apply(optimizer, variables, unscaled(2))
    assert state([*variables, *optimizer.variables]) == before
    setattr(optimizer, option, None)
    apply(optimizer, variables, unscaled(2))


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_fused_must_be_a_bool(value):
    with pytest.raises(TypeError, match="fused must be True or False, but got"):
        LossScaleOptimizer(o.Adam(), fused=value)


def test_an_optimizer_that_is_refused_can_be_wrapped_otherwise():
    inner = o.Adam(clipnorm=1.0)
    with pytest.raises(ValueError, match="clipnorm"):
        LossScaleOptimizer(inner, fused=True)
    LossScaleOptimizer(inner)


# -- fallbacks -------------------------------------------------------------------------------------


WITHOUT_KERNELS = {
    "epsilon": (lambda: o.Adagrad(epsilon=1e-3), "Adagrad with epsilon above"),
    "no accumulator": (lambda: o.Adagrad(initial_accumulator_value=0.0), "Adagrad with epsilon"),
    "centered": (lambda: o.RMSprop(centered=True, momentum=0.9), "RMSprop"),
    "no momentum": (o.RMSprop, "RMSprop"),
}


@pytest.mark.parametrize(("inner", "reason"), WITHOUT_KERNELS.values(), ids=WITHOUT_KERNELS)
def test_options_without_a_kernel(inner, reason, state):
    fused, weights = make(inner(), fused=True)
    plain, others = make(inner())
    for step in (None, 1, 2):
        assert (reason if BACKEND != "jax" else XLA) in fused.fused_fallback
        for each in ((fused, weights), (plain, others)):
            if step:
                apply(*each, unscaled(step))
    assert state(weights) == state(others)


@fused_only
def test_sparse_gradients():
    optimizer, variables = make(o.SGD(1.0), fused=True)
    before = numpy(variables)[0]
    if BACKEND == "torch":
        import torch

        rows = torch.sparse_coo_tensor(
            torch.tensor([[2]]), torch.ones(1, 5), (7, 5), check_invariants=True
        )
    else:
        import tensorflow as tf

        rows = tf.IndexedSlices(tf.ones((1, 5)), tf.constant([2]), (7, 5))
    assert optimizer.fused_fallback is None
    optimizer.apply_gradients([(rows, variables[0])], gradients_scaled=False)
    assert optimizer.fused_fallback.endswith("v0 is sparse")
    before[2] -= 1
    np.testing.assert_allclose(numpy(variables)[0], before, rtol=1e-6)
    apply(optimizer, variables, unscaled(1))
    assert optimizer.fused_fallback is None


@fused_only
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_variables_of_other_dtypes(dtype):
    variable = keras.Variable(np.ones(4), dtype=dtype)
    optimizer = LossScaleOptimizer(o.SGD(0.5), fused=True)
    optimizer.build([variable])
    assert optimizer.fused_fallback.endswith(f"is of {dtype}, not float32")
    optimizer.apply_gradients([(ops.ones(4, dtype), variable)], gradients_scaled=False)
    assert numpy([ops.cast(variable, "float32")])[0].tolist() == [0.5] * 4


@fused_only
def test_variables_that_take_their_gradient_as_value():
    optimizer, variables = make(o.SGD(0.5), fused=True)
    variables[1].overwrite_with_gradient = True
    apply(optimizer, variables, unscaled(1))
    assert "takes its gradient as its new value (float8)" in optimizer.fused_fallback
    np.testing.assert_array_equal(numpy(variables)[1], unscaled(1)[1] * SCALE)


@on_tensorflow
@pytest.mark.processes
@pytest.mark.parametrize("devices", [1, 2])
def test_strategies(devices):
    """In a process of its own, because logical devices must exist before TensorFlow starts."""
    programs.run("-c", REPLICAS, devices, imported=True)


REPLICAS = """
import sys, keras, numpy as np, tensorflow as tf
from keras_mp import LossScaleOptimizer
cpu, devices = tf.config.list_physical_devices("CPU")[0], int(sys.argv[1])
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"][:devices])
with strategy.scope():
    variable = keras.Variable(np.ones(4, "float32"))
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.5), fused=True, initial_scale=4.0)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
step = tf.function(lambda: optimizer.apply([tf.fill((4,), 4.0)], [variable]))
strategy.run(step)
assert optimizer.fused_fallback == "under MirroredStrategy Keras updates the replicas"
assert variable.numpy()[0] == 1 - 0.5 * devices, variable.numpy()
"""


def test_nothing_is_said_of_the_default_path():
    optimizer, variables = make(o.RMSprop())
    apply(optimizer, variables, unscaled(1))
    assert (optimizer.fused, optimizer.fused_fallback) == (False, None)


# -- counts ----------------------------------------------------------------------------------------


@on_torch
@pytest.mark.parametrize("skipped", [False, True], ids=["taken", "skipped"])
@pytest.mark.parametrize(
    ("name", "most"), [("Adam", 45), ("AdamW", 50), ("SGD", 45), ("momentum", 45), ("Adagrad", 45)]
)
@pytest.mark.parametrize("host", [True, False], ids=["host", "device"])
def test_calls_of_torch(name, most, skipped, host, monkeypatch):
    from keras_mp.backends.torch import batched as batched_torch

    monkeypatch.setattr(batched_torch, "is_host", lambda device: host)
    optimizer, variables = many(CASES[name][0](), 400, fused=True)
    gradient = np.full(4, INF if skipped else 1.0, "float32")
    found = benchmark._of_torch(optimizer, [ops.array(gradient) for _ in variables], variables)
    assert (found.get("waits", 0) > 0) == host  # where it is none: the numbers are there
    assert 0 < found["calls"] <= most + 5 * (host and skipped)  # then it is looked at twice


@on_tensorflow
@pytest.mark.parametrize("name", FUSED)
def test_nodes_of_tensorflow(name):
    assert 0 < count_nodes(*many(CASES[name][0](), 40, fused=True)) < 0.5 * nodes_of_adam()


@functools.cache
def nodes_of_adam():
    return count_nodes(*many(o.Adam(), 40))


def count_nodes(optimizer, variables):
    gradients = [ops.ones(4) for _ in variables]
    return benchmark._of_tensorflow(optimizer, gradients, variables)["nodes"]


def many(inner, count, **settings):
    variables = [keras.Variable(np.ones(4, "float32")) for _ in range(count)]
    optimizer = LossScaleOptimizer(inner, **settings) if settings else inner
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    return optimizer, variables


@on_tensorflow
@pytest.mark.parametrize(
    ("elements", "kernels"), [(8_191, 1), (8_192, 0), (49_151, 0), (49_152, 1)]
)
@pytest.mark.parametrize("cores", [1, 2])
def test_tensors_for_which_a_kernel_takes_longer(elements, kernels, cores, monkeypatch):
    """On several cores Keras' own rule updates them, and nothing falls back."""
    import tensorflow as tf

    from keras_mp.backends.tensorflow import fused as fused_tensorflow

    monkeypatch.setattr(fused_tensorflow, "_CORES", cores)
    variable = keras.Variable(np.ones(elements, "float32"))
    optimizer = LossScaleOptimizer(keras.optimizers.Adam(0.1), fused=True)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
    step = tf.function(lambda gradient: optimizer.apply([gradient], [variable]), autograph=False)
    library = step.get_concrete_function(tf.ones(elements)).graph.as_graph_def().library
    ops_of = [node.op for function in library.function for node in function.node_def]
    assert ops_of.count("ResourceApplyAdam") == (kernels if cores > 1 else 1)
    assert optimizer.fused_fallback is None
    step(tf.fill([elements], float(optimizer.dynamic_scale.numpy())))
    np.testing.assert_allclose(ops.convert_to_numpy(variable), 0.9, rtol=1e-5)
