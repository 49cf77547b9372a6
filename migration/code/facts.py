"""What is known of a whole program: which names hold wrapped optimizers, what is read of them."""

from collections import defaultdict

import libcst as cst

from keras_mp.migration.code.parsed import Program, chain

_WRAPPERS = (
    "LossScaleOptimizer",
    "MixedPrecisionLossScaleOptimizer",
    "enable_mixed_precision_graph_rewrite",
)
# What optimizers of Keras 2 had, and those of Keras 3 have not.
_OF_KERAS_2 = ("get_slot", "get_slot_names", "add_slot")
_OF_KERAS_2_IF_WRAPPED = ("variables", "weights")


class Facts:
    """What is known of a program.

    Args:
        program: Its names resolved.

    Attributes:
        methods: Function -> name -> calls, of the methods that scale losses and unscale gradients.
        is_concerned: Whether the program has any of the old names.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        found = _Uses(program)
        program.module.visit(found)
        self._assigned = found.assigned
        self._read = found.read
        self._called = found.called
        self._wrapped = found.wrapped
        self._by_compat: set[tuple[int, str]] = set()
        self._calls_of_compat: set[cst.CSTNode] = set()
        self.methods = found.methods
        self.is_concerned = False

    def is_wrapped(self, node: cst.CSTNode) -> bool:
        """Returns whether a node is a name that is given a wrapped optimizer somewhere."""
        if isinstance(node, cst.Call):
            return _wraps(self._program, node)
        return chain(node) is not None and self._key(node) in self._wrapped

    def note_compat(self, call: cst.Call) -> None:
        """Notes that a call makes an optimizer of keras_mp.compat, with the attributes of then."""
        self._calls_of_compat.add(call)
        target = self.assigned_to(call)
        if target is not None:
            self._by_compat.add(target)

    def is_of_compat(self, node: cst.CSTNode) -> bool:
        """Returns whether a name is given an optimizer of keras_mp.compat somewhere."""
        if isinstance(node, cst.Call):
            return node in self._calls_of_compat
        return chain(node) is not None and self._key(node) in self._by_compat

    def needs_keras_2(self) -> bool:
        """Returns whether wrapped optimizers are used with methods that only Keras 2 had."""
        texts = {text for _, text in self._wrapped}
        return any(name in self._called for name in _OF_KERAS_2) or any(
            (text, name) in self._called_of for name in _OF_KERAS_2_IF_WRAPPED for text in texts
        )

    @property
    def _called_of(self) -> set[tuple[str, str]]:
        return {one for each in self._called.values() for one in each}

    def assigned_to(self, node: cst.CSTNode) -> tuple[int, str] | None:
        """Returns what a value is assigned to, if it is one name."""
        return self._assigned.get(node)

    def reads(self, target: tuple[int, str], name: str) -> bool:
        """Returns whether an attribute is read of a name anywhere in its scope."""
        return name in self._read[target]

    def _key(self, node: cst.CSTNode) -> tuple[int, str]:
        return key(self._program, node)


def key(program: Program, node: cst.CSTNode) -> tuple[int, str]:
    """Returns what tells a name apart from those of other scopes: self.x belongs to the module."""
    names = chain(node) or []
    text = ".".join(name.value for name in names)
    if len(names) > 1:
        return 0, text
    scope = program.scope(node)
    while scope is not None and text not in getattr(scope, "_assignments", {text: 0}):
        outer = scope.parent
        if outer is scope:
            break
        scope = outer
    return id(scope), text


def _wraps(program: Program, node: cst.CSTNode) -> bool:
    """Returns whether it is a call that makes a wrapped optimizer."""
    old = program.old(node.func) if isinstance(node, cst.Call) else None
    return old is not None and old.name in _WRAPPERS


class _Uses(cst.CSTVisitor):
    def __init__(self, program: Program) -> None:
        self.program = program
        self.assigned: dict[cst.CSTNode, tuple[int, str]] = {}
        self.read: dict[tuple[int, str], set[str]] = defaultdict(set)
        self.called: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.wrapped: set[tuple[int, str]] = set()
        # function -> names of methods of scaled losses -> calls
        self.methods: dict[cst.CSTNode, dict[str, list[cst.Call]]] = {}

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self._assign(target.target, node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._assign(node.target, node.value)

    def _assign(self, target: cst.CSTNode, value: cst.CSTNode) -> None:
        if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
            if len(target.elements) == len(value.elements):
                for one, of in zip(target.elements, value.elements, strict=True):
                    self._assign(one.value, of.value)
            return
        if chain(target) is None:
            return
        place = key(self.program, target)
        self.assigned[value] = place
        if isinstance(value, cst.IfExp):
            self._assign(target, value.body)
            self._assign(target, value.orelse)
        elif _wraps(self.program, value):
            self.wrapped.add(place)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if chain(node.value) is not None:
            self.read[key(self.program, node.value)].add(node.attr.value)

    def visit_Call(self, node: cst.Call) -> None:
        if isinstance(node.func, cst.Name) and node.func.value == "isinstance":
            self._narrow(node)
        if not isinstance(node.func, cst.Attribute):
            return
        name = node.func.attr.value
        self.called[name].add((self.program.source(node.func.value), name))
        if name in ("get_scaled_loss", "get_unscaled_gradients"):
            calls = self.methods.setdefault(self.program.function(node), {})
            calls.setdefault(name, []).append(node)

    def _narrow(self, call: cst.Call) -> None:
        if len(call.args) != 2 or chain(call.args[0].value) is None:
            return
        classes = [call.args[1].value]
        if isinstance(classes[0], cst.Tuple):
            classes = [element.value for element in classes[0].elements]
        for one in classes:
            old = self.program.old(one)
            if old is not None and old.name in _WRAPPERS:
                self.wrapped.add(key(self.program, call.args[0].value))
