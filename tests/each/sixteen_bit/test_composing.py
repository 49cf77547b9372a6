"""16-bit weights with loss scales, skipped steps, fused kernels, several optimizers, options."""

import copy
import pickle

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer, MasterWeights, StochasticRounding, explain
from keras_mp.sixteen_bit.rounding import split
from keras_mp.sixteen_bit.storages import Master
from tests.backends import not_on
from tests.each.sixteen_bit.test_master_weights import (
    OPTIMIZERS,
    data,
    fitted,
    masters,
    model_with,
    rounded_weights,
)

BACKEND = keras.backend.backend()


def weights(dtype="bfloat16"):
    random = np.random.default_rng(2)
    shapes = [(3, 4), (4,), ()]
    return [keras.Variable(random.normal(size=shape), dtype=dtype) for shape in shapes]


def gradients(step, dtype="bfloat16"):
    random = np.random.default_rng(step)
    return [
        ops.cast(ops.convert_to_tensor(random.normal(size=s).astype("float32")), dtype)
        for s in [(3, 4), (4,), ()]
    ]


def apply_scaled(optimizer, gradients, variables):
    optimizer.apply_gradients(zip(gradients, variables, strict=True), gradients_scaled=True)


def values(variables):
    return [np.asarray(ops.convert_to_numpy(ops.cast(v, "float32"))) for v in variables]


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name", ["sgd", "adam", "decayed", "lion", "rmsprop", "averaged", "accumulated"]
)
def test_halves_and_copies_are_the_same_master(name):
    copies, halves = (MasterWeights(OPTIMIZERS[name](), each) for each in ("float32", "split"))
    left, right = weights(), weights()
    for step in range(12):
        copies.apply(gradients(step), left)
        halves.apply(gradients(step), right)
    assert_same(masters(copies), masters(halves))
    assert_same(
        values(copies._narrow_weights.of_the_rule), values(halves._narrow_weights.of_the_rule)
    )
    assert len({id(v) for v in halves.variables}) == len(halves.variables)
    assert sum(str(v.dtype) == "int16" for v in halves.variables) == 3


def test_halves_are_the_same_master_after_a_thousand_steps(monkeypatch):
    """The copies are told to round halfway masters away from zero, as the halves are."""

    def store(storages, draw):
        for each, (upper, _) in zip(
            storages, split([s.target.value for s in storages]), strict=True
        ):
            each.variable.assign(upper)

    monkeypatch.setattr(Master, "store", store)
    monkeypatch.setattr(Master, "load", lambda storages: None)
    start = rounded_weights("bfloat16")
    x, y = data(100)
    found = []
    for kind in ("float32", "split"):
        optimizer = MasterWeights(keras.optimizers.Adam(0.01), kind)
        model = model_with("bfloat16")
        model.set_weights(start)
        model.compile(optimizer, loss="mse", auto_scale_loss=False)
        model.fit(x, y, batch_size=8, epochs=10, shuffle=False, verbose=0)
        found.append([*masters(optimizer), *values(optimizer._narrow_weights.of_the_rule)])
    assert_same(*found)


@pytest.mark.parametrize("kind", ["float32", "split", "rounded"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_skipped_step_changes_no_bit(kind, dtype):
    if kind == "split" and dtype == "float16":
        return
    inner = (
        StochasticRounding(keras.optimizers.Adam(0.01), slots="bfloat16")
        if kind == "rounded"
        else MasterWeights(keras.optimizers.Adam(0.01), kind)
    )
    optimizer = LossScaleOptimizer(inner, count_skipped_steps=False)
    variables = weights(dtype)
    apply_scaled(optimizer, [g * 1024 for g in gradients(0, dtype)], variables)
    before = values([*variables, *inner.variables])
    bad = gradients(1, dtype)
    bad[1] = bad[1] * float("inf")
    apply_scaled(optimizer, bad, variables)
    assert_same(before, values([*variables, *inner.variables]))
    assert float(optimizer.loss_scale) == 2.0**14
    apply_scaled(optimizer, gradients(2, dtype), variables)
    assert any(
        not np.array_equal(one, other)
        for one, other in zip(before, values([*variables, *inner.variables]), strict=True)
    )


UNCOMPILED = not_on("torch", "Keras compiles no step of fit there")


@pytest.mark.parametrize("jit", [pytest.param(True, marks=UNCOMPILED), False], ids=["jit", "eager"])
@pytest.mark.parametrize("kind", ["float32", "rounded"])
def test_a_skipped_step_of_fit_changes_no_bit(kind, jit):
    inner = (
        StochasticRounding(keras.optimizers.Adam(0.01))
        if kind == "rounded"
        else MasterWeights(keras.optimizers.Adam(0.01))
    )
    model = model_with("float16")
    model.compile(LossScaleOptimizer(inner), loss="mse", jit_compile=jit, run_eagerly=not jit)
    x, y = data(2)
    model.fit(x, y, batch_size=8, verbose=0)
    kept = [
        v
        for v in (*model.trainable_variables, *inner.variables)
        if v is not inner.inner_optimizer._iterations
    ]
    before = values(kept)
    model.fit(x[:8], y[:8] * np.inf, batch_size=8, verbose=0)
    assert_same(before, values(kept))
    model.fit(x, y, batch_size=8, verbose=0)
    assert not np.array_equal(before[0], values(kept)[0])


def test_gradients_beyond_the_range_of_the_weights_are_taken():
    """They are divided in float32, and the master is float32."""
    weight = keras.Variable([1.0], dtype="float16")
    optimizer = LossScaleOptimizer(
        MasterWeights(keras.optimizers.SGD(1e-6)), dynamic=False, initial_scale=2.0
    )
    apply_scaled(optimizer, [ops.array([2e5])], [weight])
    assert float(weight.numpy()[0]) == np.float16(0.9)


@pytest.mark.parametrize("assign", ["variable", "set_weights"])
@pytest.mark.parametrize("kind", ["float32", "split"])
def test_what_is_assigned_is_the_new_master(kind, assign):
    model = model_with("bfloat16")
    optimizer = MasterWeights(keras.optimizers.SGD(1.0), kind)
    zeros = [ops.zeros(v.shape, v.dtype) for v in model.trainable_variables]
    optimizer.apply(zeros, model.trainable_variables)
    kernel = model.trainable_variables[0]
    if assign == "variable":
        kernel.assign(ops.ones(kernel.shape))
    else:
        model.set_weights([np.ones(v.shape, "float32") for v in model.weights])
    optimizer.apply(zeros, model.trainable_variables)
    np.testing.assert_array_equal(
        values([kernel])[0], np.minimum(np.ones(kernel.shape), values([kernel])[0])
    )
    limited = keras.constraints.MaxNorm(1.2)(ops.ones(kernel.shape))
    np.testing.assert_allclose(values([kernel])[0], ops.convert_to_numpy(limited), rtol=2.0**-8)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw_clipped", "lion", "rmsprop", "adafactor"])
def test_small_slots_are_near_the_large_ones(name):
    small = MasterWeights(OPTIMIZERS[name](), slots="bfloat16")
    large = MasterWeights(OPTIMIZERS[name]())
    left, right = weights(), weights()
    for step in range(30):
        small.apply(gradients(step), left)
        large.apply(gradients(step), right)
    narrow = [v for v in small.variables if str(v.dtype) == "bfloat16"]
    assert len(narrow) >= (1 if name == "adafactor" else 3)
    assert small._narrow_weights.of_the_rule[2:] or name == "adafactor"
    for one, other in zip(
        values(small._narrow_weights.of_the_rule),
        values(large._narrow_weights.of_the_rule),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=0.2, atol=np.abs(other).max() * 0.1 + 1e-6)


def test_variables_in_float32_are_the_inner_optimizers():
    plain, wrapped = (
        keras.optimizers.Adam(0.01),
        MasterWeights(keras.optimizers.Adam(0.01), "split"),
    )
    left, right = weights("float32"), weights("float32")
    for step in range(3):
        plain.apply(gradients(step, "float32"), left)
        wrapped.apply(gradients(step, "float32"), right)
    assert_same(values(left), values(right))
    assert_same(values(plain.variables), values(wrapped.variables))


def test_seeds():
    def after(seed):
        variables = weights()
        optimizer = StochasticRounding(keras.optimizers.SGD(0.01), seed=seed)
        for step in range(5):
            optimizer.apply(gradients(step), variables)
        return np.concatenate([v.ravel() for v in values(variables)])

    np.testing.assert_array_equal(after(1), after(1))
    assert not np.array_equal(after(1), after(2))


def test_small_steps_add_up():
    weight = keras.Variable(np.ones(4096), dtype="bfloat16")
    plain = keras.Variable(np.ones(4096), dtype="bfloat16")
    rounded, alone = StochasticRounding(keras.optimizers.SGD(1.0)), keras.optimizers.SGD(1.0)
    for _ in range(20):
        rounded.apply([ops.full((4096,), 1e-3)], [weight])
        alone.apply([ops.full((4096,), 1e-3)], [plain])
    assert values([plain])[0].mean() == 1.0
    # The variance of a step is at most (2**-8)**2 / 4, below 1.
    assert abs(values([weight])[0].mean() - 0.98) < 5 * 2**-9 * (20 / 4096) ** 0.5


@pytest.mark.parametrize("around", [True, False], ids=["around several", "one of several"])
def test_several_optimizers(around):
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("of Keras 3.15")
    rates = {"first": 0.1, "second": 0.01}
    left = [keras.Variable([1.0], dtype="bfloat16", name=name) for name in rates]
    right = [keras.Variable([1.0], dtype="float32", name=name) for name in rates]

    def several(wrap):
        parts = {name: wrap(keras.optimizers.SGD(rate)) for name, rate in rates.items()}
        return keras.optimizers.MultiOptimizer(lambda variable: parts[variable.path])

    wrapped = MasterWeights(several(lambda o: o)) if around else several(MasterWeights)
    plain = several(lambda o: o)
    for _ in range(9):
        wrapped.apply([ops.array([0.01]), ops.array([0.01])], left)
        plain.apply([ops.array([0.01]), ops.array([0.01])], right)
    rounded = [ops.cast(ops.cast(v, "bfloat16"), "float32") for v in right]
    assert_same(values(left), [ops.convert_to_numpy(v) for v in rounded])
    assert values(left)[0][0] != 1.0


@not_on("tensorflow", "Keras has none there")
def test_stateless_apply():
    for kind in ("float32", "split"):
        optimizer, other = (MasterWeights(keras.optimizers.Adam(0.1), kind) for _ in range(2))
        left, right = weights(), weights()
        optimizer.build(left)
        before = values([*left, *optimizer.variables])
        trained, state = optimizer.stateless_apply(
            [v.value for v in optimizer.variables], gradients(0), [v.value for v in left]
        )
        assert_same(before, values([*left, *optimizer.variables]))
        other.apply(gradients(0), right)
        assert_same(values(trained), values(right))
        assert_same(values(state), values(other.variables))


def test_hyperparameters_are_those_inside():
    inner = keras.optimizers.Adam(0.1, clipnorm=1.0)
    optimizer = LossScaleOptimizer(MasterWeights(inner))
    optimizer.learning_rate = 0.5
    optimizer.beta_1 = 0.8
    assert float(inner.learning_rate) == 0.5
    assert (inner.beta_1, optimizer.clipnorm, optimizer.inner_optimizer.beta_2) == (0.8, 1.0, 0.999)
    with pytest.raises(AttributeError, match="master of a MasterWeights is fixed at construction"):
        optimizer.inner_optimizer.master = "split"


@pytest.mark.parametrize("kind", ["float32", "split"])
def test_excluded_from_weight_decay(kind):
    def after(by):
        variables = weights()
        optimizer = MasterWeights(keras.optimizers.SGD(0.1, weight_decay=0.5), kind)
        optimizer.exclude_from_weight_decay(**by(variables))
        optimizer.apply([g * 0 for g in gradients(0)], variables)
        return [
            not np.array_equal(old, new)
            for old, new in zip(values(weights()), values(variables), strict=True)
        ]

    assert after(lambda v: {"var_list": [v[1]]}) == [True, False, True]
    assert after(lambda v: {"var_names": [v[2].name]}) == [True, True, False]


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: MasterWeights(keras.optimizers.Lion(0.5), "split", slots="bfloat16", seed=4),
        lambda: StochasticRounding(keras.optimizers.SGD(0.5, momentum=0.5), name="one"),
        lambda: LossScaleOptimizer(MasterWeights(keras.optimizers.Adam())),
    ],
)
def test_configs(optimizer):
    first = optimizer()
    second = keras.optimizers.deserialize(keras.optimizers.serialize(first))
    assert second.get_config() == first.get_config()
    assert type(second) is type(first)


def test_what_cannot_be():
    adam = keras.optimizers.Adam
    with pytest.raises(TypeError, match=r"LossScaleOptimizer\(MasterWeights\(optimizer\)\)"):
        MasterWeights(LossScaleOptimizer(adam()))
    with pytest.raises(TypeError, match="must not be a MasterWeights itself"):
        StochasticRounding(MasterWeights(adam()))
    with pytest.raises(TypeError, match="inner_optimizer must be a keras"):
        MasterWeights("adam")
    with pytest.raises(ValueError, match="master must be 'float32' or 'split', but got 'int8'"):
        MasterWeights(adam(), "int8")
    with pytest.raises(ValueError, match="slots must be 'float32' or 'bfloat16', but got 'int8'"):
        MasterWeights(adam(), slots="int8")
    with pytest.raises(ValueError, match="Ftrl: leave slots out"):
        StochasticRounding(keras.optimizers.Ftrl(), slots="bfloat16")
    with pytest.raises(ValueError, match="master='split' needs bfloat16 weights"):
        MasterWeights(adam(), "split").build(weights("float16"))
    inner = adam()
    inner.build(weights())
    with pytest.raises(ValueError, match="is built already"):
        MasterWeights(inner).build(weights())
    with pytest.raises(ValueError, match="needs a built optimizer"):
        MasterWeights(adam()).apply(gradients(0))


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_fused_kernels_update_the_masters(name):
    options = {
        "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
        "adam": keras.optimizers.Adam,
    }
    found = []
    for fused in (False, True):
        optimizer = LossScaleOptimizer(MasterWeights(options[name]()), fused=fused)
        variables = weights()
        for step in range(5):
            apply_scaled(optimizer, [g * 2.0**15 for g in gradients(step)], variables)
        found.append(masters(optimizer.inner_optimizer))
        if fused and BACKEND == "torch":
            assert optimizer.fused_fallback is None
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="gradients of embeddings are sparse there")
def test_sparse_gradients_of_copies_and_of_halves():
    """As with the optimizer alone for copies, and as its dense gradient for halves."""
    import tensorflow as tf

    rows = tf.constant([[0.5, 1.0], [0.25, -2.0], [3.0, 1.0]], tf.bfloat16)
    sparse = tf.IndexedSlices(rows, tf.constant([2, 0, 2]), tf.constant([4, 2]))
    dense = tf.convert_to_tensor(sparse)

    def trained(optimizer, gradient, dtype="bfloat16"):
        variable = keras.Variable(np.full((4, 2), 0.5), dtype=dtype)
        for _ in range(3):
            optimizer.apply([gradient], [variable])
        return masters(optimizer)[0] if dtype == "bfloat16" else variable.numpy()

    def adam():
        return keras.optimizers.Adam(0.01)

    wide = tf.IndexedSlices(tf.cast(rows, tf.float32), sparse.indices, sparse.dense_shape)
    copies = trained(MasterWeights(adam()), sparse)
    np.testing.assert_array_equal(copies, trained(adam(), wide, "float32"))
    halves = trained(MasterWeights(adam(), "split"), sparse)
    np.testing.assert_array_equal(halves, trained(MasterWeights(adam(), "split"), dense))


def test_fused_kernels_take_no_halves():
    optimizer = LossScaleOptimizer(MasterWeights(keras.optimizers.Adam(), "split"), fused=True)
    variables = weights()
    apply_scaled(optimizer, gradients(0), variables)
    assert optimizer.fused_fallback is not None


def test_follows_the_mixed_policy_in_float16():
    start = rounded_weights("float16")
    mixed, loss = fitted(
        "mixed_float16", LossScaleOptimizer(keras.optimizers.Adam(0.01)), start, False
    )
    optimizer = LossScaleOptimizer(MasterWeights(keras.optimizers.Adam(0.01)))
    _, narrow_loss = fitted("float16", optimizer, start, False)
    expected = values(mixed.trainable_variables[:4])
    assert_same(masters(optimizer.inner_optimizer), expected)
    assert narrow_loss == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "code"), [("float16", "no_master_copy"), ("bfloat16", "bfloat16_updates")]
)
def test_explain_names_the_remedy(dtype, code):
    model = model_with(dtype)
    for optimizer, found in (
        (keras.optimizers.SGD(), True),
        (LossScaleOptimizer(keras.optimizers.SGD()), True),
        (LossScaleOptimizer(MasterWeights(keras.optimizers.SGD())), False),
        (StochasticRounding(keras.optimizers.SGD()), False),
    ):
        explanation = explain(model, optimizer)
        remedies = [each for each in explanation.findings if each.code == code]
        assert bool(remedies) == found
        assert not found or "keras_mp.MasterWeights(optimizer)" in str(remedies[0])


def test_what_explain_says_of_bfloat16_is_so():
    weight = keras.Variable([1.0], dtype="bfloat16")
    optimizer = keras.optimizers.SGD(1e-3)
    for _ in range(100):
        optimizer.apply([ops.cast(ops.array([1.0]), "bfloat16")], [weight])
    assert float(weight.numpy()[0]) == 1.0


@pytest.mark.skipif(BACKEND != "torch", reason="about torch.compile")
@pytest.mark.parametrize("kind", ["float32", "split", "rounded", "scaled"])
def test_a_step_compiles_without_a_break(kind):
    import torch

    def after(compiled):
        variables = weights()
        inner = keras.optimizers.Adam(0.01)
        optimizer = (
            StochasticRounding(inner, slots="bfloat16")
            if kind == "rounded"
            else MasterWeights(inner, "split" if kind == "split" else "float32")
        )
        if kind == "scaled":
            optimizer = LossScaleOptimizer(optimizer)
            optimizer.scale_loss(1.0)
        optimizer.build(variables)

        def step(*given):
            with torch.no_grad():
                optimizer.apply(list(given), variables)

        take = torch.compile(step, fullgraph=True, backend="aot_eager") if compiled else step
        for number in range(4):
            take(*gradients(number))
        return values([*variables, *optimizer.variables])

    assert_same(after(False), after(True))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
@pytest.mark.parametrize("kind", ["split", "rounded"])
def test_copies(kind, copied):
    inner = keras.optimizers.Adam(0.01)
    optimizer = (
        StochasticRounding(inner, slots="bfloat16")
        if kind == "rounded"
        else MasterWeights(inner, "split")
    )
    model = model_with("bfloat16")
    model.compile(optimizer, "mse", run_eagerly=True, auto_scale_loss=False)
    x, y = data(2)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    other = copied(model)
    other.compile(other.optimizer, "mse", run_eagerly=True, auto_scale_loss=False)
    for each in (model, other):
        each.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    assert_same(
        values([*model.variables, *model.optimizer.variables]),
        values([*other.variables, *other.optimizer.variables]),
    )
