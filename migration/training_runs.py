"""A run of training, shown: `keras-mp plot`, and `keras-mp report` of its folder."""

import argparse
import shutil
import sys
from pathlib import Path

from keras_mp.files.json_files import json_values
from keras_mp.files.stores.urls import redacted
from keras_mp.migration import runs
from keras_mp.migration.console import json_text, put_exact, report_failure, say, show
from keras_mp.migration.ledger import NAME
from keras_mp.migration.parser import scratch_of
from keras_mp.monitor import drawing
from keras_mp.monitor.html_report import write_html_report
from keras_mp.monitor.run_folder import RUN, RunFolder, read_trace
from keras_mp.monitor.trace import Trace
from keras_mp.rendering import pictures, terminal

_PICTURES = (".png", ".svg", ".pdf")
_NARROW, _WHOLE = 60, 10_000
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
                pictures.draw(drawing.chart(trace, title), place, dark=arguments.dark)
    except (OSError, ValueError, ImportError) as error:
        return report_failure(error, redacted(arguments.path), as_json=arguments.json)
    overflows = trace.overflows()
    if arguments.json:
        shown = None if out is None else redacted(out)
        found = {"path": redacted(arguments.path), **trace.summary()}
        found |= {"variables": overflows, "out": shown}
        put_exact(json_text(json_values(found)))
    elif out is None:
        show(_text(trace).split("\n"))
    else:
        say(f"{redacted(out)}: written")
    return 0


def _refuse_input(out: str, path: str) -> None:
    given, inside = Path(path), Path(path).is_dir()
    target = Path(out)
    if not target.exists():
        return
    files = [each for each in given.iterdir() if each.is_file()] if inside else [given]
    names = ("run.json", "trace.jsonl", "ranges.json")
    if any(target.samefile(each) for each in files if not inside or each.name in names):
        raise ValueError(f"{out} is the input: write elsewhere")


def _text(trace: Trace) -> str:
    width = max(_NARROW if not sys.stdout.isatty() else shutil.get_terminal_size().columns, 20)
    shown = drawing.parts(trace, _FEW, "--json shows them")
    return _encodable(terminal.to_text(shown, _WHOLE, width))


def _encodable(text: str) -> str:
    """Returns a text with bars that the encoding of stdout knows: digits where it has no blocks."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate({ord(bar): str(i) for i, bar in enumerate(terminal.BARS)})
    return text


def report(path: str, out: str | None, shown: str) -> None:
    """Writes the HTML report of a run.

    Args:
        path: Of the folder of the run, or of its trace.
        out: Of the page.
        shown: The folder as users wrote it, for messages.

    Raises:
        ValueError: If it is no run, or `out` is None.
    """
    folder = Path(path)
    if folder.is_dir() and not (folder / RUN).exists():
        raise ValueError(f"{shown}: there is neither {RUN} nor {NAME} in this folder")
    if out is None:
        raise ValueError("the report of a training run is HTML: pass -o FILE.html")
    run = RunFolder.read(path)
    _refuse_input(out, path)
    write_html_report(run, out)
