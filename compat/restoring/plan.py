"""Plans all assignments of a file to variables, checks them, and only then makes them.

So a checkpoint that fits in part, or is damaged in its last tensor, changes nothing. Each value is
read twice for that, to check it and to assign it: a plan needs the memory of one. Small ones, whose
reading takes longer to begin than to do, are kept in between, up to 16 MB.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from keras_mp.compat.configs import Change
from keras_mp.compat.file_formats.values import Array, Value
from keras_mp.compat.restoring.comparison import Comparison
from keras_mp.compat.results import Saved, html
from keras_mp.rendering.model import Column
from keras_mp.rendering.text import pluralized, printable

SHOWN = 16  # digits of a checksum that a report has
_SMALL, _KEPT = 1 << 16, 1 << 24  # bytes


class RestoreError(ValueError):
    """A file does not fit the model or the optimizer. Nothing was changed.

    Attributes:
        unused: Keys of the file that nothing took.
        missing: Paths of variables that the file has no value for.
        demanded: Whether the part that does not fit was asked for by its path.

    >>> raise RestoreError("ckpt-1", ["model/extra"], ["dense/kernel"])
    Traceback (most recent call last):
    keras_mp.compat.restoring.plan.RestoreError: ckpt-1 does not fit; nothing was restored (with \
strict=False, what fits would be).
    in the file, but not used (1):
      model/extra
    not in the file (1):
      dense/kernel
    """

    def __init__(
        self, file: str, unused: list[str], missing: list[str], demanded: bool = False
    ) -> None:
        super().__init__(file, unused, missing, demanded)
        self.file = file
        self.unused = unused
        self.missing = missing
        self.demanded = demanded

    def __str__(self) -> str:
        advice = "" if self.demanded else " (with strict=False, what fits would be)"
        lines = [f"{printable(self.file)} does not fit; nothing was restored{advice}."]
        for title, names in (
            ("in the file, but not used", self.unused),
            ("not in the file", self.missing),
        ):
            if names:
                lines += [f"{title} ({len(names)}):", *(f"  {printable(name)}" for name in names)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Restored:
    """A row of the report.

    Attributes:
        source: Key in the file.
        target: Path of the variable, or the name of a setting.
        shape: Of both.
        dtype: Of the variable.
        sha256: Of the little-endian bytes of what was assigned; the first 16 digits.
    """

    source: str
    target: str
    shape: tuple[int, ...]
    dtype: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file has a weight, and its slots, where that is not how the model has it.

    Attributes:
        shape: Of the stored array.
        convert: Returns an array as the model has it.
    """

    shape: tuple[int, ...]
    convert: Callable[[Array], Array]


@dataclass(slots=True)
class Plan:
    """The assignments that a file asks for.

    Args:
        file: For messages.
        layouts: By the id of a weight.
        demanded: Whether something unused or missing is an error, strict or not.
    """

    file: str
    assignments: list[tuple[Value, Any]] = field(default_factory=list)
    settings: list[tuple[Value | None, Any, str, Any]] = field(default_factory=list)
    calls: list[tuple[Value, str, Callable[[], None]]] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    layouts: dict[int, Layout] = field(default_factory=dict)
    demanded: bool = False
    _planned: set[int] = field(default_factory=set)
    _kept: int = 0

    def assign(self, value: Value, variable: Any) -> None:
        """Plans `variable.assign(value)`; a value of another shape is not used."""
        array = value.array
        if array.dtype.kind == "O":
            self.unused.append(f"{value.source}: is text, but {_path(variable)} holds numbers")
            return
        if tuple(array.shape) != tuple(variable.shape):
            self.unused.append(
                f"{value.source}: of shape {tuple(array.shape)}, but {_path(variable)} is of "
                f"shape {tuple(variable.shape)}"
            )
            return
        if (becomes := _becomes(array, _dtype(variable))) is not None:
            self.notes.append(
                f"{value.source} is {array.dtype} in the file and {becomes} as {variable.dtype}"
            )
        if array.nbytes <= min(_SMALL, _KEPT - self._kept):
            self._kept += array.nbytes
            value = Value.of(value.source, array)
        self.assignments.append((value, variable))
        self._planned.add(id(variable))

    def stored_shape(self, variable: Any) -> tuple[int, ...]:
        """Returns the shape in which the file should have a weight, and each of its slots."""
        layout = self.layouts.get(id(variable))
        return tuple(variable.shape) if layout is None else layout.shape

    def laid_out(self, value: Value, variable: Any) -> Value:
        """Returns what is stored of a weight, or of its slot, as the model has it."""
        layout = self.layouts.get(id(variable))
        return value if layout is None else value.mapped(layout.convert)

    def misfit(self, source: str, shape: tuple[int, ...], variable: Any) -> None:
        """Notes that a value, which is not read, has another shape than its variable."""
        there = f"{shape} in the file, {tuple(variable.shape)} in the model"
        self.unused.append(f"{source}: {there}, for {_path(variable)}")

    def set(self, value: Value | None, owner: Any, name: str, new: Any) -> None:
        """Plans `owner.name = new`, for what is no variable in Keras 3.

        With None for the value it comes from no key of the file, and has no row in the report.
        """
        self.settings.append((value, owner, name, new))

    def call(self, value: Value, target: str, restore: Callable[[], None]) -> None:
        """Plans `restore()`, which takes the value over; `target` is its name in the report."""
        self.calls.append((value, target, restore))

    def note(self, text: str) -> None:
        """Notes what the user should know."""
        if text not in self.notes:
            self.notes.append(text)

    def lose(self, text: str) -> None:
        """Notes what files of this kind never hold."""
        if text not in self.lost:
            self.lost.append(text)

    def has_value_for(self, variable: Any) -> bool:
        """Returns whether a value for `variable` is planned."""
        return id(variable) in self._planned

    def run(self, *, strict: bool) -> "RestoreReport":
        """Makes all assignments.

        Args:
            strict: Whether anything that is unused or missing is an error; it is where `demanded`.

        Raises:
            RestoreError: See `strict`. Nothing is done then.
            Unreadable: The file was changed, or its disk failed, since it was checked: the one way
                to end in between.
        """
        if (strict or self.demanded) and (self.unused or self.missing):
            raise RestoreError(self.file, self.unused, self.missing, demanded=self.demanded)
        rows = [_called(*call) for call in self.calls]  # first: Keras may refuse what they bring
        rows += [_assigned(value, variable) for value, variable in self.assignments]
        for _, owner, name, new in self.settings:
            setattr(owner, name, new)
        return RestoreReport(
            self.file,
            tuple(rows)
            + tuple(_setting(value, name, new) for value, _, name, new in self.settings if value),
            tuple(self.unused),
            tuple(self.missing),
            tuple(self.notes),
            tuple(self.lost),
        )


@dataclass(frozen=True, slots=True)
class RestoreReport(Saved):
    """What `load_model`, `load_weights` and `restore` restored, and what not.

    Attributes:
        file: From where.
        rows: Each value, and where it went.
        unused: Keys that nothing took (with `strict=False`).
        missing: Variables that kept their value (with `strict=False`).
        notes: What the file could not tell, and what was taken instead.
        lost: State that files of its kind never hold, and where it is to be had.
        changes: What is not in the model's config as it was, where a model was loaded.
        comparison: How far the model of a SavedModel computes what its graphs do; None where
            nothing was compared.
    """

    _FORMAT: ClassVar[str] = "keras-mp restore report"

    file: str
    rows: tuple[Restored, ...]
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    lost: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    comparison: Comparison | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain JSON."""
        return {
            "file": self.file,
            "restored": [
                {
                    "from": row.source,
                    "to": row.target,
                    "shape": list(row.shape),
                    "dtype": row.dtype,
                    "sha256": row.sha256,
                }
                for row in self.rows
            ],
            "unused": list(self.unused),
            "missing": list(self.missing),
            "notes": list(self.notes),
            "lost": list(self.lost),
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }

    @classmethod
    def _from_dict(cls, found: Mapping[str, Any]) -> Self:
        return cls(
            found["file"],
            tuple(
                Restored(row["from"], row["to"], tuple(row["shape"]), row["dtype"], row["sha256"])
                for row in found["restored"]
            ),
            changes=tuple(Change(**change) for change in found["changes"]),
            comparison=None
            if (said := found["comparison"]) is None
            else Comparison.from_dict(said),
            **{name: tuple(found[name]) for name in ("unused", "missing", "notes", "lost")},
        )

    def _repr_html_(self) -> str:
        """Returns two tables for a notebook: what went where, and what else to know."""
        rows = (
            (row.source, row.target, row.dtype, str(list(row.shape)), row.sha256)
            for row in self.rows
        )
        heads = [Column("in the file", "path"), Column("in the model", "path")]
        heads += map(Column, ("dtype", "shape", "sha256"))
        title = f"{self.file}: {pluralized(len(self.rows), 'value')} restored"
        return html(
            title, (heads, rows), ([Column("about"), Column("what", "sentence")], self._remarks())
        )

    def _remarks(self) -> Iterator[tuple[str, str]]:
        """Yields (subject, text) of what the reader should know besides the rows."""
        for subject, texts in (
            ("unused", self.unused),
            ("missing", self.missing),
            ("note", self.notes),
            ("lost", self.lost),
        ):
            yield from ((subject, text) for text in texts)
        yield from (("config", str(change)) for change in self.changes if change.matters)
        if self.comparison is not None:
            texts = (self.comparison.agreement(), *self.comparison.remarks())
            yield from (("compared", text) for text in texts if text)

    def __str__(self) -> str:
        widths = [
            max((len(getattr(row, name)) for row in self.rows), default=0)
            for name in ("source", "target")
        ]
        lines = [
            f"{row.source:{widths[0]}}  {row.target:{widths[1]}}  "
            f"{row.dtype}{list(row.shape)}  {row.sha256}"
            for row in self.rows
        ]
        lines += [f"{subject}: {text}" for subject, text in self._remarks()]
        return "\n".join(map(printable, lines))


def checksum(array: Array) -> str:
    """Returns the SHA-256 of the little-endian bytes of an array.

    >>> checksum(np.zeros((), "int32"))[:16]
    'df3f619804a92fdb'
    """
    little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    return hashlib.sha256(little.reshape(-1).view("uint8").data).hexdigest()


def digest(array: Array) -> str:
    """Returns what a report says of the bytes of an array: 16 digits of their checksum."""
    return checksum(array)[:SHOWN]


def _assigned(value: Value, variable: Any) -> Restored:
    array = _cast(value.array, _dtype(variable))
    variable.assign(array)
    shape = tuple(array.shape)
    return Restored(value.source, _path(variable), shape, str(array.dtype), digest(array))


def _called(value: Value, target: str, restore: Callable[[], None]) -> Restored:
    restore()
    array = value.array
    dtype = "string" if array.dtype.kind == "U" else str(array.dtype)
    return Restored(value.source, target, tuple(array.shape), dtype, digest(array))


def _cast(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # which is said in words
        return array.astype(dtype, copy=False)


def _becomes(array: Array, dtype: np.dtype[Any]) -> str | None:
    """Returns what is lost of values in another dtype; None where nothing is.

    >>> _becomes(np.array([0.1, 1e300]), np.dtype("float32"))
    'becomes inf in part'
    >>> _becomes(np.array(0.1), np.dtype("float32")), _becomes(np.array(0.5), np.dtype("float32"))
    ('loses digits', None)
    """
    if array.dtype == dtype:
        return None
    back = _cast(array, dtype).astype(array.dtype)
    if np.array_equal(back, array, equal_nan=dtype.kind in "fc"):
        return None
    if array.dtype.kind != "f" or not np.any(grown := np.isinf(back) & np.isfinite(array)):
        return "loses digits"
    return "becomes inf" if np.all(grown) else "becomes inf in part"


def _setting(value: Value, name: str, new: Any) -> Restored:
    return Restored(value.source, name, (), type(new).__name__, digest(np.asarray(new)))


def _path(variable: Any) -> str:
    path: str = getattr(variable, "path", variable.name)
    return path


def _dtype(variable: Any) -> np.dtype[Any]:
    if variable.dtype == "bfloat16":
        import ml_dtypes  # adds the dtype to NumPy; Keras itself requires it

        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    return np.dtype(str(variable.dtype))
