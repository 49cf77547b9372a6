"""Configs and files: round trips continue bit for bit, ours and Keras' own read each other."""

import copy
import io
import json
import warnings
import zipfile

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from tests import programs

SETTINGS = {"initial_scale": 256.0, "dynamic_growth_steps": 3}


def adam():
    return keras.optimizers.Adam(0.01)


def ours(inner=None):
    return LossScaleOptimizer(inner or adam(), **SETTINGS)


def theirs(inner=None):
    return keras.optimizers.LossScaleOptimizer(inner or adam(), **SETTINGS)


@pytest.fixture
def compiled(make_model):
    def make(optimizer, build=True):
        model = make_model("mixed_float16")
        model.compile(optimizer, keras.losses.MeanSquaredError(), auto_scale_loss=False)
        if build:
            model.optimizer.build(model.trainable_variables)
        return model

    return make


@pytest.fixture
def trained(fit, data):
    def make(optimizer, **more):
        return fit(optimizer, *data, policy="mixed_float16", auto_scale_loss=False, **more)

    return make


def datasets(file):
    """Names of the optimizer's arrays in an open h5 file."""
    found = []
    file.visititems(
        lambda name, node: found.append(name) if isinstance(node, h5py.Dataset) else None
    )
    return [name for name in found if name.startswith("optimizer")]


def test_config_is_pure_and_json():
    opt = LossScaleOptimizer(
        adam(), initial_scale=np.float32(4.0), dynamic_growth_steps=np.int64(7)
    )
    config = opt.get_config()
    before = copy.deepcopy(config)
    again = LossScaleOptimizer.from_config(config)
    assert config == before
    del again
    again = LossScaleOptimizer.from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config
    assert (again.initial_scale, again.dynamic_growth_steps) == (4.0, 7)
    assert type(again.inner_optimizer) is type(opt.inner_optimizer)


def test_config_names_a_public_class():
    """On torch Keras writes a private module that JAX and TensorFlow cannot import."""
    config = ours().get_config()["inner_optimizer"]
    assert (config["module"], config["class_name"], config["registered_name"]) == (
        "keras.optimizers",
        "Adam",
        None,
    )


def test_registered_name():
    config = keras.saving.serialize_keras_object(ours())
    assert config["registered_name"] == "keras_mp>LossScaleOptimizer"
    assert config["module"] == "keras_mp"
    assert type(keras.saving.deserialize_keras_object(config)) is LossScaleOptimizer


def test_round_trip_through_keras_optimizers():
    """Though keras.optimizers.deserialize lower-cases class names of its own optimizers."""
    config = keras.optimizers.serialize(ours())
    assert type(keras.optimizers.get(copy.deepcopy(config))) is LossScaleOptimizer
    assert type(keras.optimizers.deserialize(config)) is LossScaleOptimizer


INNER_2 = {"class_name": "Adam", "config": {"name": "Adam", "learning_rate": 0.5}}
OTHERS = {
    "Keras 3": (theirs, None, True, 256.0),
    "Keras 3 with base options": (
        None,
        {
            "inner_optimizer": {"module": "keras.optimizers", **INNER_2},
            "initial_scale": 256.0,
            "dynamic_growth_steps": 3,
            "weight_decay": None,
            "use_ema": False,
            "ema_momentum": 0.99,
        },
        True,
        256.0,
    ),
    "TF 2.4": (
        None,
        {
            "inner_optimizer": INNER_2,
            "dynamic": True,
            "initial_scale": 256.0,
            "dynamic_growth_steps": 3,
        },
        True,
        256.0,
    ),
    "TF 2.4 fixed": (
        None,
        {
            "inner_optimizer": INNER_2,
            "dynamic": False,
            "initial_scale": 64.0,
            "dynamic_growth_steps": None,
        },
        False,
        64.0,
    ),
    "TF 2.3": (
        None,
        {
            "optimizer": INNER_2,
            "loss_scale": {
                "class_name": "DynamicLossScale",
                "config": {"initial_loss_scale": 256.0, "increment_period": 3, "multiplier": 2.0},
            },
        },
        True,
        256.0,
    ),
}


@pytest.mark.parametrize(("make", "config", "dynamic", "scale"), OTHERS.values(), ids=OTHERS)
def test_configs_of_others(make, config, dynamic, scale):
    opt = LossScaleOptimizer.from_config(config or make().get_config())
    assert (opt.dynamic, opt.initial_scale) == (dynamic, scale)
    assert opt.dynamic_growth_steps == (3 if dynamic else None)
    assert type(opt.inner_optimizer).__name__ == "Adam"


@pytest.mark.parametrize("suffix", ["keras", "weights.h5"])
def test_round_trip_continues_bit_for_bit(
    suffix, trained, compiled, data, weights, state, tmp_path
):
    model = trained(ours())
    path = str(tmp_path / f"model.{suffix}")
    if suffix == "keras":
        model.save(path)
        loaded = keras.saving.load_model(path)
        assert type(loaded.optimizer) is LossScaleOptimizer
    else:
        model.save_weights(path)
        loaded = compiled(ours())
        loaded.load_weights(path)
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)
    assert (float(loaded.optimizer.loss_scale), int(loaded.optimizer.dynamic_counter)) == (
        1024.0,
        2,
    )
    for each in (model, loaded):
        each.fit(*data, batch_size=8, shuffle=False, verbose=0)
    assert weights(loaded).tolist() == weights(model).tolist()


def test_state_is_written_once(trained, tmp_path):
    """Keras' own class writes the inner optimizer's arrays twice; two are ours alone."""
    path = str(tmp_path / "model.keras")
    model = trained(ours())
    model.save(path)
    with h5py.File(io.BytesIO(zipfile.ZipFile(path).read("model.weights.h5"))) as file:
        names = datasets(file)
    more = [f"optimizer/extra_state/vars/{name}" for name in ("nonfinite_kind", "skipped_steps")]
    known = [f"optimizer/vars/{i}" for i in range(4 + 2 + 2 * 4)]
    assert sorted(names) == sorted(known + more)


@pytest.fixture
def loading(monkeypatch):
    """As while Keras makes a whole model, or a copy, whose state it loads next."""
    monkeypatch.setattr("keras_mp.backends.keras_hooks.is_loading", lambda: True)


def test_before_build_nothing_is_taken(trained, compiled, state, tmp_path):
    """As by a plain Keras optimizer; not the extra state either, and it is said once."""
    path = str(tmp_path / "x.weights.h5")
    trained(ours()).save_weights(path)
    loaded, fresh = (compiled(ours(keras.optimizers.Adam(0.5)), build=False) for _ in range(2))
    with pytest.warns(
        UserWarning, match=r"not loaded: .* not built yet.*keras_mp\.resume"
    ) as caught:
        loaded.load_weights(path)
    assert len(caught) == 1
    for model in (loaded, fresh):
        model.optimizer.build(model.trainable_variables)
    assert state(loaded.optimizer.variables) == state(fresh.optimizer.variables)


def test_the_extra_state_of_the_next_file_is_taken(trained, compiled, tmp_path):
    """What is refused is refused once."""
    path = str(tmp_path / "x.weights.h5")
    model = trained(ours())
    model.optimizer._skipped_steps.assign(5)
    model.save_weights(path)
    loaded = compiled(ours(), build=False)
    with pytest.warns(UserWarning, match="not built yet"):
        loaded.load_weights(path)
    assert int(loaded.optimizer.skipped_steps) == 0
    loaded.optimizer.build(loaded.trainable_variables)
    loaded.load_weights(path)
    assert int(loaded.optimizer.skipped_steps) == 5


@pytest.mark.parametrize(
    ("write", "read"), [(theirs, ours), (ours, theirs)], ids=["theirs to ours", "ours to theirs"]
)
def test_weights_files_of_keras_own_class(write, read, trained, compiled, state, tmp_path):
    path = str(tmp_path / "x.weights.h5")
    model, loaded = trained(write()), compiled(read())
    model.save_weights(path)
    with warnings.catch_warnings():
        if read is theirs:
            # It looks for the second copy of the inner state, which we do not write; it has the
            # first by then.
            warnings.filterwarnings("ignore", "Skipping variable loading")
        loaded.load_weights(path)
    both = 4 + 2 + 2 * 4
    assert state(loaded.optimizer.variables[:both]) == state(model.optimizer.variables[:both])


def test_plain_optimizer_into_the_wrapper(trained, compiled, data, weights, tmp_path):
    """Turning mixed precision on in the middle of training; no warning either."""
    path = str(tmp_path / "x.weights.h5")
    model, loaded = trained(adam()), compiled(ours())
    model.save_weights(path)
    loaded.load_weights(path)
    inner = loaded.optimizer.inner_optimizer
    assert [v.numpy().tolist() for v in inner.variables] == [
        v.numpy().tolist() for v in model.optimizer.variables
    ]
    assert int(loaded.optimizer.iterations) == 8
    assert float(loaded.optimizer.loss_scale) == 256.0


@pytest.mark.parametrize(
    "make", [ours, theirs, lambda inner: inner], ids=["ours", "theirs", "plain"]
)
@pytest.mark.parametrize("build", [True, False], ids=["built", "not built"])
def test_a_file_of_a_model_that_never_trained(make, build, compiled, tmp_path):
    """Plain Keras takes its learning rate over if neither is built; the one that was set stays."""
    model = compiled(make(keras.optimizers.Adam(0.125)), build=False)
    path = str(tmp_path / "x.weights.h5")
    model.save_weights(path)
    loaded = compiled(ours(), build=build)
    with pytest.warns(UserWarning, match="was not loaded"):
        loaded.load_weights(path)
    assert int(loaded.optimizer.iterations) == 0
    assert float(loaded.optimizer.learning_rate.numpy()) == np.float32(0.01)


def test_a_file_with_nothing_that_differs_is_no_matter(compiled, tmp_path):
    """Initial weights that are put back before each of several trainings."""
    path = str(tmp_path / "x.weights.h5")
    model = compiled(ours(), build=False)
    model.save_weights(path)
    model.load_weights(path)


def test_a_model_that_never_trained_is_loaded_as_it_was(compiled, tmp_path):
    model = compiled(ours(keras.optimizers.Adam(0.125)), build=False)
    model.optimizer.dynamic_scale.assign(4.0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras").optimizer
    assert float(loaded.loss_scale) == 4.0
    assert float(loaded.learning_rate.numpy()) == 0.125


def test_another_model_is_refused_and_nothing_loaded(trained, state):
    opt = ours()
    opt.build([keras.Variable(np.ones((2, 2)))])
    before = state(opt.variables)
    saved = {str(i): v for i, v in enumerate(trained(ours()).optimizer.get_weights())}
    with pytest.warns(UserWarning, match=r"it has 14 arrays, but this optimizer has 8 variables"):
        opt.load_own_variables(saved)
    other = {str(i): np.zeros((3,)) if i > 5 else np.zeros(()) for i in range(8)}
    with pytest.warns(UserWarning, match=r"shape \(3,\), but .* has shape \(2, 2\)"):
        opt.load_own_variables(other)
    assert state(opt.variables) == before


def test_set_weights_sets_all_or_raises(trained, state):
    model = trained(ours())
    values = model.optimizer.get_weights()
    other = ours()
    other.build(model.trainable_variables)
    other.set_weights(values)
    assert state(other.variables) == state(model.optimizer.variables)
    assert int(other.iterations) == 8
    with pytest.raises(ValueError, match=r"nothing was set: it has 13 arrays, but .* 14"):
        other.set_weights(values[:-1])
    with pytest.raises(ValueError, match=r"has shape"):
        other.set_weights(values[::-1])
    assert state(other.variables) == state(model.optimizer.variables)


def test_a_fixed_scale_is_the_constructors(trained, compiled, tmp_path):
    path = str(tmp_path / "x.weights.h5")
    trained(ours()).save_weights(path)
    fixed = compiled(LossScaleOptimizer(adam(), dynamic=False, initial_scale=64.0))
    with pytest.warns(UserWarning, match=r"fixed at 64\.0; the saved one, 1024\.0, is ignored"):
        fixed.load_weights(path)
    assert float(fixed.optimizer.loss_scale) == 64.0
    assert int(fixed.optimizer.iterations) == 8


@pytest.mark.essential
@pytest.mark.parametrize("broken", [0.0, 1e-40, float("inf"), float("nan")])
def test_a_destroyed_scale_is_not_restored(broken, trained, compiled, tmp_path):
    """Keras' own class can write 0 and inf; no step recovers from either."""
    path = str(tmp_path / "x.weights.h5")
    model = trained(theirs())
    model.optimizer.dynamic_scale.assign(broken)
    model.save_weights(path)
    loaded = compiled(ours())
    with pytest.warns(UserWarning, match=r"no step recovers.*initial one, 256\.0"):
        loaded.load_weights(path)
    assert float(loaded.optimizer.loss_scale) == 256.0
    assert int(loaded.optimizer.iterations) == 8


def test_opens_in_a_fresh_process_without_keras_mp_and_then_with_it(trained, data, tmp_path):
    path = str(tmp_path / "model.keras")
    model = trained(ours())
    model.save(path)
    np.save(tmp_path / "x.npy", data[0])
    np.save(tmp_path / "y.npy", model.predict(data[0], verbose=0))
    program = f"""
import sys; sys.modules["keras_mp"] = None
import keras, numpy as np
model = keras.saving.load_model({path!r}, compile=False)
found = model.predict(np.load({str(tmp_path / "x.npy")!r}), verbose=0)
assert np.array_equal(found, np.load({str(tmp_path / "y.npy")!r}))

del sys.modules["keras_mp"]
import keras_mp
optimizer = keras.saving.load_model({path!r}).optimizer
assert type(optimizer).__module__ == "keras_mp" and float(optimizer.loss_scale) == 1024.0
"""
    programs.run("-c", program, imported=True)


def test_from_json(trained):
    again = keras.models.model_from_json(trained(ours()).to_json())
    assert type(again.optimizer) is LossScaleOptimizer


def test_tf_train_checkpoint(trained, compiled, state, tmp_path, backend):
    if backend != "tensorflow":
        pytest.skip("tf.train.Checkpoint is TensorFlow's")
    import tensorflow as tf

    model, other = trained(ours()), compiled(ours())
    path = tf.train.Checkpoint(optimizer=model.optimizer).save(str(tmp_path / "ckpt"))
    tf.train.Checkpoint(optimizer=other.optimizer).restore(path).assert_consumed()
    assert state(other.optimizer.variables) == state(model.optimizer.variables)


@pytest.mark.parametrize("schedule", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_small_plain_file_before_build(momentum, schedule, loading):
    """Few arrays, of scalars: counts alone would mistake them for another layout."""
    rate = keras.optimizers.schedules.ExponentialDecay(0.5, 9, 0.5) if schedule else 0.5

    def sgd():
        return keras.optimizers.SGD(rate, momentum=momentum)

    variables = [keras.Variable(1.0), keras.Variable(1.0)]
    plain = sgd()
    plain.build(variables)
    for _ in range(3):
        plain.apply([keras.ops.array(1.0), keras.ops.array(2.0)], variables)
    saved = {}
    plain.save_own_variables(saved)
    opt = LossScaleOptimizer(sgd(), initial_scale=64.0)
    opt.load_own_variables(saved)
    opt.build(variables)
    found = [v.numpy().tolist() for v in opt.inner_optimizer.variables]
    assert found == [v.numpy().tolist() for v in plain.variables]
    assert (int(opt.iterations), float(opt.loss_scale)) == (3, 64.0)


def test_waiting_state_is_seen_and_saved(trained):
    model = trained(ours())
    copied = copy.deepcopy(model.optimizer)
    assert not copied.built
    assert (float(copied.loss_scale), int(copied.dynamic_counter)) == (1024.0, 2)
    again = {}
    copied.save_own_variables(again)
    assert [again[str(i)].tolist() for i in range(len(again))] == [
        value.tolist() for value in model.optimizer.get_weights()
    ]


def test_a_file_without_optimizer_warns(make_model, compiled, tmp_path):
    """As a plain optimizer does; the weights load."""
    path = str(tmp_path / "x.weights.h5")
    make_model("mixed_float16").save_weights(path)
    loaded = compiled(ours())
    with pytest.warns(UserWarning, match="not loaded: the file holds none"):
        loaded.load_weights(path)


def test_a_scale_of_keras_own_class_below_our_floor():
    theirs = keras.optimizers.LossScaleOptimizer(adam(), initial_scale=0.5)
    opt = LossScaleOptimizer.from_config(theirs.get_config())
    assert (opt.initial_scale, opt.get_config()["min_scale"]) == (0.5, 0.5)


def test_set_weights_does_not_take_a_destroyed_or_another_fixed_scale():
    variable = keras.Variable([1.0])
    fixed = LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=8.0)
    dynamic = LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=8.0)
    for opt, scale in ((fixed, 4.0), (dynamic, float("nan"))):
        opt.build([variable])
        values = opt.get_weights()
        values[3] = np.float32(scale)
        with pytest.warns(UserWarning, match="loss scale"):
            opt.set_weights(values)
        assert float(opt.loss_scale) == 8.0


def test_waiting_state_is_used_once():
    variable, again = keras.Variable([1.0]), {}
    first = LossScaleOptimizer(keras.optimizers.SGD(momentum=0.5), initial_scale=8.0)
    first.build([variable])
    opt = copy.deepcopy(first)
    opt.apply_gradients([(keras.ops.array([np.nan]), variable)], gradients_scaled=True)
    opt.save_own_variables(again)
    assert float(again["3"]) == 4.0


def test_a_later_load_leaves_waiting_state_alone(trained):
    """The copy is not built, so it takes nothing of a file; its own state still waits for it."""
    model = trained(ours())
    opt = copy.deepcopy(model.optimizer)
    small = {str(i): v for i, v in enumerate(ours().get_weights())}
    with pytest.warns(UserWarning, match="not built yet"):
        opt.load_own_variables(small)
    opt.build(model.trainable_variables)
    assert float(opt.loss_scale) == 1024.0
    assert int(opt.iterations) == 8


def test_a_fixed_scale_waits_with_one_warning(trained, loading):
    model = trained(ours())
    saved = {str(i): v for i, v in enumerate(model.optimizer.get_weights())}
    fixed = LossScaleOptimizer(adam(), dynamic=False, initial_scale=64.0)
    fixed.load_own_variables(saved)
    with pytest.warns(UserWarning, match="is fixed at") as caught:
        fixed.build(model.trainable_variables)
    assert len(caught) == 1


def test_waiting_state_of_other_variables_is_dropped_with_a_warning(trained, state):
    """Built for another model than the copied one was: a training starts, as with plain Keras."""
    opt = copy.deepcopy(trained(ours()).optimizer)
    variable = keras.Variable(np.ones((2, 2)))
    with pytest.warns(UserWarning, match=r"it has 14 arrays, but this optimizer has 8"):
        opt.build([variable])
    opt.scale_loss(1.0)
    opt.apply([keras.ops.ones((2, 2))], [variable])


def test_a_fixed_scale_that_float32_rounds_is_the_same():
    opt = LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=1000.1)
    opt.set_weights(opt.get_weights())


def test_config_with_options_of_the_inner_optimizer():
    config = {**ours().get_config(), "clipnorm": 1.0}
    with pytest.raises(TypeError, match=r"clipnorm \(set it on the inner optimizer\)"):
        LossScaleOptimizer.from_config(config)


def test_our_own_config_is_held_to_the_floor():
    config = ours().get_config()
    del config["min_scale"]
    with pytest.raises(ValueError, match="initial_scale must lie between"):
        LossScaleOptimizer.from_config({**config, "initial_scale": 0.5})


def test_what_is_no_config_is_refused():
    with pytest.raises(ValueError, match=r"keys are class_name.*pass its 'config'"):
        LossScaleOptimizer.from_config({"class_name": "LossScaleOptimizer", "config": {}})


def test_custom_objects_reach_the_inner_optimizer():
    class Mine(keras.optimizers.SGD):
        pass

    config = LossScaleOptimizer(Mine()).get_config()
    config["inner_optimizer"].update(module="elsewhere", registered_name="Mine")
    opt = LossScaleOptimizer.from_config(config, custom_objects={"Mine": Mine})
    assert type(opt.inner_optimizer) is Mine


def test_a_fresh_process_loads_without_touching_a_name_and_what_it_defines(trained, tmp_path):
    """Keras writes no module for a class of __main__; one is called like a class of Keras."""
    trained(ours()).save(tmp_path / "model.keras")
    program = f"""
import keras_mp, keras
import numpy as np

optimizer = keras.saving.load_model({str(tmp_path / "model.keras")!r}).optimizer
assert type(optimizer).__module__ == "keras_mp" and float(optimizer.loss_scale) == 1024.0

@keras.saving.register_keras_serializable("mine")
class Mine(keras.optimizers.Adam):
    pass

@keras.saving.register_keras_serializable("mine")
class Adam(keras.optimizers.Adam):
    pass

for defined in (Mine, Adam):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras_mp.LossScaleOptimizer(defined(0.5), initial_scale=64.0), "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    model.save({str(tmp_path / "m.keras")!r})
    loaded = keras.saving.load_model({str(tmp_path / "m.keras")!r}).optimizer
    assert type(loaded.inner_optimizer) is defined
    assert (float(loaded.loss_scale), int(loaded.iterations)) == (64.0, 1)
"""
    programs.run("-c", program, imported=True)


def test_keys_that_are_no_positions_are_refused():
    opt = LossScaleOptimizer(keras.optimizers.SGD())
    opt.build([keras.Variable([1.0])])
    with pytest.warns(UserWarning, match="of another kind of optimizer"):
        opt.load_own_variables({f"x{i}": value for i, value in enumerate(opt.get_weights())})


def test_a_wrong_shape_is_named_by_its_position():
    """Also with more than ten arrays: 10 comes after 9."""
    variables = [keras.Variable(np.ones(n, "float32")) for n in range(1, 9)]
    opt = LossScaleOptimizer(keras.optimizers.SGD(momentum=0.5))
    opt.build(variables)
    saved = {str(i): value for i, value in enumerate(opt.get_weights())}
    saved["13"] = np.zeros(99)
    with pytest.warns(UserWarning, match=r"array 13 has shape \(99,\).* has shape \(8,\)"):
        opt.load_own_variables(saved)


class Watched(dict):
    """A store that notes how many arrays it handed out, or was given, in one go."""

    def __init__(self, arrays, happened):
        super().__init__(arrays)
        self.happened = happened

    def __getitem__(self, key):
        self.happened.append("read")
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        self.happened.append("write")
        super().__setitem__(key, value)


def test_no_two_arrays_are_held_at_once(compiled, monkeypatch):
    optimizer, happened = compiled(ours()).optimizer, []
    to_numpy, assign = ops.convert_to_numpy, keras.Variable.assign

    def noted_to_numpy(variable):
        happened.append("copy")
        return to_numpy(variable)

    def noted_assign(self, value):
        happened.append("assign")
        return assign(self, value)

    monkeypatch.setattr("keras_mp.optimizer.saved_state.ops.convert_to_numpy", noted_to_numpy)
    store, count = Watched({}, happened), len(optimizer._saved_state.variables)
    optimizer.save_own_variables(store)
    assert happened == ["copy", "write"] * count
    happened.clear()
    monkeypatch.setattr(keras.Variable, "assign", noted_assign)
    optimizer.load_own_variables(store)
    looked_at, restored = happened[:count], happened[count:]
    assert looked_at == ["read"] * count
    assert restored[: 2 * count] == ["read", "assign"] * count
