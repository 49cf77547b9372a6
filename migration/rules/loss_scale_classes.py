"""KMP007: FixedLossScale, DynamicLossScale and LossScale where no optimizer takes them at once.

before:  scale = tf.mixed_precision.experimental.DynamicLossScale(2 ** 10)
after:   scale = keras_mp.compat.mixed_precision.experimental.DynamicLossScale(2 ** 10)

Safe: it is the same class, and what takes it here takes this one.
Reported: classes derived from them, and multipliers other than 2, which keras_mp.compat refuses.
"""

import libcst as cst

from keras_mp.migration.code.parsed import number
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules.arguments import Arguments

ID = "KMP007"
_MODULE = "keras_mp.compat.mixed_precision.experimental"


def decide(site: Site) -> Decision | None:
    if site.old is None or not site.old.home.startswith("keras_mp.compat.scaling.loss_scales:"):
        return None
    edits = (site.renamed(f"{_MODULE}.{site.old.name}"),)
    argument = site.program.parent(site.node)
    if isinstance(argument, cst.Arg) and isinstance(site.program.parent(argument), cst.ClassDef):
        return Decision(
            "person",
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
                "person",
                "a multiplier other than 2 is refused here: give growth_factor and "
                "backoff_factor to keras_mp.LossScaleOptimizer",
                edits,
            )
    return Decision("rewritten", "the same class", edits)
