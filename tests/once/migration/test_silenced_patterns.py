"""The excerpts of `test_source_patterns`, silenced: as a whole, and each of their findings."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from keras_mp.migration.code.findings import KEPT, Plan
from keras_mp.migration.code.planning import plan
from keras_mp.migration.code.rewriting import Options, rewrite

PATTERNS = Path(__file__).parents[2] / "data" / "source_patterns"
NAMES = sorted(
    path.name.removesuffix(".findings.json") for path in PATTERNS.glob("*.findings.json")
)


def text_of(name: str) -> str:
    return (PATTERNS / f"{name}.py.txt").read_text(encoding="utf-8")


def with_comments(text: str) -> str:
    """Returns a program with a `noqa` at the end of each line where a comment can be."""
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NEWLINE, tokenize.NL) and token.string:
            line = lines[token.start[0] - 1]
            lines[token.start[0] - 1] = line.rstrip("\n") + "  # noqa\n"
    return "".join(lines)


def planned(text: str, known: Counter[tuple[str, str]]) -> Plan:
    found = plan(Path("a.py"), text.encode(), Options(known=known))
    assert found.failure is None
    return found


def standing(found: Plan) -> Counter[tuple[str, str]]:
    return Counter((one.rule, one.source) for one in found.findings if one.verdict != KEPT)


def suppressed(found: Plan) -> Counter[tuple[str, str]]:
    return Counter((one.rule, one.source) for one in found.suppressed)


@pytest.mark.parametrize("name", NAMES)
def test_by_comments(name: str) -> None:
    text = with_comments(text_of(name))
    assert text.count("# noqa") > 1
    result = rewrite(text)
    assert result.text == text
    assert [f for f in result.findings if f.verdict != "kept" and not f.suppressed] == []


@pytest.mark.parametrize("name", NAMES)
def test_by_a_baseline(name: str) -> None:
    text = text_of(name)
    every = standing(planned(text, Counter()))
    found = planned(text, every)
    assert not found.changes
    assert standing(found) == Counter()
    assert suppressed(found) == every


@pytest.mark.parametrize("name", NAMES)
def test_each_by_a_baseline(name: str) -> None:
    text = text_of(name)
    every = standing(planned(text, Counter()))
    for key in every if len(every) > 1 else ():
        known = Counter({key: every[key]})
        found = planned(text, known)
        after = found.after.decode()
        ast.parse(after)
        if key not in suppressed(found):
            # A further line of what is new is rewritten with it.
            assert key in standing(found), key
            continue
        assert not known - suppressed(found), key
        # Where something else on its line is new and rewritten, it is another line.
        if key[1] not in {source for _, source in standing(found)}:
            assert key[1] in map(str.strip, after.splitlines()), key
            assert planned(after, known).after == found.after, key
