"""KMP007: FixedLossScale, DynamicLossScale and LossScale where no optimizer takes them at once.

before:  scale = tf.mixed_precision.experimental.DynamicLossScale(2 ** 10)
after:   scale = keras_mp.compat.mixed_precision.experimental.DynamicLossScale(2 ** 10)

Safe: it is the same class, and what takes it here takes this one.
Reported: classes derived from them, and multipliers other than 2, which keras_mp.compat refuses.
Left alone: what the graph rewrite takes with an optimizer of tf.compat.v1.train (KMP010).
"""

import libcst as cst

from keras_mp.migration.code.parsed import number
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules import graph_rewrite
from keras_mp.migration.rules.arguments import Arguments

_MODULE = "keras_mp.compat.mixed_precision.experimental"
_HOME = "keras_mp.compat.legacy_classes.loss_scales:"


def decide(site: Site) -> Decision | None:
    if site.old is None or not site.old.home.startswith(_HOME):
        return None
    if _is_for_v1(site):
        return Decision("kept", "for an optimizer of tf.compat.v1.train, as KMP010 says")
    edits = (site.renamed(f"{_MODULE}.{site.old.name}"),)
    argument = site.program.parent(site.node)
    if isinstance(argument, cst.Arg) and isinstance(site.program.parent(argument), cst.ClassDef):
        return Decision(
            "manual",
            "a loss scale class of one's own is refused: its rule has to become arguments of "
            "keras_mp.LossScaleOptimizer (growth_factor, backoff_factor, dynamic_growth_steps)",
            edits,
        )
    if site.is_called("DynamicLossScale"):
        assert site.call is not None
        names = ("initial_loss_scale", "increment_period", "multiplier")
        given = Arguments.of(site.call, names)
        multiplier = given.get("multiplier") if given is not None else None
        if multiplier is not None and number(multiplier.value) != 2:
            return Decision(
                "manual",
                "a multiplier other than 2 is refused here: give growth_factor and "
                "backoff_factor to keras_mp.LossScaleOptimizer",
                edits,
            )
    return Decision("rewritten", "the same class", edits)


def _is_for_v1(site: Site) -> bool:
    """Returns whether a loss scale is written out in the call of such a graph rewrite."""
    for above in site.program.above(site.node):
        if isinstance(above, cst.Call) and above is not site.call:
            old = site.program.old(above.func)
            rewrites = old is not None and old.name == "enable_mixed_precision_graph_rewrite"
            return rewrites and graph_rewrite.takes_v1(
                Site(site.program, site.facts, above.func, old, above)
            )
        if isinstance(above, cst.BaseStatement):
            break
    return False
