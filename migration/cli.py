"""The `keras-mp` command: parse, call, print, return a number.

Loads neither keras nor a framework by itself: `keras-mp --help` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from keras_mp.compat.names import find
from keras_mp.migration.console import drop_output, say
from keras_mp.migration.kinds import kind_of_path
from keras_mp.migration.parser import (
    parser,
    refuse_combinations,
    refuse_options_of_artefacts,
    refuse_options_of_sources,
    settle_addresses,
    settle_format,
)

# Command -> the function that does it, in a module that is imported only for it.
_COMMANDS = {
    "bench": "benching:run",
    "completion": "completion:run",
    "inspect": "inspecting:run",
    "plot": "training_runs:plot",
    "record-script": "record_script:run",
    "report": "reporting:report",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 (done, or nothing to do), 1 (--check: would change), 2 (could not).

    Two more as shells have it: 130 after Ctrl-C, 141 when the reader of stdout went away.
    """
    try:
        code = _run(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        if str(interrupt):
            say(str(interrupt))
        return 130
    except BrokenPipeError:
        drop_output()
        return 141
    except OSError as error:
        drop_output()
        say(f"error: {error}")
        return 2
    return code


def _run(argv: list[str]) -> int:
    if argv[:1] == ["demo"]:
        from keras_mp.demo import main as demo

        return demo(argv[1:])
    if not argv:
        parser().print_help(sys.stderr)
        return 2
    try:
        parsing = parser()
        arguments = parsing.parse_args(argv)
        settle_addresses(arguments, getattr(arguments, "refuse", parsing.error))
        if arguments.command == "migrate":
            return _migrate(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return _call(_COMMANDS[arguments.command], arguments)


def _call(home: str, arguments: argparse.Namespace) -> int:
    run: Any = find(f"keras_mp.migration.{home}")
    return int(run(arguments))


def _migrate(arguments: argparse.Namespace) -> int:
    settle_format(arguments)
    kinds = {kind_of_path(path, arguments.kind) for path in arguments.paths}
    refuse_combinations(arguments, kinds)
    if kinds == {"config"}:
        refuse_options_of_artefacts(arguments, "configs")
        refuse_options_of_sources(arguments, "configs")
        return _call("configs:migrate", arguments)
    if kinds == {"source"}:
        refuse_options_of_artefacts(arguments, "source code")
    elif kinds == {"artefact"}:
        refuse_options_of_sources(arguments, "artefacts")
    return _call("running:run", arguments)
