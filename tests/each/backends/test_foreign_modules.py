"""Modules of torch, flax and JAX train under a mixed policy: weights and state in float32."""

import keras
import numpy as np
import pytest

import keras_mp
from tests import foreign_modules
from tests.foreign_modules import BACKEND, images

ON_TORCH = pytest.mark.skipif(BACKEND != "torch", reason="about modules of torch")
NOT_ON_TORCH = pytest.mark.skipif(BACKEND == "torch", reason="about modules of flax and JAX")
MIXED = ["mixed_float16", "mixed_bfloat16"]


@pytest.fixture(autouse=True)
def policies():
    yield
    keras_mp.set_global_policy(None)


def trained(policy, steps):
    """Returns a model after `steps` steps with 32 images, and its loss."""
    keras.utils.set_random_seed(1)
    keras_mp.set_global_policy(policy)
    model = foreign_modules.model()
    x, y = images(32)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    if policy == "mixed_float16":
        optimizer = keras_mp.LossScaleOptimizer(optimizer, initial_scale=2.0**10)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    model.fit(x, y, batch_size=16, epochs=steps // 2, verbose=0)
    return model, float(model.evaluate(x, y, batch_size=64, verbose=0))


@pytest.mark.parametrize("policy", MIXED)
def test_a_module_trains(policy):
    model, loss = trained(policy, 8)
    assert np.isfinite(loss)
    assert {v.dtype for v in model.weights if "float" in v.dtype} == {"float32"}
    assert model(images(2)[0]).dtype == model.layers[-1](images(2)[0]).dtype
    assert keras.backend.standardize_dtype(model(images(2)[0]).dtype) == policy[6:]


def test_it_learns_as_in_float32():
    _, exact = trained("float32", 200)
    _, mixed = trained("mixed_float16", 200)
    assert abs(mixed - exact) < 0.01 * max(exact, 0.1)


def test_weights_stay_float32_and_gradients_are_unscaled():
    keras_mp.set_global_policy("mixed_float16")
    model = foreign_modules.model()
    x, y = images(8)
    before = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(1e-4), initial_scale=1024.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    model.train_on_batch(x, y)
    after = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    moved = max(np.abs(a - b).max() for a, b in zip(after, before, strict=True))
    assert 1e-7 < moved < 1e-3  # scaled by 1024 it would be 0.01 and more
    assert all(a.dtype == "float32" for a in after)


def test_a_skipped_step_changes_nothing():
    keras_mp.set_global_policy("mixed_float16")
    model = foreign_modules.model()
    x, y = images(8)
    model.compile(
        keras_mp.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**60),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    before = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    model.train_on_batch(x, y)
    for old, new in zip(before, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(old, keras.ops.convert_to_numpy(new))


def test_other_policies_compute_as_before():
    keras_mp.set_global_policy("mixed_float16")
    x = images(4)[0]
    plain = foreign_modules.cnn("float32")
    assert keras.backend.standardize_dtype(plain(x).dtype) == "float32"


def test_a_layer_made_before_the_policy_was_set_computes_by_its_own():
    layer = foreign_modules.cnn("mixed_float16")
    keras_mp.set_global_policy("mixed_float16")
    assert keras.backend.standardize_dtype(layer(images(4)[0]).dtype) == "float16"


# -- torch -----------------------------------------------------------------------------------------


def torch_modules():
    if BACKEND != "torch":
        return {}
    import torch
    from torch import nn

    class First(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)[0]

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8, 8))

        def forward(self, x):
            return torch.softmax(x @ self.weight + self.weight[0], -1)

    sequence, image = (2, 5, 8), (2, 4, 8, 8)
    return {
        "linear": (nn.Linear(8, 4), (2, 8)),
        "convolution": (nn.Conv2d(4, 4, 3), image),
        "transposed": (nn.ConvTranspose2d(4, 4, 3), image),
        "batch": (nn.BatchNorm2d(4), image),
        "layer": (nn.LayerNorm(8), sequence),
        "group": (nn.GroupNorm(2, 4), image),
        "instance": (nn.InstanceNorm2d(4, affine=True), image),
        "prelu": (nn.PReLU(), (2, 8)),
        "lstm": (First(nn.LSTM(8, 4, batch_first=True)), sequence),
        "gru": (First(nn.GRU(8, 4, batch_first=True)), sequence),
        "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), sequence),
        "softmax": (nn.Softmax(-1), (2, 8)),
        "of one's own": (Own(), (2, 8)),
    }


@ON_TORCH
@pytest.mark.parametrize("name", torch_modules())
def test_modules_of_torch_compute_as_under_autocast(name):
    import torch

    keras_mp.set_global_policy("mixed_float16")
    module, shape = torch_modules()[name]
    layer = keras.layers.TorchModuleWrapper(module)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    made = layer(x, training=False)
    with torch.autocast("cpu", torch.float16):
        expected = module.eval()(x.half()).half()
    assert made.dtype == torch.float16
    torch.testing.assert_close(made, expected, rtol=0, atol=0)
    if made.requires_grad:
        made.float().sum().backward()
        assert {p.grad.dtype for p in module.parameters()} == {torch.float32}


@ON_TORCH
def test_buffers_are_not_rounded():
    import torch

    keras_mp.set_global_policy("mixed_float16")
    module = torch.nn.BatchNorm1d(4, momentum=0.0)
    module.running_mean += 2049.0
    layer = keras.layers.TorchModuleWrapper(module)
    layer(np.ones((4, 4), "float32"), training=True)
    assert module.running_mean.tolist() == [2049.0] * 4
    assert module.running_mean.dtype == torch.float32


@ON_TORCH
def test_torch_compile_takes_it_as_one_graph():
    import torch

    keras_mp.set_global_policy("mixed_float16")
    layer = foreign_modules.cnn()
    x = torch.from_numpy(images(2)[0])
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, training=False), layer(x, training=False))


@ON_TORCH
def test_a_module_in_an_attribute_is_wrapped_by_keras():
    import torch

    keras_mp.set_global_policy("mixed_float16")

    class Layer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)

        def call(self, x):
            return self.inner(x)

    assert Layer()(np.ones((1, 4), "float32")).dtype == torch.float16


# -- flax and JAX ----------------------------------------------------------------------------------


def statistics(layer):
    return [v for v in layer.tracked_state if keras.backend.is_float_dtype(v.dtype)]


@NOT_ON_TORCH
@pytest.mark.parametrize("policy", MIXED)
def test_statistics_of_flax_are_not_rounded(policy):
    keras_mp.set_global_policy(policy)
    layer = foreign_modules.flax_layer(momentum=1.0)
    x = images(4)[0]
    model = keras.Sequential([keras.Input((8, 8, 1)), layer])
    model(x)
    for variable in statistics(layer):
        variable.assign(np.full(variable.shape, 2049.0))
    model(x, training=True)
    for variable in statistics(layer):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), 2049.0)


def as_jmp(policy, params, x, state):
    """What `JaxLayer` is to compute, by the casts of jmp's `Policy`."""
    import jax
    import jax.numpy as jnp

    low = jnp.dtype(policy[6:])
    params = jax.tree.map(lambda p: p.astype(low), params)
    return by_hand(params, state, x.astype(low))[0].astype(low)


def by_hand(params, state, inputs):
    return inputs @ params["w"] + state["shift"] * 0, {"shift": state["shift"]}


@NOT_ON_TORCH
@pytest.mark.parametrize("policy", MIXED)
def test_functions_of_jax_compute_as_with_jmp(policy):
    import jax.numpy as jnp

    foreign_modules.need_jax_layers()
    keras_mp.set_global_policy(policy)
    random = np.random.default_rng(0)
    params = {"w": jnp.asarray(random.normal(size=(4, 3)), "float32")}
    state = {"shift": jnp.full((), 2049.0)}
    x = random.normal(size=(2, 4)).astype("float32")

    def call(params, state, inputs):
        assert params["w"].dtype == policy[6:]
        assert state["shift"].dtype == "float32"
        return by_hand(params, state, inputs)

    layer = keras.layers.JaxLayer(call, params=params, state=state)
    made = layer(keras.ops.convert_to_tensor(x))
    expected = as_jmp(policy, params, jnp.asarray(x), state)
    made = keras.ops.convert_to_numpy(keras.ops.cast(made, "float32"))
    np.testing.assert_array_equal(made, np.asarray(expected, "float32"))
    assert float(keras.ops.convert_to_numpy(layer.tracked_state[0])) == 2049.0


@NOT_ON_TORCH
def test_an_output_in_float32_is_cast_by_the_policy():
    keras_mp.set_global_policy("mixed_float16")
    layer = foreign_modules.flax_layer(head="float32")
    assert keras.backend.standardize_dtype(layer(images(4)[0]).dtype) == "float16"
