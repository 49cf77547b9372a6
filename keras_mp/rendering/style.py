"""The colours of pictures, pages and notebooks, and the CSS of the last two. Nothing is loaded."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Colours:
    """Of Okabe and Ito 2008, told apart by all kinds of colour vision; lighter on a dark ground."""

    ground: str
    text: str
    faint: str
    line: str
    inf: str
    nan: str
    repair: str
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
    repair="#00694e",
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
    repair="#3ddbab",
    float16="#ff8c42",
    bfloat16="#3ddbab",
    heat="#d7f5a8",
)


def variables(colours: Colours) -> str:
    """Returns colours as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in asdict(colours).items())


# A notebook says by an attribute which theme it has; where none does, the system is asked.
_JUPYTER = {"light": "true", "dark": "false"}
_SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
_MONO = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace'


def _under(theme: str) -> str:
    of_notebooks = (
        f'[data-jp-theme-light="{_JUPYTER[theme]}"]',
        f"body.vscode-{theme}",
        f'html[theme="{theme}"]',
        f'[data-theme="{theme}"]',
    )
    return ", ".join(f"{selector} .keras-mp" for selector in of_notebooks)


# Of the box of a notebook, which reaches nothing outside of it, and of the body of a page.
CSS = f"""
.keras-mp {{ color-scheme: light; {variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ .keras-mp {{ color-scheme: dark; {variables(DARK)} }} }}
{_under("light")} {{ color-scheme: light; {variables(LIGHT)} }}
{_under("dark")} {{ color-scheme: dark; {variables(DARK)} }}
.keras-mp {{ background: var(--ground); color: var(--text); padding: 0.6rem 0.8rem;
  font: 14px/1.45 {_SANS}; }}
.keras-mp p {{ margin: 0.25rem 0; max-width: 60rem; color: inherit; }}
.keras-mp h1, .keras-mp .head {{ font-weight: 700; overflow-wrap: anywhere; }}
.keras-mp .head {{ font-size: 1.05rem; }}
.keras-mp h1 {{ font-size: 1.5rem; margin: 0; }}
.keras-mp h2 {{ font-size: 1.15rem; margin: 2rem 0 0.5rem; }}
.keras-mp .item {{ padding-left: 1.2rem; text-indent: -0.9rem; }}
.keras-mp .note {{ opacity: 0.8; font-size: 0.9rem; }}
.keras-mp a {{ color: var(--line); }}
.keras-mp summary {{ cursor: pointer; margin: 0.4rem 0; }}
.keras-mp details details, .keras-mp details details > .scroll {{ margin-left: 1.2rem; }}
.keras-mp .scroll {{ overflow-x: auto; }}
.keras-mp table {{ border-collapse: collapse; border: none; margin: 0.4rem 0; color: inherit;
  font-size: 0.87rem; font-variant-numeric: tabular-nums; }}
.keras-mp tr, .keras-mp th, .keras-mp td {{ background: transparent; color: inherit;
  border: none; }}
.keras-mp th, .keras-mp td {{ text-align: left; vertical-align: top; white-space: nowrap;
  padding: 0.18rem 0.9rem 0.18rem 0; max-width: 30rem; }}
.keras-mp thead th, .keras-mp .path, .keras-mp .sentence {{ white-space: normal; }}
.keras-mp caption {{ text-align: left; color: inherit; font-weight: 700; font-size: 1rem;
  padding: 0.6rem 0 0.2rem; }}
.keras-mp thead th {{ border-bottom: 1px solid var(--text); vertical-align: bottom; }}
.keras-mp tbody tr {{ border-bottom: 1px solid var(--faint); }}
.keras-mp tbody th {{ font-weight: 400; }}
.keras-mp tbody .section th {{ font-weight: 700; padding-top: 0.6rem; }}
.keras-mp .path {{ font-family: {_MONO}; overflow-wrap: anywhere; min-width: 9rem;
  max-width: 24rem; }}
.keras-mp thead .path {{ font-family: inherit; }}
.keras-mp th.number, .keras-mp td.number {{ text-align: right; }}
.keras-mp .alarm, .keras-mp strong {{ color: var(--inf); font-weight: 700; }}
.keras-mp pre {{ background: transparent; color: inherit; border-left: 3px solid var(--line);
  padding: 0.2rem 0.8rem; margin: 0.4rem 0; overflow-x: auto; font-size: 0.85rem;
  font-family: {_MONO}; }}
.keras-mp dl.facts {{ display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 1rem 0; }}
.keras-mp dl.facts > div {{ border: 1px solid var(--faint); border-radius: 6px;
  padding: 0.5rem 0.8rem; min-width: 7.5rem; }}
.keras-mp dl.facts dt {{ font-size: 0.8rem; font-weight: 400; opacity: 0.85; }}
.keras-mp dl.facts dd {{ margin: 0; font-size: 1.2rem; font-variant-numeric: tabular-nums; }}
.keras-mp svg.chart {{ display: block; height: auto; }}
@media (max-width: 48rem) {{
  .keras-mp .records thead {{ display: none; }}
  .keras-mp .records tr, .keras-mp .records th, .keras-mp .records td {{ display: block;
    max-width: none; min-width: 0; padding: 0.05rem 0; }}
  .keras-mp .records th {{ font-weight: 700; }}
  .keras-mp .records tr {{ padding: 0.4rem 0; }}
  .keras-mp .records td::before {{ content: attr(data-head); opacity: 0.75; }}
}}
"""
PAGE = f"""{CSS}
:root {{ color-scheme: light dark; }}
* {{ box-sizing: border-box; }}
html {{ background: {LIGHT.ground}; }}
@media (prefers-color-scheme: dark) {{ html {{ background: {DARK.ground}; }} }}
body.keras-mp {{ margin: 0 auto; padding: 1.5rem; max-width: 82rem; font-size: 15px; }}
@media (max-width: 48rem) {{ body.keras-mp {{ padding: 0.8rem; }} }}
@media print {{
  :root {{ color-scheme: light; }}
  body.keras-mp {{ {variables(LIGHT)} padding: 0; max-width: none; font-size: 10pt; }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
  .scroll {{ overflow: visible; }}
  tr, svg.chart, dl.facts > div {{ break-inside: avoid; }}
  h2, caption {{ break-after: avoid; }}
  .keras-mp svg.chart {{ max-width: 100%; min-width: 0 !important; }}
  .keras-mp table {{ font-size: 7.5pt; }}
}}
"""
