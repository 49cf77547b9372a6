"""The graph rewrite on torch's own functions and modules, beside what `torch.autocast` decides."""

import warnings

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("about functions of torch", allow_module_level=True)

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import keras_mp
from keras_mp import graph_rewrite
from keras_mp.graph_rewrite.torch_lists import OPS
from tests import torch_models
from tests.foreign_modules import images

# Python's operators count as ops of Keras on every backend, with TensorFlow's lists.
OPERATORS = {"torch.add", "torch.sub", "torch.mul", "torch.iadd", "torch.truediv"}


@pytest.fixture(autouse=True)
def restored():
    yield
    graph_rewrite.disable()


# -- decisions -------------------------------------------------------------------------------------


class Autocast(TorchFunctionMode):
    """Notes the dtype of what each function of the lists returns."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name == "add" and all(isinstance(x, torch.Tensor) for x in args):
            # As torch promotes them, for which it would need a GPU.
            args = [x.to(torch.result_type(*args)) for x in args]
        result = function(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple) else result
        if name in OPS and isinstance(first, torch.Tensor) and first.is_floating_point():
            self.seen.append((OPS[name].name, str(first.dtype).removeprefix("torch.")))
        return result


def autocast(module):
    """Returns (function, dtype) of a call of a module by torch's own rules for CUDA.

    On tensors without values, of which torch believes that they are on a GPU.
    """
    net = module().eval()
    held = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        held = {name: torch.empty(x.shape, device="cuda") for name, x in held.items()}
        x = torch.empty((4, 8, 8, 1), device="cuda")
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.float16)
        try:
            with Autocast() as seen:
                torch.func.functional_call(net, held, (x,))
        finally:
            torch.set_autocast_enabled("cuda", False)
    return [each for each in seen.seen if each[0] not in OPERATORS]


def decided(name, training=False):
    """Returns (function, dtype) of our decisions, without functions that torch has no list for."""
    found = graph_rewrite.report(torch_models.model(name), training=training)
    return [(row.op, row.dtype) for row in found.rows if row.op in {op.name for op in OPS.values()}]


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", [name for name in torch_models.MODULES if name != "transformer"])
def test_each_op_is_in_the_dtype_of_autocast(name, training):
    expected = autocast(torch_models.MODULES[name])
    assert expected
    assert decided(name, training) == expected


@pytest.mark.parametrize("training", [False, True])
def test_a_transformer_of_torch(training):
    """Written by hand: without a GPU, torch does not say what its attention would compute in."""
    attention, norm = "torch.multi_head_attention_forward float16", "torch.layer_norm float32"
    linear, relu = "torch.linear float16", "torch.relu float16"
    # The sum of two results in float16 is one, too; a normalization returns float32.
    expected = [
        *("torch.squeeze float32", linear),
        *(attention, "torch.add float16", norm, linear, relu, linear, "torch.add float32", norm),
        *(attention, "torch.add float32", norm, linear, relu, linear, "torch.add float32", norm),
        *("torch.mean float32", linear),
    ]
    found = [f"{op} {dtype}" for op, dtype in decided("transformer", training)]
    assert [each for each in found if "transpose" not in each] == expected


@pytest.mark.parametrize("training", [False, True])
def test_ops_beside_those_of_keras(training):
    found = graph_rewrite.report(torch_models.model("mixed"), training=training)
    by_op = {(row.layer, row.op): row.dtype for row in found.rows}
    assert by_op["first", "matmul"] == by_op["first", "relu"] == "float16"
    assert by_op["mixed", "torch.linear"] == by_op["mixed", "torch.gelu"] == "float16"
    assert by_op["mixed", "torch.layer_norm"] == "float32"
    assert by_op["last", "matmul"] == "float16"


def test_the_report_says_why():
    rows = {row.op: row for row in graph_rewrite.report(torch_models.model("attention")).rows}
    assert rows["torch.einsum"].why == "torch.autocast computes it in float16"
    assert rows["torch.softmax"].why == "torch.autocast computes it in float32"
    assert rows["torch.relu"].why.startswith("it computes in the dtype of its inputs, float16")
    assert rows["torch.einsum"].flops > rows["torch.softmax"].flops


def test_an_op_that_nobody_knows_is_named_and_computes_in_float32():
    class Own(keras.layers.Layer):
        def call(self, x):
            return torch.i0(x)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), Own(name="own")])
    (row,) = graph_rewrite.report(model).layer("own").rows
    assert (row.op, row.dtype) == ("torch.i0", "float32")
    assert row.why == "it is an op that the graph rewrite does not know"


def test_a_user_may_change_the_lists():
    model = torch_models.model("two")
    graph_rewrite.apply(model, deny_add=["matmul"], allow_remove=["MatMul"])
    rows = graph_rewrite.report(model).rows
    assert {row.dtype for row in rows if row.op in ("torch.mm", "torch.matmul")} == {"float32"}


# -- what runs -------------------------------------------------------------------------------------


class Computed(TorchDispatchMode):
    """Counts the products and convolutions of a step, by dtype."""

    NAMES = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")

    def __init__(self):
        super().__init__()
        self.dtypes = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in self.NAMES:
            dtype = next(x.dtype for x in args if isinstance(x, torch.Tensor))
            key = str(dtype).removeprefix("torch.")
            self.dtypes[key] = self.dtypes.get(key, 0) + 1
        return function(*args, **(kwargs or {}))


# On a CPU, Keras computes its own products of float16 tensors in float32.
OF_KERAS = {"mixed": 5, "two": 3}


def compiled(name, enabled):
    model = torch_models.model(name)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    if enabled:
        optimizer = graph_rewrite.enable(optimizer)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return model


@pytest.mark.parametrize("name", [name for name in torch_models.NAMES if name != "lstm"])
def test_products_and_convolutions_are_float16(name):
    model = compiled(name, enabled=True)
    x, y = images(8)
    model.train_on_batch(x, y)
    with Computed() as computed:
        model.train_on_batch(x, y)
    assert computed.dtypes["float16"] > 2
    assert computed.dtypes.get("float32", 0) == OF_KERAS.get(name, 0)


@pytest.mark.parametrize("name", torch_models.NAMES)
def test_it_learns_as_in_float32(name):
    losses = []
    x, y = images(32)
    for enabled in (False, True):
        model = compiled(name, enabled)
        model.fit(x, y, batch_size=16, epochs=100, shuffle=False, verbose=0)
        losses.append(float(model.evaluate(x, y, verbose=0)))
        graph_rewrite.disable()
    assert abs(losses[1] - losses[0]) <= 0.01 * max(losses[0], 0.1), losses


@pytest.mark.parametrize("name", torch_models.NAMES)
def test_disable_leaves_no_trace(name):
    model = torch_models.model(name)
    x = images(4)[0]
    before = model(x, training=False)
    variables = [np.array(keras.ops.convert_to_numpy(v)) for v in model.variables]
    graph_rewrite.apply(model)
    changed = model(x, training=False)
    graph_rewrite.disable()
    assert changed.dtype == torch.float32
    assert not torch.equal(changed, before)
    assert torch.equal(model(x, training=False), before)
    for old, new in zip(variables, model.variables, strict=True):
        np.testing.assert_array_equal(old, keras.ops.convert_to_numpy(new))


def test_a_model_without_such_ops_is_not_watched(monkeypatch):
    from keras_mp.backends.torch import functions

    watched = []
    enter = functions.Watching.__enter__
    monkeypatch.setattr(
        functions.Watching, "__enter__", lambda self: (watched.append(1), enter(self))[1]
    )
    inputs = keras.Input((5, 8))
    x = keras.layers.MultiHeadAttention(2, 4, dropout=0.1)(inputs, inputs)
    x = keras.layers.LSTM(4)(keras.layers.GaussianNoise(0.1)(keras.layers.LayerNormalization()(x)))
    model = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Dropout(0.1)(x)))
    graph_rewrite.apply(model)
    data = np.ones((2, 5, 8), "float32")
    model(data, training=True)
    recorded = len(watched)
    model(data, training=True)
    model(data[:1], training=True)
    assert len(watched) == recorded


def test_it_does_not_warn_that_nothing_was_found():
    model = torch_models.model("two")
    graph_rewrite.apply(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(images(2)[0])


def test_in_place_functions_change_their_argument():
    class Own(keras.layers.Layer):
        def call(self, x):
            y = torch.matmul(x, torch.ones(4, 4))
            z = F.relu(y, inplace=True)
            return torch.stack([y, z])

    model = keras.Sequential([keras.Input((4,)), Own(name="own")])
    graph_rewrite.apply(model)
    y, z = model(-np.ones((2, 4), "float32"))
    assert y.tolist() == z.tolist() == [[0.0] * 4] * 2


def test_torch_compile_runs_such_a_model_as_it_is():
    model = torch_models.model("two")
    graph_rewrite.apply(model)
    x = torch.from_numpy(images(4)[0])
    compiled = torch.compile(lambda x: model(x, training=False) * 2, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), 2 * model(x, training=False))


def test_inference_and_training_with_buffers():
    model = compiled("resnet", enabled=True)
    x, y = images(16)
    buffers = [b for b in model.layers[-1].module.buffers() if b.dtype == torch.float32]
    before = [b.clone() for b in buffers]
    model.train_on_batch(x, y)
    assert all(b.dtype == torch.float32 for b in buffers)
    assert any(not torch.equal(a, b) for a, b in zip(before, buffers, strict=True))
    assert keras_mp.graph_rewrite.report(model).low_flops_share > 0.9
