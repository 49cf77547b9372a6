"""KMP012: training loops that scale the loss themselves. Never rewritten: our class has both.

    scaled_loss = opt.get_scaled_loss(loss)
    gradients = opt.get_unscaled_gradients(tape.gradient(scaled_loss, variables))

Kept where a function calls both. Reported where one of the two is missing: the gradients of a
scaled loss would be applied as they are, or those of a plain loss divided.
"""

import libcst as cst

from keras_mp.migration.code.facts import Facts
from keras_mp.migration.code.sites import Decision

ID = "KMP012"
_OTHER = {
    "get_scaled_loss": "get_unscaled_gradients",
    "get_unscaled_gradients": "get_scaled_loss",
}


def decide(facts: Facts) -> list[tuple[cst.Call, Decision]]:
    """Returns every call of one of the methods, and what is said of it."""
    found = []
    for methods in facts.methods.values():
        for name, calls in methods.items():
            complete = _OTHER[name] in methods
            for call in calls:
                found.append((call, _KEPT if complete else _missing(_OTHER[name])))
    return found


_KEPT = Decision("kept", "keras_mp.LossScaleOptimizer has it")


def _missing(other: str) -> Decision:
    return Decision(
        "person",
        f"there is no {other} in this function: see that gradients are unscaled exactly once",
    )
