"""KMP112: what is no tensor, by position, in a call of a layer or a model.

before:  dropout(x, True)                       # a layer
after:   dropout(x, training=True)

before:  self.norm(x, training)                 # in call(self, x, training)
after:   self.norm(x, training=training)

Keras 3 takes tensors by position only; `True`, a number or a string it refuses.
Rewritten where the parameter is known: of the layers of Keras, and of the program's own classes.
Reported where it is not. Left alone: names other than training, which may be tensors.
"""

from collections.abc import Iterator, Sequence

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import keywords, number, string
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.objects import Object

_FLAGS = ("training", "is_training")
_SAID = "Keras 3 takes only tensors by position in a call of a layer"


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for call in code.calls:
        receiver = code.objects.of(call.func)
        if receiver is None or not receiver.is_a("layers.Layer"):
            continue
        if code.objects.defines(receiver, "__call__"):
            continue
        found = _of(code, call, receiver)
        if found is not None:
            yield found


def _of(code: Code, call: cst.Call, receiver: Object) -> tuple[cst.CSTNode, Decision] | None:
    at = None
    for i, argument in enumerate(call.args):
        if argument.star or argument.keyword is not None:
            break
        if i and at is None and _is_no_tensor(argument.value):
            at = i
    if at is None:
        return None
    positional = [a for a in call.args if a.keyword is None]
    parameters = _parameters(code, receiver)
    if any(a.star for a in call.args) or len(positional) > len(parameters):
        return call.args[at], Decision("manual", f"{_SAID}: write it as a keyword")
    edits, written = [], []
    for name, argument in list(zip(parameters, positional, strict=False))[at:]:
        start = code.program.span(argument)[0]
        edits.append(Edit(start, start, f"{name}="))
        written.append(name)
    said = f"{_SAID}: write {', '.join(written)}="
    if keywords(call).keys() & {*written}:
        return call.args[at], Decision("manual", said)
    return call.args[at], Decision("rewritten", said, tuple(edits))


def _is_no_tensor(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Name):
        return node.value in ("True", "False", *_FLAGS)
    if isinstance(node, cst.Attribute):
        return node.attr.value in _FLAGS
    return string(node) is not None or number(node) is not None


def _parameters(code: Code, receiver: Object) -> Sequence[str]:
    """Returns the parameters of `call`, without self; nothing where they are not known."""
    if receiver.own is not None:
        own: cst.ClassDef | None = receiver.own
        while own is not None:
            method = code.objects.method(Object(receiver.kind, own=own), "call")
            if method is not None:
                return [one.name.value for one in method.params.params[1:]]
            own = code.objects.base(own)
    found: str = names.table()["calls"].get(names.first(receiver.name), "")
    listed = found.split(", ") if found else []
    at = next((i for i, name in enumerate(listed) if name.startswith("*")), len(listed))
    return listed[:at]
