"""KMP005: reading the global policy.

before:  mixed_precision.global_policy().compute_dtype
after:   keras_mp.global_policy().compute_dtype

Left to keras_mp.compat: where its loss_scale or should_cast_variables is read.
"""

from keras_mp.migration.code.sites import Decision, Site

_OF_OLD_POLICIES = ("loss_scale", "should_cast_variables")


def decide(site: Site) -> Decision | None:
    if site.old is None or site.old.name != "global_policy":
        return None
    if site.call is not None and any(site.read_of_result(name) for name in _OF_OLD_POLICIES):
        new = "keras_mp.compat.mixed_precision.experimental.global_policy"
        why = site.why_scale() or "read as of TF 2.3"
        return Decision("rewritten", why, (site.renamed(new),))
    return Decision("rewritten", "the global policy", (site.renamed("keras_mp.global_policy"),))
