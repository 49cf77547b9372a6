"""Pieces of HTML that need nothing else: escaped text, tables, colours, what a notebook shows.

Every text that comes from a user's program goes through `escaped`.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Colours:
    """Of Okabe and Ito 2008, told apart by all kinds of colour vision; lighter on a dark ground."""

    ground: str
    text: str
    faint: str
    line: str
    inf: str
    nan: str
    float16: str
    bfloat16: str
    heat: str


LIGHT = Colours(
    ground="#ffffff",
    text="#1c1c1c",
    faint="#d9d9d9",
    line="#0072b2",
    inf="#d55e00",
    nan="#8f3f71",
    float16="#d55e00",
    bfloat16="#00694e",
    heat="#1b3f94",
)
DARK = Colours(
    ground="#15181c",
    text="#e8e8e8",
    faint="#3a3f46",
    line="#56b4e9",
    inf="#ff8c42",
    nan="#e6a3cc",
    float16="#ff8c42",
    bfloat16="#3ddbab",
    heat="#d7f5a8",
)


def variables(colours: Colours) -> str:
    """Returns colours as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in asdict(colours).items())


# A notebook says by an attribute which theme it has; where none does, the system is asked.
_JUPYTER = {"light": "true", "dark": "false"}


def _under(theme: str) -> str:
    of_notebooks = (
        f'[data-jp-theme-light="{_JUPYTER[theme]}"]',
        f"body.vscode-{theme}",
        f'html[theme="{theme}"]',
        f'[data-theme="{theme}"]',
    )
    return ", ".join(f"{selector} .keras-mp" for selector in of_notebooks)


CSS = f"""
.keras-mp {{ color-scheme: light; {variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ .keras-mp {{ color-scheme: dark; {variables(DARK)} }} }}
{_under("light")} {{ color-scheme: light; {variables(LIGHT)} }}
{_under("dark")} {{ color-scheme: dark; {variables(DARK)} }}
.keras-mp {{ background: var(--ground); color: var(--text); padding: 0.6rem 0.8rem;
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
.keras-mp p {{ margin: 0.25rem 0; max-width: 60rem; color: inherit; }}
.keras-mp .head {{ font-weight: 700; font-size: 1.05rem; overflow-wrap: anywhere; }}
.keras-mp summary {{ cursor: pointer; margin: 0.4rem 0; }}
.keras-mp .scroll {{ overflow-x: auto; }}
.keras-mp table {{ border-collapse: collapse; border: none; margin: 0.4rem 0; color: inherit;
  font-size: 0.9rem; font-variant-numeric: tabular-nums; }}
.keras-mp tr, .keras-mp th, .keras-mp td {{ background: transparent; color: inherit;
  border: none; }}
.keras-mp th, .keras-mp td {{ text-align: left; vertical-align: top; white-space: normal;
  padding: 0.18rem 0.9rem 0.18rem 0; max-width: 30rem; }}
.keras-mp caption {{ text-align: left; color: inherit; }}
.keras-mp caption h3 {{ font-size: 1rem; margin: 0.6rem 0 0.2rem; }}
.keras-mp thead th {{ border-bottom: 1px solid var(--text); vertical-align: bottom; }}
.keras-mp tbody tr {{ border-bottom: 1px solid var(--faint); }}
.keras-mp tbody th {{ font-weight: 400; }}
.keras-mp .path {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  overflow-wrap: anywhere; min-width: 8rem; }}
.keras-mp thead .path {{ font-family: inherit; }}
.keras-mp th.number, .keras-mp td.number {{ text-align: right; white-space: nowrap; }}
.keras-mp .error, .keras-mp .much {{ color: var(--inf); font-weight: 700; }}
.keras-mp pre {{ background: transparent; color: inherit; border-left: 3px solid var(--line);
  padding: 0.2rem 0.8rem; margin: 0.4rem 0; overflow-x: auto; font-size: 0.85rem;
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }}
@media (max-width: 48rem) {{
  .keras-mp .sentences thead {{ display: none; }}
  .keras-mp .sentences tr, .keras-mp .sentences th, .keras-mp .sentences td {{ display: block;
    max-width: none; min-width: 0; padding: 0.05rem 0; }}
  .keras-mp .sentences th {{ font-weight: 700; }}
  .keras-mp .sentences tr {{ padding: 0.4rem 0; }}
  .keras-mp .sentences td::before {{ content: attr(data-head); opacity: 0.75; }}
}}
"""


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


def output(parts: Iterable[str], css: str = "") -> str:
    """Returns what a notebook shows: a box with a style that reaches nothing outside of it."""
    return "\n".join(['<div class="keras-mp">', f"<style>{CSS}{css}</style>", *parts, "</div>"])


def scoped(css: str) -> str:
    """Returns rules, one a line, that hold in the box of a notebook only.

    >>> scoped("svg.a, svg.b { fill: red; }")
    '.keras-mp svg.a, .keras-mp svg.b { fill: red; }'
    """

    def rule(line: str) -> str:
        selectors, brace, rest = line.partition(" {")
        return re.sub(r"(^|, )", r"\1.keras-mp ", selectors) + brace + rest

    return "\n".join(map(rule, css.strip().splitlines()))


def table(
    heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[str]], *, of_sentences: bool = False
) -> str:
    """Returns a table; the first cell of a row is its head.

    Args:
        heads: (text, class) of the columns; texts of the class "path" may be broken at slashes.
        rows: Texts, not escaped.
        of_sentences: Whether, where there is little room, cells are shown below each other.

    >>> table([("layer", "path")], [["a/b"]]).count("</th>")
    2
    """
    cells = "".join(f'<th scope="col" class="{kind}">{escaped(head)}</th>' for head, kind in heads)
    style = ' class="sentences"' if of_sentences else ""
    parts = [f'<div class="scroll"><table{style}>', f"<thead><tr>{cells}</tr></thead><tbody>"]
    for texts in rows:
        first, *others = (
            (path(text) if kind == "path" else escaped(text), kind, _label(head, of_sentences))
            for text, (head, kind) in zip(texts, heads, strict=True)
        )
        row = f'<th scope="row" class="{first[1]}">{first[0]}</th>'
        row += "".join(f'<td class="{kind}"{label}>{text}</td>' for text, kind, label in others)
        parts.append(f"<tr>{row}</tr>")
    return "\n".join([*parts, "</tbody></table></div>"])


def _label(head: str, is_shown: bool) -> str:
    """Returns what is shown before a cell where the heads of the columns are not."""
    return f' data-head="{escaped(head)}: "' if is_shown and head else ""
