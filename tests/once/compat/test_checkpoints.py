"""The reader of checkpoints against what TensorFlow wrote, what it says of damage, and junk."""

import contextlib
import hashlib
import json
import pickle
import shutil
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.compat.checkpoints import Checkpoint, Unreadable, bundle, crc, slices, table, wire
from keras_mp.compat.checkpoints.bundle import Bundle
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.checkpoints.object_graph import ObjectGraph
from keras_mp.compat.checkpoints.optimizer_nodes import keys_of
from tests import bundles
from tests.bundles import (
    HEADER,
    RESTARTS,
    field,
    fixed32,
    index_file,
    index_of,
    number,
    sealed,
)
from tests.fixtures import FIXTURES, HAS_ALL, oracles
from tests.fuzzing import examples

EDGE = FIXTURES / "edge"


def recorded_bundles():
    for folder, oracle in oracles():
        for name, artefact in oracle["artefacts"].items():
            if "keys" not in artefact:
                continue
            prefix = artefact.get("prefix")
            if prefix is None and "latest" in artefact:
                prefix = f"manager/{artefact['latest']}"
            prefix = FIXTURES / folder / (prefix or "saved_model/variables/variables")
            if Path(f"{prefix}.index").exists():
                yield pytest.param(prefix, artefact["keys"], id=f"{folder}/{name}")


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def assert_tensors(checkpoint, expected):
    for row in expected:
        entry = checkpoint.entry(row["key"])
        assert (entry.dtype, list(entry.shape)) == (row["dtype"], row["shape"])
        array = checkpoint[row["key"]]
        assert list(array.shape) == row["shape"]
        if row["dtype"] != "string":
            assert array.dtype.name == row["dtype"]
            assert digest(array) == row["sha256"]


RECORDED = list(recorded_bundles())


@pytest.mark.parametrize(("prefix", "keys"), RECORDED)
def test_every_tensor_of_what_tensorflow_wrote(prefix, keys):
    found = Bundle(prefix)
    assert sorted(found) == sorted(row["key"] for row in keys)
    assert_tensors(found, keys)


@pytest.mark.skipif(not HAS_ALL, reason="counts the whole set")
def test_all_of_them_were_read():
    assert (len(RECORDED), sum(len(p.values[1]) for p in RECORDED)) == (236, 6005)


@pytest.mark.parametrize(
    "name", ["dtypes", "dtypes_objects", "single", "sharded", "sliced", "namebased"]
)
def test_edges(name):
    expected = json.loads((EDGE / f"{name}.json").read_text())
    found = Bundle(EDGE / name)
    assert_tensors(found, expected["tensors"])
    values = np.load(EDGE / f"{name}.values.npz")
    for row in expected["tensors"]:
        if "npz" in row:
            array = found[row["key"]]
            raw = array.view("uint16") if row["dtype"] == "bfloat16" else array
            np.testing.assert_array_equal(raw, values[row["npz"]])
    for key, row in expected["strings"].items():
        as_hex = np.vectorize(bytes.hex, otypes=[object])(found[key]).tolist()
        assert as_hex == row["hex"]


def test_an_index_of_several_blocks():
    expected = json.loads((EDGE / "many.json").read_text())
    found = Bundle(EDGE / "many")
    keys = list(found)
    assert len(keys) == expected["count"]
    assert (keys[0], keys[-1]) == (expected["first"], expected["last"])
    for i in (0, 1, 7, 1800, 3599):
        assert found[keys[i]].tolist() == ([i, -i] if i % 7 == 0 else i)


def test_tensors_are_read_one_by_one(tmp_path):
    for file in EDGE.glob("single.*"):
        shutil.copy(file, tmp_path)
    (tmp_path / "single.data-00000-of-00001").unlink()
    found = Bundle(tmp_path / "single")
    assert "b/.ATTRIBUTES/VARIABLE_VALUE" in found
    assert found.entry("b/.ATTRIBUTES/VARIABLE_VALUE").shape == (3,)
    with pytest.raises(Unreadable, match=r"no such file, which single\.index needs"):
        _ = found["b/.ATTRIBUTES/VARIABLE_VALUE"]


def test_what_it_gives_is_the_readers_own():
    array = Bundle(EDGE / "single")["b/.ATTRIBUTES/VARIABLE_VALUE"]
    array[0] = 5
    assert Bundle(EDGE / "single")["b/.ATTRIBUTES/VARIABLE_VALUE"][0] != 5


def test_keys_that_are_not_there():
    found = Bundle(EDGE / "sliced")
    for key in ("nothing", "", "\0emb"):
        assert key not in found
        with pytest.raises(KeyError):
            _ = found[key]


DAMAGED = json.loads((EDGE / "damage.json").read_text())["bundles"]


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_found_where_tensorflow_finds_it(name):
    expected = DAMAGED[name]["what_tf_says"]
    if any(row.get("open") for row in expected):
        with pytest.raises(Unreadable) as error:
            Bundle(EDGE / name)
        assert error.value.file == str(EDGE / f"{name}.index")
        assert "\n" not in str(error.value)
        return
    found = Bundle(EDGE / name)
    failed = set()
    for key in found:
        try:
            _ = found[key]
        except Unreadable as error:
            failed.add((error.where, Path(error.file).name.partition(".data-")[0]))
    assert failed == {(row["key"], name) for row in expected}


# -- what TensorFlow does not write, made by hand ------------------------------------------------


def shape_of(*sizes):
    return field(2, b"".join(field(2, field(1, size)) for size in sizes))


def written(folder, rows, data=b""):
    (folder / "made.index").write_bytes(index_file({b"": HEADER} | rows))
    (folder / "made.data-00000-of-00001").write_bytes(data)
    return Bundle(folder / "made")


def entry(data, dtype=1, shape=(), offset=0, size=None, shard=0):
    return (
        field(1, dtype)
        + shape_of(*shape)
        + field(3, shard)
        + field(4, offset)
        + field(5, len(data) if size is None else size)
        + fixed32(6, crc.masked_crc(crc.crc32c(data)))
    )


def test_the_index_writer_of_this_test_is_right(tmp_path):
    data = np.arange(6, dtype="float32").tobytes()
    found = written(tmp_path, {b"a": entry(data, shape=(2, 3))}, data)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_fields_of_a_later_tensorflow_are_passed_over(tmp_path):
    """Of an entry, its shape, one of its sizes, a part and what the part has of a dimension."""
    more, data = field(15, b"more"), np.arange(2, dtype="float32").tobytes()
    shape = field(2, field(2, field(1, 2) + field(2, b"rows")) + field(3, 0))
    part = field(7, more + field(1, field(1, 0) + field(2, 2) + more))
    rows = {
        b"": HEADER + more,
        b"a": field(1, 1) + shape + more + part,
        slices.key("a", ((0, 2),)): entry(data, shape=(2,)) + more,
    }
    assert written(tmp_path, rows, data)["a"].tolist() == [0, 1]


FOUR = np.float32(4).tobytes()
REFUSED = {
    "a dtype that is not read": (entry(FOUR, dtype=20), "a: is of dtype 20"),
    "another size than the shape": (entry(FOUR, shape=(2,)), "takes 8"),
    "a shape without end": (entry(FOUR, shape=(1 << 62, 1 << 62)), "an impossible shape"),
    "a shape without end of nothing": (
        entry(b"", shape=(1 << 62, 1 << 62, 0)),
        "an impossible shape",
    ),
    "more dimensions than NumPy has": (entry(FOUR, shape=(1,) * 33), "an impossible shape"),
    "a negative shape": (entry(FOUR, shape=((1 << 64) - 1,)), "an impossible shape"),
    "too many dimensions": (entry(FOUR, shape=(1,) * 300), "an impossible shape"),
    "an unknown shape": (
        field(1, 1) + field(2, field(3, 1)) + field(5, 4),
        "has no known shape",
    ),
    "beyond the file": (entry(FOUR, offset=1 << 60), "ends after the file"),
    "a data file that cannot be": (entry(FOUR, shard=7), "data file 7 of 1"),
    "another checksum": (
        field(1, 1) + shape_of() + field(5, 4) + fixed32(6, 5),
        "its checksum is",
    ),
    "no strings for a shape": (entry(FOUR, dtype=7, shape=(1 << 40,)), "too few for 1099511627776"),
    "strings of another length": (
        entry(FOUR, dtype=7, shape=()),
        "has 4 bytes, but its strings take 5",
    ),
    "bools of 64": (entry(FOUR[3:], dtype=10, offset=3), "neither 0 nor 1"),
    "a part outside": (
        field(1, 1) + shape_of(4) + field(7, field(1, field(1, 3) + field(2, 9))),
        "lies outside of its shape",
    ),
    "a part that begins within, and has all": (
        field(1, 1) + shape_of(4) + field(7, field(1, field(1, 3))),
        "lies outside of its shape",
    ),
    "strings in parts": (
        field(1, 7) + shape_of(4) + field(7, field(1, field(1, 0) + field(2, 4))),
        "a partitioned tensor of strings",
    ),
    "a part that is missing": (
        field(1, 1) + shape_of(4) + field(7, field(1, field(1, 0) + field(2, 2))),
        "is missing",
    ),
    "junk": (b"\xff\xff\xff", "a: ends within a number"),
}


@pytest.mark.parametrize(("row", "text"), REFUSED.values(), ids=REFUSED)
def test_refuses_a_tensor(row, text, tmp_path):
    found = written(tmp_path, {b"a": row}, FOUR)
    with pytest.raises(Unreadable, match=text) as error:
        _ = found["a"]
    assert "\n" not in str(error.value)


def test_refuses_a_string_whose_length_is_damaged(tmp_path):
    empty = bytes(5)  # its length, and the checksum of that
    found = written(tmp_path, {b"a": entry(empty, dtype=7)}, empty)
    with pytest.raises(Unreadable, match="a: the checksum of its lengths does not match"):
        _ = found["a"]


HEADERS = {
    "big endian": (field(1, 1) + field(2, 1), "big-endian"),
    "no data files": (field(1, 0), "0 data files"),
    "data files without end": (field(1, 1 << 40), "1099511627776 data files"),
}


@pytest.mark.parametrize(("header", "text"), HEADERS.values(), ids=HEADERS)
def test_refuses_a_header(header, text, tmp_path):
    (tmp_path / "made.index").write_bytes(index_file({b"": header}))
    with pytest.raises(Unreadable, match=text):
        Bundle(tmp_path / "made")


def test_refuses_an_index_without_a_header(tmp_path):
    (tmp_path / "made.index").write_bytes(index_file({b"a": b""}))
    with pytest.raises(Unreadable, match="has no header"):
        Bundle(tmp_path / "made")


@pytest.mark.parametrize(("kind", "text"), [(1, "compressed with snappy"), (9, "unknown method 9")])
def test_refuses_compression_by_name(kind, text, tmp_path):
    (tmp_path / "made.index").write_bytes(index_file({b"": HEADER}, kind))
    with pytest.raises(Unreadable, match=text):
        Bundle(tmp_path / "made")


def test_a_small_file_cannot_name_huge_keys(tmp_path):
    """Each key shares 60,000 bytes with the one before it: 20 MB from 80 kB."""
    content = number(0) + number(60000) + number(0) + b"a" * 60000
    for i in range(4000):
        content += number(60000) + number(2) + number(0) + struct.pack(">H", i)
    whole = index_of(sealed(content + RESTARTS))
    with pytest.raises(Malformed, match="its keys take more bytes than a file of its size can"):
        for _ in table.entries(memoryview(whole)):
            pass


def test_a_block_is_named_once(tmp_path):
    """An empty block of 64 kB, which is read and checked each time that it is named."""
    empty = sealed(bytes(1 << 16) + struct.pack("<I", 1 << 14))
    named = number(0) + number(1) + number(6) + b"a" + number(0) + number(len(empty) - 5)
    named = named.ljust(10, b"\0")
    again = number(1) + number(0) + named[2:3] + named[4:]
    second = sealed(named + again * 1000 + RESTARTS)
    footer = number(0) + number(0) + number(len(empty)) + number(len(second) - 5)
    end = footer.ljust(40, b"\0") + struct.pack("<Q", table.MAGIC)
    with pytest.raises(Malformed, match="it names a block more than once"):
        list(table.entries(memoryview(empty + second + end)))


BLOCKS = {
    "no restarts": (b"abc", "a block is too short"),
    "restarts beyond it": (struct.pack("<I", 9), "too short for its restarts"),
    "more than the key before": (number(3) + number(0) * 2 + RESTARTS, "shares more than the one"),
    "an entry that is cut": (number(0) + number(9) * 2 + RESTARTS, "ends within an entry"),
    "a key that is too long": (
        number(0) + number(1 << 17) + number(0) + bytes(1 << 17) + RESTARTS,
        "a key has 131072 bytes",
    ),
    "keys in no order": (2 * (number(0) + number(1) + number(0) + b"k") + RESTARTS, "not in order"),
    "a number without end": (11 * b"\xff" + RESTARTS, "more than ten bytes"),
    "a number that is too large": (9 * b"\xff" + b"\x7f" + RESTARTS, "more than 64 bits"),
}


@pytest.mark.parametrize(("content", "text"), BLOCKS.values(), ids=BLOCKS)
def test_refuses_a_block_whose_checksum_is_right(content, text):
    with pytest.raises(Malformed, match=text):
        list(table.entries(memoryview(index_of(sealed(content)))))


def test_refuses_a_key_that_is_no_text(tmp_path):
    (tmp_path / "made.index").write_bytes(index_file({b"": HEADER, b"\xff": entry(FOUR)}))
    with pytest.raises(Unreadable, match="holds a key that is not UTF-8"):
        Bundle(tmp_path / "made")


def test_refuses_messages_of_other_kinds():
    with pytest.raises(Malformed, match="bytes where a number belongs"):
        wire.integer(memoryview(b"1"))
    with pytest.raises(Malformed, match="a name that is not UTF-8"):
        wire.text(memoryview(b"\xff"))


def test_refuses_a_part_of_another_shape(tmp_path):
    rows = {
        b"a": field(1, 1) + shape_of(2) + field(7, field(1, field(1, 0) + field(2, 2))),
        slices.key("a", ((0, 2),)): entry(FOUR, shape=(1,)),
    }
    with pytest.raises(Unreadable, match=r"its part .* is of shape \(1,\) and dtype float32"):
        _ = written(tmp_path, rows, FOUR)["a"]


def test_parts_are_found_and_joined(tmp_path):
    """A matrix in two parts along its second dimension, with a bias that is whole."""
    whole = np.arange(10, dtype="float32").reshape(2, 5)
    parts = {((0, None), (0, 3)): whole[:, :3], ((0, None), (3, 2)): whole[:, 3:]}
    rows, data = {}, b""
    for part, array in parts.items():
        raw = np.ascontiguousarray(array).tobytes()
        rows[slices.key("w", part)] = entry(raw, shape=array.shape, offset=len(data))
        data += raw
    extents = [
        field(7, b"".join(field(1, part) for part in row))
        for row in ((b"", field(2, 3)), (b"", field(1, 3) + field(2, 2)))
    ]
    rows[b"w"] = field(1, 1) + shape_of(2, 5) + b"".join(extents)
    assert written(tmp_path, rows, data)["w"].tolist() == whole.tolist()
    half = rows | {b"w": field(1, 1) + shape_of(2, 5) + extents[0]}
    with pytest.raises(Unreadable, match="do not cover it"):
        _ = written(tmp_path, half, data)["w"]
    twice = rows | {b"w": field(1, 1) + shape_of(2, 5) + extents[0] * 100_000}
    with pytest.raises(Unreadable, match="names a part of it twice"):
        _ = written(tmp_path, twice, data)["w"]


def rows_of(*parts, size=4, offsets=None):
    """Returns what stores a vector in (start, length), each part after the one before it."""
    rows, at = {b"w": field(1, 1) + shape_of(size)}, 0
    for number_, (start, length) in enumerate(parts):
        rows[b"w"] += field(7, field(1, field(1, start) + field(2, length)))
        raw = bytes(4 * length)
        where = at if offsets is None else offsets[number_]
        rows[slices.key("w", ((start, length),))] = entry(raw, shape=(length,), offset=where)
        at += len(raw)
    return rows


def test_parts_that_overlap_leave_a_gap(tmp_path):
    data = bytes(16)
    assert written(tmp_path, rows_of((0, 2), (2, 2)), data)["w"].tolist() == [0, 0, 0, 0]
    with pytest.raises(Unreadable, match="do not cover it, each place once"):
        _ = written(tmp_path, rows_of((0, 2), (1, 2)), data)["w"]


def test_parts_do_not_share_their_bytes(tmp_path):
    """A short file would claim any memory that way."""
    rows = rows_of((0, 2), (2, 2), offsets=(0, 0))
    with pytest.raises(Unreadable, match="its parts take more bytes than there are"):
        _ = written(tmp_path, rows, bytes(8))["w"]


ORDERED = {  # core/lib/strings/ordered_code_test.cc and format by hand
    0: b"\x80",
    -1: b"\x7f",
    63: b"\xbf",
    64: b"\xc0\x40",
    -64: b"\x40",
    -65: b"\x3f\xbf",
    8191: b"\xdf\xff",
    8192: b"\xe0\x20\x00",
    2**62: b"\xff\xc0\x40\0\0\0\0\0\0\0",
}


@pytest.mark.parametrize(("value", "expected"), ORDERED.items())
def test_numbers_in_order(value, expected):
    assert slices._signed(value) == expected


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_numbers_keep_their_order(a, b):
    assert (slices._signed(a) < slices._signed(b)) == (a < b)


# -- the object graph, and finding the files -----------------------------------------------------


def test_objects_and_slots():
    found = Checkpoint(FIXTURES / "tf23/mlp_rmsprop_plain/ckpt")
    graph = found.graph
    assert graph is not None
    assert dict(graph.paths())["optimizer/loss_scale"] == graph.find("optimizer/loss_scale")
    assert graph.find("optimizer/nothing") is None
    key = graph.key(graph.find("model/layer_with_weights-0/kernel"))
    assert key == "model/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    slot = (
        "model/layer_with_weights-0/kernel/.OPTIMIZER_SLOT/optimizer/rms/.ATTRIBUTES/VARIABLE_VALUE"
    )
    assert (key, "rms", slot) in found.slots
    assert found.save_counter is None
    assert (found.entry(key).dtype, found.entry(key).shape) == ("float32", (6, 8))
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" not in list(found)


def test_names_have_no_objects():
    found = Checkpoint(EDGE / "namebased")
    assert (found.graph, found.slots, len(found)) == (None, [], 3)


def test_a_slot_without_a_value_is_none(tmp_path):
    """And fields of a later TensorFlow are passed over."""
    more = field(15, b"more")
    slot = field(1, 0) + field(2, b"m") + field(3, 1) + more
    nodes = [field(1, field(1, 1) + field(2, b"m") + more) + field(3, slot), b""]
    graph = b"".join(field(1, node) for node in nodes)
    bundles.write(tmp_path / "ckpt", {bundles.GRAPH: graph})
    found = Checkpoint(tmp_path / "ckpt")
    assert found.slots == []
    assert [(one.name, one.node) for one in found.graph.nodes[0].slots] == [("m", 1)]
    assert keys_of(found.graph, 0).all() == set()


def test_an_item_of_a_list_of_slots_without_a_value_is_none(tmp_path):
    root = {"adam": {"_iterations": np.asarray(1), "_momentums": [{}, np.zeros(2, "float32")]}}
    bundles.write_objects(tmp_path / "ckpt", root)
    graph = Checkpoint(tmp_path / "ckpt").graph
    (slot,) = keys_of(graph, graph.find("adam")).slots
    assert slot.position == 1


def test_an_object_graph_of_numbers_is_damage(tmp_path):
    bundles.write(tmp_path / "ckpt", {bundles.GRAPH: np.zeros((), "float32")})
    with pytest.raises(Unreadable, match=r"_CHECKPOINTABLE_OBJECT_GRAPH: is not one string$"):
        Checkpoint(tmp_path / "ckpt")


def test_a_graph_that_names_what_is_not_there():
    node = field(1, field(1, field(1, 7) + field(2, b"child")))
    with pytest.raises(Malformed, match="names the object 7, of 1"):
        ObjectGraph.from_message(node)


def test_objects_nested_without_end():
    """Each names the next, so that all their paths are as long as the square of the file."""
    name = b"a" * 20
    nodes = [field(1, field(1, field(1, i + 1) + field(2, name))) for i in range(10_000)]
    with pytest.raises(Malformed, match="its objects are nested too deeply"):
        ObjectGraph.from_message(b"".join(nodes) + field(1, b""))
    assert len(list(ObjectGraph.from_message(b"".join(nodes[:99]) + field(1, b"")).paths())) == 100


@pytest.fixture
def folder(tmp_path):
    for name in ("ckpt-9", "ckpt-12"):
        for file in EDGE.glob("single.*"):
            if file.suffix != ".json" and "values" not in file.name:
                shutil.copy(file, tmp_path / file.name.replace("single", name))
    return tmp_path


STATES = {
    "relative.pbtxt": "ckpt-12",
    "moved_absolute.pbtxt": "ckpt-12",
}


@pytest.mark.parametrize(("state", "name"), STATES.items())
def test_a_folder_says_its_latest(folder, state, name):
    shutil.copy(EDGE / "state" / state, folder / "checkpoint")
    assert Checkpoint(folder).prefix == str(folder / name)
    assert Checkpoint(folder / "checkpoint").prefix == str(folder / name)


@pytest.mark.parametrize("gone", ["/" + "a" * 300, "/proc/1/root"])
def test_a_state_file_of_another_machine(folder, gone):
    """Its folder has a name that no file can have here, or is closed to most."""
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{gone}/ckpt-12"')
    assert Checkpoint(folder).prefix == str(folder / "ckpt-12")


LEAVING = {
    "up": "../out/ckpt",
    "down and up": "run/../../out/ckpt",
    "absolute": "{}/out/ckpt",
    "the folder": ".",
    "the folder above": "..",
    "the root": "/",
}


@pytest.mark.parametrize("name", LEAVING.values(), ids=LEAVING)
def test_a_state_file_that_leads_out_of_its_folder(name, folder, tmp_path):
    """To a checkpoint that is there."""
    run = tmp_path / "run"
    for prefix in (tmp_path / "out" / "ckpt", tmp_path / "run", tmp_path / ""):
        prefix.parent.mkdir(exist_ok=True)
        for file in folder.glob("ckpt-9.*"):
            shutil.copy(file, f"{prefix}{file.suffix}")
    run.mkdir()
    (run / "checkpoint").write_text(f'model_checkpoint_path: "{name.format(tmp_path)}"')
    with pytest.raises(Unreadable, match="which is outside of its folder, and is not followed"):
        Checkpoint(run)


def test_an_absolute_state_file_of_its_own_folder(folder):
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{folder}/ckpt-12"')
    assert Checkpoint(folder).prefix == str(folder / "ckpt-12")


def test_escapes_in_a_state_file(folder):
    shutil.copy(EDGE / "state" / "escaped.pbtxt", folder / "checkpoint")
    for file in list(folder.glob("ckpt-9.*")):
        file.rename(folder / file.name.replace("ckpt-9", 'modèle "x"-3'))
    assert Checkpoint(folder).prefix == str(folder / 'modèle "x"-3')


BAD_STATES = {
    "garbage.pbtxt": "names no model_checkpoint_path",
    "empty_latest.pbtxt": "its path is empty",
    "with_timestamps.pbtxt": "names ckpt-3, which does not exist",
}


@pytest.mark.parametrize(("state", "text"), BAD_STATES.items())
def test_a_state_file_that_leads_nowhere(folder, state, text):
    shutil.copy(EDGE / "state" / state, folder / "checkpoint")
    with pytest.raises(Unreadable, match=text):
        Checkpoint(folder)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("text", ["\n", " \n", "\t", 'model_checkpoint_path: "'])
def test_a_large_state_file_is_read_in_one_go(folder, text):
    (folder / "checkpoint").write_text(text * (1_000_000 // len(text)))
    with pytest.raises(Unreadable, match=r"names no (model_)?checkpoint|which does not exist"):
        Checkpoint(folder)


def test_a_state_file_that_names_no_text(folder):
    (folder / "checkpoint").write_text(r'model_checkpoint_path: "\377"')
    with pytest.raises(Unreadable, match="names a path that is not UTF-8"):
        Checkpoint(folder)


def test_a_state_file_that_is_not_there(tmp_path):
    with pytest.raises(Unreadable, match=r"checkpoint: cannot be opened: No such file"):
        Checkpoint(tmp_path / "checkpoint")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="has no file that fails to be read")
def test_a_file_that_fails_to_be_read():
    """Memory has nothing at its start."""
    with pytest.raises(Unreadable, match=r"/proc/self/mem: cannot be opened: Input/output error"):
        Checkpoint("/proc/self/mem")


def test_every_way_to_name_it(folder):
    for name in ("ckpt-9", "ckpt-9.index", "ckpt-9.data-00000-of-00001"):
        assert Checkpoint(folder / name).prefix == str(folder / "ckpt-9")
    with pytest.raises(Unreadable, match=r"more than one checkpoint.*ckpt-12, ckpt-9"):
        Checkpoint(folder)
    with pytest.raises(Unreadable, match="there is no such file"):
        Checkpoint(folder / "ckpt-10")
    (folder / "empty").mkdir()
    with pytest.raises(Unreadable, match="no checkpoint in this folder"):
        Checkpoint(folder / "empty")


OTHERS = {
    "an HDF5 file": (b"\x89HDF\r\n\x1a\n", "HDF5"),
    "a zip": (b"PK\3\4", "zip"),
    "text": (b"hello", "no .index file beside it"),
    "nothing": (b"", "no .index file beside it"),
    "version 1": (bytes(40) + struct.pack("<Q", table.MAGIC), "format V1"),
}


@pytest.mark.parametrize(("content", "text"), OTHERS.values(), ids=OTHERS)
def test_other_files_are_named(content, text, tmp_path):
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(Unreadable, match=text):
        Checkpoint(tmp_path / "model")


def test_format_v1_by_its_folder():
    with pytest.raises(Unreadable, match="format V1"):
        Checkpoint(FIXTURES / "tf115/graph_sgd_v1format")


def test_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(Unreadable("file", "key", "why")))
    assert (str(error), error.where) == ("file: key: why", "key")


# -- junk ----------------------------------------------------------------------------------------

SEEDS = [EDGE / "single", EDGE / "sharded", EDGE / "sliced", EDGE / "dtypes"]


def read_all(prefix):
    """Reads everything; returns the bytes of each tensor, and what the graph says of slots."""
    found = Checkpoint(prefix)
    return {key: pickle.dumps(found[key].tolist()) for key in found}, found.slots


WHOLE = {seed: read_all(seed) for seed in SEEDS}


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_flipped_and_cut_files_are_refused_in_one_way(tmp_path_factory, data):
    """Any bytes changed or cut: read as it was, or Unreadable, and no more memory than it takes."""
    seed = data.draw(st.sampled_from(SEEDS))
    files = [
        f for f in seed.parent.glob(f"{seed.name}.*") if "index" in f.suffix or "data-" in f.name
    ]
    folder = tmp_path_factory.mktemp("junk")
    target = data.draw(st.sampled_from([f.name for f in files]))
    total = 0
    for file in files:
        content = bytearray(file.read_bytes())
        if file.name == target and content:
            for _ in range(data.draw(st.integers(0, 4))):
                content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
                    st.integers(0, 255)
                )
            content = content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]
        total += len(content)
        (folder / file.name).write_bytes(content)
    said = ""
    tracemalloc.start()
    try:
        found = read_all(folder / seed.name)
    except Unreadable as error:
        said = str(error)
    else:
        assert found == WHOLE[seed]
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert "\n" not in said
    assert peak < 2 * total + 2**20


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200))
def test_junk_with_right_checksums(tmp_path_factory, junk):
    """The checksums protect from accidents only; here an entry and the graph are anything."""
    folder = tmp_path_factory.mktemp("junk")
    string = number(len(junk))
    lengths = crc.crc32c(struct.pack("<I", len(junk)))
    stored = string + struct.pack("<I", crc.masked_crc(lengths)) + junk
    checksum = crc.masked_crc(crc.crc32c(stored[len(string) :], lengths))
    graph = field(1, 7) + shape_of() + field(5, len(stored)) + fixed32(6, checksum)
    rows = {b"": HEADER, b"_CHECKPOINTABLE_OBJECT_GRAPH": graph, b"a": junk}
    (folder / "made.index").write_bytes(index_file(rows))
    (folder / "made.data-00000-of-00001").write_bytes(stored)
    with contextlib.suppress(Unreadable):
        read_all(folder / "made")


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(min_size=40, max_size=400))
def test_junk_as_an_index(junk):
    """What is inside is behind a checksum, so it is junk a second time with the right one."""
    for whole in (junk + struct.pack("<Q", table.MAGIC), index_of(sealed(junk + RESTARTS))):
        with contextlib.suppress(Malformed):
            assert sum(1 for _ in table.entries(memoryview(whole))) < len(whole)


@given(st.binary(max_size=100))
def test_junk_as_a_message(junk):
    with contextlib.suppress(Malformed):
        assert sum(1 for _ in wire.fields(memoryview(junk))) <= len(junk)


def test_which_dtypes_of_the_table_are_in_no_fixture():
    found = {row["dtype"] for row in json.loads((EDGE / "dtypes.json").read_text())["tensors"]}
    missing = {"uint16", "uint32", "uint64", "complex128"}
    assert set(bundle.DTYPES.values()) == found | missing
