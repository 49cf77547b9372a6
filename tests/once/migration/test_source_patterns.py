"""Source migration against excerpts of programs of TF 1.15 to 2.15, migrated by hand.

`tests/data/source_patterns/NAME.py.txt` is the program, NAME.after.py.txt what becomes of it, and
NAME.findings.json which lines are found and how; where there is a NAME.unsafe.py.txt, that is what
becomes of it with `unsafe=True`. The verdict "any" stands for lines inside a longer call.
"""

import ast
import functools
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from keras_mp.migration.code.libcst_limits import is_too_deep
from keras_mp.migration.code.rewriting import Options, Unparsable, may_concern, rewrite
from keras_mp.migration.rules import RULES
from tests.fuzzing import examples

PATTERNS = Path(__file__).parents[2] / "data" / "source_patterns"
NAMES = sorted(
    path.name.removesuffix(".findings.json") for path in PATTERNS.glob("*.findings.json")
)
UNSAFE = sorted(
    path.name.removesuffix(".unsafe.py.txt") for path in PATTERNS.glob("*.unsafe.py.txt")
)

CONCERNED = re.compile(
    r"mixed_precision|LossScale|loss_scale|get_scaled_loss|get_unscaled_gradients"
    r"|mixed_precision_graph_rewrite|AUTO_MIXED_PRECISION|auto_mixed_precision"
)
WEIGHT = {"kept": 0, "rewritten": 1, "manual": 2}


def text_of(name, kind=""):
    return (PATTERNS / f"{name}{kind}.py.txt").read_text(encoding="utf-8")


@functools.cache
def rewritten(name):
    return rewrite(text_of(name))


def verdicts(findings):
    """Line -> the weightiest verdict on it."""
    found = {}
    for finding in findings:
        before = found.get(finding.line, finding.verdict)
        found[finding.line] = max(before, finding.verdict, key=WEIGHT.__getitem__)
    return found


def test_there_are_patterns():
    assert len(NAMES) >= 60
    names_of_files = {path.name.split(".")[0] for path in PATTERNS.iterdir()}
    assert names_of_files == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_is_rewritten_as_by_hand(name):
    assert rewritten(name).text == text_of(name, ".after")


@pytest.mark.parametrize("name", NAMES)
def test_every_line_has_its_verdict(name):
    expected = {
        found["line"]: found["verdict"]
        for found in json.loads((PATTERNS / f"{name}.findings.json").read_text())
    }
    found = verdicts(rewritten(name).findings)
    any_verdict = {line for line, verdict in expected.items() if verdict == "any"}
    assert any_verdict <= found.keys()
    assert {line: verdict for line, verdict in found.items() if line not in any_verdict} == {
        line: verdict for line, verdict in expected.items() if line not in any_verdict
    }


def test_the_counts():
    """Of all excerpts together: lines by their verdict, and lines that nothing is said of."""
    counts = dict.fromkeys([*WEIGHT, "passed over"], 0)
    for name in NAMES:
        found = verdicts(rewritten(name).findings)
        for verdict in found.values():
            counts[verdict] += 1
        lines = enumerate(text_of(name).splitlines(), 1)
        counts["passed over"] += sum(n not in found for n, line in lines if CONCERNED.search(line))
    assert counts == {"rewritten": 282, "manual": 91, "kept": 77, "passed over": 0}


@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_passed_over(name):
    text = text_of(name)
    found = rewritten(name).findings
    lines = text.splitlines()
    assert {n for n, line in enumerate(lines, 1) if CONCERNED.search(line)} <= {
        finding.line for finding in found
    }
    assert list(found) == sorted(found, key=lambda finding: (finding.line, finding.column))
    for finding in found:
        assert finding.source == lines[finding.line - 1].strip()
        assert finding.column >= 1
        assert finding.rule in RULES
        assert finding.message
    assert may_concern(text.encode()) or not found


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_finds_nothing_to_rewrite(name):
    after = rewritten(name).text
    again = rewrite(after)
    assert again.text == after
    assert "rewritten" not in {finding.verdict for finding in again.findings}


@pytest.mark.parametrize("name", NAMES)
def test_the_result_compiles(name):
    compile(rewritten(name).text, name, "exec")


@pytest.mark.parametrize("name", NAMES)
def test_text_is_the_same_where_nothing_is_rewritten(name):
    result = rewritten(name)
    changed = result.text != text_of(name)
    found = {finding.verdict for finding in result.findings}
    assert changed or "rewritten" not in found
    assert not changed or found & {"rewritten", "manual"}


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("name", NAMES)
def test_line_ends_stay(name, end):
    result = rewrite(text_of(name).replace("\n", end))
    assert result.text == text_of(name, ".after").replace("\n", end)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_last_line_end_stays_missing(name):
    before, after = text_of(name), text_of(name, ".after")
    assert rewrite(before.rstrip("\n")).text == after.rstrip("\n")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_changes_where_every_rule_is_skipped(name):
    assert rewrite(text_of(name), Options(skip=frozenset(RULES))).text == text_of(name)


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_rewrites_what_is_not_known(name):
    result = rewrite(text_of(name), Options(unsafe=True))
    assert result.text == text_of(name, ".unsafe")
    assert rewrite(result.text, Options(unsafe=True)).text == result.text
    compile(result.text, name, "exec")


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(UNSAFE)))
def test_unsafe_changes_nothing_else(name):
    assert rewrite(text_of(name), Options(unsafe=True)).text == text_of(name, ".after")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("import tensorflow as tf\nprint 'mixed_precision'\n", 2, id="python 2"),
        pytest.param("x = 1\nx = mixed_precision mp\n", 2, id="two names"),
        pytest.param("if mixed_precision:\n\tx\n        y\n", None, id="mixed indents"),
        pytest.param("set_policy('mixed_precision'\n", None, id="open bracket"),
        pytest.param("%matplotlib inline\nimport mixed_precision\n", 1, id="notebook magic"),
    ],
)
def test_what_is_no_python_is_refused_with_its_place(text, line):
    with pytest.raises(Unparsable) as refused:
        rewrite(text)
    assert refused.value.line >= 1
    assert refused.value.column >= 1
    assert refused.value.message
    if line is not None:
        assert refused.value.line == line


@pytest.mark.parametrize("text", ["", "\n", "# mixed\n", "x = 1"])
def test_what_is_not_concerned_stays(text):
    result = rewrite(text)
    assert (result.text, result.findings) == (text, ())


def test_where_it_is_tried_whether_a_text_is_too_deep_libcst_is_ours(tmp_path, monkeypatch):
    text = "x = " + "(" * 100_000
    assert is_too_deep(text)
    (tmp_path / "libcst.py").write_text("def parse_module(text): pass\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not is_too_deep(text)


SELF_REFERENCES = {
    "one name": "x = x.T\n" * 50,
    "two names": "x = y.T\ny = x.T\n" * 50,
    "in a loop": "for i in j:\n    x = y.T if i else x\n    y = x if i else y.T\n" * 20,
}


@pytest.mark.timeout(60)  # each such line once multiplied the work of the others
@pytest.mark.parametrize("lines", SELF_REFERENCES.values(), ids=SELF_REFERENCES)
def test_names_that_are_assigned_from_themselves_are_resolved_once(lines):
    head = "import tensorflow as tf\nfrom data import x, y\n"
    result = rewrite(f"{head}{lines}tf.keras.mixed_precision.global_policy()\n")
    assert result.text == f"import keras_mp\n{head}{lines}keras_mp.global_policy()\n"


@pytest.mark.parametrize("several", [False, True])
def test_aliases_of_aliases_are_followed(several):
    aliases = "".join(f"a{i + 1} = a{i}\n" for i in range(40))
    text = f"from tensorflow.keras import mixed_precision as a0\n{aliases}a40.global_policy()\n"
    result = rewrite(text + "a0 = other\n" * several)
    assert ("keras_mp.global_policy()" in result.text) == (not several)
    assert ("KMP014" in {finding.rule for finding in result.findings}) == several


# How programs are laid out: what may stand after an opening bracket, after a comma, at the end.
GAPS = st.sampled_from(["", " ", "\n    ", "\n\n    ", "  # why\n    ", "\n    # note\n    "])

CALLS = {
    "opt , 'dynamic'": "opt",
    "opt , loss_scale='dynamic' ,": "opt",
    "loss_scale='dynamic' , optimizer=opt": "opt",
    "optimizer=opt , loss_scale='dynamic' ,": "opt",
    "opt , 128": "opt, dynamic=False, initial_scale=128",
    "opt , loss_scale=128 ,": "opt, dynamic=False, initial_scale=128",
    "loss_scale=128 , optimizer=opt": "opt, dynamic=False, initial_scale=128",
    "Adam( 0.1 , a=4 ) , F( 8 )": "Adam(0.1, a=4), dynamic=False, initial_scale=8",
    "opt , D( )": "opt",
    "opt , loss_scale=D( 8 , increment_period=5 , ) ,": (
        "opt, initial_scale=8, dynamic_growth_steps=5"
    ),
    "opt , D( multiplier=4.0 )": "opt, growth_factor=4.0, backoff_factor=1 / 4.0",
}


def arguments(call):
    """What a call of LossScaleOptimizer says: dynamic=True is its default, order is free."""
    found = {keyword.arg: ast.dump(keyword.value) for keyword in call.keywords}
    if call.args:
        found["inner_optimizer"], *rest = map(ast.dump, call.args)
        assert not rest
    if found.get("dynamic") == ast.dump(ast.Constant(True)):
        del found["dynamic"]
    return ast.dump(call.func), found


def comments(text):
    return sorted(line.split("#")[1].strip() for line in text.splitlines() if "#" in line)


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(sorted(CALLS)), st.data())
def test_a_call_means_the_same_however_it_is_laid_out(inside, data):
    pieces = (
        piece + data.draw(GAPS) if piece[-1] in "(," else piece for piece in f"( {inside}".split()
    )
    call = "mp.LossScaleOptimizer" + "".join(pieces) + data.draw(GAPS) + ")\n"
    head = (
        "from tensorflow.keras.mixed_precision import experimental as mp\n"
        "from tensorflow.train.experimental import DynamicLossScale as D, FixedLossScale as F\n"
    )
    after = rewrite(head + call).text
    expected = ast.parse(f"keras_mp.LossScaleOptimizer({CALLS[inside]})", mode="eval").body
    assert arguments(ast.parse(after).body[-1].value) == arguments(expected)
    assert comments(after) == comments(call)
    assert rewrite(after).text == after


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.sampled_from(["layers", "mixed_precision", "mixed_precision as mp", "backend as K"]),
        min_size=1,
        unique=True,
    ),
    st.sets(st.sampled_from(["mixed_precision", "mp"])),
    st.booleans(),
    st.data(),
)
def test_an_import_keeps_its_other_names_however_it_is_laid_out(names, used, comma, data):
    inside = "".join(f"{name},{data.draw(GAPS)}" for name in names[:-1]) + names[-1]
    inside += ("," if comma else "") + data.draw(GAPS)
    uses = "".join(f"{name}.set_global_policy('float32')\n" for name in sorted(used))
    before = f"from tensorflow.keras import ({data.draw(GAPS)}{inside})\n{uses}"
    after = rewrite(before).text
    found = {
        (node.module, alias.name, alias.asname or alias.name)
        for node in ast.parse(after).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    bound = [(name.split()[0], name.split()[-1]) for name in names]
    assert found == {
        ("keras_mp.compat" if name == "mixed_precision" else "tensorflow.keras", name, alias)
        for name, alias in bound
        if name != "mixed_precision" or alias not in used
    }
    assert comments(after) == comments(before)
    assert rewrite(after).text == after
