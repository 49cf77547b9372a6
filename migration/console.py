"""How the command speaks: results on stdout, everything else on stderr.

Nothing of an artefact reaches a terminal as it is: a name could clear the screen, or forge a line.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from typing import TextIO

from keras_mp.rendering.text import printable

SCHEMA = 1  # of what --json prints
CLOSED = "this folder cannot be read: change its permissions, or name the other folders"


def say(text: str, more: Iterable[str] = ()) -> None:
    """Writes a line on stderr, and more of the same message below it."""
    # What is below is set in: it cannot be taken for a message of its own.
    show([f"keras-mp: {text}", *(f"  {line}" for line in more)], sys.stderr)


def say_error(path: str, why: str) -> None:
    """Says what could not be done with a path, which `why`, of one line or more, may name."""
    first, *more = why.split("\n")
    is_named = printable(path) in printable(first)
    say(f"error: {first}" if is_named else f"{path}: error: {first}", more)


def say_trace(trace: str) -> None:
    """Writes a traceback on stderr."""
    say("unexpected error:", trace.rstrip().split("\n"))


def show(lines: Iterable[str], to: TextIO | None = None) -> None:
    """Writes lines, on stdout; what steers a terminal or is not to be encoded is escaped."""
    stream = sys.stdout if to is None else to
    for line in lines:
        stream.write(_writable(printable(line) + "\n", stream.encoding))


def put_exact(text: str) -> None:
    """Writes text to stdout unchanged: JSON, which is ASCII here, and escaped patches."""
    sys.stdout.write(_writable(text, sys.stdout.encoding))


def put_bytes(data: bytes) -> None:
    """Writes bytes on stdout, whatever its encoding is; never on a terminal."""
    sys.stdout.flush()
    if (buffer := getattr(sys.stdout, "buffer", None)) is not None:
        buffer.write(data)
        buffer.flush()
    else:
        sys.stdout.write(data.decode("utf-8", "backslashreplace"))


def json_text(value: object) -> str:
    """Returns JSON as the command prints and writes it.

    Raises:
        ValueError: It holds NaN or Infinity, which JSON does not know.
    """
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def missing_package(error: ImportError) -> str:
    """Returns what is not installed, and what to do about it, on one line."""
    return " ".join([str(error).removesuffix(".") + ".", *getattr(error, "__notes__", ())])


def report_failure(error: Exception, path: str, *, as_json: bool) -> int:
    """Says what could not be done with a path, on one line, and for --json on stdout; returns 2.

    Raises:
        BrokenPipeError: It is that: whoever read stdout has gone, and nothing failed.
    """
    if isinstance(error, BrokenPipeError):
        raise error
    text = missing_package(error) if isinstance(error, ImportError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename or path}: {error.strerror}"
    if as_json:
        put_exact(json_text({"path": path, "error": text}))
    say_error("", text)
    return 2


def drop_output() -> None:
    """Discards what is still to be written to stdout."""
    # Python flushes stdout once more at its end, and would complain there.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _writable(text: str, encoding: str | None) -> str:
    name = encoding or "utf-8"
    return text.encode(name, "backslashreplace").decode(name)
