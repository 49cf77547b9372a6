"""Configs that would run code or read a file, in each kind of file: refused before Keras sees them.

Also on the oldest Keras, whose own `safe_mode` lets most of them pass.
"""

import io
import json
import warnings
import zipfile

import h5py
import keras
import numpy as np
import pytest

import keras_mp
from keras_mp.compat import load_model
from keras_mp.compat.checkpoints import Unreadable
from keras_mp.files import deserializing
from keras_mp.migration import building
from keras_mp.migration.publishing import Refused

TRUST = "if you trust it, load it in Python with safe_mode=False$"


def keras_3(name, config, module="keras.layers"):
    return {"module": module, "class_name": name, "config": config, "registered_name": None}


def function(module, name):
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


def vocabulary(path):
    return keras_3("StringLookup", {"name": "words", "vocabulary": str(path)})


LOOKUP = {
    "invert": False,
    "mask_token": "",
    "max_tokens": None,
    "num_oov_indices": 1,
    "sparse": False,
    "oov_token": "[UNK]",
    "output_mode": "int",
    "pad_to_max_tokens": False,
    "encoding": "utf-8",
}
LOADER = {
    "name": "l",
    "filepath": "saved",
    "call_endpoint": "serve",
    "call_training_endpoint": None,
}
LAYERS = {
    "TFSMLayer": (keras_3("TFSMLayer", LOADER), "is a TFSMLayer, which runs code"),
    "TFSMLayer of a private module": (
        keras_3("TFSMLayer", LOADER, "keras.src.export.tfsm_layer"),
        "is a TFSMLayer, which runs code",
    ),
    "pickled": (
        keras_3("TorchModuleWrapper", {"name": "l", "module": "gASVAAAA"}),
        "is a TorchModuleWrapper, which runs code",
    ),
    "get_file": (
        keras_3(
            "Lambda",
            {
                "name": "l",
                "function": function("keras.src.utils.file_utils", "get_file"),
                "arguments": {"origin": "file:///etc/passwd", "cache_dir": "made"},
            },
        ),
        r'config\.function of "l" is keras\.src\.utils\.file_utils\.get_file, which is not part',
    ),
    "vocabulary": (
        vocabulary("words.txt"),
        r'config\.vocabulary of "(l|words)" is "words\.txt": StringLookup reads that file',
    ),
    "vocabulary of a table": (
        keras_3("TextVectorization", {"name": "l", "vocabulary": "words.txt"}),
        r'config\.vocabulary of "(l|words)" is "words\.txt": TextVectorization reads that file',
    ),
    "vocabulary inside": (
        keras_3("TimeDistributed", {"name": "l", "layer": vocabulary("words.txt")}),
        r'config\.layer\.config\.vocabulary of "words" is "words\.txt": StringLookup reads',
    ),
}


def net(layer):
    """Returns the config of a model of Keras 3 with a layer in it."""
    inputs = keras_3("InputLayer", {"name": "x", "batch_shape": [None, 2], "dtype": "float32"})
    return keras_3("Sequential", {"name": "net", "layers": [inputs, layer]}, "keras")


def old_net(layer):
    """Returns the same as TF 2.6 wrote it, but for that layer."""
    inside = {"name": "x", "batch_input_shape": [None, 2], "dtype": "float32"}
    inputs = {"class_name": "InputLayer", "config": inside}
    return {"class_name": "Sequential", "config": {"name": "net", "layers": [inputs, layer]}}


def hdf5(path, config, version, training=None):
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = version, "tensorflow"
        file.attrs["model_config"] = json.dumps(config)
        if training is not None:
            file.attrs["training_config"] = json.dumps(training)
        file.create_group("model_weights").attrs["layer_names"] = np.zeros(0, "S1")
    return path


def archive(path, config, version):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": version}))
        file.writestr("config.json", json.dumps(config))
        weights = io.BytesIO()
        h5py.File(weights, "w").close()
        file.writestr("model.weights.h5", weights.getvalue())
    return path


def shards(path, config, _version):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.weights.json").write_text('{"weight_map": {}}')
    return path


FILES = {
    "HDF5 of TF 2.6": lambda f, layer: hdf5(f / "m.h5", old_net(layer), "2.6.0"),
    "HDF5 of TF 2.6, in the form of today": lambda f, layer: hdf5(f / "m.h5", net(layer), "2.6.0"),
    "HDF5 of Keras 3": lambda f, layer: hdf5(f / "m.h5", net(layer), "3.9.0"),
    "archive of TF 2.13": lambda f, layer: archive(f / "m.keras", old_net(layer), "2.13.1"),
    "archive of Keras 3": lambda f, layer: archive(f / "m.keras", net(layer), "3.9.0"),
    "archive of no version": lambda f, layer: archive(f / "m.keras", net(layer), None),
    "shards": lambda f, layer: shards(f / "m", net(layer), "3.9.0"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty one, which stays so."""
    (tmp_path / "files").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "files"
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
@pytest.mark.parametrize(("layer", "what"), LAYERS.values(), ids=LAYERS)
def test_layers(folder, file, layer, what):
    path = file(folder, layer)
    with pytest.raises(Unreadable, match=rf"\$\..*{what}.*: {TRUST}") as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_vocabulary_of_keras_2(folder):
    layer = {"name": "words", "dtype": "string", "vocabulary": "/etc/passwd", "vocabulary_size": 9}
    old = {"class_name": "StringLookup", "config": {**layer, **LOOKUP}}
    path = hdf5(folder / "m.h5", old_net(old), "2.6.0")
    with pytest.raises(Unreadable, match=rf'"/etc/passwd": StringLookup reads that file: {TRUST}'):
        load_model(path)


def test_what_is_trusted_is_loaded(folder):
    pytest.importorskip("tensorflow", reason="Keras' lookup layers need it on each backend")
    words = folder / "words.txt"
    words.write_text("a\nb\n")
    lookup = keras_3("StringLookup", {"name": "words", "vocabulary": str(words)})
    inputs = keras_3("InputLayer", {"name": "x", "batch_shape": [None, 1], "dtype": "string"})
    config = keras_3("Sequential", {"name": "net", "layers": [inputs, lookup]}, "keras")
    path = hdf5(folder / "m.h5", config, "2.6.0")
    with pytest.raises(Unreadable, match="reads that file"):
        load_model(path)
    assert load_model(path, safe_mode=False).layers[-1].get_vocabulary() == ["[UNK]", "a", "b"]


DENSE = keras_3("Dense", {"name": "out", "units": 1})
BAD_METRIC = {
    "loss": "mse",
    "metrics": [function("keras.utils", "get_file")],
    "optimizer_config": {"class_name": "SGD", "config": {"name": "SGD", "learning_rate": 0.1}},
}


@pytest.mark.parametrize("version", ["2.6.0", "3.9.0"])
def test_a_training_config(folder, version):
    path = hdf5(folder / "m.h5", net(DENSE), version, BAD_METRIC)
    with pytest.raises(ValueError, match=r"get_file"):
        load_model(path)


def test_a_training_config_of_an_archive(folder):
    compiled = {"optimizer": keras_3("TFSMLayer", LOADER), "loss": "mse"}
    path = archive(folder / "m.keras", net(DENSE) | {"compile_config": compiled}, "3.9.0")
    with pytest.raises(Unreadable, match=rf"\$\.compile_config\.optimizer .*TFSM.*: {TRUST}"):
        load_model(path)


INNER = keras_3("SGD", {"learning_rate": function("keras.utils", "get_file")}, "keras.optimizers")
RATE = r"config\.learning_rate is keras\.utils\.get_file"


def test_the_files_of_the_command(folder):
    model, optimizer = folder / "model.json", folder / "optimizer.json"
    model.write_text(json.dumps(old_net(keras_3("TFSMLayer", LOADER))))
    with pytest.raises(
        Refused,
        match=r'--model: .*json: the model.s config: \$\.config\.layers\[1\] of "l" is a TFSM',
    ):
        building.model_of_config(str(model), None)
    outer = keras_3("LossScaleOptimizer", {"inner_optimizer": INNER}, "keras_mp")
    outer["registered_name"] = "keras_mp>LossScaleOptimizer"
    optimizer.write_text(json.dumps(outer))
    with pytest.raises(Refused, match=rf"--optimizer: .*json: \$\S*{RATE}"):
        building.optimizer_of_config(str(optimizer), None)


WRAPPERS = [keras_mp.LossScaleOptimizer, keras_mp.MasterWeights, keras_mp.StochasticRounding]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_inner_optimizer(wrapper):
    with pytest.raises(deserializing.Dangerous, match=rf"^\$\.{RATE}.*: {TRUST}"):
        wrapper.from_config({"inner_optimizer": INNER})


class Scheduled(keras.optimizers.SGD):
    """Has a function in its config."""

    def __init__(self, function=None, **options):
        super().__init__(0.1, **options)
        self.function = function

    def get_config(self):
        return {"name": self.name, "function": self.function}


def test_inner_optimizers_of_trusted_configs():
    """Keras' own call of `from_config` says nothing of `safe_mode`; what it notes does."""
    function = lambda step: step  # noqa: E731
    with warnings.catch_warnings(action="ignore"):  # that a lambda is unsafe
        given = keras_mp.LossScaleOptimizer(Scheduled(function))
        config = keras.saving.serialize_keras_object(given)
    objects = {"Scheduled": Scheduled}
    with pytest.raises(deserializing.Dangerous, match=r'function of "\w+" is a lambda, which runs'):
        deserializing.deserialized(config, objects)
    made = deserializing.deserialized(config, objects, safe_mode=False)
    assert isinstance(made.inner_optimizer, Scheduled)


@pytest.mark.parametrize(("kind", "name"), [("h5", "m.keras"), ("keras", "m.h5")])
def test_what_is_two_kinds_at_once(folder, kind, name):
    """By its first bytes one, by its name another, with a config for each."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    harmless = folder / f"harmless.{kind}"
    with warnings.catch_warnings(action="ignore"):  # Keras calls HDF5 legacy
        model.save(harmless)
    (folder / name).write_bytes(harmless.read_bytes())
    if kind == "h5":
        with zipfile.ZipFile(folder / name, "a") as file:
            file.writestr("metadata.json", json.dumps({"keras_version": "3.9.0"}))
            file.writestr("config.json", json.dumps(net(LAYERS["TFSMLayer"][0])))
    with pytest.raises(Unreadable, match=r"loads it only by a name that ends in \.(h5|keras)"):
        load_model(folder / name)


def weights_of(path):
    return load_model(path).get_weights()


def saved(folder, kind):
    """Returns a file of this Keras, and the HDF5 file of its weights."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    if kind == "shards":
        (folder / "m").mkdir()
        (folder / "m" / "config.json").write_text(
            json.dumps(keras.saving.serialize_keras_object(model))
        )
        model.save_weights(folder / "m" / "model.weights.json", max_shard_size=1)
        return folder / "m", folder / "m" / "model_00000.weights.h5"
    path = folder / f"m.{kind}"
    with warnings.catch_warnings(action="ignore"):  # Keras calls HDF5 legacy
        model.save(path)
    if kind == "h5":
        return path, path
    with zipfile.ZipFile(path) as file:
        file.extract("model.weights.h5", folder)
    return path, folder / "model.weights.h5"


def external(group, name, other):
    group[name] = h5py.ExternalLink(str(other), "/secret")
    return "is an external link.*, which is not followed"


def soft(group, name, other):
    group[f"{name}_"] = np.ones((2, 1), "float32")
    group[name] = h5py.SoftLink(f"{name}_")
    return "is a soft link.*, which is not followed"


def virtual(group, name, other):
    layout = h5py.VirtualLayout((2, 1), "float32")
    layout[:] = h5py.VirtualSource(str(other), "secret", (2, 1))
    group.create_virtual_dataset(name, layout)
    return "is a virtual dataset.*, which is not read"


def raw(group, name, other):
    group.create_dataset(name, (2, 1), "float32", external=[(str(other), 0, 8)])
    return "is stored in.*, which is not read"


def claim(group, name, other):
    """An array of which nothing is written takes no place in the file."""
    group.create_dataset(name, (1 << 24, 1), "float32", chunks=(1 << 16, 1))
    return "claims 67,108,864 bytes, of which 0 are stored"


@pytest.mark.parametrize("lead", [external, soft, virtual, raw, claim])
@pytest.mark.parametrize("kind", ["h5", "keras", "shards"])
def test_weights_that_are_not_in_the_file(folder, kind, lead):
    with h5py.File(folder / "other.h5", "w") as file:
        file["secret"] = np.ones((2, 1), "float32")
    path, weights = saved(folder, kind)
    kernels = []
    with h5py.File(weights, "r+") as file:
        file.visititems(
            lambda name, one: (
                kernels.append(name) if getattr(one, "shape", None) == (2, 1) else None
            )
        )
        (kernel,) = kernels
        del file[kernel]
        what = lead(file, kernel, folder / "other.h5")
    if kind == "keras":
        with zipfile.ZipFile(path) as old:
            members = {name: old.read(name) for name in old.namelist()}
        with zipfile.ZipFile(path, "w") as new:
            for name, content in members.items():
                new.writestr(name, weights.read_bytes() if weights.name == name else content)
    with pytest.raises(Unreadable, match=f"{kernel}: {what}$"):
        load_model(path)


@pytest.mark.parametrize("kind", ["h5", "keras", "shards"])
def test_what_leads_nowhere_else_is_loaded(folder, kind):
    path, _ = saved(folder, kind)
    assert [weight.shape for weight in weights_of(path)] == [(2, 1), (1,)]


ELSEWHERE = {
    "up": "../other.h5",
    "absolute": "/etc/passwd",
    "down": "below/other.h5",
    "the folder": ".",
    "a number": 3,
}


@pytest.mark.parametrize("name", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("many", [False, True])
def test_shards_elsewhere(folder, name, many):
    path, _ = saved(folder, "shards")
    index = json.loads((path / "model.weights.json").read_text())
    (key, *_) = index["weight_map"]
    index["weight_map"][key] = ["model_00000.weights.h5", name] if many else name
    (path / "model.weights.json").write_text(json.dumps(index))
    with pytest.raises(Unreadable, match=r"weight_map\S* is .*, which is no file of this folder$"):
        load_model(path)


def test_a_shard_that_no_weight_is_in(folder):
    """Keras opens the first, named or not, and 3.10 takes from it what the index leaves out."""
    path, weights = saved(folder, "shards")
    with h5py.File(weights, "r+") as file:
        file["vars/0"] = h5py.ExternalLink("other.h5", "/secret")
    (path / "model.weights.json").write_text('{"weight_map": {}}')
    with pytest.raises(Unreadable, match=r"model_00000\.weights\.h5: vars/0: is an external link"):
        load_model(path)


def test_an_index_of_no_shards(folder):
    path, _ = saved(folder, "shards")
    for text in ("{}", '{"weight_map": []}'):
        (path / "model.weights.json").write_text(text)
        with pytest.raises(Unreadable, match=r"model\.weights\.json: has no weight_map$"):
            load_model(path)
