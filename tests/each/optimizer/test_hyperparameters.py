"""Hyperparameters of the inner optimizer, read and set through the wrapper."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer

HYPERPARAMETERS = {
    "SGD": {"momentum": 0.5},
    "Adam": {"beta_1": 0.7, "beta_2": 0.8},
    "AdamW": {"beta_1": 0.7, "beta_2": 0.8, "weight_decay": 0.1},
    "Adamax": {"beta_1": 0.7, "beta_2": 0.8},
    "Nadam": {"beta_1": 0.7, "beta_2": 0.8},
    "RMSprop": {"rho": 0.7, "momentum": 0.2},
    "Adadelta": {"rho": 0.7},
    "Adagrad": {},
    "Ftrl": {"learning_rate_power": -0.6, "l1_regularization_strength": 0.1, "beta": 0.2},
    "Lion": {"beta_1": 0.7},
}
BASE = {
    "clipnorm": 1.0,
    "global_clipnorm": 2.0,
    "clipvalue": 0.1,
    "weight_decay": 0.01,
    "use_ema": True,
    "ema_momentum": 0.5,
    "ema_overwrite_frequency": 3,
    "gradient_accumulation_steps": 4,
}


def number(x):
    return float(ops.convert_to_numpy(x))


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_hyperparameters_are_delegated(name):
    opt = LossScaleOptimizer(getattr(keras.optimizers, name)())
    for key, value in HYPERPARAMETERS[name].items():
        assert getattr(opt, key) == getattr(opt.inner_optimizer, key) != value
        setattr(opt, key, value)
        assert getattr(opt.inner_optimizer, key) == getattr(opt, key) == value
        assert key in dir(opt)
        assert key not in opt.__dict__


@pytest.mark.parametrize(("key", "value"), BASE.items())
def test_base_options_are_delegated(key, value):
    opt = LossScaleOptimizer(keras.optimizers.Adam())
    assert getattr(opt, key) == getattr(opt.inner_optimizer, key)
    setattr(opt, key, value)
    assert getattr(opt.inner_optimizer, key) == getattr(opt, key) == value
    assert key in dir(opt)


def test_options_given_to_the_inner_optimizer_are_read():
    inner = keras.optimizers.Adam(clipnorm=1.0, weight_decay=0.01, use_ema=True, ema_momentum=0.5)
    opt = LossScaleOptimizer(inner)
    assert (opt.clipnorm, opt.weight_decay, opt.use_ema, opt.ema_momentum) == (1.0, 0.01, True, 0.5)


def test_learning_rate_and_lr():
    opt = LossScaleOptimizer(keras.optimizers.Adam(0.1))
    opt.lr = 0.5
    assert number(opt.learning_rate) == number(opt.inner_optimizer.learning_rate) == 0.5
    opt.learning_rate = 0.25
    assert number(opt.lr) == 0.25


def test_learning_rate_schedule():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.2, 1, 0.5)
    opt = LossScaleOptimizer(keras.optimizers.Adam(schedule))
    assert number(opt.learning_rate) == pytest.approx(0.2)
    opt.iterations = 1
    assert number(opt.learning_rate) == pytest.approx(0.1)
    assert int(opt.iterations) == 1
    other = LossScaleOptimizer(keras.optimizers.Adam(0.1))
    other.learning_rate = schedule
    assert number(other.inner_optimizer.learning_rate) == pytest.approx(0.2)


def test_a_set_hyperparameter_acts():
    variable = keras.Variable([1.0])
    opt = LossScaleOptimizer(keras.optimizers.SGD(1.0))
    opt.clipvalue = 0.25
    opt.apply_gradients([(ops.array([8.0]), variable)], gradients_scaled=False)
    assert variable.numpy().tolist() == [0.75]


@pytest.mark.parametrize("key", ["use_ema", "gradient_accumulation_steps"])
def test_options_that_need_variables_are_refused_after_build(key):
    opt = LossScaleOptimizer(keras.optimizers.SGD(1.0))
    opt.build([keras.Variable([1.0])])
    with pytest.raises(ValueError, match=f"{key} must be set before the optimizer is built"):
        setattr(opt, key, 2)


def test_a_running_window_is_not_changed_but_may_be_set_to_what_it_is():
    opt = LossScaleOptimizer(keras.optimizers.SGD(use_ema=True, gradient_accumulation_steps=2))
    opt.build([keras.Variable([1.0])])
    opt.use_ema, opt.gradient_accumulation_steps = True, 2
    assert (opt.use_ema, opt.gradient_accumulation_steps) == (True, 2)
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be set before"):
        opt.gradient_accumulation_steps = 4


def test_epsilon_is_no_hyperparameter():
    opt = LossScaleOptimizer(keras.optimizers.Adam(epsilon=1e-3))
    with pytest.raises(AttributeError, match=r"optimizer\.inner_optimizer\.epsilon"):
        _ = opt.epsilon
    with pytest.warns(UserWarning, match=r"is not forwarded.*inner_optimizer\.epsilon"):
        opt.epsilon = 1.0
    assert opt.inner_optimizer.epsilon == 1e-3
    assert "epsilon" not in opt._names


@pytest.mark.parametrize("name", ["amsgrad", "nesterov", "decay", "nonsense"])
def test_other_attributes_are_not_the_inners(name):
    opt = LossScaleOptimizer(keras.optimizers.Adam(amsgrad=True))
    with pytest.raises(AttributeError, match=name):
        getattr(opt, name)


class Custom(keras.optimizers.Optimizer):
    """An optimizer that Keras 2 never had: numbers of its config are its hyperparameters."""

    def __init__(self, learning_rate=0.1, pull=0.5, flag=True, label="x", epsilon=1e-3, **options):
        super().__init__(learning_rate=learning_rate, **options)
        self.pull, self.flag, self.label, self.epsilon = pull, flag, label, epsilon

    def update_step(self, gradient, variable, learning_rate):
        self.assign_sub(variable, ops.cast(learning_rate, variable.dtype) * gradient * self.pull)

    def get_config(self):
        own = {"pull": self.pull, "flag": self.flag, "label": self.label, "epsilon": self.epsilon}
        return {**super().get_config(), **own, "gone": 3}


def test_custom_optimizer():
    opt = LossScaleOptimizer(Custom())
    opt.pull = np.float32(0.25)
    assert opt.inner_optimizer.pull == 0.25
    assert "pull" in dir(opt)
    for name in ("flag", "label", "gone"):
        assert name not in opt._names
        with pytest.raises(AttributeError, match=name):
            getattr(opt, name)


def test_exclude_from_weight_decay():
    """The wrapper hands it on; Keras' own class takes it and ignores it."""
    variable, other = keras.Variable([1.0], name="bias"), keras.Variable([1.0], name="kernel")
    opt = LossScaleOptimizer(keras.optimizers.AdamW(1e-8, weight_decay=1e6))
    opt.exclude_from_weight_decay(var_list=[variable])
    opt.build([variable, other])
    gradient = ops.array([1e-6])
    opt.apply_gradients([(gradient, variable), (gradient, other)], gradients_scaled=False)
    assert variable.numpy()[0] == pytest.approx(1.0, abs=1e-6)
    assert other.numpy()[0] == pytest.approx(0.99, abs=1e-6)
    with pytest.raises(ValueError, match="before"):
        opt.exclude_from_weight_decay(var_names=["kernel"])


def test_multi_optimizer_has_no_learning_rate():
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("keras.optimizers.MultiOptimizer came with Keras 3.15")
    opt = LossScaleOptimizer(
        keras.optimizers.MultiOptimizer(
            keras.optimizers.OptimizerMap(default_optimizer=keras.optimizers.SGD())
        )
    )
    with pytest.raises(AttributeError, match="individual sub-optimizers"):
        _ = opt.learning_rate


@pytest.mark.parametrize("error", [NotImplementedError, AttributeError])
def test_a_config_that_raises_does_not_matter(error):
    class Broken(Custom):
        def get_config(self):
            raise error

    assert LossScaleOptimizer(Broken()).learning_rate is not None


def test_setting_what_only_the_inner_optimizer_has_warns():
    opt = LossScaleOptimizer(keras.optimizers.Adam())
    with pytest.warns(UserWarning, match=r"amsgrad.*optimizer\.inner_optimizer\.amsgrad"):
        opt.amsgrad = True
    assert opt.inner_optimizer.amsgrad is False
    opt.my_note = "nobody else's"


def test_exclude_from_weight_decay_by_name():
    variable, other = keras.Variable([1.0], name="bias"), keras.Variable([1.0], name="kernel")
    opt = LossScaleOptimizer(keras.optimizers.AdamW(1e-8, weight_decay=1e6))
    opt.exclude_from_weight_decay(var_names=["bias"])
    gradient = ops.array([1e-6])
    opt.apply_gradients([(gradient, variable), (gradient, other)], gradients_scaled=False)
    assert variable.numpy()[0] == pytest.approx(1.0, abs=1e-6)


def test_options_may_be_switched_off_after_build():
    opt = LossScaleOptimizer(keras.optimizers.SGD())
    opt.build([keras.Variable([1.0])])
    opt.use_ema, opt.gradient_accumulation_steps = False, None
    assert opt.use_ema is False


def test_epsilon_of_an_optimizer_that_has_none():
    with pytest.raises(AttributeError, match="object has no attribute 'epsilon'"):
        _ = LossScaleOptimizer(keras.optimizers.SGD()).epsilon
    with pytest.raises(AttributeError, match=r"inner_optimizer\.epsilon"):
        _ = LossScaleOptimizer(Custom()).epsilon


def test_a_users_class_with_a_name_of_keras():
    class SGD(Custom):
        pass

    opt = LossScaleOptimizer(SGD())
    opt.pull = 0.25
    assert opt.inner_optimizer.pull == 0.25


def test_private_names_do_not_warn():
    opt = LossScaleOptimizer(keras.optimizers.Adam())
    opt.build([keras.Variable([1.0])])
    opt._momentums = None
    assert opt.inner_optimizer._momentums is not None
