"""KMP107: methods and attributes that have another name in Keras 3.

before:  metric.reset_states()                           # of a metric
after:   metric.reset_state()

before:  model.fit_generator(batches, 10, epochs=2)      # of a model
after:   model.fit(batches, steps_per_epoch=10, epochs=2)

before:  optimizer.lr.assign(0.1)                        # of an optimizer
after:   optimizer.learning_rate.assign(0.1)

before:  optimizer.variables()                           # it is a list
after:   optimizer.variables

before:  K.set_value(optimizer.learning_rate, 0.1)       # K is keras.backend
after:   optimizer.learning_rate.assign(0.1)

before:  Model(stack.input, stack.layers[0].output)      # stack is a Sequential
after:   Model(stack.inputs[0], stack.layers[0].output)

Rewritten where the program shows that the object is one of Keras, and its own class does not have
the name. `def reset_states` in a class of metrics becomes `reset_state`, which Keras calls.
Recurrent layers have `reset_states` still.
Reported for any object: fit_generator, evaluate_generator and predict_generator, which only models
of Keras had; `.optimizer.lr`, as optimizers of others have no lr; reset_states of what is called a
metric, a loss or an accuracy.
"""

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import dotted
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.code import Code

# (kind, name) -> the name of today.
_RENAMED = {
    ("metrics.Metric", "reset_states"): "reset_state",
    ("optimizers.Optimizer", "lr"): "learning_rate",
    ("optimizers.Optimizer", "_create_all_weights"): "build",
    ("layers.Layer", "add_variable"): "add_weight",
}
# Methods of models that took generators -> that of today, and the order of their parameters.
GENERATORS = {
    "fit_generator": (
        "fit",
        (
            *("generator", "steps_per_epoch", "epochs", "verbose", "callbacks", "validation_data"),
            *("validation_steps", "validation_freq", "class_weight", "max_queue_size", "workers"),
            *("use_multiprocessing", "shuffle", "initial_epoch"),
        ),
    ),
    "evaluate_generator": ("evaluate", ("generator", "steps", "callbacks", "max_queue_size")),
    "predict_generator": ("predict", ("generator", "steps", "callbacks", "max_queue_size")),
}
# Functions of keras.backend that change variables -> the method of a variable of Keras.
_CHANGING = {
    "backend.set_value": "assign",
    "backend.update": "assign",
    "backend.update_add": "assign_add",
    "backend.update_sub": "assign_sub",
}
_CALLED_METRIC = re.compile(r"metric|loss|acc|auc|precision|recall|iou|mean", re.IGNORECASE)


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for node in code.attributes:
        found = _of_attribute(code, node)
        if found is not None:
            yield node, found
    for call in code.calls:
        found = of_call(code, call)
        if found is not None:
            yield call, found
    for one in code.classes:
        renamed = _of_class(code, one)
        if renamed is not None:
            yield renamed


def _of_attribute(code: Code, node: cst.Attribute) -> Decision | None:
    name, of = node.attr.value, node.value
    for (kind, old), new in _RENAMED.items():
        if name != old:
            continue
        receiver = code.objects.of(of)
        if receiver is not None and receiver.is_a(kind):
            if kind != "metrics.Metric" and code.objects.defines(receiver, name):
                return None
            if kind == "metrics.Metric" and code.objects.defines(receiver, new):
                return None
            said = f"{kind.rpartition('.')[2]}.{name} is {new} in Keras 3"
            return Decision("rewritten", said, (code.replaced(node.attr, new),))
    if name in ("input", "output"):
        return _of_sequential(code, node)
    if not code.uses_keras:
        return None
    of_optimizer = isinstance(of, cst.Attribute) and of.attr.value == "optimizer"
    if name == "lr" and of_optimizer and code.objects.of(of) is None:
        return Decision("manual", "of an optimizer of Keras 3: write learning_rate")
    if name == "reset_states" and code.objects.of(of) is None:
        last = of.attr.value if isinstance(of, cst.Attribute) else dotted(of)
        if _CALLED_METRIC.search(last):
            return Decision("manual", "of a metric of Keras 3: write reset_state")
    return None


def _of_sequential(code: Code, node: cst.Attribute) -> Decision | None:
    found = code.objects.of(node.value)
    if found is None or found.kind != "Sequential" or found.own is not None:
        return None
    new = f"{node.attr.value}s[0]"
    said = (
        f"a Sequential model of Keras 3 that was not called has no {node.attr.value}: write {new}"
    )
    if code.program.is_bound(node):
        return Decision("manual", said)
    return Decision("rewritten", said, (code.replaced(node.attr, new),))


def of_call(code: Code, call: cst.Call) -> Decision | None:
    """Returns what becomes of a call; None where nothing does."""
    method = _CHANGING.get(code.objects.public(call.func))
    if method is not None:
        return _of_change(code, call, method)
    if not isinstance(call.func, cst.Attribute):
        return None
    name, of = call.func.attr.value, call.func.value
    if name in GENERATORS:
        return _of_generator(code, call, name)
    if not call.args and name == "variables" and _is_plain(code, of, "optimizers.Optimizer", name):
        end = code.program.span(call)[1]
        edits = (Edit(code.program.span(call.func.attr)[1], end, ""),)
        return Decision("rewritten", "variables of an optimizer of Keras 3 is a list", edits)
    return None


def _is_plain(code: Code, node: cst.CSTNode, kind: str, name: str) -> bool:
    found = code.objects.of(node)
    return found is not None and found.is_a(kind) and not code.objects.defines(found, name)


def _of_change(code: Code, call: cst.Call, method: str) -> Decision | None:
    """Returns what becomes of `K.set_value(variable, value)`."""
    plain = len(call.args) == 2 and not any(a.keyword or a.star for a in call.args)
    if not plain or not code.objects.is_a(call.args[0].value, "Variable"):
        return None
    variable, value = call.args
    said = f"keras.backend has nothing for variables of Keras 3: write {method}"
    if not isinstance(variable.value, (cst.Name, cst.Attribute)):
        return Decision("manual", said)
    start, end = code.program.span(call)[0], code.program.span(variable)[1]
    edits = (
        Edit(start, code.program.span(variable)[0], ""),
        Edit(end, code.program.span(value)[0], f".{method}("),
    )
    return Decision("rewritten", said, edits)


def _of_generator(code: Code, call: cst.Call, name: str) -> Decision | None:
    assert isinstance(call.func, cst.Attribute)
    new, parameters = GENERATORS[name]
    receiver = code.objects.of(call.func.value)
    said = f"{name} is gone in Keras 3: write {new}"
    if receiver is None:
        return Decision("manual", said) if code.uses_keras and not code.defines(name) else None
    if not receiver.is_a("Model") or code.objects.defines(receiver, name):
        return None
    edits = _named(code, call.args, parameters)
    if edits is None:
        return Decision("manual", said)
    return Decision("rewritten", said, (code.replaced(call.func.attr, new), *edits))


def _named(
    code: Code, arguments: Sequence[cst.Arg], parameters: Sequence[str]
) -> list[Edit] | None:
    """Returns the edits that give arguments behind the first by their names; None where unknown."""
    edits = []
    for i, argument in enumerate(arguments):
        if argument.star == "*" or (argument.keyword is None and i >= len(parameters)):
            return None
        if argument.keyword is not None and argument.keyword.value == "generator":
            edits.append(code.replaced(argument.keyword, "x"))
        if argument.keyword is None and i and not argument.star:
            start = code.program.span(argument)[0]
            edits.append(Edit(start, start, f"{parameters[i]}="))
    return edits


def _of_class(code: Code, node: cst.ClassDef) -> tuple[cst.CSTNode, Decision] | None:
    """Returns what becomes of `def reset_states` in a class of metrics."""
    found = code.objects.class_of(node)
    if found is None or not found.is_a("metrics.Metric"):
        return None
    method = code.objects.method(found, "reset_states")
    if method is None or code.objects.method(found, "reset_state") is not None:
        return None
    said = "Keras 3 calls reset_state of a metric"
    return method, Decision("rewritten", said, (code.replaced(method.name, "reset_state"),))
