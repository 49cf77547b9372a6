"""Model files that are damaged, hostile or of another kind: one clear error, and nothing else."""

import contextlib
import json
import re
import shutil
import sys
import warnings
import zipfile

import h5py
import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from keras_mp.compat.checkpoints import Checkpoint, Unreadable
from keras_mp.compat.checkpoints.checkpoint import VALUE
from keras_mp.compat.errors import LegacyError
from keras_mp.compat.restoring import keras_archives
from keras_mp.compat.restoring.models import NO_STATE, NOTHING, load_model, load_weights
from keras_mp.compat.restoring.plan import RestoreError
from tests import bundles, programs
from tests.backends import on_one
from tests.fixtures import FIXTURES
from tests.fuzzing import FUZZING, examples
from tests.legacy_cases import OWN, Net
from tests.loaded_models import load

H5 = FIXTURES / "tf26" / "nested_sgdm" / "model.h5"
ZIP = FIXTURES / "tf213" / "nested_sgdm" / "model.keras"
SAVED = FIXTURES / "tf22" / "mlp_sgd_dynamic" / "saved_model"
OWN_CLASSES = FIXTURES / "tf24" / "subclassed_adam" / "saved_model"


def h5(tmp_path, change, original=H5):
    path = tmp_path / "model.h5"
    shutil.copy(original, path)
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def archive(tmp_path, change, **options):
    """Returns a .keras file whose members {name: bytes} were changed."""
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(ZIP) as old:
        members = {name: old.read(name) for name in old.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", **options) as new:
        for name, content in members.items():
            new.writestr(name, content)
    return path


def replaced(file, name, link):
    del file[name]
    file[name] = link


DENSE = "model_weights/dense_2/dense_2/kernel:0"


def attributes(name, value):
    def change(file):
        group, _, attribute = name.rpartition("/")
        file[group or "/"].attrs[attribute] = value

    return change


def virtual(file):
    layout = h5py.VirtualLayout(file[DENSE].shape, "float32")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "secret", file[DENSE].shape)
    del file[DENSE]
    file.create_virtual_dataset(DENSE, layout)


def outside(file):
    shape = file[DENSE].shape
    del file[DENSE]
    file.create_dataset(DENSE, shape, "float32", external=[("/etc/hostname", 0, 4096)])


def bomb(file):
    del file[DENSE]
    file.create_dataset(DENSE, (1 << 20, 1 << 20), "float32", chunks=(1024, 1024))


def many_names(file):
    attributes = file["model_weights"].attrs
    del attributes["layer_names"]
    for i in range(18):
        attributes[f"layer_names{i}"] = np.zeros(60_000, "S1")


SLOT = "optimizer_weights/cond_1/SGD/score/bias/momentum:0"
WORDS = {"name": "words", "batch_input_shape": [None, 1], "dtype": "string", "vocabulary": ["a"]}
WORDS |= {"invert": False, "mask_token": "", "max_tokens": None, "num_oov_indices": 10**8}
WORDS |= {"oov_token": "[UNK]", "output_mode": "int", "pad_to_max_tokens": False, "sparse": False}
WORDS |= {"encoding": "utf-8", "vocabulary_size": 3}
MANY_UNKNOWN = {
    "class_name": "Sequential",
    "config": {"name": "net", "layers": [{"class_name": "StringLookup", "config": WORDS}]},
}
BAD_H5 = {
    "external link": (
        lambda f: replaced(f, DENSE, h5py.ExternalLink("other.h5", "/x")),
        r'kernel:0: is an external link, to "/x" in the file "other.h5", which is not followed$',
    ),
    "soft link": (
        lambda f: replaced(f, "optimizer_weights", h5py.SoftLink("/model_weights")),
        r'optimizer_weights: is a soft link, to "/model_weights", which is not followed$',
    ),
    "group link": (
        lambda f: replaced(f, "model_weights", h5py.ExternalLink("other.h5", "/")),
        r'model_weights: is an external link, to "/" in the file "other.h5", which is not',
    ),
    "virtual": (virtual, r'is a virtual dataset of "elsewhere.h5", which is not read$'),
    "external storage": (outside, r'kernel:0: is stored in "/etc/hostname", which is not read$'),
    "claims terabytes": (bomb, r"\(1048576, 1048576\) in the file, \(6, 4\) in the model"),
    "no config": (lambda f: f.attrs.__delitem__("model_config"), "holds weights only"),
    "config cut off": (attributes("model_config", '{"a": '), "model_config: is not JSON"),
    "config a list": (attributes("model_config", "[]"), "model_config: is a list, not an object$"),
    "config a number": (attributes("model_config", 3), "attribute model_config: is not text$"),
    "config nested": (
        attributes("model_config", "[" * 30000),
        "model_config: is nested too deeply$",
    ),
    "layers a number": (
        attributes("model_weights/layer_names", 7),
        "model_weights/attribute layer_names: is not a list of names$",
    ),
    "no layers": (
        lambda f: f["model_weights"].attrs.__delitem__("layer_names"),
        "model_weights: has no attribute layer_names$",
    ),
    "layer missing": (lambda f: f.__delitem__("model_weights/dense_2"), "dense_2: is missing$"),
    "weight missing": (lambda f: f.__delitem__(DENSE), "kernel:0: is missing$"),
    "weight of text": (
        lambda f: replaced(f, DENSE, np.full((6, 4), b"x")),
        "kernel:0: has the dtype",
    ),
    "weight of another shape": (
        lambda f: replaced(f, DENSE, np.zeros((4, 6), "float32")),
        r"kernel:0: \(4, 6\) in the file, \(6, 4\) in the model",
    ),
    "upwards": (
        attributes("model_weights/dense_2/weight_names", [b"../../x", b"dense_2/bias:0"]),
        r"\.\./\.\./x: is missing$",
    ),
    "layer an array": (
        lambda f: replaced(f, "model_weights/dense_2", np.zeros(3)),
        "model_weights/dense_2: is not a group$",
    ),
    "weight a group": (
        lambda f: (replaced(f, DENSE, np.zeros(1)), f.pop(DENSE), f.create_group(DENSE)),
        "kernel:0: is not an array$",
    ),
    "config not UTF-8": (
        attributes("model_config", np.bytes_(b"\xff")),
        "attribute model_config: is not UTF-8$",
    ),
    "config deep": (
        attributes("model_config", '{"a":' * 500 + "1" + "}" * 500),
        "model_config: is nested too deeply$",
    ),
    "names without end": (
        many_names,
        "attribute layer_names: has 1080000 names, which is too many$",
    ),
    "slots of nothing": (
        lambda f: replaced(f, SLOT, np.zeros((7, 7), "float32")),
        r"momentum:0: \(7, 7\) in the file, \(2,\) in the model, for score/bias\n",
    ),
    "a slot too many": (
        lambda f: f["optimizer_weights"].attrs.update(
            {"weight_names": [*f["optimizer_weights"].attrs["weight_names"], SLOT[18:]]}
        ),
        f"attribute weight_names: names '{SLOT[18:]}' 2 times: each name belongs to one$",
    ),
    "a layer many times": (
        lambda f: f["model_weights"].attrs.update({"layer_names": [b"score"] * 1000}),
        "attribute layer_names: names 'score' 1000 times: each name belongs to one$",
    ),
    "many unknown words": (
        lambda f: f.attrs.update({"model_config": json.dumps(MANY_UNKNOWN)}),
        "num_oov_indices of 'words' is 100000000, and at most 1048576 are made$",
    ),
    "slot missing": (
        lambda f: f.__delitem__(SLOT),
        "momentum:0: is missing$",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD_H5.values(), ids=BAD_H5)
def test_bad_hdf5(tmp_path, change, message):
    path = h5(tmp_path, change)
    with pytest.raises((Unreadable, RestoreError), match=message) as caught:
        load_model(path)
    assert str(caught.value).startswith(str(path))
    assert not isinstance(caught.value, Unreadable) or "\n" not in str(caught.value)


def test_an_array_whose_bytes_are_damaged(tmp_path):
    """HDF5 has checksums where somebody asked for them."""

    def change(file):
        value = file[DENSE][()]
        del file[DENSE]
        file.create_dataset(DENSE, data=value, chunks=value.shape, fletcher32=True)
        places.append(file[DENSE].id.get_chunk_info(0).byte_offset)

    places = []
    path = h5(tmp_path, change)
    load_model(path)
    with path.open("r+b") as raw:
        raw.seek(places[0])
        raw.write(b"damage")
    with pytest.raises(Unreadable, match=r"kernel:0: Can't .*read data"):
        load_model(path)


def test_an_array_that_claims_more_than_is_there(tmp_path):
    """Of the shape of the weight."""
    rows = (1 << 22) + 1
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file.attrs["layer_names"] = ["out"]
        file.create_group("out").attrs["weight_names"] = ["kernel:0"]
        file.create_dataset("out/kernel:0", (rows, 1), "float32", chunks=(1 << 16, 1))
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="out")
    model = keras.Sequential([keras.Input((rows,)), layer])
    with pytest.raises(
        Unreadable, match=r"out/kernel:0: claims 16,777,220 bytes, of which 0 are stored$"
    ):
        load_weights(tmp_path / "w.h5", model)


def test_what_is_left_over_is_named(tmp_path):
    """A value that nothing takes, and a variable without one, are errors; or told."""

    def change(file):
        names = list(file["model_weights"].attrs["layer_names"])
        names[names.index("dense_2")] = "dense_9"
        file["model_weights"].attrs["layer_names"] = names
        file["model_weights"].move("dense_2", "dense_9")
        file["model_weights"].attrs["layer_names"] = [*names, "more"]
        more = file["model_weights"].create_group("more")
        more.attrs["weight_names"] = ["a"]
        more["a"] = np.zeros(3)

    path = h5(tmp_path, change)
    with pytest.raises(RestoreError) as caught:
        load_model(path, compile=False)
    assert caught.value.unused == ["model_weights/dense_9", "model_weights/more"]
    assert caught.value.missing == ["dense_2/kernel", "dense_2/bias"]
    report = load(path, compile=False, strict=False).report
    assert report.unused == ("model_weights/dense_9", "model_weights/more")


@pytest.mark.parametrize("name", ["dense_2/kernel:0", "dense_2/more:0"])
def test_what_fits_of_an_hdf5_file_is_taken_if_that_is_enough(tmp_path, name):
    """A weight of another shape, and a layer with one more."""

    def change(file):
        group = file["model_weights/dense_2"]
        if name in group:
            del group[name]
        else:
            group.attrs["weight_names"] = [*group.attrs["weight_names"], name]
        group[name] = np.zeros((4, 6), "float32")

    path = h5(tmp_path, change)
    found, whole = load(path, strict=False), load_model(H5)
    assert any("dense_2" in text for text in found.report.unused)
    assert "dense_2/kernel" in found.report.missing
    for ours, theirs in zip(found.model.weights, whole.weights, strict=True):
        if ours.path not in found.report.missing:
            assert np.array_equal(*map(keras.ops.convert_to_numpy, (ours, theirs))), ours.path
    assert int(found.model.optimizer.iterations) == int(whole.optimizer.iterations)


def test_names_cut_into_several_attributes(tmp_path):
    """Keras does so where a list is too long for one."""

    def change(file):
        group = file["model_weights"]
        names = list(group.attrs["layer_names"])
        del group.attrs["layer_names"]
        group.attrs["layer_names0"], group.attrs["layer_names1"] = names[:2], names[2:]

    found, whole = load_model(h5(tmp_path, change)), load_model(H5)
    for one, other in zip(found.get_weights(), whole.get_weights(), strict=True):
        assert np.array_equal(one, other)


BAD_ZIP = {
    "no config": (lambda m: m.pop("config.json"), r"config\.json: is not in this archive"),
    "no weights": (lambda m: m.pop("model.weights.h5"), r"weights\.h5: is not in this archive$"),
    "weights cut off": (
        lambda m: m.update({"model.weights.h5": m["model.weights.h5"][:5000]}),
        r"model\.weights\.h5: cannot be opened as HDF5",
    ),
    "config cut off": (
        lambda m: m.update({"config.json": m["config.json"][:500]}),
        r"config\.json: is not JSON",
    ),
    "metadata no object": (lambda m: m.update({"metadata.json": b"7"}), "is 7, not an object$"),
}


def flipped(name):
    """Returns what flips a byte of a member of an archive, whose checksum then is another."""

    def change(content, archive):
        info = archive.getinfo(name)
        at = info.header_offset + 30 + len(name) + info.file_size // 2
        content[at] ^= 1
        return content

    return change


DAMAGED_ZIP = {
    "cut off": (
        lambda content, _: content[:200],
        "cannot be opened: cut off, or damaged: the table at its end is missing$",
    ),
    "config": (flipped("config.json"), r"config\.json: Bad CRC-32"),
    "weights": (flipped("model.weights.h5"), r"model\.weights\.h5: Bad CRC-32"),
}


@pytest.mark.parametrize(("change", "message"), DAMAGED_ZIP.values(), ids=DAMAGED_ZIP)
def test_a_damaged_archive(tmp_path, change, message):
    path = archive(tmp_path, lambda members: None)
    with zipfile.ZipFile(path) as whole:
        content = change(bytearray(path.read_bytes()), whole)
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=message):
        load_model(path)


def test_a_compressed_archive_without_metadata(tmp_path):
    """Which Keras does not write, and others may."""
    path = archive(tmp_path, lambda m: m.pop("metadata.json"), compression=zipfile.ZIP_DEFLATED)
    found, whole = load_model(path), load_model(ZIP)
    for one, other in zip(found.get_weights(), whole.get_weights(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("change", "message"), BAD_ZIP.values(), ids=BAD_ZIP)
def test_bad_archive(tmp_path, change, message):
    path = archive(tmp_path, change)
    with pytest.raises(Unreadable, match=message) as caught:
        load_model(path)
    assert str(caught.value).startswith(str(path))


def test_members_that_nothing_names_are_not_touched(tmp_path, monkeypatch):
    """Nothing is ever unpacked, so that a name that leads elsewhere leads nowhere."""
    path = archive(tmp_path, lambda m: m.update({"../../evil": b"x", "/evil": b"x"}))
    opened = []
    take = zipfile.ZipFile.open

    def noted(self, name, *more, **options):
        opened.append(getattr(name, "filename", name))
        return take(self, name, *more, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", noted)
    load_model(path)
    assert "config.json" in opened
    assert not [name for name in opened if "evil" in name]


def test_an_archive_that_unpacks_to_much_more_is_refused(tmp_path):
    path = archive(
        tmp_path,
        lambda m: m.update({"config.json": m["config.json"] + b" " * (1 << 24)}),
        compression=zipfile.ZIP_DEFLATED,
    )
    with pytest.raises(
        Unreadable, match=r"config\.json: claims \d+ bytes, more than the archive can hold$"
    ):
        load_model(path)


def test_an_archive_of_another_order_is_refused(tmp_path):
    """A layer with one variable less, and a slot of another shape."""
    for name, message in (
        ("_layer_checkpoint_dependencies/dense_2/vars/1", "dense_2/vars: 1 variables"),
        ("optimizer/vars/3", "optimizer/vars: is not a list of variables"),
    ):

        def change(members, name=name):
            path = tmp_path / "weights.h5"
            path.write_bytes(members["model.weights.h5"])
            with h5py.File(path, "r+") as file:
                del file[name]
            members["model.weights.h5"] = path.read_bytes()

        with pytest.raises((RestoreError, Unreadable), match=message):
            load_model(archive(tmp_path, change))


def weights_changed(tmp_path, change):
    """Returns an archive whose file of weights was changed."""

    def changed(members):
        path = tmp_path / "weights.h5"
        path.write_bytes(members["model.weights.h5"])
        with h5py.File(path, "r+") as file:
            change(file)
        members["model.weights.h5"] = path.read_bytes()

    return archive(tmp_path, changed)


LISTS = "_layer_checkpoint_dependencies"
LAYER = f"{LISTS}/dense_2/vars"
MISFITS = {
    "a variable less": lambda f: f.__delitem__(f"{LAYER}/1"),
    "another shape": lambda f: replaced(f, f"{LAYER}/1", np.zeros(9, "float32")),
    "a slot of another shape": lambda f: replaced(f, "optimizer/vars/2", np.zeros(9, "float32")),
    "two step counts": lambda f: replaced(f, "optimizer/vars/0", np.zeros(2, "int64")),
    "an array beside the layers": lambda f: f.update({"more": np.zeros(1)}),
    "a variable of a list": lambda f: f.update({f"{LISTS}/vars/0": np.zeros(1)}),
    "a layer that has no such part": lambda f: f.update({f"{LISTS}/dense_2/more/x": np.zeros(1)}),
    "a step count that is none": lambda f: replaced(f, "optimizer/vars/0", np.float32(np.nan)),
}


@pytest.mark.parametrize("change", MISFITS.values(), ids=MISFITS)
def test_what_fits_of_an_archive_is_taken_if_that_is_enough(tmp_path, change):
    path = weights_changed(tmp_path, change)
    with pytest.raises(RestoreError) as error:
        load_model(path)
    report = load(path, strict=False).report
    assert report.rows
    assert report.unused == tuple(error.value.unused)
    assert report.missing == tuple(error.value.missing)
    assert len(report.unused) == 1


def test_one_layer_under_two_names_is_taken_once(tmp_path):
    """Whether the group is one, or there are two that hold the same."""

    def change(file):
        layers = file.create_group("layers")
        layers["dense"] = file[f"{LISTS}/dense"]
        file.copy(f"{LISTS}/dense_2", "layers/dense_1")

    found, whole = load_model(weights_changed(tmp_path, change)), load_model(ZIP)
    for one, other in zip(found.get_weights(), whole.get_weights(), strict=True):
        assert np.array_equal(one, other)


def test_an_archive_without_slots(tmp_path):
    """An empty list, and one that is too short."""

    def emptied(file):
        for name in list(file["optimizer/vars"]):
            del file["optimizer/vars"][name]

    def short(file):
        variables = file["optimizer/vars"]
        del variables[max(variables, key=int)]

    found = load(weights_changed(tmp_path, emptied)).report
    assert keras_archives.NO_OPTIMIZER in found.lost
    with pytest.raises(RestoreError, match=r"optimizer/vars/2"):
        load_model(weights_changed(tmp_path, short))


def test_groups_that_are_linked_without_end(tmp_path):
    """Forty groups that nothing takes, each with two names for the next."""

    def change(file):
        group = file.create_group("more")
        for _ in range(40):
            inner = group.create_group("a")
            group["b"] = inner
            group = inner
        group["x"] = np.float32(1)

    with pytest.raises(RestoreError) as error:
        load_model(weights_changed(tmp_path, change))
    assert len(error.value.unused) == 1


def saved_model(tmp_path, name, change, original=SAVED):
    folder = tmp_path / "saved_model"
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(original, folder)
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    return folder


def test_a_saved_model_without_keras_is_refused(tmp_path):
    folder = saved_model(
        tmp_path, "saved_model.pb", lambda b: b.replace(b"_tf_keras_model", b"tf_any_module__")
    )
    with pytest.raises(Unreadable, match="holds no Keras model, only graphs"):
        load_model(folder)


def test_a_saved_model_without_variables_is_refused(tmp_path):
    folder = saved_model(tmp_path, "saved_model.pb", lambda b: b)
    shutil.rmtree(folder / "variables")
    with pytest.raises(Unreadable, match="variables"):
        load_model(folder)


def test_a_saved_model_has_its_own_variables(tmp_path):
    """Whatever checkpoint lies beside it, and whichever way it is named."""
    folder = saved_model(tmp_path, "saved_model.pb", lambda b: b)
    (folder / "checkpoint").write_text('model_checkpoint_path: "other"\n')
    bundles.write_objects(folder / "other", {"layer_with_weights-0": {}})
    expected = load_model(SAVED).get_weights()
    for path in (folder, folder / "saved_model.pb"):
        model = load_model(path)
        loaded = [model.get_weights()]
        model.set_weights([np.zeros_like(weight) for weight in expected])
        load_weights(path, model)
        loaded.append(model.get_weights())
        for weights in loaded:
            assert all(np.array_equal(a, b) for a, b in zip(weights, expected, strict=True))


def test_a_saved_model_of_several_optimizers(tmp_path):
    folder = saved_model(tmp_path, "saved_model.pb", lambda b: b)
    rows = Checkpoint(SAVED)
    count = {"iter": np.asarray(3)}
    layers = {
        f"layer_with_weights-{i}": {n: rows[f"layer_with_weights-{i}/{n}{VALUE}"] for n in names}
        for i, names in enumerate([("kernel", "bias")] * 3)
    }
    root = layers | {"one": count, "other": count}
    bundles.write_objects(folder / "variables" / "variables", root)
    with pytest.raises(Unreadable, match=r"several optimizers: load it with compile=False"):
        load_model(folder)
    load_model(folder, compile=False)


def test_a_saved_model_without_state_of_the_optimizer(tmp_path):
    folder = saved_model(tmp_path, "saved_model.pb", lambda b: b)
    rows = Checkpoint(SAVED)
    layers = {
        f"layer_with_weights-{i}": {
            n: rows[f"layer_with_weights-{i}/{n}{VALUE}"] for n in ("kernel", "bias")
        }
        for i in range(3)
    }
    bundles.write_objects(folder / "variables" / "variables", layers)
    assert NO_STATE in load(folder).report.lost
    bundles.write(folder / "variables" / "variables", {"kernel": np.zeros(2, "float32")})
    with pytest.raises(Unreadable, match="has no object graph: it was not saved from a model"):
        load_model(folder)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
def test_a_saved_model_that_does_not_say_with_what_it_is_called(tmp_path):
    def change(content):
        for name in (b"save_spec", b"build_input_shape", b"serving_default"):
            content = content.replace(name, b"x" * len(name))
        return content

    folder = saved_model(tmp_path, "saved_model.pb", change, OWN_CLASSES)
    with pytest.raises(
        Unreadable, match="does not say what inputs Net takes: build and compile it in code"
    ):
        load_model(folder, OWN)


def test_a_saved_model_that_is_the_config_itself(tmp_path):
    folder = saved_model(
        tmp_path, "saved_model.pb", lambda b: b.replace(b'"model_config"', b'"other_config"')
    )
    found, whole = load_model(folder), load_model(SAVED)
    for one, other in zip(found.get_weights(), whole.get_weights(), strict=True):
        assert np.array_equal(one, other)


class Compiling(Net):
    """Compiles as it likes, and builds no optimizer."""

    def compile_from_config(self, config):
        self.compile(keras.saving.deserialize_keras_object(config["optimizer"]), "mse")


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
def test_a_class_of_ones_own_that_compiles_itself():
    own, whole = (load_model(OWN_CLASSES, OWN | {"Net": cls}) for cls in (Compiling, Net))
    assert int(own.optimizer.iterations) == int(whole.optimizer.iterations) > 0
    for one, other in zip(own.optimizer.variables, whole.optimizer.variables, strict=True):
        assert np.array_equal(*map(keras.ops.convert_to_numpy, (one, other)))


def test_a_class_of_ones_own_must_be_a_model():
    with pytest.raises(Unreadable, match=r"the model's config: describes a Layer, not a model$"):
        load_model(OWN_CLASSES, {"Net": keras.layers.Layer})


def test_a_saved_model_whose_config_is_a_number(tmp_path):
    old = b'"model_config": {"class_name": "Model", "config": {"name": "mlp",'
    new = b'"model_config":{"class_name":"Model","config":5,"c":{"name":"m",'.ljust(len(old))

    def change(content):
        assert old in content
        assert len(new) == len(old)
        return content.replace(old, new)

    with pytest.raises((Unreadable, LegacyError), match=r"config"):
        load_model(saved_model(tmp_path, "saved_model.pb", change))


def test_a_saved_model_that_is_cut_off_is_refused(tmp_path):
    for share in (0, 0.1, 0.5, 0.9):
        folder = saved_model(tmp_path, "saved_model.pb", lambda b, s=share: b[: int(len(b) * s)])
        with pytest.raises(Unreadable, match=r"saved_model\.pb: "):
            load_model(folder)


def test_a_class_of_ones_own_must_be_given():
    with pytest.raises(LegacyError, match=r'^\$\.class_name is "Net": a class of your own: pass'):
        load_model(OWN_CLASSES)


def test_no_module_is_imported_because_a_file_names_it(tmp_path):
    """The config of an archive names the module of a class; importing it would run its code."""
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")

    def change(members):
        config = json.loads(members["config.json"])
        config["config"]["layers"][-1] |= {
            "module": "evil_module",
            "class_name": "Evil",
            "registered_name": "Evil",
        }
        members["config.json"] = json.dumps(config).encode()

    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(LegacyError, match=r'class_name is "Evil": a class of your own'):
            load_model(archive(tmp_path, change))
    finally:
        sys.path.remove(str(tmp_path))
    assert "evil_module" not in sys.modules


@pytest.mark.parametrize("safe_mode", [True, False])
def test_a_lambda_is_never_run(tmp_path, safe_mode):
    def change(file):
        config = json.loads(file.attrs["model_config"])
        code = ["4wEAAAAAAAAAAAAAAAEAAAACAAAAQwAAAA==", None, None]  # ends too early
        inside = {"name": "f", "trainable": True, "dtype": "float32", "function": code}
        inside |= {"function_type": "lambda", "module": "os", "arguments": {}}
        config["config"]["layers"][-1] |= {"class_name": "Lambda", "config": inside}
        file.attrs["model_config"] = json.dumps(config)

    with pytest.raises(LegacyError, match=r"\.config\.function is code that"):
        load_model(h5(tmp_path, change), safe_mode=safe_mode)


def test_weights_of_other_kinds_say_what_is_wrong(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with h5py.File(tmp_path / "none.h5", "w") as file:
        file["x"] = np.zeros(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    for name, message in (
        ("config.json", "is a config without weights"),
        ("none.h5", NOTHING),
    ):
        with pytest.raises(Unreadable, match=re.escape(message)):
            load_weights(tmp_path / name, model)
    with pytest.raises(ValueError, match="has no weights yet: build it, or call it once, first"):
        load_weights(tmp_path / "none.h5", keras.Sequential([keras.layers.Dense(2)]))


def test_other_kinds_say_what_to_do(tmp_path):
    bundles.write_objects(tmp_path / "ckpt", {"a": np.zeros(1, "float32")})
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("hello")
    for name, message in (
        ("config.json", "is a config without weights"),
        ("nothing.h5", "there is no such file"),
        ("notes.txt", "is not a checkpoint"),
        ("ckpt", "is a checkpoint, which has no model: build the model"),
    ):
        with pytest.raises(Unreadable, match=message):
            load_model(tmp_path / name)


def test_what_keras_3_wrote_is_loaded_by_keras(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    for name in ("model.keras", "model.h5"):
        with warnings.catch_warnings(action="ignore"):  # Keras calls HDF5 legacy
            model.save(tmp_path / name)
        found = load(tmp_path / name)
        assert np.array_equal(found.model.get_weights()[0], model.get_weights()[0])
        assert found.report.notes[0].startswith(f"Keras {keras.__version__} wrote it")


CLAIMS = {
    "units": (lambda: keras.layers.Dense(77), 3 * 10**9),
    "output_shape": (lambda: keras.layers.EinsumDense("ab,bc->ac", 77), 3 * 10**9),
    "filters": (lambda: keras.layers.Conv1D(77, 3, data_format="channels_last"), 3 * 10**9),
    "input_dim": (lambda: keras.layers.Embedding(77, 2), 3 * 10**9),
    "num_oov_indices": (
        lambda: keras.layers.IntegerLookup(vocabulary=[1], num_oov_indices=77),
        10**8,
    ),
}


@pytest.mark.parametrize("key", CLAIMS)
def test_a_size_that_a_file_of_keras_3_claims_and_has_not(tmp_path, key):
    if key == "num_oov_indices":
        pytest.importorskip("tensorflow", reason="Keras' lookup layers need it on each backend")
    make, claimed = CLAIMS[key]
    shape, dtype = ((4, 3), "float32") if key == "filters" else ((4,), "int64")
    layers = [keras.Input(shape, dtype=dtype), make()]
    keras.Sequential(layers).save(tmp_path / "plain.keras")
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(tmp_path / "plain.keras") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data.replace(b"77", b"%d" % claimed) if "config" in name else data)
    with pytest.raises(Unreadable, match=f"too small to hold it|{key} of '.*' is {claimed}"):
        load_model(path)


class Evil(keras.layers.Layer):
    def get_config(self):
        return {"class_name": "TorchModuleWrapper", "config": {}}


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.parametrize("layer", ["a Lambda", "another class"])
def test_code_that_keras_3_wrote_is_run_only_if_asked_for(tmp_path, name, layer):
    """Keras 3.10 runs that of HDF5 files whatever safe_mode is."""
    code = Evil() if layer == "another class" else keras.layers.Lambda(lambda x: x + 1.0)
    model = keras.Sequential([keras.Input((3,)), code])
    with warnings.catch_warnings(action="ignore"):
        model.save(tmp_path / name)
    with pytest.raises(
        Unreadable,
        match="runs code that is in the file: if you trust it, load it in Python with safe_mode=",
    ):
        load_model(tmp_path / name)
    if layer == "a Lambda":
        loaded = load_model(tmp_path / name, safe_mode=False)
        assert np.array_equal(loaded(np.zeros((1, 3))), np.ones((1, 3)))


def test_a_function_of_keras_in_a_lambda_is_no_code(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(keras.ops.relu)])
    with warnings.catch_warnings(action="ignore"):
        model.save(tmp_path / "model.h5")
    load_model(tmp_path / "model.h5")


def test_weights_of_keras_3_are_left_to_keras(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse")
    model.save_weights(tmp_path / "x.weights.h5")
    with pytest.raises((RestoreError, Unreadable)):
        load_weights(tmp_path / "x.weights.h5", model)


# What is to come of junk, and nothing else.
REFUSALS = (Unreadable, LegacyError, RestoreError)
FUZZ = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=not FUZZING,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3)
    ),
    max_leaves=5,
)


def places(value, path=()):
    """Yields the path of everything inside of JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def refused_or_loaded(path):
    with contextlib.suppress(*REFUSALS):
        load_model(path, OWN)


with h5py.File(H5) as _file:
    CONFIGS = {name: json.loads(_file.attrs[name]) for name in ("model_config", "training_config")}


@FUZZ
@given(st.data())
@on_one
def test_fuzzed_configs_of_hdf5(tmp_path, data):
    name = data.draw(st.sampled_from(sorted(CONFIGS)))
    config = json.loads(json.dumps(CONFIGS[name]))
    put(config, data.draw(st.sampled_from(list(places(config)))), data.draw(json_values))
    refused_or_loaded(h5(tmp_path, attributes(name, json.dumps(config))))


@FUZZ
@given(st.data())
@on_one
def test_fuzzed_attributes_of_hdf5(tmp_path, data):
    name = data.draw(
        st.sampled_from(
            [
                *("model_config", "training_config", "keras_version", "backend"),
                *("model_weights/layer_names", "model_weights/encoder/weight_names"),
                *("model_weights/score/weight_names", "optimizer_weights/weight_names"),
            ]
        )
    )
    words = st.sampled_from(
        ["a", "score", "score/bias:0", "encoder", "..", "", "/", "2.3", "9", "{"]
    )
    values = st.lists(words, min_size=1, max_size=6) | words | st.integers(-9, 9) | st.floats(-9, 9)
    refused_or_loaded(h5(tmp_path, attributes(name, data.draw(values))))


@FUZZ
@given(st.data())
@on_one
def test_fuzzed_configs_of_archives(tmp_path, data):
    def change(members):
        config = json.loads(members["config.json"])
        put(config, data.draw(st.sampled_from(list(places(config)))), data.draw(json_values))
        members["config.json"] = json.dumps(config).encode()

    refused_or_loaded(archive(tmp_path, change))


@FUZZ
@given(st.data())
@on_one
def test_fuzzed_bytes_of_saved_models(tmp_path, data):
    def change(content):
        content = bytearray(content)
        # The JSON of the model is what matters, and a small part of the file.
        start = max(0, content.find(b'{"class_name"') - 200)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content) - 1) | st.integers(start, start + 3000))
            content[min(at, len(content) - 1)] = data.draw(st.integers(0, 255))
        return bytes(content)

    refused_or_loaded(saved_model(tmp_path, "saved_model.pb", change))


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="as on JAX")
def test_tensorflow_is_imported_only_where_it_is_the_backend():
    lines = [
        "import sys",
        "from keras_mp.compat.restoring.models import load_model",
        *(f"load_model({str(path)!r})" for path in (H5, ZIP, SAVED)),
        "sys.exit('tensorflow' in sys.modules)",
    ]
    done = programs.completed("-W", "ignore", "-c", "\n".join(lines), with_all=True)
    # That of TensorFlow checks the probe: it must be able to say yes.
    expected = int(keras.backend.backend() == "tensorflow")
    assert done.returncode == expected, done.stderr[-500:]
