"""KMP005: reading the global policy."""

import pytest

from tests.source_rules import header, rewritten

COMPAT = "keras_mp.compat.mixed_precision.experimental.global_policy"

REWRITES = {
    "stable": ("mixed_precision.global_policy()", "keras_mp.global_policy()"),
    "experimental": ("experimental.global_policy().name", "keras_mp.global_policy().name"),
    "its scale": ("experimental.global_policy().loss_scale", f"{COMPAT}().loss_scale"),
    "its scale, later": (
        "p = experimental.global_policy()\nuse(p.loss_scale)",
        f"p = {COMPAT}()\nuse(p.loss_scale)",
    ),
    "the scale of another": (
        "p = experimental.global_policy()\nuse(q.loss_scale)",
        "p = keras_mp.global_policy()\nuse(q.loss_scale)",
    ),
}


@pytest.mark.parametrize(("before", "after"), header("KMP005"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
