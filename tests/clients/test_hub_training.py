"""Tasks of keras-hub train with loss scaling as they do with Keras' own class."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from tests.clients.small import keras_own, ours, plain, quick_on, state
from tests.clients.tasks import TASKS, Example, models, train, trained

# T5 and, on JAX, ViT have tests of their own below: no optimizer trains them in float16.
TRAINED = [
    pytest.param("bert", marks=quick_on("tensorflow", "torch")),
    "bert_masked",
    "gpt2",
    "resnet",
    "vit",
]


def numbers(variables):
    return [ops.convert_to_numpy(v).astype("float64") for v in variables]


@pytest.fixture(params=TRAINED)
def make(request, backend):
    if (request.param, backend) == ("vit", "jax"):
        pytest.skip("JAX on CPU has no float16 attention: test_attention_that_jax_cannot_compile")
    return TASKS[request.param]


def test_it_trains_as_with_the_class_of_keras(make, backend):
    """Two growths of the scale, and the same weights in the end.

    On TensorFlow not with embeddings: Keras squares rows that are named twice one by one, and
    LossScaleOptimizer their sum (tests/each/optimizer/test_inner_optimizers.py).
    """
    monitor = keras_mp.LossScaleMonitor(trace=True)
    example = trained(make, ours(), callbacks=[monitor])
    optimizer = example.task.optimizer
    assert int(optimizer.iterations) == 4
    assert list(monitor.trace.kinds) == [0] * 4
    assert list(monitor.trace.scales) == [1024.0, 1024.0, 2048.0, 2048.0]
    history = example.task.history.history
    assert history["loss_scale"] == [4096.0]
    assert history["skipped_steps"] == [0]

    if backend == "tensorflow" and any("embedding" in v.path for v in optimizer.variables):
        return
    oracle = trained(make, keras_own())
    for one, other in zip(
        numbers(example.task.trainable_variables),
        numbers(oracle.task.trainable_variables),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(history["loss"], oracle.task.history.history["loss"], rtol=1e-3)


@pytest.mark.parametrize(
    "name", [pytest.param("bert", marks=quick_on("torch")), "bert_masked", "gpt2"]
)
def test_strings(name):
    """`fit` preprocesses them, as with any optimizer."""
    optimizer = trained(TASKS[name], ours(), raw=True).task.optimizer
    assert (int(optimizer.iterations), float(optimizer.loss_scale)) == (4, 4096.0)


def test_a_bad_batch_is_skipped():
    """Bit for bit, in a task with a preprocessor: images that hold an inf."""
    example = trained(TASKS["resnet"], ours(min_scale=1.0))
    task, optimizer = example.task, example.task.optimizer
    weights, slots = state(task.trainable_variables), state(optimizer.inner_optimizer.variables[2:])
    bad = np.full_like(example.x, np.inf)
    task.fit(bad, example.y, batch_size=8, verbose=0)
    assert float(optimizer.loss_scale) == 2048.0
    assert int(optimizer.skipped_steps) == 1
    assert state(task.trainable_variables) == weights
    assert state(optimizer.inner_optimizer.variables[2:]) == slots


@pytest.mark.parametrize("make_optimizer", [ours, keras_own], ids=["ours", "keras"])
def test_attention_that_jax_cannot_compile(make_optimizer, backend):
    """keras.layers.MultiHeadAttention without dropout is one fused op."""
    if backend != "jax":
        pytest.skip("on JAX only")
    with pytest.raises(ValueError, match=r"F16_F16_F32.*not supported by dot_general on CPU"):
        trained(TASKS["vit"], make_optimizer())


def test_attention_in_float32():
    """What docs/how-to/recipes.md says of GPT-2 without dropout on JAX on a CPU."""
    policy = keras.dtype_policies.DTypePolicyMap(
        default_policy="mixed_float16",
        policy_map={".*self_attention.*": keras.DTypePolicy("float32")},
    )
    example = trained(lambda: TASKS["gpt2"](dropout=0.0, dtype=policy), ours())
    assert int(example.task.optimizer.iterations) == 4
    assert np.isfinite(example.task.history.history["loss"]).all()


@pytest.mark.parametrize("make_optimizer", [ours, plain], ids=["ours", "plain"])
def test_vit_in_bfloat16(make_optimizer):
    keras_mp.set_global_policy("mixed_bfloat16")
    example = trained(TASKS["vit"], make_optimizer())
    assert int(example.task.optimizer.iterations) == 4
    assert np.isfinite(example.task.history.history["loss"]).all()


@pytest.mark.parametrize("make_optimizer", [ours, plain], ids=["ours", "plain"])
def test_t5_in_bfloat16(make_optimizer):
    keras_mp.set_global_policy("mixed_bfloat16")
    example = trained(TASKS["t5"], make_optimizer())
    assert int(example.task.optimizer.iterations) == 4
    assert np.isfinite(example.task.history.history["loss"]).all()


def with_lora():
    """GPT-2 with LoRA in its attention; what is left to train is that, and two biases."""
    example = TASKS["gpt2"]()
    example.task.backbone.enable_lora(2)
    return example


@quick_on("torch")
def test_lora_trains_what_is_small(tmp_path):
    keras.utils.set_random_seed(1)
    example: Example = with_lora()
    task = example.task
    before = {v.path: data for v, data in zip(task.weights, state(task.weights), strict=True)}
    task.compile(ours(), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    train(task, example.arrays)
    after = {v.path: data for v, data in zip(task.weights, state(task.weights), strict=True)}
    trainable = {v.path for v in task.trainable_weights}
    assert {path for path in after if after[path] != before[path]} == trainable
    assert sum("lora_kernel" in path for path in trainable) == 4
    optimizer = task.optimizer
    assert (int(optimizer.iterations), float(optimizer.loss_scale)) == (4, 4096.0)
    assert len(optimizer.inner_optimizer.variables) == 2 + 2 * len(trainable)

    task.backbone.save_lora_weights(tmp_path / "adapter.lora.h5")
    other = with_lora().task
    other.backbone.load_lora_weights(tmp_path / "adapter.lora.h5")
    kernels = [[v for v in t.weights if "lora_kernel" in v.path] for t in (task, other)]
    assert state(kernels[0]) == state(kernels[1])


def test_generate_after_training():
    """`generate` compiles a function of its own, on the weights as they are."""
    example = trained(TASKS["gpt2"], ours())
    example.task.compile(example.task.optimizer, sampler="greedy")
    text = example.task.generate("the cat", max_length=6)
    assert text.startswith("the cat")


def test_compile_by_name_is_of_keras():
    """`compile()` alone, and by name: Keras' class, or ours with `auto_wrap`."""
    task = TASKS["bert"]().task
    assert type(task.optimizer) is keras.optimizers.LossScaleOptimizer
    with keras_mp.auto_wrap():
        wrapped = models.BertTextClassifier(task.backbone, num_classes=2)
        assert type(wrapped.optimizer) is keras_mp.LossScaleOptimizer
        assert isinstance(wrapped.optimizer.inner_optimizer, keras.optimizers.Adam)
