"""KMP018: private names of optimizers that programs with mixed precision used.

before:  rate = opt._decayed_lr(tf.float32)
after:   rate = opt.learning_rate

before:  rate = opt.learning_rate(opt.iterations)
after:   rate = opt.learning_rate

before:  momentum = opt._get_hyper("momentum")
after:   momentum = opt.momentum

before:  opt._set_hyper("learning_rate", 0.1)
after:   opt.learning_rate = 0.1

Safe: in Keras 3 learning_rate is the rate of this step, also of a schedule.
Left alone, and reported: in a class of one's own (`self`, `super()`), which has to become an
optimizer of Keras 3; a name that is not written out; a second argument of `_get_hyper`; what
Keras 3 does inside of `apply`.
"""

import re

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import Program, string
from keras_mp.migration.code.sites import Decision

_OWN = "a class derived from an optimizer has to become one of Keras 3: see update_step there"
_MESSAGES = {
    "_aggregate_gradients": "apply of Keras 3 sums the gradients of the replicas itself",
    "_clip_gradients": "apply of Keras 3 clips: by clipnorm, clipvalue or global_clipnorm",
    "_HAS_AGGREGATE_GRAD": (
        "an optimizer of Keras 3 has it not: call optimizer.apply_gradients(zip(gradients, "
        "variables)), which sums, unscales, clips and applies"
    ),
    "_hyper": "optimizers of Keras 3 have plain attributes, such as opt.learning_rate",
    "_get_hyper": "optimizers of Keras 3 have plain attributes, such as opt.learning_rate",
    "_set_hyper": "optimizers of Keras 3 have plain attributes, such as opt.learning_rate",
    "_decayed_lr": "learning_rate of Keras 3 is the rate of this step",
}
ATTRIBUTES = frozenset(_MESSAGES)
_RATES = ("learning_rate", "lr")
_NAME = re.compile(r"[A-Za-z]\w*")


def decide(program: Program, node: cst.Attribute) -> Decision | None:
    """Returns what becomes of one of `ATTRIBUTES`, or of learning_rate; None of any other."""
    name = node.attr.value
    call = program.call_of(node)
    if name in _RATES:
        return _of_rate(program, node, call)
    if name not in ATTRIBUTES:
        return None
    if _is_own(node.value):
        return Decision("manual", _OWN)
    edit = _edit(program, node, call)
    if edit is None or program.is_bound(node):
        return Decision("manual", _MESSAGES[name])
    return Decision("rewritten", "public, and of this step", (edit,))


def _edit(program: Program, node: cst.Attribute, call: cst.Call | None) -> Edit | None:
    name, base = node.attr.value, program.source(node.value)
    arguments = [] if call is None else list(call.args)
    if any(one.star or one.keyword for one in arguments):
        return None
    hyper = string(arguments[0].value) if arguments else None
    if call is None and name == "_hyper":
        return _of_subscript(program, node)
    if call is None:
        return None
    span = program.span(call)
    if name == "_decayed_lr" and len(arguments) == 1:
        return Edit(*span, f"{base}.learning_rate")
    if hyper is None or not _NAME.fullmatch(hyper):
        return None
    if name == "_get_hyper" and len(arguments) == 1:
        return Edit(*span, f"{base}.{hyper}")
    is_statement = isinstance(program.parent(call), cst.Expr)
    if name == "_set_hyper" and len(arguments) == 2 and is_statement:
        return Edit(*span, f"{base}.{hyper} = {program.value(arguments[1])}")
    return None


def _of_subscript(program: Program, node: cst.Attribute) -> Edit | None:
    """Returns the edit of `opt._hyper["learning_rate"]`."""
    parent = program.parent(node)
    if not isinstance(parent, cst.Subscript) or len(parent.slice) != 1:
        return None
    index = parent.slice[0].slice
    name = string(index.value) if isinstance(index, cst.Index) else None
    if name is None or not _NAME.fullmatch(name) or program.is_bound(parent):
        return None
    return Edit(*program.span(parent), f"{program.source(node.value)}.{name}")


def _of_rate(program: Program, node: cst.Attribute, call: cst.Call | None) -> Decision | None:
    """Returns the decision about `opt.learning_rate(opt.iterations)`."""
    if call is None or len(call.args) != 1:
        return None
    base, argument = program.source(node.value), program.value(call.args[0])
    if argument != f"{base}.iterations":
        return None
    edit = Edit(*program.span(call), f"{base}.learning_rate")
    return Decision("rewritten", "the rate of this step, also of a schedule", (edit,))


def _is_own(base: cst.CSTNode) -> bool:
    if isinstance(base, cst.Call):
        return isinstance(base.func, cst.Name) and base.func.value == "super"
    return isinstance(base, cst.Name) and base.value in ("self", "cls")
