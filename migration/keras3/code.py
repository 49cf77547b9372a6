"""A program as the rules of Keras 3 look at it: what it has of each kind of node."""

import functools
import re
from collections.abc import Container

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.names import legacy_name
from keras_mp.migration.code.parsed import (
    ExpressionVisitor,
    Import,
    Program,
    chain,
    dotted,
    imported,
    string,
)
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.names import Known
from keras_mp.migration.keras3.objects import Objects

# What programs call a model.
_MODEL = re.compile(r"model|net(work)?\d*$|generator|discriminator|encoder|decoder", re.IGNORECASE)
_WORD = re.compile(r"\w+")
# How a program asks whether there is an attribute or a parameter.
_LOOKS = re.compile(r"hasattr|signature|getattr|callable")
# What errors of arguments a program catches, where it tries one way and then another.
_ARGUMENT_ERRORS = ("TypeError", "ValueError")


class Code:
    """A program, what it has, and what is known of its objects.

    Args:
        program: Its names resolved.

    Attributes:
        program: It.
        objects: What is known of its objects.
        calls: Every call, in the order of the text; so are all others.
        attributes: Every attribute that is no part of a name of something imported.
        chains: Names and chains of attributes, as a whole, outside of imports.
        imports: Import statements.
        classes: Classes.
        strings: Strings that are values.
        functions: Names of functions and methods.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.objects = Objects(program)
        self.calls = program.nodes.of(cst.Call)
        self.attributes: list[cst.Attribute] = []
        self.chains: list[cst.Name | cst.Attribute] = []
        self.imports: list[Import] = program.nodes.of(cst.Import, cst.ImportFrom)
        self.classes = program.nodes.of(cst.ClassDef)
        self.strings = program.nodes.of(cst.SimpleString)
        self.functions = {one.name.value for one in program.nodes.of(cst.FunctionDef)}
        program.module.visit(_Chains(self))

    @functools.cached_property
    def uses_keras(self) -> bool:
        """Returns whether it imports Keras, or uses it of TensorFlow."""
        if any(self.imported(statement) for statement in self.imports):
            return True
        return any(self.known(node) is not None for node in self.chains)

    @functools.cached_property
    def chains_by_name(self) -> dict[str, list[cst.Name | cst.Attribute]]:
        """Returns the chains that begin with each name."""
        found: dict[str, list[cst.Name | cst.Attribute]] = {}
        for node in self.chains:
            parts = chain(node)
            if parts is not None:
                found.setdefault(parts[0].value, []).append(node)
        return found

    def defines(self, name: str) -> bool:
        """Returns whether the program has a function or a method of a name."""
        return name in self.functions

    def known(self, node: cst.CSTNode) -> Known | None:
        """Returns which name of Keras a chain begins with; None for what means several things.

        Names of mixed precision are left to the rules of these.
        """
        full = self.program.full_name(node, is_sole=True)
        return None if legacy_name(full) is not None else names.keras_name(full)

    def part(self, node: cst.CSTNode, length: int) -> cst.CSTNode:
        """Returns the part of a chain that spells the first components of what it means."""
        meaning, parts = self.program.meaning(node), chain(node)
        assert meaning is not None
        assert parts is not None
        extra = meaning.full.count(".") + 1 - length
        for _ in range(min(extra, len(parts) - 1)):
            assert isinstance(node, cst.Attribute)
            node = node.value
        return node

    def imported(self, statement: Import) -> list[tuple[cst.ImportAlias, str]]:
        """Returns what an import statement imports of Keras: each, and its dotted name."""
        return [
            (alias, full)
            for alias, full in imported(statement)
            if alias is not None and names.keras_name(full) and legacy_name(full) is None
        ]

    def is_guarded(self, node: cst.CSTNode, *words: str) -> bool:
        """Returns whether a node is where the program asks what there is.

        Args:
            node: It.
            words: Names that it may be asked for, by hasattr or getattr.
        """
        if self.program.is_guarded(node):
            return True
        for up in self.program.above(node):
            if isinstance(up, (cst.If, cst.IfExp)):
                test = self.program.source(up.test)
                if "find_spec" in test:
                    return True
                if _LOOKS.search(test) and not {*words}.isdisjoint(_WORD.findall(test)):
                    return True
            if isinstance(up, cst.Try):
                caught = "".join(self.program.source(h.type) for h in up.handlers if h.type)
                if any(error in caught for error in _ARGUMENT_ERRORS):
                    return True
        return False

    # -- edits ------------------------------------------------------------------------------------

    def replaced(self, node: cst.CSTNode, text: str) -> Edit:
        """Returns the edit that puts a text in the place of a node."""
        return Edit(*self.program.span(node), text)

    def without(self, call: cst.Call, argument: cst.Arg, gone: Container[cst.Arg] = ()) -> Edit:
        """Returns the edit that takes an argument out of a call, with the comma that goes with it.

        Args:
            call: The call.
            argument: The argument.
            gone: What else is taken out of it.
        """
        at = next(i for i, one in enumerate(call.args) if one is argument)
        start, end = self.program.span(argument)
        if any(one not in gone for one in call.args[:at]):
            return Edit(self.program.span(call.args[at - 1])[1], end, "")
        if at + 1 < len(call.args):
            return Edit(start, self.program.span(call.args[at + 1])[0], "")
        # Nothing is left: what stands behind it is a comma at the most.
        after = self.program.text[end : self.program.span(call)[1]]
        comma = re.match(r"\s*,", after)
        return Edit(start, end + (comma.end() if comma else 0), "")


def is_called_a_model(node: cst.CSTNode) -> bool:
    """Returns whether an expression is named as models are, such as `self.model`.

    >>> is_called_a_model(cst.parse_expression("self.train_model"))
    True
    >>> is_called_a_model(cst.parse_expression("agent"))
    False
    """
    name = node.attr if isinstance(node, cst.Attribute) else node
    return isinstance(name, cst.Name) and _MODEL.search(name.value) is not None


def ending(node: cst.CSTNode) -> str | None:
    """Returns how a string ends, as far as it is written out; None where that is not known.

    >>> ending(cst.parse_expression("os.path.join(folder, f'{name}.h5')"))
    '.h5'
    >>> ending(cst.parse_expression("folder + '/model'")), ending(cst.parse_expression("path"))
    ('/model', None)
    """
    text = string(node)
    if text is not None:
        return text
    if isinstance(node, cst.FormattedString) and node.parts:
        last = node.parts[-1]
        return last.value if isinstance(last, cst.FormattedStringText) else None
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Modulo):
            return _until_placeholder(ending(node.left), "%")
        return ending(node.right) if isinstance(node.operator, (cst.Add, cst.Divide)) else None
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        if node.func.attr.value == "join" and node.args[-1].star == "":
            return ending(node.args[-1].value)
        if node.func.attr.value == "format":
            return _until_placeholder(ending(node.func.value), "}")
    if isinstance(node, cst.Call) and dotted(node.func) == "str" and len(node.args) == 1:
        return ending(node.args[0].value)
    return None


def _until_placeholder(text: str | None, last: str) -> str | None:
    """Returns the end of a pattern that stays when it is filled in; None where it is filled in."""
    if text is None:
        return None
    if last == "}":
        return None if text.endswith("}") else text.rpartition("}")[2]
    found = re.findall(r"%[-+ #0-9.]*[a-zA-Z]([^%]*)$", text)
    return (found[0] or None) if found else text


class _Chains(ExpressionVisitor):
    def __init__(self, code: Code) -> None:
        self.code = code

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if chain(node) is not None and self.code.program.meaning(node) is not None:
            self.code.chains.append(node)
            return False
        inner: cst.CSTNode = node
        while isinstance(inner, cst.Attribute):
            self.code.attributes.append(inner)
            inner = inner.value
        inner.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        if not self.code.program.is_label(node):
            self.code.chains.append(node)
