"""Views and changes in place by functions of torch act as without the graph rewrite."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "torch":
    pytest.skip("about functions of torch", allow_module_level=True)

import torch
import torch.nn.functional as F
from torch import nn

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite.torch_lists import OPS
from tests.gradients import gradients

pytestmark = pytest.mark.usefixtures("rewrite_ends")


def change_parts(parts):
    for number, part in enumerate(parts):
        part.mul_(number + 2)


def set_an_item(x):
    x[:, 0] = 3


def set_rows_to_a_result(x):
    x[1:3] = torch.relu(x[:2])


def add_in_place(x):
    x += torch.ones(4)


def add_to_a_view_in_place(x):
    y = x.view(-1)
    y *= 2


def out(x):
    with torch.no_grad():
        torch.mul(x, 3, out=x)


def without_gradient(x):
    with torch.no_grad():
        x.add_(1)


CHANGES = {
    "detach": lambda x: x.detach().add_(1),
    "detach of a view": lambda x: x.view(-1).detach()[::2].add_(1),
    "item": set_an_item,
    "rows": set_rows_to_a_result,
    "+=": add_in_place,
    "*= on a view": add_to_a_view_in_place,
    "out": out,
    "no_grad": without_gradient,
    "view": lambda x: x.view(-1).mul_(2),
    "reshape": lambda x: torch.reshape(x, (-1,)).mul_(2),
    "flatten": lambda x: torch.flatten(x).mul_(2),
    "unflatten": lambda x: torch.unflatten(x, 1, (2, 2)).mul_(2),
    "getitem": lambda x: x[:, 1:].mul_(2),
    "T": lambda x: x.T[0].mul_(2),
    "mT": lambda x: x.mT[0].mul_(2),
    "transpose": lambda x: torch.transpose(x, 0, 1)[0].mul_(2),
    "permute": lambda x: torch.permute(x, (1, 0))[0].mul_(2),
    "movedim": lambda x: torch.movedim(x, 0, 1)[0].mul_(2),
    "squeeze": lambda x: torch.squeeze(x).mul_(2),
    "unsqueeze": lambda x: torch.unsqueeze(x, 0).mul_(2),
    "expand": lambda x: x.expand(1, -1, -1).mul_(2),
    "narrow": lambda x: torch.narrow(x, 0, 0, 1).mul_(2),
    "select": lambda x: torch.select(x, 0, 0).mul_(2),
    "unbind": lambda x: change_parts(x.detach().unbind(1)),
    "chunk": lambda x: change_parts(x.detach().chunk(2, 1)),
    "split": lambda x: change_parts(x.detach().split(1, 0)),
    "diagonal": lambda x: torch.diagonal(x).mul_(2),
    "unfold": lambda x: x.unfold(0, 2, 2).mul_(2),
    "contiguous": lambda x: x.contiguous().mul_(2),
    "float": lambda x: x.float().mul_(2),
    "to": lambda x: x.to(torch.float32).mul_(2),
    "Identity": lambda x: nn.Identity()(x).mul_(2),
    "Flatten": lambda x: nn.Flatten(0)(x).mul_(2),
    "dropout in inference": lambda x: F.dropout(x, 0.5, training=False).mul_(2),
    "dropout1d in inference": lambda x: F.dropout1d(x, 0.5, training=False).mul_(2),
    "dropout in place": lambda x: F.dropout(x, 0.5, training=False, inplace=True).mul_(2),
    "relu in place": lambda x: F.relu(x, inplace=True),
    "relu of a view in place": lambda x: F.relu(x[:, 1:], inplace=True),
    "relu_": torch.relu_,
    "threshold in place": lambda x: F.threshold(x, 0.5, 0.0, inplace=True),
    "clamp_": lambda x: x.clamp_(0, 1),
    "copy_": lambda x: x.copy_(torch.flip(x, (0,))),
    "fill_ of a row": lambda x: x[0].fill_(2.0),
    "masked_fill_": lambda x: x.masked_fill_(x > 0.5, 0.5),
    "index_put_": lambda x: x.index_put_((torch.tensor([0, 2]),), torch.tensor(2.0)),
    "scatter_": lambda x: x.scatter_(1, torch.zeros(8, 1, dtype=torch.long), 2.0),
    "sub_ of a result": lambda x: x.sub_(torch.mean(x, 0)),
}


class Changing(keras.layers.Layer):
    """A product, an activation, a change of it in place, and another product."""

    def __init__(self, change):
        super().__init__(name="changing")
        self.change = change

    def build(self, shape):
        self.v = self.add_weight(shape=(4, 4), name="v")
        self.w = self.add_weight(shape=(4, 4), name="w")

    def call(self, x):
        x = torch.sigmoid(torch.matmul(x, self.v.value)) * 1.0
        y = torch.multiply(x, 1.5)  # whose gradient does not need y
        self.change(y)
        return torch.matmul(torch.add(y, x), self.w.value) + torch.mean(y)


def model(change):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), Changing(change)])


def computed(model):
    """Returns what a model computes, and its gradients."""
    x = np.random.RandomState(0).randn(8, 4).astype("float32")
    return {"": model(x).detach().numpy(), **gradients(model, x, 1.0)}


@pytest.mark.parametrize("change", CHANGES)
def test_with_every_op_denied_no_bit_differs(change):
    changing = model(CHANGES[change])
    plain = computed(changing)
    graph_rewrite.apply(changing, deny_layers=["changing"])
    for _ in range(2):
        for name, found in computed(changing).items():
            np.testing.assert_array_equal(found, plain[name], err_msg=name)


@pytest.mark.parametrize("change", CHANGES)
def test_the_change_is_seen_by_ops_in_16_bits(change):
    changing = model(CHANGES[change])
    plain = computed(changing)
    graph_rewrite.apply(changing)
    for name, found in computed(changing).items():
        np.testing.assert_allclose(found, plain[name], rtol=1e-2, atol=2e-2, err_msg=name)
    rows = graph_rewrite.report(changing).rows
    assert [row.dtype for row in rows if row.op == "torch.matmul"] == ["float16"] * 2


@pytest.mark.parametrize("change", ["detach", "getitem", "item", "out", "relu_", "copy_"])
def test_in_inference_mode(change):
    changing, x = model(CHANGES[change]), torch.randn(8, 4)
    with torch.inference_mode():
        plain = changing(x)
        graph_rewrite.apply(changing)
        np.testing.assert_allclose(changing(x), plain, rtol=1e-2, atol=2e-2)


def test_a_change_is_named_in_the_report():
    rows = {row.op: row for row in graph_rewrite.report(model(lambda x: x.exp_())).rows}
    assert rows["torch.exp_"].dtype == "float32"
    assert rows["torch.exp_"].why == "it changes a tensor in place, in float32"
    assert rows["torch.add"].dtype == "float32"  # of what was changed
    rows = {row.op: row for row in graph_rewrite.report(model(set_an_item)).rows}
    assert rows["torch.setitem"].dtype == "float32"


@pytest.mark.parametrize("denied", [False, True])
def test_a_hook_on_a_gradient(denied):
    kept = []

    class Hooked(Changing):
        def call(self, x):
            y = torch.matmul(x, self.v.value)
            if y.requires_grad:
                y.register_hook(lambda gradient: gradient * 2)
                y.retain_grad()
                kept.append(y)
            return torch.matmul(torch.relu(y), self.w.value)

    keras.utils.set_random_seed(0)
    hooked = keras.Sequential([keras.Input((4,)), Hooked(None)])
    plain = computed(hooked)
    graph_rewrite.apply(hooked, deny_layers=["changing"] if denied else ())
    for name, found in computed(hooked).items():
        np.testing.assert_allclose(found, plain[name], rtol=1e-2, atol=2e-2, err_msg=name)
    expected, found = (y.grad for y in kept if y.grad is not None)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=2e-2)


def test_a_buffer_that_is_changed_in_place_stays_float32():
    class Averaging(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.full((4,), 2049.0))

        def forward(self, x):
            self.mean.mul_(0.5).add_(1.0)
            return torch.matmul(x - self.mean, torch.ones(4, 4))

    module = Averaging()
    wrapper = keras.layers.TorchModuleWrapper(module, output_shape=(None, 4))
    changing = keras.Sequential([keras.Input((4,)), wrapper])
    graph_rewrite.apply(changing)
    graph_rewrite.report(changing)
    assert module.mean.tolist() == [2049.0] * 4
    changing(np.ones((2, 4), "float32"))
    assert module.mean.tolist() == [1025.5] * 4


ARGUMENTS = {
    "view": ((-1,),), "reshape": ((-1,),), "unflatten": (1, (2, 2)), "swapdims": (0, 1),
    "swapaxes": (0, 1), "transpose": (0, 1), "permute": ((1, 0),), "moveaxis": (0, 1),
    "movedim": (0, 1), "unsqueeze": (0,), "split": (1,), "chunk": (2,), "tensor_split": (2,),
    "narrow": (0, 0, 1), "select": (0, 0), "__getitem__": (0,), "expand": (1, 4, 4),
    "broadcast_to": ((1, 4, 4),), "unfold": (0, 2, 2), "tile": ((1,),), "repeat": (1, 1),
    "roll": (0,), "flip": ((),), "pixel_shuffle": (1,), "clamp": (-9.0, 9.0), "clip": (-9.0, 9.0),
    "hardtanh": (-9.0, 9.0), "repeat_interleave": (1,), "masked_fill": (torch.tensor(False), 0.0),
    "view_as": (torch.ones(4, 4),), "reshape_as": (torch.ones(4, 4),),
    "expand_as": (torch.ones(4, 4),), "pad": ((0, 0),),
}  # fmt: skip


def shares_memory(name):
    """Returns whether a function returns a part of its argument; None if it takes other ones."""
    x = torch.rand(4, 4)
    function = next(
        (getattr(each, name) for each in (torch.Tensor, torch, F) if hasattr(each, name)), None
    )
    if name.startswith("__get__:"):
        function = getattr(torch.Tensor, name.removeprefix("__get__:")).__get__
    try:
        made = function(x, *ARGUMENTS.get(name, ()))
    except Exception:  # noqa: BLE001
        return None
    first = made[0] if isinstance(made, (tuple, list)) else made
    if not isinstance(first, torch.Tensor):
        return None
    return first.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.own == "follow"])
def test_what_shares_memory_with_its_argument_is_listed_as_a_view(name):
    shares = shares_memory(name)
    if shares:
        assert OPS[name].is_view
