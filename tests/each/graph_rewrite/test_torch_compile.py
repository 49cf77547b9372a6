"""The graph rewrite under torch.compile decides and computes as without it."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("about torch.compile", allow_module_level=True)

import torch
import torch._dynamo
import torch.nn.functional as F

from keras_mp import graph_rewrite

pytestmark = [
    pytest.mark.usefixtures("rewrite_ends"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),  # torch.compile looks for it
]


@pytest.fixture(autouse=True)
def compiler_forgets():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Own(keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 4), name="w")

    def call(self, x):
        return torch.relu(F.linear(x, self.w.value.T))


def of_keras():
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((None, 4)), dense(4), dense(4)])


def of_torch():
    return keras.Sequential([keras.Input((None, 4)), keras.layers.Dense(4), Own()])


MODELS = {"keras": of_keras, "torch": of_torch}


@pytest.mark.parametrize("name", MODELS)
def test_shapes_that_change_more_often_than_it_compiles(name):
    model = MODELS[name]()
    graph_rewrite.apply(model)
    inputs = [torch.randn(2, 2 + side, 4) for side in range(3)]
    expected = [model(x, training=False) for x in inputs]
    compiled = torch.compile(lambda x: model(x, training=False), backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=1), torch.no_grad():
        for _ in range(2):
            for x, plain in zip(inputs, expected, strict=True):
                torch.testing.assert_close(compiled(x), plain)
    assert not graph_rewrite.report(model).missed


@pytest.mark.parametrize("name", MODELS)
def test_more_models_than_it_compiles(name):
    x = torch.randn(2, 3, 4)
    with torch._dynamo.config.patch(recompile_limit=1), torch.no_grad():
        for _ in range(3):
            model = MODELS[name]()
            graph_rewrite.apply(model)
            expected = model(x, training=False)
            compiled = torch.compile(model, backend="eager")
            torch.testing.assert_close(compiled(x, training=False), expected)
            assert not graph_rewrite.report(model).missed


def test_jit_compile_trains_as_eager():
    x, y = np.random.RandomState(0).randn(2, 4, 3, 4).astype("float32")
    losses, decisions = [], []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3, 4)), Own()])
        optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.05))
        model.compile(optimizer, "mse", jit_compile=jit_compile)
        found = model.fit(x, y, batch_size=4, epochs=2, verbose=0)
        losses.append(found.history["loss"])
        rows = graph_rewrite.report(model).rows
        decisions.append([(row.op, row.dtype) for row in rows])
        graph_rewrite.disable()
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    assert decisions[1] == decisions[0]


def test_a_break_of_the_graph_in_a_layer():
    class Breaking(keras.layers.Layer):
        def call(self, x):
            torch._dynamo.graph_break()
            return keras.ops.relu(x)

    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((4,)), Breaking(), dense(4)])
    graph_rewrite.apply(model)
    x = torch.randn(2, 4)
    expected = model(x, training=False)
    with torch.no_grad():
        compiled = torch.compile(lambda x: model(x, training=False), backend="eager")
        torch.testing.assert_close(compiled(x), expected)
    assert not graph_rewrite.report(model).missed


def test_a_layer_that_compiles_its_own_function():
    compiled = torch.compile(lambda x, w: torch.relu(torch.matmul(x, w)), backend="eager")

    class Compiling(keras.layers.Layer):
        def call(self, x):
            return torch.matmul(compiled(x, torch.ones(4, 4)), torch.ones(4, 4))

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), Compiling()])
    x = torch.randn(2, 4)
    plain = model(x)
    graph_rewrite.apply(model)
    for _ in range(2):
        torch.testing.assert_close(model(x), plain, rtol=1e-2, atol=1e-2)
    assert not graph_rewrite.report(model).missed
