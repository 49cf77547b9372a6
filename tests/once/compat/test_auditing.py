"""`audit`: what is in an artefact besides a model, one of each kind; and nothing in honest ones."""

import io
import json
import os
import pickle
import stat
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from keras_mp.compat.inspecting import audit, auditing
from tests import bundles

DENSE = {"class_name": "Dense", "config": {"name": "out", "units": 1}}
DATA = Path(__file__).parents[2] / "data"


def sequential(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "net", "layers": [*layers]}}


def of_config(folder: Path, config: object) -> list[tuple[str, str]]:
    path = folder / "model.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return sorts(path)


def sorts(path: Path) -> list[tuple[str, str]]:
    found = audit(path)
    assert found.errors == []
    return [(one.sort, one.where.rpartition(": ")[2]) for one in found.findings]


def today(name_: str, module_: str, registered: str | None = None, **config: Any) -> dict[str, Any]:
    rest = {"module": module_, "registered_name": registered, "config": config}
    return {"class_name": name_, **rest}


def function(name: str, module: str) -> dict[str, Any]:
    return {"class_name": "function", "config": name, "module": module, "registered_name": name}


PICKLE = "gASVBQAAAAAAAABLAS4="
SUSPECT = {
    "a lambda": ("code", {"class_name": "Lambda", "config": {"function": ["4wEA", None, None]}}),
    "a lambda of Keras 3": ("code", today("__lambda__", "builtins", code="4wEA")),
    "a SavedModel as a layer": ("code", today("TFSMLayer", "keras.layers", filepath="a")),
    "a module of PyTorch": ("code", today("TorchModuleWrapper", "keras.layers", module="x")),
    "a function of Python": ("code", function("eval", "builtins")),
    "a function of Keras": ("code", function("get_file", "keras.utils")),
    "a pickle": ("code", today("Dense", "keras.layers", blob=PICKLE)),
    "a call of Python": ("code", {"class_name": "TFOpLambda", "config": {"function": "py_func"}}),
    "a call that reads": ("code", {"class_name": "TFOpLambda", "config": {"function": "io.glob"}}),
    "an op that writes": (
        "path", {"class_name": "TensorFlowOpLayer", "config": {"node_def": '{"op": "WriteFile"}'}},
    ),
    "a class of somebody": ("class", {"class_name": "Mine", "config": {}}),
    "a class of a package": ("class", today("Dense", "mine", "Mine>Dense")),
    "a class of another module": ("class", today("Dense", "os")),
    "a tool of Keras": ("code", function("Progbar", "keras.utils")),
    "a function of somebody": ("class", function("mine", "builtins")),
    "a vocabulary": ("path", today("StringLookup", "keras.layers", vocabulary="words.txt")),
    "an absolute path": ("path", today("Dense", "keras.layers", note="/etc/passwd")),
    "a path of Windows": ("path", today("Dense", "keras.layers", note="C:\\secrets")),
    "a path upwards": ("path", today("Dense", "keras.layers", note="a/../../b")),
    "an address": ("path", today("Dense", "keras.layers", note="https://example.org/a")),
    "a large layer": ("size", today("Dense", "keras.layers", units=10**9)),
    "a large shape": ("size", today("Reshape", "keras.layers", target_shape=[10**6, 10**6])),
    "a name that clears the screen": ("name", today("Dense", "keras.layers", name="a\x1b[2J")),
    "a name that turns": ("name", today("Dense", "keras.layers", name="a\u202eb")),
    "half of a character": ("name", today("Dense", "keras.layers", name="\ud800")),
    "a Cyrillic letter": ("name", today("D\u0435nse", "keras.layers")),
    "a key that is not seen": ("name", today("Dense", "keras.layers", **{"u\u200bnits": 1})),
    "a key that is there twice": ("name", '{"class_name": "Dense", "class_name": "Lambda"}'),
}  # fmt: skip


@pytest.mark.parametrize(("sort", "layer"), SUSPECT.values(), ids=SUSPECT)
@pytest.mark.parametrize("nested", [False, True])
def test_what_a_config_holds(sort: str, layer: Any, nested: bool, tmp_path: Path) -> None:
    if nested:  # in what nobody knows, too: Keras looks for no more than a class_name
        text = layer if isinstance(layer, str) else json.dumps(layer)
        layer = f'{{"class_name": "Sequential", "config": {{"layers": [[{text}]]}}}}'
    assert sort in [found for found, _ in of_config(tmp_path, layer)]


@pytest.mark.parametrize(
    "layer",
    [
        DENSE,
        today("StringLookup", "keras.layers", vocabulary=["/etc/passwd", "https://a.b", "\x1b"]),
        today("Dense", "keras.layers", activation=function("relu", "keras.activations")),
        today("Dense", "keras.layers", dtype=today("DTypePolicy", "keras", name="mixed_float16")),
        today("LossScaleOptimizer", "keras_mp", "keras_mp>LossScaleOptimizer"),
        today("EinsumDense", "keras.layers", equation="...x,xy->...y", output_shape=[None, 64]),
        today("Adam", "keras.optimizers", learning_rate=1e-3, decay_steps=10**12),
        today("Dense", "keras.layers", name="block/\u00e9tage/dense"),
    ],
)
def test_what_honest_configs_hold(layer: dict[str, Any], tmp_path: Path) -> None:
    assert of_config(tmp_path, sequential(layer)) == []


def test_the_place_is_named(tmp_path: Path) -> None:
    layer = {"class_name": "Lambda", "config": {"function": "mine"}}
    assert of_config(tmp_path, sequential(DENSE, layer)) == [("code", "$.config.layers[1]")]


# -- HDF5 -----------------------------------------------------------------------------------------


def hdf5(path: Path, config: object = None, **options: Any) -> Path:
    with h5py.File(path, "w", **options) as file:
        file.attrs["model_config"] = json.dumps(sequential(DENSE) if config is None else config)
        file.create_group("model_weights").create_dataset("kernel", data=np.ones(3))
    return path


def test_an_honest_hdf5_file(tmp_path: Path) -> None:
    assert sorts(hdf5(tmp_path / "a.h5")) == []


def _soft(file: h5py.File) -> None:
    file["link"] = h5py.SoftLink("/model_weights")


def _external(file: h5py.File) -> None:
    file["link"] = h5py.ExternalLink("/etc/passwd", "/a")


def _virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((3,), "float64")
    layout[:] = h5py.VirtualSource("other.h5", "a", (3,))
    file.create_virtual_dataset("link", layout)


def _stored_elsewhere(file: h5py.File) -> None:
    file.create_dataset("link", (3,), "float64", external=[("other.bin", 0, 24)])


def _claimed(file: h5py.File) -> None:
    file.create_dataset("link", (1 << 30,), "float32", chunks=(1 << 20,))


def _named(file: h5py.File) -> None:
    file["a\x1b[2J"] = 1


def _often(file: h5py.File) -> None:
    file["model_weights"].attrs["layer_names"] = [b"kernel"] * 50


IN_HDF5 = {
    "soft": (_soft, "link"), "external": (_external, "link"), "virtual": (_virtual, "link"),
    "elsewhere": (_stored_elsewhere, "link"), "claimed": (_claimed, "size"),
    "named": (_named, "name"), "often": (_often, "name"),
}  # fmt: skip


@pytest.mark.parametrize(("add", "sort"), IN_HDF5.values(), ids=IN_HDF5)
def test_what_an_hdf5_file_holds(add: Any, sort: str, tmp_path: Path) -> None:
    path = hdf5(tmp_path / "a.h5")
    with h5py.File(path, "a") as file:
        add(file)
    assert [found for found, _ in sorts(path)] == [sort]


def test_bytes_before_the_file(tmp_path: Path) -> None:
    inner = hdf5(tmp_path / "w.h5", userblock_size=512)
    path = archive(tmp_path / "a.keras", ("b.weights.h5", inner.read_bytes()))
    assert sorts(path) == [("size", "b.weights.h5")]


def test_a_damaged_hdf5_file(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\nand nothing else")
    assert audit(path).verdict == "unreadable"


# -- .keras ---------------------------------------------------------------------------------------


def archive(path: Path, *more: tuple[Any, bytes], config: object = None) -> Path:
    weights = io.BytesIO()
    hdf5(weights, config={})  # type: ignore[arg-type]
    members = {
        "metadata.json": json.dumps({"keras_version": "3.15.1", "note": "/home/me/model.h5"}),
        "config.json": json.dumps(sequential(DENSE) if config is None else config),
        "model.weights.h5": weights.getvalue(),
    }
    with zipfile.ZipFile(path, "w") as file:
        for name, data in [*members.items(), *more]:
            file.writestr(name, data)
    return path


def _link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def _packed(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


IN_ARCHIVES = {
    "upwards": (("../a.txt", b""), "path"), "absolute": (("/a", b""), "path"),
    "a link": ((_link("a"), b"/etc/passwd"), "link"), "a pickle": (("a.pkl", b""), "code"),
    "a bomb": ((_packed("a"), b"\0" * (4 << 20)), "size"), "a name": (("a\x1b", b""), "name"),
    "shards": (("model.weights.json", b'{"weight_map": {"/a": "../b.h5"}}'), "path"),
}  # fmt: skip


@pytest.mark.parametrize(("member", "sort"), IN_ARCHIVES.values(), ids=IN_ARCHIVES)
def test_what_an_archive_holds(member: Any, sort: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras", member)
    assert sort in [found for found, _ in sorts(path)]


def test_an_honest_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras", ("assets/words.txt", b"https://a.b"))
    assert (sorts(path), audit(path).status) == ([], 0)


def test_what_its_parts_hold(tmp_path: Path) -> None:
    inner = hdf5(tmp_path / "w.h5")
    with h5py.File(inner, "a") as file:
        _external(file)
    layer = {"class_name": "Mine", "config": {}}
    path = archive(tmp_path / "a.keras", ("more.weights.h5", inner.read_bytes()), config=layer)
    assert sorts(path) == [("class", "$"), ("link", "/link")]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice(tmp_path: Path) -> None:
    evil = json.dumps({"class_name": "Lambda", "config": {}}).encode()
    path = archive(tmp_path / "a.keras", ("config.json", evil))
    assert [sort for sort, _ in sorts(path)] == ["name", "code"]


def test_a_name_that_ends_in_the_middle(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras", ("assets/a?.txt", b""))
    path.write_bytes(path.read_bytes().replace(b"assets/a?", b"assets/a\0"))
    assert [sort for sort, _ in sorts(path)] == ["name"]


def test_bytes_before_an_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras")
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"#!/bin/sh\n" + data)
    assert ("size", "archive") in [(one.sort, one.where) for one in audit(path).findings]


def test_an_archive_that_is_locked(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.keras")
    data = bytearray(path.read_bytes())
    for start, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of each member
        here = data.find(start)
        while here >= 0:
            data[here + at] |= 1
            here = data.find(start, here + 4)
    path.write_bytes(data)
    found = audit(path)
    assert found.status == 2
    assert all("is encrypted: unpack it" in error for error in found.errors)


# -- SavedModels, checkpoints, folders ------------------------------------------------------------


def message(*fields: tuple[int, bytes]) -> bytes:
    return b"".join(bundles.field(number, value) for number, value in fields)


def saved_model(folder: Path, *ops: str, asset: str | None = None, metadata: str = "{}") -> Path:
    (folder / "variables").mkdir(parents=True)
    bundles.write(folder / "variables" / "variables", {"a": np.ones(2, "float32")})
    nodes = [(1, message((1, b"n"), (2, op.encode()))) for op in ops]
    function = message((1, message((1, b"f"))), *((3, node) for _, node in nodes))
    graph = message(*nodes, (2, message((1, function))))
    assets = [] if asset is None else [(6, message((2, asset.encode())))]
    data = message((2, message((2, graph), *assets)))
    (folder / "saved_model.pb").write_bytes(data)
    node = message((3, b"root.layer-0"), (5, metadata.encode()))
    (folder / "keras_metadata.pb").write_bytes(message((1, node)))
    return folder


def test_what_a_saved_model_holds(tmp_path: Path) -> None:
    honest = saved_model(tmp_path / "a", "MatMul", "RestoreV2", "SaveV2", asset="words.txt")
    assert sorts(honest) == []
    assert sorts(saved_model(tmp_path / "b", "MatMul", "WriteFile", "EagerPyFunc")) == [
        ("path", "graph"), ("code", "graph"), ("path", "function f"), ("code", "function f"),
    ]  # fmt: skip
    table = "InitializeTableFromTextFileV2"
    assert sorts(saved_model(tmp_path / "c", table, asset="words.txt")) == []
    assert ("path", "graph") in sorts(saved_model(tmp_path / "d", table))
    assert sorts(saved_model(tmp_path / "e", asset="../../words.txt")) == [("path", "assets")]
    layer = json.dumps({"class_name": "Mine", "config": {}})
    assert sorts(saved_model(tmp_path / "f", metadata=layer)) == [("class", "$")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no FIFOs")
def test_what_is_no_file_in_a_saved_model(tmp_path: Path) -> None:
    folder = saved_model(tmp_path / "a")
    (folder / "keras_metadata.pb").unlink()
    os.mkfifo(folder / "keras_metadata.pb")
    (folder / "assets").symlink_to("/etc")
    assert sorts(folder) == [("link", "assets"), ("link", "keras_metadata.pb")]


def test_a_checkpoint(tmp_path: Path) -> None:
    bundles.write(tmp_path / "ckpt-1", {"a": np.ones(2, "float32")})
    state = tmp_path / "checkpoint"
    state.write_text('model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n')
    assert sorts(tmp_path) == []
    state.write_text('model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "../a"\n')
    assert sorts(tmp_path) == [("path", "all_model_checkpoint_paths")]
    next(tmp_path.glob("*.data-*")).write_bytes(b"")
    assert audit(tmp_path).status == 2


def test_shards(tmp_path: Path) -> None:
    hdf5(tmp_path / "model_00000.weights.h5", config={})
    (tmp_path / "config.json").write_text(json.dumps(sequential(DENSE)))
    index = tmp_path / "model.weights.json"
    index.write_text(json.dumps({"weight_map": {"/a": ["model_00000.weights.h5"]}}))
    assert sorts(tmp_path) == []
    index.write_text(json.dumps({"weight_map": {"/a": ["/tmp/other.h5"]}}))
    assert sorts(tmp_path) == [("path", "$.weight_map")]


def test_a_config_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "_MOST_CONFIG", 10)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DENSE))
    assert audit(path).errors == [f"{path}: cannot be opened: it has more than 10 bytes"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", pickle.dumps(1), b"PK\x03\x04", b'{"a": 1}'])
def test_what_is_no_artefact(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    assert audit(path).verdict == ("nothing found" if data == b'{"a": 1}' else "unreadable")


def test_there_is_no_end_of_findings(tmp_path: Path) -> None:
    layers = [{"class_name": f"Mine{i}", "config": {}} for i in range(3000)]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(sequential(*layers)))
    found = audit(path)
    assert len(found.findings) == 1001
    assert found.findings[-1].what.startswith("and more")


@pytest.mark.parametrize("version", ["tf115", "tf23", "tf210", "tf213"])
def test_honest_artefacts_of_old_tensorflow(version: str) -> None:
    for path in sorted((DATA / "legacy" / version).iterdir()):
        for file in (path / "model.h5", path / "saved_model"):
            if file.exists():
                found = audit(file)
                of = {one.what for one in found.findings}
                own = (
                    "Adam of Custom, which is not Keras",
                    "TriangleLossScale, which is no class of Keras",
                )
                assert of <= set(own), file
