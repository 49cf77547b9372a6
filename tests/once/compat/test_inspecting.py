"""`inspect`: what it says of every recorded artefact, of damaged files and of junk."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.checkpoints.checkpoint import VALUE
from keras_mp.compat.inspecting import Inspection, hdf5, inspect, state_of_optimizers
from keras_mp.migration.cli import main
from tests import bundles, graph_recordings, programs
from tests.counting import growth
from tests.fixtures import FIXTURES
from tests.fuzzing import examples

EDGE = FIXTURES / "edge"

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def artefacts(*names: str) -> list[Any]:
    found = []
    for oracle in sorted(FIXTURES.glob("tf*/*/oracle.json")):
        for name in names:
            for path in sorted(oracle.parent.glob(name)):
                key = path.relative_to(FIXTURES).as_posix()
                found.append(pytest.param(path, id=key))
    return found


def oracle_of(path: Path) -> Any:
    folder = next(p for p in path.parents if (p / "oracle.json").exists())
    return json.loads((folder / "oracle.json").read_text(encoding="utf-8"))


def state_of(path: Path) -> tuple[int, float | None, int | None]:
    """(iterations, dynamic loss scale, counter) as recorded."""
    saved = oracle_of(path)["at_save"]
    scale = saved["loss_scale"]
    if "global_step" in saved:
        saved = saved | {"iterations": saved["global_step"]}
    if not isinstance(scale, dict):
        return (
            saved["iterations"],
            scale if saved["counter"] is not None else None,
            saved["counter"],
        )
    if scale["kind"] != "dynamic":
        return saved["iterations"], None, None
    return saved["iterations"], scale["value"], scale["counter"]


def version_of(path: Path) -> tuple[int, int]:
    major, minor = oracle_of(path)["tf_version"].split(".")[:2]
    return int(major), int(minor)


def includes(guess: str, version: tuple[int, int]) -> bool:
    """Whether "TensorFlow 2.3 to 2.15" includes a version."""
    numbers = [
        tuple(map(int, n.split(".")[:2])) for n in guess.split() if n[0].isdigit() and "." in n
    ]
    if guess.startswith("TensorFlow 1") and " to " not in guess:
        return version[0] == 1
    if " to " in guess:
        return numbers[0] <= version <= numbers[1]
    return version in numbers


CHECKPOINTS = artefacts("*.index", "manager/*.index", "saved_model")


@pytest.mark.parametrize("path", CHECKPOINTS)
def test_state_of_checkpoints(path: Path) -> None:
    found = inspect(path)
    assert found.damage == []
    kind = oracle_of(path)["case"]["loss_scale"]
    (optimizer,) = found.optimizers
    assert (optimizer.iterations, optimizer.loss_scale, optimizer.counter) == state_of(path)
    assert (optimizer.note is None) == (optimizer.loss_scale is not None), kind
    assert includes(found.written_by, version_of(path)), found.written_by


LAYOUTS = artefacts("ckpt.index", "saved_model")


@pytest.mark.parametrize("path", LAYOUTS)
def test_layouts_of_checkpoints(path: Path) -> None:
    version, (optimizer,) = version_of(path), inspect(path).optimizers
    case = oracle_of(path)["case"]
    is_new = path.parent.name.startswith("exp_") or (
        version >= (2, 11) and not path.parent.name.startswith("legacy_")
    )
    is_scaled = case["loss_scale"] is not None
    flat = "flat" if version >= (2, 3) or not is_scaled else "base_optimizer"
    assert optimizer.layout == ("new" if is_new else flat)
    assert set(optimizer.slots) or case["optimizer"]["class"] == "SGD"
    if optimizer.name is not None:
        assert optimizer.name == case["optimizer"]["class"].rpartition(".")[2]


@pytest.mark.parametrize("path", artefacts("*.index"))
def test_tensors_of_checkpoints(path: Path) -> None:
    recorded = oracle_of(path)["artefacts"]
    flavours = {"weights_tf": "tfw", "objects": "object_ckpt"}
    flavour = "saver" if path.stem.startswith("model.ckpt") else flavours.get(path.stem, path.stem)
    rows = {r["key"]: (r["dtype"], r["shape"]) for r in recorded[flavour]["keys"]}
    rows.pop("_CHECKPOINTABLE_OBJECT_GRAPH", None)
    found = inspect(path)
    assert {t.key: (t.dtype, list(t.shape)) for t in found.tensors} == rows
    for tensor in found.tensors:
        if tensor.dtype not in ("string", "bfloat16"):
            count = int(np.prod(tensor.shape, dtype=int))
            assert tensor.size == count * np.dtype(tensor.dtype).itemsize


@pytest.mark.parametrize("path", artefacts("manager"))
def test_save_counters(path: Path, capsys: Capture) -> None:
    found = inspect(path)
    assert found.save_counter == 3
    assert found.kind == "checkpoint"
    assert main(["inspect", str(path)]) == 0
    assert ["save_counter", "3"] in map(str.split, capsys.readouterr().out.splitlines())


MODELS = artefacts("model.h5", "model.keras", "saved_model")


@pytest.mark.parametrize("path", MODELS)
def test_models(path: Path) -> None:
    oracle, found = oracle_of(path), inspect(path)
    assert found.damage == []
    if not found.tensors and found.kind == "h5":
        assert version_of(path) < (2, 0), "only TF 1.15 could not save a model"
        assert found.notes[0].startswith("it holds neither a model nor weights")
        return
    assert found.model is not None
    assert includes(found.written_by, version_of(path)), found.written_by
    model = oracle["model_json"]
    if isinstance(model, dict) and "layers" in model["config"]:
        assert found.model.layers == len(model["config"]["layers"])
        assert found.model.name == model["config"]["name"]
    policy = oracle["case"].get("policy", "mixed_float16")
    name = policy["name"] if isinstance(policy, dict) else policy
    if found.model.layers is not None:
        assert name in found.policies
    (optimizer,) = found.optimizers
    assert optimizer.class_name is not None
    assert optimizer.class_name.rpartition(">")[2] == oracle["inner_class"].rpartition(">")[2]
    if found.kind != "saved_model":
        assert (optimizer.loss_scale, optimizer.counter) == (None, None)
        is_scaled = oracle["case"]["loss_scale"] is not None
        note = str(optimizer.note)
        assert ("neither the current loss scale nor its counter" in note) == is_scaled
        assert optimizer.iterations in (state_of(path)[0], None)
        if optimizer.iterations is None:
            assert "it holds no state of the optimizer" in found.notes


@pytest.mark.parametrize("path", artefacts("weights.h5", "model.weights.h5"))
def test_weights_only(path: Path) -> None:
    found = inspect(path)
    assert (found.kind, found.model, found.damage) == ("h5", None, [])
    assert found.layout.startswith("HDF5, ")
    assert found.tensors
    for optimizer in found.optimizers:
        assert optimizer.iterations == state_of(path)[0]


@pytest.mark.parametrize("path", artefacts("ckpt.index", "ckpt_net.index", "model.ckpt*.index"))
def test_what_is_no_state_of_an_optimizer_is_the_model(path: Path) -> None:
    oracle, state = oracle_of(path), state_of_optimizers(path)
    rest = [tensor for tensor in inspect(path).tensors if tensor.key not in state]
    weights = oracle["at_save"].get("weights") or oracle.get("weights")
    weights = weights or {name.partition("/part_")[0] for name in oracle["trainable_names"]}
    others = {f"{name}{VALUE}" for name in ("save_counter", "step", "meta/best")}
    assert len([t for t in rest if t.key not in others]) == len(weights)


# -- damage ---------------------------------------------------------------------------------------

DAMAGED = json.loads((EDGE / "damage.json").read_text())["bundles"]


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_checkpoints(name: str, capsys: Capture) -> None:
    expected = DAMAGED[name]["what_tf_says"]
    assert main(["inspect", str(EDGE / name)]) == 2
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert all(line.startswith("keras-mp: ") and "error: " in line for line in lines)
    if any(row.get("open") for row in expected):
        assert out == ""
        assert len(lines) == 1
        assert str(EDGE / name) in lines[0]
        return
    keys = {row["key"] for row in expected}
    assert {key for key in keys for line in lines if f": {key}: " in line} == keys
    assert len(lines) == len(keys)
    assert all(f"{EDGE / name}.data-" in line for line in lines)
    assert f"{len(keys)} keys" in out


def test_a_damaged_graph_is_damage(tmp_path: Path, capsys: Capture) -> None:
    """Also where a folder has the name of the checkpoint: that is not what was asked for."""
    bundles.write(tmp_path / "both", {bundles.GRAPH: b"\xff", "a": np.ones(2, "float32")})
    (tmp_path / "both").mkdir()
    assert main(["inspect", str(tmp_path / "both.index")]) == 2
    out, err = capsys.readouterr()
    assert "both.data-00000-of-00001: _CHECKPOINTABLE_OBJECT_GRAPH: ends within a number\n" in err
    assert "nothing says which tensor is which" in out


@pytest.mark.parametrize(
    "name", ["dtypes", "dtypes_objects", "many", "namebased", "sharded", "single", "sliced"]
)
def test_odd_but_whole_checkpoints(name: str) -> None:
    found = inspect(EDGE / name)
    assert found.damage == []
    expected = json.loads((EDGE / f"{name}.json").read_text())
    count = expected.get("count") or len(expected["tensors"])
    graph = "_CHECKPOINTABLE_OBJECT_GRAPH"
    if any(row["key"] == graph for row in expected.get("tensors", [])):
        count -= 1
    strings = [key for key in expected.get("strings", {}) if key != graph]
    listed = {row["key"] for row in expected.get("tensors", [])}
    assert len(found.tensors) == count + len([key for key in strings if key not in listed])


def test_an_array_under_many_names_is_read_once(tmp_path: Path, monkeypatch: Patch) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        file["array"] = np.ones(3)
        for i in range(20):
            file[f"link{i}"] = file["array"]
    read = []
    check = hdf5._check
    monkeypatch.setattr(hdf5, "_check", lambda *args: (read.append(args), check(*args)))
    found = inspect(path)
    assert len([one for one in found.tensors if one.shape == (3,)]) == 21
    assert len([args for args in read if args[1] == (3,)]) == 1


def test_tensors_that_share_their_bytes(tmp_path: Path) -> None:
    rows = {b"": bundles.HEADER}
    with (tmp_path / "c.data-00000-of-00001").open("wb") as data:
        row = bundles._array(data, np.ones(1000, "float32"))
    rows |= {f"weight{i}".encode(): row for i in range(5)}
    (tmp_path / "c.index").write_bytes(bundles.index_file(rows))
    found = inspect(tmp_path / "c")
    assert [one.key for one in found.damage] == [f"weight{i}" for i in range(2, 5)]
    assert {one.why for one in found.damage} == {
        "those before it have more bytes than there are: not read"
    }


def test_many_optimizers(tmp_path: Path) -> None:
    def prefix(count: int) -> Path:
        optimizer = {"iter": np.array(3, "int64"), "learning_rate": np.array(0.5, "float32")}
        path = tmp_path / f"ckpt{count}"
        bundles.write_objects(path, {f"optimizer{i}": dict(optimizer) for i in range(count)})
        return path

    assert growth(inspect, [prefix(count) for count in (10, 20, 40)]) < 2.15


def test_a_new_optimizer_that_has_no_slots(tmp_path: Path) -> None:
    adam = {"_iterations": np.asarray(0), "_variables": {"0": "adam/_iterations"}}
    bundles.write_objects(tmp_path / "ckpt", {"adam": adam})
    found = inspect(tmp_path / "ckpt")
    assert (found.written_by, found.why) == ("TensorFlow 2.11 to 2.15", "a new optimizer")


def test_a_loss_scale_that_knows_itself(tmp_path: Path) -> None:
    """All below it is state; what is reached twice is gone through once."""
    scale = {"current_loss_scale": np.asarray(8.0, "float32"), "again": "opt/loss_scale"}
    root = {"opt": {"iter": np.asarray(3), "loss_scale": {}}, "w": np.zeros(2, "float32")}
    root["opt"]["loss_scale"] = scale  # type: ignore[index]
    bundles.write_objects(tmp_path / "ckpt", root)
    keys = {f"opt/{name}{VALUE}" for name in ("iter", "loss_scale/current_loss_scale")}
    assert state_of_optimizers(tmp_path / "ckpt") == keys


def an_h5(path: Path, **attributes: str) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs.update(attributes)
        file["model_weights/dense/kernel:0"] = np.ones((3, 2), "float32")
    return path


MODEL = {"class_name": "Sequential", "config": {"name": "net", "layers": []}}


def test_a_truncated_hdf5_file(tmp_path: Path) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Unreadable, match=r"m\.h5: cannot be opened: cut off: \d+ of its \d+ bytes"):
        inspect(path)


def test_a_config_that_is_none(tmp_path: Path) -> None:
    found = inspect(an_h5(tmp_path / "m.h5", model_config="{", keras_version="2.4.0"))
    assert [(d.key, d.why.split(":")[0]) for d in found.damage] == [("model_config", "is not JSON")]
    assert found.model is None
    assert found.written_by == "TensorFlow 2.3 or 2.4"


def test_damage_is_said_once(tmp_path: Path) -> None:
    """The training config tells the optimizer, and the version."""
    path = an_h5(
        tmp_path / "m.h5",
        model_config=json.dumps(MODEL),
        training_config="{",
        keras_version="2.4.0",
    )
    assert [damage.key for damage in inspect(path).damage] == ["training_config"]


def test_what_is_neither_a_group_nor_an_array(tmp_path: Path) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        file["model_weights/dtype"] = np.dtype("float32")
    found = inspect(path)
    assert [t.key for t in found.tensors] == ["model_weights/dense/kernel:0"]
    assert found.damage == []


def test_a_large_array_is_read_in_pieces(tmp_path: Path) -> None:
    """Of 16 MiB, to the last, which is damaged."""
    rows = (1 << 24) + 100
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        large = file.create_dataset("large", (rows,), "uint8", chunks=(1 << 20,), fletcher32=True)
        large[:] = 7
        last = large.id.get_chunk_info(16).byte_offset
    assert inspect(path).damage == []
    with path.open("r+b") as raw:
        raw.seek(last)
        raw.write(b"x")
    assert [damage.key for damage in inspect(path).damage] == ["large"]


def test_links_out_of_an_hdf5_file_are_not_followed(tmp_path: Path) -> None:
    other = an_h5(tmp_path / "other.h5")
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        file["model_weights/stolen"] = h5py.ExternalLink(str(other), "/model_weights")
        file["model_weights/soft"] = h5py.SoftLink("/model_weights/dense")
    found = inspect(path)
    assert [t.key for t in found.tensors] == ["model_weights/dense/kernel:0"]
    external = f'is an external link, to "/model_weights" in the file "{other}"'
    assert [(d.key, d.why) for d in found.damage] == [
        ("model_weights/soft", 'is a soft link, to "/model_weights/dense", which is not followed'),
        ("model_weights/stolen", f"{external}, which is not followed"),
    ]
    assert inspect(path, check=False).damage == found.damage


def in_another_file(root: h5py.File, other: Path) -> str:
    raw = [(str(other), 0, 8)]
    root.create_dataset("optimizer_weights/iter:0", (1,), "int64", external=raw)
    return f'is stored in "{other}", which is not read'


def virtual(root: h5py.File, other: Path) -> str:
    layout = h5py.VirtualLayout((1,), "int64")
    layout[:] = h5py.VirtualSource(str(other), "secret", (1,))
    root.create_virtual_dataset("optimizer_weights/iter:0", layout)
    return f'is a virtual dataset of "{other}", which is not read'


@pytest.mark.parametrize("make", [in_another_file, virtual])
def test_arrays_in_another_file_are_not_read(make: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\x07" + bytes(7))
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        why = make(file, other)
        file["optimizer_weights"].attrs["weight_names"] = ["iter:0"]
    found = inspect(path)
    assert [(d.key, d.why) for d in found.damage] == [("optimizer_weights/iter:0", why)]
    assert found.optimizers == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
def test_no_link_is_opened_to_see_what_is_there(tmp_path: Path) -> None:
    """Whoever opens a FIFO waits for ever."""
    os.mkfifo(tmp_path / "fifo")
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        file["optimizer_weights"] = h5py.ExternalLink(str(tmp_path / "fifo"), "/")
    lines = ["import sys", "from keras_mp.compat.inspecting import inspect"]
    lines += ["from keras_mp.compat.file_formats.hdf5_groups import open_hdf5"]
    lines += ["print(inspect(sys.argv[1]).layout)", "name = 'optimizer_weights'"]
    lines += ["with open_hdf5(sys.argv[1], '') as root: print(name in root, root.is_group(name))"]
    done = programs.completed("-c", "\n".join(lines), path, timeout=60)
    assert done.stdout == "HDF5, model.save\nTrue False\n", done.stderr


def test_groups_that_are_linked_without_end(tmp_path: Path) -> None:
    """Forty groups, each with two names for the next, are 2**40 paths to one array."""
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        group = file.create_group("deep")
        for _ in range(40):
            inner = group.create_group("a")
            group["b"] = inner
            group = inner
        group["x"] = np.float32(1)
        group["top"] = file["/"]
    keys = [tensor.key for tensor in inspect(path).tensors]
    assert keys == ["deep/" + "a/" * 40 + "x", "model_weights/dense/kernel:0"]


def test_keras_without_tensorflow_is_not_keras_3(tmp_path: Path) -> None:
    """Whose optimizers have their slots counted otherwise."""
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL), keras_version="2.2.0")
    with h5py.File(path, "r+") as file:
        file["optimizer_weights/iterations:0"] = np.int64(7)
        file["optimizer_weights/m:0"] = np.zeros(3, "float32")
        file["optimizer_weights"].attrs["weight_names"] = ["iterations:0", "m:0"]
    (optimizer,) = inspect(path).optimizers
    assert (optimizer.iterations, optimizer.slots) == (7, {"by position": 1})


def test_a_version_of_many_digits_is_none(tmp_path: Path) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL), keras_version="9" * 5000 + ".1")
    found = inspect(path)
    assert (found.written_by, found.damage) == ("unknown", [])


def test_a_deep_config_is_damage(tmp_path: Path) -> None:
    path = an_h5(tmp_path / "m.h5", model_config='{"a":' * 800 + "1" + "}" * 800)
    found = inspect(path)
    assert [(d.key, d.why) for d in found.damage] == [("model_config", "is nested too deeply")]


def test_an_array_that_claims_more_than_is_there(tmp_path: Path) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    with h5py.File(path, "r+") as file:
        file.create_dataset("model_weights/huge", (1 << 40,), "float32", chunks=(1 << 20,))
    (damage,) = inspect(path).damage
    assert damage.key == "model_weights/huge"
    assert damage.why == "claims 4,398,046,511,104 bytes, of which 0 are stored"


def a_zip(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


def test_a_flipped_bit_in_an_archive(tmp_path: Path) -> None:
    weights = an_h5(tmp_path / "w.h5").read_bytes()
    members = {"config__json": json.dumps(MODEL).encode(), "metadata__json": b"{}"}
    path = a_zip(tmp_path / "m.keras", **members, model__weights__h5=weights)
    assert inspect(path).damage == []
    content = bytearray(path.read_bytes())
    content[content.index(weights) + len(weights) // 2] ^= 0x10
    path.write_bytes(content)
    found = inspect(path)
    assert [d.key for d in found.damage] == ["model.weights.h5"]
    assert "Bad CRC-32" in found.damage[0].why
    assert found.model is not None


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_compressed_archive(kind: int, tmp_path: Path) -> None:
    """Damage in it is said by the packer, in its own errors, or by none where it just ends."""
    weights = an_h5(tmp_path / "w.h5").read_bytes()
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("config.json", json.dumps(MODEL), zipfile.ZIP_STORED)
        archive.writestr("model.weights.h5", weights)
        info = archive.getinfo("model.weights.h5")
    assert inspect(path).damage == []
    content = path.read_bytes()
    start = info.header_offset + 30 + len(info.filename)
    for at in range(start, start + info.compress_size, 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        assert all(d.key == "model.weights.h5" and d.why for d in inspect(path).damage)


@pytest.mark.parametrize(
    ("size", "where"),
    [
        ((1 << 31), "config.json: unpacks to more than a thousand times its size"),
        ((1 << 28) + 1, "config.json: is larger than 256 MiB"),
    ],
)
def test_a_member_that_claims_to_be_large(
    size: int, where: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", json.dumps(MODEL))
    content = bytearray(path.read_bytes())
    in_directory = content.index(b"PK\1\2") + 24
    content[in_directory : in_directory + 4] = struct.pack("<I", size)
    path.write_bytes(content)
    assert main(["inspect", str(path)]) == 2
    assert where in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("adam", "adam"),
        ({"class_name": "Adam"}, "Adam"),
        ({"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": "adam"}}, "adam in a"),
    ],
)
def test_an_optimizer_without_a_config(
    given: object, said: str, tmp_path: Path, capsys: Capture
) -> None:
    config = MODEL | {"compile_config": {"optimizer": given}}
    weights = an_h5(tmp_path / "w.h5").read_bytes()
    members = {"config__json": json.dumps(config).encode(), "model__weights__h5": weights}
    assert main(["inspect", str(a_zip(tmp_path / "m.keras", **members))]) == 0
    assert re.search(rf"^optimizer +{said}", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("members", "where"),
    [
        ({"other__txt": b""}, "config.json: is not in this archive: Keras did not write it"),
        ({"config__json": b"[]"}, "config.json: is not a JSON object"),
        ({"config__json": b"{}"}, "model.weights.h5: is not in this archive"),
        (
            {"config__json": b"{}", "model__weights__h5": b"no"},
            "model.weights.h5: cannot be opened",
        ),
    ],
)
def test_archives_that_lack_something(
    members: dict[str, bytes], where: str, tmp_path: Path, capsys: Capture
) -> None:
    path = a_zip(tmp_path / "m.keras", **members)
    assert main(["inspect", str(path)]) == 2
    assert where in capsys.readouterr().err


def test_a_saved_model_of_something_else(tmp_path: Path, capsys: Capture) -> None:
    (source,) = artefacts("saved_model")[0].values
    content = (source / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(content.replace(b"_tf_keras_", b"_tf_other_"))
    shutil.copytree(source / "variables", tmp_path / "variables", copy_function=shutil.copyfile)
    assert main(["inspect", str(tmp_path)]) == 0
    assert "note: it holds no Keras model: tf.saved_model.save wrote" in capsys.readouterr().out


def test_a_saved_model_without_its_variables(tmp_path: Path) -> None:
    (source,) = artefacts("saved_model")[0].values
    copy = tmp_path / "saved_model"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    copy.chmod(0o755)
    (copy / "variables").chmod(0o755)
    (copy / "variables" / "variables.index").unlink()
    found = inspect(copy)
    assert [d.why for d in found.damage] == ["there is no such file"]
    assert found.model is not None


def test_the_state_of_a_saved_model_is_its_own(tmp_path: Path) -> None:
    """Whatever checkpoint lies beside it, and whichever way it is named."""
    (source,) = artefacts("saved_model")[0].values
    copy = tmp_path / "saved_model"
    shutil.copytree(source, copy, copy_function=shutil.copyfile)
    copy.chmod(0o755)
    expected = state_of_optimizers(source)
    (copy / "checkpoint").write_text('model_checkpoint_path: "other"\n')
    bundles.write_objects(copy / "other", {"iter": np.asarray(3)})
    assert expected
    for path in (copy, copy / "saved_model.pb"):
        assert state_of_optimizers(path) == expected


SMALL = [artefacts(name)[0] for name in ("model.h5", "model.keras", "saved_model", "ckpt.index")]


@pytest.mark.parametrize("source", SMALL)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_what_a_flipped_byte_did_is_said_in_one_line(
    source: Path, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    if source.is_dir():
        path = folder / "saved_model"
        shutil.copytree(source, path, copy_function=shutil.copyfile)
        for below in (path, *path.rglob("*")):
            below.chmod(0o755)
        file = data.draw(st.sampled_from(sorted(p for p in path.rglob("*") if p.is_file())))
    else:
        for part in source.parent.glob(f"{source.stem}.*"):
            if part.is_file():
                shutil.copyfile(part, folder / part.name)
        path = file = folder / source.name
    content = bytearray(file.read_bytes())
    if content:
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content[: data.draw(st.sampled_from([len(content), at + 1]))])
    try:
        found = inspect(path)
    except Unreadable as error:
        said = [str(error)]
    else:
        said = [str(damage) for damage in found.damage]
    assert all("\n" not in text for text in said)


# -- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*artefacts("model.h5")[:2], *artefacts("model.keras")[:1]])
def test_the_report_for_programs(path: Path, capsys: Capture) -> None:
    assert main(["inspect", "--json", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    assert report == json.loads(json.dumps(inspect(path).to_dict()))
    assert report["size"] == sum(tensor["size"] for tensor in report["tensors"])


def test_the_report_for_programs_is_json_whatever_the_file_says(
    tmp_path: Path, capsys: Capture
) -> None:
    training = '{"optimizer_config": {"class_name": "SGD", "config": {"learning_rate": NaN}}}'
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL), training_config=training)
    assert main(["inspect", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    json.loads(out, parse_constant=pytest.fail)
    assert '"learning_rate": "nan"' in out


def test_the_report_for_people(tmp_path: Path, capsys: Capture) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL), keras_version="2.3.0-tf")
    assert main(["inspect", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        f"path        {path}\n"
        "kind        h5 (HDF5, model.save)\n"
        "written by  TensorFlow 2.2: keras_version is 2.3.0-tf\n"
        "model       Sequential 'net', 0 layers\n"
        "tensors     1, 6 numbers, 24 bytes\n"
        "damage      none\n"
        "note: HDF5 has no checksums: that every array can be read is all that was checked\n"
        "\n"
        "model_weights/dense/kernel:0  float32  [3, 2]  24 bytes\n"
    )


def test_many_tensors_are_cut_off_unless_asked_for(tmp_path: Path, capsys: Capture) -> None:
    path = an_h5(tmp_path / "m.h5")
    with h5py.File(path, "r+") as file:
        for i in range(50):
            file[f"model_weights/{i:02d}"] = np.float32(i)
    assert main(["inspect", str(path)]) == 0
    assert "... and 11 more: --all shows them\n" in capsys.readouterr().out
    assert main(["inspect", "--all", str(path)]) == 0
    assert "model_weights/49" in capsys.readouterr().out


def test_nothing_is_written(tmp_path: Path) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    before = path.read_bytes(), path.stat().st_mtime_ns
    path.chmod(0o400)
    main(["inspect", str(path)])
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.h5"]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("missing.h5", None, "there is no such file"),
        ("text.txt", b"hello", "is not a checkpoint"),
        ("c.json", b'{"class_name": "Foo", "config": {}}', "neither a model, a layer"),
        ("d.json", b"{", "is not JSON"),
        ("empty", b"", "is empty: a download or a copy"),
        ("m.h5", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d", "git lfs pull"),
        ("m.keras", b"\xef\xbb\xbf\n<!DOCTYPE html><html>", "is a web page, and not a model"),
        ("m.h5", b"<HTML lang='en'>", "is a web page, and not a model"),
        ("cut.keras", b"PK\3\4", "cannot be opened: cut off, or damaged"),
    ],
)
def test_what_is_no_artefact(
    name: str, content: bytes | None, why: str, tmp_path: Path, capsys: Capture
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main(["inspect", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert why in err
    assert main(["inspect", "--json", str(tmp_path / name)]) == 2
    assert why in json.loads(capsys.readouterr().out)["error"]


def test_configs(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "optimizer.json"
    adam = {"class_name": "Adam", "config": {"name": "Adam", "learning_rate": 0.5}}
    inside = {"optimizer": adam, "loss_scale": {"class_name": "FixedLossScale", "config": {}}}
    path.write_text(json.dumps({"class_name": "LossScaleOptimizer", "config": inside}))
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "optimizer  Adam in a LossScaleOptimizer\n  config   learning_rate=0.5\n" in out


def test_a_config_that_is_too_large(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "large.json"
    path.write_text("{")
    os.truncate(path, (1 << 26) + 1)
    assert main(["inspect", str(path)]) == 2
    assert capsys.readouterr().err.endswith("large.json: is larger than 64 MiB\n")


def test_a_config_says_who_wrote_it(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(MODEL | {"keras_version": "2.16.0"}))
    assert main(["inspect", str(path)]) == 0
    assert "written by  tf_keras 2.16.0: keras_version is 2.16.0\n" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    path = an_h5(tmp_path / "m.h5", model_config=json.dumps(MODEL))
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.h5")
    path.rename(odd)
    command = [sys.executable, "-m", "keras_mp.migration", "inspect", odd]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"caf\udce9.h5" in done.stdout


PROBE = """
import sys
from keras_mp.migration.cli import main
code = main(["inspect", sys.argv[1]])
heavy = {"keras", "jax", "torch", "tensorflow", sys.argv[2]}
sys.exit(code or 3 * bool(heavy & sys.modules.keys()))
"""


@pytest.mark.parametrize(("name", "loaded"), [("rich", 0), ("numpy", 3)])
@pytest.mark.parametrize(
    "path",
    [s[0] for s in map(artefacts, ("ckpt.index", "model.h5", "model.keras", "saved_model")) if s],
)
def test_needs_neither_keras_nor_a_framework(path: Path, name: str, loaded: int) -> None:
    command = [sys.executable, "-c", PROBE, str(path), name]
    assert subprocess.run(command, capture_output=True, check=False).returncode == loaded


def test_functions_of_a_saved_model_are_listed(capsys: Capture) -> None:
    path = graph_recordings.folder("coder")
    found = inspect(path)
    names = [one.name for one in found.functions]
    assert names == ["signatures/encode", "signatures/decode", "decode", "encode"]
    assert found.functions[1].inputs == ["code: float32[None, 2]", "gain: float32[]"]
    assert all(one.nodes > 2 and not one.refused for one in found.functions)
    assert Inspection._from_dict(found.to_dict()).functions == found.functions
    assert main(["inspect", str(path)]) == 0
    assert "signatures/encode(x: float32[None, 4]) -> code: float32" in capsys.readouterr().out


def test_ops_that_cannot_be_evaluated_are_told(tmp_path: Path) -> None:
    content = (graph_recordings.folder("coder") / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(content.replace(b"\x12\x06MatMul", b"\x12\x06PyFunc"))
    found = inspect(tmp_path)
    assert found.functions[0].refused == {"PyFunc": "has no counterpart in keras.ops here"}
    assert "cannot be evaluated: PyFunc (has no counterpart" in str(found)
