"""The page of a run: it says what the numbers say, in any parser and in Chromium."""

import math
import re
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from keras_mp.diagnosis.ranges import drawing
from keras_mp.monitor import drawing as drawing_of_traces
from keras_mp.monitor.html_report import html_report, write_html_report
from keras_mp.monitor.run_folder import RunFolder, write_run
from keras_mp.monitor.trace import Trace
from keras_mp.rendering.html import escaped
from tests import browser, runs
from tests.fuzzing import examples
from tests.html_pages import Page


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    runs.write(folder)
    return RunFolder.read(folder)


@pytest.fixture(scope="module")
def page(run):
    return Page(html_report(run)).root


def check_numbers(root, run):
    """Asserts that a page says what a run's numbers say."""
    trace, summary = run.trace, run.trace.summary()
    facts = {each.attributes["id"]: each.data("value") for each in root.one(id="facts").all("dd")}
    assert facts == {
        "steps": str(summary["steps"]),
        "skipped": str(summary["skipped"]),
        "longest-skips": str(summary["longest_skips"]),
        "lowest-scale": str(summary["lowest_scale"]),
        "highest-scale": str(summary["highest_scale"]),
        "loss-scale": str(run.run["loss_scale"]),
    }
    assert root.one(id="loss-scale", tag="dd").text == "131,072"
    curve, heat = root.all("svg", class_="chart")
    assert curve.attributes["aria-label"].endswith(drawing_of_traces.headline(trace))
    assert {"inf", "nan"} <= {each.text for each in curve.all("text")}
    skipped = list(root.one(id="skipped-steps").one("tbody").all("tr"))
    assert [(int(each.data("step")), each.data("kind")) for each in skipped] == [
        (step, ("", "inf", "nan")[kind]) for step, _, _, kind, _ in trace.rows() if kind
    ]
    overflows = list(root.one(id="overflows").one("tbody").all("tr"))
    assert [
        (each.data("variable"), int(each.data("count")), int(each.data("first-step")))
        for each in overflows
    ] == [(each["variable"], each["count"], each["first_step"]) for each in run.run["overflows"]]
    for each, of in zip(overflows, run.run["overflows"], strict=True):
        cells = [cell.text for cell in each.children]
        kind = ("", "inf", "nan")[of["kind"]]
        assert cells == [of["variable"], of["layer"], str(of["count"]), str(of["first_step"]), kind]
    layers = list(root.one(id="layers").one("tbody").all("tr"))
    keys = ("path", "class", "policy", "compute_dtype", "variable_dtype")
    assert [[cell.text for cell in each.children] for each in layers] == [
        [each[key] for key in keys] for each in run.run["layers"]
    ]
    names = {each.data("name"): each.data("value") for each in root.one(id="versions").all("tr")}
    assert {"keras": "3.15.1", "keras_mp": "0.1.0", "backend": "jax"}.items() <= names.items()
    settings = {each.data("name"): each.data("value") for each in root.one(id="settings").all("tr")}
    assert settings["initial_scale"] == "32,768"
    rows = [row for each in drawing.by_kind(run.ranges["rows"]).values() for row in each]
    found = list(root.one("table", id="ranges").one("tbody").all("tr"))
    for each, row in zip(found, rows, strict=True):
        assert (each.data("path"), each.data("kind")) == (row["path"], row["kind"])
        assert each.one("th").text == row["path"]
        for key in ("count", "zeros", "infs", "nans"):
            assert int(each.data(key)) == row[key]
        for dtype in ("float16", "bfloat16"):
            assert float(each.data(f"{dtype}-overflow")) == row[dtype]["overflow"]
    labels = [each.text for each in heat.all("text")]
    assert set(drawing.by_kind(run.ranges["rows"])) <= set(labels)
    assert [labels.count(row["path"]) for row in rows if row["path"] == "head/dead"] == [1]
    told = [each.text.removeprefix("• ") for each in root.all("p", class_="item")]
    assert told == run.ranges["advice"]["text"]


def test_the_page_says_what_the_numbers_say(page, run):
    check_numbers(page, run)


def test_nothing_is_loaded_and_no_script_runs(page, run):
    text = html_report(run)
    assert not list(page.all("script"))
    assert text.count("<script") == 0, "names are escaped"
    for element in page.all():
        for key, value in element.attributes.items():
            assert not key.startswith("on"), f"{key} of <{element.tag}>"
            if key in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
                assert value.startswith(("data:", "#")), f"{key}={value}"
    style = page.one("style").text
    assert "url(" not in style
    assert "@import" not in style
    policy = page.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_the_page_is_accessible(page):
    assert page.one("html").attributes["lang"] == "en"
    heads = [each.tag for each in page.all() if re.fullmatch(r"h\d", each.tag)]
    assert heads[0] == "h1"
    assert heads.count("h1") == 1
    assert all(int(b[1]) - int(a[1]) <= 1 for a, b in pairwise(heads))
    for each in page.all("svg"):
        assert each.attributes["role"] == "img"
        assert each.attributes["aria-label"]
    for table in page.all("table"):
        columns = [each.attributes.get("scope") for each in table.one("thead").all("th")]
        assert columns
        assert set(columns) == {"col"}
        for row in table.one("tbody").all("tr"):
            assert row.children[0].attributes["scope"] == "row"


def test_ids_are_of_one_element_only(page):
    seen = [each.attributes["id"] for each in page.all() if each.attributes.get("id")]
    assert sorted(seen) == sorted(set(seen))


@settings(deadline=None, max_examples=examples(10))
@given(st.text(min_size=1))
@example("\0\ud800\r\x1b[1m]]></style>--><!--")
def test_any_name_is_shown_as_text(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("run")
    path = "x" + name
    run = RunFolder(
        folder,
        {
            "model": path,
            "layers": [{"path": path, "class": name, "policy": name}],
            "overflows": [{"variable": path, "layer": name, "count": 1, "first_step": 1}],
            "optimizer": {path: name},
        },
        Trace.from_rows([(1, 0, 2.0, 1, path)]),
        {"exponents": [-60, 40], "rows": [runs.row(path, "weight", [1.0])]},
    )
    text = html_report(run)
    text.encode()
    root = Page(text).root
    for identity in ("layers", "overflows", "skipped-steps"):
        assert root.one(id=identity)
    shown = root.one(id="layers").one("tbody").one("th").text
    for a, b in zip(shown, path, strict=True):
        assert a in (b, "�")
    write_html_report(run, folder / "report.html")
    assert (folder / "report.html").read_text("utf-8") == text


def by_fit(folder, steps=4, loss_scale=2.0):
    """Of two fits of two epochs, of one step each; the last one is skipped."""
    write_run(folder, {"steps": steps, "loss_scale": loss_scale})
    rows = [(i + 1, i % 2, 4.0, int(i == 3), None) for i in range(4)]
    Trace.from_rows(rows).save(folder / "trace.jsonl")
    return RunFolder.read(folder)


def test_the_scale_at_the_end_is_that_after_the_last_step(tmp_path):
    run = by_fit(tmp_path)
    root = Page(html_report(run)).root
    facts = {name: root.one("dd", id=name).text for name in ("loss-scale", "lowest-scale")}
    assert facts == {"loss-scale": "2", "lowest-scale": "2"}
    assert "last loss scale" in root.text
    assert "loss scale 2 to 4, at last 2" in root.text
    assert run.trace.summary()["epochs"] == 4


def test_a_run_that_went_on_after_its_last_epoch(tmp_path):
    """`run.json` is of an earlier step than the trace: the end is not known."""
    root = Page(html_report(by_fit(tmp_path, steps=2, loss_scale=64.0))).root
    assert root.one("dd", id="loss-scale").text == "4"
    assert "before the last step" in root.one(id="facts").text
    assert "loss scale always 4" in root.text


def test_each_epoch_is_named_and_each_fit_begins_anew(tmp_path):
    curve = next(Page(html_report(by_fit(tmp_path))).root.all("svg"))
    texts = [each.text for each in curve.all("text")]
    at = texts.index("epoch 0")
    assert texts[at : at + 4] == ["epoch 0", "1", "epoch 0", "1"]


@pytest.mark.parametrize("skipped", [0, 600])
def test_odd_runs(tmp_path, skipped):
    write_run(tmp_path, {"loss_scale": float("inf")})
    Trace.from_rows((i + 1, 0, 1.0, int(i < skipped), None) for i in range(700)).save(
        tmp_path / "trace.jsonl"
    )
    root = Page(html_report(RunFolder.read(tmp_path))).root
    assert root.one("dd", id="skipped").data("value") == str(skipped)
    assert root.one("dd", id="skipped").text.split()[0] == str(skipped)
    assert root.one("dd", id="loss-scale").text == "inf"
    assert not list(root.all("table", id="ranges"))
    if skipped:
        assert "and 100 more: in the trace" in root.text
        assert len(list(root.one(id="skipped-steps").one("tbody").all("tr"))) == 500
        assert "not recorded: LossScaleOptimizer(..., diagnose=True) names it" in root.text
    else:
        assert "No step was skipped." in root.text
        assert "Nothing: every gradient was finite." in root.text


def test_the_kind_of_an_overflow_is_that_of_its_first_step(tmp_path):
    overflow = {"variable": "a/b", "layer": "a", "count": 2, "first_step": 2}
    write_run(tmp_path, {"overflows": [overflow]})
    Trace.from_rows([(1, 0, 4.0, 1, "c"), (2, 0, 2.0, 2, "c")]).save(tmp_path / "trace.jsonl")
    row = (
        Page(html_report(RunFolder.read(tmp_path))).root.one(id="overflows").one("tbody").one("tr")
    )
    assert [cell.text for cell in row.children] == ["a/b", "a", "2", "2", "nan"]


@pytest.mark.parametrize(
    ("kind", "shown"), [(None, ""), ("an inf", "an inf"), (2, "nan"), (9, "9")]
)
def test_the_kind_of_an_overflow_that_the_trace_does_not_hold(tmp_path, kind, shown):
    write_run(tmp_path, {"overflows": [{"count": 1, "first_step": 5, "kind": kind}]})
    table = Page(html_report(RunFolder.read(tmp_path))).root.one(id="overflows").one("tbody")
    assert [cell.text for cell in table.one("tr").children][-1] == shown


def test_a_trace_by_epoch_has_no_skipped_steps(tmp_path):
    trace = Trace([1, 2], [0, 1], [4.0, 2.0], [0, 0], [None] * 2, unit="epoch", has_kinds=False)
    root = Page(html_report(RunFolder(tmp_path, {}, trace, None))).root
    assert "Which steps were skipped was not recorded." in root.text
    assert "every gradient was finite" not in root.text
    assert "inf" not in [each.text for each in root.all("text")]


def test_the_curve_is_interrupted_where_there_is_no_scale(tmp_path):
    trace = Trace.from_rows(
        (i, 0, scale, 0, None) for i, scale in enumerate([4.0, 2.0, math.inf, 8.0, 4.0])
    )
    drawn = drawing_of_traces.chart(trace)
    assert [str(y) for y in drawn.y] == ["2.0", "1.0", "nan", "3.0", "2.0", "2.0"]
    line = next(each for each in trace.plot().axes[0].lines if each.get_gid() == "line")
    np.testing.assert_array_equal(line.get_ydata(), drawn.y)


def test_without_matplotlib_the_page_has_bars_and_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    root = Page(html_report(run)).root
    assert not list(root.all("svg"))
    assert re.fullmatch("[▁▂▃▄▅▆▇█]{60}", root.one("pre").text)
    notes = [each.text for each in root.all("p", class_="note")]
    assert sum("pip install 'keras-mp[plot]'" in note for note in notes) == 2
    assert drawing_of_traces.headline(run.trace) in root.text
    assert len(list(root.one("table", id="ranges").one("tbody").all("tr"))) == 30


def test_a_run_without_a_step(tmp_path):
    write_run(tmp_path, {"steps": 7, "skipped": 2, "loss_scale": 4.0})
    root = Page(html_report(RunFolder.read(tmp_path))).root
    assert [root.one("dd", id=key).text for key in ("steps", "skipped", "loss-scale")] == [
        "7",
        "2",
        "4",
    ]
    assert "No step was recorded." in root.text
    assert "every gradient was finite" not in root.text
    assert root.one("dd", id="longest-skips").text == "unknown"


def test_a_number_that_no_float_holds(tmp_path):
    write_run(tmp_path, {"loss_scale": 10**400})
    assert Page(html_report(RunFolder.read(tmp_path))).root.one("dd", id="loss-scale").text == "inf"


def test_the_work_grows_with_the_rows_of_ranges(tmp_path, monkeypatch):
    """What all rows have in common is looked for once, or many layers take minutes."""
    original, calls = drawing.shown_exponents, []
    monkeypatch.setattr(drawing, "shown_exponents", lambda of: calls.append(0) or original(of))
    rows = [runs.row(f"layer_{i}", "weight", [1.0]) for i in range(9)]
    run = RunFolder(tmp_path, {}, Trace.from_rows(()), {"exponents": [-60, 40], "rows": rows})
    html_report(run)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u00a0b\u3000c\u200dd", "a\u00a0b\u3000c\u200dd"),
        ("tab\tnewline\n", "tab\tnewline\n"),
        ("\0\x1b\r\x85\ud800", "\ufffd" * 5),
    ],
    ids=["spaces and joiners", "tab and newline", "what no document may hold"],
)
def test_only_what_no_document_may_hold_is_replaced(text, shown):
    assert escaped(text) == shown


def test_a_long_run_makes_a_small_page(run):
    count = 200_000
    trace = Trace(
        range(count), [0] * count, [4.0, 2.0] * (count // 2), [1, 0] * (count // 2), [None] * count
    )
    assert len(html_report(replace(run, trace=trace, ranges=None))) < 8_000_000


# In Chromium.


@pytest.fixture(scope="module")
def chromium():
    found = browser.find()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def test_the_browser_tells_of_errors_and_requests(chromium, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!doctype html><img src="http://127.0.0.1:9/a.png"><script>console.error("oh")</script>'
    )
    found = chromium.open(bad)
    assert any("oh" in line for line in found.console)
    assert any(url.startswith("http://127.0.0.1:9/") for url in found.requests)


def test_chromium_shows_what_the_numbers_say(chromium, run, tmp_path):
    path = tmp_path / "report.html"
    write_html_report(run, path)
    found = chromium.open(path)
    assert (found.console, found.requests) == ([], [])
    check_numbers(Page(found.dom).root, run)
    if found.text:
        assert drawing_of_traces.headline(run.trace) in found.text
        assert runs.BAD in found.text
