"""The report of a graph: as tables, as HTML, as DOT and as a picture; no Keras in it."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.graph_rewrite import drawing, folding, plotting
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


NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name != "*")


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


def test_an_empty_graph_has_no_share():
    report = of([], [])
    assert report.low_flops_share == 0.0
    assert str(report).splitlines() == ["model: training, tf1.15 lists", report.summary]
    assert report.summary == "0 ops; 0.0 % of the floating point operations in float16"


def test_the_first_page_is_a_table_of_layers():
    rows = [*small().rows, row(5, "block/dense", occurrence=1, flops=20)]
    lines = str(of(rows, small().edges, missed={("", "matmul"): 2})).splitlines()
    assert lines == [
        "model: training, tf1.15 lists",
        "6 ops: 3 float16, 2 float32, 1 int32; 80.0 % of the floating point operations in float16",
        "2 calls of matmul in (model) were not in the plan",
        "",
        "layer            ops  dtype     flops  in float16  casts in   casts out",
        "block/dense        3  float16  68.1 %       100 %  1 float16  1 float32",
        "block (own ops)    1  float32  6.38 %         0 %  1 float32",
        "(model)            2  float32  25.5 %         0 %  1 float32",
    ]


def test_the_table_of_ops_says_once_what_is_alike():
    rows = [*small().rows, row(5, "block/dense", occurrence=1, flops=20)]
    report = of(rows, [], missed={("", "matmul"): 2, ("other", "matmul"): 1})
    lines = str(report.layer("block")).splitlines()
    assert lines == [
        "block of model: training, tf1.15 lists",
        "4 ops: 3 float16, 1 float32; 91.4 % of the floating point operations in float16",
        "",
        "  op         TF op    list   colour  dtype     flops  why",
        "block/dense",
        "  matmul x2  MatMul   allow  allow   float16  85.7 %  because",
        "  add        MatMul   allow  allow   float16  5.71 %  because",
        "block",
        "  softmax    Softmax  deny   deny    float32  8.57 %  because",
    ]
    (last,) = (text for text in str(report.layer("*")).splitlines() if "not in the plan" in text)
    assert last == "2 calls of matmul in (model) were not in the plan"
    assert report.layer("(model)").missed == {("", "matmul"): 2}


def test_updates_of_variables_are_one_line():
    rows = [
        row(0, "bn", "moments", "deny", "float32"),
        row(1, "bn", "multiply", "unpainted", "float32", flops=0, updates=True),
        row(2, "bn", "multiply", "deny", "float32", flops=0, updates=True),
        row(3, "bn", "add", "deny", "float32", flops=0, updates=True),
    ]
    report = of(rows, [])
    lines = report.layer("bn").text().splitlines()
    assert [line.split()[:2] for line in lines[5:]] == [
        ["moments", "MatMul"],
        ["(updates)", "x3"],
        ["add"],
    ]
    said = "it only updates variables, such as moving statistics: multiply, add"
    assert report.layer("bn").text(width=200).splitlines()[-1].endswith(said)
    assert [each["op"] for each in report.to_dict()["rows"]] == [each.op for each in rows]


def blocks(count, names=("conv", "bn", "relu"), stem=("stem",)):
    """A chain of layers: a stem, and blocks whose layers begin alike."""
    names = [*stem, *(f"block_{i}_{name}" for i in range(count) for name in names), "head"]
    rows = [row(i, name) for i, name in enumerate(names)]
    return of(rows, [edge(i, i + 1) for i in range(len(rows) - 1)])


def first_column(text):
    """Of the table, below its head."""
    lines = text.splitlines()
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("layer ")) + 1 :]
    return [re.split(r"  +", line)[0] for line in table if line]


def test_layers_fold_until_they_fit():
    report = blocks(12)
    assert first_column(report.text(rows=20)) == [
        "stem",
        *(f"block_{i}_* (3 layers)" for i in range(12)),
        "head",
        "All 38 layers: text(rows=None). Ops of some: layer(name).",
    ]
    assert first_column(report.text(rows=3))[:3] == ["stem", "block_* (36 layers)", "head"]
    assert len(first_column(report.text(rows=1))) == 1 + 1
    assert first_column(str(report)) == [each.layer for each in report.rows], "38 fit"
    assert report.text() == report.text(rows=None)


def test_rounds_that_repeat_fold_though_their_names_differ():
    kinds = ("norm", "attention", "add", "dense")
    names = [f"{kind}_{i}" if i else kind for i in range(20) for kind in kinds]
    report = of([row(i, name) for i, name in enumerate(["embedding", *names, "probs"])], [])
    found = first_column(report.text())
    assert found[:3] == [
        "embedding",
        "norm … dense (4 layers)",
        "norm_1 … dense_1 (4 layers)",
    ]
    inner = report.layer("norm_3 … dense_3")
    assert [each.layer for each in inner.rows] == ["norm_3", "attention_3", "add_3", "dense_3"]


@given(graphs(), st.sampled_from([1, 2, 7, 50, None]), st.sampled_from([100, 120]))
def test_tables_of_any_graph_fit_and_hold_every_op(report, rows, width):
    lines = report.text(rows, width).splitlines()
    table = lines[lines.index("") + 2 :] if report.rows else []
    table = table[: table.index("")] if "" in table else table
    assert rows is None or len(table) <= rows
    assert max(map(len, lines)) <= width
    folds = [folding.unfolded(folding.folded(report.rows), most) for most in (rows, None)]
    for shown in folds:
        indices = [each.index for fold in shown for each in fold.rows]
        assert sorted(indices) == list(range(len(report.rows))), "each op in one fold"
    whole = report.layer("*") if report.rows else report
    assert whole.rows == report.rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"rows": 0}, "rows must be at least 1, or None, but got 0", id="rows"),
        pytest.param({"width": 60}, "width must be at least 100, but got 60", id="width"),
    ],
)
def test_sizes_of_a_text(arguments, message):
    with pytest.raises(ValueError, match=message):
        small().text(**arguments)


def test_long_reasons_and_names_keep_to_the_width():
    path = "/".join(f"encoder_of_the_model_{i}" for i in range(6))
    report = of([row(0, path, "op" * 30, why="it follows " + path), row(1, "b")], [])
    for text in (str(report), str(report.layer("*"))):
        assert max(map(len, text.splitlines())) <= 120
    assert f"…{path[-60:]}"[-30:] in str(report)
    assert len(report.layer("*").text(width=400).splitlines()) == 8


def test_a_long_table_of_ops_is_cut_and_says_so():
    report = blocks(30).layer("*")
    lines = str(report).splitlines()
    assert len(lines) == 3 + 1 + 2 * 50 + 1
    assert lines[-1] == "and 42 more: text(rows=None)"
    assert len(report.text(rows=None).splitlines()) == 3 + 1 + 2 * 92


def test_a_layer_is_a_report_of_its_ops():
    report = small()
    inner = report.layer("block")
    assert inner.part == "block"
    assert inner.rows == report.rows[:3]
    assert [(each.source, each.target, each.cast) for each in inner.edges] == [
        (None, 0, "float16"),
        (0, 1, None),
        (1, 2, "float32"),
        (2, None, None),
        (1, None, "float32"),
    ]
    assert repr(inner) == str(inner)
    assert report.layer("block/dense").rows == report.rows[:2]
    assert report.layer("block (own ops)").rows == report.rows[2:3]
    assert report.layer("(model)").rows == report.rows[3:]
    assert report.layer("*/dense").rows == report.rows[:2]
    assert inner.layer("block/dense").rows == report.rows[:2]


def test_a_layer_that_calls_no_op():
    with pytest.raises(
        ValueError, match=r"No layer 'block/dens' of model 'model' calls an op; did"
    ):
        small().layer("block/dens")
    with pytest.raises(ValueError, match=r"No layer 'x' of model 'model' calls an op\.$"):
        small().layer("x")


def test_to_dict_is_json_that_keeps_everything():
    report = of(small().rows, small().edges, missed={("d", "matmul"): 3})
    assert report.to_dict()["part"] is None
    found = json.loads(json.dumps(report.to_dict()))
    assert [Row(**each) for each in found["rows"]] == list(report.rows)
    edges = [Edge(**each | {"shape": tuple(each["shape"])}) for each in found["edges"]]
    assert edges == list(report.edges)
    assert found["missed"] == [{"layer": "d", "op": "matmul", "calls": 3}]
    assert (found["training"], found["lists"], found["dtype"]) == (True, "tf1.15", "float16")


class Page(HTMLParser):
    """The names of the folds of a page, with those that hold them, and the tables in them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.folds, self.tables, self.naming = [], {}, [], False
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag == "details":
            self.open.append("")
        elif tag == "table":
            self.tables.append(tuple(self.open[1:]))
        elif tag == "summary":
            self.naming = True

    def handle_data(self, data):
        if self.naming:
            self.open[-1] += data

    def handle_endtag(self, tag):
        if tag == "details":
            self.open.pop()
        elif tag == "summary":
            self.naming = False
            if path := tuple(self.open[1:]):  # the outermost holds all of them
                self.folds[path] = True


def test_html_opens_layer_by_layer():
    found = Page(blocks(20)._repr_html_())
    assert ("stem",) in found.folds
    inner = ("block_3_* (3 layers)", "block_3_conv")
    assert inner in found.folds
    assert inner in found.tables
    assert len(found.tables) == 63, "a table of the layers, and of the ops of each layer"
    assert Page(of([], [])._repr_html_()).folds == {}


def test_a_block_of_few_layers_is_not_folded_once_more():
    names = ("expand", "expand_bn", "project", "project_bn", "project_relu")
    found = Page(blocks(20, names)._repr_html_()).folds
    inner = [path[1] for path in found if path[0] == "block_3_* (5 layers)" and len(path) > 1]
    assert inner == [f"block_3_{name}" for name in names]


def test_html_names_the_dtype():
    assert ">in float16</th>" in small()._repr_html_()


def test_html_of_a_name_is_escaped():
    assert "<b>" not in of([row(0, "<b>", "<b>", why="<b>")], [], "<b>")._repr_html_()


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


def test_an_input_that_is_an_output():
    report = of([], [edge(None, None, tensor=0)])
    assert parsed(report.to_dot())[1] == [("input0", "output0", {})]
    assert {"input", "output"} <= set(texts(report.plot()))


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_the_picture_shows_layers_with_their_dtype_and_share():
    report = small()
    found = texts(report.plot())
    for text in ("block/dense", "block (own ops)", "(model)", "input", "output", report.summary):
        assert text in found
    assert "float16 · 44.4 % of flops" in found
    assert "float32 · 11.1 % of flops" in found
    casts = [text for text in found if text in ("float16", "float32")]
    assert sorted(casts) == ["float16", "float32", "float32"]
    signs = [text.get_text() for text in report.plot().axes[0].get_legend().get_texts()]
    assert signs[:2] == ["float16", "float32"]


def test_a_mixed_layer_says_its_share():
    report = of([row(0, "d", flops=3), row(1, "d", "softmax", "deny", "float32", flops=1)], [])
    assert "mixed: 75 % float16 · 100 % of flops" in texts(report.plot())


def test_the_picture_folds_layers_until_they_fit():
    report = blocks(20)
    found = texts(report.plot())
    assert [text for text in found if text.startswith("block_")] == [
        f"block_{i}_* (3 layers)" for i in range(20)
    ]
    assert "block_3_conv" in texts(report.plot(rows=None))
    assert "block_* (60 layers)" in texts(report.plot(rows=3))
    with pytest.raises(ValueError, match="rows must be at least 1"):
        report.plot(rows=0)
    assert [text for text in texts(report.layer("block_3_*").plot()) if "block_3_" in text] == [
        "block_3_conv",
        "block_3_bn",
        "block_3_relu",
        "block_3_* of model: training, tf1.15 lists",
    ]


@settings(deadline=None, max_examples=20)
@given(graphs())
def test_no_box_lies_upon_another(report):
    axes = report.plot().axes[0]
    boxes = [
        each.get_window_extent() for each in axes.patches if type(each).__name__ == "FancyBboxPatch"
    ]
    names = [text for text in axes.texts if text.get_fontweight() == "bold"]
    assert len(names) == 1 + len(folding.unfolded(folding.folded(report.rows), 40))
    # A box is drawn twice: its ground and its border.
    for i, a in enumerate(boxes[::2]):
        assert not any(a.overlaps(b) for b in boxes[::2][i + 1 :])


def test_a_deep_model_fits_a_screen():
    figure = blocks(20, names=("expand", "bn", "relu", "project", "add"), stem=("a", "b")).plot()
    width, height = (side * figure.dpi for side in figure.get_size_inches())
    assert width <= 2000
    assert height <= 1400


def test_names_fit_their_boxes():
    path = "/".join(f"encoder_of_the_model_{i}" for i in range(6))
    figure = of([row(0, path), row(1, f"{path}x" * 3)], [edge(0, 1)]).plot()
    figure.canvas.draw()
    boxes = [
        each.get_window_extent()
        for each in figure.axes[0].patches
        if type(each).__name__ == "FancyBboxPatch"
    ]
    widest = max(box.width for box in boxes)
    for text in figure.axes[0].texts:
        if text.get_text().startswith("…"):
            assert text.get_window_extent().width <= widest


def test_the_picture_shows_where_something_unseen_comes_in():
    points = [
        sum(line.get_marker() == "o" for line in of([row(0)], edges).plot().axes[0].lines)
        for edges in ([], [edge(None, 0, tensor=100, unseen=True)])
    ]
    assert points == [0, 1]


def test_tensors_between_two_layers_are_one_arrow():
    rows = [row(0, "a"), row(1, "a", "add"), row(2, "b")]
    alone, both = (
        [type(each).__name__ for each in of(rows, edges).plot().axes[0].patches].count(
            "FancyArrowPatch"
        )
        for edges in ([edge(0, 2)], [edge(0, 2, "float32"), edge(1, 2, "float32"), edge(0, 1)])
    )
    assert (alone, both) == (1, 1)
    edges = [edge(0, 2, "float32"), edge(1, 2, "float32")]
    assert "2 float32" in texts(of(rows, edges).plot())


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


def test_names_are_no_formulas(tmp_path):
    report = of([row(0, "$a_{", r"\frac"), row(1, "a" * 99)], [])
    report.plot(tmp_path / "graph.png")
    assert "$a_{" in texts(report.plot())


def test_every_layer_of_a_large_model_is_drawn_at_full_size(tmp_path):
    rows = [row(i, f"layer{i}") for i in range(700)]
    edges = [edge(i, i + 1) for i in range(699)] + [edge(i, i + 9) for i in range(0, 690, 10)]
    path = tmp_path / "graph.png"
    figure = of(rows, edges).plot(path, rows=None)
    width, height = (int.from_bytes(path.read_bytes()[at : at + 4], "big") for at in (16, 20))
    size = tuple(side * figure.dpi for side in figure.get_size_inches())
    assert (width, height) == pytest.approx(size, abs=1)
    assert figure.dpi == plotting.DPI


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
