"""Helpers for tests of single rules: a program around one line, and its rewritten form."""

import re
from pathlib import Path
from typing import Any

from keras_mp.migration.code.planning import plans
from keras_mp.migration.code.rewriting import Options, rewrite
from keras_mp.migration.rules import RULES

HEAD = """\
import tensorflow as tf
from tensorflow.keras import mixed_precision
from tensorflow.keras.mixed_precision import experimental
from tensorflow.mixed_precision.experimental import DynamicLossScale, FixedLossScale
from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer
from tensorflow.python.keras.mixed_precision.experimental import policy
"""
_LINES = HEAD.count("\n")
TF = "import tensorflow as tf\n"
MAKE = "tf.keras.mixed_precision.LossScaleOptimizer(tf.keras.optimizers.Adam())"


def rewritten(lines):
    """Returns the rewritten lines below imports of old names, without the imports."""
    result = rewrite(f"{HEAD}\n{lines}\n")
    compile(result.text, "program", "exec")
    assert rewrite(result.text).text == result.text, "a second run must find nothing"
    body = result.text.split("\n")
    first = next(i for i, line in enumerate(body) if line == "")
    return "\n".join(body[first:]).strip("\n")


def said(lines, rule):
    """Returns a rule's findings for lines below imports of old names: (line, verdict)."""
    findings = rewrite(f"{HEAD}\n{lines}\n").findings
    return [(f.line - _LINES - 1, f.verdict) for f in findings if f.rule == rule]


def header(rule):
    """Returns the pairs of before and after in the docstring of a rule's module."""
    text = Path(RULES[rule].load().__file__).read_text(encoding="utf-8")
    assert text.startswith(f'"""{rule}: ')
    pairs = re.findall(r"^before:  (.+)\nafter:   (.+)$", text, re.MULTILINE)
    return [(_code(before), _code(after)) for before, after in pairs]


def _code(line):
    return re.sub(r"\s+#.*", "", line).strip()


def migrated(tmp_path: Path, **files: str) -> dict[str, Any]:
    """Returns the rewritten files: name -> (text, findings)."""
    paths = []
    for name, text in files.items():
        path = tmp_path / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    found = {}
    for name, path, plan in zip(files, paths, plans(paths, Options()), strict=True):
        assert plan.failure is None
        text = (plan.after if plan.changes else path.read_bytes()).decode()
        found[name] = text, plan.findings
    return found
