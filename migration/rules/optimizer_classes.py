"""KMP008: the class LossScaleOptimizer where it is not called.

before:  isinstance(opt, experimental.LossScaleOptimizer)
after:   isinstance(opt, keras_mp.LossScaleOptimizer)

Safe: every wrapped optimizer here is one, also those of keras_mp.compat. Another name for it,
X = LossScaleOptimizer, becomes one of keras_mp.compat's, which takes what the old one took.
Reported, and left to keras_mp.compat: classes derived from it, and the class as any other value,
since somebody else calls it. Reported, and left alone: an attribute of it that is assigned.
"""

import libcst as cst

from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules import targets

_ASKING = ("isinstance", "issubclass", "assertIsInstance", "assertNotIsInstance")


def decide(site: Site) -> Decision | None:
    if site.old is None or site.call is not None:
        return None
    if site.old.name not in ("LossScaleOptimizer", "MixedPrecisionLossScaleOptimizer"):
        return None
    if site.old.root == "keras3":
        return Decision("kept", "Keras 3's own class, which ours is derived from")
    if _is_patched(site):
        return Decision("manual", PATCHED)
    if in_isinstance(site):
        return Decision("rewritten", "isinstance of any wrapper", (site.renamed(targets.OURS),))
    parent = site.program.parent(site.node)
    if isinstance(parent, cst.Arg) and isinstance(site.program.parent(parent), cst.ClassDef):
        why = (
            "a class derived from it: fit() of Keras 3 calls scale_loss and apply, not "
            "get_scaled_loss and get_unscaled_gradients"
        )
    elif isinstance(parent, cst.Assign):
        return Decision("rewritten", "another name for it", (site.renamed(site.old.compat),))
    elif any(isinstance(above, cst.Annotation) for above in site.program.above(site.node)):
        return Decision("rewritten", "any wrapper", (site.renamed(targets.OURS),))
    else:
        why = "the class is used as a value: see what it is called with"
    return Decision("manual", why, (site.renamed(site.old.compat),))


PATCHED = (
    "replaces what TensorFlow called: fit() of Keras 3 calls scale_loss and apply. Not "
    "rewritten: use an argument of keras_mp.LossScaleOptimizer, or a class derived from it"
)


def _is_patched(site: Site) -> bool:
    """Returns whether an attribute of the class is assigned or deleted."""
    attribute = site.program.parent(site.node)
    is_own = isinstance(attribute, cst.Attribute) and attribute.value is site.node
    return is_own and attribute is not None and site.program.is_bound(attribute)


def in_isinstance(site: Site) -> bool:
    """Returns whether a class is asked for, by isinstance or a test's assertion."""
    node: cst.CSTNode = site.node
    above = site.program.parent(node)
    while isinstance(above, (cst.Tuple, cst.Element, cst.Arg, cst.BinaryOperation)):
        node, above = above, site.program.parent(above)
    if isinstance(above, cst.MatchClass):
        return node is above.cls
    return (
        isinstance(above, cst.Call)
        and site.program.source(above.func).split(".")[-1] in _ASKING
        and len(above.args) > 1
        and node is above.args[1]
    )
