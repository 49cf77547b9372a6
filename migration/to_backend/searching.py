"""Finds what keeps a program on TensorFlow: asks each rule about each name of it. Edits nothing."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from keras_mp.migration.code.parsed import ExpressionVisitor, Import, Program, chain, imported
from keras_mp.migration.rules import id_of, version_checks
from keras_mp.migration.to_backend import (
    backend_functions,
    checkpoints,
    compiled_functions,
    devices,
    gradient_tapes,
    horovod,
    imports,
    modules,
    saved_models,
    seeds,
    strategies,
    summaries,
    tensorflow_ops,
    train_steps,
    variables,
)
from keras_mp.migration.to_backend.classes import Classes, methods_of
from keras_mp.migration.to_backend.model_code import ModelCode
from keras_mp.migration.to_backend.spelling import (
    horovod_name,
    is_by_tensorflow,
    keras_name,
    tensorflow_name,
)
from keras_mp.migration.to_backend.uses import Target, Use

_RULES = (
    gradient_tapes,
    compiled_functions,
    variables,
    modules,
    checkpoints,
    strategies,
    summaries,
    saved_models,
    devices,
    seeds,
    backend_functions,
    horovod,
    tensorflow_ops,
)
_WORDS = re.compile(r"tensorflow|keras|horovod")
_WORDS_BYTES = re.compile(_WORDS.pattern.encode())
_SCALING = ("get_scaled_loss", "get_unscaled_gradients", "scale_loss")
# What unittest.mock adds to a function that a test replaced.
_OF_MOCKS = ("assert_called", "assert_not_called", "assert_any_call", "assert_has_calls")
_ASKS_FOR_BACKEND = re.compile(r"\bbackend\(\)|KERAS_BACKEND|_backend\(\)")


class Obstacle(NamedTuple):
    """What must change before a program runs on another backend: where, by which rule, and why."""

    node: cst.CSTNode
    rule: str
    message: str


def may_concern(text: str | bytes) -> bool:
    """Returns whether a program may use TensorFlow or Keras at all.

    >>> may_concern(b"import tensorflow as tf"), may_concern("import numpy")
    (True, False)
    """
    if isinstance(text, bytes):
        return _WORDS_BYTES.search(text) is not None
    return _WORDS.search(text) is not None


def obstacles(program: Program, target: Target) -> list[Obstacle]:
    """Returns what keeps a program on TensorFlow, in the order of rules.

    Args:
        program: Its names resolved.
        target: The backend that it is to run on.
    """
    found = [one for one in _found(program, target) if not _asks_for_backend(program, one.node)]
    return [_guarded(one) if program.is_guarded(one.node) else one for one in found]


def _found(program: Program, target: Target) -> Iterator[Obstacle]:
    names = _Names(program)
    program.module.visit(names)
    classes = Classes(program)
    code = ModelCode(program, classes)
    yield from _imports(program, names, target)
    steps = dict(_steps(program, classes, target))
    for method, message in steps.items():
        yield Obstacle(method.name, id_of(train_steps), message)
    for call in program.nodes.of(cst.Call):
        with_signatures = saved_models.with_signatures(call, target)
        if with_signatures is not None:
            yield Obstacle(call, id_of(saved_models), with_signatures)
    for node, full in names.uses:
        use = _use(program, code, node, full, target, names.scaling)
        for rule in _RULES:
            said = rule.decide(use)
            if said is not None:
                # The tape of a train step is told by the rule for these.
                if rule is not gradient_tapes or steps.keys().isdisjoint(program.above(node)):
                    yield Obstacle(node, id_of(rule), said)
                break


def _use(
    program: Program,
    code: ModelCode,
    node: cst.CSTNode,
    full: str,
    target: Target,
    scaling: set[cst.CSTNode],
) -> Use:
    call = program.call_of(node)
    parent = program.parent(call or node)
    name = tensorflow_name(full) or ""
    compiled = parent if isinstance(parent, cst.Decorator) else call
    return Use(
        node,
        call,
        parent,
        None if parent is None else program.parent(parent),
        target,
        tensorflow=name,
        keras=keras_name(full) or "",
        horovod=horovod_name(full) or "",
        in_model=code.holds(node),
        compiles_model=name == "function" and code.runs_model(compiled),
        scales=name == "GradientTape" and program.function(node) in scaling,
    )


def _steps(
    program: Program, classes: Classes, target: Target
) -> Iterator[tuple[cst.FunctionDef, str]]:
    for one, kind in classes.kinds.items():
        if kind in ("model", "layer"):
            for method in methods_of(one):
                said = train_steps.decide(program, method, target)
                if said is not None:
                    yield method, said


def _imports(program: Program, names: "_Names", target: Target) -> Iterator[Obstacle]:
    """Yields the first import of Keras by way of TensorFlow, or that of TensorFlow for it."""
    of_keras = [one for one in names.imports if _is_keras(one[1])]
    if not of_keras and any(_is_keras(full) for _, full in names.uses):
        roots = ("tensorflow", "tensorflow_core")
        of_keras = [one for one in names.imports if one[1].split(".")[0] in roots]
    of_keras.sort(key=lambda one: program.is_guarded(one[0]))
    for statement, full in of_keras[:1]:
        yield Obstacle(statement, id_of(imports), imports.decide(full, target))


def _is_keras(full: str) -> bool:
    # What is of mixed precision has rules of its own.
    return is_by_tensorflow(full) and not (keras_name(full) or "").startswith("mixed_precision")


def _asks_for_backend(program: Program, node: cst.CSTNode) -> bool:
    """Returns whether it is in a branch for one backend, as the program has others, too."""
    return any(
        isinstance(up, (cst.If, cst.IfExp)) and _ASKS_FOR_BACKEND.search(program.source(up.test))
        for up in program.above(node)
    )


def _guarded(one: Obstacle) -> Obstacle:
    what = one.message.partition(": ")[0]
    why = f"the program checks the TensorFlow version: not rewritten; this branch has {what}"
    return Obstacle(one.node, id_of(version_checks), why)


class _Names(ExpressionVisitor):
    """Collects imports, and names of TensorFlow, Keras and Horovod, in their order."""

    def __init__(self, program: Program) -> None:
        self._program = program
        statements: list[Import] = program.nodes.of(cst.Import, cst.ImportFrom)
        self.imports = [(one, full) for one in statements for _, full in imported(one)]
        attributes = program.nodes.of(cst.Attribute)
        scaling = (one for one in attributes if one.attr.value in _SCALING and program.call_of(one))
        self.scaling = {program.function(one) for one in scaling}  # functions that scale a loss
        self.uses: list[tuple[cst.CSTNode, str]] = []

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if chain(node) is None:
            return True
        self._note(node)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        bound = (cst.AssignTarget, cst.Param, cst.AsName)
        if not isinstance(self._program.parent(node), bound) and not self._program.is_label(node):
            self._note(node)

    def _note(self, node: cst.CSTNode) -> None:
        full = self._program.full_name(node)
        if full.rpartition(".")[2].startswith(_OF_MOCKS):
            return
        if tensorflow_name(full) or keras_name(full) or horovod_name(full):
            self.uses.append((node, full))
