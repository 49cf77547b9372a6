"""LossScale objects of TF 1.14 to 2.4, and the experimental optimizer that takes them."""

import copy
import pickle
import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat.legacy_classes import loss_scales
from keras_mp.compat.legacy_classes.loss_scale_optimizers import (
    ExperimentalLossScaleOptimizer as Experimental,
    LossScaleOptimizer as Stable,
)
from keras_mp.compat.legacy_classes.loss_scales import DynamicLossScale, FixedLossScale, LossScale


def sgd():
    return keras.optimizers.SGD(0.5, momentum=0.9, name="sgd")


class Triangle(LossScale):
    def __call__(self):
        return ops.ones(())

    def update(self, grads):
        return None, True

    def get_config(self):
        return {}


class Louder(DynamicLossScale):
    def update(self, grads):
        return None, True


EQUIVALENT = {
    "dynamic": ("dynamic", {}),
    "a number": (123, {"dynamic": False, "initial_scale": 123}),
    "a NumPy number": (np.float32(64), {"dynamic": False, "initial_scale": 64}),
    "fixed": (FixedLossScale(8.0), {"dynamic": False, "initial_scale": 8.0}),
    "dynamic with its numbers": (
        DynamicLossScale(initial_loss_scale=2048, increment_period=500),
        {"initial_scale": 2048, "dynamic_growth_steps": 500},
    ),
}


@pytest.mark.parametrize(("loss_scale", "arguments"), EQUIVALENT.values(), ids=EQUIVALENT)
def test_has_the_config_of_the_stable_class(loss_scale, arguments):
    old = Experimental(sgd(), loss_scale)
    assert old.get_config() == Stable(sgd(), **arguments).get_config()
    assert old.get_config() == keras_mp.LossScaleOptimizer(sgd(), **arguments).get_config()
    assert float(old.loss_scale) == old.initial_scale
    again = Experimental.from_config(old.get_config())
    assert type(again) is Experimental
    assert again.get_config() == old.get_config()
    assert float(again.loss_scale()) == old.initial_scale


def test_is_a_subclass_and_never_the_other_way_round():
    assert issubclass(Experimental, Stable)
    assert issubclass(Stable, keras_mp.LossScaleOptimizer)
    assert not isinstance(Stable(sgd()), Experimental)
    assert not isinstance(keras_mp.LossScaleOptimizer(sgd()), Stable)


REFUSED = {
    "nothing": (None, ValueError, "use the optimizer itself"),
    "another string": ("abc", ValueError, "expected 'dynamic', a number"),
    "a number as a string": ("123", ValueError, "expected 'dynamic', a number"),
    "below one": (0.5, ValueError, "must be at least 1"),
    "nan": (float("nan"), ValueError, "must be finite"),
    "more than float32": (1e300, ValueError, "must be finite in float32"),
    "more than any float": (10**400, ValueError, "must be finite in float32"),
    "a bool": (True, TypeError, "expected 'dynamic', a number"),
    "a list": ([8], TypeError, "of type list"),
    "a class of one's own": (Triangle(), TypeError, "Triangle, a class of your own"),
    "a subclass with another rule": (Louder(), TypeError, "Louder, a class of your own"),
}


@pytest.mark.parametrize(("loss_scale", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_refuses(loss_scale, error, text):
    with pytest.raises(error, match=text):
        Experimental(sgd(), loss_scale)


def test_needs_a_loss_scale():
    with pytest.raises(ValueError, match="got None"):
        Experimental(sgd())


def test_the_multiplier_is_two():
    assert DynamicLossScale().multiplier == DynamicLossScale(multiplier=2).multiplier == 2.0


def test_another_multiplier_names_the_call_that_does_the_same():
    with pytest.raises(ValueError, match="multiplier must be 2") as error:
        DynamicLossScale(initial_loss_scale=4096, increment_period=3, multiplier=4)
    (call,) = re.findall(r"keras_mp\.LossScaleOptimizer\(.*\)", str(error.value))
    assert "growth_factor=4.0, backoff_factor=0.25" in call
    made = eval(call, {"keras_mp": keras_mp, "optimizer": sgd()})  # the text, as a user pastes it
    assert (made.initial_scale, made.dynamic_growth_steps) == (4096, 3)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"initial_loss_scale": 0.5}, ValueError, "at least 1"),
        ({"initial_loss_scale": 1e39}, ValueError, "finite in float32"),
        ({"increment_period": 0}, ValueError, "whole number from 1"),
        ({"increment_period": 2.5}, ValueError, "whole number from 1"),
        ({"increment_period": 2**31}, ValueError, "whole number from 1 to 2147483647"),
        ({"increment_period": "2"}, TypeError, "must be a number"),
        ({"multiplier": 1}, ValueError, "must be 2"),
        ({"multiplier": True}, TypeError, "must be a number"),
    ],
)
def test_a_dynamic_scale_checks_its_numbers(arguments, error, text):
    with pytest.raises(error, match=f"^{next(iter(arguments))} .*{text}"):
        DynamicLossScale(**arguments)


def test_the_object_is_the_scale_of_its_optimizer():
    scale = DynamicLossScale(8.0, 2)
    opt = Experimental(sgd(), scale)
    assert opt.loss_scale is scale
    weight = keras.Variable([1.0])
    opt.build([weight])

    def step(gradient):
        opt.apply([ops.array([gradient])], [weight])

    opt.scale_loss(1.0)
    seen = []
    for gradient in (float("inf"), 1.0, 1.0, 1.0):
        step(gradient)
        seen.append((float(scale()), int(ops.convert_to_numpy(scale._num_good_steps))))
    assert seen == [(4.0, 0), (4.0, 1), (8.0, 0), (8.0, 1)]
    assert float(opt.loss_scale * 2.0) == 16.0
    assert float(2.0 * opt.loss_scale) == 16.0
    assert float(opt.loss_scale / 2.0) == 4.0
    assert float(2.0 / opt.loss_scale) == 0.25
    assert opt.loss_scale.numpy() == 8.0
    assert np.asarray(opt.loss_scale) == 8.0


def test_by_itself_it_follows_the_rule():
    scale = DynamicLossScale(4.0, 2)
    seen = []
    for gradient in (1.0, 1.0, float("nan"), float("inf"), float("-inf"), 1.0):
        _, may_apply = scale.update([ops.array([gradient]), None])
        seen.append((bool(may_apply), float(scale())))
    assert seen == [(True, 4), (True, 8), (False, 4), (False, 2), (False, 1), (True, 1)]


def test_a_fixed_scale_applies_everything():
    scale = FixedLossScale(64)
    assert scale.update([ops.array([float("nan")])]) == (None, True)
    assert float(scale) == 64


@pytest.mark.parametrize("scale", [FixedLossScale(64), DynamicLossScale(128, 7)], ids=str)
def test_configs_and_copies(scale):
    assert type(scale).from_config(scale.get_config()).get_config() == scale.get_config()
    assert copy.deepcopy(scale).get_config() == scale.get_config()
    assert pickle.loads(pickle.dumps(scale)).get_config() == scale.get_config()


def test_get_takes_what_it_gives():
    for identifier in ("dynamic", 123, None):
        scale = loss_scales.get(identifier)
        assert loss_scales.get(scale) is scale


def test_scales_below_one_come_from_configs():
    """TF 2.4 took them, and configs may hold them."""
    config = {
        "inner_optimizer": {"class_name": "SGD", "config": {"learning_rate": 0.1}},
        "dynamic": False,
        "initial_scale": 0.5,
        "dynamic_growth_steps": None,
    }
    assert float(Experimental.from_config(config).loss_scale()) == 0.5


def test_one_object_in_two_optimizers_is_the_scale_of_the_first():
    scale = DynamicLossScale(8.0, 1)
    first, second = Experimental(sgd(), scale), Experimental(sgd(), scale)
    weight = keras.Variable([1.0])
    first.build([weight])
    first.scale_loss(1.0)
    first.apply([ops.array([8.0])], [weight])
    assert [float(o) for o in (first.loss_scale, second.loss_scale, scale)] == [16, 8, 16]


def test_a_scale_that_moved_before_it_was_wrapped():
    scale = DynamicLossScale(8.0, 1)
    scale.update([ops.array([1.0])])
    opt = Experimental(sgd(), scale)
    assert (float(opt.loss_scale), float(opt.scale_loss(1.0))) == (16, 16)


def test_counts_as_a_number():
    scale = Experimental(sgd(), 8).loss_scale
    assert scale == 8
    assert scale != 9
    assert 7 < scale < 9
    assert 8 <= scale <= 8.0
    assert int(scale) == 8
    assert f"{scale:.1f}" == "8.0"
    assert float(scale + 1) == float(1 + scale) == 9
    assert float(scale - 1) == -float(1 - scale) == 7
    assert scale.dtype == "float32"
    assert len({scale, scale}) == 1


@pytest.mark.parametrize("make", [np.array, ops.array, keras.Variable])
def test_is_compared_element_by_element(make):
    scale = FixedLossScale(8)
    values = make([8.0, 9.0])
    for found, expected in (
        (scale == values, [True, False]),
        (values == scale, [True, False]),
        (scale != values, [False, True]),
        (values != scale, [False, True]),
    ):
        assert ops.convert_to_numpy(found).tolist() == expected


@pytest.mark.parametrize("other", ["8", None, FixedLossScale(8), [8]], ids=str)
def test_is_no_other_object(other):
    assert FixedLossScale(8) != other
    assert (FixedLossScale(8) == other) is False


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.function")
def test_follows_inside_functions_of_tensorflow():
    import tensorflow as tf

    opt = Experimental(sgd(), DynamicLossScale(8.0))

    @tf.function
    def scaled(x):
        return x * opt.loss_scale, tf.cast(opt.loss_scale, tf.float16)

    seen = []
    for scale in (8.0, 4.0):
        opt.dynamic_scale.assign(scale)
        seen.append([float(value) for value in scaled(tf.constant(2.0))])
    assert seen == [[16, 8], [8, 4]]


def test_a_class_with_weights_of_its_own_reaches_the_error():
    class Weighted(Triangle):
        def __init__(self):
            self._value = self._add_weight(name="value", initial_value=3.0)

    with pytest.raises(TypeError, match="Weighted, a class of your own"):
        Experimental(sgd(), Weighted())


def test_needs_a_loss_scale_whatever_else_is_said():
    with pytest.raises(ValueError, match="got None"):
        Experimental(sgd(), name="x")


def test_further_settings():
    opt = Experimental(sgd(), 8, skip_nonfinite=False)
    assert opt.get_config()["skip_nonfinite"] is False


@pytest.mark.parametrize("scale", [0, -1])
def test_promises_nothing_that_is_refused(scale):
    with pytest.raises(ValueError, match="at least 1") as error:
        FixedLossScale(scale)
    assert "takes it" not in str(error.value)
