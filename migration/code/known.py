"""Findings that a baseline knows: they are marked, and their places stay as they are."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from keras_mp.migration.code.findings import BASELINE, KEPT, REWRITTEN
from keras_mp.migration.code.rewriting import Result, Spot


class _Found(Protocol):
    @property
    def rule(self) -> str: ...
    @property
    def verdict(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def suppressed(self) -> str: ...


F = TypeVar("F", bound=_Found)


def take_known(findings: Iterable[F], known: Counter[tuple[str, str]]) -> list[F]:
    """Returns the findings that are known, and takes them out of `known`.

    Args:
        findings: In the order of their places. Of equal ones the first are known.
        known: Rule and line of source -> how many are.
    """
    result = []
    for found in findings:
        key = found.rule, found.source
        if _stands(found) and known[key] > 0:
            known[key] -= 1
            result.append(found)
    return result


def rewrite_others(
    text: str, known: Counter[tuple[str, str]], rewrite: Callable[[frozenset[Spot]], Result]
) -> Result:
    """Returns a program with what is new in it rewritten, and what is known left alone.

    Args:
        text: The program.
        known: As `take_known`.
        rewrite: Rewrites the program, but for the places that it is given.
    """
    result = rewrite(frozenset())
    found = take_known(result.findings, known)
    others = set(result.findings).difference(found)
    new = [one for one in result.findings if one in others]
    if not any(map(_stands, new)):
        result = replace(result, text=text)
    elif found and result.text != text:
        # A place stays as it is, or does not.
        places = frozenset(one.place for one in found) - {one.place for one in new}
        result = rewrite(places)
        # A further line of something that is new, and so was rewritten with it.
        places -= {
            one.place for one in result.findings if one.verdict == REWRITTEN and _stands(one)
        }
        found = [one for one in found if one.place in places]
        new = [one for one in result.findings if one.place not in places]
    marked = [replace(one, suppressed=BASELINE) for one in found]
    findings = sorted([*new, *marked], key=lambda one: one.place)
    return replace(result, findings=tuple(findings))


def _stands(found: _Found) -> bool:
    return found.verdict != KEPT and not found.suppressed
