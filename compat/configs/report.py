"""The changes that a conversion made to a config."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from keras_mp.compat.errors import LegacyError

UNCHANGED = "already in today's form: nothing to do"

Kind = Literal["renamed", "rewritten", "computes", "defaulted", "dropped", "differs"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the old config and the converted one.

    Attributes:
        path: Where it was, as a JSON path from the root `$`.
        kind: "renamed"; "rewritten", the same thing in other words; "computes", a TensorFlow
            operation or a Lambda layer, "name = x / 255"; "defaulted", was not there; "dropped"; or
            "differs", kept, but Keras 3 behaves otherwise.
        what: What became of it, and why.
        matters: Whether a person should read it. False where nothing that trains is other.
    """

    path: str
    kind: Kind
    what: str
    matters: bool

    def __str__(self) -> str:
        return f"{self.path} {self.kind}: {self.what}"


@dataclass(slots=True)
class Report:
    """The changes of one conversion, in the order of its paths.

    >>> report = Report()
    >>> report.add("$.config.lr", "renamed", "learning_rate")
    >>> print(*report)
    $.config.lr renamed: learning_rate
    """

    changes: list[Change] = field(default_factory=list)
    refused: list[LegacyError] = field(default_factory=list)

    def add(self, path: str, kind: Kind, what: str, *, matters: bool = False) -> None:
        """Notes a change."""
        self.changes.append(Change(path, kind, what, matters))

    def refuse(self, error: LegacyError) -> None:
        """Notes what has no counterpart; others may follow, and `checked` raises for all."""
        self.refused.append(error)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Raises for all that was refused, also where an error follows from it.

        Raises:
            LegacyError: Something was.
        """
        try:
            yield
        except LegacyError:
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        if len(self.refused) == 1:
            raise self.refused[0]
        if self.refused:
            found = f"has {len(self.refused)} layers without counterpart"
            raise LegacyError("$", found, each=tuple(self.refused))

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted config.

    Attributes:
        config: What Keras 3 serializes today; is JSON.
        changes: All that is not as it was.
        changed: Whether `config` is other than what was given.
    """

    config: dict[str, object]
    changes: tuple[Change, ...]
    changed: bool

    @classmethod
    def of(cls, today: Mapping[str, object], given: object, report: Report) -> "Converted":
        """Returns what a config became; there are no changes where it was today's already."""
        changed = today != given
        return cls(dict(today), tuple(report) if changed else (), changed)

    @property
    def notes(self) -> tuple[str, ...]:
        """The changes that matter, each once."""
        if not self.changed:
            return (UNCHANGED,)
        return tuple(dict.fromkeys(change.what for change in self.changes if change.matters))
