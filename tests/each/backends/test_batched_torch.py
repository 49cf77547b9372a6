"""PyTorch on a CPU: Keras' rules in batches change no bit, and take no tensor of the caller's."""

import keras
import numpy as np
import pytest
from keras import ops, optimizers

from keras_mp import LossScaleOptimizer

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "torch", reason="other backends compile the whole step"
    ),
    pytest.mark.filterwarnings("ignore:Gradients do not exist"),  # there is one that is None
]
SCALE = 1024.0
SHAPES = [(3, 4), (4,), (30,), (2, 3, 2), (), (0,), (5,)]
TAKEN = {
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "Adam": lambda: optimizers.Adam(0.1, amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(0.1, weight_decay=0.1),
    "Adamax": lambda: optimizers.Adamax(0.1),
    "Lion": lambda: optimizers.Lion(0.1),
    "RMSprop": lambda: optimizers.RMSprop(0.1, momentum=0.5, centered=True),
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "averages": lambda: optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
    "schedule": lambda: optimizers.SGD(optimizers.schedules.CosineDecay(0.1, 10)),
}


class Own(optimizers.Adam):
    pass


def with_a_method():
    optimizer = optimizers.Adam(0.1)
    optimizer._clip_gradients = lambda gradients: gradients
    return optimizer


LEFT = {
    "Ftrl": lambda: optimizers.Ftrl(0.1),
    "Nadam": lambda: optimizers.Nadam(0.1),
    "a subclass": lambda: Own(0.1),
    "a method of its own": with_a_method,
    "clipnorm": lambda: optimizers.Adam(0.1, clipnorm=0.5),
    "clipvalue": lambda: optimizers.Adam(0.1, clipvalue=0.5),
    "global_clipnorm": lambda: optimizers.Adam(0.1, global_clipnorm=0.5),
    "accumulation": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    from keras_mp.backends.torch import batched as batched_torch

    monkeypatch.setattr(batched_torch, "_BATCH", 9)


@pytest.fixture
def calls(monkeypatch):
    """How many tensors each batch had."""
    from keras_mp.backends.torch import batched as batched_torch

    found = []
    foreach_div = batched_torch.torch._foreach_div

    def counted(tensors, divisor):
        if isinstance(divisor, batched_torch.torch.Tensor):
            found.append(len(tensors))
        return foreach_div(tensors, divisor)

    monkeypatch.setattr(batched_torch.torch, "_foreach_div", counted)
    return found


def run(optimizer, dtype="float32", of_gradients="float32", bad=()):
    """Returns all state after each good step; the gradients are as they were.

    Without loss scaling gradients are rounded to their dtype, and handed over in that of weights.
    """
    random = np.random.default_rng(0)
    variables = [
        keras.Variable(random.standard_normal(s).astype("float32"), dtype=dtype) for s in SHAPES
    ]
    scaled = isinstance(optimizer, LossScaleOptimizer)
    optimizer.build(variables)
    inner = optimizer.inner_optimizer if scaled else optimizer
    if scaled:
        optimizer.scale_loss(1.0)
    found = []
    for step in range(6):
        arrays = [random.standard_normal(s).astype("float32") for s in SHAPES]
        if step in bad and not scaled:
            continue
        if step in bad:
            arrays[2].flat[-1] = bad[step]
        factor = SCALE if scaled else 1.0
        given = [ops.cast(ops.array(a * np.float32(factor)), of_gradients) for a in arrays]
        if not scaled:
            given = [ops.cast(gradient, dtype) for gradient in given]
        given[1] = None
        before = [None if g is None else g.clone() for g in given]
        optimizer.apply(given, variables)
        for old, new in zip(before, given, strict=True):
            assert old is None or np.array_equal(*map(bytes_of, (old, new)))
        if step not in bad:
            state = [*variables, *inner.variables]
            found.append([bytes_of(v.value) for v in state])
    return found


def bytes_of(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32")).reshape(-1).view("uint8")


def same(one, other):
    return len(one) == len(other) > 0 and all(
        np.array_equal(a, b)
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def scaled(optimizer, scale=SCALE):
    return LossScaleOptimizer(
        optimizer, initial_scale=scale, dynamic_growth_steps=100, count_skipped_steps=False
    )


@pytest.mark.parametrize("name", TAKEN)
def test_batches_change_no_bit(name, calls):
    assert same(run(scaled(TAKEN[name]())), run(TAKEN[name]()))
    # Of 3 and 4 elements to 30, three in the last batch: (12) (30) (12, 1, 0) (5), less the None.
    assert calls[:4] == [1, 1, 1, 3]


@pytest.mark.parametrize("name", LEFT)
def test_what_needs_divided_gradients_gets_them_all_at_once(name, calls):
    run(scaled(LEFT[name]()))
    assert set(calls) <= {len(SHAPES) - 1}


def test_a_step_that_is_not_finite_changes_nothing():
    with_bad = LossScaleOptimizer(
        optimizers.Adam(0.1), initial_scale=SCALE, dynamic=False, count_skipped_steps=False
    )
    bad = {1: np.inf, 3: -np.inf, 4: np.nan}
    assert same(run(with_bad, bad=bad), run(optimizers.Adam(0.1), bad=bad))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_gradients_of_float32_weights(dtype, calls):
    """Powers of two divide 16 bits exactly: the same as plain Adam given them in float32."""
    ours = run(scaled(optimizers.Adam(0.1)), of_gradients=dtype)
    assert same(ours, run(optimizers.Adam(0.1), of_gradients=dtype))
    assert calls[:4] == [1, 1, 1, 3]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_weights_step_as_without_batches(dtype, monkeypatch, calls):
    from keras_mp.backends.torch import batched as batched_torch

    batched = run(scaled(optimizers.Adam(0.1)), dtype, dtype)
    assert calls[:4] == [1, 1, 1, 3]
    monkeypatch.setattr(batched_torch, "takes", lambda *_: False)
    assert same(batched, run(scaled(optimizers.Adam(0.1)), dtype, dtype))


def test_finite_gradients_whose_norm_is_not_are_applied():
    variable = keras.Variable([1.0, 1.0])
    optimizer = scaled(optimizers.SGD(1.0), scale=2.0**127)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
    optimizer.apply([ops.array([2.0**127, -(2.0**126)])], [variable])
    assert ops.convert_to_numpy(variable).tolist() == [0.0, 1.5]


def test_what_a_scale_below_1_makes_infinite_is_not_applied():
    variable = keras.Variable([1.0])
    optimizer = LossScaleOptimizer(optimizers.SGD(1.0), initial_scale=0.25, min_scale=0.125)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
    optimizer.apply([ops.array([2.0**127])], [variable])
    assert ops.convert_to_numpy(variable).tolist() == [1.0]
    assert int(optimizer.skipped_steps) == 1


def test_a_variable_named_twice():
    """Both gradients are applied as plain Keras applies them: in batches one would come later."""
    found = []
    for optimizer in (optimizers.SGD(1.0, momentum=0.5), scaled(optimizers.SGD(1.0, momentum=0.5))):
        variable = keras.Variable(np.ones(5, "float32"))
        optimizer.build([variable])
        factor = float(optimizer.scale_loss(1.0))
        twice = [ops.array([factor] * 5), ops.array([2 * factor] * 5)]
        optimizer.apply(twice, [variable, variable])
        found.append(ops.convert_to_numpy(variable).tolist())
    assert found[0] == found[1]
