"""`keras-mp plot`, and the page of `keras-mp report`: a run of training, shown."""

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_mp.compat.results import columns
from keras_mp.files.json_files import as_json
from keras_mp.files.stores.urls import redacted
from keras_mp.migration import runs
from keras_mp.migration.console import json_text, put_exact, report_failure, say, show
from keras_mp.migration.parser import scratch_of
from keras_mp.monitor import drawing
from keras_mp.monitor.html_report import write_html_report
from keras_mp.monitor.plotting import plot_trace
from keras_mp.monitor.run_folder import RunFolder, read_trace
from keras_mp.monitor.sparkline import BARS, sparkline
from keras_mp.monitor.trace import Trace
from keras_mp.rendering.text import number, percent

_PICTURES = (".png", ".svg", ".pdf")
_NARROW = 60
_FEW = 5


def plot(arguments: argparse.Namespace) -> int:
    """Draws a trace, or sums it up on stdout; returns 0, or 2 where that cannot be done."""
    out: str | None = arguments.out
    if out is not None and not out.lower().endswith(_PICTURES):
        say(f"error: {redacted(out)}: the name must end in {', '.join(_PICTURES)}")
        return 2
    scratch = scratch_of(arguments)
    try:
        with runs.local_run(arguments.path, scratch) as path, runs.output(out, scratch) as place:
            trace = read_trace(path)
            if place is not None:
                _refuse_input(place, path)
                title = f"Loss scale of {Path(path).resolve().name}"
                plot_trace(trace, place, title=title, dark=arguments.dark)
    except (OSError, ValueError, ImportError) as error:
        return report_failure(error, redacted(arguments.path), as_json=arguments.json)
    overflows = trace.overflows()
    if arguments.json:
        shown = None if out is None else redacted(out)
        found = {"path": redacted(arguments.path), **trace.summary()}
        found |= {"variables": overflows, "out": shown}
        put_exact(json_text(as_json(found)))
    elif out is None:
        show(_lines(trace))
    else:
        say(f"{redacted(out)}: written")
    return 0


def write_report(path: str, out: str) -> None:
    """Writes a run as one HTML page.

    Raises:
        OSError, ValueError: It cannot be read or written.
    """
    run = RunFolder.read(path)
    _refuse_input(out, path)
    write_html_report(run, out)


def _refuse_input(out: str, path: str) -> None:
    given, inside = Path(path), Path(path).is_dir()
    target = Path(out)
    if not target.exists():
        return
    files = [each for each in given.iterdir() if each.is_file()] if inside else [given]
    names = ("run.json", "trace.jsonl", "ranges.json")
    if any(target.samefile(each) for each in files if not inside or each.name in names):
        raise ValueError(f"{out} is the input: write elsewhere")


def _lines(trace: Trace) -> Iterator[str]:
    found = trace.summary()
    scales = trace.scales[np.isfinite(trace.scales) & (trace.scales > 0)]
    width = max(_NARROW if not sys.stdout.isatty() else shutil.get_terminal_size().columns, 20)
    if len(scales):
        yield _encodable(sparkline(scales.tolist(), width))
    rows: list[tuple[str, ...]] = [(f"{found['unit']}s", f"{found['steps']:,}")]
    if found["skipped"] is None:
        rows.append(("skipped", "not recorded"))
    else:
        told = ""
        if found["skipped"] and trace.has_kinds:
            share = percent(found["skipped"] / found["steps"])
            told = f" ({share}): {found['overflows']:,} inf, {found['nans']:,} nan"
        rows.append(
            ("skipped" if trace.has_kinds else "skipped steps", f"{found['skipped']:,}{told}")
        )
    if trace.has_kinds:
        rows.append(("longest run of skips", f"{found['longest_skips']:,}"))
    for what in ("lowest", "highest"):
        rows.append((f"{what} loss scale", number(found[f"{what}_scale"])))
    scale, is_end = drawing.last_scale(trace)
    when = "last loss scale" if is_end else "before the last step"
    rows.append((when, number(scale)))
    yield from columns(rows)
    overflows = [each for each in trace.overflows() if each["variable"] is not None]
    if overflows:
        yield ""
        head = ("variable", "skipped", "first step")
        cells = [
            (each["variable"], f"{each['count']:,}", f"{each['first_step']:,}")
            for each in overflows[:_FEW]
        ]
        yield from columns([head, *cells])
        if len(overflows) > _FEW:
            yield f"... and {len(overflows) - _FEW} more: --json shows them"


def _encodable(bars: str) -> str:
    """Returns bars that the encoding of stdout knows: digits where it has no blocks."""
    try:
        bars.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return bars.translate({ord(bar): str(i) for i, bar in enumerate(BARS)})
    return bars
