"""A Python file as text and back, to the byte: encoding, byte order mark, line ends.

Knows bytes, not disks: `planning.py` reads, and `applying.py` writes.
"""

import codecs
import io
import re
import tokenize
from dataclasses import dataclass
from itertools import islice

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?")


class Undecodable(ValueError):
    """The bytes are not text in the encoding that they declare; its text says why."""


@dataclass(frozen=True, slots=True)
class Decoded:
    r"""The text of a file.

    Attributes:
        text: Without a byte order mark; line ends as they are.
        encoding: What its first two lines declare (PEP 263), or "utf-8".
        mark: The byte order mark, or b"".

    >>> decoded = decode(b"# coding: latin-1\r\nname = '\xe9'")
    >>> decoded.text, decoded.encoding
    ("# coding: latin-1\r\nname = 'é'", 'iso-8859-1')
    >>> decoded.encode(decoded.text.replace("name", "n"))
    b"# coding: latin-1\r\nn = '\xe9'"
    """

    text: str
    encoding: str
    mark: bytes

    def encode(self, text: str) -> bytes:
        """Returns the bytes of another text, as this one was.

        Raises:
            Undecodable: It holds what the encoding has not.
        """
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise Undecodable(f"{error.object[error.start]!r} is not in {self.encoding}") from None
        except UnicodeError as error:
            raise Undecodable(f"not in {self.encoding}: {error}") from None


def decode(data: bytes) -> Decoded:
    """Returns the text of a Python file, so that `encode` gives the same bytes.

    Raises:
        Undecodable: Its encoding is not known, or it is not in that encoding.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    # Lines may end in a carriage return alone, which tokenize does not take for an end.
    first = [line[0].rstrip(b"\r\n") + b"\n" for line in islice(_LINE.finditer(data), 2)]
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(b"".join(first)).readline)[0]
    except SyntaxError as error:
        raise Undecodable(_first_lines(data, error)) from None
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    body = data[len(mark) :]
    try:
        decoded = Decoded(body.decode(encoding), encoding, mark)
    except UnicodeDecodeError as error:
        raise Undecodable(_not(encoding, error, len(mark))) from None
    except UnicodeError as error:
        raise Undecodable(f"not {encoding}: {error}") from None
    except LookupError:
        raise Undecodable(f"{encoding} is not a text encoding") from None
    if decoded.encode(decoded.text) != data:
        raise Undecodable(f"its text in {encoding} does not give the same bytes again")
    return decoded


def lines_of(text: str) -> list[str]:
    r"""Returns the lines as Python has them, with their ends: form feeds end none.

    >>> lines_of("a\r\nb\rc\fd\n\n")
    ['a\r\n', 'b\r', 'c\x0cd\n', '\n']
    """
    return [line for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)?", text) if line]


def _first_lines(data: bytes, error: SyntaxError) -> str:
    try:
        data.decode("utf-8-sig")
    except UnicodeDecodeError as found:
        if "unknown encoding" not in str(error):
            return _not("utf-8", found, 0)
    return str(error.msg)


def _not(encoding: str, error: UnicodeDecodeError, before: int) -> str:
    return f"not {encoding}: byte {before + error.start} is {error.object[error.start]:#04x}"
