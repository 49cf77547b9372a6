"""The registry of loss-scale wrappers, and what is left of the graph rewrite.

The words in `TF_...` are TensorFlow 2.3.4's, from python/training/experimental/mixed_precision.py
and python/keras/mixed_precision/experimental/policy.py.
"""

import importlib
import logging
import threading
import warnings

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp import graph_rewrite
from keras_mp.compat.legacy_classes import (
    graph_rewriting as rewriting,
    loss_scales,
    wrapper_registry as wrappers,
)
from keras_mp.compat.legacy_classes.graph_rewriting import (
    disable_mixed_precision_graph_rewrite as disable,
    enable_mixed_precision_graph_rewrite,
)
from keras_mp.compat.legacy_classes.wrapper_registry import (
    register_loss_scale_wrapper as register,
    unregister_loss_scale_wrapper as unregister,
)
from keras_mp.compat.train import experimental
from keras_mp.policies import graph_rewrite_switch as switch
from tests import programs

TF_WRAPPED = '"opt" must not already be an instance of a LossScaleOptimizer. '
TF_WRAPPED += "`enable_mixed_precision_graph_rewrite` will automatically wrap the optimizer with a "
TF_OTHER = '"opt" must be an instance of a tf.train.Optimizer or a tf.keras.optimizers.Optimizer'
TF_POLICY = "The mixed precision graph rewrite cannot be enabled, because the global Keras dtype "
TF_POLICY += "Policy has been set to a mixed precision policy"
TF_REWRITE = 'The global dtype policy cannot be set to "mixed_float16", because the mixed '
TF_REWRITE += "precision graph rewrite has already been enabled."
TF_DISABLED = "disable_mixed_precision_graph_rewrite() called when mixed precision is already "
TF_DISABLED += "disabled."


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """The registry is put back, and the rewrite switched off."""
    monkeypatch.setattr(wrappers, "_registered", dict(wrappers._registered))
    yield
    graph_rewrite.disable()


def enable(opt, *loss_scale):
    return enable_mixed_precision_graph_rewrite(opt, *loss_scale)


def sgd():
    return keras.optimizers.SGD(0.1)


class Family:
    """Optimizers that know nothing of Keras."""


class Child(Family):
    pass


class Wrapping:
    def __init__(self, optimizer, loss_scale):
        self.optimizer, self.loss_scale = optimizer, loss_scale


class OtherWrapping(Wrapping):
    pass


# -- the registry ----------------------------------------------------------------------------------


def test_a_class_is_wrapped_by_what_was_registered_for_it():
    register(Family, Wrapping)
    given = Family()
    opt = enable(given, 128)
    assert (type(opt), opt.optimizer, opt.loss_scale) == (Wrapping, given, 128)
    assert enable(Family()).loss_scale == "dynamic"


def test_a_function_with_the_class_of_its_results():
    register(Family, lambda optimizer, loss_scale: Wrapping(optimizer, loss_scale), Wrapping)
    opt = enable(Family(), 8)
    with pytest.raises(ValueError, match="must not already be an instance of a Wrapping"):
        enable(opt, 8)


def test_a_function_without_it():
    register(Family, lambda optimizer, loss_scale: Wrapping(optimizer, loss_scale))
    assert type(enable(Family(), 8)) is Wrapping
    assert isinstance(enable(sgd()), keras_mp.LossScaleOptimizer), "TensorFlow failed here"


def test_wrapped_ones_are_refused_also_by_subclass():
    register(Family, Wrapping)
    with pytest.raises(ValueError, match="instance of a Wrapping"):
        enable(OtherWrapping(Family(), 1))


@pytest.mark.parametrize("order", [(Family, Child), (Child, Family)])
def test_the_nearest_base_holds_in_either_order(order):
    made = {Family: Wrapping, Child: OtherWrapping}
    for cls in order:
        register(cls, made[cls])

    class Grandchild(Child):
        pass

    class Sibling(Family):
        pass

    assert type(enable(Grandchild())) is OtherWrapping
    assert type(enable(Sibling())) is Wrapping


def test_a_base_further_along_the_mro():
    class Left(Family):
        pass

    class Right(Family):
        pass

    class Both(Left, Right):
        pass

    register(Family, Wrapping)
    register(Right, OtherWrapping)
    assert type(enable(Both())) is OtherWrapping, "Both, Left, Right, Family"


def test_a_keras_optimizer_of_ones_own_can_be_wrapped_differently():
    class Own(keras.optimizers.SGD):
        pass

    register(Own, Wrapping)
    assert type(enable(Own())) is Wrapping
    assert isinstance(enable(sgd()), keras_mp.LossScaleOptimizer)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sgd", Wrapping), "optimizer_cls must be a class, but got 'sgd' of type str"),
        ((Family(), Wrapping), "optimizer_cls must be a class, but got .* of type Family"),
        ((None, Wrapping), "optimizer_cls must be a class, but got None of type NoneType"),
        ((Family, "dynamic"), "wrapper_fn must be a callable .*, but got 'dynamic' of type str"),
        ((Family, None), "wrapper_fn must be a callable .*, but got None of type NoneType"),
        ((Family, Wrapping, "x"), "wrapper_cls must be a class, but got 'x' of type str"),
        ((Family, Wrapping, print), "wrapper_cls must be a class, but got .* of type builtin"),
    ],
)
def test_wrong_kinds_of_arguments(arguments, words):
    before = dict(wrappers._registered)
    with pytest.raises(TypeError, match=words):
        register(*arguments)
    assert wrappers._registered == before


def test_the_same_class_twice():
    register(Family, Wrapping)
    register(Family, Wrapping)
    register(Family, Wrapping, Wrapping)
    with pytest.raises(ValueError, match=r"Family is registered already.*Wrapping.*OtherWrapping"):
        register(Family, OtherWrapping)
    with pytest.raises(ValueError, match="registered already"):
        register(Family, Wrapping, OtherWrapping)
    assert type(enable(Family())) is Wrapping
    with pytest.raises(ValueError, match="Optimizer is registered already"):
        register(keras.optimizers.Optimizer, Wrapping)


def test_unregister():
    register(Family, Wrapping)
    unregister(Family)
    with pytest.raises(ValueError, match="not registered"):
        unregister(Family)
    with pytest.raises(ValueError, match=r"register_loss_scale_wrapper first"):
        enable(Family())
    register(Family, OtherWrapping)


def test_a_wrapper_that_returns_something_else():
    register(Family, lambda optimizer, loss_scale: None, Wrapping)
    with pytest.raises(TypeError, match=r"must return a Wrapping.*returned None of type NoneType"):
        enable(Family())
    assert not switch.is_enabled()


def test_registering_from_many_threads():
    """All or nothing: of two wrappers for a class one holds, and every loser is told."""
    classes = [type(f"Family{i}", (), {}) for i in range(200)]
    barrier, lost = threading.Barrier(4), []

    def work(wrapper):
        barrier.wait()
        for cls in classes:
            try:
                register(cls, wrapper)
            except ValueError:
                lost.append(cls)
            assert enable(cls()) is not None

    threads = [threading.Thread(target=work, args=(w,)) for w in (Wrapping, OtherWrapping) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, lost)) == sorted(2 * [str(cls) for cls in classes])


# -- enabling --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss_scale", "dynamic", "scale"),
    [
        ((), True, 2.0**15),
        (("dynamic",), True, 2.0**15),
        ((128,), False, 128.0),
        ((1.5,), False, 1.5),
        ((loss_scales.FixedLossScale(64),), False, 64.0),
        ((loss_scales.DynamicLossScale(2048, 7),), True, 2048.0),
    ],
)
def test_keras_optimizers(loss_scale, dynamic, scale):
    inner = sgd()
    opt = enable(inner, *loss_scale)
    assert isinstance(opt, keras_mp.LossScaleOptimizer)
    assert isinstance(opt, keras.optimizers.Optimizer)
    assert opt.inner_optimizer is inner
    assert (opt.dynamic, float(opt.loss_scale)) == (dynamic, scale)


@pytest.mark.parametrize(
    ("loss_scale", "error"),
    [(None, ValueError), ("fixed", ValueError), (0.5, ValueError), ([], TypeError)],
)
def test_other_loss_scales(loss_scale, error):
    inner = sgd()
    with pytest.raises(error, match="loss_scale"):
        enable(inner, loss_scale)
    assert not switch.is_enabled()
    assert enable(inner).inner_optimizer is inner, "it is free still"


@pytest.mark.parametrize(
    "wrap",
    [
        keras_mp.LossScaleOptimizer,
        keras.optimizers.LossScaleOptimizer,
        enable,
    ],
)
def test_wrapped_keras_optimizers_are_refused(wrap):
    opt = wrap(sgd())
    with pytest.raises(ValueError, match="must not already be") as error:
        enable(opt)
    assert str(error.value).startswith(TF_WRAPPED)
    assert "Pass the optimizer inside it" in str(error.value)


@pytest.mark.parametrize("opt", ["sgd", None, 0.1, keras.optimizers.SGD])
def test_what_is_no_optimizer(opt):
    with pytest.raises(ValueError, match="must be an instance of a") as error:
        enable(opt)
    assert str(error.value).startswith(TF_OTHER)
    assert f"of type {type(opt).__name__}" in str(error.value)
    assert not switch.is_enabled()


def test_enabling_twice_and_disabling(caplog):
    enabled = switch.is_enabled
    assert not enabled()
    first, second = enable(sgd()), enable(sgd())
    assert first is not second
    assert enabled()
    with caplog.at_level(logging.WARNING, "keras_mp"):
        disable()
    assert not enabled()
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "keras_mp"):
        disable()
    assert [record.message for record in caplog.records] == [TF_DISABLED]


def test_disabling_leaves_the_optimizer_wrapped(fit, data):
    opt = enable(sgd(), 64)
    disable()
    model = fit(opt, *data)
    assert model.optimizer is opt
    assert float(opt.loss_scale) == 64.0


@pytest.mark.parametrize("name", ["mixed_float16", "mixed_bfloat16"])
def test_under_a_mixed_policy(name):
    keras.config.set_dtype_policy(name)
    with pytest.raises(ValueError, match="cannot be enabled") as error:
        enable(sgd())
    assert str(error.value).startswith(TF_POLICY)
    assert "(You called this first)" in str(error.value)
    assert not switch.is_enabled()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_other_policies_are_no_obstacle(name):
    keras.config.set_dtype_policy(name)
    enable(sgd())
    rewriting.check_policy(keras.DTypePolicy(name))


def test_a_mixed_policy_after_enabling():
    policy = keras.DTypePolicy("mixed_float16")
    rewriting.check_policy(policy)
    rewriting.check_policy(None)
    enable(sgd())
    rewriting.check_policy(None)
    with pytest.raises(ValueError, match="cannot be set") as error:
        rewriting.check_policy(policy)
    assert str(error.value).startswith(TF_REWRITE)
    disable()
    rewriting.check_policy(policy)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_it_trains_as_keras_mp_does(fit, data, weights, run_eagerly):
    old = fit(enable(sgd(), 128), *data, run_eagerly=run_eagerly)
    new = fit(graph_rewrite.enable(sgd(), 128), *data, run_eagerly=run_eagerly)
    float32 = fit(keras_mp.LossScaleOptimizer(sgd(), False, 128), *data, run_eagerly=run_eagerly)
    assert np.array_equal(weights(old), weights(new))
    assert not np.array_equal(weights(old), weights(float32)), "it is not rewritten"
    np.testing.assert_allclose(weights(old), weights(float32), rtol=1e-2, atol=1e-3)


# -- the names -------------------------------------------------------------------------------------


def test_the_names_of_tensorflow():
    public = {
        "disable_mixed_precision_graph_rewrite": rewriting.disable_mixed_precision_graph_rewrite,
        "enable_mixed_precision_graph_rewrite": rewriting.enable_mixed_precision_graph_rewrite,
        "register_loss_scale_wrapper": wrappers.register_loss_scale_wrapper,
        "FixedLossScale": loss_scales.FixedLossScale,
        "DynamicLossScale": loss_scales.DynamicLossScale,
        "LossScale": loss_scales.LossScale,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name, ours in public.items():
            assert getattr(experimental, name) is ours
    assert public.keys() <= set(dir(experimental))
    assert public.keys() <= set(experimental.__all__)
    with pytest.raises(AttributeError, match="no attribute 'enable'"):
        _ = experimental.enable
    assert importlib.import_module("keras_mp.compat.train.experimental") is experimental


def test_a_fresh_process():
    """Names and deprecation as a program meets them."""
    program = (
        "import keras\n"
        "from keras_mp.compat.train import experimental\n"
        "import keras_mp.compat.train.experimental\n"
        "f = experimental.enable_mixed_precision_graph_rewrite\n"
        "opt = keras_mp.compat.train.experimental.enable_mixed_precision_graph_rewrite(\n"
        "    keras.optimizers.SGD())\n"
        "print(isinstance(opt, keras.optimizers.LossScaleOptimizer), opt.dynamic)\n"
    )
    found = programs.completed("-c", programs.warning("always") + program, imported=True)
    assert (found.returncode, found.stdout.strip()) == (0, "True True"), found.stderr
    assert found.stderr.count("DeprecationWarning: keras_mp.compat.train.experimental.enable") == 1
    assert "UserWarning" not in found.stderr
