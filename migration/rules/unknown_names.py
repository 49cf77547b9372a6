"""KMP015: names of the old modules that have no counterpart.

Left alone, and reported: what was private, what was of tf.contrib, what never was; and names that
are assigned or deleted.
"""

from keras_mp.migration.code.names import MODULES, STABLE, Old
from keras_mp.migration.code.sites import Decision, Site

ID = "KMP015"
_OF_KERAS_3 = ("DTypePolicy", "dtype_policy", "set_dtype_policy")


def bound(old: Old) -> Decision:
    """Returns what is said where a program assigns or deletes an old name."""
    return Decision("person", f"{old} is assigned or deleted here: see what {old.compat} needs")


def decide(site: Site) -> Decision | None:
    if site.old is None or site.old.known:
        return None
    if site.old.name in _OF_KERAS_3:
        return Decision("kept", "Keras 3's own")
    return Decision(
        "person",
        f"{site.old} is not public, or of no TensorFlow from 1.15 to 2.15: see what "
        f"{MODULES.get(site.old.space, MODULES[STABLE])} has for it",
    )
