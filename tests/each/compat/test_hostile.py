"""Files that are made to do harm: each ends in one error, in little memory, and nothing is written.

One process does them all by the command, `inspect` and then `migrate`, and says after each how much
memory it has had at most.
"""

import json
import shutil
import struct
import zipfile
import zlib

import h5py
import pytest

from tests import bundles, programs
from tests.backends import on_one
from tests.fixtures import FIXTURES

pytestmark = [on_one, pytest.mark.hostile]
H5 = FIXTURES / "tf26" / "nested_sgdm" / "model.h5"
ZIP = FIXTURES / "tf213" / "nested_sgdm" / "model.keras"
SAVED = FIXTURES / "tf22" / "mlp_sgd_dynamic" / "saved_model"
BILLION = 10**9
DEEP = 100_000
# Of memory, more than the process has that reads a harmless model.
MOST_MORE = 1 << 29

PROGRAM = """
import contextlib, io, json, resource, sys, time
from keras_mp.migration.cli import main

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def run(*arguments):
    out, said, start = io.StringIO(), io.StringIO(), time.monotonic()
    before = peak()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main(arguments)
    taken = time.monotonic() - start
    return {"code": code, "said": said.getvalue(), "more": peak() - before, "seconds": taken}

good, names, out = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
run("migrate", good)
print(json.dumps({
    name: [run("inspect", path), run("migrate", path, "-o", f"{out}/{name}.keras")]
    for name, path in names.items()
}))
"""


def zipped(folder, **changed):
    """Returns an archive with other members; `None` unpacks to 4 GB, of zeros."""
    path = folder / "model.keras"
    with zipfile.ZipFile(ZIP) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            member = changed.get(name.partition(".")[0], old.read(name))
            if member is not None:
                new.writestr(name, member)
                continue
            packer = zlib.compressobj(1, zlib.DEFLATED, -15)
            piece = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)
            body = piece * 255 + packer.flush()
            info = zipfile.ZipInfo(name)
            info.compress_type, info.header_offset = zipfile.ZIP_DEFLATED, new.fp.tell()
            info.compress_size, info.file_size, info.CRC = len(body), 255 << 24, 0
            new.fp.write(info.FileHeader(zip64=True) + body)
            new.filelist.append(info)
            new.NameToInfo[name] = info
            new.start_dir = new.fp.tell()
    return path


def hdf5(folder, change):
    path = folder / "model.h5"
    shutil.copyfile(H5, path)
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def wide(file):
    """Its config asks for a billion units, and an array says that it has them."""
    text = file.attrs["model_config"]
    config = json.loads(text)
    layer = next(c for c in config["config"]["layers"] if c["class_name"] == "Dense")
    layer["config"]["units"] = BILLION
    file.attrs["model_config"] = json.dumps(config)
    name = layer["config"]["name"]
    for weight in file["model_weights"][name].attrs["weight_names"]:
        group = file["model_weights"][name]
        shape = (*group[weight].shape[:-1], BILLION)
        del group[weight]
        group.create_dataset(weight, shape, "float32", chunks=(*shape[:-1], 1 << 20))


def wide_config(file):
    config = json.loads(file.attrs["model_config"])
    next(c for c in config["config"]["layers"] if c["class_name"] == "Dense")["config"]["units"] = (
        BILLION
    )
    file.attrs["model_config"] = json.dumps(config)


def deep_config(file):
    file.attrs["model_config"] = '{"a":' * 5000 + "1" + "}" * 5000  # HDF5 holds 64 KB there


def saved_model(folder, change):
    path = folder / "saved_model"
    shutil.copytree(SAVED, path, copy_function=shutil.copyfile)
    path.chmod(0o755)
    file = path / "saved_model.pb"
    file.write_bytes(change(file.read_bytes()))
    return path


def checkpoint(folder, *, shape=(2,), offset=0, size=8):
    """Returns one with an array that says of itself what is not so."""
    prefix = folder / "ckpt"
    sizes = b"".join(bundles.field(2, bundles.field(1, each)) for each in shape)
    row = bundles.field(1, 1) + bundles.field(2, sizes)
    row += bundles.field(4, offset) + bundles.field(5, size) + bundles.fixed32(6, 0)
    rows = {b"": bundles.HEADER, b"w/.ATTRIBUTES/VARIABLE_VALUE": row}
    (folder / "ckpt.data-00000-of-00001").write_bytes(struct.pack("<2f", 1, 2))
    (folder / "ckpt.index").write_bytes(bundles.index_file(rows))
    return prefix


def state_file(folder, path):
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
    return folder


def text(folder, name, content):
    path = folder / name
    path.write_text(content)
    return path


HOSTILE = {
    "weights that unpack to 4 GB": lambda f: zipped(f, model=None),
    "a config that unpacks to 4 GB": lambda f: zipped(f, config=None),
    "metadata that unpack to 4 GB": lambda f: zipped(f, metadata=None),
    "a deep config in an archive": lambda f: zipped(f, config='{"a":' * DEEP + "1" + "}" * DEEP),
    "a billion units": lambda f: hdf5(f, wide),
    "a billion units in the config": lambda f: hdf5(f, wide_config),
    "a deep config": lambda f: hdf5(f, deep_config),
    "a SavedModel whose config grew": lambda f: saved_model(
        f, lambda b: b.replace(b'{"class_name"', b'{"a":' * DEEP + b'{"class_name"', 1)
    ),
    "an array of a billion": lambda f: checkpoint(f, shape=(BILLION,), size=4 * BILLION),
    "a size that is not that of the shape": lambda f: checkpoint(f, shape=(BILLION, BILLION)),
    "an array beyond the end": lambda f: checkpoint(f, offset=1 << 40),
    "a checkpoint elsewhere": lambda f: state_file(f, "../../../../etc/passwd"),
    "a checkpoint at a root": lambda f: state_file(f, "/etc/passwd"),
    "a deep JSON": lambda f: text(f, "model.json", '{"a":' * DEEP + "1" + "}" * DEEP),
    "a link that goes round": lambda f: (f / "m.h5").symlink_to("m.h5") or f / "m.h5",
    "a device": lambda f: (f / "m.h5").symlink_to("/dev/zero") or f / "m.h5",
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    paths = {}
    for number, (name, make) in enumerate(HOSTILE.items()):
        paths[name] = str(make(tmp_path_factory.mktemp(f"hostile{number}")))
    out = tmp_path_factory.mktemp("out")
    done = programs.completed("-c", PROGRAM, H5, json.dumps(paths), out, timeout=280)
    assert done.returncode == 0, done.stderr
    assert list(out.iterdir()) == []
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(ended, name):
    for found in ended[name]:
        assert "Traceback" not in found["said"]
        assert len(found["said"].splitlines()) <= 3
        assert found["more"] < MOST_MORE
        assert found["seconds"] < 60
    inspected, migrated = ended[name]
    # What only a model would allocate is no damage of the file.
    assert inspected["code"] == (0 if name == "a billion units in the config" else 2)
    assert migrated["code"] == 2
    assert "error: " in migrated["said"]
