"""What a notebook shows: whole HTML, escaped, without scripts or ids; and whether it is one."""

import html.parser
import re
import sys
import types

import pytest

from keras_mp.diagnosis.explanation import Explanation, Finding, LossScale, Row
from keras_mp.diagnosis.float32_layers import Float32Layers
from keras_mp.diagnosis.overflow_search.finding import Finding as Overflow
from keras_mp.diagnosis.overflow_search.report import OverflowReport
from keras_mp.diagnosis.ranges.html import notebook_output
from keras_mp.monitor.trace import Trace
from keras_mp.rendering import markup, notebooks
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
    shown = notebook_output(found, found["rows"])
    return types.SimpleNamespace(_repr_html_=lambda: shown)


def trace(name):
    return Trace([1, 2, 3], [0, 0, 1], [4.0, 4.0, 2.0], [0, 1, 2], [None, name, f"{name}/b"])


MAKE = {"explain": explanation, "overflow": overflows, "ranges": ranges, "trace": trace}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_it_is_whole_and_escaped_and_alone(make):
    shown = make(HOSTILE)._repr_html_()
    page = Parser(shown)
    assert "script" not in page.tags
    assert '<script>alert("1")</script>' in page.text.replace("\ufffd", "")
    assert "\0" not in shown
    names = {name for name, _ in page.attributes}
    assert not names & {"id", "src", "href", "onload", "onclick"}, "a page shows several of them"
    assert not re.search(r"url\(|@import|https?:", shown)
    assert {"table", "style"} <= set(page.tags)


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_its_style_reaches_nothing_else(make):
    (style,) = re.findall(r"<style>(.*?)</style>", make("net")._repr_html_(), re.DOTALL)
    rules = re.sub(r"@media[^{]*\{([^{}]*\{[^{}]*\})\s*\}", r"\1", style)
    for selectors in re.findall(r"([^{}]+)\{[^{}]*\}", rules):
        for selector in selectors.split(","):
            assert ".keras-mp" in selector, selector


def test_both_themes_are_told_by_the_notebook_or_the_system():
    light, dark = (markup.variables(colours) for colours in (markup.LIGHT, markup.DARK))
    assert markup.CSS.count(light) == markup.CSS.count(dark) == 2
    assert '[data-jp-theme-light="false"] .keras-mp' in markup.CSS
    assert "prefers-color-scheme: dark" in markup.CSS


def test_the_trace_is_drawn():
    page = Parser(trace("out/bias")._repr_html_())
    assert "svg" in page.tags
    assert ("aria-label", "Loss scale by step: 3 steps, 2 skipped (1 inf, 1 nan); loss scale 2 to "
            "4, 2 before the last step") in page.attributes  # fmt: skip
    assert "out/bias" in page.text
    assert "svg" in Parser(Trace.from_rows(())._repr_html_()).tags
    many = [f"v{i}" for i in range(20)]
    shown = Trace(range(20), [0] * 20, [2.0] * 20, [1] * 20, many)._repr_html_()
    assert "and 8 more: overflows()" in Parser(shown).text


def test_the_worst_ranges_are_shown_and_drawn():
    page = Parser(ranges("net")._repr_html_())
    assert page.tags.count("svg") == 61
    assert "These 60 are the worst of 70" in page.text
    assert "Layer net." in page.text


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


# -- a notebook ------------------------------------------------------------------------------------


class Shell:
    def __init__(self, execution_count=1):
        self.execution_count = execution_count


class Kernel(Shell):
    kernel = "a kernel"


def in_shell(monkeypatch, shell):
    shown = []
    display = types.SimpleNamespace(HTML=lambda text: ("html", text), display=shown.append)
    module = types.SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", module)
    return shown


@pytest.mark.parametrize("shell", [None, Shell()], ids=["no shell", "a terminal"])
def test_in_a_terminal_it_is_printed(monkeypatch, capsys, shell):
    shown = in_shell(monkeypatch, shell)
    notebooks.show(explanation("net"), "text")
    assert notebooks.running_cell() is None
    assert (capsys.readouterr().out, shown) == ("text\n", [])


def test_in_a_notebook_it_is_shown_once_a_cell(monkeypatch, capsys):
    shell = Kernel()
    shown = in_shell(monkeypatch, shell)
    found = explanation("net")
    found = Explanation(
        *(getattr(found, each) for each in ("model", "rows", "loss_scale", "findings")),
        found.float32_layers,
        shown_in=notebooks.running_cell(),
    )
    notebooks.show(found, "text")
    assert shown == [("html", found.html())]
    assert capsys.readouterr().out == ""
    assert found._repr_html_() is None, "as the value of the same cell it would be there twice"
    shell.execution_count = 2
    assert found._repr_html_() == found.html()
