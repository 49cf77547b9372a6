"""KMP108: methods and attributes that objects of Keras 3 have not.

    layer.output_shape              # layer.output.shape
    layer.get_output_at(0)          # layer.output, or keep what the call returned
    model.input_names               # [tensor.name for tensor in model.inputs]
    model.compiled_loss.metrics     # model.metrics; compiled_loss(...) itself works, with a warning
    optimizer.get_weights()         # optimizer.variables
    self.trainable_weights = [w]    # add_weight has put it there

Reported where the program shows that the object is one of Keras, and its own class does not have
the name: attributes of models, layers, metrics, optimizers, callbacks, variables and KerasTensors
were recorded with TF 1.15.0, 2.4.4, 2.10.1 and 2.15.1, and with Keras 3.10 and 3.15.
Reported for any object, in programs that use Keras: names that exist nowhere else, such as
get_output_at, get_updates_for, predict_classes, _make_predict_function, compiled_loss.
Kept: calls of compiled_loss, and compiled_metrics.update_state, which still work.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.objects import Object, kinds_of

# Told by other rules, or read in another way.
_OTHERS = (
    *("lr", "get_shape", "reset_states", "variables"),
    *("fit_generator", "evaluate_generator", "predict_generator"),
)
# Keras 3 has not, and `keras_mp.compat.mixed_precision.LossScaleOptimizer` has.
WRAPPERS = (
    *("add_slot", "compute_gradients", "get_gradients", "get_slot", "get_slot_names"),
    *("get_weights", "lr", "minimize", "weights"),
)
_COMPILED = ("compiled_loss", "compiled_metrics")
_STILL = {"compiled_metrics": ("update_state", "reset_state", "result")}
# Properties that cannot be assigned.
_READ_ONLY = {
    "layers.Layer": ("trainable_weights", "non_trainable_weights", "weights"),
    "optimizers.Optimizer": ("iterations",),
}
_METRICS = "write add_weight, or keras.metrics.Metric in __init__ and update_state in call"
_OUTPUT = "write layer.output or layer.input of a layer that was called once, or keep what each "
_OUTPUT += "call returned"
_VALUE = "write tf.identity(variable), or variable.value, which is the variable itself"
_CALL = "drop it: Keras makes it when it is needed"
_PRIVATE = {
    "layers.Layer": {
        "_trainable_weights": "write add_weight: trainable_weights is what it returned",
        "_non_trainable_weights": "write add_weight(trainable=False)",
        "_compute_dtype": "write compute_dtype",
    },
    "optimizers.Optimizer": {
        "_get_hyper": "write a custom attribute, or learning_rate",
        "_set_hyper": "write a custom attribute, or learning_rate",
        "_decayed_lr": "write learning_rate",
        "_name": "write name",
        "_weights": "write variables",
    },
}
ADVICE = {
    "add_loss": "add it in a layer or a model",
    "add_metric": _METRICS,
    "add_update": "assign to the variables in call",
    "apply": "call the layer",
    "dynamic": "write compile(run_eagerly=True)",
    "get_gradients": "write tf.GradientTape",
    "get_input_at": _OUTPUT,
    "get_input_mask_at": _OUTPUT,
    "get_input_shape_at": _OUTPUT,
    "get_losses_for": "write losses",
    "get_output_at": _OUTPUT,
    "get_output_mask_at": _OUTPUT,
    "get_output_shape_at": _OUTPUT,
    "get_slot": "the optimizer's variables are in its attributes, such as _momentums",
    "get_updates": "write update_step(gradient, variable, learning_rate)",
    "get_updates_for": "assign to the variables in call",
    "get_weights": "write variables, or save_own_variables(store)",
    "input_names": "write [tensor.name for tensor in model.inputs]",
    "input_shape": "write layer.input.shape",
    "loss_functions": "keep what compile was given",
    "minimize": "write tf.GradientTape and apply_gradients",
    "name_scope": "write keras.name_scope(name)",
    "output_names": "write [tensor.name for tensor in model.outputs]",
    "output_shape": "write layer.output.shape",
    "predict_classes": "write predict(x).argmax(axis=-1), or predict(x) > 0.5",
    "predict_proba": "write predict",
    "ref": "variables of Keras 3 can be keys themselves: write id(variable)",
    "reset_states": "call reset_states() of its recurrent layers",
    "save_spec": "write model.inputs",
    "set_weights": "write load_own_variables(store)",
    "stateful": "it is an attribute of recurrent layers only",
    "submodules": "write _flatten_layers(), or layers",
    "to_yaml": "write to_json",
    "total_loss": "write losses, or compute_loss",
    "updates": "assign to the variables in call",
    "validation_data": "give the data to the constructor of the callback",
    "read_value": _VALUE,
    "weights": "write variables",
}
# Names that nothing but Keras had.
_ANYWHERE = {
    **{name: ADVICE[name] for name in ADVICE if name.startswith("get_") and name.endswith("_at")},
    "get_updates_for": ADVICE["get_updates_for"],
    "get_losses_for": ADVICE["get_losses_for"],
    "predict_classes": ADVICE["predict_classes"],
    "_make_predict_function": _CALL,
    "_make_train_function": _CALL,
    "_make_test_function": _CALL,
    "_keras_shape": "write shape",
}


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    told = set()
    for node in code.attributes:
        if code.program.is_bound(node):
            # Others are attributes that the program gives the object.
            if _is_read_only(code, node):
                yield node, Decision("manual", f"{node.attr.value} of Keras 3 cannot be assigned")
            continue
        found = _of(code, node)
        if found is None:
            continue
        receiver = code.objects.of(node.value)
        if receiver is not None and _is_own_optimizer(receiver):
            if (receiver.own, node.attr.value) in told:
                continue  # such a class is written anew
            told.add((receiver.own, node.attr.value))
        yield node, found


def _of(code: Code, node: cst.Attribute) -> Decision | None:
    name = node.attr.value
    receiver = code.objects.of(node.value)
    if receiver is not None and code.objects.defines(receiver, name):
        return None
    if name in _COMPILED:
        return _of_compiled(code, node, receiver)
    if name == "add_loss":
        return _of_add_loss(code, node)
    if name == "value":
        is_called = code.program.call_of(node) is not None
        if is_called and receiver is not None and receiver.is_a("Variable"):
            return Decision("manual", f"value of a Keras 3 variable is not a method: {_VALUE}")
        return None
    if receiver is not None:
        advice = _gone(receiver, name)
        if advice is not None:
            what = f"{receiver.kind.rpartition('.')[2]} of Keras 3 has no {name}"
            return Decision("manual", f"{what}: {advice}" if advice else what)
    elif name in _ANYWHERE and code.uses_keras and not code.defines(name):
        return Decision("manual", f"Keras 3 has no {name}: {_ANYWHERE[name]}")
    return None


def _is_read_only(code: Code, node: cst.Attribute) -> bool:
    receiver = code.objects.of(node.value)
    if receiver is None:
        return False
    own = receiver.own is not None and code.objects.method(receiver, node.attr.value) is not None
    return not own and any(
        node.attr.value in _READ_ONLY.get(k, ()) for k in kinds_of(receiver.kind)
    )


def _is_own_optimizer(receiver: Object) -> bool:
    return receiver.own is not None and receiver.is_a("optimizers.Optimizer")


def _gone(receiver: Object, name: str) -> str | None:
    """Returns what to write instead of an attribute; None where it is there."""
    if receiver.name.endswith(".LossScaleOptimizer") and name in WRAPPERS:
        return None
    for kind in kinds_of(receiver.kind):
        if name in _PRIVATE.get(kind, {}):
            return _PRIVATE[kind][name]
    if name in _OTHERS and (receiver.kind, name) != ("Model", "reset_states"):
        return None
    if receiver.is_a("layers.Layer") and name == "add_metric":
        return ADVICE[name]
    if receiver.kind == "Sequential" and name in ("input", "output"):
        return None
    members: dict[str, list[str]] = names.table()["members"]
    if name not in members.get(receiver.kind, ()):
        return None
    return ADVICE.get(name, "")


def _of_add_loss(code: Code, node: cst.Attribute) -> Decision | None:
    """Returns what is said of `model.add_loss(tensor)`, which Keras 3 takes in `call` only."""
    call = code.program.call_of(node)
    if call is None or not code.objects.is_a(node.value, "layers.Layer"):
        return None
    if not any(code.objects.is_symbolic(argument.value) for argument in call.args):
        return None
    return Decision(
        "manual", "add_loss of Keras 3 takes no KerasTensor: add it in call of a custom layer"
    )


def _of_compiled(code: Code, node: cst.Attribute, receiver: Object | None) -> Decision | None:
    name = node.attr.value
    if receiver is None and not code.uses_keras:
        return None
    if receiver is not None and not receiver.is_a("Model"):
        return None
    if code.program.call_of(node) is not None and name == "compiled_loss":
        return Decision("kept", "it works, with a warning: compute_loss(x, y, y_pred) is its name")
    parent = code.program.parent(node)
    if isinstance(parent, cst.Attribute) and parent.attr.value in _STILL.get(name, ()):
        return Decision("kept", "it works, with a warning: metrics is the list of today")
    return Decision(
        "manual", f"{name} of Keras 3 is only there to be called: write metrics, or loss"
    )
