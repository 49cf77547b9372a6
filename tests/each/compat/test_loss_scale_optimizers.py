"""What old programs call on a LossScaleOptimizer of tf.keras, beside what the core has."""

import copy
import gc
import pickle
import weakref
import zipfile

import h5py
import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.compat.keras2 import slots
from keras_mp.compat.legacy_classes.loss_scale_optimizers import (
    ExperimentalLossScaleOptimizer,
    LossScaleOptimizer,
)
from tests import programs


def numbers(variable):
    return ops.convert_to_numpy(variable)


# Optimizer -> its `weights` after the step count as Keras 2 made them for two variables, in order.
MADE = {
    "SGD": ({"momentum": 0.9}, "momentum:0 momentum:1"),
    "Adam": ({"amsgrad": True}, "m:0 m:1 v:0 v:1 vhat:0 vhat:1"),
    "AdamW": ({}, "m:0 m:1 v:0 v:1"),
    "Adamax": ({}, "m:0 m:1 v:0 v:1"),
    "Nadam": ({}, "momentum_cache m:0 m:1 v:0 v:1"),
    "RMSprop": (
        {"momentum": 0.5, "centered": True},
        "rms:0 rms:1 momentum:0 momentum:1 mg:0 mg:1",
    ),
    "Adagrad": ({}, "accumulator:0 accumulator:1"),
    "Adadelta": ({}, "accum_grad:0 accum_grad:1 accum_var:0 accum_var:1"),
    "Ftrl": ({}, "accumulator:0 linear:0 accumulator:1 linear:1"),
    "Lion": ({}, "m:0 m:1"),
}


@pytest.fixture
def two():
    return [keras.Variable(np.ones(3, "float32")), keras.Variable(np.ones((2, 2), "float32"))]


@pytest.mark.parametrize(("name", "arguments", "expected"), [(k, *v) for k, v in MADE.items()])
def test_weights_have_their_old_names_and_order(name, arguments, expected, two):
    """A different number goes into each by its place, and is looked for by its name."""
    opt = LossScaleOptimizer(getattr(keras.optimizers, name)(0.1, **arguments))
    assert opt.get_slot_names() == []
    opt._create_all_weights(two)
    found = {"momentum_cache": getattr(opt.inner_optimizer, "_u_product", None)}
    made = [one.partition(":") for one in expected.split() if one not in found]
    assert opt.get_slot_names() == list(dict.fromkeys(slot for slot, _, _ in made))
    for slot, _, i in made:
        found[f"{slot}:{i}"] = opt.get_slot(two[int(i)], slot)
        assert tuple(found[f"{slot}:{i}"].shape) == tuple(two[int(i)].shape)
    names = expected.split()
    values = [np.full(found[one].shape, 2 + i, "float32") for i, one in enumerate(names)]
    opt.set_weights([np.int64(1), *values])
    assert opt.weights[0] is opt.iterations
    assert int(opt.iterations) == 1
    assert [float(numbers(found[one]).max()) for one in names] == [2 + i for i in range(len(names))]
    assert len(opt.weights) == 1 + len(names)


def test_slots_hold_the_state():
    """Adam's first step: m = (1 - beta_1) g, v = (1 - beta_2) g^2."""
    opt = LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=4)
    weight = keras.Variable([1.0, 2.0])
    opt.minimize(lambda: 3.0 * ops.sum(weight), [weight])
    np.testing.assert_allclose(numbers(opt.get_slot(weight, "m")), [0.3, 0.3], rtol=1e-6)
    np.testing.assert_allclose(numbers(opt.get_slot(weight, "v")), [0.009, 0.009], rtol=1e-5)


def test_slots_of_a_class_of_ones_own(two):
    class Own(keras.optimizers.Optimizer):
        def build(self, variables):
            super().build(variables)
            self._drift = [
                self.add_variable_from_reference(variable, name="drift") for variable in variables
            ]

        def update_step(self, gradient, variable, learning_rate):
            self.assign(self._drift[self._get_variable_index(variable)], gradient)

    opt = LossScaleOptimizer(Own(0.1))
    opt.build(two)
    assert opt.get_slot_names() == ["drift"]
    assert opt.get_slot(two[1], "drift") is opt.inner_optimizer._drift[1]


def test_a_slot_that_is_not_there(two):
    opt = LossScaleOptimizer(keras.optimizers.Adam(0.1))
    with pytest.raises(KeyError, match="not built"):
        opt.get_slot(two[0], "m")
    opt.build(two[:1])
    with pytest.raises(KeyError, match="Adam has no slot 'momentum'; it has m, v"):
        opt.get_slot(two[0], "momentum")
    with pytest.raises(ValueError, match="not trained by this optimizer"):
        opt.get_slot(two[1], "m")


@pytest.mark.parametrize("built", [False, True])
def test_add_slot(two, built):
    opt = LossScaleOptimizer(keras.optimizers.Adam(0.1))
    if built:
        opt.build(two)
    slot = opt.add_slot(two[0], "drift", "ones")
    assert opt.add_slot(two[0], "drift") is slot
    assert opt.get_slot(two[0], "drift") is slot
    np.testing.assert_array_equal(numbers(slot), np.ones(3))
    assert any(slot is variable for variable in opt.variables)
    opt._create_all_weights(two)
    assert opt.get_slot_names() == ["m", "v", "drift"]
    before = len(opt.variables)
    opt.apply_gradients([(ops.ones(3), two[0])], gradients_scaled=False)
    assert len(opt.variables) == before


def test_an_added_slot_keeps_its_variable():
    """Another variable could have its id otherwise, and would get its slot."""
    opt = LossScaleOptimizer(keras.optimizers.Adam(0.1))
    variable = keras.Variable(np.ones(3, "float32"))
    opt.add_slot(variable, "drift")
    alive = weakref.ref(variable)
    del variable
    gc.collect()
    assert alive() is not None


def test_a_slot_added_under_a_name_that_there_is(two):
    opt = LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9))
    opt.build(two[:1])
    opt.add_slot(two[1], "momentum")
    assert len(opt.weights) == 3


def test_weights_of_tf_keras_are_taken(two):
    """Step count and slots, as people pickled them."""
    opt = LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=64)
    opt.build(two)
    values = [np.full(w.shape, 7, "float32") for w in opt.weights]
    values[0] = np.int64(7)
    opt.set_weights(values)
    assert int(opt.iterations) == 7
    assert all((numbers(w) == 7).all() for w in opt.weights[1:])
    assert float(opt.loss_scale) == 64
    opt.set_weights(opt.get_weights())
    with pytest.raises(ValueError, match="has 4 arrays, but this optimizer has 10"):
        opt.set_weights(values[:-1])


def test_an_override_that_fit_does_not_call_warns():
    with pytest.warns(UserWarning, match="get_unscaled_gradients, which fit.. of Keras 3 does not"):

        class Clipping(LossScaleOptimizer):
            def get_unscaled_gradients(self, gradients):
                return super().get_unscaled_gradients(gradients)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.train.Checkpoint")
@pytest.mark.parametrize("cls", [LossScaleOptimizer, ExperimentalLossScaleOptimizer])
def test_checkpoints_of_tensorflow(cls, two, tmp_path):
    import tensorflow as tf

    def made():
        more = {"loss_scale": "dynamic"} if cls is ExperimentalLossScaleOptimizer else {}
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        optimizer = cls(keras.optimizers.Adam(0.1), **more)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    model, optimizer = made()
    kernel = model.trainable_variables[0]
    optimizer.minimize(lambda: ops.sum(kernel**2), [kernel])
    optimizer.dynamic_scale.assign(512.0)
    path = tf.train.Checkpoint(model=model, optimizer=optimizer).save(str(tmp_path / "ckpt"))
    again, restored = made()
    tf.train.Checkpoint(model=again, optimizer=restored).restore(path)
    for before, after in zip(optimizer.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(numbers(before), numbers(after))
    tf.saved_model.save(model, str(tmp_path / "saved_model"))


def test_variables_are_a_list_and_can_be_called(two):
    opt = LossScaleOptimizer(keras.optimizers.Adam(0.1))
    opt.build(two)
    core = keras_mp.LossScaleOptimizer(keras.optimizers.Adam(0.1))
    core.build(two)
    assert isinstance(opt.variables, list)
    assert [v.path for v in opt.variables()] == [v.path for v in opt.variables]
    assert [v.name for v in opt.variables] == [v.name for v in core.variables]


def test_the_inner_optimizer_under_its_old_name():
    inner = keras.optimizers.SGD()
    assert LossScaleOptimizer(inner)._optimizer is inner


def test_trains_as_the_core_does(data, make_model, weights):
    x, y = data
    ends = []
    for cls in (keras_mp.LossScaleOptimizer, LossScaleOptimizer, ExperimentalLossScaleOptimizer):
        more = ("dynamic",) if cls is ExperimentalLossScaleOptimizer else ()
        model = make_model("mixed_float16")
        model.compile(cls(keras.optimizers.Adam(0.01), *more), keras.losses.MeanSquaredError())
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        ends.append(weights(model))
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


CLASSES = {
    "stable": (LossScaleOptimizer, {"dynamic": False, "initial_scale": 1024.0}),
    "experimental": (ExperimentalLossScaleOptimizer, {"loss_scale": 1024.0}),
}


def test_files_open_as_what_they_were(data, make_model, tmp_path):
    """Here, and in a process that has seen neither class."""
    x, y = data
    for name, (cls, arguments) in CLASSES.items():
        model = make_model("mixed_float16")
        model.compile(cls(keras.optimizers.Adam(0.01), **arguments), "mse")
        model.fit(x, y, batch_size=8, verbose=0)
        model.save(tmp_path / f"{name}.keras")
        again = keras.saving.load_model(tmp_path / f"{name}.keras").optimizer
        assert type(again) is cls
        for before, after in zip(model.optimizer.variables, again.variables, strict=True):
            np.testing.assert_array_equal(numbers(before), numbers(after))
    program = """
import sys
import keras, keras_mp
for path in sys.argv[1:]:
    opt = keras.saving.load_model(path).optimizer
    assert isinstance(opt, keras_mp.LossScaleOptimizer), type(opt)
    assert type(opt).__module__.startswith("keras_mp.compat"), type(opt)
    assert (float(opt.loss_scale), int(opt.iterations)) == (1024.0, 8)
"""
    paths = [tmp_path / f"{name}.keras" for name in CLASSES]
    programs.run("-c", programs.warning("error") + program, *paths, timeout=120, imported=True)


@pytest.mark.parametrize(("cls", "arguments"), CLASSES.values(), ids=CLASSES)
def test_files_hold_the_state_once(cls, arguments, two, tmp_path):
    counts = []
    for made in (cls, keras_mp.LossScaleOptimizer):
        more = arguments if made is cls else {}
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(made(keras.optimizers.Adam(), **more), "mse")
        model.optimizer.build(model.trainable_variables)
        model.save(tmp_path / "model.keras")
        with zipfile.ZipFile(tmp_path / "model.keras") as archive:
            archive.extract("model.weights.h5", tmp_path)
        with h5py.File(tmp_path / "model.weights.h5") as file:
            names = []
            file.visit(names.append)
        counts.append([name for name in names if name.startswith("optimizer")])
    assert counts[0] == counts[1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
@pytest.mark.parametrize(("cls", "arguments"), CLASSES.values(), ids=CLASSES)
def test_copies(cls, arguments, two, copied):
    opt = cls(keras.optimizers.Adam(0.1), **arguments)
    opt.build(two)
    opt.apply_gradients([(ops.ones(3), two[0])], gradients_scaled=False)
    again = copied(opt)
    assert type(again) is cls
    again.build(two)  # where the state waits for
    assert float(again.loss_scale) == 1024
    for before, after in zip(opt.variables, again.variables, strict=True):
        np.testing.assert_array_equal(numbers(before), numbers(after))


def test_the_table_of_slots_names_lists_of_keras():
    for name, attributes in slots.SLOTS.items():
        if not hasattr(keras.optimizers, name):
            continue  # Lamb is of Keras 3.11
        optimizer = getattr(keras.optimizers, name)()
        optimizer.build([keras.Variable([1.0])])
        missing = {a for a in attributes.values() if not hasattr(optimizer, a)}
        assert missing <= {"_velocity_hats", "momentums", "_momentums", "_average_gradients"}
