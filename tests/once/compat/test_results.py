"""Results of compat: as text, as plain JSON, in a notebook, and in files that are read again."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from keras_mp.compat.configs import Change
from keras_mp.compat.inspecting import (
    Audit,
    Computed,
    Damage,
    Finding,
    Inspection,
    Model,
    Optimizer,
    Tensor,
    audit,
    inspect,
)
from keras_mp.compat.inspecting.functions import Function
from keras_mp.compat.restoring.comparison import Comparison, Part
from keras_mp.compat.restoring.plan import Restored, RestoreReport
from keras_mp.compat.results import Saved

HOSTILE = "<b>\x1b[2J"
REPORT = RestoreReport(
    "model.h5",
    (Restored("a/kernel:0", f"net/{HOSTILE}", (3, 2), "float32", "df3f619804a92fdb"),),
    ("b/kernel:0",),
    ("net/bias",),
    ("it tells no version",),
    ("its counter",),
    (Change("$.lr", "renamed", "learning_rate", True), Change("$.x", "dropped", "y", False)),
    Comparison((((2, 3),),), Part(math.inf, 1e-5, f"a/{HOSTILE}", 0.5), None, "no training"),
)
INSPECTION = Inspection(
    "model.h5",
    "h5",
    layout="of tf.keras",
    written_by="TensorFlow 2.3",
    why="its keras_version",
    model=Model("Sequential", None, 2),
    policies={"mixed_float16": 2},
    computed=[Computed("twice", "TFOpLambda", "x * 2.0"), Computed("own", "Lambda", why="no code")],
    optimizers=[
        Optimizer(class_name="SGD", config={"learning_rate": 0.1}, loss_scale=math.inf),
        Optimizer(name="adam", slots={"m": 2}, iterations=3, note="this format has none"),
    ],
    save_counter=4,
    functions=[Function("__call__", ["x"], ["y"], 3, {"StringJoin": "text"})],
    tensors=[Tensor(f"{HOSTILE}/{i}", (2, 3), "float32", 24) for i in range(50)],
    damage=[Damage("model.h5", "a/kernel:0", "is cut off")],
    notes=["a note"],
)
AUDIT = Audit("model.h5", "h5", [Finding("code", HOSTILE, "a lambda")], ["one part is cut off"])
RESULTS: dict[str, Saved] = {"restored": REPORT, "inspected": INSPECTION, "audited": AUDIT}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_files_are_read_again(result: Saved, tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    result.save(path)
    again = type(result).load(path)
    assert again == result
    assert again.to_dict() == result.to_dict() == json.loads(json.dumps(result.to_dict()))
    assert str(again) == str(result)


def test_each_attribute_is_filled() -> None:
    """So that none is lost in a file without a test that fails."""
    for result in RESULTS.values():
        for field in dataclasses.fields(result):  # type: ignore[arg-type]
            assert getattr(result, field.name), field.name


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_in_a_notebook(result: Any) -> None:
    shown = result._repr_html_()
    assert shown.startswith('<div class="keras-mp">')
    assert "model.h5" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_in_a_terminal(result: Saved, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in str(result)
    assert r"\x1b[2J" in str(result)
    assert capsys.readouterr() == ("", "")


def test_what_the_texts_say() -> None:
    text = str(INSPECTION).splitlines()
    assert text[:2] == ["path          model.h5", "kind          h5 (of tf.keras)"]
    assert "... and 10 more in `tensors`" in text
    assert text[-1] == "error: model.h5: a/kernel:0: is cut off"
    assert "10 more in `tensors`" in INSPECTION._repr_html_()
    assert str(AUDIT).splitlines() == [
        "model.h5: unreadable: 1 finding",
        r"  code  <b>\x1b[2J  a lambda",
        "error: one part is cut off",
    ]
    assert str(REPORT).splitlines()[1:] == [
        "unused: b/kernel:0",
        "missing: net/bias",
        "note: it tells no version",
        "lost: its counter",
        "config: $.lr renamed: learning_rate",
        "compared: predictions differ from the graph in the file by inf (shapes, or nan) of the "
        "largest value (limit 1e-05), first in a/<b>\\x1b[2J, by 0.5",
        "compared: no training",
    ]


def test_a_result_with_nothing_in_it() -> None:
    assert str(Audit("a.h5")) == "a.h5: nothing found"
    assert str(RestoreReport("a.h5", (), (), (), ())) == ""
    assert "<table" not in RestoreReport("a.h5", (), (), (), ())._repr_html_()


def test_of_a_config(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"class_name": "Sequential", "config": {"name": "net", "layers": []}}')
    for found in (inspect(path), audit(path)):
        found.save(tmp_path / "result.json")
        assert type(found).load(tmp_path / "result.json") == found


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": "keras-mp ranges"}, r'format is "keras-mp ranges": expected "keras-mp audit"'),
        ({"version": 2}, "a later keras_mp wrote this file"),
        ({"findings": [{"sort": "code"}]}, r"is damaged \(TypeError: .*Audit.save wrote"),
        ({"findings": None}, "is damaged"),
        ({"errors": ...}, r"is damaged \(KeyError: 'errors'\)"),
    ],
)
def test_other_files_are_refused(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    AUDIT.save(path)
    found = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not ...}))
    with pytest.raises(ValueError, match=match) as raised:
        Audit.load(path)
    assert str(path) in str(raised.value)
