"""What the names of a program are assigned, and the attributes of its objects."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TypeGuard

import libcst as cst

from keras_mp.migration.code.parsed import Program


@dataclass(frozen=True, slots=True)
class Value:
    """What a name is given.

    Attributes:
        node: The expression; None where it is not written out.
        is_element: Whether it is given an element of that.
        annotation: What it is annotated with, where nothing else is known.
    """

    node: cst.CSTNode | None
    is_element: bool = False
    annotation: cst.CSTNode | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A name in its scope.

    Attributes:
        values: What it is assigned, which is all known.
    """

    values: tuple[Value, ...]


UNKNOWN = Value(None)
_FUNCTIONS: tuple[type[cst.CSTNode], ...] = (cst.FunctionDef, cst.Lambda)


class Assignments(cst.CSTVisitor):
    """Collects what names, and attributes of `self`, are assigned.

    Args:
        program: Its names resolved.

    Attributes:
        values: Target, as scopes know it -> what it is given.
        attributes: Class and name -> what `self.name` is assigned in it.
        classes: What defines a class -> the class.
        functions: What defines a function -> the function.
        returned: Function -> what it returns; None for what is not written out.
        defined: Class -> names that are defined in its body.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.values: dict[cst.CSTNode | None, list[Value]] = defaultdict(list)
        self.attributes: dict[tuple[cst.CSTNode, str], list[Value]] = defaultdict(list)
        self.classes: dict[cst.CSTNode | None, cst.ClassDef] = {}
        self.functions: dict[cst.CSTNode | None, cst.FunctionDef] = {}
        self.returned: dict[cst.CSTNode, list[cst.CSTNode | None]] = defaultdict(list)
        self.defined: dict[cst.CSTNode, set[str]] = defaultdict(set)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.classes[node] = node
        for line in node.body.body:
            if isinstance(line, cst.FunctionDef):
                self.defined[node].add(line.name.value)
            for one in (
                getattr(line, "body", ()) if isinstance(line, cst.SimpleStatementLine) else ()
            ):
                for target in one.targets if isinstance(one, cst.Assign) else ():
                    if isinstance(target.target, cst.Name):
                        self.defined[node].add(target.target.value)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions[node] = node
        if node.decorators:
            self.returned[node].append(None)  # something else may be returned

    def visit_Return(self, node: cst.Return) -> None:
        self._returns(node, node.value)

    def visit_Yield(self, node: cst.Yield) -> None:
        self._returns(node, None)

    def _returns(self, node: cst.CSTNode, value: cst.CSTNode | None) -> None:
        if (function := self._program.around(node, *_FUNCTIONS)) is not None:
            self.returned[function].append(value)

    def visit_Param(self, node: cst.Param) -> None:
        if node.annotation is not None:
            annotation = node.annotation.annotation
            self.values[node].append(Value(None, annotation=annotation))

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assign(target.target, Value(node.value))

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, Value(node.value))

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self._assign(node.target, UNKNOWN)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._assign(node.target, Value(node.value))

    def visit_For(self, node: cst.For) -> None:
        self._iterate(node.target, node.iter)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._iterate(node.target, node.iter)

    def _iterate(self, target: cst.CSTNode, of: cst.CSTNode) -> None:
        name = of.func.value if isinstance(of, cst.Call) and isinstance(of.func, cst.Name) else ""
        if isinstance(target, cst.Tuple) and isinstance(of, cst.Call):
            arguments = [argument.value for argument in of.args]
            if name == "enumerate" and len(target.elements) == 2 and arguments:
                self._assign(target.elements[0].value, UNKNOWN)
                self._iterate(target.elements[1].value, arguments[0])
                return
            if name == "zip" and len(target.elements) == len(arguments):
                for element, argument in zip(target.elements, arguments, strict=True):
                    self._iterate(element.value, argument)
                return
        if isinstance(of, cst.Call) and name == "reversed" and len(of.args) == 1:
            of = of.args[0].value
        self._assign(target, Value(of, is_element=True))

    def _assign(self, target: cst.CSTNode, value: Value) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            given = value.node.elements if isinstance(value.node, (cst.Tuple, cst.List)) else ()
            several = not value.is_element and len(given) == len(target.elements)
            for i, element in enumerate(target.elements):
                self._assign(element.value, Value(given[i].value) if several else UNKNOWN)
        elif isinstance(target, cst.Name):
            self.values[target].append(value)
        elif _is_of_self(target) and (around := self._program.around(target, cst.ClassDef)):
            self.attributes[around, target.attr.value].append(value)


def _is_of_self(node: cst.CSTNode) -> TypeGuard[cst.Attribute]:
    of = node.value if isinstance(node, cst.Attribute) else None
    return isinstance(of, cst.Name) and of.value == "self"
