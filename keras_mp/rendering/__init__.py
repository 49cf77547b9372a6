"""How results are shown: a report makes a model of it, and three renderers show that.

| module | what it is |
| --- | --- |
| model | `Text`, `Table`, `Chart`, `Fold`: plain data; `Renderable`, the base of reports |
| terminal | text of a given width, with sparklines |
| html | the output of a notebook, and whole pages |
| pictures | charts drawn by matplotlib, which is imported late; in HTML as SVG |
| style | the colours, filled into `notebook.css` and `page.css` |
| text | numbers, paths and times as people read them |
"""
