"""What source migration writes exists: every name of keras_mp in a migrated excerpt is imported."""

import ast
import importlib
import re
import warnings
from operator import attrgetter
from pathlib import Path

import keras
import pytest

from keras_mp.migration.code.rewriting import Options, rewrite
from keras_mp.migration.rules.other_packages import ADDONS, decide
from tests.backends import on_one

pytestmark = on_one  # of names; `compat` has the same on each

PATTERNS = Path(__file__).parents[2] / "data" / "source_patterns"
RESULTS = {
    path.name.removesuffix(".findings.json"): path.with_name(
        path.name.replace(".findings.json", ".py.txt")
    )
    for path in sorted(PATTERNS.glob("*.findings.json"))
}


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


def names_of_ours(text):
    """The longest dotted names that begin with keras_mp, and what is imported from it.

    >>> sorted(names_of_ours("from keras_mp.compat import train as t\\nkeras_mp.Policy('a').name"))
    ['keras_mp.Policy', 'keras_mp.compat.train']
    """
    found, inside = set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "keras_mp":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "keras_mp"}
        elif isinstance(node, ast.Attribute) and (name := dotted(node)):
            inside.add(dotted(node.value))
            found.add(name)
    return {name for name in found - inside if name.split(".")[0] == "keras_mp"}


def resolve(name):
    """Returns what `name` stands for after `import keras_mp`.

    A name below a class is one that the program sets or reads there, and is not looked up.
    """
    value = importlib.import_module("keras_mp")
    for part in name.split(".")[1:]:
        if isinstance(value, type):
            break
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", RESULTS)
def test_every_name_of_ours_is_there(name):
    text = RESULTS[name].read_text(encoding="utf-8")
    for unsafe in (False, True):
        for each in names_of_ours(rewrite(text, Options(unsafe=unsafe)).text):
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # the experimental names have it
                assert resolve(each) is not None, each


def test_a_name_that_is_not_there_is_noticed():
    with pytest.raises(AttributeError):
        resolve("keras_mp.compat.mixed_precision.experimental.NoSuchName")
    assert names_of_ours("x = keras_mp.no.such.name()") == {"keras_mp.no.such.name"}


def test_what_takes_the_place_of_add_ons_exists():
    said = " ".join(decide(f"tensorflow_addons.optimizers.{name}").message for name in ADDONS)
    names = set(re.findall(r"\bkeras((?:\.\w+)+)", said))
    assert len(names) >= 6
    for name in names:
        attrgetter(name[1:])(keras)
