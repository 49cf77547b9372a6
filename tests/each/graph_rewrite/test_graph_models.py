"""The rewrite of models around the graph of a SavedModel: `load_model(..., from_graph=True)`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import graph_rewrite
from keras_mp.compat import load_model
from tests import graph_recordings

pytestmark = pytest.mark.usefixtures("rewrite_ends")

STEPS = 10
# As in tests/data/saved_graphs/record.py.
RATES = {"module": 0.01, "normalized": 0.05, "attention": 0.05}
NARROW = {"matmul", "conv", "einsum"}
WIDE = {"softmax", "mean", "square", "rsqrt"}


@pytest.mark.parametrize("name", RATES)
def test_it_trains_in_float16_as_tensorflow_did_in_float32(name):
    recorded = graph_recordings.recorded(name)
    model = load_model(graph_recordings.folder(name), from_graph=True)
    moving = [one for one in model.weights if "moving" in one.name]
    before = [ops.convert_to_numpy(one) for one in moving]
    model.compile(graph_rewrite.enable(keras.optimizers.SGD(RATES[name]), 16), loss="mse")
    losses = [model.train_on_batch(recorded["x0"], recorded["target"]) for _ in range(STEPS)]
    np.testing.assert_allclose(np.array(losses, "float64"), recorded["losses"][:STEPS], rtol=1e-2)
    rows = graph_rewrite.report(model).rows
    assert {row.dtype for row in rows if row.op in NARROW} == {"float16"}
    assert {row.dtype for row in rows if row.op in WIDE} <= {"float32"}
    assert {str(one.dtype) for one in model.weights} == {"float32"}
    after = [ops.convert_to_numpy(one) for one in moving]
    assert bool(moving) == (name == "normalized")
    assert all(not np.array_equal(*pair) for pair in zip(before, after, strict=True))
