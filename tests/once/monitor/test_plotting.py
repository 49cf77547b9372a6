"""The pictures: what is in the figures, that files are whole, and that colours can be read."""

import math
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from keras_mp.diagnosis.ranges import drawing as drawing_of_ranges
from keras_mp.diagnosis.ranges.plotting import plot_ranges
from keras_mp.monitor import drawing
from keras_mp.monitor.plotting import plot_trace
from keras_mp.monitor.trace import Trace
from keras_mp.rendering.markup import DARK, LIGHT
from keras_mp.rendering.text import shortened
from keras_mp.rendering.ticks import integer_ticks
from tests import runs
from tests.fuzzing import examples


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


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0.01, 1e6), st.integers(2, 20))
@example(low=5e-324, span=10.0, most=5)
def test_ticks_are_few_whole_and_inside(low, span, most):
    found = integer_ticks(low, low + span, most)
    assert len(found) <= most
    assert all(low <= tick <= low + span for tick in found)
    assert len({b - a for a, b in pairwise(found)}) <= 1


def line(figure, gid):
    (found,) = [each for axes in figure.axes for each in axes.lines if each.get_gid() == gid]
    return [list(map(float, points)) for points in found.get_data()]


def texts(figure):
    found = [text for axes in figure.axes for text in axes.texts] + figure.texts
    labels = [each for axes in figure.axes for each in axes.get_yticklabels()]
    return [text.get_text() for text in (*found, *labels)]


def test_the_line_is_the_scale_and_skipped_steps_are_marked_by_kind():
    trace = runs.trace()
    figure = plot_trace(trace)
    across, up = line(figure, "scale")
    for step, scale in zip(trace.steps, trace.scales, strict=True):
        at = np.searchsorted(across, step, side="right") - 1
        assert up[at] == math.log2(scale), f"step {step}"
    for kind, name in ((1, "inf"), (2, "nan")):
        marked = trace.steps[trace.kinds == kind].tolist()
        assert marked, "the trace has both kinds"
        assert line(figure, name)[0] == marked
        below = figure.axes[1].collections[kind - 1].get_segments()
        assert [segment[0][0] for segment in below] == marked
    assert drawing.headline(trace) in texts(figure)
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
    figure = plot_trace(trace, tmp_path / "scale.png")
    assert told in texts(figure)
    low, high = figure.axes[0].get_ylim()
    assert low < high
    said = ("no step was skipped", "no step was recorded")
    assert any(text in said for text in texts(figure)) == (trace.skipped == 0)


def test_each_epoch_is_named_and_the_line_ends_at_the_scale_after_the_last_step():
    rows = [(i + 1, i % 2, 4.0, int(i == 3), None) for i in range(4)]  # two fits of two epochs
    trace = replace(Trace.from_rows(rows), end=1.0)
    figure = plot_trace(trace)
    assert line(figure, "scale")[1][-1] == 0.0
    assert figure.axes[0].get_ylim()[0] < 0
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels == ["epoch 0", "1", "epoch 0", "1"]
    assert "4 steps, 1 skipped (1 inf); loss scale 1 to 4, at last 1" in texts(figure)


def test_a_long_trace_is_drawn_whole_but_small(tmp_path):
    random = np.random.default_rng(0)
    count = 100_000
    scales = 2.0 ** random.integers(0, 18, count)
    kinds = (random.random(count) < 0.2).astype(int)
    trace = Trace(range(count), [0] * count, scales, kinds, [None] * count)
    path = tmp_path / "scale.svg"
    figure = plot_trace(trace, path)
    assert len(figure.axes[1].collections[0].get_segments()) == trace.skipped
    assert path.stat().st_size < 5_000_000, "that many marks are pixels"


def test_the_table_of_csv_logger_has_no_row_of_skips():
    trace = Trace([1, 2], [0, 1], [4.0, 2.0], [0, 0], [None, None], unit="epoch", has_kinds=False)
    figure = plot_trace(trace)
    assert len(figure.axes) == 1
    assert figure.axes[0].get_xlabel() == "epoch"


def test_the_heat_map_holds_the_shares_of_the_histograms():
    ranges = runs.ranges()
    figure = plot_ranges(ranges)
    panels = drawing_of_ranges.by_kind(ranges["rows"])
    assert list(panels) == ["activation", "activation gradient", "weight", "weight gradient"]
    first, last = drawing_of_ranges.shown_exponents(ranges)
    for axes, (kind, rows) in zip(figure.axes, panels.items(), strict=False):
        (image,) = axes.images
        assert image.get_extent() == [first, last + 1, len(rows), 0]
        found = image.get_array()
        for i, row in enumerate(rows):
            counts = np.array(row["histogram"])
            shown = counts[first + 60 : last + 61]
            assert shown.sum() == counts.sum(), "every value lies on the axis"
            assert (np.ma.getmaskarray(found)[i] == (shown == 0)).all()
            if counts.sum():
                np.testing.assert_allclose(found[i].filled(0), shown / counts.sum())
        shift = -15.0 if kind.endswith("gradient") else 0.0
        at = [each.get_xdata()[0] for each in axes.lines]
        np.testing.assert_allclose(at, [-24 + shift, -14 + shift, math.log2(65504) + shift])
        assert kind in [text.get_text() for text in axes.texts]
    assert {shortened(runs.BAD, 44), "1 inf, 1 nan", "all 0"} <= set(texts(figure))


def test_the_limits_of_bfloat16_are_drawn_where_they_are_in_sight():
    ends = (-149, 127)
    row = runs.row("a", "weight", [2.0**-140, 2.0**-130, 1.0, 2.0**127], ends=ends)
    figure = plot_ranges({"exponents": list(ends), "rows": [row]})
    at = [each.get_xdata()[0] for each in figure.axes[0].lines]
    largest = math.log2(3.3895313892515355e38)
    np.testing.assert_allclose(at, [-24, -14, math.log2(65504), -133, -126, largest])


def test_many_layers_with_long_names_are_drawn_at_full_size(tmp_path):
    found = runs.ranges(blocks=25)
    for row in found["rows"]:
        row["path"] = f"a_model_with_a_name_that_is_much_too_long/{row['path']}"
    path = tmp_path / "ranges.png"
    figure = plot_ranges(found, path)
    width, height = (int.from_bytes(path.read_bytes()[at : at + 4], "big") for at in (16, 20))
    np.testing.assert_allclose((width, height), figure.get_size_inches() * figure.dpi, atol=1)
    assert 6000 < height <= 30000
    renderer = FigureCanvasAgg(figure).get_renderer()
    for axes in figure.axes[:-1]:
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


def test_other_ranges_are_refused():
    with pytest.raises(ValueError, match="exponents is null"):
        plot_ranges({"rows": []})


DRAW = {
    "trace": lambda path, **how: plot_trace(runs.trace(), path, **how),
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
        plot_trace(runs.trace(), path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_names_are_no_formulas(tmp_path):
    figure = plot_trace(runs.trace(), tmp_path / "scale.png", title="$a_{")
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
    plot_trace(trace).canvas.draw()


def test_without_matplotlib_the_remedy_is_named():
    program = """
import sys
sys.modules["matplotlib"] = None
from keras_mp.monitor.plotting import plot_trace
from keras_mp.diagnosis.ranges.plotting import plot_ranges
from keras_mp.monitor.trace import Trace
none = {"exponents": [0, 1], "rows": []}
for draw in (lambda: plot_trace(Trace.from_rows(())), lambda: plot_ranges(none)):
    try:
        draw()
    except ImportError as error:
        assert "pip install 'keras-mp[plot]'" in str(error), error
    else:
        raise SystemExit("no matplotlib, and no error")
assert "keras" not in sys.modules
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
