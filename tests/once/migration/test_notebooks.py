"""Notebooks: one program in cells, lines that are no Python, a file of which little changes."""

import codecs
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.code import magics, notebooks
from keras_mp.migration.code.findings import Failed, Found
from keras_mp.migration.code.rewriting import may_concern, rewrite

Capture = pytest.CaptureFixture[str]

IMPORTS = "import tensorflow as tf\nfrom tensorflow.keras.mixed_precision import experimental as mp"
OLD = "opt = mp.LossScaleOptimizer(tf.keras.optimizers.SGD(), 'dynamic')"
NEW = "opt = keras_mp.LossScaleOptimizer(tf.keras.optimizers.SGD())"
OUTPUT = {"data": {"text/plain": ["loss_scale \u00e9"]}, "output_type": "execute_result"}


def book(*cells: str, **others: Any) -> dict[str, Any]:
    rows = [
        {
            "cell_type": "code",
            "execution_count": 1,
            "metadata": {"id": f"cell{i}"},
            "outputs": [OUTPUT],
            "source": cell.splitlines(keepends=True),
        }
        for i, cell in enumerate(cells)
    ]
    return {"cells": rows, "metadata": {}, "nbformat": 4, "nbformat_minor": 2, **others}


def rewritten(data: bytes) -> tuple[bytes, tuple[Found, ...]]:
    return notebooks.rewrite(data, rewrite, may_concern)


def sources(data: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"]]


def cells_of(*cells: str) -> list[str]:
    return sources(rewritten(json.dumps(book(*cells)).encode())[0])


def test_what_one_cell_imports_the_next_one_knows() -> None:
    imports, old = cells_of(IMPORTS, OLD)
    assert imports == "import keras_mp\nimport tensorflow as tf"
    assert old == NEW


def test_a_cell_that_only_imports_becomes_empty() -> None:
    old = "from tensorflow.keras import mixed_precision"
    assert cells_of(IMPORTS, old, "mixed_precision.global_policy()")[1:] == [
        "",
        "keras_mp.global_policy()",
    ]


def test_the_command(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.ipynb"
    value = book(IMPORTS, OLD, "y = mp.LossScaleOptimizer(OPT)")
    value["cells"].insert(1, {"cell_type": "markdown", "metadata": {}, "source": ["loss_scale"]})
    path.write_text(json.dumps(value, indent=1) + "\n")
    assert main(["migrate", str(path)]) == 0
    assert f"{path}:cell 4:1:5: KMP001 " in capsys.readouterr().out
    assert main(["migrate", "--write", str(path)]) == 0
    once = path.read_bytes()
    assert sources(once)[1:3] == ["loss_scale", NEW]
    assert main(["migrate", "--diff", str(path)]) == 0
    assert main(["migrate", "--write", str(path)]) == 0
    assert path.read_bytes() == once


# -- no other byte --------------------------------------------------------------------------------

DUMPED = {
    "jupyter": {"indent": 1, "ensure_ascii": False},
    "sorted": {"indent": 1, "sort_keys": True},
    "colab": {"indent": 0, "ensure_ascii": False},
    "four": {"indent": 4},
    "tabs": {"indent": "\t"},
    "one line": {},
    "dense": {"separators": (",", ":")},
}


@pytest.mark.parametrize("options", DUMPED.values(), ids=DUMPED)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_it_is_formatted_as_it_was(options: dict[str, Any], end: str, mark: bytes) -> None:
    def dumped(*cells: str) -> bytes:
        text = json.dumps(book(*cells), **options)
        return mark + (text.replace("\n", end or "\n") + end).encode()

    before = dumped(f"# \u00e9\n{IMPORTS}\n", f"{OLD}\nprint('\u00e9')", "", "other")
    after = dumped(
        "# \u00e9\nimport keras_mp\nimport tensorflow as tf\n",
        f"{NEW}\nprint('\u00e9')",
        "",
        "other",
    )
    assert rewritten(before)[0] == after


def test_what_json_would_write_otherwise_stays() -> None:
    value = json.dumps(book(IMPORTS, f"{OLD}\nprint('\u00e9/\u20ac')\n"), indent=2)
    odd = value.replace('"execution_count": 1,', '"execution_count" :1.50E+00,  "a": 1,"a": 2,')
    odd = (
        odd.replace("/", "\\/")
        .replace('"nbformat": 4', '"nbformat":\n4')
        .replace("cell1", "c\\u0065ll1")
    )
    assert odd != value
    after = rewritten(odd.encode())[0].decode()
    new = json.dumps(NEW)[1:-1]
    assert f'{new}\\n",\n        "print(\'\\u00e9\\/\\u20ac\')\\n"' in after
    imports = r'"import keras_mp\\n",\s+"import tensorflow as tf"'
    restored = re.sub(imports, "IMPORTS", after).replace(new, "OLD")
    olds = ",\n        ".join(json.dumps(line) for line in IMPORTS.splitlines(keepends=True))
    assert restored == odd.replace(olds, "IMPORTS").replace(json.dumps(OLD)[1:-1], "OLD")


@pytest.mark.parametrize("how", ["string", "one item", "split at line feeds"])
def test_sources_of_other_shapes(how: str) -> None:
    value = book(IMPORTS, f"{OLD}  # a\x0cb\u2028c\nx = 1\n")
    text = "".join(value["cells"][1]["source"])
    assert len(text.splitlines()) == 4
    shapes: dict[str, Any] = {
        "string": text,
        "one item": [text],
        "split at line feeds": re.findall(r".*?\n", text, re.DOTALL),
    }
    value["cells"][1]["source"] = shapes[how]
    after = json.loads(rewritten(json.dumps(value).encode())[0])["cells"][1]["source"]
    assert type(after) is type(shapes[how])
    assert len(after) == len(shapes[how]) or how == "string"
    assert "".join(after) == text.replace(OLD, NEW)


def test_without_anything_to_do_it_is_the_same() -> None:
    for value in (book(), book("loss_scale = 1"), book("%%bash\nls", "!ls", "")):
        data = json.dumps(value).encode()
        assert rewritten(data)[0] == data


# -- magics ---------------------------------------------------------------------------------------

MAGICS = {
    "line": "%matplotlib inline\n",
    "shell": "!pip install -q 'x==2.3'\n",
    "continued": "!pip install \\\n  x \\\n      y\nz = 1\n",
    "in a block": "if colab:\n    %cd /content\n    !ls\nelse:\n\t!pwd",
    "help": "tf?\ntf.keras??\n?tf\n%timeit?\n",
    "assigned": "files = !ls *.py\nstart, end = %time 3\nx.y['a'] = !ls\n",
    "automatic calls": "/print 3\n,print 3\n;print 3\n",
    "after a string": 'text = """\n%no magic\n!nor this\n"""\n%magic\n',
    "after brackets": "print('%d'\n      % 3)\n%magic\n",
    "after a continued line": "x = 7 \\\n  % 3\n%magic\n",
    "after comments": "# it's ('\n%magic '\n# (\nx = 1\n",
    "crlf": "%magic\r\nx = 1\r\n!ls\r\n",
    "awaits": "await x\n!ls",
    "escapes in strings": "x = r'\\''\n!ls '\ny = '\\\\'\n!ls\n",
}


@pytest.mark.parametrize("text", MAGICS.values(), ids=MAGICS)
def test_magics_come_back_untouched(text: str) -> None:
    masked = magics.mask(text, "token")
    assert magics.syntax_error(text) is not None
    assert magics.syntax_error(masked) is None, masked
    assert magics.unmask(masked, "token") == text
    old, *_ = cells_of(f"{IMPORTS}\n{text}", OLD)
    assert old == f"import keras_mp\nimport tensorflow as tf\n{text}"
    assert cells_of(IMPORTS, f"{text.rstrip()}\n{OLD}\n")[1] == f"{text.rstrip()}\n{NEW}\n"


def test_python_is_not_masked() -> None:
    text = 'x = """\n!a\n%b\n"""\ny = (1\n  % 2)\nz = [\n  1,\n]\nawait f()\n'
    assert magics.mask(text, "token") == text


@pytest.mark.parametrize("magic", ["%%time", "\n\n%%capture out", "%%time\n%%capture"])
def test_cells_that_are_run_as_python(magic: str) -> None:
    imports, old = cells_of(f"{magic}\n{IMPORTS}", f"{magic}\n{OLD}\n!ls")
    assert imports == f"{magic}\nimport keras_mp\nimport tensorflow as tf"
    assert old == f"{magic}\n{NEW}\n!ls"


def findings(*cells: str) -> list[Found]:
    return list(rewritten(json.dumps(book(*cells)).encode())[1])


@pytest.mark.parametrize(
    ("cell", "places"),
    [
        (f"%%writefile train.py\n{IMPORTS}\n{OLD}", [(3, 1), (4, 1)]),
        ("%%bash\necho loss_scale", [(2, 1)]),
        (f"%%time {OLD.replace('mp.', '')}\nx = 1", [(1, 1)]),
        ("x = 1\n  \n%time loss_scale = 1\n!ls", [(3, 7)]),
        ("if 1:\n    !grep LossScaleOptimizer", [(2, 11)]),
    ],
)
def test_what_is_not_read_needs_a_person(cell: str, places: list[tuple[int, int]]) -> None:
    found = [f for f in findings("import os", cell) if "not Python" in f.message]
    assert {(f.verdict, f.rule, f.place.cell) for f in found} == {("manual", "KMP016", 2)}
    assert [(f.place.line, f.place.column) for f in found] == places
    assert all(f.source == cell.splitlines()[f.place.line - 1].strip() for f in found)


def test_places_are_of_the_cell() -> None:
    old = f"%%time\n\n!ls\n# \u00e9\n{OLD}"
    found = [f for f in findings("1", IMPORTS, "%%bash\nls", old, "2") if f.rule == "KMP001"]
    assert [str(f.place) for f in found] == ["cell 4:5:7"]
    assert found[0].source == OLD


# -- what cannot be read --------------------------------------------------------------------------


def test_a_cell_that_is_no_python_is_left_out_if_it_does_not_matter() -> None:
    cells = cells_of(IMPORTS, "print 3\nif (\n", "pip install x", OLD)
    assert cells == [
        "import keras_mp\nimport tensorflow as tf",
        "print 3\nif (\n",
        "pip install x",
        NEW,
    ]


def test_a_cell_that_is_no_python_and_matters_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.ipynb"
    before = json.dumps(book(IMPORTS, f"%%time\n{OLD}\nprint 3", OLD))
    path.write_text(before)
    assert main(["migrate", "--write", str(path)]) == 2
    assert f"{path}:cell 2:3:1: error: does not parse: " in capsys.readouterr().err
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("cell", "place", "why"),
    [
        ("nonlocal x", "2:1:1", "its names cannot be resolved"),
        (f"%%time\nx = {'-' * 400}1", "2:2:1", "it is nested too deeply"),
    ],
)
def test_what_only_the_parser_cannot_take_is_an_error(
    cell: str, place: str, why: str, tmp_path: Path, capsys: Capture
) -> None:
    """It says no place, so it is asked of each cell."""
    path = tmp_path / "a.ipynb"
    before = json.dumps(book(IMPORTS, cell, OLD))
    path.write_text(before)
    assert main(["migrate", "--write", str(path)]) == 2
    assert f"{path}:cell {place}: error: does not parse: {why}" in capsys.readouterr().err
    assert path.read_text() == before


BAD = {
    "no json": (b"{loss_scale", "not a notebook: line 1, column 2: Expecting value"),
    "cut": (json.dumps(book(OLD)).encode()[:-30], "not a notebook: "),
    "not utf-8": (b'{"a": "\xe9"}', "not UTF-8: byte 7 is 0xe9"),
    "list": (b"[]", "not a notebook: line 1, column 1: expected '{'"),
    "empty": (b"", "not a notebook: it ends too early"),
    "old": (b'{"nbformat": 3}', r"not a notebook of nbformat 4: \$.nbformat is 3"),
    "none": (b'{"cells": []}', r"\$.nbformat is missing"),
    "cells": (b'{"cells": [1], "nbformat": 4}', "not a notebook: line 1, column 12: expected"),
    "source": (
        b'{"cells": [{"cell_type": "code", "source": [1]}], "nbformat": 4}',
        r"not a notebook: \$.cells\[0\].source must be text",
    ),
    "deep": (b"[" * 100_000, "not a notebook: "),
    "deep inside": (b'{"a": ' + b"[" * 100_000, "not a notebook: "),
}  # fmt: skip


@pytest.mark.parametrize(("data", "why"), BAD.values(), ids=BAD)
def test_what_is_no_notebook(data: bytes, why: str) -> None:
    with pytest.raises(Failed, match=why):
        rewritten(data)


def test_other_languages_are_left_alone() -> None:
    for metadata in ({"language_info": {"name": "julia"}}, {"kernelspec": {"language": "R"}}):
        data = json.dumps(book(IMPORTS, OLD, metadata=metadata)).encode()
        assert rewritten(data) == (data, ())
    data = json.dumps(book(IMPORTS, OLD, metadata={"language_info": {"name": "python"}})).encode()
    assert rewritten(data)[1]


def test_a_half_surrogate_is_no_reason_to_stop() -> None:
    data = json.dumps(book(IMPORTS, "x = '\\ud83d'\n", OLD)).encode()
    data = data.replace(b"\\\\ud83d", b"\\ud83d")
    assert sources(rewritten(data)[0])[2] == NEW


def test_large_outputs_cost_little(tmp_path: Path) -> None:
    value = book(IMPORTS, OLD)
    value["cells"][1]["outputs"] = [{"data": {"image/png": "A" * 50_000_000}}]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(value, indent=1))
    command = [sys.executable, "-m", "keras_mp.migration", "migrate", "--write", path]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    value["cells"][0]["source"] = ["import keras_mp\n", "import tensorflow as tf"]
    value["cells"][1]["source"] = [NEW]
    assert path.read_text() == json.dumps(value, indent=1)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ('!python train.py --hparams="mixed_precision=true"', "kept"),
        ("!TF_ENABLE_AUTO_MIXED_PRECISION=1 python train.py", "manual"),
        ("!python -c 'tf.keras.mixed_precision.Policy(1)'", "manual"),
    ],
)
def test_a_command_needs_a_person_where_it_means_tensorflow(line: str, verdict: str) -> None:
    assert [found.verdict for found in findings("import os", line)] == [verdict]


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        ('  --hparams="mixed_precision=true"', "kept"),
        ("  -x TF_ENABLE_AUTO_MIXED_PRECISION=1", "manual"),
    ],
)
def test_a_command_may_go_on_after_a_backslash(second: str, verdict: str) -> None:
    cell = f"!python main.py --mode=train \\\n{second}\n"
    assert [found.verdict for found in findings("import os", cell)] == [verdict]


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("opt.loss_scale?", "kept"),
        ("self.opt.get_scaled_loss??", "kept"),
        ("?opt.loss_scale", "kept"),
        ("mixed_precision.Policy?", "manual"),
        ("tf.keras.mixed_precision.LossScaleOptimizer?", "manual"),
        ("%time opt.loss_scale()", "manual"),
    ],
)
def test_a_question_for_help_needs_a_person_where_the_name_goes(line: str, verdict: str) -> None:
    assert [found.verdict for found in findings("import os", line)] == [verdict]
