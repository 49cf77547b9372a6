"""Audits of files, before anything of them is read or run: zip archives, HDF5, graphs.

Of an archive it is the list of members; of HDF5 links, arrays that lie elsewhere, sizes and names;
of a SavedModel what its graphs do besides computing.

Source: tensorflow/core/protobuf/meta_graph.proto and framework/{graph,function,node_def}.proto.
"""

import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from keras_mp.compat.checkpoints import wire
from keras_mp.compat.file_formats.hdf5_groups import (
    as_text,
    excess_size,
    lies_elsewhere,
    members,
    stored_where,
    where_to,
)
from keras_mp.compat.inspecting.findings import Finding, Sort

# What nobody needs in an artefact of Keras, and what runs if it is opened.
_PROGRAMS = (
    *(".py", ".pyc", ".pkl", ".pickle", ".joblib", ".dill", ".pt", ".pth"),
    *(".so", ".dll", ".dylib", ".exe", ".sh", ".bat"),
)
_MOST_RATIO, _SMALL = 100, 1 << 20


def of_archive(archive: zipfile.ZipFile) -> Iterator[Finding]:
    """Yields findings in its list of members."""
    members = archive.infolist()
    first = min((member.header_offset for member in members), default=0)
    if first:
        yield Finding("size", "archive", f"begins with {first:,} bytes that are not of a zip file")
    for name, count in Counter(member.filename for member in members).items():
        if count > 1:
            yield Finding(
                "name", name, f"is there {count:,} times: programs differ in which one they use"
            )
    for member in members:
        yield from _of_member(member)


def is_too_large(member: zipfile.ZipInfo) -> bool:
    """Returns whether a member unpacks to more than Keras would ever make of its bytes."""
    return member.file_size > _MOST_RATIO * member.compress_size + _SMALL


def of_name(name: str, where: str) -> Iterator[Finding]:
    """Yields findings in the name of a file of an artefact."""
    if not name.isprintable():
        yield Finding("name", where, f"has characters that are not seen: {name!a}")
    if PurePosixPath(name).suffix.lower() in _PROGRAMS:
        yield Finding("code", where, "is a program or a pickle, by its name")


def _of_member(member: zipfile.ZipInfo) -> Iterator[Finding]:
    name = member.orig_filename
    yield from of_name(name, name)
    parts = PureWindowsPath(name).parts
    if name.startswith(("/", "\\")) or PureWindowsPath(name).drive or ".." in parts:
        yield Finding("path", name, "leads out of the folder that the archive is unpacked to")
    if stat.S_ISLNK(member.external_attr >> 16):
        yield Finding("link", name, "is a symbolic link")
    if is_too_large(member):
        what = f"claims {member.file_size:,} bytes, of which {member.compress_size:,} are stored"
        yield Finding("size", name, what)


# -- HDF5 ----------------------------------------------------------------------------------------

_LISTS = ("layer_names", "weight_names")


def of_hdf5(root: Any, where: str) -> Iterator[Finding]:
    """Yields what is to be looked at in an opened file; a group is gone through once.

    Args:
        root: The `h5py.File`.
        where: What to call it.
    """
    import h5py

    if root.userblock_size:
        what = f"begins with {root.userblock_size:,} bytes that are not of HDF5"
        yield Finding("size", where, what)
    yield from _of_names(root, f"{where}: /")
    for path, link, child in members(root):
        place, name = f"{where}: /{path}", path.rpartition("/")[2]
        if not name.isprintable():
            yield Finding("name", place, f"has characters that are not seen: {name!a}")
        if child is None:
            yield Finding("link", place, where_to(link))
        elif isinstance(child, h5py.Dataset):
            yield from _of_array(child, place)
        elif isinstance(child, h5py.Group):
            yield from _of_names(child, place)


def _of_array(array: Any, where: str) -> Iterator[Finding]:
    if lies_elsewhere(array):
        yield Finding("link", where, stored_where(array))
        return
    if (what := excess_size(array)) is not None:
        yield Finding("size", where, what)


def _of_names(group: Any, where: str) -> Iterator[Finding]:
    """Yields what is odd in the lists by which Keras finds layers and weights."""
    for key in group.attrs:
        if key.rstrip("0123456789") not in _LISTS:
            continue
        names = Counter(np.ravel(group.attrs[key]).tolist())
        name, count = next(iter(names.most_common(1)), ("", 0))
        if count > 1:
            yield Finding("name", where, f"{key} has {as_text(name)!a} {count:,} times")


# -- graphs --------------------------------------------------------------------------------------


def words(text: str) -> frozenset[str]:
    """Returns the words of a table.

    >>> sorted(words("ReadFile WriteFile"))
    ['ReadFile', 'WriteFile']
    """
    return frozenset(text.split())


_PYTHON = ("PyFunc", "PyFuncStateless", "EagerPyFunc")
# Ops that read or write files that the graph names, or that talk to other machines. Every
# SavedModel has SaveV2, MergeV2Checkpoints and RestoreV2: they run when somebody saves it.
_FILES = words("""
    ReadFile WriteFile MatchingFiles WholeFileReader WholeFileReaderV2 TextLineReader
    TextLineReaderV2 TFRecordReader TFRecordReaderV2 FixedLengthRecordReader
    FixedLengthRecordReaderV2 LMDBReader TextLineDataset TFRecordDataset TFRecordDatasetV2
    FixedLengthRecordDataset FixedLengthRecordDatasetV2 SqlDataset CSVDataset CSVDatasetV2
    LMDBDataset ImmutableConst SaveDataset SaveDatasetV2 LoadDataset SnapshotDataset
    SnapshotDatasetV2 CacheDataset CacheDatasetV2 CreateSummaryFileWriter CreateSummaryDbWriter
    DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary RpcClient
    RpcCall RpcServer DataServiceDataset DataServiceDatasetV2 BigQueryReader Save SaveSlices
    WriteRawProtoSummary
""")
_TABLES = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")


def told_op(op: str, *, has_assets: bool = False) -> Iterator[tuple[Sort, str]]:
    """Yields what is to be said of an op of TensorFlow: nothing, where it only computes.

    Args:
        op: Its name.
        has_assets: Whether the SavedModel brings files, which tables are filled from.

    >>> list(told_op("MatMul")), list(told_op("WriteFile"))
    ([], [('path', 'the op WriteFile, which reads or writes what the graph names')])
    """
    if op in _PYTHON:
        yield "code", f"the op {op}, which calls Python"
    elif op in _FILES or (op in _TABLES and not has_assets):
        yield "path", f"the op {op}, which reads or writes what the graph names"


def of_graphs(message: memoryview, where: str) -> Iterator[Finding]:
    """Yields what is to be looked at in a `saved_model.pb`.

    Raises:
        Malformed: It is not one.
    """
    for meta_graph in wire.all_of(message, 2):
        names = (name for one in wire.all_of(meta_graph, 6) for name in wire.all_of(one, 2))
        assets = [wire.text(name) for name in names]
        for name in assets:
            if not name.isprintable() or "/" in name or "\\" in name:
                yield Finding("path", f"{where}: assets", f"the file {name!a}")
        for graph in wire.all_of(meta_graph, 2):
            for function, op in _ops(graph):
                for sort, what in told_op(op, has_assets=bool(assets)):
                    yield Finding(sort, f"{where}: {function}", what)


def _ops(graph: memoryview) -> Iterator[tuple[str, str]]:
    """Yields (function that it is in, op) of all nodes."""
    for node in wire.all_of(graph, 1):
        yield "graph", _op(node)
    for library in wire.all_of(graph, 2):
        for function in wire.all_of(library, 1):
            name = "a function"
            for number, value in wire.fields(function):
                if number == 1:
                    names = wire.all_of(wire.content(value), 1)
                    name = f"function {next((wire.text(one) for one in names), '')}"
                elif number == 3:
                    yield name, _op(wire.content(value))


def _op(node: memoryview) -> str:
    return next((wire.text(one) for one in wire.all_of(node, 2)), "")
