"""PyTorch: shapes and memory of what is changed, looked at before a kernel changes it."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from tests import programs

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="other backends look at memory by themselves"
)
SCALE = 1024.0
o = keras.optimizers
INNER = {
    "Adam": lambda: o.Adam(0.1),
    "AdamW": lambda: o.AdamW(0.1, weight_decay=0.1),
    "momentum": lambda: o.SGD(0.5, momentum=0.9),
    "Adagrad": lambda: o.Adagrad(0.1),
}
# Beyond the shorter of two tensors a kernel reads, and writes, whatever lies there.
OTHER_SHAPES = """
import sys, keras, numpy as np
from keras import ops
from keras_mp import LossScaleOptimizer
rules = {
    "Adam": lambda: keras.optimizers.Adam(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.5, momentum=0.9),
}
def run(rule, shapes, given, fused, compiled):
    variables = [keras.Variable(np.ones(shape, "float32")) for shape in shapes]
    optimizer = LossScaleOptimizer(rules[rule](), initial_scale=8.0, fused=fused)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    step = optimizer.apply
    if compiled:
        import torch
        step = torch.compile(step, backend="eager")
    try:
        for _ in range(3):
            step([ops.full(shape, 8.0) for shape in given], variables)
    except ValueError as error:
        return str(error).split(". ")[0]
    assert fused == (optimizer.fused_fallback or "").startswith("the gradient of variable")
    return [ops.convert_to_numpy(variable).tolist() for variable in variables]
compiled = sys.argv[1] == "compiled"
pairs = [
    ([(512,), (3,)], [(1,), (3,)]), ([(2,), (4,)], [(2,), (500,)]), ([(3,), (64, 8)], [(3,), (8,)]),
    ([(3, 8)], [()]), ([(2, 300)], [(300, 2)]), ([(500,)], [(2,)]), ([(4,)], [(0,)]),
]
for rule in rules:
    for shapes, given in pairs[:2] if compiled else pairs:  # one that broadcasts, one that does not
        found = [run(rule, shapes, given, fused, compiled) for fused in (True, False)]
        found = [f.split("has the shape")[1] if isinstance(f, str) else f for f in found]
        assert found[0] == found[1], (rule, shapes, given, found)
"""


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_no_kernel_is_given_a_gradient_of_another_shape(how):
    """In a process of its own, which such a kernel ends."""
    programs.run("-c", OTHER_SHAPES, how, imported=True, timeout=120)


def make(rule, shapes, fused=True, **settings):
    random = np.random.RandomState(0)
    variables = [
        keras.Variable(random.standard_normal(shape).astype("float32"), name=f"v{i}")
        for i, shape in enumerate(shapes)
    ]
    optimizer = INNER[rule]()
    if fused is not None:
        optimizer = LossScaleOptimizer(optimizer, initial_scale=SCALE, fused=fused, **settings)
        optimizer.scale_loss(1.0)
    optimizer.build(variables)
    return optimizer, variables


def numbers(variables):
    return [ops.convert_to_numpy(variable).copy() for variable in variables]


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# -- gradients that lie where variables lie --------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("rule", INNER)
def test_gradients_in_the_memory_of_variables(rule, fused, monkeypatch):
    """Each step sees them as they were before it, also in batches, and after weight decay."""
    from keras_mp.backends.torch import batched as batched_torch, fused as fused_torch

    monkeypatch.setattr(batched_torch, "_BATCH", 4)
    monkeypatch.setattr(fused_torch, "_BATCH", 4)
    (ours, weights), (plain, others) = (make(rule, [(6,), (6,)], x) for x in (fused, None))
    for variable in (*weights, *others):
        variable.assign(variable * SCALE)
    for _ in range(2):
        plain.apply([other.value.detach() / SCALE for other in reversed(others)], others)
        ours.apply([weight.value.detach() for weight in reversed(weights)], weights)
        same(numbers(weights), numbers(others))
    assert ours.fused_fallback == (FALLBACK if fused else None)


FALLBACK = "variables, their slots or gradients share memory"


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("rule", INNER)
def test_a_gradient_that_lies_across_its_variable(rule, fused):
    """Not divided, so not copied: a kernel would read what it has written."""
    import torch

    ends = []
    for kind in (fused, None):
        optimizer, (variable,) = make(rule, [(64,)], kind)
        memory = torch.linspace(-1, 1, 80)
        variable.value.data = memory[:64]
        pairs = [(memory[5:69], variable)]
        if kind is None:
            optimizer.apply_gradients(pairs)
        else:
            optimizer.apply_gradients(pairs, gradients_scaled=False)
        ends += numbers([variable])
    same(ends[:1], ends[1:])


def test_gradients_that_share_memory_with_each_other():
    import torch

    memory = torch.linspace(-SCALE, SCALE, 8)
    (ours, weights), (plain, others) = (make("Adam", [(6,), (6,), (6,)], x) for x in (True, None))
    plain.apply([memory[:6] / SCALE, memory[2:] / SCALE, memory[:6] / SCALE], others)
    ours.apply([memory[:6], memory[2:], memory[:6]], weights)
    same(numbers(weights), numbers(others))
    assert ours.fused_fallback is None


# -- variables and slots ---------------------------------------------------------------------------


@pytest.mark.parametrize("rule", INNER)
def test_variables_that_share_memory(rule):
    ends = []
    for kind in (True, False, None):
        optimizer, variables = make(rule, [(6,), (4,)], kind)
        variables[1].value.data = variables[0].value.data[1:5]
        scale = SCALE if kind is not None else 1.0
        for _ in range(2):
            optimizer.apply([ops.full((6,), scale), ops.full((4,), -scale / 2)], variables)
        ends.append(numbers(variables))
    same(ends[0], ends[2])
    same(ends[1], ends[2])


@pytest.mark.parametrize("rule", INNER)
def test_one_variable_twice(rule):
    ends = []
    for kind in (True, False, None):
        optimizer, (variable,) = make(rule, [(6,)], kind)
        scale = SCALE if kind is not None else 1.0
        for _ in range(2):
            optimizer.apply(
                [ops.full((6,), scale), ops.full((6,), -scale / 2)], [variable, variable]
            )
        ends.append(numbers([variable]))
    same(ends[0], ends[2])
    same(ends[1], ends[2])


SLOTS = {
    "has the shape (3,) instead of (6,)": lambda x: x[:3],
    "is of float64, not float32": lambda x: x.double(),
    "has no elements, or is not contiguous": lambda x: x.repeat_interleave(2)[::2],
    "is on meta, but another variable on cpu": lambda x: x.to("meta"),
}


@pytest.mark.parametrize("reason", SLOTS)
def test_slots_that_kernels_do_not_take(reason):
    optimizer, _ = make("Adam", [(6,), (6,)])
    slot = optimizer.inner_optimizer._velocities[1]
    slot._value = SLOTS[reason](slot.value.data)
    assert optimizer.fused_fallback == f"a slot of v1 {reason}"


def test_a_gradient_whose_signs_are_still_to_be_turned():
    """PyTorch turns them where they are read, and has views that say so."""
    import torch

    gradient = torch.complex(torch.ones(4), torch.ones(4)).conj().imag
    assert gradient.is_neg()
    optimizer, (variable,) = make("Adagrad", [(4,)])
    before = numbers([variable])[0]
    optimizer.apply_gradients([(gradient, variable)], gradients_scaled=False)
    assert (numbers([variable])[0] > before).all()


# -- gradients that are changed in place -----------------------------------------------------------


def test_a_grad_in_the_memory_of_its_variable(state):
    """It is not unscaled in place: that would divide the weights."""
    variables = [keras.Variable(np.full(3, SCALE, "float32")) for _ in range(2)]
    optimizer = LossScaleOptimizer(o.SGD(1.0, clipnorm=100.0), initial_scale=SCALE)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    first, second = variables
    first.value.grad = second.value.data
    second.value.grad = second.value.data.clone()
    optimizer.apply([first.value.grad, second.value.grad], variables)
    assert [n.tolist() for n in numbers(variables)] == [[SCALE - 1] * 3] * 2


def test_grads_that_share_memory():
    """One that is unscaled in place would be so twice."""
    import torch

    variables = [keras.Variable(np.ones(3, "float32")) for _ in range(2)]
    optimizer = LossScaleOptimizer(o.SGD(1.0, clipnorm=100.0), initial_scale=SCALE)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    memory = torch.full((4,), SCALE)
    for variable, part in zip(variables, (memory[:3], memory[1:]), strict=True):
        variable.value.grad = part
    optimizer.apply([variable.value.grad for variable in variables], variables)
    assert [n.tolist() for n in numbers(variables)] == [[0.0] * 3] * 2
    assert memory.tolist() == [SCALE] * 4
