"""Any Python program survives its migration: the standard library's own sources.

Lines with old names are put between their statements.
"""

import ast
import functools
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from keras_mp.migration.code.rewriting import may_concern, rewrite
from tests.fuzzing import examples

LIBRARY = Path(sysconfig.get_path("stdlib"))
HEAD = "import tensorflow as tf; from tensorflow.keras import mixed_precision as _kmp"
SNIPPETS = {
    "_p = tf.keras.mixed_precision.experimental.Policy('mixed_float16')": (
        "_p = keras_mp.Policy('mixed_float16')"
    ),
    "_kmp.set_global_policy(": "keras_mp.compat.mixed_precision.set_global_policy(",
    "_o = tf.keras.mixed_precision.experimental.LossScaleOptimizer(o, 8)": (
        "_o = keras_mp.LossScaleOptimizer(o, dynamic=False, initial_scale=8)"
    ),
    "if isinstance(o, _kmp.LossScaleOptimizer): pass": (
        "if isinstance(o, keras_mp.LossScaleOptimizer): pass"
    ),
    "_g = _o.get_unscaled_gradients(_o.get_scaled_loss(1))": None,
    "# tf.keras.mixed_precision stays": None,
}


@functools.cache
def source(path):
    try:
        text = path.read_bytes().decode("utf-8")
        compile(text, str(path), "exec")
    except (UnicodeDecodeError, SyntaxError):
        return None
    return None if may_concern(text.encode()) or "\r" in text else text


FILES = sorted(
    path
    for folder in (LIBRARY, LIBRARY / "email", LIBRARY / "json", LIBRARY / "unittest")
    for path in folder.glob("*.py")
    if path.stat().st_size < 15_000 and source(path) is not None
)


@functools.cache
def boundaries(path):
    """Returns the numbers of lines before which a statement can stand: from 0."""
    statements = ast.parse(source(path)).body
    first = 0
    for i, node in enumerate(statements):
        is_docstring = (
            i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if is_docstring or is_future:
            first = node.end_lineno
    lines = [node.end_lineno for node in statements if node.end_lineno >= first]
    later = {node.lineno for node in statements}
    return [first, *(line for line in lines if line not in later)]


def test_there_are_enough_of_them():
    assert len(FILES) > 80


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(path=st.sampled_from(FILES))
def test_without_the_names_nothing_changes(newline, path):
    text = source(path).replace("\n", newline)
    result = rewrite(text)
    assert (result.text, result.findings) == (text, ())
    # The word in a comment makes it be parsed and resolved.
    mentioned = f"{text}{newline}# mixed_precision{newline}"
    result = rewrite(mentioned)
    assert result.text == mentioned
    assert [finding.verdict for finding in result.findings] == ["kept"]


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), path=st.sampled_from(FILES), newline=st.sampled_from(["\n", "\r\n"]))
def test_with_them_only_their_lines_change(data, path, newline):
    text = source(path)
    places = boundaries(path)
    chosen = data.draw(st.lists(st.sampled_from(list(SNIPPETS)), min_size=1, max_size=5))
    at = sorted(data.draw(st.sampled_from(places[1:] or places)) for _ in chosen)
    lines = text.split("\n")
    before, after = list(lines), list(lines)
    for place, old in sorted(zip(at, chosen, strict=True), reverse=True):
        new = SNIPPETS[old] or old
        end = "'float32')" if old.endswith("(") else ""
        before.insert(place, old + end)
        after.insert(place, new + end)
    before.insert(places[0], HEAD)
    rewrites = any(SNIPPETS[old] for old in chosen)
    uses = any("_kmp." in old for old in chosen)
    # Its import goes where all its uses were rewritten; where there is none it becomes compat's.
    ours = "import tensorflow as tf"
    if not uses:
        ours += "; from keras_mp.compat import mixed_precision as _kmp"
    after.insert(places[0], ours)
    if rewrites:
        after.insert(places[0], "import keras_mp")
    result = rewrite(newline.join(before))
    assert result.text == newline.join(after)
    compile(result.text.replace(newline, "\n"), "program", "exec")
    assert rewrite(result.text).text == result.text
