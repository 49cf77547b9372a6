"""`--keras3`: what is looked at, and that nothing of it appears without it."""

import json

import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.code.rewriting import Options, may_concern, rewrite

PROGRAM = """\
import tensorflow as tf

mean = tf.keras.metrics.Mean()
mean.reset_states()
tf.keras.backend.placeholder()
"""
BOTH = """\
import tensorflow as tf

opt = tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.Adam(lr=1e-3, decay=0.0))
"""


def migrate(capsys, *arguments):
    code = main(["migrate", *map(str, arguments)])
    return code, capsys.readouterr()


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def test_without_it_nothing_appears(program, capsys):
    code, said = migrate(capsys, "--json", "--check", program)
    assert code == 0
    assert json.loads(said.out)["results"] == []
    assert rewrite(PROGRAM).findings == ()


def test_with_it_the_findings_are_added(program, capsys):
    code, said = migrate(capsys, "--json", "--check", "--keras3", program)
    found = json.loads(said.out)
    assert code == 1
    assert [(f["line"], f["rule"], f["verdict"]) for f in found["results"][0]["findings"]] == [
        (4, "KMP107", "rewritten"),
        (5, "KMP101", "manual"),
    ]
    assert found["summary"]["rules"]["KMP101"] == {"rewritten": 0, "manual": 1, "kept": 0}


def test_the_tables_have_the_titles(program, capsys):
    _, said = migrate(capsys, "--keras3", program)
    assert "methods and attributes with another name" in said.out
    assert f"{program}:5:1: KMP101 tf.keras.backend.placeholder is gone" in said.out


def test_write_rewrites_what_has_one_answer_and_again_changes_nothing(program, capsys):
    assert migrate(capsys, "--write", "--keras3", program)[0] == 0
    after = program.read_text()
    assert after == PROGRAM.replace("reset_states", "reset_state")
    assert migrate(capsys, "--write", "--keras3", program)[0] == 0
    assert program.read_text() == after


def test_diff_shows_it(program, capsys):
    _, said = migrate(capsys, "--diff", "--keras3", program)
    assert "+mean.reset_state()" in said.out
    assert program.read_text() == PROGRAM


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        (["--only", "KMP101"], {"KMP101"}),
        (["--skip", "KMP101"], {"KMP107"}),
        (["--only", "KMP101", "--skip", "KMP101"], set()),
    ],
)
def test_only_and_skip(options, rules, program, capsys):
    _, said = migrate(capsys, "--json", "--keras3", *options, program)
    assert set(json.loads(said.out)["summary"]["rules"]) == rules


def test_its_rules_need_it(program, capsys):
    code, said = migrate(capsys, "--only", "KMP101", program)
    assert code == 2
    assert "KMP101 is a rule of --keras3: add that" in said.err


def test_artefacts_of_a_folder_are_left_alone(tmp_path, program, capsys):
    (tmp_path / "model.h5").write_bytes(b"no model")
    code, said = migrate(capsys, "--json", "--keras3", tmp_path)
    assert code == 0
    assert [row["path"] for row in json.loads(said.out)["results"]] == [str(program)]


def test_it_goes_with_the_rules_of_mixed_precision():
    result = rewrite(BOTH, Options(keras3=True))
    assert (
        "keras_mp.LossScaleOptimizer(tf.keras.optimizers.Adam(learning_rate=1e-3))" in result.text
    )
    assert {f.rule for f in result.findings} == {"KMP002", "KMP105"}
    assert rewrite(result.text, Options(keras3=True)).text == result.text


def test_the_findings_of_mixed_precision_are_the_same_with_it():
    plain = list(rewrite(BOTH).findings)
    with_it = [f for f in rewrite(BOTH, Options(keras3=True)).findings if f.rule < "KMP100"]
    assert plain == with_it


def test_a_notebook(tmp_path, capsys):
    path = tmp_path / "a.ipynb"
    cells = [
        ["!pip install tensorflow\n", "import tensorflow as tf"],
        ["tf.keras.backend.placeholder()"],
    ]
    cells = [
        {
            "cell_type": "code",
            "source": source,
            "metadata": {},
            "outputs": [],
            "execution_count": None,
        }
        for source in cells
    ]
    path.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    )
    _, said = migrate(capsys, "--json", "--keras3", path)
    findings = json.loads(said.out)["results"][0]["findings"]
    assert [(f["cell"], f["line"], f["rule"]) for f in findings] == [(2, 1, "KMP101")]


def test_which_files_are_parsed():
    assert not may_concern(b"import keras")
    assert may_concern(b"import keras", options=Options(keras3=True))
    assert may_concern(b"get_scaled_loss", options=Options(keras3=True))
    assert not may_concern(b"import torch", options=Options(keras3=True))


def test_it_is_an_option_of_source_code(tmp_path, capsys):
    (tmp_path / "a.json").write_text("{}")
    code, said = migrate(capsys, "--keras3", tmp_path / "a.json")
    assert code == 2
    assert "--keras3" in said.err


def test_a_syntax_error_is_told(tmp_path, capsys):
    path = tmp_path / "a.py"
    path.write_text("import keras\nprint 'old'\n")
    assert migrate(capsys, "--keras3", path)[0] == 2
    assert migrate(capsys, path)[0] == 0
