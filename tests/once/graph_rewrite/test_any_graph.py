"""The painter on any graph: equal to its rules written with sets, and true to its promises."""

from dataclasses import replace

from hypothesis import given, settings, strategies as st

from keras_mp.graph_rewrite.painter import PaintGraph, Vertex, paint
from tests.fuzzing import examples
from tests.painter_rules import colours, truths, violations

VARIANTS = ("tf1.15", "tf2", "tf2.21")
FLAGS = ("is_float32", "low_kernel", "low_dtype_legal", "processable", "reads_ref_variable")


@st.composite
def graphs(draw, variants=VARIANTS, bound=True, back_edges=True):
    variant = draw(st.sampled_from(variants))
    count = draw(st.integers(1, 11))
    mostly = st.sampled_from([True] * 7 + [False])
    vertices = [
        Vertex(
            draw(st.sampled_from(["allow", "infer", "infer", "deny", "clear", "clear", None])),
            *(draw(mostly) for _ in FLAGS[:-1]),
            reads_ref_variable=not draw(mostly),
        )
        for _ in range(count)
    ]
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = draw(st.lists(ends, max_size=2 * count, unique=True))
    if not back_edges:
        edges = [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]]
    graph = PaintGraph(vertices, edges, variant=variant)
    if not bound:
        return graph
    order = draw(st.permutations(range(count)))
    size = draw(st.integers(0, 3))
    groups = [order[:size]] if size else []
    clear = [i for i in order[size:] if vertices[i].list == "clear"]
    loops = [(clear[0], tuple(clear[1:3]))] if len(clear) > 1 and draw(st.booleans()) else []
    before = draw(st.sets(st.integers(0, count - 1), max_size=1)) if draw(st.booleans()) else ()
    return replace(graph, groups=groups, loop_edges=loops, predenied=sorted(before))


@settings(max_examples=examples(400))
@given(graphs())
def test_equals_the_equations(graph):
    painting = paint(graph)
    assert (painting.low, painting.deny) == colours(graph)


@settings(max_examples=examples(300))
@given(graphs())
def test_keeps_its_promises(graph):
    # A loop may leave a group or a denied vertex behind in another colour, as TensorFlow's does.
    graph = replace(graph, predenied=()) if graph.loop_edges else graph
    painting = paint(graph)
    assert violations(graph, painting) == []
    assert truths(graph, painting) == []
    assert painting.reasons.keys() == set(range(len(graph.vertices)))
    assert paint(graph) == painting


def renumbered(graph, order):
    """The same graph, its vertex i called order[i]."""
    vertices = [vertex for _, vertex in sorted(zip(order, graph.vertices, strict=True), key=first)]
    return PaintGraph(
        vertices,
        [(order[u], order[v]) for u, v in reversed(graph.edges)],
        groups=[[order[i] for i in group] for group in graph.groups],
        loop_edges=[(order[u], tuple(order[v] for v in vs)) for u, vs in graph.loop_edges],
        predenied=[order[i] for i in graph.predenied],
        variant=graph.variant,
    )


def first(pair):
    return pair[0]


def same_after(graph, order):
    before, after = paint(graph), paint(renumbered(graph, order))
    assert after.low == {order[i] for i in before.low}
    assert after.deny == {order[i] for i in before.deny}


@given(graphs(variants=("tf1.15", "tf2")), st.randoms(use_true_random=False))
def test_numbers_do_not_matter(graph, random_):
    order = list(range(len(graph.vertices)))
    random_.shuffle(order)
    same_after(graph, order)


@given(graphs(variants=("tf2.21",), back_edges=False), st.randoms(use_true_random=False))
def test_execution_orders_do_not_matter(graph, random_):
    ready = [i for i in range(len(graph.vertices)) if all(v != i for _, v in graph.edges)]
    order, done = {}, set()
    while ready:
        i = ready.pop(random_.randrange(len(ready)))
        order[i] = len(order)
        done.add(i)
        waiting = set(range(len(graph.vertices))) - done - set(ready)
        ready += [v for v in sorted(waiting) if all(u in done for u, w in graph.edges if w == v)]
    same_after(graph, [order[i] for i in range(len(order))])


@given(graphs(), st.data())
def test_more_deny_never_paints_more(graph, data):
    at = data.draw(st.integers(0, len(graph.vertices) - 1))
    vertices = list(graph.vertices)
    vertices[at] = replace(vertices[at], list="deny")
    assert paint(replace(graph, vertices=vertices)).low <= paint(graph).low | loop_ends(graph, at)


@given(graphs(), st.data())
def test_more_allow_never_paints_less(graph, data):
    at = data.draw(st.integers(0, len(graph.vertices) - 1))
    vertices = list(graph.vertices)
    vertices[at] = replace(vertices[at], list="allow", low_dtype_legal=True)
    graph = replace(graph, predenied=())
    assert paint(replace(graph, vertices=vertices)).low >= paint(graph).low


def loop_ends(graph, at):
    return {last for last, _ in graph.loop_edges if last == at}


@given(graphs(), st.data())
def test_what_cannot_be_rewritten_never_paints_more(graph, data):
    at = data.draw(st.integers(0, len(graph.vertices) - 1))
    flag = data.draw(st.sampled_from(["low_kernel", "low_dtype_legal", "processable"]))
    vertices = list(graph.vertices)
    vertices[at] = replace(vertices[at], **{flag: False})
    assert paint(replace(graph, vertices=vertices)).low <= paint(graph).low
