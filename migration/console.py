"""How the command speaks: results on stdout, everything else on stderr."""

import contextlib
import json
import os
import sys
from typing import TextIO


def say(text: str) -> None:
    """Writes a line on stderr."""
    sys.stderr.write(_writable(f"keras-mp: {text}\n", sys.stderr.encoding))


def put(text: str, to: TextIO | None = None) -> None:
    """Writes lines, on stdout; what is not to be encoded, such as odd file names, is escaped."""
    stream = sys.stdout if to is None else to
    stream.write(_writable(text, stream.encoding))


def put_bytes(data: bytes) -> None:
    """Writes bytes on stdout, whatever its encoding is."""
    sys.stdout.flush()
    if (buffer := getattr(sys.stdout, "buffer", None)) is not None:
        buffer.write(data)
        buffer.flush()
    else:
        sys.stdout.write(data.decode("utf-8", "backslashreplace"))


def dumped(value: object) -> str:
    """Returns JSON as the command prints and writes it.

    Raises:
        ValueError: It holds NaN or Infinity, which JSON does not know.
    """
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


def finite(value: object) -> object:
    """Returns a value with NaN and Infinity as text, which JSON does not know as numbers."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value


def missing(error: ImportError) -> str:
    """Returns what is not installed, and what to do about it, on one line."""
    return " ".join([str(error).removesuffix(".") + ".", *getattr(error, "__notes__", ())])


def failed(error: Exception, path: str, *, as_json: bool) -> int:
    """Says what could not be done with a path, on one line, and for --json on stdout; returns 2."""
    text = missing(error) if isinstance(error, ImportError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename or path}: {error.strerror}"
    if as_json:
        put(dumped({"path": path, "error": text}))
    say(f"error: {text}")
    return 2


def printable(text: str) -> str:
    """Returns a text without what steers a terminal.

    >>> print(printable("a\x1b[2J"))
    a\\x1b[2J
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def drop_output() -> None:
    """Sends what is still to be written to stdout nowhere."""
    # Python flushes stdout once more at its end, and would complain there.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(rows: list[tuple[str, ...]]) -> str:
    """Returns rows in columns, as wide as they must be.

    >>> print(table([("a", "1"), ("long", "2")]))
    a     1
    long  2
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _writable(text: str, encoding: str | None) -> str:
    name = encoding or "utf-8"
    return text.encode(name, "backslashreplace").decode(name)
