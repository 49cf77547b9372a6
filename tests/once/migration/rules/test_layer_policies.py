"""KMP006: reading the policy of a layer."""

import pytest

from tests.source_rules import header, rewritten

COMPAT = "keras_mp.compat.mixed_precision.experimental.get_layer_policy"

REWRITES = {
    "keyword": ("experimental.get_layer_policy(layer=l)", "l.dtype_policy"),
    "precedence": ("experimental.get_layer_policy(a or b).name", "(a or b).dtype_policy.name"),
    "over lines": (
        "experimental.get_layer_policy(model\n    .layers[0])",
        f"{COMPAT}(model\n    .layers[0])",
    ),
    "nested": (
        "experimental.get_layer_policy(f(experimental.global_policy()))",
        "f(keras_mp.global_policy()).dtype_policy",
    ),
    "its scale": ("experimental.get_layer_policy(l).loss_scale", f"{COMPAT}(l).loss_scale"),
    "as a value": ("map(experimental.get_layer_policy, layers)", f"map({COMPAT}, layers)"),
}


@pytest.mark.parametrize(("before", "after"), header("KMP006"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
