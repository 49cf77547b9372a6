"""KMP010: the graph rewrite.

before:  tf.train.experimental.enable_mixed_precision_graph_rewrite(opt)
after:   keras_mp.graph_rewrite.enable(opt)

before:  opt = enable_mixed_precision_graph_rewrite(opt, loss_scale=128)
after:   opt = keras_mp.graph_rewrite.enable(opt, loss_scale=128)

The decisions are TensorFlow's, op by op. Then every graph of the process was rewritten; now it is
the models that are compiled with the result.
Left to keras_mp.compat: a loss scale that is not written out.
Reported: where the program compiles no model, or trains in another way, too; a result that is not
used.
Left alone, and reported: where it takes an optimizer of tf.compat.v1.train, which is no optimizer
of Keras and still runs as it did.
"""

import re

import libcst as cst

from keras_mp.migration.code.parsed import number, string
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules.arguments import Arguments

_COMPAT = "keras_mp.compat.train.experimental"
_NEW = "keras_mp.graph_rewrite"


def decide(site: Site) -> Decision | None:
    if site.old is None or site.old.name is None:
        return None
    name = site.old.name
    if name == "enable_mixed_precision_graph_rewrite" and takes_v1(site):
        return Decision("manual", V1)
    if name == "disable_mixed_precision_graph_rewrite" and site.call is not None:
        new = f"{_NEW}.disable"
        return Decision("rewritten", "models compute in float32 again", (site.renamed(new),))
    if name == "enable_mixed_precision_graph_rewrite":
        literal = _is_literal(site) and site.facts.why_keras_2(site.call) is None
        new = f"{_NEW}.enable" if literal else f"{_COMPAT}.{name}"
        why = _to_do(site)
        message = why or "models compiled with the result are rewritten"
        return Decision("manual" if why else "rewritten", message, (site.renamed(new),))
    if name == "disable_mixed_precision_graph_rewrite":
        return Decision("rewritten", "the same function", (site.renamed(f"{_COMPAT}.{name}"),))
    if name == "MixedPrecisionLossScaleOptimizer" and site.call is not None:
        return Decision(
            "manual",
            "it wrapped optimizers of tf.compat.v1.train, which Keras 3 does not have: use an "
            "optimizer of Keras and keras_mp.LossScaleOptimizer",
            (site.renamed(f"{_COMPAT}.{name}"),),
        )
    return None


V1 = (
    "not rewritten: TensorFlow 2.21 still rewrites the graphs of optimizers of tf.compat.v1.train. "
    "For Keras 3 use an optimizer of Keras and keras_mp.graph_rewrite.enable(optimizer)"
)
_V1 = re.compile(r"tensorflow\.((compat\.v1\.)?train|python\.training\.\w+)\.\w*Optimizer")


def takes_v1(site: Site) -> bool:
    """Returns whether an optimizer is one of tf.compat.v1.train, as far as it shows."""
    assert site.old is not None
    given = None if site.call is None else Arguments.of(site.call, ("opt", "loss_scale"))
    opt = None if given is None else given.get("opt")
    made = [] if opt is None else site.facts.values(opt.value)
    calls = [one.func for one in made if isinstance(one, cst.Call)]
    found = [site.program.full_name(func) for func in calls if site.program.old(func) is None]
    names = [*filter(None, found)]
    if any(map(_V1.fullmatch, names)):
        return True
    return not names and site.old.space.startswith("tf.compat.v1.")


def _to_do(site: Site) -> str:
    """Returns what a person must do, if anything."""
    if site.call is not None and isinstance(site.program.parent(site.call), cst.Expr):
        return "the result is not used: only models compiled with it are rewritten"
    if not site.facts.compiles:
        return (
            "models compiled with the result are rewritten, but none is compiled here: a model "
            "that is trained or run in another way needs keras_mp.graph_rewrite.apply(model), and "
            "the optimizer must be one of Keras"
        )
    return ""


def _is_literal(site: Site) -> bool:
    if site.call is None:
        return False
    given = Arguments.of(site.call, ("opt", "loss_scale"))
    if given is None or given.get("opt") is None:
        return False
    scale = given.get("loss_scale")
    if scale is None or string(scale.value) == "dynamic":
        return True
    value: cst.BaseExpression = scale.value
    return (number(value) or 0) >= 1
