"""KMP006: reading the policy of a layer.

before:  experimental.get_layer_policy(layer)
after:   layer.dtype_policy

Left to keras_mp.compat: where its loss_scale is read, or it is not a call with one argument.
"""

import re

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules.arguments import Arguments

_COMPAT = "keras_mp.compat.mixed_precision.experimental.get_layer_policy"


def decide(site: Site) -> Decision | None:
    if site.old is None or site.old.name != "get_layer_policy":
        return None
    given = Arguments.of(site.call, ("layer",)) if site.call is not None else None
    layer = given.get("layer") if given is not None else None
    if site.call is None or layer is None or site.read_of_result("loss_scale"):
        return Decision("rewritten", "by keras_mp.compat", (site.renamed(_COMPAT),))
    source = site.program.source(site.call)
    if re.search(r"[\r\n#]", source) or site.call.func.lpar:
        return Decision("rewritten", "by keras_mp.compat", (site.renamed(_COMPAT),))
    simple = isinstance(layer.value, (cst.Name, cst.Attribute, cst.Subscript, cst.Call))
    left, right = ("", "") if simple else ("(", ")")
    start, end = site.program.span(layer.value)
    first, last = site.program.span(site.call)
    edits = Edit(first, start, left), Edit(end, last, f"{right}.dtype_policy")
    return Decision("rewritten", "a layer has its policy", edits)
