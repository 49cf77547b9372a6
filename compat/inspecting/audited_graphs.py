"""Audits the graphs of a SavedModel: what they do besides computing. They are never run.

Source: tensorflow/core/protobuf/meta_graph.proto and framework/{graph,function,node_def}.proto.
"""

from collections.abc import Iterator

from keras_mp.compat.checkpoints import wire
from keras_mp.compat.checkpoints.wire import all_of as _all
from keras_mp.compat.inspecting.findings import Finding, Sort


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
    for meta_graph in _all(message, 2):
        assets = [wire.text(name) for one in _all(meta_graph, 6) for name in _all(one, 2)]
        for name in assets:
            if not name.isprintable() or "/" in name or "\\" in name:
                yield Finding("path", f"{where}: assets", f"the file {name!a}")
        for graph in _all(meta_graph, 2):
            for function, op in _ops(graph):
                for sort, what in told_op(op, has_assets=bool(assets)):
                    yield Finding(sort, f"{where}: {function}", what)


def _ops(graph: memoryview) -> Iterator[tuple[str, str]]:
    """Yields (function that it is in, op) of all nodes."""
    for node in _all(graph, 1):
        yield "graph", _op(node)
    for library in _all(graph, 2):
        for function in _all(library, 1):
            name = "a function"
            for number, value in wire.fields(function):
                if number == 1:
                    names = _all(wire.content(value), 1)
                    name = f"function {next((wire.text(one) for one in names), '')}"
                elif number == 3:
                    yield name, _op(wire.content(value))


def _op(node: memoryview) -> str:
    return next((wire.text(one) for one in _all(node, 2)), "")
