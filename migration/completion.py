"""`keras-mp completion`: a script with which a shell completes the command, by shtab.

A shell reads the script once and starts no Python to complete a word. That is why it is shtab:
argcomplete starts the command at each press of the key.
"""

import argparse
from collections.abc import Iterator

from keras_mp.migration.console import put_exact, say_error
from keras_mp.migration.parser import PATHS, parser

NEEDED = "completion needs shtab, which is not installed: pip install 'keras-mp[completion]'"


def run(arguments: argparse.Namespace) -> int:
    """Prints the script for a shell; returns 0, or 2 where shtab is not installed."""
    try:
        import shtab  # only for this: the command need not wait for it
    except ModuleNotFoundError as error:
        if error.name != "shtab":
            raise
        say_error("", NEEDED)
        return 2
    parsing = parser()
    for action in _actions(parsing):
        if action.dest in PATHS and action.choices is None:
            folder = action.dest == "scratch"
            setattr(action, "complete", shtab.DIRECTORY if folder else shtab.FILE)  # noqa: B010
    put_exact(shtab.complete(parsing, shell=arguments.shell))
    return 0


def _actions(parsing: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parsing._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
