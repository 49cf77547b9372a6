"""Copies the result of a walk into trees that share no node; refuses calls that would run twice."""

import ast
from collections.abc import Sequence
from typing import Any

from keras_mp.compat.code_objects.errors import Refused
from keras_mp.compat.code_objects.expressions import LARGEST, Expressions, is_constant


def copies_of(make: Expressions, nodes: Sequence[ast.expr]) -> list[ast.expr]:
    """Returns copies of some nodes, which are evaluated in that order.

    Raises:
        Refused: They are too large, something in them was not read, or a call that Python makes
            once would be made twice or never.
    """
    for node in nodes:
        if make.facts(node).missing:
            raise Refused(make.facts(node).missing)
    if sum(make.facts(node).size for node in nodes) > LARGEST:
        raise Refused(f"expressions of more than {LARGEST} parts")
    copier = _Copier(make)
    copies = [copier.copied(node) for node in nodes]
    for node in make.owed:
        if node not in copier.met:
            raise Refused(f"a call whose value is not used, {make.text(node, 100)}")
    return copies


class _Copier:
    """Copies nodes, and knows which calls were met on the way to where it is."""

    def __init__(self, make: Expressions) -> None:
        self._make = make
        self.met: dict[ast.expr, None] = {}

    def copied(self, node: ast.expr) -> ast.expr:
        if self._make.facts(node).calls:
            if node in self.met:
                text = self._make.text(node, 100)
                raise Refused(f"a value that is made once and used twice, {text}")
            self.met[node] = None
        if isinstance(node, ast.IfExp):
            return self._choice(node)
        if isinstance(node, ast.Set):
            return self._set(node)
        fields: dict[str, Any] = {n: self._field(value) for n, value in ast.iter_fields(node)}
        return type(node)(**fields)

    def _set(self, node: ast.Set) -> ast.expr:
        if not node.elts:
            raise Refused("an empty set")
        copies = [self.copied(one) for one in node.elts]
        if all(is_constant(one) for one in copies):
            # Some versions keep the order of the source, and some that of a frozenset.
            texts = {ast.dump(one): one for one in copies}
            copies = [texts[text] for text in sorted(texts)]
        return ast.Set(elts=copies)

    def _choice(self, node: ast.IfExp) -> ast.expr:
        test = self.copied(node.test)
        before = len(self.met)
        body = self.copied(node.body)
        # The other way does not come through these.
        met = list(self.met)[before:]
        for one in met:
            del self.met[one]
        orelse = self.copied(node.orelse)
        self.met.update(dict.fromkeys(met))
        return ast.IfExp(test=test, body=body, orelse=orelse)

    def _field(self, value: object) -> object:
        if isinstance(value, list):
            return [self._field(one) for one in value]
        if isinstance(value, ast.expr):
            return self.copied(value)
        if isinstance(value, ast.keyword):
            return ast.keyword(arg=value.arg, value=self.copied(value.value))
        return value
