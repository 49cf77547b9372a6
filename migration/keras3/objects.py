"""Which expressions of a program are objects of Keras, and of which kind.

Only what the program shows counts: what a constructor of Keras returns, names that are assigned
nothing else, `self` in a class derived from one of Keras, attributes that `self` is assigned,
annotated parameters, and what is read of such objects. Other parameters are unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst
from libcst.metadata import Scope

from keras_mp.migration.code.parsed import Program, chain
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.assignments import Assignments, Value, Variable
from keras_mp.migration.keras3.names import Known
from keras_mp.migration.keras3.symbolic import Symbolic

# Functions that return an object of Keras -> its kind.
_RETURN = {
    "models.load_model": "Model",
    "models.clone_model": "Model",
    "models.model_from_json": "Model",
    "models.model_from_yaml": "Model",
    "models.model_from_config": "Model",
    "utils.multi_gpu_model": "Model",
    "saving.load_model": "Model",
    "optimizers.get": "optimizers.Optimizer",
    "optimizers.deserialize": "optimizers.Optimizer",
    "Input": "KerasTensor",
}
# (kind, attribute) -> the kind of what is read.
_READ = {
    ("Model", "optimizer"): "optimizers.Optimizer",
    ("callbacks.Callback", "model"): "Model",
    ("optimizers.Optimizer", "iterations"): "Variable",
    ("optimizers.Optimizer", "learning_rate"): "Variable",
    ("optimizers.Optimizer", "lr"): "Variable",
    **{
        ("layers.Layer", name): "Variable"
        for name in ("kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance")
    },
    **{("layers.Layer", name): "KerasTensor" for name in ("input", "output")},
}
# (kind, attribute) -> the kind of the elements of the list that is read.
_ELEMENTS = {
    ("Model", "layers"): "layers.Layer",
    ("Model", "metrics"): "metrics.Metric",
    ("Model", "inputs"): "KerasTensor",
    ("Model", "outputs"): "KerasTensor",
    **{
        ("layers.Layer", f"{which}{what}"): "Variable"
        for which in ("", "trainable_", "non_trainable_")
        for what in ("weights", "variables")
    },
}
# (kind, method) -> the kind of what it returns.
_METHODS = {
    ("Model", "get_layer"): "layers.Layer",
    ("layers.Layer", "add_weight"): "Variable",
    ("metrics.Metric", "add_weight"): "Variable",
    ("layers.Layer", "from_config"): "layers.Layer",
}
# Kind -> what it is also.
_ABOVE = {
    "Sequential": ("Model", "layers.Layer"),
    "Model": ("layers.Layer",),
    "layers.RNN": ("layers.Layer",),
}


@dataclass(frozen=True, slots=True)
class Object:
    """What is known of an object.

    Attributes:
        kind: Such as "Model", "layers.Layer", "metrics.Metric", "Variable", "KerasTensor".
        name: The class of Keras it is made by, such as "layers.Dense"; "" where it is not known.
        own: The class of the program it is made by, if it is one.
    """

    kind: str
    name: str = ""
    own: cst.ClassDef | None = field(default=None, repr=False)

    def is_a(self, kind: str) -> bool:
        """Returns whether it is of a kind, or of one derived from it."""
        return kind in kinds_of(self.kind)


def kinds_of(kind: str) -> tuple[str, ...]:
    """Returns a kind and those that it is derived from.

    >>> kinds_of("Sequential")
    ('Sequential', 'Model', 'layers.Layer')
    """
    return (kind, *_ABOVE.get(kind, ()))


class Objects:
    """What is known of the objects of a program.

    Args:
        program: Its names resolved.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        found = Assignments(program)
        program.module.visit(found)
        self._found = found
        self._objects: dict[cst.CSTNode, Object | None] = {}
        self._variables: dict[tuple[Scope, str], Variable | None] = {}
        self._classes: dict[cst.ClassDef, Object | None] = {}
        self._open: set[cst.CSTNode] = set()
        self._symbolic = Symbolic(program, self)

    # -- names of Keras ---------------------------------------------------------------------------

    def known(self, node: cst.CSTNode) -> Known | None:
        """Returns which name of Keras an expression is, as a whole; None where unknown."""
        full = self._program.full_name(node, is_sole=True)
        found = names.keras_name(full)
        return found if found and found.length == full.count(".") + 1 else None

    def public(self, node: cst.CSTNode) -> str:
        """Returns the public name of what an expression is of Keras, or was; "" for others."""
        found = self.known(node)
        if found is None:
            return ""
        return names.first(found.new if found.new is not None else found.name)

    # -- objects ----------------------------------------------------------------------------------

    def of(self, node: cst.CSTNode) -> Object | None:
        """Returns what is known of the object that an expression is; None for what is not known."""
        if node not in self._objects:
            if node in self._open or len(self._open) > _DEEPEST:
                return None
            self._open.add(node)
            try:
                self._objects[node] = self._of(node)
            finally:
                self._open.discard(node)
        return self._objects[node]

    def is_a(self, node: cst.CSTNode, kind: str) -> bool:
        """Returns whether an expression is known to be an object of a kind."""
        found = self.of(node)
        return found is not None and found.is_a(kind)

    def is_symbolic(self, node: cst.CSTNode) -> bool:
        """Returns whether an expression is a KerasTensor: an Input, or made of one by layers.

        What TensorFlow's functions return of one was one, too, before Keras 3.
        """
        return self._symbolic.is_symbolic(node)

    def class_of(self, node: cst.ClassDef) -> Object | None:
        """Returns what objects of a class of the program are; None where it is not of Keras."""
        if node not in self._classes:
            if node in self._open or len(self._open) > _DEEPEST:
                return None
            self._open.add(node)
            found = (self._of_class(base.value) for base in node.bases)
            above = next((one for one in found if one is not None), None)
            self._open.discard(node)
            self._classes[node] = replace(above, own=node) if above is not None else None
        return self._classes[node]

    def defines(self, found: Object, name: str) -> bool:
        """Returns whether the program's own class, or one above it, has an attribute of a name."""
        own = found.own
        seen: set[cst.CSTNode] = set()
        while own is not None and own not in seen:
            seen.add(own)
            if name in self._found.defined[own] or (own, name) in self._found.attributes:
                return True
            own = self.base(own)
        return False

    def assigned(self, node: cst.Name) -> list[cst.CSTNode]:
        """Returns what a name is assigned; nothing where something is not written out."""
        found = []
        variable = self.variable(node)
        for value in variable.values if variable is not None else ():
            if value.node is None or value.is_element or isinstance(value.node, cst.Name):
                return []
            found.append(value.node)
        return found

    def attributes_of(self, node: cst.ClassDef) -> list[cst.CSTNode]:
        """Returns what a class assigns to attributes of `self`, in the order of the text."""
        return [
            value.node
            for (of, _), values in self._found.attributes.items()
            if of is node
            for value in values
            if value.node is not None and not value.is_element
        ]

    def base(self, node: cst.ClassDef) -> cst.ClassDef | None:
        """Returns the class of the program that a class is derived from first."""
        bases = (self._class(base.value) for base in node.bases)
        return next((base for base in bases if base is not None), None)

    def method(self, found: Object, name: str) -> cst.FunctionDef | None:
        """Returns a method that the program's own class defines itself."""
        for line in found.own.body.body if found.own is not None else ():
            if isinstance(line, cst.FunctionDef) and line.name.value == name:
                return line
        return None

    def _of(self, node: cst.CSTNode) -> Object | None:
        if isinstance(node, cst.Call):
            return self._of_call(node)
        if isinstance(node, cst.Name):
            return self._of_name(node)
        if isinstance(node, cst.Attribute):
            return self._of_attribute(node)
        if isinstance(node, cst.Subscript):
            return self._of_element(node)
        if isinstance(node, cst.IfExp):
            return _joined([self.of(node.body), self.of(node.orelse)])
        if isinstance(node, cst.NamedExpr):
            return self.of(node.value)
        return None

    def _of_call(self, call: cst.Call) -> Object | None:
        name = self.public(call.func)
        if name:
            kind = names.kind(name)
            if kind is not None:
                return Object(kind, name)
            if name.startswith("applications.") and name.rpartition(".")[2][:1].isupper():
                return Object("Model")
            found = _RETURN.get(name)
            return Object(found) if found else None
        if isinstance(call.func, cst.Name):
            if call.func.value == "super":
                around = self._program.around(call, cst.ClassDef)
                found_class = self.class_of(around) if around is not None else None
                return replace(found_class, own=None) if found_class else None
            own = self._class(call.func)
            if own is not None:
                return self.class_of(own)
            function = self._found.functions.get(self._definition(call.func))
            return self._returned(function) if function is not None else None
        if isinstance(call.func, cst.Attribute) and (found_kind := self._in(_METHODS, call.func)):
            return Object(found_kind)
        if self.is_symbolic(call):
            return Object("KerasTensor")
        return None

    def _returned(self, function: cst.FunctionDef) -> Object | None:
        if function in self._open or function.asynchronous is not None:
            return None
        self._open.add(function)
        try:
            returns = self._found.returned[function]
            return _joined([self.of(one) if one is not None else None for one in returns])
        finally:
            self._open.discard(function)

    def _of_name(self, node: cst.Name) -> Object | None:
        function = self._method_around(node)
        if function is not None and _is_first(function, node.value):
            around = self._program.parent(self._program.parent(function) or function)
            if isinstance(around, cst.ClassDef):
                return self.class_of(around)
        variable = self.variable(node)
        if variable is None:
            return None
        if self.is_symbolic(node):
            return Object("KerasTensor")
        return _joined([self._assigned(value) for value in variable.values])

    def _method_around(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Returns the outermost function that a node is in within its class."""
        found = None
        for up in self._program.above(node):
            if isinstance(up, cst.FunctionDef):
                found = up
            elif isinstance(up, cst.ClassDef):
                return found
        return None

    def variable(self, node: cst.Name) -> Variable | None:
        """Returns what a name is assigned, in its scope; None where something is not known."""
        scope = self._program.scope(node)
        if scope is None:
            return None
        key = (scope, node.value)
        if key not in self._variables:
            targets = [getattr(one, "node", None) for one in scope[node.value]]
            known = bool(targets) and all(one in self._found.values for one in targets)
            values = (value for one in targets for value in self._found.values.get(one, ()))
            self._variables[key] = Variable(tuple(values)) if known else None
        return self._variables[key]

    def _assigned(self, value: Value) -> Object | None:
        if value.annotation is not None:
            found = self._of_class(value.annotation)
            return replace(found, own=None, name="") if found is not None else None
        if value.node is None:
            return None
        if value.is_element:
            return self._element(value.node)
        if isinstance(value.node, cst.Name) and value.node.value == "None":
            return _NOTHING
        return self.of(value.node)

    def _of_attribute(self, node: cst.Attribute) -> Object | None:
        if kind := self._in(_READ, node):
            return Object(kind)
        values = self._assigned_to(node)
        return _joined([self._assigned(value) for value in values]) if values else None

    def _in(self, table: Mapping[tuple[str, str], str], node: cst.Attribute) -> str:
        """Returns what a table has of an attribute; "" for one that the program's class defines."""
        receiver, name = self.of(node.value), node.attr.value
        if receiver is None or self.defines(receiver, name):
            return ""
        found = (table[kind, name] for kind in kinds_of(receiver.kind) if (kind, name) in table)
        return next(found, "")

    def _assigned_to(self, node: cst.Attribute) -> Sequence[Value]:
        """Returns what an attribute of `self` is assigned in its class."""
        if not isinstance(node.value, cst.Name) or node.value.value != "self":
            return ()
        around = self._program.around(node, cst.ClassDef)
        return self._found.attributes.get((around, node.attr.value), ()) if around else ()

    def _of_element(self, node: cst.Subscript) -> Object | None:
        index = node.slice[0].slice if len(node.slice) == 1 else None
        if isinstance(index, cst.Index):
            found = self._element(node.value)
            if found is not None:
                return found
        return Object("KerasTensor") if self.is_symbolic(node) else None

    def _element(self, node: cst.CSTNode) -> Object | None:
        """Returns what the elements of an expression are."""
        if isinstance(node, (cst.List, cst.Tuple)):
            return _joined([self.of(element.value) for element in node.elements])
        if isinstance(node, cst.Attribute):
            if kind := self._in(_ELEMENTS, node):
                return Object(kind)
            values = self._assigned_to(node)
            return self._element_of(values) if values else None
        if isinstance(node, cst.Name):
            variable = self.variable(node)
            return self._element_of(variable.values) if variable is not None else None
        if isinstance(node, cst.Subscript):  # a slice
            index = node.slice[0].slice if len(node.slice) == 1 else None
            return self._element(node.value) if isinstance(index, cst.Slice) else None
        return None

    def _element_of(self, values: Iterable[Value]) -> Object | None:
        nodes = [None if v.is_element or v.annotation else v.node for v in values]
        if any(node is None or node in self._open for node in nodes):
            return None
        found = []
        for node in nodes:
            assert node is not None
            self._open.add(node)
            found.append(self._element(node))
            self._open.discard(node)
        return _joined(found)

    def _of_class(self, node: cst.CSTNode) -> Object | None:
        """Returns what objects of the class are that an expression names."""
        name = self.public(node)
        if name:
            kind = names.kind(name)
            return Object(kind, name) if kind is not None else None
        own = self._class(node)
        return self.class_of(own) if own is not None else None

    def _class(self, node: cst.CSTNode) -> cst.ClassDef | None:
        return self._found.classes.get(self._definition(node)) if chain(node) else None

    def _definition(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Returns the one thing that defines a name, if there is one."""
        scope = self._program.scope(node)
        if not isinstance(node, cst.Name) or scope is None:
            return None
        found = [getattr(one, "node", None) for one in scope[node.value]]
        return found[0] if len(found) == 1 else None


_NOTHING = Object("")
# So many objects depend on each other at the most: each takes some of the stack.
_DEEPEST = 30


def _joined(found: list[Object | None]) -> Object | None:
    """Returns what is known of an object that is one of several; None where one is not known."""
    known = [one for one in found if one is not _NOTHING]
    if not known or any(one is None for one in known):
        return None
    first = known[0]
    assert first is not None
    if all(one == first for one in known):
        return first
    for kind in kinds_of(first.kind):
        if all(one is not None and one.is_a(kind) for one in known):
            # What a class of the program defines, some of them do: nothing is known of these.
            own = next((one.own for one in known if one is not None and one.own), None)
            return Object(kind, own=own)
    return None


def _is_first(function: cst.FunctionDef, name: str) -> bool:
    first = function.params.params[0].name.value if function.params.params else ""
    static = any(
        isinstance(one.decorator, cst.Name)
        and one.decorator.value in ("staticmethod", "classmethod")
        for one in function.decorators
    )
    return name == first and not static
