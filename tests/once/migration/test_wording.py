"""The command speaks of its own options: no message of `compat` names an argument of Python."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from keras_mp.compat.configs import serialized
from keras_mp.files.stores import scratch
from keras_mp.migration import wording
from tests.programs import ROOT

# Arguments of keras_mp.compat's functions that have an option of the command.
ARGUMENTS = (
    *("custom_objects", "exact_training", "tf_version", "model_path", "optimizer_path", "compile"),
    *("strict", "scratch_size", "kind", "differences", "from_graph"),
)
OF_PYTHON = re.compile(rf"\b({'|'.join(ARGUMENTS)})=")
# What is said of the output, which is loaded by a program.
OF_OUTPUTS = {serialized.CARRIED_OVER}


def messages() -> Iterator[tuple[str, str]]:
    """Yields (place, text) of each text that may be shown and names an argument."""
    for folder in ("compat", "keras_mp/files/stores"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            documented = {id(doc) for node in ast.walk(tree) for doc in docstring(node)}
            for node in ast.walk(tree):
                if not isinstance(node, ast.Constant) or id(node) in documented:
                    continue
                text = node.value
                if isinstance(text, str) and OF_PYTHON.search(text) and text not in OF_OUTPUTS:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def docstring(node: ast.AST) -> Iterator[ast.AST]:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        yield body[0].value


def test_no_message_names_an_argument() -> None:
    found = list(messages())
    assert len(found) > 6, "the search finds what it is for"
    odd = [place for place, text in found if OF_PYTHON.search(wording.in_command_words(text))]
    assert odd == []


def test_no_words_are_left_over() -> None:
    texts = [text for _, text in messages()]
    assert [
        words for pattern, words in wording._PATTERNS if not any(map(pattern.search, texts))
    ] == []


@pytest.mark.parametrize(
    ("said", "of_the_command"),
    [
        (scratch.OPTIONS, "--scratch-size"),
        (
            "$.a is \"Own\": a class of your own: pass custom_objects={'Own': ...}, or register it "
            "before; compile=False loads the model without",
            '$.a is "Own": a class of your own: name the script that defines it, '
            "--model script.py; "
            "--model-only writes the model without",
        ),
        ("the weights are as they were", "the weights are as they were"),
    ],
)
def test_what_is_said(said: str, of_the_command: str) -> None:
    assert wording.in_command_words(said) == of_the_command


def test_of_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from keras_mp.migration.cli import main

    path = tmp_path / "optimizer.json"
    sgd = {"name": "SGD", "learning_rate": 0.1, "decay": 0.0, "momentum": 0.0, "nesterov": False}
    scale = {"initial_loss_scale": 32768.0, "increment_period": 2000, "multiplier": 2.0}
    config = {
        "optimizer": {"class_name": "SGD", "config": sgd},
        "loss_scale": {"class_name": "DynamicLossScale", "config": scale},
    }
    path.write_text(json.dumps({"class_name": "LossScaleOptimizer", "config": config}))
    assert main(["migrate", str(path)]) == 0
    said = capsys.readouterr().err
    assert "pass --from 2.2)" in said
    assert not OF_PYTHON.search(said)
