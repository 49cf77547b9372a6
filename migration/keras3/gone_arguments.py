"""KMP104: arguments that Keras 3 rejects or ignores.

    keras.optimizers.SGD(0.1, decay=1e-6)             # ignored: a learning rate schedule
    keras.optimizers.SGD(tf.Variable(0.1))            # a number, a schedule or a function
    model.fit(data, workers=4)                        # the constructor of a PyDataset
    layers.Dense(8, batch_input_shape=(2, 4))         # keras.Input(batch_shape=...) before it

Reported where the function or class resolves to Keras; of methods, where the object is known to be
one of Keras. Parameters of TF 1.15.0, 2.4.4, 2.10.1 and 2.15.1 were compared with those of today.
Not reported: what is taken with a warning, and does what it did.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.parsed import keywords
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.argument_advice import (
    ARGUMENTS,
    Action,
    Asked,
    Dropped,
    Renamed,
    Valued,
)
from keras_mp.migration.keras3.calls import Called, calls_of_keras
from keras_mp.migration.keras3.code import Code

# Make a value that is no number, schedule or function.
_TENSORS = ("Variable", "constant", "convert_to_tensor", "placeholder", "get_variable")
_RATE = (
    "learning_rate must be a number, a LearningRateSchedule or a function in Keras 3: give a "
    "number, and assign to optimizer.learning_rate later"
)


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for one in calls_of_keras(code):
        for name, argument in keywords(one.call).items():
            what = _asked(code, action_of(one, name), argument)
            if what is not None:
                yield argument, Decision("manual", f"{subject_of(one, argument)}{what}")
        rate = _rate(one)
        if rate is not None and _is_tensor(code, rate.value):
            yield rate, Decision("manual", _RATE)


def action_of(one: Called, name: str) -> Action | None:
    """Returns what becomes of an argument; None where it stays."""
    for scope in one.scopes:
        if name in ARGUMENTS.get(scope, {}):
            return ARGUMENTS[scope][name]
    if name in one.gone and not one.takes_more:
        return Asked(f"the parameters are now {', '.join(one.are)}" if one.are else "drop it")
    return None


def fits(code: Code, action: Action, argument: cst.Arg) -> str | None:
    """Returns the text that takes the place of a value; "" where it goes; None if a person decides.

    Args:
        code: The program.
        action: What is to become of the argument.
        argument: It.
    """
    value = code.program.value(argument)
    if isinstance(action, Renamed):
        return value
    if isinstance(action, Dropped) and (not action.values or value in action.values):
        return ""
    if isinstance(action, Valued):
        ends = (new for end, new in action.values if value == end or value.endswith(f".{end}"))
        return next(ends, None)
    return None


def subject_of(one: Called, argument: cst.Arg) -> str:
    """Returns the beginning of what is said of an argument."""
    assert argument.keyword is not None
    return f"{one.title} of Keras 3 has no {argument.keyword.value}: "


def _asked(code: Code, action: Action | None, argument: cst.Arg) -> str | None:
    if action is None or fits(code, action, argument) is not None:
        return None
    if isinstance(action, Asked):
        return action.what
    return action.otherwise if isinstance(action, (Dropped, Valued)) and action.otherwise else None


def _rate(one: Called) -> cst.Arg | None:
    """Returns the learning rate that an optimizer is given."""
    if "optimizers.Optimizer" not in one.scopes or not one.call.args:
        return None
    first = one.call.args[0]
    positional = first if first.keyword is None and not first.star else None
    return keywords(one.call).get("learning_rate", positional)


def _is_tensor(code: Code, node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Name):
        assigned = code.objects.assigned(node)
        return bool(assigned) and all(_is_tensor(code, one) for one in assigned)
    if not isinstance(node, cst.Call):
        return False
    full = code.program.full_name(node.func, is_sole=True)
    if not full.startswith("tensorflow.") or ".keras." in full:
        return False
    return full.rpartition(".")[2] in _TENSORS or full.startswith("tensorflow.compat.v1.train.")
