"""Objects that are no Keras 3 optimizer: the TypeError names each and says what to write."""

import keras
import numpy as np
import pytest

from keras_mp import LossScaleOptimizer, SharedLossScale, compat
from tests import programs
from tests.backends import on_one

LENGTH = 400  # of a message: a model's repr or a big dictionary must not be pasted into it


def refused(given):
    with pytest.raises(TypeError, match=r"inner_optimizer must be a keras\.optimizers\.") as error:
        LossScaleOptimizer(given)
    assert len(str(error.value)) < LENGTH
    return str(error.value)


def fake(module, name="Thing", *bases):
    """An object of a framework that need not be installed: a class by module and name."""
    mro = tuple(type(base, (), {"__module__": module}) for base in bases)
    return type(name, mro, {"__module__": module})()


@pytest.mark.parametrize(
    ("module", "name", "bases", "words"),
    [
        (
            "tf_keras.src.optimizers.adam",
            "Adam",
            ["Optimizer"],
            "a tf_keras optimizer, Adam; use keras.optimizers.Adam",
        ),
        (
            "tensorflow.python.keras.optimizer_v2.rmsprop",
            "RMSprop",
            ["OptimizerV2"],
            "a TensorFlow optimizer, RMSprop; use keras.optimizers.RMSprop",
        ),
        (
            "tensorflow.python.training.gradient_descent",
            "GradientDescentOptimizer",
            ["Optimizer"],
            "tf.compat.v1.train.GradientDescentOptimizer; use keras.optimizers.SGD",
        ),
        (
            "tf_keras.src.mixed_precision.loss_scale_optimizer",
            "LossScaleOptimizerV3",
            ["Optimizer"],
            "a tf_keras optimizer that scales losses itself",
        ),
        ("torch.nn.modules.linear", "Linear", ["Module"], "a torch.nn.Module, Linear; write"),
        ("torch", "Tensor", [], "a torch tensor; write"),
        (
            "tf_keras.src.optimizers.schedules",
            "CosineDecay",
            ["LearningRateSchedule"],
            "a tf_keras learning-rate schedule",
        ),
        (
            "tensorflow.somewhere",
            "Adam",
            ["Module", "Optimizer"],
            "a TensorFlow optimizer, Adam; use keras.optimizers.Adam",
        ),
        ("tf_keras.src.engine.training", "Functional", ["Layer"], "a tf_keras model or layer"),
        ("torch.optim.adamw", "AdamW", ["Optimizer"], "use keras.optimizers.AdamW"),
        ("torch.optim.lbfgs", "LBFGS", ["Optimizer"], "keras.optimizers has no class of this name"),
        ("torch.optim.lr_scheduler", "StepLR", [], "a torch learning-rate scheduler"),
        ("torch.amp.grad_scaler", "GradScaler", [], "a torch GradScaler"),
        ("optax._src.base", "GradientTransformationExtraArgs", [], "an optax transformation"),
    ],
)
def test_objects_of_other_frameworks(module, name, bases, words):
    assert words in refused(fake(module, name, *bases))


def test_a_subclass_of_their_optimizer_is_known_by_its_base():
    base = type("Adam", (), {"__module__": "torch.optim.adam"})
    mine = type("MyAdam", (base,), {"__module__": "__main__"})
    assert "a torch.optim optimizer, MyAdam; use keras.optimizers.Adam" in refused(mine())


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1


class Mine(keras.Model):
    pass


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param(lambda: None, "None, of type NoneType", id="None"),
        pytest.param(lambda: "Adam", "write keras.optimizers.get('Adam')", id="name"),
        pytest.param(lambda: "dynamic", "which names no optimizer", id="other string"),
        pytest.param(lambda: "loss_scale_optimizer", "which names no optimizer", id="itself"),
        pytest.param(lambda: 1e-3, "the number 0.001; for a learning rate", id="float"),
        pytest.param(lambda: np.float32(0.5), "the number 0.5", id="NumPy number"),
        pytest.param(lambda: True, "True, of type bool", id="bool"),
        pytest.param(
            lambda: {"class_name": "Adam", "config": {"learning_rate": 1.0}},
            "a config of 'Adam'; write keras.optimizers.deserialize(config)",
            id="config",
        ),
        pytest.param(
            lambda: {f"key{i}": i for i in range(1000)}, "a dictionary with the keys", id="dict"
        ),
        pytest.param(lambda: keras.optimizers.SGD, "the class SGD; write SGD()", id="class"),
        pytest.param(lambda: dict, "the class dict; write an optimizer", id="other class"),
        pytest.param(
            lambda: type("Adam", (), {"__module__": "torch.optim.adam"}),
            "the class Adam, not even an object; it is a torch.optim optimizer",
            id="class of torch",
        ),
        pytest.param(Schedule, "a learning-rate schedule, Schedule; give it to", id="schedule"),
        pytest.param(
            lambda: keras.Sequential([keras.layers.Dense(1)], name="net"),
            "the model 'net', a Sequential",
            id="model",
        ),
        pytest.param(lambda: Mine(name="mine"), "the model 'mine', a Mine", id="subclassed model"),
        pytest.param(lambda: keras.layers.Dense(1, name="d"), "the layer 'd', a Dense", id="layer"),
        pytest.param(
            lambda: [keras.optimizers.SGD(), keras.optimizers.Adam()],
            "a list of 2 optimizers; wrap one, or keras.optimizers.MultiOptimizer",
            id="list",
        ),
        pytest.param(list, "[] of type list", id="empty list"),
        pytest.param(lambda: lambda g: g, "of type function", id="function"),
        pytest.param(
            lambda: keras.losses.MeanSquaredError(), "of type MeanSquaredError", id="loss"
        ),
        pytest.param(lambda: np.zeros((1000, 1000)), "of type ndarray", id="array"),
        pytest.param(lambda: keras.Variable(1.0, name="v"), "the variable 'v'", id="variable"),
    ],
)
def test_other_objects(given, words):
    assert words in refused(given())


def test_real_objects_of_the_running_framework(backend):
    if backend == "tensorflow":
        import tensorflow as tf

        assert "tf.compat.v1.train.AdamOptimizer; use keras.optimizers.Adam" in refused(
            tf.compat.v1.train.AdamOptimizer()
        )
        assert "a TensorFlow tensor or variable" in refused(tf.constant(1.0))
        assert "a TensorFlow tensor or variable" in refused(tf.Variable(1.0))
        assert "a TensorFlow model or layer" in refused(tf.Module())
    elif backend == "torch":
        import torch

        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        assert "a torch.optim optimizer, SGD; use keras.optimizers.SGD" in refused(optimizer)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        assert "a torch learning-rate scheduler, StepLR" in refused(schedule)
        assert "a torch GradScaler" in refused(torch.amp.GradScaler(enabled=False))
        assert "a torch.nn.Module, Linear" in refused(torch.nn.Linear(1, 1))
        assert "a torch tensor" in refused(weight)
    else:
        import jax

        assert "of type ArrayImpl" in refused(jax.numpy.zeros(()))


@on_one
def test_no_framework_is_imported_to_say_so():
    program = (
        "import sys, keras, keras_mp\n"
        "before = set(sys.modules)\n"
        "thing = type('Adam', (), {'__module__': 'optax._src.base'})()\n"
        "for given in (thing, None, 'x', 1, {}):\n"
        "    try: keras_mp.LossScaleOptimizer(given)\n"
        "    except TypeError: continue\n"
        "    raise SystemExit('not refused')\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new & {'optax', 'tf_keras', 'tensorflow', 'torch', 'jax'}))\n"
    )
    assert programs.run("-c", program).strip() == "[]"


def test_optimizers_of_ones_own_are_taken():
    class Own(keras.optimizers.SGD):
        pass

    inner = Own(0.1)
    assert LossScaleOptimizer(inner).inner_optimizer is inner


class Adam:
    """Of the same name as that of Keras, and nothing of it."""

    def __repr__(self):
        return "Adam()"


def test_what_has_the_name_of_an_optimizer_is_told_with_its_module():
    assert f"Adam() of type {__name__}.Adam; write" in refused(Adam())


def test_the_class_of_keras_is_told_from_ours():
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    name = r"keras\.optimizers\.LossScaleOptimizer"
    with pytest.raises(TypeError, match=f"but got {name}"):
        SharedLossScale(LossScaleOptimizer(keras.optimizers.SGD()), theirs)
    state = compat.scale_state(LossScaleOptimizer(keras.optimizers.SGD()))
    with pytest.raises(TypeError, match=f"keras_mp.LossScaleOptimizer, but got {name}"):
        state.apply(theirs)
