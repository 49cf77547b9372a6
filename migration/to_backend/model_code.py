"""Which code of a program is that of a model, which the backend differentiates and compiles.

That is `call`, `build` and the like of Keras' classes, losses and metrics, what a tape records,
what @tf.function compiles, and the functions that these call. The same operations elsewhere, such
as in a pipeline of tf.data, do not depend on the backend of Keras.
"""

from collections.abc import Iterable, Iterator

import libcst as cst

from keras_mp.migration.code.parsed import Nodes, Program, keywords
from keras_mp.migration.to_backend.classes import Classes, methods_of
from keras_mp.migration.to_backend.spelling import keras_name, tensorflow_name
from keras_mp.migration.to_backend.tensors import Tensors, is_tape

# What Keras calls of its classes while it trains and predicts, or to make their weights.
_CALLED = {
    *("__call__", "build", "call", "compute_mask", "get_initial_state"),
    *("compute_loss", "compute_metrics", "train_step", "test_step", "predict_step"),
    *("update_state", "result", "reset_state", "reset_states", "merge_state"),
}
_OF_LOSSES = ["y_true", "y_pred"]
# Methods of tf.data.Dataset that are given functions.
_OF_PIPELINES = (
    *("map", "filter", "flat_map", "interleave", "apply", "from_generator", "take_while"),
    *("group_by_window", "bucket_by_sequence_length"),
)
# Methods of optimizers and metrics, and what programs call their models.
_OF_TRAINING = ("apply_gradients", "minimize", "update_state")
_MODELS = ("model", "net", "network", "generator", "discriminator", "encoder", "decoder")
_Body = cst.FunctionDef | cst.Lambda | cst.With | cst.Assign


class ModelCode:
    """The code of models in a program.

    Args:
        program: Its names resolved.
        classes: Its classes of Keras.
    """

    def __init__(self, program: Program, classes: Classes) -> None:
        self._program, self._classes = program, classes
        calls, functions = program.nodes.of(cst.Call), program.nodes.of(cst.FunctionDef)
        self._pipelines = {
            one for call in calls if self._is_pipeline(call) for one in self._given(call.args)
        }
        self._bodies: set[_Body] = set()
        self._calls: set[cst.Call] = set()
        self._add(self._roots(calls, functions))
        for body in (program.module, *functions):
            if body not in self._bodies:
                self._of_tensors(body)

    def holds(self, node: cst.CSTNode) -> bool:
        """Returns whether a name is in such code, called with tensors, or given to Keras."""
        parent = self._program.parent(node)
        if parent in self._calls:
            return True
        outer = self._program.parent(parent) if isinstance(parent, cst.Arg) else None
        if isinstance(outer, cst.Call) and outer.func is not node and self._is_of_keras(outer):
            return True
        for outer in self._program.above(node):
            if outer in self._bodies:
                return True
            if outer in self._pipelines:
                return False
        return False

    def _roots(
        self, calls: Iterable[cst.Call], functions: Iterable[cst.FunctionDef]
    ) -> Iterator[_Body]:
        for method in (each for one in self._classes.kinds for each in methods_of(one)):
            if method.name.value in _CALLED:
                yield method
            elif method.name.value == "__init__":
                yield from self._kept(method)
        for function in functions:
            compiled = self._is_compiled(function) and function not in self._pipelines
            if _is_loss(function) or (compiled and self._runs_model(function)):
                yield function
        blocks = self._program.nodes.of(cst.With)
        yield from (node for node in blocks if is_tape(self._program, node))
        for call in calls:
            if self._is_of_keras(call):
                yield from self._given(call.args)
            elif self._name(call.func) == "function":
                yield from filter(self._runs_model, self._given(call.args))

    def _kept(self, init: cst.FunctionDef) -> Iterator[_Body]:
        """Yields what a constructor of Keras' classes keeps for later: values, and functions."""
        found = Nodes(init)
        for assign in found.of(cst.Assign):
            if any(isinstance(target.target, cst.Attribute) for target in assign.targets):
                yield assign
        for call in found.of(cst.Call):
            if self._program.source(call.func) == "super().__init__":
                yield from self._given(call.args)

    def runs_model(self, compiled: cst.CSTNode | None) -> bool:
        """Returns whether a compiled function is code of a model; it is one where nothing is known.

        Args:
            compiled: The decorator @tf.function, or the call tf.function(...).
        """
        if isinstance(compiled, cst.Decorator):
            return self._program.parent(compiled) in self._bodies
        given = [*self._given(compiled.args)] if isinstance(compiled, cst.Call) else []
        return not given or not self._bodies.isdisjoint(given)

    def _runs_model(self, function: cst.CSTNode) -> bool:
        """Returns whether a function calls a model, or trains one, as its text shows."""
        found = Nodes(function)
        return any(is_tape(self._program, node) for node in found.of(cst.With)) or any(
            self._is_of_model(call) for call in found.of(cst.Call)
        )

    def _is_of_model(self, call: cst.Call) -> bool:
        if "training" in keywords(call):
            return True
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _OF_TRAINING:
            return True
        return self._program.source(call.func).rpartition(".")[2] in _MODELS

    def _is_compiled(self, function: cst.FunctionDef) -> bool:
        decorators = (one.decorator for one in function.decorators)
        names = (one.func if isinstance(one, cst.Call) else one for one in decorators)
        return any(self._name(one) == "function" for one in names)

    def _is_of_keras(self, call: cst.Call) -> bool:
        """Returns whether Keras is given functions: by `compile`, or to make a layer."""
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("compile", "add_loss"):
            return True
        return (keras_name(self._program.full_name(call.func)) or "").startswith("layers.")

    def _is_pipeline(self, call: cst.Call) -> bool:
        return (
            isinstance(call.func, cst.Attribute)
            and call.func.attr.value in _OF_PIPELINES
            and (self._name(call.func) or "data.").startswith("data.")
        )

    def _add(self, bodies: Iterable[_Body]) -> None:
        """Takes functions for code of a model, and those that they call, and so on."""
        waiting = list(bodies)
        while waiting:
            body = waiting.pop()
            if body in self._bodies:
                continue
            self._bodies.add(body)
            for call in Nodes(body).of(cst.Call):
                if not self._is_pipeline(call):
                    waiting += [*self._functions(call.func), *self._given(call.args)]

    def _of_tensors(self, body: cst.CSTNode) -> None:
        for call, kind in Tensors(self._program, self._classes, body).calls.items():
            self._calls.add(call)
            if kind == "symbolic":
                self._add(self._functions(call.func))

    def _given(self, arguments: Iterable[cst.Arg]) -> Iterator[cst.FunctionDef | cst.Lambda]:
        """Yields the functions of this file among arguments, and in lists of them."""
        for argument in arguments:
            value = argument.value
            values = [value]
            if isinstance(value, (cst.List, cst.Tuple)):
                values = [element.value for element in value.elements]
            for one in values:
                if isinstance(one, cst.Lambda):
                    yield one
                yield from self._functions(one.func if isinstance(one, cst.Call) else one)

    def _functions(self, node: cst.CSTNode) -> Iterator[cst.FunctionDef]:
        """Yields the functions of this file that a name may be: f, self.f."""
        if isinstance(node, cst.Name):
            scope = self._program.scope(node)
            for assignment in scope[node.value] if scope is not None else ():
                found = getattr(assignment, "node", None)
                if isinstance(found, cst.FunctionDef):
                    yield found
        elif isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name):
            around = self._program.around(node, cst.ClassDef)
            if node.value.value in ("self", "cls") and around is not None:
                yield from self._classes.methods(around, node.attr.value)

    def _name(self, node: cst.CSTNode) -> str | None:
        return tensorflow_name(self._program.full_name(node))


def _is_loss(function: cst.FunctionDef) -> bool:
    """Returns whether Keras may call a function as a loss: of y_true, y_pred, and no more."""
    names = [each.name.value for each in function.params.params if each.default is None]
    return names in (_OF_LOSSES, ["self", *_OF_LOSSES])
