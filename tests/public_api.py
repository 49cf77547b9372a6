"""The public API as text, a line for each name: the content of tests/data/api.txt.

`python tests/public_api.py` writes it. A line that is removed, or changed other than by a new
option at its end, needs a deprecation first: docs/reference/compatibility.md.
"""

import argparse
import importlib
import inspect
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "data" / "api.txt"
MODULES = (
    "keras_mp",
    "keras_mp.graph_rewrite",
    "keras_mp.monitor.tensorboard",
    "keras_mp.compat",
    "keras_mp.compat.checkpoints",
    "keras_mp.compat.configs",
    "keras_mp.compat.inspecting",
    "keras_mp.compat.layers",
    "keras_mp.compat.optimizers",
    "keras_mp.migration",
    "keras_mp.migration.fleet",
)


def lines() -> Iterator[str]:
    """Yields the API; needs keras, and is the same on every backend."""
    from keras_mp.compat.names import NAMES
    from keras_mp.migration.parser import parser

    for name in MODULES:
        module = importlib.import_module(name)
        for each in sorted(_public(module)):
            yield from _of(f"{name}.{each}", getattr(module, each))
    for old, ours in sorted(NAMES.items()):
        yield f"{old} -> {ours.rpartition(':')[2]}"  # its module is not public
    yield from _of_command("keras-mp", parser())


def _public(module: Any) -> list[str]:
    """Returns `__all__`, or the names that a module without one defines."""
    mine = [name for name, value in vars(module).items() if _home(value) == module.__name__]
    return getattr(module, "__all__", [name for name in mine if not name.startswith("_")])


def _home(value: Any) -> str:
    return getattr(value, "__module__", "") if callable(value) else ""


def _of(path: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value):
        yield f"{path} (module)"
    elif inspect.isclass(value):
        # Python 3.11.2 takes the signature of Keras' __new__ from a class.
        own = types.MethodType(value.__init__, value)
        yield path + (_signature(own) if _is_ours(value, "__init__") else " (class)")
        for name in sorted(dir(value)):
            public = not name.startswith("_")
            if public and _is_ours(value, name):
                member = inspect.getattr_static(value, name)
                if isinstance(member, (staticmethod, classmethod)):
                    member = member.__func__
                kind = _signature(member) if inspect.isfunction(member) else ""
                yield f"{path}.{name}{kind}"
    elif callable(value):
        yield path + _signature(value)
    else:
        yield f"{path}: {type(value).__name__}"


def _is_ours(cls: type, name: str) -> bool:
    """Returns whether a class of ours defines this, not one of Keras."""
    home = next((each for each in cls.__mro__ if name in vars(each)), None)
    return home is not None and home.__module__.startswith("keras_mp")


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _of_command(path: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in sorted(action.choices.items()):
                yield from _of_command(f"{path} {name}", command)
        elif action.help != argparse.SUPPRESS:
            names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            choices = f" {{{', '.join(map(str, action.choices))}}}" if action.choices else ""
            yield f"{path} {names}{choices}"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    FILE.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
