"""The backends' own ways of taking a step, against plain keras.ops: bit for bit."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops, optimizers

from keras_mp import LossScaleOptimizer
from tests import plain_steps
from tests.compiled_steps import compiled_step, settled
from tests.durations import shared

BACKEND = keras.backend.backend()
SHAPES = [(3, 4), (4,), (2, 3, 2), (3, 4), ()]
# The others take up to seconds a variable.
SHAPES_TO_COMPILE = SHAPES if BACKEND == "jax" else SHAPES[-2:]
BAD = {3: np.inf, 5: -np.inf, 6: np.nan}  # of 8 steps
INNER = {
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "Adam": lambda: optimizers.Adam(0.1),
    "Adam, accumulating": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "Adam, averaged": lambda: optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=3),
    "Adam, clipped": lambda: optimizers.Adam(0.1, global_clipnorm=0.5),
    "Adam, amsgrad": lambda: optimizers.Adam(0.1, amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(0.1, weight_decay=0.1),
    "Adamax": lambda: optimizers.Adamax(0.1),
    "Ftrl": lambda: optimizers.Ftrl(0.1),
    "Lamb": lambda: optimizers.Lamb(0.1),
    "Lion": lambda: optimizers.Lion(0.1),
    "Nadam": lambda: optimizers.Nadam(0.1),
    "RMSprop": lambda: optimizers.RMSprop(0.1, momentum=0.5, centered=True),
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD, scheduled": lambda: optimizers.SGD(optimizers.schedules.CosineDecay(0.1, 10)),
}


def graphed(optimizer, variables):
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(lambda gradients: optimizer.apply(gradients, variables))
    return lambda gradients: optimizer.apply(gradients, variables)


def nothing_recorded():
    import torch

    return torch.no_grad()


@shared
def run(make, how, who, dtype="float32", scale=2.0**20, factor=1.0):
    """Returns all state of the inner optimizer after each good step, as bytes.

    `who`: "plain", the inner optimizer by itself, which never sees the bad batches; "fast", and
    "reference", ours in one of two ways.
    """
    random = np.random.RandomState(0)
    shapes = SHAPES_TO_COMPILE if how is compiled_step else SHAPES
    variables = [
        keras.Variable(np.asarray(random.randn(*shape), "float32"), dtype=dtype, name=f"v{i}")
        for i, shape in enumerate(shapes)
    ]
    inner = optimizer = make()
    if who != "plain":
        optimizer = LossScaleOptimizer(
            inner,
            initial_scale=scale,
            min_scale=2.0**-20,
            dynamic_growth_steps=2,
            count_skipped_steps=False,
        )
        optimizer.scale_loss(1.0)
    optimizer.build(variables)
    found = []
    no_gradients = nothing_recorded() if BACKEND == "torch" else contextlib.nullcontext()
    with plain_steps.taken(who == "reference"), no_gradients:
        step = how(optimizer, variables)
        for number in range(8):
            now = 1.0 if who == "plain" else np.float32(ops.convert_to_numpy(optimizer.loss_scale))
            gradients = [factor * np.asarray(random.randn(*s), "float32") for s in shapes]
            gradients = [np.asarray(g * now, "float32") for g in gradients]
            if number in BAD:
                gradients[number % len(shapes)].flat[0] = BAD[number]
            if number not in BAD or who != "plain":
                step([ops.array(g) for g in gradients])
                state = [*variables, *inner.variables]
                found.append([ops.convert_to_numpy(v.value).tobytes() for v in state])
            if number in BAD and who != "plain":
                assert found.pop() == found[-1]
    return found


# Seconds for each, ten and more with torch.compile: a few stand for all but on JAX.
COMPILED = {
    "jax": tuple(INNER),
    "tensorflow": ("Adam, accumulating", "Adam, averaged", "Adam, clipped", "Lamb", "SGD"),
    "torch": ("Adam, clipped", "SGD"),  # and in core/test_compiled.py one with averages
}[BACKEND]


@pytest.mark.parametrize(
    ("how", "name"),
    [*((graphed, name) for name in INNER), *((compiled_step, name) for name in COMPILED)],
)
def test_the_same_bits_as_the_plain_optimizer(how, name):
    assert run(INNER[name], how, "fast") == run(INNER[name], how, "plain")


@pytest.mark.parametrize("name", INNER)
def test_the_same_bits_as_the_reference(name):
    """Not compiled, where XLA has its own ways with each."""
    assert run(INNER[name], graphed, "fast") == run(INNER[name], graphed, "reference")


SCALES = [(2.0**127, 0.25), (2.0**65, 1.0), (2.0**64, 1.0), (1.0, 1.0), (2.0**-10, 1.0)]


@pytest.mark.parametrize(
    ("how", "scale", "factor"),
    [
        *((graphed, *each) for each in SCALES),
        *((compiled_step, *each) for each in (SCALES[:1] if BACKEND == "torch" else SCALES)),
    ],
)
def test_at_any_scale(how, scale, factor):
    plain = run(INNER["Adam"], how, "plain", factor=factor)
    assert run(INNER["Adam"], how, "fast", scale=scale, factor=factor) == plain


@pytest.mark.parametrize("how", [graphed, compiled_step])
def test_16_bit_variables(how):
    make = INNER["SGD"]
    assert run(make, how, "fast", dtype="float16") == run(make, how, "plain", dtype="float16")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [1, 5, 37, 1031])
def test_a_fault_anywhere_in_16_bits(dtype, size):
    """Kernels read many numbers at once, and the last ones one by one."""
    largest = float(ops.max(ops.cast([60000.0], dtype)))
    start = np.full(size, largest, "float32")
    start[::2] *= -1
    variable = keras.Variable(np.zeros(size), dtype=dtype)
    optimizer = settled(LossScaleOptimizer(optimizers.SGD(2.0**-10), initial_scale=2.0**20))
    optimizer.build([variable])
    how = graphed if BACKEND == "torch" else compiled_step
    with nothing_recorded() if BACKEND == "torch" else contextlib.nullcontext():
        step = how(optimizer, [variable])
        for place in (0, size // 2, size - 1):
            for value in (np.inf, -np.inf, np.nan):
                bad = start.copy()
                bad[place] = value
                before = float(optimizer.loss_scale)
                step([ops.cast(bad, dtype)])
                assert float(optimizer.loss_scale) == before / 2
                assert not np.any(ops.convert_to_numpy(ops.cast(variable, "float32")))
        step([ops.cast(start, dtype)])
        assert np.all(ops.convert_to_numpy(ops.cast(variable, "float32")))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_variable_without_elements(dtype):
    """There is no greatest of its numbers."""
    variables = [keras.Variable(np.zeros(size), dtype=dtype) for size in (0, 3)]
    optimizer = settled(LossScaleOptimizer(optimizers.SGD(1.0), initial_scale=4.0))
    optimizer.build(variables)
    how = graphed if BACKEND == "torch" else compiled_step
    with nothing_recorded() if BACKEND == "torch" else contextlib.nullcontext():
        step = how(optimizer, variables)
        for value, kept in ((4.0, -1.0), (np.inf, -1.0), (2.0, -2.0)):
            step([ops.cast(np.full(size, value, "float32"), dtype) for size in (0, 3)])
            found = ops.convert_to_numpy(ops.cast(variables[1], "float32"))
            np.testing.assert_array_equal(found, np.full(3, kept))


def overflowing(numbers, scale=1.0, dtype="float32"):
    """Returns whether a step with a gradient of `numbers` is skipped, and its kind."""
    variable = keras.Variable(np.zeros(len(numbers), dtype), dtype=dtype)
    optimizer = LossScaleOptimizer(optimizers.SGD(0.0), initial_scale=scale, min_scale=2.0**-20)
    optimizer.apply_gradients([(ops.array(numbers, "float32"), variable)], gradients_scaled=True)
    return not bool(optimizer.last_step_applied), int(optimizer.nonfinite_kind)


LARGE = float(np.finfo("float32").max)


def test_finite_numbers_whose_sum_is_not():
    assert overflowing([LARGE, LARGE, 1.0]) == (False, 0)
    assert overflowing([LARGE, -LARGE]) == (False, 0)


@pytest.mark.parametrize("numbers", [[LARGE, LARGE], [LARGE, -LARGE], [1.0, -LARGE]])
def test_an_overflow_of_the_division(numbers):
    assert overflowing(numbers, scale=0.5) == (True, 1)


def test_an_overflow_of_the_division_compiled():
    """The sum of these is finite, and looked at first."""
    variable = keras.Variable(np.zeros(2, "float32"))
    optimizer = LossScaleOptimizer(optimizers.SGD(1.0), initial_scale=0.5, min_scale=0.25)
    optimizer.build([variable])
    step = (graphed if BACKEND == "torch" else compiled_step)(settled(optimizer), [variable])
    with nothing_recorded() if BACKEND == "torch" else contextlib.nullcontext():
        step([ops.array([LARGE, -LARGE], "float32")])
    assert not np.any(ops.convert_to_numpy(variable.value))
    assert float(optimizer.loss_scale) == 0.25


def test_infs_of_both_signs_are_no_nan():
    assert overflowing([np.inf, -np.inf]) == (True, 1)
    assert overflowing([np.inf, np.nan]) == (True, 2)


def jitted(function):
    """Returns a function that XLA compiles."""
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=True)


def row_named_twice(values):
    """Returns a sparse gradient of shape (3, 2), whose second row is the sum of two."""
    if BACKEND == "jax":
        from jax.experimental import sparse

        return sparse.BCOO((values, ops.array([[1], [1]])), shape=(3, 2))
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.IndexedSlices(values, tf.constant([1, 1]), (3, 2))
    import torch

    return torch.sparse_coo_tensor([[1, 1]], values, (3, 2), check_invariants=False)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "value"), [("float32", 3e38), ("float16", 4e4)])
def test_a_sum_of_rows_that_overflows(dtype, value, compiled):
    """Each is finite, but not the row that is applied."""
    if BACKEND == "torch" and compiled:
        pytest.skip("about XLA")
    variable = keras.Variable(np.zeros((3, 2)), dtype=dtype)
    optimizer = settled(LossScaleOptimizer(optimizers.SGD(1.0), initial_scale=1.0))
    optimizer.build([variable])

    def step(values):
        gradient = row_named_twice(values)
        if BACKEND != "jax":
            optimizer.apply([gradient], [variable])
            return optimizer.last_step_applied
        state = [each.value for each in optimizer.variables]
        (new,), _ = optimizer.stateless_apply(state, [gradient], [variable.value])
        return ops.any(new != 0)

    if compiled:
        step = jitted(step)
    small, large = (ops.cast(np.full((2, 2), each, "float32"), dtype) for each in (1.0, value))
    assert not bool(step(large))
    assert bool(step(small))


def test_rows_are_summed_to_be_asked_about_too():
    values = ops.cast(np.full((2, 2), 3e38), "float32")
    optimizer = LossScaleOptimizer(optimizers.SGD(1.0))
    assert bool(optimizer.check_finite([values]))
    assert not bool(optimizer.check_finite([row_named_twice(values)]))


@pytest.mark.parametrize("compiled", [False, True])
def test_complex_numbers(compiled):
    """The magnitude of finite ones may overflow, and XLA has finite ones of nans."""
    if compiled and BACKEND == "torch":
        pytest.skip("about XLA")
    variable = keras.Variable(np.zeros(1), dtype="complex64")
    optimizer = settled(LossScaleOptimizer(optimizers.SGD(1.0), initial_scale=2.0))
    optimizer.build([variable])

    def step_by_step(gradients):
        optimizer.apply(gradients, [variable])

    step = compiled_step(optimizer, [variable]) if compiled else step_by_step
    kept = 0
    for number in (complex(1, np.nan), 3e38 + 3e38j, 1j * np.inf):
        gradient = ops.convert_to_tensor(np.array([number], "complex64"))
        assert bool(optimizer.check_finite([gradient])) == bool(np.isfinite(number))
        step([gradient])
        kept = -number if np.isfinite(number) else kept  # at a scale of 1 by then
        found = ops.convert_to_numpy(variable.value)
        np.testing.assert_array_equal(found, np.array([kept], "complex64"))
    assert float(optimizer.loss_scale) == 1.0


on_torch = pytest.mark.skipif(BACKEND != "torch", reason="the gradients that PyTorch keeps")


def kept_gradients(make_model, data, optimizer, own_step):
    """Returns the `.grad`s after one batch of `fit`."""
    x, y = data
    model = make_model()

    class Own(type(model)):
        def train_step(self, batch):
            """As a caller writes it."""
            x, y = batch
            self.zero_grad()
            loss = self.optimizer.scale_loss(keras.losses.mean_squared_error(y, self(x)).mean())
            loss.backward()
            gradients = [v.value.grad for v in self.trainable_weights]
            with nothing_recorded():
                self.optimizer.apply(gradients, self.trainable_weights)
            return {"loss": loss}

    if own_step:
        model.__class__ = Own
    model.compile(optimizer, "mse", jit_compile=False)
    model.fit(x[:8], y[:8], batch_size=8, verbose=0)
    return [ops.convert_to_numpy(v.value.grad) for v in model.trainable_variables]


@on_torch
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("inner", [optimizers.Adam, lambda: optimizers.SGD(momentum=0.9)])
@pytest.mark.parametrize("own_step", [False, True])
def test_gradients_of_a_caller_are_left_alone(make_model, data, own_step, inner, fused):
    """Whoever the caller is: Keras' own trainer, or a train step of the user's."""
    plain = kept_gradients(make_model, data, inner(), own_step)
    optimizer = LossScaleOptimizer(inner(), initial_scale=8.0, fused=fused)
    found = kept_gradients(make_model, data, optimizer, own_step)
    for a, b in zip(found, plain, strict=True):
        np.testing.assert_array_equal(a, 8 * b)


def test_a_step_that_fails_leaves_the_optimizer_as_it_was():
    """Methods that a fast path puts in place of Keras' own are gone again."""

    def refuses(value):
        raise ArithmeticError("no")

    variable = keras.Variable([1.0])
    inner = optimizers.SGD(1.0)
    optimizer = LossScaleOptimizer(inner)
    optimizer.build([variable])
    optimizer.scale_loss(1.0)
    before = {*vars(inner)}
    variable.constraint = refuses
    with pytest.raises(ArithmeticError):
        optimizer.apply([ops.array([1.0])], [variable])
    assert {*vars(inner)} == before
