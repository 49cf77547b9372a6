"""KMP012: training loops that scale the loss themselves. Never rewritten: our class has both.

    scaled_loss = opt.get_scaled_loss(loss)
    gradients = opt.get_unscaled_gradients(tape.gradient(scaled_loss, variables))

Kept where a function calls both, where one function or method of a class or module calls the one
and another the other, and where super() has the other. Reported where one of the two is missing:
the gradients of a scaled loss would be applied as they are, or those of a plain loss divided.
"""

import libcst as cst

from keras_mp.migration.code.facts import Facts
from keras_mp.migration.code.sites import Decision

_OTHER = {
    "get_scaled_loss": "get_unscaled_gradients",
    "get_unscaled_gradients": "get_scaled_loss",
}


def decide(facts: Facts) -> list[tuple[cst.Call, Decision]]:
    """Returns every call of one of the methods, and what is said of it."""
    halves = {
        (facts.owner(function), name)
        for function, methods in facts.methods.items()
        for name in methods
        if _OTHER[name] not in methods
    }
    found = []
    for function, methods in facts.methods.items():
        for name, calls in methods.items():
            other = _OTHER[name]
            for call in calls:
                if other in methods:
                    decision = _KEPT
                elif _is_of_super(call):
                    decision = _OF_SUPER
                elif (facts.owner(function), other) in halves:
                    decision = _apart(other)
                elif (where := facts.elsewhere.halves.get(other)) is not None:
                    decision = _apart(other, where)
                else:
                    decision = _missing(other)
                found.append((call, decision))
    return found


_KEPT = Decision("kept", "keras_mp.LossScaleOptimizer has it")
_OF_SUPER = Decision("kept", "keras_mp.LossScaleOptimizer has it, as super()")


def _is_of_super(call: cst.Call) -> bool:
    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
    return (
        isinstance(owner, cst.Call)
        and isinstance(owner.func, cst.Name)
        and owner.func.value == "super"
    )


def _apart(other: str, where: str = "another function") -> Decision:
    return Decision("kept", f"keras_mp.LossScaleOptimizer has it; {where} calls {other}")


def _missing(other: str) -> Decision:
    return Decision(
        "manual",
        f"this function has no {other}: check that gradients are unscaled exactly once",
    )
