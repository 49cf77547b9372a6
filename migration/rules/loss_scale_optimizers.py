"""KMP002: LossScaleOptimizer of TF 2.4 to 2.15, and of Keras 3.

before:  mixed_precision.LossScaleOptimizer(opt, False, 128)
after:   keras_mp.LossScaleOptimizer(opt, dynamic=False, initial_scale=128)

before:  mixed_precision.LossScaleOptimizer(opt, 1024.0)      # the order of Keras 3
after:   keras_mp.LossScaleOptimizer(opt, initial_scale=1024.0)

Safe: the keywords mean the same in all of them. What is given by position becomes a keyword, since
Keras 3 put initial_scale where dynamic was. A dynamic scale that begins below 1 is
its own min_scale.
Left alone, and reported: positional arguments that are not written out where the name is one of
Keras 2 and of Keras 3; *args, **kwargs.
"""

from collections.abc import Mapping, Sequence

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import keywords, number, string
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules import experimental_optimizers, targets

_THEN = ("inner_optimizer", "dynamic", "initial_scale", "dynamic_growth_steps")
_KERAS_3 = ("inner_optimizer", "initial_scale", "dynamic_growth_steps", "name")


def decide(site: Site) -> Decision | None:
    if site.experimental or not site.is_called("LossScaleOptimizer"):
        return None
    assert site.call is not None
    assert site.old is not None
    arguments = site.call.args
    if _is_of_23(site.call):
        return experimental_optimizers.of_call(site)
    if any(argument.star for argument in arguments):
        if site.old.root.startswith("keras"):
            return _ask("its arguments are not written out")
        return Decision(
            "manual",
            "its arguments are not written out: check that only the first is positional",
            (site.renamed(targets.KERAS_2),),
        )
    order = _order(site, arguments)
    if order is None:
        return _ask("Keras 2 takes dynamic second, Keras 3 initial_scale")
    if len([a for a in arguments if a.keyword is None]) > len(order):
        return _ask("it has more positional arguments than the class")
    why = site.facts.why_keras_2(site.call)
    edits = [site.renamed(targets.OURS if why is None else targets.KERAS_2)]
    for name, argument in zip(order, arguments, strict=False):
        if argument.keyword is None and name != "inner_optimizer":
            start = site.program.span(argument)[0]
            edits.append(Edit(start, start, f"{name}="))
    given = dict(zip(order, (a for a in arguments if a.keyword is None), strict=False))
    given |= keywords(site.call)
    edits += _floor(site, given)
    message = "the same arguments, by keyword where Keras 3 has another order"
    if why is not None:
        message = f"{targets.KERAS_2}: {why}"
    return Decision("rewritten", message, tuple(edits))


def _is_of_23(call: cst.Call) -> bool:
    """Returns whether a loss scale is given, which the class of TF 2.4 did not take."""
    is_dynamic = len(call.args) == 2 and string(call.args[1].value) == "dynamic"
    return is_dynamic or "loss_scale" in keywords(call)


def _floor(site: Site, given: Mapping[str, cst.Arg]) -> list[Edit]:
    """Returns the edit that says min_scale, where a dynamic scale begins below ours."""
    scale, dynamic = given.get("initial_scale"), given.get("dynamic")
    if scale is None or not experimental_optimizers.is_below_floor(scale.value):
        return []
    if dynamic is not None and site.program.value(dynamic) == "False":
        return []
    end = site.program.span(scale)[1]
    return [Edit(end, end, f", min_scale={site.program.value(scale)}")]


def _order(site: Site, arguments: Sequence[cst.Arg]) -> tuple[str, ...] | None:
    """Returns the parameters in the order that this call was written for."""
    assert site.old is not None
    if len(arguments) < 2 or arguments[1].keyword is not None:
        return _THEN
    second = arguments[1].value
    if isinstance(second, cst.Name) and second.value in ("True", "False"):
        return _THEN
    if number(second) is not None:
        return _KERAS_3
    return None if site.old.root.startswith("keras") else _THEN


def _ask(why: str) -> Decision:
    return Decision(
        "manual",
        f"{why}: write keras_mp.LossScaleOptimizer with keywords, dynamic=..., initial_scale=...",
    )
