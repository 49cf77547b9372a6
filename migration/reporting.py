"""`keras-mp report`: of a migration as text, JSON or a page; a run of training is for `showing`."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from keras_mp.files.stores.urls import redacted
from keras_mp.migration import runs
from keras_mp.migration.console import dumped, failed, put_exact, say, show, table
from keras_mp.migration.ledger import NAME, RESULTS
from keras_mp.migration.ledger_page import write_ledger_page
from keras_mp.migration.ledger_reading import Row, find_ledger, read_ledger
from keras_mp.migration.ledger_summary import Counts, Summary, summary
from keras_mp.migration.parser import scratch_of
from keras_mp.rendering.text import duration, pluralized, printable, shortened, size

_FEW = 5
_ROOM = 60


def report(arguments: argparse.Namespace) -> int:
    """Shows a migration, or a run; returns 0, or 2 where that cannot be done."""
    out, shown = arguments.out, redacted(arguments.path)
    scratch = scratch_of(arguments)
    try:
        with (
            runs.staged(arguments.path, scratch) as path,
            runs.output(out, scratch) as place,
        ):
            file = find_ledger(path)
            if file is None:
                _of_training(path, place, shown, as_json=arguments.json)
            else:
                _of_migration(file, place, arguments)
    except (OSError, ValueError) as error:
        return failed(error, shown, as_json=arguments.json)
    if out is not None:
        say(f"{redacted(out)}: written")
    return 0


def _of_migration(file: Path, out: str | None, arguments: argparse.Namespace) -> None:
    ledger = read_ledger(file)
    if out is not None:
        if Path(out).exists() and file.samefile(out):
            raise ValueError(f"{out} is the input: write elsewhere")
        write_ledger_page(ledger, file.resolve().parent.name, out)
    if arguments.json:
        shown = {"out": None if out is None else redacted(arguments.out)}
        put_exact(dumped({"path": redacted(arguments.path), **summary(ledger).as_dict(), **shown}))
    elif out is None:
        show(_lines(summary(ledger)))


def _of_training(path: str, out: str | None, shown: str, *, as_json: bool) -> None:
    from keras_mp.migration import showing
    from keras_mp.monitor.run_folder import RUN

    if as_json:
        raise ValueError("--json is for a migration: a run of training has run.json")
    folder = Path(path)
    if folder.is_dir() and not (folder / RUN).exists():
        raise ValueError(f"{shown}: there is neither {RUN} nor {NAME} in this folder")
    if out is None:
        raise ValueError("of a run of training the report is a page: say -o FILE.html")
    showing.write_report(path, out)


def _lines(found: Summary) -> Iterator[str]:
    rate = found.bytes_per_second
    speed = "" if rate is None else f", {size(rate)}/s"
    yield from table(
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
        yield what
        for row in each.examples:
            yield f"  {row.name}: {row.said or 'it does not say why'}"
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
    yield from table(
        [(caption, *shown), *(_count(name, each, shown) for name, each in counts.items())]
    )


def _count(name: str, counts: Mapping[str, int], shown: Sequence[str]) -> tuple[str, ...]:
    return (name, *(f"{counts.get(result, 0):,}" for result in shown))


def _top(caption: str, shown: Sequence[tuple[Row, str]]) -> Iterator[str]:
    if not shown:
        return
    yield ""
    rows = [(shortened(printable(row.name), _ROOM), value) for row, value in shown[:_FEW]]
    yield from table([(caption, ""), *rows])
