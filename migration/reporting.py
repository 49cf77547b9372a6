"""`keras-mp report`: a migration, or a run of training, shown."""

import argparse
import shutil
from pathlib import Path

from keras_mp.files.stores.urls import redacted
from keras_mp.migration import ledger_page, runs
from keras_mp.migration.console import json_text, put_exact, report_failure, say, show
from keras_mp.migration.ledger_reading import find_ledger, read_ledger
from keras_mp.migration.ledger_summary import summary
from keras_mp.migration.parser import scratch_of
from keras_mp.rendering import terminal

_NARROWEST = 100


def report(arguments: argparse.Namespace) -> int:
    """Shows a migration, or a run; returns 0, or 2 where that cannot be done."""
    out, shown = arguments.out, redacted(arguments.path)
    scratch = scratch_of(arguments)
    try:
        with (
            runs.local_run(arguments.path, scratch) as path,
            runs.output(out, scratch) as place,
        ):
            file = find_ledger(path)
            if file is None:
                if arguments.json:
                    raise ValueError("--json is for a migration: a run of training has run.json")
                # NumPy is imported only then.
                from keras_mp.migration import training_runs

                training_runs.report(path, place, shown)
            else:
                _of_migration(file, place, arguments)
    except (OSError, ValueError) as error:
        return report_failure(error, shown, as_json=arguments.json)
    if out is not None:
        say(f"{redacted(out)}: written")
    return 0


def _of_migration(file: Path, out: str | None, arguments: argparse.Namespace) -> None:
    ledger = read_ledger(file)
    if out is not None:
        if Path(out).exists() and file.samefile(out):
            raise ValueError(f"{out} is the input: write elsewhere")
        ledger_page.write_ledger_page(ledger, file.resolve().parent.name, out)
    if arguments.json:
        shown = {"out": None if out is None else redacted(arguments.out)}
        put_exact(
            json_text({"path": redacted(arguments.path), **summary(ledger).to_dict(), **shown})
        )
    elif out is None:
        width = max(shutil.get_terminal_size().columns, _NARROWEST)
        show(terminal.to_text(summary(ledger)._parts(), width).split("\n"))
