"""KMP003: dtype policies.

before:  experimental.Policy("mixed_float16")
after:   keras_mp.Policy("mixed_float16")

before:  experimental.Policy("mixed_float16", loss_scale="dynamic")
after:   keras_mp.Policy("mixed_float16")

before:  experimental.Policy("mixed_float16", loss_scale=1024)
after:   keras_mp.compat.mixed_precision.experimental.Policy("mixed_float16", loss_scale=1024)

Safe: the global policy still says how `compile` wraps (KMP004), with the loss scale if it has one.
Left to keras_mp.compat: names that are not written out, since old ones are explained there; a
policy whose loss scale is read.
Reported: "infer", which has no counterpart.
"""

import libcst as cst

from keras_mp.migration.code.edits import Edit
from keras_mp.migration.code.parsed import string
from keras_mp.migration.code.sites import Decision, Site
from keras_mp.migration.rules import optimizer_classes
from keras_mp.migration.rules.arguments import Arguments

_STABLE = "keras_mp.compat.mixed_precision.Policy"
_EXPERIMENTAL = "keras_mp.compat.mixed_precision.experimental.Policy"
_OLD_NAMES = {
    "float16_with_float32_vars": "mixed_float16",
    "bfloat16_with_float32_vars": "mixed_bfloat16",
}


def decide(site: Site) -> Decision | None:
    if site.old is None or site.old.name != "Policy":
        return None
    if site.call is None:
        return _of_class(site)
    arguments = Arguments.of(site.call, ("name", "loss_scale") if site.experimental else ("name",))
    name = arguments.get("name") if arguments is not None else None
    if arguments is None or name is None:
        return _by_compat(site)
    value = string(name.value)
    if is_inferred(value):
        return INFERRED
    edits = renamed(site, name.value)
    if value in _OLD_NAMES:
        value = _OLD_NAMES[value]
    scale = arguments.get("loss_scale")
    if scale is not None:
        given = string(scale.value)
        default = given == "auto" or (
            given == "dynamic"
            if value == "mixed_float16"
            else value is not None and site.program.source(scale.value) == "None"
        )
        start = site.program.span(site.call.args[0])[1]
        end = site.program.span(scale)[1]
        gone = site.program.text[start:end]
        if not default or scale is not site.call.args[-1] or "#" in gone:
            return _by_compat(site, edits)
        edits.append(Edit(start, end, ""))
    if value is None or site.read_of_result("loss_scale"):
        return _by_compat(site, edits[:1] if value in _OLD_NAMES.values() else [])
    if site.read_of_result("should_cast_variables"):
        return Decision("rewritten", "by keras_mp.compat", (site.renamed(_STABLE), *edits))
    return Decision("rewritten", "a keras_mp.Policy", (site.renamed("keras_mp.Policy"), *edits))


INFERRED = Decision(
    "manual", 'Keras 3 infers no dtype: write the dtype instead of "infer", such as "float32"'
)


def is_inferred(name: str | None) -> bool:
    """Returns whether a policy took the dtype of a layer's first input."""
    return name is not None and name.lstrip("_").startswith("infer")


def renamed(site: Site, node: cst.BaseExpression) -> list[Edit]:
    """Returns the edit of a name of TF 1.15, if it is written out."""
    value = string(node)
    if value not in _OLD_NAMES:
        return []
    start, end = site.program.span(node)
    quote = site.program.text[start] if site.program.text[start] in "'\"" else '"'
    return [Edit(start, end, f"{quote}{_OLD_NAMES[value]}{quote}")]


def _of_class(site: Site) -> Decision:
    assert site.old is not None
    if optimizer_classes.in_isinstance(site):
        return Decision(
            "manual",
            "the policy of a layer is a keras.DTypePolicy where Keras made it of a string",
            (site.renamed("keras_mp.Policy"),),
        )
    if any(isinstance(above, cst.Annotation) for above in site.program.above(site.node)):
        return Decision("rewritten", "a policy", (site.renamed("keras_mp.Policy"),))
    return Decision(
        "manual", "the class is used as a value: see who calls it", (site.renamed(site.old.compat),)
    )


def _by_compat(site: Site, edits: "list[Edit] | tuple[Edit, ...]" = ()) -> Decision:
    assert site.call is not None
    scaled = site.experimental and (
        len(site.call.args) != 1
        or bool(site.call.args[0].star)
        or site.read_of_result("loss_scale")
    )
    target = _EXPERIMENTAL if scaled else _STABLE
    why = site.why_scale()
    message = f"{target} takes what it took" if why is None else f"{target}: {why}"
    return Decision("rewritten", message, (site.renamed(target), *edits))
