"""What a recurrent layer of a rewritten model computes: the step of its loop, as it is lowered."""

from collections import Counter

import keras
import numpy as np
import pytest
from keras import layers

from keras_mp import graph_rewrite
from tests.graph_rewrite_kinds import BACKEND
from tests.lowered import float16_on_cpu, inference, products, training_step

pytestmark = pytest.mark.usefixtures("rewrite_ends")

STEPS = 6
LAYERS = {
    "LSTM": lambda: layers.LSTM(5),
    "GRU": lambda: layers.GRU(5),
    "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(5)),
}


def model_of(*more):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((STEPS, 4)), *more])


def example():
    return np.random.RandomState(0).rand(3, STEPS, 4).astype("float32")


# Of an LSTM: two products, three sums, three gates, two tanh, three products by element.
IN_A_STEP = {
    "jax": {"dot_general": 2, "add": 3, "exponential": 3, "tanh": 2, "multiply": 3},
    "tensorflow": {"MatMul": 2, "AddV2": 3, "Sigmoid": 3, "Tanh": 2, "Mul": 3},
    "torch": {"mm": 2, "add": 3, "sigmoid": 3, "tanh": 2, "mul": 3},
}[BACKEND]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gates_sums_and_products_of_a_step_are_low(dtype):
    model = model_of(layers.LSTM(5, name="lstm"), layers.Dense(2, name="out"))
    graph_rewrite.apply(model, dtype=dtype)
    with float16_on_cpu():
        step = inference(model, example())
    low = Counter(op.name for op in step if op.dtypes == {dtype})
    times = STEPS if BACKEND == "torch" else 1
    for name, count in IN_A_STEP.items():
        assert low[name] >= times * count, (name, low)
    wide = Counter(op.name for op in step if op.dtypes == {"float32"})
    for name in IN_A_STEP.keys() - {"add", "AddV2", "multiply", "Mul", "mul"}:
        assert wide[name] == 0, (name, wide)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "Bidirectional"])
def test_a_training_step_has_no_gate_in_float32(name):
    model = model_of(LAYERS[name](), layers.Dense(1))
    optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.01))
    model.compile(optimizer, "mse", jit_compile=False)
    with float16_on_cpu():
        step = training_step(model, example(), np.ones((3, 1), "float32"))
    gates = {"exponential", "tanh", "Sigmoid", "Tanh", "SigmoidGrad", "TanhGrad", "sigmoid"}
    gates |= {"sigmoid_backward", "tanh_backward"}
    found = [op for op in step if op.name in gates]
    assert len(found) >= 3
    assert {op.dtypes for op in found} == {frozenset({"float16"})}
    assert {op.dtypes for op in products(step)} == {frozenset({"float16"})}
