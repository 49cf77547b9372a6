"""`keras-mp report`: of a migration as text, JSON or a page; a run of training is for `showing`."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from keras_mp.migration.console import dumped, failed, printable, put, say, table
from keras_mp.migration.ledger_page import write_ledger_page
from keras_mp.migration.ledger_reading import FILE, RESULTS, Row, find_ledger, read_ledger
from keras_mp.migration.ledger_summary import Counts, Summary, summary
from keras_mp.rendering.text import duration, pluralized, shortened, size

_FEW = 5
_ROOM = 60


def report(arguments: argparse.Namespace) -> int:
    """Shows a migration, or a run; returns 0, or 2 where that cannot be done."""
    file = find_ledger(arguments.path)
    if file is None:
        return _of_training(arguments)
    out: str | None = arguments.out
    try:
        ledger = read_ledger(file)
        if out is not None:
            if Path(out).exists() and file.samefile(out):
                raise ValueError(f"{out} is the input: write elsewhere")
            write_ledger_page(ledger, file.resolve().parent.name, out)
    except (OSError, ValueError) as error:
        return failed(error, arguments.path, as_json=arguments.json)
    if arguments.json:
        put(dumped({"path": arguments.path, **summary(ledger).as_dict(), "out": out}))
    elif out is None:
        put("\n".join(_lines(summary(ledger))) + "\n")
    if out is not None:
        say(f"{out}: written")
    return 0


def _of_training(arguments: argparse.Namespace) -> int:
    from keras_mp.migration import showing
    from keras_mp.monitor.run_folder import RUN

    if arguments.json:
        error = ValueError("--json is for a migration: a run of training has run.json")
        return failed(error, arguments.path, as_json=True)
    folder = Path(arguments.path)
    if folder.is_dir() and not (folder / RUN).exists():
        say(f"error: {folder / RUN}: No such file or directory, and no {FILE} beside it")
        return 2
    return showing.report(arguments)


def _lines(found: Summary) -> Iterator[str]:
    rate = found.bytes_per_second
    speed = "" if rate is None else f", {size(rate)}/s"
    yield table(
        [
            ("artefacts", f"{found.artefacts:,}"),
            *((f"  {result}", f"{count:,}") for result, count in found.results.items()),
            ("size", size(found.bytes)),
            ("written", size(found.bytes_out)),
            ("time, of all processes", duration(found.seconds) + speed),
            ("done, with changes to read", f"{found.matters:,}"),
            ("ledger", _of_ledger(found)),
        ]
    )
    for each in found.refusals:
        yield ""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in each.kinds.items())
        what = f"{each.result}, {each.reason}: {each.count:,} ({kinds}), {size(each.bytes)}"
        yield printable(what)
        for row in each.examples:
            yield printable(f"  {row.name}: {row.said or 'it does not say why'}")
    for caption, counts in (
        ("kind", found.kinds),
        ("written by", found.writers),
        ("policy", found.policies),
    ):
        yield from _counts(caption, counts)
    for caption, shown in (
        ("largest", [(row, size(row.bytes or 0)) for row in found.largest]),
        ("slowest", [(row, duration(row.seconds or 0)) for row in found.slowest]),
        ("most memory", [(row, size(row.peak_memory or 0)) for row in found.most_memory]),
    ):
        yield from _top(caption, shown)


def _of_ledger(found: Summary) -> str:
    torn = f"; {pluralized(found.torn, 'torn line')}, as a killed run leaves" if found.torn else ""
    return f"{pluralized(found.lines, 'line')} of {pluralized(len(found.runs), 'run')}{torn}"


def _counts(caption: str, counts: Counts) -> Iterator[str]:
    if not counts:
        return
    shown = [result for result in RESULTS if any(result in each for each in counts.values())]
    yield ""
    yield table([(caption, *shown), *(_count(name, each, shown) for name, each in counts.items())])


def _count(name: str, counts: Mapping[str, int], shown: Sequence[str]) -> tuple[str, ...]:
    return (printable(name), *(f"{counts.get(result, 0):,}" for result in shown))


def _top(caption: str, shown: Sequence[tuple[Row, str]]) -> Iterator[str]:
    if not shown:
        return
    yield ""
    rows = [(shortened(printable(row.name), _ROOM), value) for row, value in shown[:_FEW]]
    yield table([(caption, ""), *rows])
