"""What is loaded is never initialised; all else is as if it had been."""

import contextlib
import functools
import json
import random
import zipfile

import h5py
import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp.backends.common import late_values
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.restoring.plan import RestoreError
from keras_mp.migration import artefacts, verifying
from keras_mp.migration.requests import Request
from tests.fixtures import FIXTURES
from tests.legacy_cases import OWN
from tests.loaded_models import load

# One layer of some models has the policy float64, and JAX has no float64 unless asked to.
pytestmark = pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")

HOOK = "_initialize_with_initializer"


def dense(name, units, **more):
    kind = {"class_name": "GlorotUniform", "config": {"seed": None}}
    return {
        "class_name": "Dense",
        "config": {"name": name, "units": units, "kernel_initializer": kind, **more},
    }


DROPOUT = {"class_name": "Dropout", "config": {"name": "drop", "rate": 0.5}}
TRAINING = {
    "loss": "mse",
    "optimizer_config": {
        "class_name": "Adagrad",
        "config": {"learning_rate": 0.1, "initial_accumulator_value": 0.25, "decay": 0.0},
    },
}


def write(path, layers, widths, training=None):
    """Writes the HDF5 file of a Sequential model; `widths`: name of a Dense layer -> its shape."""
    rng = np.random.default_rng(0)
    config = {"name": "net", "layers": layers}
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.4.0"
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": config})
        if training is not None:
            file.attrs["training_config"] = json.dumps(training)
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = list(widths)
        for name, (rows, columns) in widths.items():
            group[f"{name}/{name}/kernel:0"] = rng.random((rows, columns), dtype="float32")
            group[f"{name}/{name}/bias:0"] = rng.random(columns, dtype="float32")
            group[name].attrs["weight_names"] = [f"{name}/kernel:0", f"{name}/bias:0"]
    return path


def small(path, first=4, second=2, only=("one", "two")):
    """Writes a model of two Dense layers with Dropout, with the weights of some."""
    layers = [dense("one", first, batch_input_shape=[None, 3]), DROPOUT, dense("two", second)]
    shapes = {"one": (3, first), "two": (first, second)}
    return write(path, layers, {name: shapes[name] for name in only}, TRAINING)


@pytest.fixture
def computed(monkeypatch):
    """The shapes that Keras' initializers computed."""
    found = []

    def counted(kind):
        call = kind.__call__

        @functools.wraps(call)
        def counting(self, shape, *args, **kwargs):
            found.append(tuple(shape))
            return call(self, shape, *args, **kwargs)

        monkeypatch.setattr(kind, "__call__", counting)

    for name in ("VarianceScaling", "Orthogonal", "RandomUniform", "Constant", "Ones", "Zeros"):
        counted(getattr(keras.initializers, name))
    return found


def facts(path, **options):
    """Returns all that is to be as if everything had been initialised."""
    keras.utils.clear_session(free_memory=False)  # names are counted from the beginning
    keras.utils.set_random_seed(5)
    loaded = load(path, OWN, **options)
    optimizer = getattr(loaded.model, "optimizer", None)
    variables = [*loaded.model.variables, *(() if optimizer is None else optimizer.variables)]
    return {
        "variables": [
            (v.path, str(v.dtype), v.trainable, ops.convert_to_numpy(v).tobytes())
            for v in variables
        ],
        "types": {type(v) for v in variables},
        "config": loaded.model.get_config(),
        "optimizer": None if optimizer is None else optimizer.get_config(),
        "report": loaded.report,
        "random": random.random(),
    }


# Of each kind of file one that TensorFlow wrote, with the state of its training.
RECORDED = [
    next(path for path in sorted(FIXTURES.glob(f"{version}/*/{name}")))
    for version, name in (("tf23", "model.h5"), ("tf215", "model.keras"), ("tf24", "saved_model"))
]


def as_plain(monkeypatch):
    monkeypatch.setattr(late_values, "scope_for", lambda *_: contextlib.nullcontext())


def test_nothing_is_computed_for_what_the_file_holds(tmp_path, computed):
    model = load(small(tmp_path / "model.h5")).model
    # Of Adagrad the file holds no state: its accumulators begin with their value. What is zeros
    # is there from the beginning.
    assert sorted(computed) == sorted(tuple(v.shape) for v in model.trainable_variables)
    computed.clear()
    load(small(tmp_path / "again.h5"), compile=False)
    assert computed == []
    with h5py.File(tmp_path / "again.h5") as file:
        loaded = load(tmp_path / "again.h5").model
        for name in ("one", "two"):
            for value, variable in zip(
                (file[f"model_weights/{name}/{name}/{end}:0"][()] for end in ("kernel", "bias")),
                loaded.get_layer(name).weights,
                strict=True,
            ):
                np.testing.assert_array_equal(ops.convert_to_numpy(variable), value)


def test_all_is_as_if_it_had_been(tmp_path, monkeypatch):
    path = small(tmp_path / "model.h5")
    late = facts(path)
    as_plain(monkeypatch)
    plain = facts(path)
    assert late == plain
    assert late["types"] == {keras.Variable}
    accumulators = [v for v in late["variables"] if "accumulator" in v[0]]
    assert len(accumulators) == 4
    assert all(set(np.frombuffer(v[3], "float32")) == {0.25} for v in accumulators)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_files_are_as_if_they_had_been(path, monkeypatch):
    late = facts(path)
    as_plain(monkeypatch)
    assert late == facts(path)


def test_what_the_file_does_not_hold_gets_its_own_values(tmp_path, monkeypatch, computed):
    path = small(tmp_path / "model.h5", only=("one",))
    late = facts(path, strict=False, compile=False)
    assert computed == [(4, 2)]
    as_plain(monkeypatch)
    assert late == facts(path, strict=False, compile=False)
    assert late["report"].missing == ("net/two/kernel", "net/two/bias")
    kernel = next(v[3] for v in late["variables"] if v[0] == "net/two/kernel")
    assert np.frombuffer(kernel, "float32").std() > 0.1


def test_an_error_computes_nothing_and_leaves_nothing(tmp_path, computed):
    path = small(tmp_path / "model.h5", only=("one",))
    with pytest.raises(RestoreError, match="two/kernel"):
        load(path)
    assert computed == []
    assert HOOK not in vars(keras.Variable)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(Unreadable):
        load(path)
    assert HOOK not in vars(keras.Variable)


def test_no_program_is_compiled_for_a_shape(tmp_path, backend, request):
    if backend != "jax":
        pytest.skip("only JAX compiles a program for each shape")
    import jax

    events, monitoring = [], jax.monitoring

    def listen(name, *_, **__):
        events.append(name)

    monitoring.register_event_duration_secs_listener(listen)
    request.addfinalizer(
        lambda: getattr(monitoring, "unregister_event_duration_listener", id)(listen)
    )
    load(small(tmp_path / "warm.h5"))
    # Shapes that no other test has.
    path = small(tmp_path / "model.h5", 1237, 1009)
    events.clear()
    load(path, compile=False)
    assert not [name for name in events if "compile" in name]
    keras.layers.Dense(1013).build((None, 1019))
    assert [name for name in events if "compile" in name], "they can be counted"


class Reads(keras.layers.Layer):
    """It makes a weight of what another was when it was built."""

    def build(self, shape):
        self.kernel = self.add_weight(
            shape=(shape[-1], 2),
            initializer=keras.initializers.GlorotUniform(seed=3),
            name="kernel",
        )
        self.size = float(np.abs(ops.convert_to_numpy(self.kernel)).sum())

    def call(self, x):
        return ops.matmul(x, self.kernel)


def test_a_layer_of_ones_own_reads_what_it_would_have_read(tmp_path):
    layers = [
        {"class_name": "Reads", "config": {"name": "own", "batch_input_shape": [None, 3]}},
    ]
    path = write(tmp_path / "model.h5", layers, {})
    with h5py.File(path, "a") as file:
        group = file["model_weights"]
        group.attrs["layer_names"] = ["own"]
        group["own/own/kernel:0"] = np.ones((3, 2), "float32")
        group["own"].attrs["weight_names"] = ["own/kernel:0"]
    layer = load(path, {"Reads": Reads}).model.layers[-1]
    plain = Reads()
    plain.build((None, 3))
    assert layer.size == plain.size > 0
    np.testing.assert_array_equal(ops.convert_to_numpy(layer.kernel), np.ones((3, 2)))


def test_migrate_computes_nothing_either_time(tmp_path, computed, monkeypatch):
    path, out = small(tmp_path / "model.h5"), tmp_path / "out.keras"
    loads = []
    real = keras.saving.load_model

    def counting(*args, **kwargs):
        loads.append(list(computed))
        return real(*args, **kwargs)

    monkeypatch.setattr(keras.saving, "load_model", counting)
    outcome = artefacts.migrate(Request(str(path), str(out), model_only=True))
    assert (outcome.status, outcome.verified) == ("converted", {"weights": 4, "optimizer": 0})
    assert loads == [[]]
    assert computed == []
    real(out)
    assert (3, 4) in computed, "Keras' own is as it was"


def test_a_weight_that_was_not_written_is_still_found(tmp_path):
    path, out = small(tmp_path / "model.h5"), tmp_path / "out.keras"
    artefacts.migrate(Request(str(path), str(out), model_only=True))
    model = load(path, compile=False).model
    saved = verifying.Saved.of(model)
    assert saved.nbytes == 4 * (3 * 4 + 4 + 4 * 2 + 2)
    assert verifying.reload_and_compare(out, saved, (), custom_objects={})["weights"] == 4
    changed = tmp_path / "changed.keras"
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "model.weights.h5":
                inside = tmp_path / "inside.h5"
                inside.write_bytes(data)
                with h5py.File(inside, "a") as file:
                    file["layers/dense/vars/1"][0] += 1.0
                data = inside.read_bytes()
            new.writestr(name, data)
    with pytest.raises(verifying.Mismatch, match="one/bias differs after reloading"):
        verifying.reload_and_compare(changed, saved, (), custom_objects={})


def test_a_file_of_keras_3_is_loaded_so_too(tmp_path, computed):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="out")])
    model.save(tmp_path / "model.keras")
    computed.clear()
    again = keras_mp.compat.load_model(tmp_path / "model.keras")
    assert computed == []
    for mine, theirs in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
