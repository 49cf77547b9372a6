"""The backend that the command runs Keras on; chosen before keras is imported."""

import importlib.util
import json
import os
from collections.abc import MutableMapping
from pathlib import Path

CHOSEN = "Keras runs on {}, as KERAS_BACKEND is not set"
BACKENDS = ("jax", "torch", "tensorflow")  # any will do: the first that is there


class NoBackend(Exception):
    """Keras cannot run here; its text says what to install."""


def choose(environ: MutableMapping[str, str] | None = None) -> str | None:
    """Sets KERAS_BACKEND, for this process, where Keras' own choice is not installed.

    Args:
        environ: Instead of `os.environ`.

    Returns:
        What was chosen; None where nothing had to be.

    Raises:
        NoBackend: None is installed, or not the one that KERAS_BACKEND names.
    """
    environ = os.environ if environ is None else environ
    # A conversion needs little memory of a device, and others may be at work on it.
    environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    said = environ.get("KERAS_BACKEND")
    if said:
        if said in BACKENDS and not _is_installed(said):
            raise NoBackend(
                f"KERAS_BACKEND is {said}, which is not installed: pip install 'keras-mp[{said}]'"
            )
        return None
    if _is_installed(_default(environ)):
        return None
    for name in BACKENDS:
        if _is_installed(name):
            environ["KERAS_BACKEND"] = name
            return name
    raise NoBackend(
        "Keras needs jax, torch or tensorflow, and none is installed: pip install 'keras-mp[jax]'"
    )


def backend_and_note(*, is_here: bool = True) -> tuple[str, str | None]:
    """Returns (the backend that Keras runs on, a note where it had to be chosen).

    Args:
        is_here: Whether it runs on this machine, where it must be installed then.

    Raises:
        NoBackend: As of `choose`.
    """
    said = os.environ.get("KERAS_BACKEND")
    if said and not is_here:
        return said, None
    chosen = choose()
    return os.environ.get("KERAS_BACKEND") or _default(os.environ), (
        None if chosen is None else CHOSEN.format(chosen)
    )


def _default(environ: MutableMapping[str, str]) -> str:
    """Returns what Keras would take: of ~/.keras/keras.json, or else tensorflow."""
    folder = environ.get("KERAS_HOME") or str(Path("~/.keras").expanduser())
    try:
        found = json.loads(Path(folder, "keras.json").read_text(encoding="utf-8"))["backend"]
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"
    return found if isinstance(found, str) else "tensorflow"


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # ValueError: a stand-in without a spec
        return False
