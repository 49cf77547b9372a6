"""KMP015: names of the old modules that have no counterpart.

Left alone, and reported: what was private, what was of tf.contrib, what never was; and names that
are assigned or deleted.
"""

from keras_mp.migration.code.names import CONTRIB, MODULES, STABLE, Old
from keras_mp.migration.code.sites import Decision, Site

_OF_KERAS_3 = ("DTypePolicy", "dtype_policy", "set_dtype_policy")

_CONTRIB = "write keras_mp.LossScaleOptimizer(optimizer) around an optimizer of Keras"
_OF_CONTRIB = {
    "FixedLossScaleManager": f"{_CONTRIB}, with dynamic=False, initial_scale=loss_scale",
    "ExponentialUpdateLossScaleManager": (
        f"{_CONTRIB}, with initial_scale=init_loss_scale, dynamic_growth_steps=incr_every_n_steps, "
        "growth_factor=incr_ratio (2 by default), backoff_factor=decr_ratio (0.8) and "
        "hysteresis=decr_every_n_nan_or_inf (2)"
    ),
}


def binding_message(old: Old) -> Decision:
    """Returns what is said where a program assigns or deletes an old name."""
    return Decision("manual", f"{old} is assigned or deleted here: see what {old.compat} needs")


def decide(site: Site) -> Decision | None:
    if site.old is None or site.old.known:
        return None
    name = site.old.name or ""
    if site.old.name in _OF_KERAS_3:
        return Decision("kept", "Keras 3's own")
    if site.old.space == CONTRIB:
        return Decision("manual", f"{site.old} of TF 1.15: {_OF_CONTRIB.get(name, _CONTRIB)}")
    return Decision(
        "manual",
        f"{site.old} is not public, or of no TensorFlow from 1.15 to 2.15: see what "
        f"{MODULES.get(site.old.space, MODULES[STABLE])} has for it",
    )
