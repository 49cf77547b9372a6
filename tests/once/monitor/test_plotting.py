"""The pictures: what is in the figures, that files are whole, and that colours can be read."""

import math
import re
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_mp.diagnosis.ranges import drawing as drawing_of_ranges
from keras_mp.monitor import drawing
from keras_mp.monitor.drawing import chart
from keras_mp.monitor.trace import Trace
from keras_mp.rendering.pictures import draw, svg
from keras_mp.rendering.style import DARK, LIGHT
from keras_mp.rendering.text import shortened
from tests import runs
from tests.fuzzing import examples
from tests.html_pages import Page


def plot_ranges(ranges, path=None, **how):
    return draw(drawing_of_ranges.chart(ranges), path, **how)


def places(figure, name):
    """Where the lines of events are."""
    (found,) = [each for each in figure.axes[1].patches if each.get_gid() == f"{name} events"]
    return found.get_path().vertices[::2, 0]


def constant(steps=300, scale=1.0, kind=0):
    return Trace.from_rows((i + 1, 0, scale, kind, None) for i in range(steps))


@st.composite
def traces(draw):
    count = draw(st.integers(0, 200))
    scale = st.sampled_from([0.0, 1.0, 2.0, 4.0, 2.0**15, 3.5, math.inf, math.nan])
    scales = draw(st.lists(scale, min_size=count, max_size=count))
    kind = st.sampled_from([0, 0, 0, 0, 1, 2])
    kinds = draw(st.lists(kind, min_size=count, max_size=count))
    return Trace(range(count), [0] * count, scales, kinds, [None] * count)


@settings(deadline=None)
@given(traces(), st.integers(2, 40))
def test_thinning_keeps_skipped_steps_extremes_and_ends(trace, most):
    kept = drawing.downsampled(trace, most)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert set(np.flatnonzero(trace.is_skipped)) <= set(kept)
    assert len(kept) <= 2 * most + 4 + trace.skipped
    if not len(trace):
        return
    assert {0, len(trace) - 1} <= set(kept)
    finite = trace.scales[np.isfinite(trace.scales)]
    if len(finite):
        assert {finite.min(), finite.max()} <= set(trace.scales[kept])


@settings(deadline=None)
@given(traces())
def test_thinning_loses_nothing_where_there_is_room(trace):
    kept = drawing.downsampled(trace, 1000)
    at = np.searchsorted(kept, np.arange(len(trace)), side="right") - 1
    # Not `assert_array_equal`: a group of nans is one change each.
    for i, j in enumerate(at):
        assert str(trace.scales[i]) == str(trace.scales[kept[j]])


def line(figure, gid):
    (found,) = [each for axes in figure.axes for each in axes.lines if each.get_gid() == gid]
    return [list(map(float, points)) for points in found.get_data()]


def texts(figure):
    found = [text for axes in figure.axes for text in axes.texts] + figure.texts
    labels = [each for axes in figure.axes for each in axes.get_yticklabels()]
    return [text.get_text() for text in (*found, *labels)]


def test_the_line_is_the_scale_and_skipped_steps_are_marked_by_kind():
    trace = runs.trace()
    figure = trace.plot()
    across, up = line(figure, "line")
    for step, scale in zip(trace.steps, trace.scales, strict=True):
        at = np.searchsorted(across, step, side="right") - 1
        assert up[at] == math.log2(scale), f"step {step}"
    for kind, name in ((1, "inf"), (2, "nan")):
        marked = trace.steps[trace.kinds == kind].tolist()
        assert marked, "the trace has both kinds"
        assert line(figure, name)[0] == marked
        np.testing.assert_allclose(places(figure, name), marked, atol=0.2)
    assert drawing.headline(trace) in texts(figure)
    figure.canvas.draw()
    assert "2¹⁵" in texts(figure)


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        pytest.param(
            constant(1, 2.0**15), "1 step, none skipped; loss scale always 32,768", id="one"
        ),
        pytest.param(
            constant(), "300 steps, none skipped; loss scale always 1", id="at 1 for ever"
        ),
        pytest.param(
            constant(kind=1),
            "300 steps, 300 skipped (300 inf); loss scale always 1",
            id="all skipped",
        ),
        pytest.param(constant(0), "no step was recorded", id="none"),
        pytest.param(
            constant(3, math.nan),
            "3 steps, none skipped; loss scale never finite",
            id="nan",
        ),
    ],
)
def test_odd_traces_are_drawn(tmp_path, trace, told):
    figure = trace.plot(tmp_path / "scale.png")
    assert told in texts(figure)
    low, high = figure.axes[0].get_ylim()
    assert low < high


def test_each_epoch_is_named_and_the_line_ends_at_the_scale_after_the_last_step():
    rows = [(i + 1, i % 2, 4.0, int(i == 3), None) for i in range(4)]  # two fits of two epochs
    trace = replace(Trace.from_rows(rows), end=1.0)
    figure = trace.plot()
    assert line(figure, "line")[1][-1] == 0.0
    assert figure.axes[0].get_ylim()[0] < 0
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == ["epoch 0", "1", "epoch 0", "1"]
    assert "4 steps, 1 skipped (1 inf); loss scale 1 to 4, at last 1" in texts(figure)


def test_a_long_trace_is_drawn_whole_but_small(tmp_path):
    random = np.random.default_rng(0)
    count = 100_000
    scales = 2.0 ** random.integers(0, 18, count)
    kinds = (random.random(count) < 0.2).astype(int)
    kinds[60_000:70_000] = 0
    trace = Trace(range(count), [0] * count, scales, kinds, [None] * count)
    path = tmp_path / "scale.svg"
    drawn = places(draw(chart(trace), path), "inf")
    assert path.stat().st_size < 5_000_000
    assert 1000 < len(drawn) < 2500, "all that fall on one place are one line"
    assert not np.any((drawn > 60_050) & (drawn < 69_950))


def test_the_table_of_csv_logger_has_no_row_of_skips():
    trace = Trace([1, 2], [0, 1], [4.0, 2.0], [0, 0], [None, None], unit="epoch", has_kinds=False)
    figure = trace.plot()
    assert len(figure.axes) == 1
    assert figure.axes[0].get_xlabel() == "epoch"


def cells(axes):
    """The bins of a heat map that are drawn: {(row, bin): opacity}."""
    found = {}
    for patch in axes.patches:
        if patch.get_clip_on():
            corners = patch.get_path().vertices.reshape(-1, 5, 2)
            for (left, low), _, (right, _), _, _ in corners:
                for place in range(round(left), round(right)):
                    found[round(low), place] = patch.get_alpha()
    return found


def test_the_heat_map_holds_the_shares_of_the_histograms():
    ranges = runs.ranges()
    found = drawing_of_ranges.chart(ranges)
    panels = drawing_of_ranges.by_kind(ranges["rows"])
    assert list(panels) == ["activation", "activation gradient", "weight", "weight gradient"]
    first, last = drawing_of_ranges.shown_exponents(ranges)
    figure = draw(found)
    for axes, heat_map, (kind, rows) in zip(
        figure.axes, found.heat_maps, panels.items(), strict=True
    ):
        drawn = cells(axes)
        assert axes.get_xlim() == (first, last + 1)
        for i, row in enumerate(rows):
            counts = np.array(row["histogram"])
            shown = counts[first + 60 : last + 61]
            assert shown.sum() == counts.sum(), "every value lies on the axis"
            np.testing.assert_allclose(heat_map.shares[i], shown / max(1, counts.sum()))
            held = {first + place for place in np.flatnonzero(shown).tolist()}
            assert {place for at, place in drawn if at == i} == held
            if held:
                most = max(held, key=lambda place: shown[place - first])
                assert drawn[i, most] == max(drawn[i, place] for place in held)
        shift = -15.0 if kind.endswith("gradient") else 0.0
        at = [each.get_xdata()[0] for each in axes.lines]
        np.testing.assert_allclose(at, [-24 + shift, -14 + shift, math.log2(65504) + shift])
        assert kind in [text.get_text() for text in axes.texts]
    assert {shortened(runs.BAD, 42), "1 inf, 1 nan", "all 0"} <= set(texts(figure))


def test_the_limits_of_bfloat16_are_drawn_where_they_are_in_sight():
    ends = (-149, 127)
    row = runs.row("a", "weight", [2.0**-140, 2.0**-130, 1.0, 2.0**127], ends=ends)
    figure = plot_ranges({"exponents": list(ends), "rows": [row]})
    at = [each.get_xdata()[0] for each in figure.axes[0].lines]
    largest = math.log2(3.3895313892515355e38)
    np.testing.assert_allclose(at, [-24, -14, math.log2(65504), -133, -126, largest])


def test_many_layers_with_long_names_are_drawn_at_full_size(tmp_path):
    found = runs.ranges(blocks=8)
    for row in found["rows"]:
        row["path"] = f"a_model_with_a_name_that_is_much_too_long/{row['path']}"
    path = tmp_path / "ranges.png"
    figure = plot_ranges(found, path)
    width, height = (int.from_bytes(path.read_bytes()[at : at + 4], "big") for at in (16, 20))
    np.testing.assert_allclose((width, height), figure.get_size_inches() * figure.dpi, atol=1)
    assert 3000 < height <= 30000
    renderer = FigureCanvasAgg(figure).get_renderer()
    for axes in figure.axes:
        boxes = [each.get_window_extent(renderer) for each in axes.get_yticklabels()]
        assert min(box.x0 for box in boxes) >= 0, "no label leaves the picture"
        assert all(b.y1 <= a.y0 + 1 for a, b in pairwise(boxes)), "nor overlaps"


@pytest.mark.parametrize("scale", [None, "many", [], 0.0, "inf"])
def test_without_a_loss_scale_gradients_are_drawn_where_they_are(scale):
    ranges = {**runs.ranges(), "loss_scale": scale}
    for axes in plot_ranges(ranges).axes[: len(drawing_of_ranges.KINDS_OF_RANGES)]:
        at = [each.get_xdata()[0] for each in axes.lines]
        np.testing.assert_allclose(at, [-24, -14, math.log2(65504)])


def test_no_rows_are_said():
    figure = plot_ranges({"exponents": [-1, 1], "rows": []})
    assert "nothing was recorded" in texts(figure)


DRAW = {
    "trace": lambda path, **how: runs.trace().plot(path, **how),
    "ranges": lambda path, **how: plot_ranges(runs.ranges(), path, **how),
}


@pytest.mark.parametrize("what", DRAW)
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_saved_pictures(tmp_path, what, ending):
    path = tmp_path / f"picture.{ending}"
    DRAW[what](path)
    first = path.read_bytes()
    assert first.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending])
    DRAW[what](str(path))
    assert path.read_bytes() == first, "the same run makes the same file"
    DRAW[what](path, dark=True)
    assert path.read_bytes() != first
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("what", DRAW)
def test_an_unknown_ending_leaves_the_old_file(tmp_path, what):
    path = tmp_path / "picture.nonsense"
    path.write_text("old")
    with pytest.raises(ValueError, match="nonsense"):
        DRAW[what](path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_disk_that_fills_leaves_the_old_file(tmp_path, monkeypatch):
    def savefig(self, file, **how):
        Path(file).write_text("half")
        raise OSError("No space left on device")

    monkeypatch.setattr(Figure, "savefig", savefig)
    path = tmp_path / "picture.png"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left"):
        runs.trace().plot(path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_names_are_no_formulas(tmp_path):
    figure = draw(chart(runs.trace(), title="$a_{"), tmp_path / "scale.png")
    assert "$a_{" in texts(figure)


def luminance(colour):
    """Of sRGB, by WCAG 2.1."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_is_as_wcag_asks(colours):
    def contrast(a, b):
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    assert contrast(colours.text, colours.ground) >= 7
    for name, colour in asdict(colours).items():
        if name not in ("ground", "text", "faint"):
            assert contrast(colour, colours.ground) >= 3, f"{name}, a line or a mark"


@settings(deadline=None, max_examples=examples(20))
@given(traces())
def test_any_trace_can_be_drawn(trace):
    trace.plot().canvas.draw()


def test_without_matplotlib_the_remedy_is_named():
    program = """
import sys
sys.modules["matplotlib"] = None
from keras_mp.monitor.trace import Trace
from keras_mp.diagnosis.ranges.drawing import chart
from keras_mp.rendering.pictures import draw
none = {"exponents": [0, 1], "rows": []}
for each in (Trace.from_rows(()).plot, lambda: draw(chart(none))):
    try:
        each()
    except ImportError as error:
        assert "pip install 'keras-mp[plot]'" in str(error), error
    else:
        raise SystemExit("no matplotlib, and no error")
assert "keras" not in sys.modules
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


CHARTS = {
    "trace": lambda: chart(runs.trace()),
    "no trace": lambda: chart(Trace.from_rows(())),
    "ranges": lambda: drawing_of_ranges.chart(runs.ranges()),
    "no ranges": lambda: drawing_of_ranges.chart({"exponents": [0, 1], "rows": []}),
}


@pytest.mark.parametrize("make", CHARTS.values(), ids=CHARTS)
def test_in_a_page_a_picture_has_the_colours_of_the_page_and_nothing_for_others(make):
    shown = make()
    drawn = svg(shown)
    root = Page(drawn).root
    picture = root.one("svg")
    assert picture.attributes["role"] == "img"
    assert picture.attributes["aria-label"] == f"{shown.title}: {shown.words}"
    assert not list(root.all("style")), "it would be of the whole page"
    colours = set(re.findall(r"(?:fill|stroke): (#\w+|var\(--\w+\))", drawn))
    assert colours
    assert all(each.startswith("var(") for each in colours)
    ids = [each.attributes["id"] for each in root.all() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    assert all(each.startswith("km") for each in ids)
    used = re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', drawn)
    assert {a or b for a, b in used} <= set(ids)
    assert drawn == svg(make()), "the same chart gives the same text"


def test_two_pictures_of_a_page_share_no_id():
    first, second = (
        {each.attributes.get("id") for each in Page(svg(make())).root.all()} - {None}
        for make in (CHARTS["trace"], CHARTS["ranges"])
    )
    assert first
    assert second
    assert not first & second


def test_names_in_a_picture_of_a_page_are_text():
    name = "\0\ud800</text><script>x</script>"
    found = {"exponents": [-60, 40], "rows": [runs.row(name, "weight", [1.0])]}
    drawn = svg(drawing_of_ranges.chart({**found, "model": name}))
    drawn.encode()
    assert "\0" not in drawn
    root = Page(drawn).root
    assert not list(root.all("script"))
    assert "<script>" in root.text
