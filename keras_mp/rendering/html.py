"""Parts of a report as HTML that needs nothing else: the output of a notebook, and pages.

Every text that comes from a user's program goes through `escaped`.
"""

import base64
import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from keras_mp.rendering import style, terminal
from keras_mp.rendering.model import Chart, Column, Fold, Part, Strong, Table, Text

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; {allowed}img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{css}</style>
</head>
<body class="keras-mp">
<main>
<h1>{title}</h1>
{body}
</main>
{script}</body>
</html>
"""


def notebook(parts: Iterable[Part]) -> str:
    """Returns what a notebook shows: a box with a style that reaches nothing outside of it."""
    lines = ['<div class="keras-mp">', f"<style>{style.CSS}</style>", *_lines(parts), "</div>"]
    return "\n".join(lines)


def page(title: str, parts: Iterable[Part | str], css: str = "", script: str | None = None) -> str:
    """Returns a page that loads nothing.

    Args:
        title: Not escaped.
        parts: Of the page; texts among them are HTML.
        css: More of its style.
        script: The one script that may run, if any.
    """
    allowed = "" if script is None else f"script-src '{_hash(script)}'; "
    return _PAGE.format(
        title=escaped(title),
        css=style.PAGE + css,
        allowed=allowed,
        body="\n".join(_lines(parts, is_page=True)),
        script="" if script is None else f"<script>{script}</script>\n",
    )


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def escaped(text: object) -> str:
    """Returns a text for HTML; what no document may hold (NUL, lone surrogates) is replaced.

    >>> escaped("<b> & '\\x00'")
    '&lt;b&gt; &amp; &#x27;\\ufffd&#x27;'
    """
    return escape("".join(c if _is_allowed(c) else "\ufffd" for c in str(text)))


def _is_allowed(character: str) -> bool:
    return character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cs")


def path(text: object) -> str:
    """Returns a path for HTML that may be broken after its slashes.

    >>> path("block/dense")
    'block/<wbr>dense'
    """
    return escaped(text).replace("/", "/<wbr>")


def data_attributes(**values: object) -> str:
    """Returns `data-` attributes; those of None are left out.

    >>> data_attributes(count=2, first_step=None)
    ' data-count="2"'
    """
    return "".join(
        f' data-{key.replace("_", "-")}="{escaped(value)}"'
        for key, value in values.items()
        if value is not None
    )


def _lines(parts: Iterable[Part | str], *, is_page: bool = False) -> Iterator[str]:
    """Yields elements. A page has ids, which a notebook, that shows several outputs, may not."""
    for part in parts:
        match part:
            case str():
                yield part
            case Text():
                yield _text(part, is_page)
            case Table(form="facts"):
                yield from _facts(part, is_page)
            case Table():
                yield from _table(part, is_page)
            case Chart():
                yield from _chart(part, is_page)
            case Fold():
                is_open = " open" if part.is_open else ""
                yield f"<details{is_open}><summary>{path(part.summary)}</summary>"
                yield from _lines(part.parts, is_page=is_page)
                yield "</details>"


def _text(part: Text, is_page: bool) -> str:
    words = escaped(part.words)
    match part.style:
        case "code":
            return f"<pre>{words}</pre>"
        case "heading" if is_page:
            return f"<h2>{words}</h2>"
        case "paragraph":
            return f"<p>{words}</p>"
        case "item":
            return f'<p class="item">• {words}</p>'
        case "title" | "alarm" | "heading":
            return f'<p class="head{" alarm" if part.style == "alarm" else ""}">{words}</p>'
        case _:
            return f'<p class="{part.style}">{words}</p>'


def _facts(part: Table, is_page: bool) -> Iterator[str]:
    yield f'<dl class="facts"{_identity(part.name, is_page)}>'
    for i, (label, shown) in enumerate(part.shown):
        values = dict(part.values[i]) if part.values else {}
        identity = _identity(str(values.pop("id", "")), is_page)
        yield (
            f"<div><dt>{escaped(label)}</dt><dd{identity}{data_attributes(**values)}>"
            f"{escaped(shown)}</dd></div>"
        )
    yield "</dl>"


def _identity(name: str, is_page: bool) -> str:
    return f' id="{name}"' if name and is_page else ""


def _table(part: Table, is_page: bool) -> Iterator[str]:
    """Yields a table, and below it how many rows are left out."""
    kind = ' class="records"' if part.form == "records" else ""
    yield f'<div class="scroll"><table{_identity(part.name, is_page)}{kind}>'
    if part.title:
        yield f"<caption>{escaped(part.title)}</caption>"
    if any(column.head for column in part.columns):
        heads = "".join(
            f'<th scope="col" class="{column.style}">{escaped(column.head)}</th>'
            for column in part.columns
        )
        yield f"<thead><tr>{heads}</tr></thead>"
    yield "<tbody>"
    for i, row in enumerate(part.shown):
        if part.sections and i in part.sections:
            across = f'<th scope="rowgroup" colspan="{len(part.columns)}">'
            yield f'<tr class="section">{across}{path(part.sections[i])}</th></tr>'
        data = data_attributes(**part.values[i]) if part.values else ""
        yield f"<tr{data}>{''.join(_cells(row, part.columns, part.form == 'records'))}</tr>"
    yield "</tbody></table></div>"
    if part.left_out:
        yield f"<p>{escaped(part.left_out)}</p>"


def _cells(row: Sequence[str], columns: Sequence[Column], has_labels: bool) -> Iterator[str]:
    for i, (text, column) in enumerate(zip(row, columns, strict=True)):
        shown = path(text) if column.style == "path" else escaped(text)
        shown = f"<strong>{shown}</strong>" if isinstance(text, Strong) else shown
        kind = f' class="{column.style}"' if column.style else ""
        if i == 0:
            yield f'<th scope="row"{kind}>{shown}</th>'
            continue
        # Shown where the heads of the columns are not.
        label = f' data-head="{escaped(column.head)}: "' if has_labels and column.head else ""
        yield f"<td{kind}{label}>{shown}</td>"


def _chart(chart: Chart, is_page: bool) -> Iterator[str]:
    from keras_mp.rendering import pictures  # late: most pages have none, and it needs NumPy

    if is_page:
        yield f"<p>{escaped(chart.words)}.</p>"
    else:
        yield f'<p class="head">{escaped(f"{chart.title}: {chart.words}")}</p>'
    try:
        drawn = pictures.svg(chart)
    except ImportError as error:
        bars = terminal.to_text([chart])
        if bars:
            yield f"<pre>{bars}</pre>"
        yield f'<p class="note">{escaped(error)}</p>'
    else:
        yield f'<div class="scroll">{drawn}</div>'
