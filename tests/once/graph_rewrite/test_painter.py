"""The painter against what TensorFlow painted, and against its rules written with sets."""

import gzip
import json
import os
import random
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from keras_mp.graph_rewrite.painter import SENTENCES, Code, PaintGraph, Reason, Vertex, paint
from tests.painter_rules import colours, truths, violations

DATA = Path(__file__).parents[2] / "data" / "graph_rewrite"


def cases(folder):
    return {path.name.removesuffix(".json.gz"): path for path in sorted((DATA / folder).iterdir())}


MODELS, LOOPS = cases("painter_cases"), cases("painter_loop_cases")
RECORDED = MODELS | LOOPS
VARIANTS = ("tf1.15", "tf2", "tf2.21")
FLAGS = ("is_float32", "low_kernel", "low_dtype_legal", "processable", "reads_ref_variable")


def read(case):
    """(graph, float16 slots, denied slots) of a recorded case."""
    graph = PaintGraph(
        vertices=[Vertex(v["list"], *(v[flag] for flag in FLAGS)) for v in case["vertices"]],
        edges=[(u, v) for u, v in case["edges"]],
        groups=case["same_colour_groups"],
        loop_edges=[(last, heads) for last, heads in case["loop_edges"]],
        predenied=case["predenied"],
        variant=case["variant"],
    )
    return graph, set(case["expected"]["float16"]), set(case["expected"]["deny"])


def chain(*lists, variant="tf1.15", **options):
    vertices = [v if isinstance(v, Vertex) else Vertex(v) for v in lists]
    edges = [(i, i + 1) for i in range(len(lists) - 1)]
    return PaintGraph(vertices, edges, variant=variant, **options)


def low(graph):
    return sorted(paint(graph).low)


def codes(graph):
    return [reason.code for reason in paint(graph).reasons.values()]


# What TensorFlow painted.


def test_there_are_cases_of_each_variant():
    tags = [name.split(".tf")[1] for name in MODELS]
    assert {tag: tags.count(tag) for tag in tags} == {"1.15": 12, "2.4": 12, "2.21": 14}


def test_there_are_loops_of_both_colours_with_containers_and_old_variables():
    assert len(LOOPS) == 18
    seen = set()
    for path in LOOPS.values():
        graph, float16, deny = read(json.loads(gzip.decompress(path.read_bytes())))
        seen |= {("loop", last in float16) for last, _ in graph.loop_edges}
        seen |= {("group", group[0] in float16, group[0] in deny) for group in graph.groups}
        seen |= {("variable", v.reads_ref_variable) for v in graph.vertices}
    assert seen == {
        ("loop", True), ("loop", False), ("variable", True), ("variable", False),
        ("group", True, False), ("group", False, True), ("group", False, False),
    }  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name):
    graph, float16, deny = read(json.loads(gzip.decompress(RECORDED[name].read_bytes())))
    painting = paint(graph)
    assert painting.low == float16
    assert painting.deny == deny
    assert violations(graph, painting) == []
    assert colours(graph) == (float16, deny)
    assert truths(graph, painting) == []


FOLDER = Path(os.environ.get("KERAS_MP_FIXTURES", "/nowhere")).parent / "graph_rewrite"


@pytest.mark.skipif(not FOLDER.exists(), reason="KERAS_MP_FIXTURES does not lead to the recordings")
def test_the_committed_cases_are_the_recorded_ones():
    found = {path.stem: path for path in (FOLDER / "painter_cases").glob("*.json")}
    assert found.keys() == MODELS.keys()
    for name, path in found.items():
        case = json.loads(path.read_text())
        assert json.loads(gzip.decompress(RECORDED[name].read_bytes())) == case
        graph, float16, deny = read(case)
        assert (paint(graph).low, paint(graph).deny) == (float16, deny)


# By hand.


def test_deny_goes_through_infer_and_through_clear_that_leads_to_infer():
    painting = paint(
        chain("allow", "deny", "infer", "clear", "infer", "clear", "allow", variant="tf1.15")
    )
    assert painting.deny == {1, 2, 3, 4}
    assert painting.low == {0, 5, 6}
    assert painting.reasons[5] == Reason("next_to_low", 6)


HAND_MADE = {
    "nothing without an allow op": (chain("infer", "clear"), []),
    "an allow op alone": (chain("allow"), [0]),
    "infer between": (chain("allow", "infer", "allow"), [0, 1, 2]),
    "infer before": (chain("infer", "allow"), [1]),
    "infer after": (chain("allow", "infer"), [0]),
    "clear on both ends": (chain("clear", "allow", "clear", "clear"), [0, 1, 2, 3]),
    "clear beyond infer": (chain("clear", "infer", "allow", "infer", "clear"), [2]),
    "clear beyond a painted infer": (
        PaintGraph(
            [Vertex(at) for at in ("allow", "infer", "allow", "clear")], [(0, 1), (1, 2), (1, 3)]
        ),
        [0, 1, 2, 3],
    ),
    "a wall": (chain("allow", None, "infer", "allow"), [0, 3]),
    "deny stops at an allow op": (chain("allow", "deny", "allow", "infer", "allow"), [0, 2, 3, 4]),
    "deny stops at a wall": (chain("deny", None, "allow", "infer", "allow"), [2, 3, 4]),
    "clear after deny that leads nowhere is free": (chain("deny", "clear", "allow"), [1, 2]),
    "clear after deny that leads to deny is not": (
        PaintGraph(
            [Vertex(at) for at in ("deny", "clear", "deny", "allow")], [(0, 1), (1, 2), (1, 3)]
        ),
        [3],
    ),
    "a denied vertex passes deny on though it cannot be rewritten": (
        PaintGraph(
            [
                Vertex("deny"),
                Vertex("infer", processable=False, is_float32=False),
                Vertex("infer"),
                Vertex("allow"),
                Vertex("allow"),
            ],
            [(0, 1), (1, 2), (3, 2), (2, 4)],
        ),
        [3, 4],
    ),
    "an unprocessable deny op denies": (
        PaintGraph(
            [Vertex("deny", processable=False), Vertex("allow"), Vertex("infer"), Vertex("allow")],
            [(0, 2), (1, 2), (2, 3)],
        ),
        [1, 3],
    ),
    "infer of a branch and of deny": (
        PaintGraph(
            [Vertex("allow"), Vertex("deny"), Vertex("infer"), Vertex("allow")],
            [(0, 2), (1, 2), (2, 3)],
        ),
        [0, 3],
    ),
    "an unprocessable allow op is no end": (
        chain("allow", "infer", Vertex("allow", processable=False)),
        [0],
    ),
    "an unprocessable allow op is no beginning": (
        chain(Vertex("allow", processable=False), "infer", "allow"),
        [2],
    ),
    "an allow op stops the search between": (
        chain("infer", Vertex("allow", processable=False), "infer", "allow"),
        [3],
    ),
    "an allow slot of another dtype paints around it": (
        chain("clear", Vertex("allow", is_float32=False), "infer", "allow"),
        [0, 2, 3],
    ),
    "1.15 paints an allow op without a kernel": (chain(Vertex("allow", low_kernel=False)), [0]),
    "old variables are read in float32": (
        chain(Vertex("clear", reads_ref_variable=True), "clear", "allow"),
        [1, 2],
    ),
    "old variables between allow ops are not": (
        chain("allow", Vertex("clear", reads_ref_variable=True), "allow"),
        [0, 1, 2],
    ),
    "a cycle": (
        PaintGraph(
            [Vertex(at) for at in ("allow", "infer", "clear")], [(0, 1), (1, 2), (2, 1), (2, 0)]
        ),
        [0, 1, 2],
    ),
}


@pytest.mark.parametrize(("graph", "expected"), HAND_MADE.values(), ids=HAND_MADE)
def test_by_hand(graph, expected):
    assert low(graph) == expected
    assert violations(graph, paint(graph)) == []


@pytest.mark.parametrize("at", ["infer", "clear"])
@pytest.mark.parametrize("flag", ["is_float32", "low_kernel", "low_dtype_legal", "processable"])
def test_what_cannot_be_rewritten_is_not_and_lets_nothing_through(at, flag):
    stuck = Vertex(at, **{flag: False})
    assert low(chain("allow", stuck, "infer", "allow")) == [0, 3]
    assert low(chain("allow", stuck, "clear")) == [0]
    assert low(chain("allow", Vertex(at), "infer", "allow")) == [0, 1, 2, 3]


def test_infer_after_allow_is_painted_in_2_21_only():
    lists = ("allow", "infer", "infer", "clear", "infer")
    assert [low(chain(*lists, variant=variant)) for variant in VARIANTS] == [
        [0],
        [0],
        [0, 1, 2, 3],
    ]
    assert codes(chain(*lists, variant="tf2.21")) == [
        "allow_list", "follows_low", "follows_low", "next_to_low", "nothing_downstream",
    ]  # fmt: skip


def test_infer_between_allow_is_said_to_be_so_in_2_21_too():
    assert codes(chain("allow", "infer", "allow", variant="tf2.21"))[1] == "between_allow"


def test_infer_after_allow_needs_no_denied_input():
    def graph(*extra):
        vertices = [Vertex("allow"), Vertex("infer"), *extra]
        return PaintGraph(vertices, [(0, 1), (2, 1)], predenied=[2], variant="tf2.21")

    assert low(graph(Vertex("clear"))) == [0]
    assert low(replace(graph(Vertex("clear")), predenied=[])) == [0, 1, 2]
    assert low(replace(graph(Vertex(None)), predenied=[])) == [0, 1]


@pytest.mark.parametrize("flag", FLAGS[:-1])
def test_infer_after_allow_must_fit(flag):
    assert low(chain("allow", Vertex("infer", **{flag: False}), variant="tf2.21")) == [0]


def test_an_allow_op_that_cannot_take_float16_is_unpainted_from_2_on():
    graph = chain("clear", Vertex("allow", low_dtype_legal=False), "infer", "allow")
    found = {variant: paint(replace(graph, variant=variant)) for variant in VARIANTS}
    assert found["tf1.15"].low == {0, 1, 2, 3}
    assert found["tf2"].low == found["tf2.21"].low == {0, 2, 3}
    assert found["tf2"].reasons[1] == Reason("not_legal")


def test_only_allow_ops_are_unpainted_for_their_dtype():
    illegal = [Vertex(at, low_dtype_legal=False) for at in ("allow", "clear")]
    graph = PaintGraph(illegal, [], groups=[(0, 1)], variant="tf2")
    assert low(graph) == [0, 1]


def test_a_group_with_one_in_float16_is_in_float16():
    graph = PaintGraph(
        [Vertex(at) for at in ("allow", "clear", "clear", None, "infer", "clear")],
        [(0, 1), (2, 5)],
        groups=[(2, 1, 3)],
    )
    painting = paint(graph)
    # The group is matched last: what only its other members touch is not reached any more.
    assert painting.low == {0, 1, 2, 3}
    assert painting.reasons[3] == Reason("group_low", 1)
    assert painting.reasons[5] == Reason("not_reached")


def test_a_group_is_matched_before_colour_spreads_too():
    graph = PaintGraph(
        [Vertex("allow"), Vertex("clear"), Vertex("clear")], [(1, 2)], groups=[(0, 1)]
    )
    assert low(graph) == [0, 1, 2]


def test_a_group_may_paint_again_what_its_dtype_unpainted():
    illegal = Vertex("allow", low_dtype_legal=False)
    graph = PaintGraph([illegal, Vertex("allow")], [], groups=[(0, 1)], variant="tf2")
    assert low(graph) == [0, 1]
    assert paint(graph).reasons[0] == Reason("group_low", 1)


def test_colour_does_not_spread_from_an_unprocessable_member_of_a_group():
    graph = PaintGraph(
        [Vertex("allow"), Vertex("clear", processable=False), Vertex("clear")],
        [(1, 2)],
        groups=[(0, 1)],
    )
    assert low(graph) == [0, 1]


def test_a_group_with_one_denied_is_denied():
    graph = PaintGraph(
        [Vertex("allow"), Vertex("clear"), Vertex("deny"), Vertex("clear"), Vertex("infer")],
        [(0, 1), (2, 3), (3, 4)],
        groups=[(1, 3)],
    )
    painting = paint(graph)
    assert (painting.low, painting.deny) == ({0}, {1, 2, 3, 4})
    assert painting.reasons[1] == Reason("group_denied", 3)


def test_an_allow_op_in_a_denied_group_still_ends_what_lies_between():
    graph = PaintGraph(
        [Vertex("allow"), Vertex("infer"), Vertex("allow"), Vertex("deny")],
        [(0, 1), (1, 2)],
        groups=[(2, 3)],
    )
    assert low(graph) == [0, 1]


def test_denied_beforehand():
    graph = chain("allow", "clear", "allow", predenied=[1])
    painting = paint(graph)
    assert (painting.low, painting.deny) == ({0, 2}, {1})
    assert painting.reasons[1] == Reason("denied_before")
    assert low(chain("allow", "clear", predenied=[0])) == [1]


def test_what_was_denied_beforehand_denies_nothing_else():
    graph = PaintGraph(
        [Vertex("deny"), Vertex("allow"), Vertex("infer"), Vertex("allow")],
        [(0, 2), (1, 2), (2, 3)],
        predenied=[0],
    )
    assert paint(graph).deny == {0}
    assert low(graph) == [1, 2, 3]
    assert paint(chain("deny", "infer", "infer", "allow", predenied=[1])).deny == {0, 1}


def loop(*lists, edges, heads=(1,), last=2):
    return PaintGraph([Vertex(at) for at in lists], edges, loop_edges=[(last, heads)])


def test_a_loop_is_in_float16_if_all_its_merges_are():
    graph = loop("allow", "clear", "clear", edges=[(0, 1)])
    assert low(graph) == [0, 1, 2]
    assert paint(graph).reasons[2] == Reason("loop_low", 1)
    graph = loop("allow", "clear", "clear", edges=[(0, 1), (0, 2)])
    assert paint(graph).reasons[2] == Reason("next_to_low", 0)


def test_a_loop_with_a_bare_merge_is_not():
    graph = loop("allow", "clear", "clear", "clear", edges=[(0, 1), (0, 2)], heads=(1, 3))
    painting = paint(graph)
    assert painting.low == {0}
    assert [painting.reasons[i].code for i in (1, 2, 3)] == [
        "loop_unpainted", "loop_unpainted", "not_reached",
    ]  # fmt: skip
    assert painting.reasons[1].vertex == 3


def test_a_denied_end_of_a_loop_follows_its_merges():
    graph = loop(
        "deny",
        "clear",
        "infer",
        "allow",
        "clear",
        edges=[(0, 1), (1, 2), (3, 4)],
        heads=(4,),
        last=1,
    )
    painting = paint(graph)
    assert (painting.low, painting.deny) == ({1, 3, 4}, {0, 2})
    assert painting.reasons[1] == Reason("loop_low", 4)


def test_a_loop_is_matched_after_groups():
    graph = PaintGraph(
        [Vertex("allow"), Vertex("clear"), Vertex("clear"), Vertex("clear")],
        [(0, 3)],
        groups=[(1, 3)],
        loop_edges=[(2, (1,))],
    )
    assert low(graph) == [0, 1, 2, 3]


def test_no_allow_op_is_said_only_if_painting_stopped():
    assert codes(chain("infer", "clear", "deny")) == ["no_allow_op"] * 3
    only = chain(Vertex("allow", low_dtype_legal=False), "infer", variant="tf2")
    assert codes(only) == ["not_legal", "nothing_downstream"]
    assert codes(chain(None, Vertex("allow", processable=False))) == ["no_list", "unprocessable"]


def test_reasons_of_what_stays_bare():
    graph = PaintGraph(
        [
            Vertex("allow"),
            Vertex("infer"),
            Vertex("infer"),
            Vertex("clear", low_kernel=False),
            Vertex("clear", low_dtype_legal=False),
            Vertex("clear", reads_ref_variable=True),
            Vertex("clear", is_float32=False),
        ],
        [(0, 1), (2, 0), (0, 3), (0, 4), (0, 5), (0, 6)],
    )
    assert codes(graph) == [
        "allow_list", "nothing_downstream", "nothing_upstream", "no_kernel", "not_legal",
        "reads_variable", "not_float32",
    ]  # fmt: skip


@pytest.mark.parametrize(("at", "code"), [("deny", "follows_deny"), ("allow", "between_allow")])
def test_a_reason_names_the_nearest(at, code):
    lists = [at, at, "infer", "infer", "allow"]
    graph = PaintGraph([Vertex(v) for v in lists], [(1, 2), (2, 3), (0, 3), (3, 4)])
    assert paint(graph).reasons[3] == Reason(code, 0)


def test_every_reason_has_a_sentence():
    assert SENTENCES.keys() == set(get_args(Code))
    for code, text in SENTENCES.items():
        other = 7 if "OTHER" in text else None
        said = Reason(code, other).sentence("op {}".format, "bfloat16")
        assert not re.search("LOW|OTHER|float16", said.replace("bfloat16", ""))
        assert ("op 7" in said) == ("OTHER" in text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variant": "tf2.4"}, r"variant must be one of tf1.15, tf2, tf2.21, but got 'tf2.4'"),
        ({"vertices": [Vertex("white")]}, r"vertices\[0\].list must be allow, .* but got 'white'"),
        ({"edges": [(0, 2)]}, r"edges must name vertices 0 to 1, but there is a 2"),
        ({"edges": [(-1, 0)]}, r"edges must .* there is a -1"),
        ({"groups": [(0, 5)]}, r"groups must name vertices 0 to 1, but there is a 5"),
        ({"loop_edges": [(5, (0,))]}, r"loop_edges must .* a 5"),
        ({"loop_edges": [(0, (5,))]}, r"loop_edges must .* a 5"),
        ({"loop_edges": [(0, ())]}, r"loop_edges\[0\] must name a vertex that merges"),
        ({"predenied": [2]}, r"predenied must .* a 2"),
    ],
)
def test_what_is_no_graph(change, message):
    with pytest.raises(ValueError, match=message):
        PaintGraph(**{"vertices": [Vertex("allow")] * 2, "edges": []} | change)


def test_no_vertices():
    assert paint(PaintGraph([], [])).reasons == {}


@pytest.mark.parametrize("variant", VARIANTS)
def test_fifty_thousand_vertices_take_seconds(variant):
    random_ = random.Random(0)
    count = 50_000
    lists = ("allow", "infer", "clear", "clear", "deny", None)
    vertices = [Vertex(random_.choice(lists)) for _ in range(count)]
    edges = [(random_.randrange(max(0, i - 50), i), i) for i in range(1, count) for _ in range(2)]
    long = [Vertex("allow"), *[Vertex("clear")] * count]
    start = time.process_time()
    paint(PaintGraph(vertices, edges, variant=variant))
    assert len(paint(chain(*long, variant=variant)).low) == count + 1
    assert time.process_time() - start < 5
