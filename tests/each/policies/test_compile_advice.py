"""What is said, once, when `compile` of a float16 model does without our loss scaler."""

import logging

import keras
import pytest

import keras_mp
from keras_mp.backends.common import devices
from keras_mp.policies import compile_advice
from keras_mp.policies.policy import policy_scope, set_global_policy


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch):
    monkeypatch.setattr(devices, "_warned", True)
    monkeypatch.setattr(compile_advice, "_advised", False)
    yield
    set_global_policy(None)


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.WARNING, logger="keras_mp")
    return lambda: [record.getMessage() for record in caplog.records]


def model(**kwargs):
    layers = [keras.Input((4,)), keras.layers.Dense(1, **kwargs)]
    return keras.Sequential(layers, name="net")


def a_map():
    return keras.dtype_policies.DTypePolicyMap(
        "mixed_float16", {"out": keras.DTypePolicy("float32")}
    )


@pytest.mark.parametrize("optimizer", ["adam", keras.optimizers.SGD])
def test_it_is_said_when_it_happens_and_once(optimizer, said):
    for _ in range(2):
        set_global_policy("mixed_float16")
        made = model()
        assert said() == []
    for _ in range(2):
        made.compile(optimizer if isinstance(optimizer, str) else optimizer(), "mse")
    (message,) = said()
    assert "compile of the model 'net' wrapped the optimizer in Keras' own" in message
    assert "keras_mp.LossScaleOptimizer(...)" in message
    assert "keras_mp.auto_wrap()" in message


def test_in_a_scope(said):
    with policy_scope("mixed_float16"):
        made = model()
    made.compile("adam", "mse")
    assert len(said()) == 1


def test_a_map_under_which_keras_wraps_nothing(said):
    set_global_policy(a_map())
    made = model()
    made.compile("adam", "mse")
    assert not isinstance(made.optimizer, keras.optimizers.LossScaleOptimizer)
    (message,) = said()
    assert "nothing scales the float16 loss" in message


FINE = {
    "ours": lambda m: m.compile(keras_mp.LossScaleOptimizer(keras.optimizers.SGD()), "mse"),
    "chosen": lambda m: m.compile(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), "mse"
    ),
    "without scaling": lambda m: m.compile("sgd", "mse", auto_scale_loss=False),
    "no optimizer": lambda m: m.compile(None, "mse"),
}


@pytest.mark.parametrize("policy", ["mixed_float16", a_map])
@pytest.mark.parametrize("compile", FINE.values(), ids=FINE)
def test_nothing_is_said_where_nothing_is_wrong(policy, compile, said):
    set_global_policy(policy if isinstance(policy, str) else policy())
    compile(model())
    assert said() == []


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float32", None])
def test_nothing_is_said_of_other_policies(policy, said):
    set_global_policy("mixed_float16")
    set_global_policy(policy)
    model().compile("adam", "mse")
    assert said() == []


def test_nothing_is_said_where_optimizers_are_wrapped(said):
    with keras_mp.auto_wrap():
        set_global_policy("mixed_float16")
        made = model()
        made.compile("adam", "mse")
        assert type(made.optimizer) is keras_mp.LossScaleOptimizer
        assert said() == []
    made.compile("adam", "mse")
    assert len(said()) == 1


def test_it_can_be_silenced_and_is_said_later(said, caplog):
    set_global_policy("mixed_float16")
    logger = logging.getLogger("keras_mp")
    logger.setLevel(logging.ERROR)
    model().compile("adam", "mse")
    logger.setLevel(logging.WARNING)
    assert said() == []
    model().compile("adam", "mse")
    assert len(said()) == 1
