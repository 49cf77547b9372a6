"""Which names of a function hold tensors of a model, as far as its text says.

Tensors come from `keras.Input`, from calls of layers, `Dense(8)(x)`, and from what is done on a
tape; and from whatever is computed with these. A name that holds one keeps it: this looks for
operations on them, and may miss some.
"""

from typing import Literal

import libcst as cst

from keras_mp.migration.code.parsed import Program
from keras_mp.migration.to_backend.classes import Classes
from keras_mp.migration.to_backend.spelling import keras_name, tensorflow_name

# "symbolic" where a model is built of calls of layers; "taped" after a step on a tape.
Tensor = Literal["symbolic", "taped"]
_OF_HOST = ("shape", "dtype", "numpy", "name", "get_shape")
_TO_HOST = ("float", "int", "bool", "str", "len", "print", "isinstance", "type", "range")


class Tensors:
    """The calls in a function, or at the top of a module, that compute with tensors of a model.

    Args:
        program: Its names resolved.
        classes: Its classes of Keras.
        body: The function, or the module.

    Attributes:
        calls: Those with such an argument, or such a result -> which kind.
    """

    def __init__(self, program: Program, classes: Classes, body: cst.CSTNode) -> None:
        self.calls: dict[cst.Call, Tensor] = {}
        found = _Assigned(program, classes, body, self.calls)
        body.visit(found)
        body.visit(found)  # once more, for what a loop assigns below where it uses it


class _Assigned(cst.CSTVisitor):
    def __init__(
        self, program: Program, classes: Classes, body: cst.CSTNode, calls: dict[cst.Call, Tensor]
    ) -> None:
        self._program, self._classes, self._body, self._calls = program, classes, body, calls
        self._names: dict[str, Tensor] = {}
        self._on_tape = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return node is self._body

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False

    def visit_With(self, node: cst.With) -> None:
        if is_tape(self._program, node):
            self._on_tape += 1
            for item in node.items:
                if item.asname is not None:
                    self._bind(item.asname.name, "taped")

    def leave_With(self, original_node: cst.With) -> None:
        self._on_tape -= is_tape(self._program, original_node)

    def leave_Assign(self, original_node: cst.Assign) -> None:
        for target in original_node.targets:
            self._bind(target.target, self._kind(original_node.value))

    def leave_AnnAssign(self, original_node: cst.AnnAssign) -> None:
        if original_node.value is not None:
            self._bind(original_node.target, self._kind(original_node.value))

    def leave_AugAssign(self, original_node: cst.AugAssign) -> None:
        self._bind(original_node.target, self._kind(original_node.value))

    def leave_For(self, original_node: cst.For) -> None:
        self._bind(original_node.target, self._kind(original_node.iter))

    def leave_CompFor(self, original_node: cst.CompFor) -> None:
        self._bind(original_node.target, self._kind(original_node.iter))

    def leave_Call(self, original_node: cst.Call) -> None:
        kind = self._of_call(original_node)
        if kind is not None:
            self._calls[original_node] = kind

    def _bind(self, target: cst.CSTNode, kind: Tensor | None) -> None:
        if isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                self._bind(element.value, kind)
        elif isinstance(target, cst.Name) and (kind or self._on_tape):
            self._names[target.value] = kind or "taped"

    def _kind(self, node: cst.CSTNode) -> Tensor | None:
        """Returns which kind of tensor an expression is, or holds."""
        if isinstance(node, cst.Name):
            return self._names.get(node.value)
        if isinstance(node, cst.Call):
            return self._calls.get(node)
        if isinstance(node, cst.Attribute):
            return None if node.attr.value in _OF_HOST else self._kind(node.value)
        if isinstance(node, cst.Lambda):
            return None
        return next((kind for one in node.children if (kind := self._kind(one))), None)

    def _of_call(self, call: cst.Call) -> Tensor | None:
        full = self._program.full_name(call.func)
        name = keras_name(full)
        if name is not None and name.rpartition(".")[2] == "Input":
            return "symbolic"
        if full.startswith("numpy.") or self._program.source(call.func) in _TO_HOST:
            return None
        if self._makes(call, name):
            return None
        if isinstance(call.func, cst.Call) and self._is_layer(call.func):
            return "taped" if self._on_tape else "symbolic"
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _OF_HOST:
            return None
        given = (self._kind(argument.value) for argument in call.args)
        of = self._kind(call.func) if isinstance(call.func, cst.Attribute) else None
        return next((kind for kind in given if kind), of)

    def _makes(self, call: cst.Call, name: str | None) -> bool:
        """Returns whether a call makes a model, a layer or another object of Keras."""
        if name is not None:
            return name.rpartition(".")[2][:1].isupper()
        return self._classes.named(call.func) is not None

    def _is_layer(self, call: cst.Call) -> bool:
        name = keras_name(self._program.full_name(call.func)) or ""
        local = self._classes.named(call.func)
        is_local = local is not None and self._classes.kinds.get(local) == "layer"
        return is_local or name.startswith("layers.")


def is_tape(program: Program, node: cst.With) -> bool:
    """Returns whether a `with` opens a tf.GradientTape."""
    return any(
        isinstance(item.item, cst.Call) and is_gradient_tape(program, item.item.func)
        for item in node.items
    )


def is_gradient_tape(program: Program, node: cst.CSTNode) -> bool:
    """Returns whether a name is tf.GradientTape."""
    return tensorflow_name(program.full_name(node)) == "GradientTape"
