"""The CSS of a report: light and dark, on a screen and on paper. Nothing is loaded."""

from keras_mp.rendering.markup import DARK, LIGHT, variables
from keras_mp.rendering.style import PIECES, SMALL

CSS = f"""
:root {{ color-scheme: light dark; {variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; padding: 1.5rem; max-width: 82rem; background: var(--ground); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}}
h1 {{ font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.15rem; margin: 2rem 0 0.5rem; }}
h3 {{ font-size: 1rem; margin: 1.25rem 0 0.25rem; }}
p {{ margin: 0.25rem 0; max-width: 60rem; }}
a {{ color: var(--line); }}
.note {{ color: var(--text); opacity: 0.8; font-size: 0.9rem; }}
dl.facts {{ display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 1rem 0; }}
dl.facts > div {{
  border: 1px solid var(--faint); border-radius: 6px; padding: 0.5rem 0.8rem; min-width: 7.5rem;
}}
dl.facts dt {{ font-size: 0.8rem; opacity: 0.85; }}
dl.facts dd {{ margin: 0; font-size: 1.2rem; font-variant-numeric: tabular-nums; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.87rem; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; padding: 0.25rem 0; }}
th, td {{ text-align: left; padding: 0.18rem 0.7rem 0.18rem 0; vertical-align: middle; }}
thead th {{ border-bottom: 1px solid var(--text); vertical-align: bottom; }}
tbody tr {{ border-bottom: 1px solid var(--faint); }}
tbody th {{ font-weight: 400; }}
.path {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  overflow-wrap: anywhere; min-width: 9rem; max-width: 24rem; }}
thead .path {{ font-family: inherit; }}
summary {{ cursor: pointer; margin: 0.5rem 0; }}
{PIECES}
{SMALL}
@media print {{
  :root {{ color-scheme: light; {variables(LIGHT)} }}
  body {{ padding: 0; max-width: none; font-size: 10pt; }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
  .scroll {{ overflow: visible; }}
  tr, svg.curve, dl.facts > div {{ break-inside: avoid; }}
  h2, h3 {{ break-after: avoid; }}
  svg.strip, svg.ruler {{ width: 6.2cm; }}
  table {{ font-size: 7pt; }}
  .ranges .path {{ width: 4cm; min-width: 0; max-width: 4cm; font-size: 6.5pt; }}
  .ranges td, .ranges th {{ padding-right: 0.25rem; }}
  .ranges thead th {{ font-size: 6.5pt; }}
  tbody tr:first-child {{ break-before: avoid; }}
  .ranges .number, .ranges .besides {{ min-width: 0; }}
}}
"""
