"""Runs the notebook docs/tutorials/quickstart.ipynb cell by cell, without Jupyter.

KERAS_BACKEND=jax python -m tests.notebook    # runs it, and stores its outputs
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "tutorials" / "quickstart.ipynb"


def read():
    """Returns the notebook in nbformat 4."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def cells_of(notebook):
    """Returns the cells of code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook):
    """Runs the cells of code as one program, and stores their outputs."""
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells_of(notebook), 1):
        cell["execution_count"] = number
        cell["outputs"] = _outputs("".join(cell["source"]), names, number)


def _outputs(source, names, number):
    """Runs a cell; shows its last line if it is an expression, as in Jupyter."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    found = []
    if printed.getvalue():
        text = _lines(printed.getvalue())
        found.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        found.append(
            {
                "data": data,
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return found


def _lines(text):
    return text.splitlines(keepends=True)


def shown(notebook):
    """Returns the output of each cell of code as text, without pictures."""
    return [
        "".join("".join(out.get("text") or out["data"]["text/plain"]) for out in cell["outputs"])
        for cell in cells_of(notebook)
    ]


def dumped(notebook):
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    notebook = read()
    run(notebook)
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(json.dumps(shown(notebook)))
    else:
        NOTEBOOK.write_text(dumped(notebook), encoding="utf-8")
