"""Functions of SavedModels as files have them: read whole, or refused by their names."""

import contextlib
import random
from pathlib import Path

import pytest

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.checkpoints.errors import Malformed
from keras_mp.compat.inspecting.functions import functions_of
from keras_mp.compat.saved_graphs import structures, support
from keras_mp.compat.saved_graphs.nodes import Graph, Node
from keras_mp.compat.saved_graphs.programs import ARGUMENT, from_json, program_of
from keras_mp.compat.saved_graphs.reading import SavedGraphs
from keras_mp.compat.saved_graphs.structures import Spec
from tests import graph_recordings


def node(name: str, op: str, *inputs: str) -> Node:
    return Node(name, op, inputs, memoryview(b""))


def graph(*nodes: Node, results: tuple[str, ...], effects: tuple[str, ...] = ()) -> Graph:
    returned = tuple((f"r{i}", source) for i, source in enumerate(results))
    return Graph("f", (("x", "float32"),), returned, effects, {one.name: one for one in nodes})


def test_nodes_stand_behind_what_they_need() -> None:
    program = program_of(
        graph(
            node("sum", "AddV2", "x", "two:y:0"),
            node("two", "Neg", "x", "^first"),
            node("first", "Abs", "x"),
            node("unused", "Exp", "x"),
            node("effect", "NoOp", "^sum"),
            results=("sum:z:0", "x"),
            effects=("effect",),
        )
    )
    assert [step.name for step in program.steps] == ["first", "two", "sum", "effect"]
    assert program.steps[2].inputs == ((ARGUMENT, 0), (1, 0))
    assert program.results == ((2, 0), (ARGUMENT, 0))


def test_results_are_counted_by_their_names() -> None:
    program = program_of(
        graph(
            node("norm", "FusedBatchNormV3", "x"),
            node("parts", "Split", "x"),
            results=("norm:batch_variance:0", "parts:output:3"),
        )
    )
    assert [number for _, number in program.results] == [2, 3]


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("a", "Abs", "a:y:0")], "needs itself"),
        ([node("a", "Abs", "b:y:0"), node("b", "Abs", "^a")], "needs itself"),
        ([node("a", "Abs", "c:y:0")], "there is no such node"),
        ([node("b", "Abs", "x")], "there is no such node"),
        ([node("a", "Abs", "b:y:one"), node("b", "Abs", "x")], "names the result 'one'"),
    ],
)
def test_graphs_that_are_none(nodes: list[Node], why: str) -> None:
    with pytest.raises(Malformed, match=why):
        program_of(graph(*nodes, results=("a:y:0",)))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "it is no program"),
        (
            {"name": "f", "arguments": [], "steps": [{"op": "Abs"}], "results": []},
            "step 0 is none",
        ),
        (
            {"name": "f", "arguments": ["float32"], "steps": [], "results": [[0, 0]]},
            "names no earlier step",
        ),
        (
            {"name": "f", "arguments": ["float32"], "steps": [], "results": [[-1, 1]]},
            "names no earlier step",
        ),
        (
            {
                "name": "f",
                "arguments": [],
                "steps": [
                    {"name": "a", "op": "Const", "inputs": [], "attributes": {"v": {"constant": 0}}}
                ],
                "results": [],
            },
            "there is no constant 0",
        ),
    ],
)
def test_json_that_is_no_program(said: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_json(said, [])


def test_what_a_saved_model_says() -> None:
    graphs = SavedGraphs(graph_recordings.folder("coder"))
    assert graphs.version == "2.15.1"
    assert graphs.signatures.keys() == {"encode", "decode"}
    encode = graphs.signatures["encode"]
    assert encode.inputs == [Spec("x", (None, 4), "float32")]
    assert [spec.shape for spec in encode.outputs] == [(None, 2), (None,)]
    (variable,) = graphs.variables.values()
    assert (variable.shape, variable.dtype, variable.trainable) == ((4, 2), "float32", True)
    assert variable.key is not None
    assert graphs.checkpoint[variable.key].shape == (4, 2)
    assert support.refused(graphs, [encode.name]) == {}


def test_arguments_that_are_no_tensors_are_kept() -> None:
    graphs = SavedGraphs(graph_recordings.folder("normalized"))
    found = graphs.concrete_of(graphs.find("__call__"))
    assert {structures.flat(one.arguments)[-1] for one in found} == {True, False}


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    data = (graph_recordings.folder("branches") / "saved_model.pb").read_bytes()
    path = tmp_path / "saved_model.pb"
    cut = [data[:size] for size in range(1, len(data), len(data) // 40)]
    refused = [name for content in cut if (name := _refused(tmp_path, content)) is not None]
    assert len(refused) > len(cut) * 0.9
    assert set(refused) <= {str(tmp_path), str(path)}
    for place in range(0, len(data), len(data) // 200):
        changed = bytearray(data)
        changed[place] ^= 0x55
        _refused(tmp_path, bytes(changed))


def test_whatever_is_damaged_is_refused(tmp_path: Path) -> None:
    data = (graph_recordings.folder("batch_norm") / "saved_model.pb").read_bytes()
    draw = random.Random(0)
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(draw.choice([1, 2, 8])):
            changed[draw.randrange(len(data))] = draw.randrange(256)
        (tmp_path / "saved_model.pb").write_bytes(changed)
        with contextlib.suppress(Unreadable):
            functions_of(tmp_path)
            dict(SavedGraphs(tmp_path).variables)


def _refused(folder: Path, content: bytes) -> str | None:
    """Returns the file by whose name a SavedModel is refused; None where all of it is read."""
    (folder / "saved_model.pb").write_bytes(content)
    try:
        graphs = SavedGraphs(folder)
        for name in graphs.functions:
            graphs.program(name)
        assert isinstance(graphs.signatures, dict)
    except Unreadable as error:
        return error.file
    return None
