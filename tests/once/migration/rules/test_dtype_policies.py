"""KMP003: dtype policies."""

import pytest

from tests.source_rules import header, rewritten, said

STABLE = "keras_mp.compat.mixed_precision.Policy"
OLD = "keras_mp.compat.mixed_precision.experimental.Policy"

REWRITES = {
    "2.4": ("mixed_precision.Policy('mixed_float16')", "keras_mp.Policy('mixed_float16')"),
    "keyword": ("experimental.Policy(name='float32')", "keras_mp.Policy(name='float32')"),
    "the default loss scale": (
        "experimental.Policy('mixed_float16', loss_scale='auto')",
        "keras_mp.Policy('mixed_float16')",
    ),
    "none where there was none": (
        "experimental.Policy('mixed_bfloat16', loss_scale=None)",
        "keras_mp.Policy('mixed_bfloat16')",
    ),
    "none where there was one": (
        "experimental.Policy('mixed_float16', loss_scale=None)",
        f"{OLD}('mixed_float16', loss_scale=None)",
    ),
    "a name": ("mixed_precision.Policy(name)", f"{STABLE}(name)"),
    "a name, then": ("experimental.Policy(name)", f"{STABLE}(name)"),
    "a name and a scale": ("experimental.Policy(name, scale)", f"{OLD}(name, scale)"),
    "no name": ("mixed_precision.Policy()", f"{STABLE}()"),
    "stars": ("experimental.Policy(**k)", f"{OLD}(**k)"),
    "a name that cannot be read": ("mixed_precision.Policy(b'x')", f"{STABLE}(b'x')"),
    "its scale is read": (
        "p = experimental.Policy('mixed_float16')\nuse(p.loss_scale)",
        f"p = {OLD}('mixed_float16')\nuse(p.loss_scale)",
    ),
    "of 1.15": (
        'experimental.Policy("float16_with_float32_vars")',
        'keras_mp.Policy("mixed_float16")',
    ),
    "a prefix": (
        'experimental.Policy(u"float16_with_float32_vars")',
        'keras_mp.Policy("mixed_float16")',
    ),
    "some policy has its scale read": (
        "def f(policy):\n    return policy.loss_scale\nf(experimental.Policy('mixed_float16'))",
        f"def f(policy):\n    return policy.loss_scale\nf({OLD}('mixed_float16'))",
    ),
    "in an annotation": (
        "def f(p: mixed_precision.Policy): pass",
        "def f(p: keras_mp.Policy): pass",
    ),
}


@pytest.mark.parametrize(("before", "after"), header("KMP003"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize("name", ["infer", "infer_with_float32_vars"])
def test_infer_is_left_alone_and_reported(name):
    before = f"experimental.Policy('{name}')"
    assert rewritten(before) == before
    assert said(before, "KMP003") == [(1, "manual")]


def test_a_class_that_is_asked_for_is_reported():
    before = "isinstance(p, experimental.Policy)"
    assert rewritten(before) == "isinstance(p, keras_mp.Policy)"
    assert said(before, "KMP003") == [(1, "manual")]
