"""KMP009: attributes of a wrapped optimizer, as TF 2.1 to 2.3 had them.

before:  opt.loss_scale()                      opt._optimizer
after:   opt.loss_scale                        opt.inner_optimizer

before:  opt.loss_scale.initial_loss_scale     opt.loss_scale.increment_period
after:   opt.initial_scale                     opt.dynamic_growth_steps

before:  getattr(opt, "_optimizer", opt)
after:   getattr(opt, "inner_optimizer", opt)

Left alone: optimizers of keras_mp.compat, which have them.
Safe where `opt` is assigned a LossScaleOptimizer in the program, or asked to be one.
Reported elsewhere, and rewritten with --unsafe. Reported, too, where a comment or one of two
brackets would go with what is replaced, and where a loop takes off wrappers of other kinds, too.
"""

import re

import libcst as cst
from libcst.metadata import BuiltinAssignment

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import Program, chain, string
from keras_mp.migration.code.sites import Decision, Site

# What is read of `opt.loss_scale` -> what the optimizer calls it.
SCALE_ATTRIBUTES = {
    "initial_loss_scale": "initial_scale",
    "increment_period": "dynamic_growth_steps",
    "_current_loss_scale": "loss_scale",
    "current_loss_scale": "loss_scale",
}
# What only a loss scale that is an object had.
SCALE_OBJECT_ONLY = ("multiplier", "_num_good_steps", "get_config", "update")
_LIKE_AN_OPTIMIZER = re.compile(r"opt(im(izer)?)?s?(_?\d+)?$", re.IGNORECASE)
_ASKS_FOR_INNER = re.compile(r"(?<!\w)_optimizer\b")

_PUBLIC = "inner_optimizer is public"
_CONSTANT = "inner_optimizer cannot be replaced: make a new wrapper"
_PRIVATE = "private: read opt.loss_scale, the current number"


def attribute_looked_up(program: Program, node: cst.Call) -> str | None:
    """Returns the name that a call of getattr, hasattr, setattr or delattr asks for."""
    if not isinstance(node.func, cst.Name) or len(node.args) < 2:
        return None
    if node.func.value not in ("getattr", "hasattr", "setattr", "delattr"):
        return None
    if any(argument.star or argument.keyword is not None for argument in node.args[:2]):
        return None
    scope = program.scope(node.func)
    found = scope[node.func.value] if scope is not None else ()
    if not all(isinstance(one, BuiltinAssignment) for one in found):
        return None
    return string(node.args[1].value)


def decide(site: Site) -> Decision | None:
    decision = _decided(site)
    if decision is None or (left := site.facts.left_alone(site.node)) is None:
        return decision
    if left:
        return Decision("kept", "so is the optimizer")
    return Decision("manual", f"its optimizer is not rewritten in some places: {decision.message}")


def _decided(site: Site) -> Decision | None:
    if site.old is None and isinstance(site.node, cst.Call):
        return _of_lookup(site, site.node)
    node = site.node
    if site.old is not None or not isinstance(node, cst.Attribute):
        return None
    name, base = node.attr.value, node.value
    of_scale = isinstance(base, cst.Attribute) and base.attr.value == "loss_scale"
    owner = base.value if of_scale and isinstance(base, cst.Attribute) else base
    if site.facts.is_another(owner) and not site.facts.is_wrapped(owner):
        return None
    if name == "loss_scale" and site.call is not None and not site.call.args:
        end = site.program.span(site.call)[1]
        return _decision(site, base, Edit(site.program.span(node)[1], end, ""), "a number now")
    if name == "loss_scale" and site.facts.is_wrapped(base) and _is_object(site, node):
        return _of_object(site, base)
    if name == "_optimizer":
        edit = site.renamed("inner_optimizer", node.attr)
        return _of_inner(site, base, edit, f"{site.program.source(base)}.inner_optimizer")
    if name in SCALE_ATTRIBUTES and isinstance(base, cst.Attribute) and of_scale:
        if _is_assigned(site, node):
            return _of_object(site, base.value)
        start, end = site.program.span(base.attr)[0], site.program.span(node.attr)[1]
        edit = Edit(start, end, SCALE_ATTRIBUTES[name])
        return _decision(site, base.value, edit, "the optimizer has it itself")
    if name == "_loss_scale" and site.facts.is_wrapped(base):
        return Decision("manual", _PRIVATE)
    if name in SCALE_OBJECT_ONLY and isinstance(base, cst.Attribute) and of_scale:
        return _of_object(site, base.value)
    return None


def _of_lookup(site: Site, call: cst.Call) -> Decision | None:
    base, name = call.args[0].value, call.args[1].value
    if string(name) == "_loss_scale":
        return Decision("manual", _PRIVATE) if site.facts.is_wrapped(base) else None
    text, (start, end) = site.program.text, site.program.span(name)
    first, last = site.program.span(call)
    at = text.find("_optimizer", start, end)
    is_plain = isinstance(name, cst.SimpleString) and at >= 0
    if is_plain:
        edit = Edit(at, at + len("_optimizer"), "inner_optimizer")
    else:  # spelled with escapes, or in two pieces
        edit = Edit(start, end, '"inner_optimizer"')
    new = text[first : edit.start] + edit.text + text[edit.end : last]
    decision = _of_inner(site, base, edit, new)
    if not is_plain and decision is not None and decision.edits:
        return Decision("manual", f"write {_on_one_line(new)}: {_PUBLIC}")
    return decision


def _of_inner(site: Site, base: cst.CSTNode, edit: Edit, new: str) -> Decision | None:
    facts = site.facts
    if facts.has_other_wrappers and facts.is_wrapped(base):
        if _is_in_unwrapping_loop(site):
            return Decision("manual", "the loop would end at wrappers that are not keras_mp's")
        if facts.is_unwrapped_before(base):
            return Decision("manual", "it may be a wrapper that is not keras_mp's by now")
    decision = _decision(site, base, edit, _PUBLIC, private=True, new=_on_one_line(new))
    if decision is not None and decision.verdict != "kept" and _is_replaced(site):
        return Decision("manual", _CONSTANT)
    return decision


def _is_replaced(site: Site) -> bool:
    """Returns whether the program assigns or deletes the inner optimizer here."""
    if isinstance(site.node, cst.Call):
        return site.program.source(site.node.func) in ("setattr", "delattr")
    return site.program.is_bound(site.node)


def _is_in_unwrapping_loop(site: Site) -> bool:
    """Returns whether it belongs to a loop that takes off one wrapper after the other."""
    return any(
        isinstance(up, cst.While) and _ASKS_FOR_INNER.search(site.program.source(up.test))
        for up in site.program.above(site.node)
    )


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _is_object(site: Site, node: cst.CSTNode) -> bool:
    """Returns whether a loss scale is assigned, or is given a name that is called."""
    if site.program.is_bound(node):
        return True
    target = site.facts.assigned_to(node)
    return target is not None and (
        site.facts.is_called(target) or any(site.facts.reads(target, n) for n in SCALE_OBJECT_ONLY)
    )


def _is_assigned(site: Site, node: cst.CSTNode) -> bool:
    parent = site.program.parent(node)
    return isinstance(parent, cst.Attribute) and parent.attr.value.startswith("assign")


def _of_object(site: Site, base: cst.CSTNode) -> Decision | None:
    if site.facts.is_of_compat(base) and not site.program.is_bound(site.node):
        return Decision("kept", "the optimizers of keras_mp.compat have it")
    if not (site.facts.is_wrapped(base) or site.facts.is_concerned):
        return None
    return Decision(
        "manual",
        "the loss scale is a number, not an object: the optimizer has growth_factor, "
        "backoff_factor, step_counter and get_config, and its loss scale cannot be assigned",
    )


def _decision(
    site: Site,
    base: cst.CSTNode,
    edit: Edit,
    why: str,
    *,
    private: bool = False,
    new: str | None = None,
) -> Decision | None:
    if site.facts.is_of_compat(base):
        return Decision("kept", "the optimizers of keras_mp.compat have it")
    if site.facts.is_partly_of_compat(base):
        return Decision("manual", f"of keras_mp.compat in one place and not in another: {why}")
    text = site.program.source(base)
    gone = site.program.text[edit.start : edit.end]
    whole = "#" not in gone and gone.count("(") == gone.count(")")
    if site.facts.is_wrapped(base) and whole:
        return Decision("rewritten", why, (edit,))
    last = base.attr.value if isinstance(base, cst.Attribute) else text
    concerned = site.facts.is_concerned or site.facts.is_asked_for_its_inner(base)
    if private and (not concerned or chain(base) is None):
        return None
    if not _LIKE_AN_OPTIMIZER.search(last) and (private or not site.facts.is_concerned):
        return None
    new = new or f"{text}.{edit.text or 'loss_scale'}"
    return Decision(
        "manual",
        f"if {text} is a LossScaleOptimizer, write {new}: {why}",
        (edit,) if whole else (),
        unsafe=whole,
    )
