"""What an audit found: as plain data, as text, and as a file."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Self

from keras_mp.compat.results import Saved, columns, html
from keras_mp.rendering.model import Column
from keras_mp.rendering.text import pluralized, printable

Sort = Literal["code", "class", "path", "link", "size", "name"]
Verdict = Literal["nothing found", "look at it", "unreadable"]

VERDICTS: tuple[Verdict, ...] = ("nothing found", "look at it", "unreadable")


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in an untrusted artefact that needs review.

    Attributes:
        sort: "code", a Python function, byte code, a pickle, a program; "class", one that is not
            Keras'; "path", of a file, or an address; "link", to elsewhere; "size", one that is
            claimed and not stored; "name", one that is not what it looks like.
        where: The file or part of the artefact, and the place in it.
        what: What is there.
    """

    sort: Sort
    where: str
    what: str


@dataclass(slots=True)
class Audit(Saved):
    """The result of an audit.

    Attributes:
        path: What was asked for.
        kind: As `inspect` calls it, or "shards"; None where nobody knows.
        findings: What to look at; each place once.
        errors: Why it, or a part of it, cannot be read: nothing is known of that part.
    """

    _FORMAT: ClassVar[str] = "keras-mp audit"

    path: str
    kind: str | None = None
    findings: list[Finding] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """One of `VERDICTS`: "nothing found", "look at it" or "unreadable"."""
        if self.errors:
            return "unreadable"
        return "look at it" if self.findings else "nothing found"

    @property
    def status(self) -> int:
        """The same as an exit status: 0, 1 or 2."""
        return VERDICTS.index(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain JSON."""
        return {"verdict": self.verdict, **asdict(self)}

    @classmethod
    def _from_dict(cls, found: Mapping[str, Any]) -> Self:
        findings = [Finding(**each) for each in found["findings"]]
        return cls(found["path"], found["kind"], findings, list(found["errors"]))

    def __str__(self) -> str:
        text = [*lines(self), *(f"error: {error}" for error in self.errors)]
        return "\n".join(map(printable, text))

    def _repr_html_(self) -> str:
        """Returns a table for a notebook: the findings, and why parts cannot be read."""
        findings = ((each.sort, each.where, each.what) for each in self.findings)
        errors = (("error", "", error) for error in self.errors)
        heads = [Column("finding"), Column("where", "path"), Column("what", "sentence")]
        return html(f"{self.path}: {self.verdict}", (heads, [*findings, *errors]))


def lines(found: Audit) -> Iterator[str]:
    """Yields it as text, line by line, without the errors."""
    count = f": {pluralized(len(found.findings), 'finding')}" if found.findings else ""
    yield f"{found.path}: {found.verdict}{count}"
    yield from columns((f"  {each.sort}", each.where, each.what) for each in found.findings)
