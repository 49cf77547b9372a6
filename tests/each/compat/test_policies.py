"""Policies of tf.keras, with and without a loss scale, and what `compile` makes of them."""

import copy
import json
import pickle
import warnings
import zipfile

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp.compat.legacy_classes import policies
from keras_mp.compat.legacy_classes.loss_scale_optimizers import (
    ExperimentalLossScaleOptimizer,
    LossScaleOptimizer,
)
from keras_mp.compat.legacy_classes.loss_scales import DynamicLossScale, FixedLossScale, LossScale
from keras_mp.compat.legacy_classes.policies import ExperimentalPolicy, Policy


@pytest.fixture(autouse=True)
def _undone():
    yield
    keras_mp.set_global_policy("float32")


def built():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])


def compiled(policy, optimizer="sgd", setter=policies.set_experimental_policy, **arguments):
    setter(policy)
    model = built()
    model.compile(optimizer, "mse", **arguments)
    return model


LOSS_SCALES = {
    "the default": (ExperimentalPolicy("mixed_float16"), (True, 2.0**15, 2000)),
    "its name": ("mixed_float16", (True, 2.0**15, 2000)),
    "dynamic": (ExperimentalPolicy("mixed_float16", loss_scale="dynamic"), (True, 2.0**15, 2000)),
    "a number": (ExperimentalPolicy("mixed_float16", 128), (False, 128.0, None)),
    "fixed": (ExperimentalPolicy("mixed_float16", FixedLossScale(8)), (False, 8.0, None)),
    "numbers": (
        ExperimentalPolicy("mixed_float16", loss_scale=DynamicLossScale(2048, 500)),
        (True, 2048.0, 500),
    ),
    "float32": (ExperimentalPolicy("float32", loss_scale=2.0), (False, 2.0, None)),
    "bfloat16": (ExperimentalPolicy("mixed_bfloat16", "dynamic"), (True, 2.0**15, 2000)),
    "float16": (ExperimentalPolicy("float16", 16), (False, 16.0, None)),
}


@pytest.mark.parametrize(("policy", "expected"), LOSS_SCALES.values(), ids=LOSS_SCALES)
def test_compile_wraps_with_the_loss_scale_of_the_policy(policy, expected):
    opt = compiled(policy).optimizer
    assert type(opt) is ExperimentalLossScaleOptimizer
    assert (opt.dynamic, opt.initial_scale, opt.dynamic_growth_steps) == expected


def test_each_model_has_a_scale_of_its_own():
    policy = ExperimentalPolicy("mixed_float16", DynamicLossScale(64))
    first, second = compiled(policy).optimizer, compiled(policy).optimizer
    first.dynamic_scale.assign(8.0)
    assert (float(first.loss_scale), float(second.loss_scale)) == (8, 64)
    assert float(policy.loss_scale) == 8, "that of the first"


UNSCALED = {
    "no loss scale": ExperimentalPolicy("mixed_float16", loss_scale=None),
    "float16 without one": ExperimentalPolicy("float16"),
    "float16 of 2.4": Policy("float16"),
    "float32": ExperimentalPolicy("float32"),
    "bfloat16": "mixed_bfloat16",
}


@pytest.mark.parametrize("policy", UNSCALED.values(), ids=UNSCALED)
def test_compile_does_not_wrap(policy, tmp_path):
    model = compiled(policy)
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert "SGD" in type(model.optimizer).__name__
    x = np.ones((8, 4), "float32")
    model.fit(x, x[:, :1], verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert not isinstance(again.optimizer, keras.optimizers.LossScaleOptimizer)


def test_the_stable_policy_wraps_with_the_stable_class():
    model = compiled("mixed_float16", setter=policies.set_global_policy)
    assert type(model.optimizer) is LossScaleOptimizer
    assert type(model.optimizer.inner_optimizer).__name__.endswith("SGD")
    model = compiled(Policy("mixed_float16"), setter=policies.set_global_policy)
    assert type(model.optimizer) is LossScaleOptimizer
    model = compiled("float32", setter=policies.set_global_policy)
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_an_optimizer_that_scales_already_stays():
    explicit = keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=4)
    policy = ExperimentalPolicy("mixed_float16", 128)
    assert compiled(policy, explicit).optimizer is explicit
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=4.0)
    ours = compiled(policy, theirs).optimizer
    assert (type(ours), ours.initial_scale) == (keras_mp.LossScaleOptimizer, 4)


def test_compiling_again_keeps_the_scale():
    model = compiled("mixed_float16")
    wrapper = model.optimizer
    model.compile(wrapper.inner_optimizer, "mse")
    assert model.optimizer is wrapper


def test_auto_scale_loss_has_the_last_word():
    model = compiled("mixed_float16", auto_scale_loss=False)
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_the_policy_of_the_model_counts_not_that_of_the_moment():
    policies.set_experimental_policy(ExperimentalPolicy("mixed_float16", 32))
    model = built()
    policies.set_experimental_policy("float32")
    model.compile("sgd", "mse")
    assert model.optimizer.initial_scale == 32


def test_says_nothing_of_keras_own_class(caplog, monkeypatch):
    monkeypatch.setattr("keras_mp.policies.compile_advice._advised", False)
    policies.set_global_policy("mixed_float16")
    compiled("mixed_float16")
    assert "auto_wrap" not in caplog.text


@pytest.mark.parametrize("kind", [Policy, ExperimentalPolicy])
def test_without_a_name_it_is_that_of_weights(kind):
    assert kind().name == kind(None).name == keras.config.floatx()


def test_global_and_layer_policies_know_their_loss_scale():
    given = ExperimentalPolicy("mixed_float16", 128)
    policies.set_experimental_policy(given)
    assert policies.global_experimental_policy() is given
    layer = keras.layers.Dense(1)
    assert policies.get_layer_policy(layer) is given
    with keras_mp.policy_scope("mixed_float16"):
        policy = policies.global_experimental_policy()
    assert isinstance(policy.loss_scale, DynamicLossScale)
    policy = policies.get_layer_policy(keras.layers.Dense(1, dtype="float16"))
    assert (policy.name, policy.loss_scale) == ("float16", None)
    with pytest.raises(ValueError, match="can only be called on a layer, but got 3 of type int"):
        policies.get_layer_policy(3)


QUANTIZED = "int8_from_mixed_bfloat16"


@pytest.mark.parametrize("setter", [policies.set_global_policy, policies.set_experimental_policy])
def test_quantized_policies_have_no_loss_scale(setter):
    setter(QUANTIZED)
    assert keras.config.dtype_policy() == keras.dtype_policies.get(QUANTIZED)
    assert policies.global_experimental_policy() == keras.dtype_policies.get(QUANTIZED)
    layer = keras.layers.Dense(1)
    assert policies.get_layer_policy(layer) is layer.dtype_policy
    assert layer.dtype_policy.name == QUANTIZED


@pytest.mark.parametrize(
    "policy",
    [keras.dtype_policies.DTypePolicyMap(), keras.DTypePolicy("int32")],
    ids=["map", "int32"],
)
def test_policies_that_tf_did_not_have_come_as_they_are(policy):
    assert policies.get_layer_policy(keras.layers.Identity(dtype=policy)) is policy


def test_the_graph_rewrite_refuses_a_quantized_policy_by_its_name():
    keras_mp.graph_rewrite.enable(keras.optimizers.SGD())
    try:
        with pytest.raises(ValueError, match=f'"{QUANTIZED}"'):
            policies.set_global_policy(QUANTIZED)
    finally:
        keras_mp.graph_rewrite.disable()


class Own(LossScale):
    def __call__(self):
        return 1.0

    def update(self, grads):
        return None, True

    def get_config(self):
        return {}


@pytest.mark.parametrize(("loss_scale", "error"), [("abc", ValueError), (Own(), TypeError)])
def test_refuses_a_loss_scale(loss_scale, error):
    with pytest.raises(error, match="loss_scale"):
        ExperimentalPolicy("mixed_float16", loss_scale)


NAMES = {
    "float16_with_float32_vars": "write 'mixed_float16'",
    "bfloat16_with_float32_vars": "write 'mixed_bfloat16'",
    "infer": "Keras 3 does not do: write the dtype",
    "_infer": "Keras 3 does not do: write the dtype",
    "infer_with_float32_vars": "Keras 3 does not do: write the dtype",
    "int8": "a policy needs a floating-point dtype",
    "mixed_float32": "Cannot convert|must be",
}


@pytest.mark.parametrize(("name", "text"), NAMES.items())
@pytest.mark.parametrize(
    "make",
    [Policy, ExperimentalPolicy, policies.set_global_policy, policies.set_experimental_policy],
)
def test_refuses_a_name(make, name, text):
    with pytest.raises(ValueError, match=text):
        make(name)


def test_is_a_policy_of_keras():
    for policy in (Policy("mixed_float16"), ExperimentalPolicy("mixed_float16", 8)):
        assert policy == keras.DTypePolicy("mixed_float16")
        assert keras.DTypePolicy("mixed_float16") == policy
        assert hash(policy) == hash(keras_mp.Policy("mixed_float16"))
        assert keras.layers.Dense(1, dtype=policy).compute_dtype == "float16"
        assert keras.saving.serialize_keras_object(policy) == keras.saving.serialize_keras_object(
            keras.DTypePolicy("mixed_float16")
        )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies(copied):
    again = copied(ExperimentalPolicy("mixed_float16", 8))
    assert type(again) is ExperimentalPolicy
    assert again.loss_scale.get_config() == {"loss_scale_value": 8.0}
    assert type(copied(Policy("mixed_float16"))) is Policy


KEPT = {
    "fixed": ExperimentalPolicy("mixed_float16", 64),
    "dynamic": ExperimentalPolicy("mixed_float16", DynamicLossScale(8.0, 2)),
    "the default": ExperimentalPolicy("mixed_float16"),
}


@pytest.mark.parametrize("after", ["float32", "mixed_float16"])
@pytest.mark.parametrize("policy", KEPT.values(), ids=KEPT)
def test_files_of_its_models_keep_the_loss_scale(policy, after, tmp_path):
    """Whatever the policy is when they are loaded: TensorFlow's files named the wrapper, too."""
    model = compiled(policy)
    x = np.ones((8, 4), "float32")
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    policies.set_experimental_policy(after)
    again = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert type(again) is ExperimentalLossScaleOptimizer
    assert again.get_config() == model.optimizer.get_config()
    assert float(again.loss_scale) == float(model.optimizer.loss_scale)
    assert int(again.iterations) == 4


def test_files_hold_policies_that_plain_keras_knows(tmp_path):
    model = compiled(ExperimentalPolicy("mixed_float16", 8))
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        config = json.loads(archive.read("config.json"))
    policies_saved = [layer["config"]["dtype"] for layer in config["config"]["layers"]]
    names = [p["registered_name"] or p["class_name"] for p in policies_saved if isinstance(p, dict)]
    assert set(names) == {"DTypePolicy"}


def test_no_loss_scale_is_told_to_keras():
    model = compiled(ExperimentalPolicy("mixed_float16", loss_scale=None))
    assert model.get_compile_config()["auto_scale_loss"] is False


@pytest.mark.parametrize("plain", [keras.DTypePolicy, keras_mp.Policy])
def test_plain_policies_wrap_with_the_classes_of_then(plain):
    model = compiled(plain("mixed_float16"), setter=policies.set_global_policy)
    assert type(model.optimizer) is LossScaleOptimizer
    assert type(compiled(plain("mixed_float16")).optimizer) is ExperimentalLossScaleOptimizer


def test_a_policy_that_is_refused_hooks_nothing():
    with pytest.raises(ValueError, match="needs a floating-point dtype"):
        policies.set_global_policy(keras.DTypePolicy("int8"))
    assert policies._undo is None


def test_a_policy_that_keras_refuses_hooks_nothing(monkeypatch):
    def refuse(policy):
        raise TypeError("not this one")

    monkeypatch.setattr(keras_mp, "set_global_policy", refuse)
    with pytest.raises(TypeError, match="not this one"):
        policies.set_global_policy("mixed_float16")
    assert policies._undo is None


def test_old_configs_of_policies():
    fixed = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 128.0}}
    for config in (
        {"name": "mixed_float16", "loss_scale": fixed},
        {"name": "mixed_float16", "loss_scale": 128},
    ):
        assert float(ExperimentalPolicy.from_config(config).loss_scale) == 128
    assert ExperimentalPolicy.from_config({"name": "float32"}).loss_scale is None
    own = {"class_name": "Triangle", "config": {}}
    with pytest.raises(ValueError, match="the config of 'Triangle'"):
        ExperimentalPolicy.from_config({"name": "mixed_float16", "loss_scale": own})


def test_which_variables_are_cast():
    assert Policy("mixed_float16").should_cast_variables
    assert not Policy("float16").should_cast_variables


def test_nothing_warns_or_hooks_for_a_float32_policy():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policies.set_global_policy("float32")
    assert policies._undo is None
