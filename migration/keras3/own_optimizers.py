"""KMP110: optimizers of the program's own.

    class Sign(tf.keras.optimizers.Optimizer):
        def _create_slots(self, variables): ...                      # build(self, variables)
        def _resource_apply_dense(self, gradient, variable): ...     # update_step
        def get_updates(self, loss, params): ...                     # update_step

Keras 3 calls `build(variables)` once and `update_step(gradient, variable, learning_rate)` for each
variable. What it does not call is left, silently where the class is derived from Adam or another,
which then updates by its own rule.
Reported in classes that are derived from an optimizer of Keras. The first argument of
Optimizer.__init__ is the learning rate; it was the name.
"""

from collections.abc import Iterator

import libcst as cst

from keras_mp.migration.code.parsed import keywords
from keras_mp.migration.code.sites import Decision
from keras_mp.migration.keras3.code import Code

_STEP = "update_step(self, gradient, variable, learning_rate)"
_NOW = {
    "_apply_dense": _STEP,
    "_apply_sparse": _STEP,
    "_create_slots": "build(self, variables)",
    "_create_all_weights": "build(self, variables)",
    "_create_hypers": "__init__",
    "_decayed_lr": "",
    "_prepare": "",
    "_prepare_local": "",
    "_resource_apply_dense": _STEP,
    "_resource_apply_sparse": _STEP,
    "_resource_apply_sparse_duplicate_indices": _STEP,
    "get_gradients": "",
    "get_updates": _STEP,
}
_INIT = (
    "the first argument of Optimizer.__init__ is learning_rate in Keras 3: write "
    "super().__init__(learning_rate=learning_rate, name=name)"
)


def find(code: Code) -> Iterator[tuple[cst.CSTNode, Decision]]:
    """Yields the places, and the decision about each."""
    for one in code.classes:
        found = code.objects.class_of(one)
        if found is None or not found.is_a("optimizers.Optimizer"):
            continue
        for name, now in _NOW.items():
            method = code.objects.method(found, name)
            if method is not None:
                what = f"Keras 3 does not call {name} of an optimizer"
                yield method, Decision("manual", f"{what}: write {now}" if now else what)
    for call in code.calls:
        if _gives_name(code, call):
            yield call, Decision("manual", _INIT)


def _gives_name(code: Code, call: cst.Call) -> bool:
    """Returns whether it is `super().__init__(name)` of Optimizer itself."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "__init__":
        return False
    receiver = code.objects.of(call.func.value)
    around = code.program.around(call, cst.ClassDef)
    if receiver is None or around is None or not isinstance(call.func.value, cst.Call):
        return False
    if not receiver.is_a("optimizers.Optimizer") or receiver.name not in _BASE:
        return False
    if "learning_rate" in keywords(call) or any(argument.star == "*" for argument in call.args):
        return False
    first = call.args[0] if call.args else None
    if first is None or first.keyword is not None or first.star:
        return not any(argument.star for argument in call.args)
    source = code.program.value(first)
    return "name" in source or source.startswith(("'", '"'))


_BASE = ("Optimizer", "optimizers.Optimizer", "optimizers.legacy.Optimizer")
