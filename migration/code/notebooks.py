"""A notebook as one program, and its changed cells put back into the file; no other byte changes.

The code cells are joined, as what one imports the next one knows. A cell that is not Python is left
out; its place in the file, and in the findings, is that of the notebook.
"""

import codecs
import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from json import JSONDecodeError, JSONDecoder
from typing import Any

from keras_mp.migration.code.files import lines_of
from keras_mp.migration.code.findings import KEPT, NOQA, PERSON, Failed, Failure, Found, Place
from keras_mp.migration.code.magics import mask, masked_width, parts_of, unmask
from keras_mp.migration.code.rewriting import Result
from keras_mp.migration.code.suppressing import is_suppressed
from keras_mp.migration.code.syntax import syntax_error

NOT_READ = "KMP016"
_SHELL = "skipped: this line is not Python; rewrite it by hand"
_COMMAND = "a command, with options of its own"
_HELP = "a question for help: optimizers of keras_mp have it, too"
_QUESTION = re.compile(r"\?{0,2}[\w.]+\.(loss_scale|get_(scaled_loss|unscaled_gradients))\?{0,2}$")
_OF_TENSORFLOW = re.compile(r"\b(tf|tensorflow|keras|tf_keras)\.|TF_ENABLE_AUTO|LossScaleOptimizer")
_CELL = "skipped: this cell is not Python of this notebook; migrate its code separately"


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell.

    Attributes:
        number: From 1, among the cells of all kinds.
        start: Where in the file its "source" begins,
        end: and ends.
        source: That: one string, or one a line.
    """

    number: int
    start: int
    end: int
    source: str | list[str]

    @property
    def text(self) -> str:
        return "".join(self.source)


def rewrite(
    data: bytes, program: Callable[[str], Result], concerns: Callable[[bytes], bool]
) -> tuple[bytes, tuple[Found, ...]]:
    """Returns the bytes of a notebook with its program rewritten, and what was found in it.

    Args:
        data: The file.
        program: Rewrites a program, or raises Failed.
        concerns: Whether something may be found in bytes.

    Raises:
        Failed: It is no notebook of nbformat 4, or a cell that concerns us is no Python.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        file = data[len(mark) :].decode()
    except UnicodeDecodeError as error:
        raise Failed(f"not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None
    cells = code_cells(file)
    if not cells:
        return data, ()
    joined = _Joined(cells, concerns)
    try:
        result = program(joined.text)
    except Failed as error:
        place = joined.place_of(error.failure, program)
        raise Failed(error.failure.message, place) from None
    findings = (*joined.findings, *map(joined.found, result.findings))
    changed = []
    for cell, text in zip(cells, joined.split(result.text), strict=True):
        if text != cell.text:
            changed.append((cell, _dumped(file, cell, text)))
    for cell, source in reversed(changed):
        file = file[: cell.start] + source + file[cell.end :]
    order = sorted(findings, key=lambda f: (f.cell, f.line, f.column))
    return mark + file.encode(), tuple(order)


class _Joined:
    """Cells as one program, with a comment after each where they meet."""

    def __init__(self, cells: list[Cell], concerns: Callable[[bytes], bool]) -> None:
        self._cells, self._concerns = cells, concerns
        self._token = f"keras-mp {secrets.token_hex(8)}"
        self._headers: list[str] = []
        self._bodies: list[str] = []
        self.findings: list[Found] = []
        for cell in cells:
            parts = parts_of(cell.text)
            header, body = parts.header, parts.body
            why = _SHELL if body is not None else _CELL
            masked = "" if body is None else mask(body, self._token)
            if (error := syntax_error(masked)) is not None:
                if concerns(_bytes(cell.text)):
                    raise Failed(f"does not parse: {error.msg}", _place(error, cell, header))
                header, masked = cell.text, ""
            self._headers.append(header)
            self._bodies.append(masked)
            for number, line in enumerate(lines_of(header), 1):
                if concerns(_bytes(line)):
                    said = line.strip(), why, _suppressed(line)
                    found = Found(number, 1, NOT_READ, PERSON, *said, cell=cell.number)
                    self.findings.append(found)
        self.text = "".join(f"{body}\n# {self._token}\n" for body in self._bodies)
        counts = (len(lines_of(f"{body}\n")) + 1 for body in self._bodies)
        self._starts = list(accumulate(counts, initial=0))
        self._lines = lines_of(self.text)

    def place(self, line: int, column: int) -> tuple[Place, str]:
        """Returns where in the notebook a place of the program is, and the line there."""
        i = min(bisect_right(self._starts, line - 1) - 1, len(self._cells) - 1)
        cell, shift = self._cells[i], len(lines_of(self._headers[i])) - self._starts[i]
        lines, width = lines_of(cell.text), masked_width(self._lines[line - 1], self._token)
        number = min(line + shift, len(lines))
        return Place(number, max(1, column - width), cell.number), lines[number - 1].strip()

    def place_of(self, failure: Failure, program: Callable[[str], Result]) -> Place | None:
        """Returns where a failure is: if at the first place, the cell that fails so by itself."""
        if failure.place == Place(1, 1):
            # With such a word: a text without one would not be parsed.
            word = next((line for line in self._lines if self._concerns(_bytes(line))), "")
            for cell, header, body in zip(self._cells, self._headers, self._bodies, strict=True):
                try:
                    program(f"{body}\n# {word.strip()}\n")
                except Failed as error:
                    if error.failure == failure:
                        return Place(1 + len(lines_of(header)), 1, cell.number)
        return failure.place and self.place(failure.place.line, failure.place.column)[0]

    def found(self, finding: Found) -> Found:
        place, source = self.place(finding.line, finding.column)
        result = replace(
            finding, line=place.line, column=place.column, cell=place.cell, source=source
        )
        if finding.verdict == KEPT and masked_width(self._lines[finding.line - 1], self._token):
            is_command = self._command(finding.line).lstrip().startswith("!")
            if is_command and not _OF_TENSORFLOW.search(source):
                return replace(result, message=_COMMAND)
            if _QUESTION.match(source):
                return replace(result, message=_HELP)
            said = _suppressed(source)
            return replace(result, verdict=PERSON, message=_SHELL, suppressed=said)
        return result

    def _command(self, line: int) -> str:
        """Returns the first line of what is not Python, which backslashes may carry on."""
        while line > 1 and self._lines[line - 2].rstrip().endswith("\\"):
            line -= 1
        text = self._lines[line - 1]
        return text[masked_width(text, self._token) :]

    def split(self, text: str) -> list[str]:
        """Returns the texts of the cells, of the program as it has become."""
        marker, bodies, lines = f"# {self._token}\n", [], list[str]()
        for line in lines_of(text):
            if line == marker:
                body = "".join(lines)
                bodies.append(body.removesuffix("\n"))
                lines = []
            else:
                lines.append(line)
        if lines or len(bodies) != len(self._cells):
            raise AssertionError("the boundaries of the cells were lost")
        return [
            header + unmask(body, self._token)
            for header, body in zip(self._headers, bodies, strict=True)
        ]


def _suppressed(line: str) -> str:
    return NOQA if is_suppressed(line, NOT_READ) else ""


def _place(error: SyntaxError, cell: Cell, header: str) -> Place:
    return Place((error.lineno or 1) + len(lines_of(header)), error.offset or 1, cell.number)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# -- the file -------------------------------------------------------------------------------------


def code_cells(file: str) -> list[Cell]:
    """Returns the code cells of a notebook; none of one that is not in Python.

    Raises:
        Failed: It is no notebook of nbformat 4.
    """
    cells, values = [], dict[str, Any]()
    try:
        for name, start in _members(file, _start(file, 0)):
            if name == "cells":
                numbers = enumerate(_elements(file, start), 1)
                cells = [_cell(file, place, number) for number, place in numbers]
            else:
                values[name] = _DECODER.raw_decode(file, start)[0]
    except (ValueError, IndexError, RecursionError) as error:
        raise Failed(f"not a notebook: {_explain_error(error)}") from None
    if values.get("nbformat") != 4:
        found = values.get("nbformat", "missing")
        raise Failed(f"not a notebook of nbformat 4: $.nbformat is {found}")
    return [cell for cell in cells if cell is not None] if _is_python(values) else []


def places_in_file(data: bytes, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
    r"""Returns where in the JSON of a notebook places in its cells are: line and column, from 1.

    >>> book = b'{"nbformat": 4, "cells": [\n{"cell_type": "code", "source": "a\\n\\tb"}]}'
    >>> places_in_file(book, [Place(2, 2, cell=1)])
    {Place(line=2, column=2, cell=1): (2, 39)}
    """
    file = data.removeprefix(codecs.BOM_UTF8).decode()
    cells = {cell.number: cell for cell in code_cells(file)}
    return {place: _place_in_file(file, cells[place.cell or 0], place) for place in places}


def _place_in_file(file: str, cell: Cell, place: Place) -> tuple[int, int]:
    before = lines_of(cell.text)[: place.line - 1]
    left = sum(map(len, before)) + place.column - 1
    strings = [(cell.source, cell.start)] if isinstance(cell.source, str) else []
    if isinstance(cell.source, list):
        strings = [*zip(cell.source, _elements(file, cell.start), strict=True)]
    position = cell.start
    for text, start in strings:
        if left < len(text):
            characters = islice(_CHARACTER.finditer(file, start + 1), left)
            position = start + 1 + sum(len(one[0]) for one in characters)
            break
        left -= len(text)
    return file.count("\n", 0, position) + 1, position - file.rfind("\n", 0, position)


# Of a string in JSON; what is beyond the 16 bits of an escape takes two of them.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u.{4}|\\.|.", re.DOTALL
)
_DECODER = JSONDecoder()
_WHITE = frozenset(" \t\r\n")


def _explain_error(error: Exception) -> str:
    if isinstance(error, JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    return "it ends too early" if isinstance(error, IndexError) else str(error)


def _is_python(values: dict[str, Any]) -> bool:
    metadata = values.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        about = found.get(key)
        if isinstance(about, dict) and isinstance(about.get(name), str):
            return "python" in about[name].lower()
    return True


def _cell(file: str, start: int, number: int) -> Cell | None:
    kind, span = None, (0, 0)
    for name, place in _members(file, start):
        value, end = _DECODER.raw_decode(file, place)
        if name == "cell_type":
            kind = value
        elif name == "source":
            source, span = value, (place, end)
    if kind != "code" or span == (0, 0):
        return None
    if isinstance(source, str) or (
        isinstance(source, list) and all(isinstance(line, str) for line in source)
    ):
        return Cell(number, *span, source)
    raise ValueError(f"$.cells[{number - 1}].source must be text")


def _start(file: str, position: int) -> int:
    """Returns where the next character is that is no white space."""
    while file[position : position + 1] in _WHITE:
        position += 1
    return position


def _members(file: str, start: int) -> list[tuple[str, int]]:
    """Returns the names in the object that starts there, and where their values start."""
    return [_name(file, place) for place in _elements(file, start, "{}")]


def _name(file: str, start: int) -> tuple[str, int]:
    name, end = _DECODER.raw_decode(file, start)
    if not isinstance(name, str):
        raise JSONDecodeError("expected a name", file, start)
    return name, _start(file, _expect(":", file, _start(file, end)))


def _elements(file: str, start: int, brackets: str = "[]") -> list[int]:
    """Returns where the elements of the array, or the members of the object, start."""
    result: list[int] = []
    position = _start(file, _expect(brackets[0], file, start))
    while file[position] != brackets[1]:
        if result:
            position = _start(file, _expect(",", file, position))
        result.append(position)
        value = _name(file, position)[1] if brackets == "{}" else position
        position = _start(file, _DECODER.raw_decode(file, value)[1])
    return result


def _expect(what: str, file: str, position: int) -> int:
    if file[position] != what:
        raise JSONDecodeError(f"expected {what!r}", file, position)
    return position + 1


def _dumped(file: str, cell: Cell, text: str) -> str:
    """Returns the JSON of a cell's new text, formatted as it was."""

    def of(line: str) -> str:
        return json.dumps(line, ensure_ascii=file.isascii())

    if isinstance(cell.source, str):
        return of(text)
    whole = cell.text
    lines = text.splitlines(keepends=True)
    if cell.source != whole.splitlines(keepends=True):
        lines = [text] if cell.source == [whole] else lines_of(text)
    old = file[cell.start : cell.end]
    places = _elements(old, 0)
    ends = [_DECODER.raw_decode(old, place)[1] for place in places]
    if not places or not lines:
        return f"[{', '.join(map(of, lines))}]"
    # Lines that stay keep their own escapes, too.
    written = {
        line: old[start:end] for line, start, end in zip(cell.source, places, ends, strict=True)
    }
    between = old[ends[0] : places[1]] if len(places) > 1 else f",{old[1 : places[0]]}"
    content = between.join(written.get(line) or of(line) for line in lines)
    return f"{old[: places[0]]}{content}{old[ends[-1] :]}"
