"""The report of a graph, as a table, as DOT and as a picture; no Keras in it."""

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.figure import Figure

from keras_mp.graph_rewrite import drawing
from keras_mp.graph_rewrite.op_report import Report
from keras_mp.graph_rewrite.painted_graph import Edge, Row


def row(index, layer="", op="matmul", colour="allow", dtype="float16", flops=10, **more):
    known = {"occurrence": 0, "tf_op": "MatMul", "list": "allow", "why": "because"}
    return Row(
        index=index, layer=layer, op=op, colour=colour, dtype=dtype, flops=flops, **known | more
    )


def edge(source, target, cast=None, tensor=None, **more):
    return Edge(
        source if tensor is None else tensor, source, target, "float32", (4, 8), cast, **more
    )


def of(rows, edges, model="model", **more):
    return Report(model, "float16", "tf1.15", True, tuple(rows), tuple(edges), **more)


def small():
    """An input, two ops in float16, a denied softmax, a residual around it, an output."""
    rows = [
        row(0, "block/dense"),
        row(1, "block/dense", "add", flops=2),
        row(2, "block", "softmax", "deny", "float32", flops=3, list="deny", tf_op="Softmax"),
        row(3, "", "add", "unpainted", "float32", flops=5, list="infer", tf_op="AddV2"),
        row(4, "", "not_equal", "unpainted", "int32", flops=7, list=None, tf_op=None),
    ]
    edges = [
        edge(None, 0, "float16", tensor=100),
        edge(0, 1),
        edge(1, 2, "float32"),
        edge(2, 3),
        edge(1, 3, "float32"),
        edge(3, None),
    ]
    return of(rows, edges)


NAMES = st.text(min_size=1, max_size=12)


@st.composite
def graphs(draw):
    """Ops in order, each taking some that came before, an input or something that is not seen."""
    rows, edges = [], []
    for index in range(draw(st.integers(0, 25))):
        layer = "/".join(draw(st.lists(NAMES, max_size=2)))
        colour, dtype = draw(
            st.sampled_from(
                [
                    ("allow", "float16"),
                    ("deny", "float32"),
                    ("unpainted", "float32"),
                    ("unpainted", "int32"),
                ]
            )
        )
        rows.append(row(index, layer, draw(NAMES), colour, dtype))
        for source in draw(st.sets(st.integers(-2, index - 1), max_size=3)):
            cast = draw(st.sampled_from([None, "float16"]))
            if source < 0:
                edges.append(edge(None, index, cast, tensor=1000 + source, unseen=source == -2))
            else:
                edges.append(edge(source, index, cast))
    if rows:
        edges.append(edge(len(rows) - 1, None))
    return of(rows, edges, draw(NAMES))


def test_counts_shares_and_the_summary():
    report = small()
    assert report.counts == {
        "dtype": {"float16": 2, "float32": 2, "int32": 1},
        "colour": {"allow": 2, "deny": 1, "unpainted": 2},
        "list": {"allow": 2, "deny": 1, "infer": 1, "None": 1},
    }
    assert report.low_flops_share == 12 / 20, "the int32 op has no floating point operations"
    assert report.summary == (
        "5 ops: 2 float16, 2 float32, 1 int32; 60.0 % of the floating point operations in float16"
    )
    assert repr(report) == f"<Report of 'model': {report.summary}>"


def test_an_empty_graph_has_no_share():
    report = of([], [])
    assert report.low_flops_share == 0.0
    assert str(report) == "0 ops; 0.0 % of the floating point operations in float16"
    assert drawing.layout(report).places == {}


def test_the_table_is_aligned_and_says_once_what_is_alike():
    rows = [*small().rows, row(5, "block/dense", occurrence=1, flops=20)]
    lines = str(of(rows, [], missed={("", "matmul"): 2})).splitlines()
    assert lines == [
        "layer        op         TF op    list   colour     dtype     flops  why",
        "block/dense  matmul x2  MatMul   allow  allow      float16  63.8 %  because",
        "block/dense  add        MatMul   allow  allow      float16   4.3 %  because",
        "block        softmax    Softmax  deny   deny       float32   6.4 %  because",
        "(model)      add        AddV2    infer  unpainted  float32  10.6 %  because",
        "(model)      not_equal  -        -      unpainted  int32    14.9 %  because",
        "6 ops: 3 float16, 2 float32, 1 int32; 80.0 % of the floating point operations in float16",
        "2 calls of matmul in (model) were not in the plan",
    ]


def test_to_dict_is_json_that_keeps_everything():
    report = of(small().rows, small().edges, missed={("d", "matmul"): 3})
    found = json.loads(json.dumps(report.to_dict()))
    assert [Row(**each) for each in found["rows"]] == list(report.rows)
    edges = [Edge(**each | {"shape": tuple(each["shape"])}) for each in found["edges"]]
    assert edges == list(report.edges)
    assert found["missed"] == [{"layer": "d", "op": "matmul", "calls": 3}]
    assert (found["training"], found["lists"], found["dtype"]) == (True, "tf1.15", "float16")


def test_html_of_a_name_is_escaped():
    assert "<b>" not in of([row(0, "<b>")], [])._repr_html_()


# DOT: the part of its grammar that is used. A string ends at a quote without a backslash.
TOKEN = re.compile(r'\s+|"(?:[^"\\]|\\.)*"|->|[A-Za-z_]\w*|\d+|[{}\[\];,=]', re.DOTALL)


def parsed(text):
    """Returns the nodes with their attributes, the edges, and the clusters by their path."""
    tokens, at = [], 0
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token, f"no token at {text[at : at + 40]!r}"
        at = token.end()
        if not token[0].isspace():
            tokens.append(token[0])
    tokens.reverse()

    def take(expected=None):
        token = tokens.pop()
        assert expected is None or token == expected, (token, expected)
        return token

    def attributes():
        found = {}
        while tokens[-1] == "[" or tokens[-1] == ",":
            take()
            key = take()
            take("=")
            found[key] = take()
        if found:
            take("]")
        return found

    nodes, edges, clusters = {}, [], {}

    def body(path):
        take("{")
        while tokens[-1] != "}":
            name = take()
            if name == "subgraph":
                inside = take()
                body((*path, inside))
                continue
            if tokens[-1] == "->":
                take()
                edges.append((name, take(), attributes()))
            elif name == "graph":
                clusters[path] = attributes()
            elif name not in ("node", "edge"):
                assert name not in nodes, f"{name} twice"
                nodes[name] = {**attributes(), "path": path}
            else:
                attributes()
            take(";")
        take("}")

    take("digraph")
    take()
    body(())
    assert not tokens
    return nodes, edges, clusters


def test_dot_of_a_small_graph():
    nodes, edges, clusters = parsed(small().to_dot())
    assert set(nodes) == {"op0", "op1", "op2", "op3", "op4", "input100", "output3"}
    assert {path[1:] for path in clusters} == {(), ('"cluster_1"',)}
    inner = ('"cluster_0"', '"cluster_1"')
    assert (clusters[inner[:1]]["label"], clusters[inner]["label"]) == ('"block"', '"dense"')
    assert [nodes[f"op{i}"]["path"] for i in range(5)] == [inner, inner, inner[:1], (), ()]
    assert nodes["op0"]["label"] == r'"matmul\nfloat16"'
    assert nodes["op2"]["label"] == r'"softmax\nfloat32, deny"'
    fills = [nodes[f"op{i}"]["fillcolor"] for i in range(5)]
    assert len(set(fills)) == 4
    assert fills[0] == fills[1]
    cast = {(a, b): how["label"] for a, b, how in edges if how.get("style") == "dashed"}
    assert cast == {
        ("input100", "op0"): '"float16"',
        ("op1", "op2"): '"float32"',
        ("op1", "op3"): '"float32"',
    }


@given(graphs())
def test_dot_of_any_graph_is_whole(report):
    nodes, edges, _ = parsed(report.to_dot())
    assert len(edges) == len(report.edges)
    assert {end for a, b, _ in edges for end in (a, b)} <= set(nodes)
    assert {f"op{each.index}" for each in report.rows} <= set(nodes)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param('say "x"', r'"say \"x\""', id="quotes"),
        pytest.param(r"a\N", r'"a\\N"', id="escapes of Graphviz"),
        pytest.param("a\\", r'"a\\"', id="a backslash at the end"),
        pytest.param("a&lt;b", '"a&amp;lt;b"', id="entities"),
        pytest.param("a\nb", r'"a\nb"', id="lines"),
    ],
)
def test_dot_shows_names_as_they_are(name, shown):
    assert drawing.quoted(name) == shown
    _, _, clusters = parsed(of([row(0, name)], []).to_dot())
    assert clusters['"cluster_0"',]["label"] == shown


@settings(deadline=None)
@given(graphs())
def test_every_arrow_points_down_and_nothing_overlaps(report):
    found = drawing.layout(report)
    assert {("op", each.index) for each in report.rows} <= set(found.places)
    for each, way in zip(report.edges, found.ways, strict=True):
        assert (way[0], way[-1]) == drawing.ends(each)
        ranks = [found.places[node][1] for node in way]
        assert ranks == list(range(ranks[0], ranks[0] + len(way))), "one rank a step, downwards"
        assert len(way) > 1
    places = [(node, *place) for node, place in found.places.items()]
    for (a, x, rank), (b, y, other) in combinations(places, 2):
        if rank == other:
            bends = sum(node[0].startswith("bend") for node in (a, b))
            assert abs(x - y) > 1.0 - 0.44 * bends, (a, b)
    assert min((rank for _, _, rank in places), default=0) == 0


def test_a_chain_is_straight():
    rows = [row(i) for i in range(6)]
    places = drawing.layout(of(rows, [edge(i, i + 1) for i in range(5)])).places
    assert {x for x, _ in places.values()} == {places["op", 0][0]}
    assert [places["op", i][1] for i in range(6)] == list(range(6))


def test_a_weight_that_is_reshaped_stands_above_what_takes_it():
    rows = [row(0), row(1), row(2), row(3, op="reshape"), row(4)]
    edges = [edge(0, 1), edge(1, 2), edge(2, 4), edge(3, 4)]
    places = drawing.layout(of(rows, edges)).places
    assert places["op", 3][1] == places["op", 4][1] - 1


def test_the_steps_of_a_loop_stand_below_each_other():
    rows = [row(i) for i in range(6)]
    edges = [edge(a, a + 1) for a in (0, 2, 4)]
    edges += [edge(None, a, tensor=100 + a, unseen=True) for a in (2, 4)]
    places = drawing.layout(of(rows, edges)).places
    ranks = [places["op", i][1] for i in range(6)]
    assert ranks == sorted(set(ranks))


def test_an_input_that_is_an_output():
    report = of([], [edge(None, None, tensor=0)])
    assert [place[1] for place in drawing.layout(report).places.values()] == [0, 1]
    assert parsed(report.to_dot())[1] == [("input0", "output0", {})]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_picture_shows_every_op_with_its_dtype():
    report = small()
    found = texts(report.plot())
    assert [each for each in found if each in ("matmul", "add", "softmax", "not_equal")] == [
        each.op for each in report.rows
    ]
    assert "block/dense · float16" in found
    assert "block · float32, deny" in found
    assert sum(each in ("float16", "float32") for each in found) >= 3 + 2, "casts and the legend"
    assert report.summary in found


def test_the_picture_shows_where_something_unseen_comes_in():
    points = [
        sum(line.get_marker() == "o" for line in of([row(0)], edges).plot().axes[0].lines)
        for edges in ([], [edge(None, 0, tensor=100, unseen=True)])
    ]
    assert points == [1, 2], "one is of the legend"


def test_what_several_ops_take_far_below_is_drawn_as_one_line():
    rows = [row(i) for i in range(5)]
    chain = [edge(i, i + 1) for i in range(4)]
    alone, both = (
        len(of(rows, [*chain, *more]).plot().axes[0].patches)
        for more in ([edge(0, 4)], [edge(0, 4), edge(0, 4, tensor=0, cast="float32")])
    )
    assert both == alone + 1


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_saved_pictures(tmp_path, ending):
    path = tmp_path / f"graph.{ending}"
    small().plot(path)
    first = path.read_bytes()
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert first.startswith(magic)
    small().plot(str(path))
    assert path.read_bytes() == first, "the same report makes the same file"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_picture_goes_where_a_link_points(tmp_path):
    file, link = tmp_path / "graph.png", tmp_path / "link.png"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to(file)
    small().plot(link)
    assert link.is_symlink()
    assert file.read_bytes().startswith(b"\x89PNG")
    assert file.stat().st_mode & 0o777 == 0o640


def test_an_unknown_ending_leaves_the_old_file(tmp_path):
    path = tmp_path / "graph.nonsense"
    path.write_text("old")
    with pytest.raises(ValueError, match="nonsense"):
        small().plot(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_disk_that_fills_leaves_the_old_file(tmp_path, monkeypatch):
    def savefig(self, file, **how):
        Path(file).write_text("half")
        raise OSError("No space left on device")

    monkeypatch.setattr(Figure, "savefig", savefig)
    path = tmp_path / "graph.png"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left"):
        small().plot(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_names_are_no_formulas(tmp_path):
    report = of([row(0, "$a_{", r"\frac"), row(1, "a" * 99)], [])
    report.plot(tmp_path / "graph.png")
    assert "$a_{ · float16" in texts(report.plot())


def test_a_large_graph_is_drawn_at_full_size(tmp_path):
    rows = [row(i, f"layer{i}") for i in range(700)]
    edges = [edge(i, i + 1) for i in range(699)] + [edge(i, i + 9) for i in range(0, 690, 10)]
    path = tmp_path / "graph.png"
    figure = of(rows, edges).plot(path)
    width, height = (int.from_bytes(path.read_bytes()[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == tuple(round(side * figure.dpi) for side in figure.get_size_inches())
    assert 20000 < height <= 30000


def test_without_matplotlib_the_remedy_is_named():
    program = """
import sys
sys.modules["matplotlib"] = None
from keras_mp.graph_rewrite.op_report import Report
report = Report("model", "float16", "tf1.15", True, (), ())
report.to_dot()
try:
    report.plot()
except ImportError as error:
    assert "pip install 'keras-mp[plot]'" in str(error), error
else:
    raise SystemExit("no matplotlib, and no error")
assert "keras" not in sys.modules
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
