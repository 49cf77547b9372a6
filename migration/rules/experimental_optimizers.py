"""KMP001: the experimental LossScaleOptimizer of TF 1.15 to 2.3 to its new constructor.

before:  LossScaleOptimizer(opt, "dynamic")
after:   keras_mp.LossScaleOptimizer(opt)

before:  LossScaleOptimizer(opt, loss_scale=128)
after:   keras_mp.LossScaleOptimizer(opt, dynamic=False, initial_scale=128)

before:  LossScaleOptimizer(opt, DynamicLossScale(2 ** 10, increment_period=50))
after:   keras_mp.LossScaleOptimizer(opt, initial_scale=2 ** 10, dynamic_growth_steps=50)

Safe: a dynamic scale began at 2**15, grew every 2000 steps and halved, then as now; a multiplier
grew and divided it, which are two arguments now. A dynamic scale that begins below 1 is
its own min_scale; TensorFlow raised it to 1 at the first overflow. A fixed scale applied gradients
that are not finite then; ours skips them.
Left to keras_mp.compat, whose class takes what that of TF 2.3 took: the loss scale of a policy,
which is an object there as it was; another loss scale that is not written out; *args, **kwargs.
Left to it and reported: other arguments than an optimizer and a loss scale.
"""

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import Nodes, number, string
from keras_mp.migration.code.project import LIKE_A_POLICY
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules import targets
from keras_mp.migration.rules.arguments import Arguments

_NOW = {"initial_loss_scale": "initial_scale", "increment_period": "dynamic_growth_steps"}


def decide(site: Site) -> Decision | None:
    if not site.experimental or not site.is_called("LossScaleOptimizer"):
        return None
    return of_call(site)


def of_call(site: Site) -> Decision:
    """Decides about a call that gives a loss scale."""
    assert site.call is not None
    arguments = Arguments.of(site.call, ("optimizer", "loss_scale"))
    scale = arguments.get("loss_scale") if arguments is not None else None
    optimizer = arguments.get("optimizer") if arguments is not None else None
    if any(argument.star for argument in site.call.args):
        return _by_compat(site, "its arguments are not written out")
    if scale is None or optimizer is None:
        said = (
            "takes an optimizer and a loss scale, as that of TF 2.3: other arguments are an error"
        )
        edit = site.renamed(targets.EXPERIMENTAL)
        return Decision("manual", f"{targets.EXPERIMENTAL} {said}", (edit,))
    found = _new_arguments(site, scale)
    if found is None and _is_of_policy(site, scale):
        said = f"{targets.EXPERIMENTAL} takes the loss scale of a policy"
        return Decision("rewritten", said, (site.renamed(targets.EXPERIMENTAL),))
    if found is None:
        return _by_compat(site, f"the loss scale {site.program.source(scale.value)} is not literal")
    pieces, inner = found
    if not pieces and _comments(site, scale, pieces):
        pieces = [("dynamic", "True")]
    why = site.facts.why_keras_2(site.call)
    target = targets.OURS if why is None else targets.KERAS_2
    edits = [site.renamed(target)]
    placed = _placed(site, scale, pieces) if pieces else _dropped(site, site.call, scale)
    if optimizer.keyword is not None:
        positional = optimizer is site.call.args[0] or not any(edit.text for edit in placed)
        start, end = site.program.span(optimizer)[0], _value_span(site, optimizer)[0]
        edits.append(Edit(start, end, "" if positional else "inner_optimizer="))
    message = f"{target} says the loss scale by keyword"
    if why is not None:
        message = f"{target}: {why}"
    return Decision("rewritten", message, (*edits, *placed), inner)


# What becomes an argument: its keyword, and the text or the span of its value.
_Piece = tuple[str, str | tuple[int, int]]


def _placed(site: Site, scale: cst.Arg, pieces: list[_Piece]) -> list[Edit]:
    """Returns the edits that put new arguments around values that stay where they are."""
    edits: list[Edit] = []
    at, end = site.program.span(scale)
    text = "".join(comment + _next_line(site, scale) for comment in _comments(site, scale, pieces))
    for name, value in pieces:
        text += f"{', ' if name != pieces[0][0] else ''}{name}="
        if isinstance(value, str):
            text += value
        else:
            edits.append(Edit(at, value[0], text))
            at, text = value[1], ""
    return [*edits, Edit(at, end, text)]


def _comments(site: Site, scale: cst.Arg, pieces: list[_Piece]) -> list[str]:
    """Returns the comments that would go with what is replaced."""
    kept = [value for _, value in pieces if not isinstance(value, str)]
    comments = Nodes(scale).of(cst.Comment)
    inside = [(site.program.span(node)[0], node.value) for node in comments]
    end = site.program.span(scale)[1]
    return [text for at, text in inside if at < end and not any(a <= at < b for a, b in kept)]


def _next_line(site: Site, scale: cst.Arg) -> str:
    line, column = site.program.where(scale)
    indent = site.program.lines.indent(line)
    alone = len(indent) == column - 1
    return site.program.lines.ending(line) + indent + ("" if alone else "    ")


def _dropped(site: Site, call: cst.Call, scale: cst.Arg) -> list[Edit]:
    start, end = site.program.span(scale)
    at = call.args.index(scale)
    if at:
        start = site.program.span(call.args[at - 1])[1]
    else:  # the optimizer is given, too
        end = site.program.span(call.args[1])[0]
    if "#" in site.program.text[start:end]:  # a comment would go with it
        return [Edit(*site.program.span(scale), "dynamic=True")]
    return [Edit(start, end, "")]


def _value_span(site: Site, argument: cst.Arg) -> tuple[int, int]:
    """Returns where the value of an argument is, with its parentheses."""
    end = site.program.span(argument)[1]
    return end - len(site.program.value(argument)), end


def _new_arguments(
    site: Site, scale: cst.Arg
) -> tuple[list[_Piece], tuple[cst.CSTNode, ...]] | None:
    value = scale.value
    if string(value) == "dynamic":
        return [], ()
    if number(value) is not None:
        return [("dynamic", "False"), ("initial_scale", _value_span(site, scale))], ()
    old = site.program.old(value.func) if isinstance(value, cst.Call) else None
    if old is None or not isinstance(value, cst.Call):
        return None
    pieces: list[_Piece] | None = None
    if old.name == "FixedLossScale":
        given = Arguments.of(value, ("loss_scale_value",))
        fixed = given.get("loss_scale_value") if given is not None else None
        if fixed is not None:
            pieces = [("dynamic", "False"), ("initial_scale", _value_span(site, fixed))]
    elif old.name == "DynamicLossScale":
        pieces = _dynamic(site, value)
    return None if pieces is None else (pieces, (value.func,))


def _dynamic(site: Site, call: cst.Call) -> list[_Piece] | None:
    given = Arguments.of(call, ("initial_loss_scale", "increment_period", "multiplier"))
    if given is None:
        return None
    pieces: list[_Piece] = []
    for then, argument in given.by_name.items():  # in the order of the text
        if then != "multiplier":
            pieces.append((_NOW[then], _value_span(site, argument)))
            if then == "initial_loss_scale" and is_below_floor(argument.value):
                pieces.append(("min_scale", site.program.value(argument)))
            continue
        value = number(argument.value)
        if value is None or value <= 1:
            return None
        if value != 2:
            text = site.program.value(argument)
            atom = isinstance(argument.value, (cst.Integer, cst.Float)) or argument.value.lpar
            divided = f"1 / {text}" if atom else f"1 / ({text})"
            pieces += [("growth_factor", text), ("backoff_factor", divided)]
    return pieces


def is_below_floor(scale: cst.CSTNode) -> bool:
    """Returns whether a scale is written out that keras_mp takes with a min_scale only."""
    value = number(scale)
    return value is not None and 0 < value < 1


def _is_of_policy(site: Site, scale: cst.Arg) -> bool:
    value = scale.value
    if not isinstance(value, cst.Attribute) or value.attr.value != "loss_scale":
        return False
    return LIKE_A_POLICY.search(site.program.source(value.value)) is not None


def _by_compat(site: Site, why: str) -> Decision:
    return Decision(
        "rewritten",
        f"{why}: {targets.EXPERIMENTAL} takes what TF 2.3 took",
        (site.renamed(targets.EXPERIMENTAL),),
    )
