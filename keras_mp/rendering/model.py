"""What a report shows, as plain data. A report makes these parts; renderers know no report."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from keras_mp.files.json_files import json_values

Style = Literal["title", "alarm", "heading", "paragraph", "item", "note", "code"]
Cells = tuple[str, ...]


class Strong(str):
    """A text that stands out in its table."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, or what `style` says; an "alarm" is a title that tells of something wrong."""

    words: str
    style: Style = "paragraph"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        head: Its head.
        style: "number"; "path", which may be shortened at its beginning and broken after slashes;
            "sentence", which may be broken into lines; "" for what must stay as it is.
        is_extra: Whether the terminal has no room for it.
    """

    head: str
    style: Literal["", "number", "path", "sentence"] = ""
    is_extra: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row is its head.

    Attributes:
        columns: Its columns.
        rows: Texts, a cell for each column.
        title: Above it.
        form: "facts" are boxes with a label and a value each; "records" have sentences, which a
            terminal shows below each other.
        most: Rows that are shown; None for all.
        rest: Where the other rows are.
        name: Its id on a page.
        values: For each row, what a program may read from a page: `data-` attributes.
        sections: Titles above rows, by the number of the row.
    """

    columns: Sequence[Column]
    rows: Sequence[Cells]
    title: str = ""
    form: Literal["table", "facts", "records"] = "table"
    most: int | None = None
    rest: str = ""
    name: str = ""
    values: Sequence[Mapping[str, object]] = ()
    sections: Mapping[int, str] | None = None

    @property
    def shown(self) -> Sequence[Cells]:
        """The rows that are shown."""
        return self.rows[: self.most]

    @property
    def left_out(self) -> str:
        """How many rows are not shown, and where they are; "" for none."""
        count = len(self.rows) - len(self.shown)
        return (f"and {count:,} more" + (f": {self.rest}" if self.rest else "")) if count else ""


def facts_table(rows: Sequence[tuple[str, str, object, str]]) -> Table:
    """Returns boxes: of each the id and value for programs, and the label and text to read.

    Args:
        rows: (id, label, value, text).
    """
    return Table(
        (Column(""), Column("")),
        [(label, shown) for _, label, _, shown in rows],
        form="facts",
        name="facts",
        values=[{"id": key, "value": value} for key, _, value, _ in rows],
    )


@dataclass(frozen=True, slots=True)
class Events:
    """What happened at some places of a line.

    Attributes:
        name: What it is; that of a colour of `style.Colours`.
        x: Where, on the axis of the line.
        y: How high the line is there.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Reach:
    """From where to where a dtype reaches on the axis of a heat map.

    Attributes:
        name: Of the dtype; that of a colour of `style.Colours`.
        label: What is written into it.
        ends: Where it begins, where it is whole, and where it ends.
    """

    name: str
    label: str
    ends: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Rows of shares by power of two.

    Attributes:
        title: Above it.
        first: The exponent of the first bin.
        rows: The path of each row.
        shares: For each row, the share of its values in each bin.
        reaches: Of dtypes, above the rows.
        notes: What is said right of each row.
        numbers: Columns right of that: heads, with a cell for each row.
    """

    title: str
    first: int
    rows: Sequence[str]
    shares: Sequence[Sequence[float]]
    reaches: Sequence[Reach] = ()
    notes: Sequence[str] = ()
    numbers: Mapping[str, Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A line with events below it, or heat maps. The axis of powers of two has their exponents.

    Attributes:
        title: Above it.
        words: What it comes down to, for those who do not see it, too.
        x_label, y_label: Of the axes of the line.
        x: Where each level of the line begins, and where the last one ends.
        y: The levels, and the last one again; nan where there is none.
        sections: (x, label) of sections of the line, as epochs.
        events: What happened at the line, each kind in a row of its own.
        heat_maps: Below each other.
        note: Below the heat maps.
    """

    title: str
    words: str
    x_label: str = ""
    y_label: str = ""
    x: Sequence[float] = ()
    y: Sequence[float] = ()
    sections: Sequence[tuple[float, str]] = ()
    events: Sequence[Events] = ()
    heat_maps: Sequence[HeatMap] = ()
    note: str = ""

    @property
    def has_line(self) -> bool:
        """Whether it shows a line."""
        return bool(self.x_label)


@dataclass(frozen=True, slots=True)
class Fold:
    """Parts that open on a page; a terminal has `hint` instead."""

    summary: str
    parts: Sequence["Part"]
    hint: str = ""
    is_open: bool = False


Part = Text | Table | Chart | Fold


class Renderable(ABC):
    """What a function of ours found: text in a terminal, tables and charts in a notebook.

    `str()` and `repr()` of it are its text, so that a Python prompt shows it. `to_dict()` of each
    is plain JSON.
    """

    __slots__ = ()

    @abstractmethod
    def _parts(self) -> Iterable[Part]:
        """Returns what is shown."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain JSON; what JSON lacks is "inf", "-inf" or "nan"."""
        return dict(json_values(self))

    def __str__(self) -> str:
        from keras_mp.rendering import terminal  # late: it knows the parts above

        return terminal.to_text(self._parts())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from keras_mp.rendering import html

        return html.notebook(self._parts())
