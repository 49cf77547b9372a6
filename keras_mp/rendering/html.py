"""Pieces of pages that `markup` does not have: the head, facts, tables with `data-` attributes."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence

from keras_mp.rendering.markup import escaped, path

_HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; {script}img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<header>
<h1>{title}</h1>
"""


def head(title: str, css: str, script: str | None = None) -> str:
    """Returns the beginning of a page that may load nothing, up to its `<h1>`.

    Args:
        title: Not escaped.
        css: Its style.
        script: The text of the one script that may run, if any; the page has it later.
    """
    allowed = "" if script is None else f"script-src '{_hash(script)}'; "
    return _HEAD.format(title=escaped(title), css=css, script=allowed)


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def data_attributes(**values: object) -> str:
    """Returns `data-` attributes; those of None are left out."""
    return " ".join(
        f'data-{key.replace("_", "-")}="{escaped(value)}"'
        for key, value in values.items()
        if value is not None
    )


def facts(each: Iterable[tuple[str, str, object, str]]) -> Iterator[str]:
    """Yields boxes with a number each.

    Args:
        each: (id, label, value, what is shown of the value).
    """
    yield '<dl class="facts" id="facts">'
    for key, label, value, shown in each:
        yield (
            f'<div><dt>{escaped(label)}</dt><dd id="{key}" {data_attributes(value=value)}>'
            f"{escaped(shown)}</dd></div>"
        )
    yield "</dl>"


def table(
    identity: str,
    heads: Sequence[tuple[str, str]],
    rows: Iterable[tuple[str, Sequence[str]]],
) -> Iterator[str]:
    """Yields a table; the first cell of a row is its head.

    Args:
        identity: Its id.
        heads: (text, class) of the columns; texts of the class "path" may be broken at slashes.
        rows: (`data_attributes`, texts that are not escaped).
    """
    yield f'<div class="scroll"><table id="{identity}">'
    cells = "".join(
        f'<th scope="col" class="{kind}">{escaped(text)}</th>' if text else "<td></td>"
        for text, kind in heads
    )
    yield f"<thead><tr>{cells}</tr></thead><tbody>"
    for data, texts in rows:
        first, *others = zip(texts, (kind for _, kind in heads), strict=True)
        row = f'<th scope="row" class="{first[1]}">{_cell(*first)}</th>'
        row += "".join(f'<td class="{kind}">{_cell(text, kind)}</td>' for text, kind in others)
        yield f"<tr {data}>{row}</tr>"
    yield "</tbody></table></div>"


def _cell(text: str, kind: str) -> str:
    return path(text) if kind == "path" else escaped(text)
