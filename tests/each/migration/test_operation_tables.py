"""The tables of `migration/to_backend`: each row's functions have these parameters, and compute
the same. TensorFlow's results are recorded, so that every backend compares with them."""

import inspect
import json

import keras
import numpy as np
import pytest

from keras_mp.migration.to_backend.operations import EXPRESSIONS
from tests import operation_examples as examples
from tests.operation_examples import RANDOM, ROWS

RECORDED = json.loads(examples.RECORDED.read_text(encoding="utf-8"))
COMPUTED = [name for name in ROWS if name not in RANDOM]
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
only_tensorflow = pytest.mark.skipif(not ON_TENSORFLOW, reason="the parameters of TensorFlow")
# Defaults that mean the same, though they are written otherwise.
SAME_DEFAULTS = {
    *(("zeros", "dtype"), ("ones", "dtype"), ("eye", "dtype"), ("linalg.eye", "dtype")),
    *(("norm", "ord"), ("norm", "keepdims"), ("linalg.norm", "ord"), ("linalg.norm", "keepdims")),
    *(("nn.softmax", "axis"), ("nn.log_softmax", "axis"), ("math.log_softmax", "axis")),
    *(("one_hot", "axis"), ("range", "delta"), ("arange", "step"), ("random.categorical", "dtype")),
    *((f"random.{name}", "dtype") for name in ("normal", "truncated_normal", "uniform")),
    *((f"nn.conv{n}d", name) for n in (1, 2, 3) for name in ("data_format", "dilations")),
    *((f"nn.{kind}_pool2d", "data_format") for kind in ("max", "avg")),
    *(("pad", "mode"), ("pad", "constant_values"), ("nn.depthwise_conv2d", "dilations")),
    *(("random.uniform", "minval"), ("random.uniform", "maxval")),
    *((f"{module}.l2_normalize", "epsilon") for module in ("nn", "math", "linalg")),
    # Nobody leaves these out.
    *(("cond", name) for name in ("true_fn", "false_fn")),
    *(("nn.sigmoid_cross_entropy_with_logits", name) for name in ("labels", "logits")),
}


def same(arrays, expected):
    found = examples.numbers(arrays)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")  # PyTorch, of what Keras calls
@pytest.mark.parametrize("name", COMPUTED)
def test_keras_computes_what_tensorflow_did(name):
    same(examples.computed_by_keras(name), RECORDED[name])


@only_tensorflow
@pytest.mark.parametrize("name", COMPUTED)
def test_tensorflow_still_does(name):
    same(examples.computed_by_tensorflow(name), RECORDED[name])


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions(name):
    same(examples.expression_by_keras(name), RECORDED[f"= {name}"])


@only_tensorflow
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_tensorflow_computes_the_expressions(name):
    same(examples.expression_by_tensorflow(name), RECORDED[f"= {name}"])


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_of_the_same_distribution(name):
    of = [examples.computed_by_keras(name)[0]]
    of += [examples.computed_by_tensorflow(name)[0]] if ON_TENSORFLOW else []
    given, _ = examples.example(name)
    for found in of:
        if "mean" in given:
            assert abs(found.mean() - 3) < 0.1
            assert abs(found.std() - 0.5) < 0.08
        elif "minval" in given:
            assert 2 <= found.min() < 2.1 < 4.9 < found.max() <= 5
        elif "logits" in given:
            assert abs(found.mean() - 0.8) < 0.1
        elif "value" in given:
            assert (found != given["value"]).any()
            assert sorted(found) == sorted(given["value"])
        else:
            assert set(np.unique(found)) == {0, np.float32(1 / 0.75)}


def test_every_row_has_an_example():
    assert len(ROWS) > 250
    assert RECORDED.keys() == {*COMPUTED, *(f"= {name}" for name in EXPRESSIONS)}
    for name in COMPUTED:
        assert RECORDED[name]


@pytest.mark.parametrize("name", ROWS)
def test_the_parameters_of_keras(name):
    parameters = inspect.signature(examples.of_keras(name)).parameters
    row, names = ROWS[name], list(parameters)
    for at, each in enumerate(row.parameters.split()):
        new = each.strip("*").split("=")[-1]
        if each.startswith("-"):
            assert each[1:] not in names
            continue
        assert new in names
        assert (names.index(new) == at) is not each.endswith("*"), each
    for each in (*row.defaults.split(), *row.also.split()):
        assert each.split("=")[0] in names


@only_tensorflow
@pytest.mark.parametrize("name", ROWS)
def test_the_parameters_of_tensorflow(name):
    row = ROWS[name]
    parameters = inspect.signature(examples.of_tensorflow(name)).parameters
    names = [one for one in parameters if one not in ("name", "kwargs")]
    if name == "tf.meshgrid":
        names = ["args", "indexing"]  # the second one of its kwargs
    # Older ones lack some that Keras has not.
    written = [
        each.strip("-*").split("=")[0]
        for each in row.parameters.split()
        if not each.startswith("-") or each[1:] in names
    ]
    assert written == names


@only_tensorflow
@pytest.mark.parametrize("name", ROWS)
def test_defaults_that_differ_are_said(name):
    row = ROWS[name]
    old = inspect.signature(examples.of_tensorflow(name)).parameters
    new = inspect.signature(examples.of_keras(name)).parameters
    said = {each.split("=")[0] for each in (*row.defaults.split(), *row.also.split())}
    for each in row.parameters.split():
        parameter, its = each.strip("-*").split("=")[0], each.strip("*").split("=")[-1]
        if each.startswith("-") or parameter not in old:
            continue
        had = old[parameter].default
        if had is inspect.Parameter.empty or (name.split(".", 1)[1], parameter) in SAME_DEFAULTS:
            continue
        has = new[its].default
        assert had == has or its in said or parameter in row.needs, (parameter, had, has)
