"""KMP106: arguments whose position means something else in Keras 3.

before:  self.add_weight("w", shape=(3,))                # in a layer
after:   self.add_weight(name="w", shape=(3,))

before:  model.compile("adam", "mse", ["mae"])           # loss_weights are third
after:   model.compile("adam", "mse", metrics=["mae"])

before:  tf.keras.Input((4,), None, "x")                 # dtype is third
after:   tf.keras.Input((4,), None, name="x")

Safe where each position had one name in TF 1.15.0, 2.4.4, 2.10.1 and 2.15.1, and Keras 3 takes it
as a keyword; from there on, all of them become keywords. Of add_weight, where the first argument
can only be a name: it is a string, or the shape is given, too.
Reported where it had several names, or is not taken any more. Left alone: *args.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import keywords, string
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.argument_advice import TAKEN, Renamed
from keras_mp.migration.keras3.calls import Called, calls_of_keras
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.gone_arguments import action_of


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for one in calls_of_keras(code):
        at = _first(one)
        if at is None or (_is_add_weight(one) and not _begins_with_name(one.call)):
            continue
        if one.title.endswith(".__init__") and code.program.value(one.call.args[at]) == "self":
            continue  # told by KMP113
        yield one.call.args[at], _decided(code, one, at)


def _first(one: Called) -> int | None:
    """Returns the first position given that means something else; None where none does."""
    if one.first_changed is None:
        return None
    for i, argument in enumerate(one.call.args):
        if argument.star or argument.keyword is not None or i >= len(one.were):
            return None
        if i >= one.first_changed and (
            i >= len(one.are) or one.are[i] not in one.were[i].split("|")
        ):
            return i
    return None


def _is_add_weight(one: Called) -> bool:
    return one.scopes[-1].endswith(".add_weight")


def _begins_with_name(call: cst.Call) -> bool:
    """Returns whether the first argument is a name and no shape, which is first in Keras 3."""
    given, first = keywords(call), call.args[0].value
    if "name" in given:
        return False
    if string(first) is not None or isinstance(first, cst.FormattedString):
        return True
    if isinstance(first, cst.BinaryOperation):
        return string(first.left) is not None or string(first.right) is not None
    if isinstance(first, (cst.Tuple, cst.List)):
        return False
    return "shape" in given


def _decided(code: Code, one: Called, at: int) -> Decision:
    edits = []
    names = []
    for i, argument in enumerate(one.call.args[at:], at):
        if argument.keyword is not None:
            break
        name = _name(one, one.were[i]) if i < len(one.were) and not argument.star else None
        if name is None:
            return Decision("manual", _message(one, at))
        start = code.program.span(argument)[0]
        edits.append(Edit(start, start, f"{name}="))
        names.append(name)
    if keywords(one.call).keys() & {*names}:
        return Decision("manual", _message(one, at))
    return Decision("rewritten", f"{_message(one, at)}: write {', '.join(names)}=", tuple(edits))


def _name(one: Called, were: str) -> str | None:
    """Returns the keyword of today for what a position was; None where none is known."""
    action = action_of(one, were)
    if isinstance(action, Renamed):
        return action.new
    if action is not None or "|" in were:
        return None
    if were in one.are or any(were in TAKEN.get(scope, ()) for scope in one.scopes):
        return were
    return None


def _message(one: Called, at: int) -> str:
    now = f"is {one.are[at]} in Keras 3" if at < len(one.are) else "is a keyword, or gone"
    was = one.were[at].replace("|", " or ")
    return f"position {at + 1} of {one.title} was {was}, and {now}"
