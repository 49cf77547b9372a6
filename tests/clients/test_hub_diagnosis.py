"""`explain`, `find_overflow`, `range_report` and `graph_rewrite.report` of keras-hub's tasks."""

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp import graph_rewrite
from tests.clients.small import keras_own, ours, plain, quick_on
from tests.clients.tasks import TASKS, trained

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(name):
    keras.utils.set_random_seed(1)
    example = TASKS[name]()
    example.task.compile(ours(), loss=LOSS)
    return example


@pytest.fixture(params=[pytest.param("bert", marks=quick_on("torch")), *list(TASKS)[1:]])
def name(request):
    return request.param


def cannot_run_eagerly(name, backend):
    if (name, backend) == ("bert_masked", "tensorflow"):
        pytest.skip("test_masked_lm_does_not_run_eagerly: with no optimizer, on TensorFlow")
    if (name, backend) == ("vit", "jax"):
        pytest.skip("JAX on CPU has no float16 attention: test_attention_that_jax_cannot_compile")


def test_explain(name):
    example = compiled(name)
    found = keras_mp.explain(example.task)
    assert "loss scale: needed; keras_mp.LossScaleOptimizer around Adam" in str(found)
    # The head computes in float16, too, unless its class says otherwise.
    outputs = example.task.outputs
    if outputs[0].dtype == "float16":
        assert "float16_output" in {finding.code for finding in found.findings}


def test_range_report(name, backend):
    cannot_run_eagerly(name, backend)
    example = compiled(name)
    ranges = keras_mp.range_report(example.task, example.arrays, steps=1)
    assert "1 step at a loss scale of 1024" in str(ranges)


def test_nothing_overflows(name, backend):
    cannot_run_eagerly(name, backend)
    if name == "t5":
        pytest.skip("something does: test_t5_overflows_in_its_mask")
    example = compiled(name)
    found = keras_mp.find_overflow(example.task, *example.arrays, loss_scale=1.0)
    assert found.first is None, str(found)
    assert np.isfinite(found.loss)


def test_a_planted_overflow_is_found():
    """A weight of the backbone that is too large is named, and nothing else as the first."""
    example = compiled("resnet")
    kernel = next(v for v in example.task.weights if v.path.endswith("conv1_conv/kernel"))
    kernel.assign(np.full(kernel.shape, 6e4))
    first = keras_mp.find_overflow(example.task, *example.arrays).first
    assert first.layer.endswith("conv1_conv")
    assert (first.op, first.dtype, first.kind) == ("conv", "float16", "inf")


def test_t5_overflows_in_its_mask():
    """T5 adds -1e9 where the mask is 0, which is -inf in float16, and 0 times that is nan."""
    example = compiled("t5")
    found = keras_mp.find_overflow(example.task, *example.arrays)
    assert "the constant -1e+09 is -inf in float16" in str(found)
    assert any("self_attention" in finding.layer for finding in found.findings)


@pytest.mark.parametrize("make_optimizer", [ours, keras_own], ids=["ours", "keras"])
def test_t5_in_float16(make_optimizer, backend):
    """What becomes of it is the backend's: no optimizer can help."""
    task = trained(TASKS["t5"], make_optimizer()).task
    finite = np.isfinite(task.history.history["loss"]).all()
    assert finite == (backend == "torch")  # there Python's numbers stay exact until multiplied


@pytest.mark.parametrize("make_optimizer", [ours, keras_own], ids=["ours", "keras"])
def test_masked_lm_does_not_run_eagerly(make_optimizer, backend):
    """MaskedLMHead adds a float32 variable to a float16 tensor by `+`, which TensorFlow refuses."""
    if backend != "tensorflow":
        pytest.skip("on TensorFlow only")
    example = TASKS["bert_masked"]()
    example.task.compile(make_optimizer(), loss=LOSS, run_eagerly=True)
    with pytest.raises(Exception, match="cannot compute AddV2"):
        example.task.fit(*example.raw, batch_size=2, verbose=0)


def float32(name):
    keras_mp.set_global_policy(None)
    keras.utils.set_random_seed(1)
    example = TASKS[name]()
    example.task.compile(plain(), loss=LOSS)
    return example


def test_report_of_the_graph_rewrite():
    example = float32("bert")
    report = graph_rewrite.report(example.task, example.arrays[0])
    assert "matmul" in str(report)


# Given what `fit` is given: strings.


@pytest.mark.parametrize("name", [pytest.param("bert", marks=quick_on("torch")), "gpt2"])
def test_find_overflow_of_strings(name):
    found = [
        keras_mp.find_overflow(example.task, *given, loss_scale=1.0)
        for example in [compiled(name)]
        for given in (example.raw, example.arrays)
    ]
    assert found[0].first is None
    assert str(found[0]) == str(found[1])


@pytest.mark.parametrize("name", [pytest.param("bert", marks=quick_on("torch")), "gpt2"])
def test_range_report_of_strings(name):
    example = compiled(name)
    report = str(keras_mp.range_report(example.task, example.raw, steps=1))
    assert report == str(keras_mp.range_report(example.task, example.arrays, steps=1))


def test_masked_lm_of_strings(backend):
    """Other words are masked each time; the labels come from the preprocessor."""
    cannot_run_eagerly("bert_masked", backend)
    example = compiled("bert_masked")
    found = keras_mp.find_overflow(example.task, *example.raw, loss_scale=1.0)
    assert found.first is None
    assert np.isfinite(found.loss)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_report_of_the_graph_rewrite_of_strings(name):
    example = float32(name)
    report = str(graph_rewrite.report(example.task, example.x))
    assert report == str(graph_rewrite.report(example.task, example.arrays[0]))
