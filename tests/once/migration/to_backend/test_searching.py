"""What keeps a program on TensorFlow: when it is looked for, and where it is left alone."""

import json
import re
import unicodedata
from pathlib import Path

import h5py
import pytest

from keras_mp.migration.cli import main
from keras_mp.migration.code.rewriting import Options, rewrite
from keras_mp.migration.rules import RULES
from keras_mp.migration.to_backend import searching
from keras_mp.migration.to_backend.uses import PAGE
from tests import obstacles
from tests.counting import growth

ROOT = Path(__file__).parents[4]
OURS = [rule for rule in RULES if rule >= "KMP200"]
PROGRAM = """\
import horovod.tensorflow as hvd
import tensorflow as tf
from tensorflow.keras import backend as K

hvd.init()
tf.random.set_seed(1)
tf.config.run_functions_eagerly(True)
strategy = tf.distribute.MirroredStrategy()
step = tf.Variable(0)
checkpoint = tf.train.Checkpoint(step=step)
writer = tf.summary.create_file_writer("logs")


class Scale(tf.Module):
    pass


class Model(tf.keras.Model):
    def call(self, x):
        return tf.exp(x) + K.sum(x)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            return {}


@tf.function
def train(x):
    with tf.GradientTape() as tape:
        return model(x)


tf.saved_model.save(Model(), "saved")
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM, encoding="utf-8")
    return "train.py"


def rows(capsys, *options):
    code = main(["migrate", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_every_rule_is_found():
    for target in ("jax", "torch"):
        assert {one.rule for one in rewrite(PROGRAM, Options(target=target)).findings} == {*OURS}


def test_without_a_target_nothing_is_said(program, capsys):
    assert rewrite(PROGRAM).findings == ()
    assert main(["migrate", program]) == 0
    assert "KMP2" not in capsys.readouterr().out


@pytest.mark.parametrize("target", ["jax", "torch"])
def test_lines(program, target, capsys):
    assert main(["migrate", "--target", target, program]) == 0
    out = capsys.readouterr().out
    for rule in OURS:
        assert re.search(rf"^train\.py:\d+:\d+: {rule} .*; docs/how-to/leave-", out, re.MULTILINE)
    assert "need manual review  1" in out
    assert Path(program).read_text(encoding="utf-8") == PROGRAM


def test_json(program, capsys):
    code, report = rows(capsys, "--target", "jax", program)
    (row,) = report["results"]
    assert code == 0
    assert row["status"] == "unchanged"
    assert row["needs_review"]
    first = row["findings"][0]
    assert first.keys() == {"cell", "line", "column", "rule", "verdict", "source", "message"}
    assert first["source"] == "from tensorflow.keras import backend as K"
    assert {one["verdict"] for one in row["findings"]} == {"manual"}
    assert report["summary"]["rules"].keys() == {*OURS}


def test_check_counts_them(program, capsys):
    assert main(["migrate", "--check", program]) == 0
    assert main(["migrate", "--check", "--target", "jax", program]) == 1
    assert main(["migrate", "--check", "--target", "jax", "--skip", ",".join(OURS), program]) == 0


def test_only_and_skip(program, capsys):
    _, report = rows(capsys, "--target", "jax", "--only", "KMP202,KMP213", program)
    assert report["summary"]["rules"].keys() == {"KMP202", "KMP213"}
    _, report = rows(capsys, "--target", "jax", "--skip", "KMP204", program)
    assert report["summary"]["rules"].keys() == {*OURS} - {"KMP204"}


def test_nothing_is_edited(program, capsys):
    assert main(["migrate", "--write", "--target", "jax", program]) == 0
    assert Path(program).read_text(encoding="utf-8") == PROGRAM


def test_mixed_precision_is_rewritten_as_without():
    source = "import tensorflow as tf\np = tf.keras.mixed_precision.Policy('mixed_float16')\n"
    source += "step = tf.Variable(0)\n"
    result = rewrite(source, Options(target="jax"))
    assert result.text == rewrite(source).text != source
    assert [(one.line, one.rule) for one in result.findings] == [(2, "KMP003"), (3, "KMP206")]


def test_processes_are_told_the_target(tmp_path, capsys):
    for number in range(9):
        (tmp_path / f"{number}.py").write_text(PROGRAM, encoding="utf-8")
    code, report = rows(capsys, "--target", "torch", "--jobs", "2", str(tmp_path))
    assert code == 0
    assert len(report["results"]) == 9
    assert "loss.backward()" in json.dumps(report["results"][8])


def test_notebooks(tmp_path, capsys):
    cells = ["!pip install tensorflow\nimport tensorflow as tf", "%time\ntf.random.set_seed(1)"]
    cells = [{"cell_type": "code", "source": cell} for cell in cells]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}), encoding="utf-8")
    _, report = rows(capsys, "--target", "jax", str(path))
    (found,) = report["results"][0]["findings"]
    assert (found["cell"], found["line"], found["rule"]) == (2, 2, "KMP213")


def test_artefacts_are_left_alone(program, capsys):
    with h5py.File("model.h5", "w") as file:
        file.attrs["model_config"] = "{}"
    assert main(["migrate", "--target", "jax", "."]) == 0
    assert "for source code only: --target" in capsys.readouterr().err
    assert main(["migrate", "--target", "jax", "model.h5"]) == 2
    assert "--target is for source code, not for artefacts" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["tensorflow", "numpy"])
def test_other_targets(program, target, capsys):
    assert main(["migrate", "--target", target, program]) == 2
    assert "choose from" in capsys.readouterr().err


def test_what_is_read():
    assert searching.may_concern("import keras")
    assert not searching.may_concern("import torch")
    assert rewrite("import torch\ntorch.manual_seed(", Options(target="jax")).findings == ()


GUARDED = {
    "a version": "if tf.__version__ > '2.4':\n    tf.random.set_seed(1)\n",
    "an import": "try:\n    tf.random.set_seed(1)\nexcept ImportError:\n    pass\n",
    "hasattr": "if hasattr(tf, 'random'):\n    tf.random.set_seed(1)\n",
}


@pytest.mark.parametrize("source", GUARDED.values(), ids=GUARDED)
def test_branches_for_a_version_are_left_alone(source):
    assert obstacles.found(source, "KMP213") == {}
    assert obstacles.found(source, "KMP014") == {
        2: "the program checks the TensorFlow version: not rewritten; this branch has "
        "tf.random.set_seed"
    }
    assert obstacles.found(source, "KMP014", target=None) == {}


FOR_A_BACKEND = {
    "Keras 3": "if keras.backend.backend() == 'tensorflow':\n    tf.random.set_seed(1)\n",
    "its config": "if keras.config.backend() == 'tensorflow':\n    tf.random.set_seed(1)\n",
    "the environment": (
        "import os\nif os.environ['KERAS_BACKEND'] == 'tensorflow':\n    tf.random.set_seed(1)\n"
    ),
    "an expression": "x = tf.random.set_seed(1) if K.backend() == 'tensorflow' else 0\n",
}


@pytest.mark.parametrize("source", FOR_A_BACKEND.values(), ids=FOR_A_BACKEND)
def test_branches_for_a_backend_are_right(source):
    for rule in ("KMP213", "KMP014"):
        assert obstacles.found(source, rule) == {}


def test_whether_tensorflow_is_there_is_no_question_of_versions():
    source = "try:\n    import tensorflow as tf\nexcept ImportError:\n    tf = None\n"
    assert obstacles.found(f"{source}tf.random.set_seed(1)\n", "KMP213", head="").keys() == {5}


SAME_NAMES = {
    "not imported": "tf.random.set_seed(1)\nhvd.init()\nK.sum(x)\n",
    "one's own": "from mine import tf\ntf.random.set_seed(1)\n",
    "an argument": "def f(tf):\n    tf.random.set_seed(1)\n",
    "a mock": "import tensorflow as tf\ntf.random.set_seed.assert_called_with(1)\n",
    "text": "# import tensorflow as tf\nx = 'tf.random.set_seed(1)'\n",
}


@pytest.mark.parametrize("source", SAME_NAMES.values(), ids=SAME_NAMES)
def test_only_names_of_tensorflow_count(source):
    assert rewrite(f"import keras\n{source}", Options(target="jax")).findings == ()


@pytest.mark.parametrize("rule", OURS)
def test_each_recipe_is_there(rule):
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    headings = [
        re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", unicodedata.normalize("NFKD", title))).lower()
        for title in re.findall(r"^## (.+)$", page, re.MULTILINE)
    ]
    assert RULES[rule].load().ANCHOR in headings
    assert re.search(rf"^\| {rule} \|", page, re.MULTILINE)


IMPORTS = "import tensorflow as tf\nimport keras\n"
LAYER = "class L{}(keras.layers.Layer):\n    def call(self, x):\n        return self.f(tf.exp(x))\n"
# What is repeated costs as often as it is there.
REPEATED = {
    "classes": lambda n: "".join(map(LAYER.format, range(n))),
    "methods": lambda n: (
        "class L(keras.layers.Layer):\n    def call(self, x): self.f0(x)\n"
        + "".join(f"    def f{i}(self, x): self.f{i + 1}(tf.exp(x))\n" for i in range(n))
    ),
    "functions": lambda n: (
        "def loss(y_true, y_pred): f0(1)\n"
        + "".join(f"def f{i}(x): f{i + 1}(tf.exp(x))\n" for i in range(n))
    ),
    "tapes": lambda n: "with tf.GradientTape() as t:\n    x = tf.exp(1)\n" * n,
    "a tape of many": lambda n: (
        "def f():\n    with tf.GradientTape() as t:\n        pass\n" + "    x = tf.exp(x)\n" * n
    ),
    "symbolic tensors": lambda n: "x = keras.Input(())\n" + "x = tf.exp(x) + g(x)\n" * n,
    "pipelines": lambda n: "def f(x): pass\n" + "d = d.map(f)\n" * n,
    "compiled functions": lambda n: "".join(
        f"@tf.function\ndef f{i}(x):\n    return model(x)\n" for i in range(n)
    ),
}


@pytest.mark.parametrize("text", REPEATED.values(), ids=REPEATED)
def test_what_is_repeated(text):
    def searched(source):
        return rewrite(IMPORTS + source, Options(target="jax"))

    assert growth(searched, map(text, (4, 8, 16))) < 2.15


def test_a_line_of_classes_that_derive_from_each_other():
    lines = [f"class L{i + 1}(L{i}):\n    def call(self): self.f{i}()\n" for i in range(200)]
    source = f"{IMPORTS}class L0(keras.layers.Layer): pass\n{''.join(lines)}"
    source += "class L(L200):\n    def f0(self): tf.exp(1)\n"
    assert [one.rule for one in rewrite(source, Options(target="jax")).findings] == ["KMP204"]


def test_deep_expressions():
    total = "+".join(["tf.exp(x)"] * 200)
    source = f"{IMPORTS}x = keras.Input(())\ny = g({total})\nz = {'h(' * 90}x{')' * 90}\n"
    found = rewrite(source, Options(target="jax")).findings
    assert len([one for one in found if one.rule == "KMP204"]) == 200
