"""What a notebook and a prompt show of results: whole HTML, escaped, without scripts; and text."""

import html.parser
import json
import re
import types

import pytest

from keras_mp.diagnosis.benchmarking.recommending import Result
from keras_mp.diagnosis.benchmarking.report import BenchmarkReport
from keras_mp.diagnosis.explanation import Explanation, Finding, LossScale, Row
from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.diagnosis.overflow_search.report import Finding as Overflow, OverflowReport
from keras_mp.diagnosis.ranges import drawing
from keras_mp.graph_rewrite.op_report import Report
from keras_mp.graph_rewrite.painted_graph import Row as Op
from keras_mp.monitor.trace import Trace
from keras_mp.rendering import html as rendering, style
from tests import runs

HOSTILE = '<script>alert("1")</script>&\'\0'
CLOSED_BY_ITSELF = ("wbr", "meta", "link", "br")


class Parser(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.data = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == [], "an element is not closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in CLOSED_BY_ITSELF:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1:] != ["style"]:
            self.data.append(text)

    @property
    def text(self):
        return " ".join("".join(self.data).split())


def explanation(name, count=3):
    rows = tuple(
        Row(f"{name}_{i}", name, "mixed_float16", "float16", "float32", True, None, ("float32",))
        for i in range(count)
    )
    finding = Finding("code", "error", name, f"what {name}", "why", "remedy")
    needed = LossScale(True, "none", None, None, name)
    layers = Float32Layers(
        "mixed_float16", (name,), ((f"^{name}$", "float32"),), (name,), True, name, True
    )
    return Explanation(name, rows, needed, (finding,), layers)


def overflows(name):
    found = [
        Overflow("forward", name, name, name, "output", "float16", "inf", 1e5 + i, note=name)
        for i in range(20)
    ]
    layers = Float32Layers("mixed_float16", (name,), ((f"^{name}$", "float32"),))
    return OverflowReport(tuple(found), 1.0, 1.0, True, layers, None)


def ranges(name):
    """What `RangeReport` shows, which keras is needed for."""
    found = {
        "model": name,
        "steps": 1,
        "loss_scale": 2.0,
        "exponents": [-60, 40],
        "rows": [runs.row(f"{name}_{i}", "weight", [1.0, 1e5], layer=name) for i in range(70)],
        "advice": {"text": [f"Layer {name}."]},
    }
    shown = rendering.notebook(drawing.parts(found, found["rows"], most=32, rest="rows"))
    return types.SimpleNamespace(_repr_html_=lambda: shown)


def trace(name):
    return Trace([1, 2, 3], [0, 0, 1], [4.0, 4.0, 2.0], [0, 1, 2], [None, name, f"{name}/b"])


def benchmark(name):
    three = (1.0, 1.0, 1.0)
    result = Result("float32", three, three, 1.0, 100, 9, None, 0, None, 2.0, 1.0, 1.0, (name,))
    return BenchmarkReport(
        name, name, name, name, True, 5, 9, (result,), {name: name}, "peak", (name,), "float32",
        name, {"float32": name},
    )  # fmt: skip


def graph(name):
    rows = [
        Op(i, f"{name}/{i}", "matmul", 0, "MatMul", "allow", "allow", "float16", "because", 9)
        for i in range(3)
    ]
    return Report(name, "float16", "tf1.15", True, tuple(rows), ())


RESULTS = {
    "graph": graph,
    "explain": explanation,
    "overflow": overflows,
    "trace": trace,
    "benchmark": benchmark,
}
MAKE = {**RESULTS, "ranges": ranges}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_it_is_whole_and_escaped_and_alone(make):
    shown = make(HOSTILE)._repr_html_()
    page = Parser(shown)
    assert "script" not in page.tags
    assert '<script>alert("1")</script>' in page.text.replace("\ufffd", "")
    assert "\0" not in shown
    for key, value in page.attributes:
        assert not key.startswith("on")
        assert key not in ("src", "href")
        assert key != "id" or value.startswith("km"), "of a picture: a page shows several outputs"
    shown = shown.replace('"http://www.w3.org/1999/xlink"', "")
    assert not re.search(r"url\([^#]|@import|https?:", shown)
    assert "style" in page.tags


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_a_prompt_shows_its_text_which_steers_no_terminal(make):
    found = make("net/\x1b[2J\0out")
    assert repr(found) == str(found)
    assert r"net/\x1b[2J\x00out" in str(found)
    assert "\x1b" not in str(found)
    assert max(map(len, str(make("net")).splitlines())) <= 100


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_a_result_is_plain_json(make):
    found = make("net").to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_its_style_reaches_nothing_else(make):
    (style,) = re.findall(r"<style>(.*?)</style>", make("net")._repr_html_(), re.DOTALL)
    rules = re.sub(r"@media[^{]*\{([^{}]*\{[^{}]*\})\s*\}", r"\1", style)
    for selectors in re.findall(r"([^{}]+)\{[^{}]*\}", rules):
        for selector in selectors.split(","):
            assert ".keras-mp" in selector, selector


def test_both_themes_are_told_by_the_notebook_or_the_system():
    light, dark = (style.variables(colours) for colours in (style.LIGHT, style.DARK))
    assert style.CSS.count(light) == style.CSS.count(dark) == 2
    assert '[data-jp-theme-light="false"] .keras-mp' in style.CSS
    assert "prefers-color-scheme: dark" in style.CSS


def test_the_trace_is_drawn():
    page = Parser(trace("out/bias")._repr_html_())
    assert "svg" in page.tags
    assert ("aria-label", "Loss scale: 3 steps, 2 skipped (1 inf, 1 nan); loss scale 2 to "
            "4, 2 before the last step") in page.attributes  # fmt: skip
    assert "out/bias" in page.text
    assert "svg" in Parser(Trace.from_rows(())._repr_html_()).tags
    many = [f"v{i}" for i in range(20)]
    shown = Trace(range(20), [0] * 20, [2.0] * 20, [1] * 20, many)._repr_html_()
    assert "and 8 more: overflows()" in Parser(shown).text


def test_the_first_ranges_are_shown_and_drawn():
    page = Parser(ranges("net")._repr_html_())
    assert page.tags.count("svg") == 1
    assert "and 38 more: rows" in page.text
    assert page.text.count("net_31") == 2
    assert "net_32" not in page.text


def test_overflows_are_told_with_the_code():
    page = Parser(overflows("net/out")._repr_html_())
    assert page.text.startswith("overflow in the forward pass: net/out")
    assert "nothing overflows (tried)" in page.text
    assert "keras.dtype_policies.DTypePolicyMap( default_policy=" in page.text
    assert "and 7 more: findings" in page.text
    nothing = Parser(OverflowReport((), None, 1.0, None)._repr_html_())
    assert nothing.text == "no overflow: everything is finite"


def test_a_large_model_is_folded_and_can_be_unfolded():
    small, large = (Parser(explanation("d", count)._repr_html_()) for count in (3, 30))
    assert "details" not in small.tags
    assert small.tags.count("tr") == 6
    assert "All 30 layers" in large.text
    assert "30 x d" in large.text
    assert large.text.count("d_29") == 1
