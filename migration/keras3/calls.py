"""Which function or method of Keras a call is of, and how its parameters changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from keras_mp.migration.keras3 import names
from keras_mp.migration.keras3.code import Code
from keras_mp.migration.keras3.objects import Object, kinds_of

# Methods that are gone, and what their arguments are given to.
_NOW = {
    "fit_generator": "fit",
    "evaluate_generator": "evaluate",
    "predict_generator": "predict",
    "add_variable": "add_weight",
}
# Keras 3.10 and 3.15 take `add_weight(shape, ...)`; the latter says so in words of its own.
_ADD_WEIGHT = {
    "were": ["name", "shape", "dtype", "initializer", "regularizer", "trainable", "constraint"],
    "are": ["shape", "initializer", "dtype", "trainable", "autocast", "regularizer", "constraint"],
    "from": 0,
}
_NONE: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Called:
    """What a call is of.

    Attributes:
        call: The call.
        scopes: What it is known by in tables: the name, and the kinds it is of, the narrower first.
        title: What it is called in messages.
        gone: Parameters that it had and has not.
        were: By position, the parameters it had; several names joined by "|".
        are: By position, those of today.
        first_changed: The first position that means something else; None where none does.
        takes_more: Whether it takes further keywords, of which the table says nothing.
        receiver: The object, of a method.
    """

    call: cst.Call
    scopes: tuple[str, ...]
    title: str
    gone: tuple[str, ...] = ()
    were: tuple[str, ...] = ()
    are: tuple[str, ...] = ()
    first_changed: int | None = None
    takes_more: bool = False


def calls_of_keras(code: Code) -> Iterator[Called]:
    """Yields every call of a public class, function or method of Keras that is known to be one."""
    for call in code.calls:
        found = of(code, call)
        if found is not None:
            yield found


def of(code: Code, call: cst.Call) -> Called | None:
    """Returns what a call is of; None where it is not known to be of Keras."""
    name = code.objects.public(call.func)
    if name:
        kind = names.kind(name)
        scopes = (name, *(kinds_of(kind) if kind else ()))
        changes = names.table()["parameters"].get(name, _NONE)
        return _called(call, scopes, _title(code, call.func, name), changes)
    if not isinstance(call.func, cst.Attribute):
        return None
    method = call.func.attr.value
    receiver = code.objects.of(call.func.value)
    if method == "__init__":
        return _constructor(code, call, receiver)
    if receiver is None or code.objects.defines(receiver, method):
        return None
    now = _NOW.get(method, method)
    scopes = tuple(f"{kind}.{now}" for kind in kinds_of(receiver.kind))
    changes = next((found for one in scopes if (found := _method(one))), _NONE)
    if now == "add_weight" and receiver.is_a("layers.Layer"):
        changes = {**changes, **_ADD_WEIGHT, "more": True}
    return _called(call, scopes, f"{receiver.kind}.{method}", changes)


def _method(scope: str) -> Mapping[str, object]:
    found: Mapping[str, object] = names.table()["methods"].get(scope, _NONE)
    return found


def _constructor(code: Code, call: cst.Call, receiver: Object | None) -> Called | None:
    """Returns what `super().__init__(...)` is of, in a class right below one of Keras."""
    around = code.program.around(call, cst.ClassDef)
    assert isinstance(call.func, cst.Attribute)
    of_super = call.func.value
    if receiver is None or around is None or not isinstance(of_super, cst.Call):
        return None
    if not (isinstance(of_super.func, cst.Name) and of_super.func.value == "super"):
        return None
    bases = [code.objects.public(base.value) for base in around.bases]
    name = next((base for base in bases if base and names.kind(base)), "")
    if not name:
        return None
    scopes = (f"{name}.__init__", name, *kinds_of(receiver.kind))
    changes = names.table()["parameters"].get(name, _NONE)
    return _called(call, scopes, f"{name}.__init__", changes)


def _called(
    call: cst.Call, scopes: tuple[str, ...], title: str, changes: Mapping[str, object]
) -> Called:
    def strings(key: str) -> tuple[str, ...]:
        found = changes.get(key, ())
        return tuple(found) if isinstance(found, (list, tuple)) else ()

    at = changes.get("from")
    return Called(
        call,
        scopes,
        title,
        strings("gone"),
        strings("were"),
        strings("are"),
        at if isinstance(at, int) else None,
        bool(changes.get("more")),
    )


def _title(code: Code, node: cst.CSTNode, name: str) -> str:
    found = code.objects.known(node)
    return f"{found.root}.{name}" if found is not None else name
