"""The rules of a painting, as sets and paths, independent of the painter.

`colours` computes the whole answer as nested least fixpoints; `violations` checks single rules,
so a mistake in both must still break none of them.
"""

CLEAR, INFER, DENY, ALLOW = "clear", "infer", "deny", "allow"


def reached(start, steps, through):
    """The least set that holds `start` and, with u, every v of `through` with u -> v."""
    found = set(start)
    while True:
        more = {v for u, v in steps if u in found and v in through} - found
        if not more:
            return found
        found |= more


def listed(graph, *names):
    return {i for i, vertex in enumerate(graph.vertices) if vertex.list in names}


def flagged(graph, **flags):
    return {
        i
        for i, vertex in enumerate(graph.vertices)
        if all(getattr(vertex, flag) == value for flag, value in flags.items())
    }


def back(edges):
    return {(v, u) for u, v in edges}


def same_colour(groups, low, deny):
    for group in map(set, groups):
        if group & deny:
            low, deny = low - group, deny | group
        elif group & low:
            low = low | group
    return low, deny


def colours(graph):
    """Returns (low, deny), by equations over sets."""
    edges, everything = set(graph.edges), set(range(len(graph.vertices)))
    groups = [*graph.groups, *([i] for i in graph.predenied)]
    float32, usable = flagged(graph, is_float32=True), flagged(graph, processable=True)
    fit = usable & flagged(graph, is_float32=True, low_kernel=True, low_dtype_legal=True)
    allow = listed(graph, ALLOW) & usable
    before = set(graph.predenied)
    if not allow:
        return set(), before & float32

    dangerous = reached(listed(graph, INFER, DENY), back(edges), listed(graph, CLEAR))
    deny = before | reached(listed(graph, DENY) - before, edges, dangerous - before)
    low, deny = same_colour(groups, allow, deny)

    inside = (fit & listed(graph, INFER, CLEAR)) - deny
    after = reached(allow, edges, inside)
    low = low | reached(allow, back(edges), after)

    if graph.variant == "tf2.21":
        tainted = {v for u, v in edges if u in deny}
        for v in sorted((fit & listed(graph, INFER)) - deny - tainted):
            if any((u, v) in edges for u in low):
                low = low | {v}

    able = (fit & listed(graph, CLEAR) & flagged(graph, reads_ref_variable=False)) - deny
    low = low | reached(low & usable, edges | back(edges), able - low)

    if graph.variant != "tf1.15":
        low = low - (listed(graph, ALLOW) - flagged(graph, low_dtype_legal=True))
    low, deny = same_colour(groups, low, deny)
    for last, heads in graph.loop_edges:
        low = low | {last} if set(heads) <= low else low - {last, *heads}
    assert low | deny <= everything
    return low & float32, (deny - low) & float32


def violations(graph, painting):
    """Returns the rules that a painting breaks, each in a sentence."""
    edges = set(graph.edges)
    low, deny, vertices = painting.low, painting.deny, graph.vertices
    bound = {i for group in graph.groups for i in group}
    bound |= {i for last, heads in graph.loop_edges for i in (last, *heads)}
    before = set(graph.predenied)
    usable = flagged(graph, processable=True)
    allow = listed(graph, ALLOW) & usable
    found = []

    def forbid(what, *offenders):
        found.extend(f"{what}: {sorted(some)}" for some in offenders if some)

    forbid("both colours", low & deny)
    forbid("a colour on what is not float32", (low | deny) - flagged(graph, is_float32=True))
    forbid("deny ops in float16", low & listed(graph, DENY))
    forbid("denied beforehand, in float16", low & before)
    forbid("float16 with no allow op", low if not allow else ())
    free = low - bound
    forbid("fed or fetched in float16", free - usable)
    forbid("unlisted in float16", free & listed(graph, None))
    kernels = flagged(graph, low_kernel=True, low_dtype_legal=True)
    forbid("float16 without a kernel", free - listed(graph, ALLOW) - kernels)
    legal = flagged(graph, low_dtype_legal=True)
    if graph.variant != "tf1.15":
        forbid("an allow op of an impossible dtype", (free & listed(graph, ALLOW)) - legal)
    must = (allow & flagged(graph, is_float32=True, low_dtype_legal=True)) - bound - before
    forbid("allow ops in float32", must - low)

    # A walk from a deny op that meets no allow op and no wall denies every infer op at its end.
    tissue = listed(graph, INFER, CLEAR, DENY) - before
    walk = reached(listed(graph, DENY) - before, edges, tissue)
    forbid("infer ops after a deny op in float16", walk & listed(graph, INFER) & low)
    leading = reached(listed(graph, INFER, DENY), back(edges), listed(graph, CLEAR))
    must_deny = walk & leading & flagged(graph, is_float32=True)
    if allow:
        loops = {last for last, _ in graph.loop_edges}
        forbid("not denied", must_deny - deny - loops)
        forbid("denied for nothing", deny - must_deny - before - bound)

    float32 = [[i for i in group if vertices[i].is_float32] for group in graph.groups]
    if not graph.loop_edges:
        for group in float32:
            forbid(
                "a container in two dtypes", group if 0 < len(low & set(group)) < len(group) else ()
            )
    for last, heads in graph.loop_edges:
        loop = {i for i in (last, *heads) if vertices[i].is_float32}
        forbid("a loop in two dtypes", loop if loop & low and not loop <= low else ())

    if not bound and not before:
        inside = low - listed(graph, ALLOW)
        down, up = reached(allow, edges, inside), reached(allow, back(edges), inside)
        if graph.variant != "tf2.21":
            forbid("infer ops at an end", (inside & listed(graph, INFER)) - (down & up))
        forbid("infer ops with no allow op before", (inside & listed(graph, INFER)) - down)
        either = reached(allow, edges | back(edges), inside)
        forbid("float16 far from any allow op", low - either)
    return found


def truths(graph, painting):
    """Returns the vertices whose reason is wrong."""
    wrong = []
    edges, low, deny = set(graph.edges), painting.low, painting.deny
    grouped = [set(group) for group in graph.groups]
    allow = listed(graph, ALLOW) & flagged(graph, processable=True)
    for i, vertex in enumerate(graph.vertices):
        reason = painting.reasons[i]
        other, code = reason.vertex, reason.code
        near = (other, i) in edges
        holds = {
            "allow_list": lambda v=vertex: v.list == ALLOW,
            "between_allow": lambda o=other, i=i: (
                o in allow and i in reached({o}, edges, listed(graph, INFER, CLEAR))
            ),
            "follows_low": lambda n=near, v=vertex: n and v.list == INFER,
            "next_to_low": lambda o=other, i=i, n=near, v=vertex: (
                (n or (i, o) in edges) and v.list == CLEAR
            ),
            "group_low": lambda o=other, i=i: o != i and any({o, i} <= g for g in grouped),
            "loop_low": lambda o=other, i=i: any(
                last == i and o in heads for last, heads in graph.loop_edges
            ),
            "deny_list": lambda v=vertex: v.list == DENY,
            "follows_deny": lambda o=other, i=i: (
                graph.vertices[o].list == DENY
                and i in reached({o}, edges, listed(graph, INFER, CLEAR))
            ),
            "group_denied": lambda o=other, i=i: o != i and any({o, i} <= g for g in grouped),
            "denied_before": lambda i=i: i in graph.predenied,
            "not_float32": lambda v=vertex: not v.is_float32,
            "no_list": lambda v=vertex: v.list is None,
            "unprocessable": lambda v=vertex: not v.processable,
            "no_allow_op": lambda: not allow,
            "not_legal": lambda v=vertex: not v.low_dtype_legal,
            "no_kernel": lambda v=vertex: v.low_dtype_legal and not v.low_kernel,
            "nothing_upstream": lambda i=i, v=vertex: (
                v.list == INFER and not any((u, i) in edges for u in allow)
            ),
            "nothing_downstream": lambda i=i, v=vertex: (
                v.list == INFER and not any((i, u) in edges for u in allow)
            ),
            "reads_variable": lambda v=vertex: v.reads_ref_variable,
            "not_reached": lambda i=i, v=vertex: (
                v.list == CLEAR and not any((i, u) in edges or (u, i) in edges for u in allow)
            ),
            "loop_unpainted": lambda o=other, i=i: any(
                {i, o} <= {last, *heads} for last, heads in graph.loop_edges
            ),
        }[code]()
        colour = "low" if i in low else "deny" if i in deny else "bare"
        if not holds or colour != COLOUR_OF.get(code, "bare"):
            wrong.append((i, colour, reason))
    return wrong


COLOUR_OF = {
    "allow_list": "low",
    "between_allow": "low",
    "follows_low": "low",
    "next_to_low": "low",
    "group_low": "low",
    "loop_low": "low",
    "deny_list": "deny",
    "follows_deny": "deny",
    "group_denied": "deny",
    "denied_before": "deny",
}
