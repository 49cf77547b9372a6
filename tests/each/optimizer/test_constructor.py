"""What LossScaleOptimizer wraps, what it refuses and with which words."""

import keras
import pytest

from keras_mp import LossScaleOptimizer


def sgd(**options):
    return keras.optimizers.SGD(0.1, **options)


def test_is_a_loss_scale_optimizer_of_keras():
    """So compile does not wrap it again, and isinstance checks of Keras hold."""
    assert isinstance(LossScaleOptimizer(sgd()), keras.optimizers.LossScaleOptimizer)


def test_properties_of_a_dynamic_scale():
    opt = LossScaleOptimizer(sgd(), initial_scale=8, dynamic_growth_steps=5)
    assert opt.dynamic is True
    assert (opt.initial_scale, opt.dynamic_growth_steps) == (8.0, 5)
    assert keras.ops.is_tensor(opt.loss_scale)
    before = opt.loss_scale
    opt.dynamic_scale.assign(16.0)
    assert (float(before), float(opt.loss_scale)) == (8.0, 16.0), "a value, not the variable"
    opt.dynamic_scale.assign(8.0)
    assert keras.backend.standardize_dtype(opt.loss_scale.dtype) == "float32"
    assert tuple(opt.loss_scale.shape) == tuple(opt.dynamic_counter.shape) == ()
    assert (float(opt.loss_scale), int(opt.dynamic_counter)) == (8.0, 0)


def test_properties_of_a_fixed_scale():
    opt = LossScaleOptimizer(sgd(), False, 128)
    assert opt.dynamic is False
    assert (float(opt.loss_scale), opt.dynamic_counter, opt.dynamic_growth_steps) == (
        128.0,
        None,
        None,
    )
    with pytest.raises(ValueError, match="fixed"):
        opt.dynamic_growth_steps = 3


def test_keras_2_positional_order():
    opt = LossScaleOptimizer(sgd(), True, 64.0, 7)
    assert (opt.dynamic, opt.initial_scale, opt.dynamic_growth_steps) == (True, 64.0, 7)


def test_keras_3_positional_order_is_refused_with_the_remedy():
    with pytest.raises(TypeError, match=r"LossScaleOptimizer\(optimizer, initial_scale=1024\.0\)"):
        LossScaleOptimizer(sgd(), 1024.0)


def test_refuses_itself():
    with pytest.raises(TypeError, match="scaled twice"):
        LossScaleOptimizer(LossScaleOptimizer(sgd()))
    with pytest.raises(TypeError, match="scaled twice"):
        LossScaleOptimizer(keras.optimizers.LossScaleOptimizer(sgd()))


def test_refuses_an_inner_optimizer_that_is_wrapped():
    inner = sgd()
    wrapper = LossScaleOptimizer(inner)
    with pytest.raises(ValueError, match="already wrapped"):
        LossScaleOptimizer(inner)
    assert wrapper.inner_optimizer is inner


def test_refuses_unknown_keywords():
    with pytest.raises(TypeError, match=r"clipnorm \(set it on the inner optimizer\), foo"):
        LossScaleOptimizer(sgd(), clipnorm=1.0, foo=2)


def test_a_loss_scale_factor_is_cleared_with_a_warning():
    inner = sgd(loss_scale_factor=128.0)
    with pytest.warns(UserWarning, match=r"loss_scale_factor=128\.0.*cleared.*initial_scale=128"):
        opt = LossScaleOptimizer(inner)
    assert inner.loss_scale_factor is None
    assert opt.loss_scale_factor is None
    with pytest.raises(ValueError, match="dynamic=False, initial_scale="):
        opt.loss_scale_factor = 4.0


def test_a_refused_argument_leaves_the_inner_optimizer_free():
    inner = sgd(loss_scale_factor=128.0)
    with pytest.raises(ValueError, match="initial_scale"):
        LossScaleOptimizer(inner, initial_scale=-1)
    assert inner.loss_scale_factor == 128.0
    inner.loss_scale_factor = None
    LossScaleOptimizer(inner)


def test_inner_optimizer_cannot_be_replaced():
    opt = LossScaleOptimizer(sgd())
    with pytest.raises(AttributeError, match="cannot be replaced"):
        opt.inner_optimizer = sgd()


def test_build_is_idempotent():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(sgd(momentum=0.9), initial_scale=8.0)
    opt.build([variable])
    opt.dynamic_scale.assign(2.0)
    before = len(opt.variables)
    opt.build([variable])
    assert (len(opt.variables), float(opt.loss_scale)) == (before, 2.0)


def test_build_for_other_variables_than_the_inner_optimizer_is_refused():
    inner = sgd()
    inner.build([keras.Variable([1.0])])
    with pytest.raises(ValueError, match=r"built for 1 other variables than these 2"):
        LossScaleOptimizer(inner).build([keras.Variable(1.0), keras.Variable(2.0)])


def test_order_of_variables():
    """The order of Keras' own class, which saves by it; what it does not have comes last."""
    variable = keras.Variable([1.0])
    ours = LossScaleOptimizer(sgd(momentum=0.9))
    theirs = keras.optimizers.LossScaleOptimizer(sgd(momentum=0.9))
    for opt in (ours, theirs):
        opt.build([variable])
    known = [v.name for v in theirs.variables]
    assert [v.name for v in ours.variables] == [*known, "nonfinite_kind", "skipped_steps"]
    assert [v.name for v in ours.variables[:4]] == [
        "iteration",
        "learning_rate",
        "step_counter",
        "dynamic_scale",
    ]


def test_a_wrapper_that_nobody_uses_frees_its_inner_optimizer():
    """As when a notebook cell is run again; the old wrapper hangs in a cycle."""
    inner = sgd()
    wrapper = LossScaleOptimizer(inner)
    wrapper.__dict__["cycle"] = [wrapper]
    del wrapper
    assert LossScaleOptimizer(inner).inner_optimizer is inner


def test_optimizers_that_compare_equal_are_two():
    class Equal(keras.optimizers.SGD):
        def __eq__(self, other):
            return True

        __hash__ = None

    first, second = LossScaleOptimizer(Equal()), LossScaleOptimizer(Equal())
    assert first.inner_optimizer is not second.inner_optimizer


@pytest.mark.parametrize("value", [0, 2.5])
def test_growth_steps_are_checked_when_set(value):
    opt = LossScaleOptimizer(sgd())
    with pytest.raises(ValueError, match="dynamic_growth_steps must be an integer"):
        opt.dynamic_growth_steps = value


def test_wrapping_a_multi_optimizer_serializes_nothing(recwarn):
    """Its get_config would, and warn of the lambda."""
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("keras.optimizers.MultiOptimizer came with Keras 3.15")
    inner = sgd()
    LossScaleOptimizer(keras.optimizers.MultiOptimizer(lambda variable: inner))
    assert not recwarn.list


MADE_WITH = {
    "dynamic": True,
    "initial_scale": 64.0,
    "growth_factor": 4.0,
    "backoff_factor": 0.25,
    "min_scale": 2.0,
    "max_scale": 2.0**20,
    "hysteresis": 3,
    "count_skipped_steps": False,
    "skip_nonfinite": True,
    "diagnose": True,
    "max_consecutive_skips": 9,
    "fused": False,
}


@pytest.mark.parametrize("name", MADE_WITH)
def test_what_it_is_made_with_is_read_and_cannot_be_set(name):
    """An attribute of that name would be taken, and change nothing."""
    opt = LossScaleOptimizer(sgd(), **MADE_WITH)
    assert getattr(opt, name) == MADE_WITH[name]
    with pytest.raises(AttributeError, match=rf"LossScaleOptimizer\(inner, {name}=5\)"):
        setattr(opt, name, 5)
    assert getattr(opt, name) == opt.get_config()[name] == MADE_WITH[name]


def test_those_are_all_settings_but_the_one_that_can_be_set():
    settings = LossScaleOptimizer(sgd())._settings.as_config()
    assert settings.keys() - MADE_WITH == {"dynamic_growth_steps"}
