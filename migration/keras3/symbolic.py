"""Which expressions are KerasTensors: what keras.Input begins, through layers and operators.

Each expression depends on others: a call of a layer on its arguments, a name on all that it is
assigned. These are collected, and decided together, as `x = Dense(3)(x)` depends on itself.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import libcst as cst

from keras_mp.migration.code.parsed import Program
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.assignments import Variable

if TYPE_CHECKING:
    from keras_mp.migration.keras3.objects import Objects

# Of TensorFlow: what computes nothing of a tensor.
NOT_COMPUTING = (
    *("tensorflow.keras", "tensorflow.python.keras", "tensorflow.is_tensor", "tensorflow.data."),
    *("tensorflow.TensorShape", "tensorflow.train.", "tensorflow.function", "tensorflow.Module"),
    *("tensorflow.distribute", "tensorflow.compat.v1.keras", "tensorflow.saved_model"),
    *("tensorflow.estimator", "tensorflow.contrib", "tensorflow.lite", "tensorflow.__"),
)
# Of Keras: what returns a KerasTensor where it is given one.
_KEEPING = ("backend.", "activations.", "layers.", "ops.")


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an expression depends on: some of these, or all of them; nothing: it is known."""

    of: Sequence[Hashable] = ()
    all: bool = False
    known: bool | None = None


_YES, _NO = _Rule(known=True), _Rule(known=False)


class Symbolic:
    """Which expressions of a program are KerasTensors.

    Args:
        program: Its names resolved.
        objects: What is known of its objects.
    """

    def __init__(self, program: Program, objects: "Objects") -> None:
        self._program, self._objects = program, objects
        self._answers: dict[Hashable, bool] = {}
        self._asked: set[cst.CSTNode] = set()

    def is_symbolic(self, node: cst.CSTNode) -> bool:
        """Returns whether an expression is one; of what depends on what is being asked, False."""
        if node not in self._answers:
            if node in self._asked:
                return False
            self._asked.add(node)
            self._answers |= _decided(self._rules(node))
            self._asked.discard(node)
        return self._answers[node]

    def _rules(self, node: cst.CSTNode) -> dict[Hashable, _Rule]:
        """Returns what an expression depends on, and what that depends on, and so on."""
        rules: dict[Hashable, _Rule] = {}
        waiting: list[Hashable] = [node]
        while waiting:
            one = waiting.pop()
            if one in rules:
                continue
            if one in self._answers:
                rules[one] = _YES if self._answers[one] else _NO
                continue
            rules[one] = self._rule(one)
            waiting += rules[one].of
        return rules

    def _rule(self, node: Hashable) -> _Rule:
        if isinstance(node, Variable):
            if any(v.node is None or v.is_element or v.annotation for v in node.values):
                return _NO
            return _Rule([value.node for value in node.values], all=True)
        if isinstance(node, cst.Call):
            if self._objects.public(node.func) == "Input":
                return _YES
            if not self._keeps(node.func):
                return _NO
            return _Rule([argument.value for argument in node.args[:2]])
        if isinstance(node, (cst.List, cst.Tuple)):
            return _Rule([element.value for element in node.elements])
        if isinstance(node, cst.BinaryOperation):
            return _Rule([node.left, node.right])
        if isinstance(node, cst.UnaryOperation):
            return _Rule([node.expression])
        if isinstance(node, cst.Subscript):
            of = node.value
            if isinstance(of, cst.Attribute) and of.attr.value in ("inputs", "outputs"):
                return _YES if self._has_tensors(of.value, "Model") else _NO
            return _Rule([of])
        if isinstance(node, cst.Attribute) and node.attr.value in ("input", "output"):
            return _YES if self._has_tensors(node.value, "layers.Layer") else _NO
        return self._rule_of_name(node) if isinstance(node, cst.Name) else _NO

    def _rule_of_name(self, node: cst.Name) -> _Rule:
        variable = self._objects.variable(node)
        return _Rule([variable]) if variable is not None else _NO

    def _has_tensors(self, node: cst.CSTNode, kind: str) -> bool:
        """Returns whether it is a layer or model of Keras, and not of a class of the program."""
        found = self._objects.of(node)
        return found is not None and found.is_a(kind) and found.own is None

    def _keeps(self, function: cst.CSTNode) -> bool:
        """Returns whether a function returns a KerasTensor where it is given one."""
        if self._objects.is_a(function, "layers.Layer"):
            return True
        full = self._program.full_name(function, is_sole=True)
        found = names.keras_name(full)
        return computes(full) if found is None else found.name.startswith(_KEEPING)


def computes(full: str) -> bool:
    """Returns whether a function of TensorFlow computes something of a tensor.

    >>> computes("tensorflow.nn.relu"), computes("tensorflow.is_tensor")
    (True, False)
    """
    return full.startswith("tensorflow.") and not full.startswith(NOT_COMPUTING)


def _decided(rules: dict[Hashable, _Rule]) -> dict[Hashable, bool]:
    """Returns which of them hold: nothing that they depend on says no, and something says yes."""
    # What may hold: what depends on itself does, as long as nothing else says no.
    may = {one: rule.known is not False for one, rule in rules.items()}
    does = {one: rule.known is True for one, rule in rules.items()}
    for answers, begins in ((may, True), (does, False)):
        changes = True
        while changes:
            changes = False
            for one, rule in rules.items():
                if rule.known is not None or answers[one] is not begins:
                    continue
                # A name holds as all that it is assigned may, and something of it does.
                every = rule.all and begins
                holds = (all if every else any)(answers[of] and may[of] for of in rule.of)
                if holds is not begins:
                    answers[one] = holds
                    changes = True
    return {one: may[one] and does[one] for one in rules}
