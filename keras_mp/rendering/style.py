"""The CSS of pictures and tables, for a page and for the box of a notebook."""

from keras_mp.rendering import markup

# One rule a line: a notebook has them, too.
PIECES = """
.ranges td, .ranges th { padding: 0.08rem 0.5rem 0.08rem 0; }
.ranges .path { width: 17rem; min-width: 17rem; max-width: 17rem; font-size: 0.8rem; }
.ranges thead th { font-size: 0.8rem; }
.ranges thead .path { font-family: inherit; }
.ranges .besides { min-width: 5rem; }
.ranges .number { min-width: 3.6rem; }
.ranges thead .number { white-space: normal; max-width: 4.4rem; }
.besides { color: var(--inf); white-space: nowrap; font-weight: 700; }
thead .besides { color: inherit; }
.number { text-align: right; white-space: nowrap; }
.much { font-weight: 700; color: var(--inf); }
svg text { fill: var(--text); font-size: 11px; }
svg.curve { display: block; width: 100%; height: auto; }
svg.strip, svg.ruler { display: block; width: 22rem; }
svg.strip { height: 1.1rem; }
svg.ruler text { font-size: 10px; font-weight: 400; }
svg .grid { stroke: var(--faint); stroke-width: 1; fill: none; }
svg .axis { stroke: var(--text); stroke-width: 0.8; fill: none; }
svg .scale { stroke: var(--line); stroke-width: 2; fill: none; stroke-linejoin: round; }
svg .mark { stroke-width: 1.6; fill: none; }
svg .inf .mark { stroke: var(--inf); }
svg .nan .mark { stroke: var(--nan); }
svg .heat { fill: var(--heat); shape-rendering: crispEdges; }
svg rect.float16 { fill: var(--float16); }
svg rect.bfloat16 { fill: var(--bfloat16); }
svg rect.subnormal { fill-opacity: 0.35; }
svg.ruler text.normal { fill: var(--ground); }
svg .limit { fill: none; stroke-width: 1.4; }
svg .limit.float16 { stroke: var(--float16); }
svg .limit.bfloat16 { stroke: var(--bfloat16); }
svg .limit.subnormal { stroke-dasharray: 1.5 2.5; }
svg .limit.normal { stroke-dasharray: 5 3; }
"""


# A phone shows the curve at less than half its size, and its text is to be read there, too.
_SMALL = "svg.curve text { font-size: 24px; }"


def _on_small_screens(rules: str) -> str:
    return f"@media (max-width: 40rem) {{ {rules} }}\n"


SMALL = _on_small_screens(_SMALL)
NOTEBOOK = (
    f"{markup.scoped(PIECES)}\n.keras-mp svg.curve {{ max-width: 60rem; }}\n"
    f"{_on_small_screens(markup.scoped(_SMALL))}"
)
