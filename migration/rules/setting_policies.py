"""KMP004: setting the global policy.

before:  experimental.set_policy("mixed_float16")
after:   keras_mp.compat.mixed_precision.set_global_policy("mixed_float16")

before:  policy.policy_scope("mixed_float16")     # of tensorflow.python
after:   keras_mp.policy_scope("mixed_float16")

Safe: under a float16 policy `compile` wraps the optimizer, as it did in TF 2.1 to 2.15.
Reported: "infer"; policy_scope, in which `compile` wraps where keras_mp.auto_wrap() is in force.
"""

from keras_mp.migration.code.parsed import string
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules import dtype_policies

NEW = "keras_mp.compat.mixed_precision.set_global_policy"


def decide(site: Site) -> Decision | None:
    if site.old is not None and site.old.name == "policy_scope":
        return Decision(
            "manual",
            "public here; compile wraps in it where keras_mp.auto_wrap() is in force",
            (site.renamed("keras_mp.policy_scope"),),
        )
    if site.old is None or site.old.name not in ("set_policy", "set_global_policy"):
        return None
    edits = [site.renamed(NEW)]
    if site.call is not None and site.call.args:
        name = string(site.call.args[0].value)
        if dtype_policies.is_inferred(name):
            return dtype_policies.INFERRED
        edits += dtype_policies.renamed(site, site.call.args[0].value)
    return Decision("rewritten", "compile wraps as it did", tuple(edits))
