"""What became of a file of source code: what was found in it, and its bytes before and after."""

from dataclasses import dataclass
from pathlib import Path

# Line, column and rule of a finding in a program.
Spot = tuple[int, int, str]

REWRITTEN, PERSON, KEPT = "rewritten", "manual", "kept"
NOQA, BASELINE = "noqa", "baseline"


@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column, from 1; in a notebook also the cell, from 1, of all kinds.

    >>> str(Place(3, 5)), str(Place(3, 5, cell=2))
    ('3:5', 'cell 2:3:5')
    """

    line: int
    column: int
    cell: int | None = None

    def __str__(self) -> str:
        where = f"{self.line}:{self.column}"
        return where if self.cell is None else f"cell {self.cell}:{where}"


@dataclass(frozen=True, slots=True)
class Found:
    """Something in a file that has to do with mixed precision.

    Attributes:
        line, column: Where, in the file as it was; from 1.
        rule: "KMP001" and so on, see `keras_mp.migration.rules`.
        verdict: "rewritten"; "manual", who must look at it; "kept", which is right as it is.
        source: The line, as it was, stripped.
        message: Why, or what to do.
        suppressed: By what it is left alone: "noqa" or "baseline"; "" if it is not. The verdict is
            what it would be without.
        cell: Of a notebook, see `Place`.
    """

    line: int
    column: int
    rule: str
    verdict: str
    source: str
    message: str
    suppressed: str = ""
    cell: int | None = None

    @property
    def place(self) -> Place:
        """Where, in the file as it was."""
        return Place(self.line, self.column, self.cell)

    @property
    def spot(self) -> Spot:
        """Its line, column and rule."""
        return self.line, self.column, self.rule

    @property
    def stands(self) -> bool:
        """Whether it calls for something, and nothing suppresses it."""
        return self.verdict != KEPT and not self.suppressed

    def to_dict(self) -> dict[str, object]:
        """Returns its part of the --json report."""
        return {
            "cell": self.cell,
            "line": self.line,
            "column": self.column,
            "rule": self.rule,
            "verdict": self.verdict,
            "source": self.source,
            "message": self.message,
            **({"by": self.suppressed} if self.suppressed else {}),
        }


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file could not be migrated.

    Attributes:
        message: What is wrong.
        place: Where, if it is a place.
        trace: Of an error that nobody expected.
    """

    message: str
    place: Place | None = None
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done with a file. Nothing is, until `applying.write` does it.

    Attributes:
        path: The file.
        before: Its bytes; b"" where they are not of interest: nothing was found.
        after: What they are to be.
        findings: In the order of their places.
        suppressed: What was found, too, and is left alone as the user said, in the same order.
        failure: Why it is left as it is.
    """

    path: Path
    before: bytes = b""
    after: bytes = b""
    findings: tuple[Found, ...] = ()
    suppressed: tuple[Found, ...] = ()
    failure: Failure | None = None

    @property
    def changes(self) -> bool:
        """Whether something is to be written."""
        return self.before != self.after

    @property
    def needs_review(self) -> bool:
        """Whether somebody must look at it."""
        return any(found.verdict == PERSON for found in self.findings)


class Failed(Exception):
    """A file cannot be migrated, and stays as it is."""

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.failure = Failure(message, place)
