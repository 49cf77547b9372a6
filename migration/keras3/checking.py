"""Asks all rules of Keras 3 about a program."""

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import libcst as cst

from keras_mp.migration.code.parsed import Program, parts_of
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import legacy_keras
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.rules import RULES

__all__ = ["decisions"]

_ASKED = "behind a feature check: not rewritten"


def decisions(program: Program) -> Iterator[tuple[str, cst.CSTNode, Decision]]:
    """Yields what is found: the rule, the place, and what is said of it.

    Args:
        program: Its names resolved.

    >>> from keras_mp.migration.code.parsed import Program
    >>> program = Program("import keras\\nm = keras.metrics.Mean()\\nm.reset_states()")
    >>> [(rule, decision.verdict) for rule, _, decision in decisions(program)]
    [('KMP107', 'rewritten')]
    """
    code = Code(program)
    legacy = legacy_keras.asks(code) is not None
    for name, rule in _rules().items():
        for node, decision in rule.find(code):
            if legacy and rule is not legacy_keras and not _is_of_keras(code, node):
                continue
            if rule is not legacy_keras and code.is_guarded(node, *_words(node, decision)):
                decision = replace(
                    decision, verdict="kept", edits=(), message=f"{_ASKED}; {decision.message}"
                )
            yield name, node, decision


def _rules() -> dict[str, ModuleType]:
    return {name: rule.load() for name, rule in RULES.items() if rule.package == "keras3"}


def _is_of_keras(code: Code, node: cst.CSTNode) -> bool:
    """Returns whether a place is about the package keras, which stays Keras 3."""
    found = next((k for part in parts_of(node) if (k := code.known(part)) is not None), None)
    return found is not None and found.root == "keras"


def _words(node: cst.CSTNode, decision: Decision) -> list[str]:
    """Returns the names that a place may be guarded by: the old one, and what becomes of it."""
    words = [edit.text for edit in decision.edits if edit.text.isidentifier()]
    if isinstance(node, cst.Call):
        node = node.func
    return [*words, node.attr.value] if isinstance(node, cst.Attribute) else words
