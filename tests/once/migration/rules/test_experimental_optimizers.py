"""KMP001: the experimental LossScaleOptimizer to its new constructor."""

import pytest

from tests.source_rules import header, rewritten, said

NEW = "keras_mp.LossScaleOptimizer"
SCALES = "keras_mp.compat.mixed_precision.experimental"
COMPAT = f"{SCALES}.LossScaleOptimizer"
KERAS_2 = "keras_mp.compat.mixed_precision.LossScaleOptimizer"

REWRITES = {
    "dynamic": ("LossScaleOptimizer(o, 'dynamic')", f"{NEW}(o)"),
    "keywords": ("LossScaleOptimizer(optimizer=o, loss_scale='dynamic')", f"{NEW}(o)"),
    "other order": ("LossScaleOptimizer(loss_scale='dynamic', optimizer=o)", f"{NEW}(o)"),
    "a number": ("LossScaleOptimizer(o, 2 ** 7)", f"{NEW}(o, dynamic=False, initial_scale=2 ** 7)"),
    "a number with a shift": (
        "LossScaleOptimizer(o, 1 << 10)",
        f"{NEW}(o, dynamic=False, initial_scale=1 << 10)",
    ),
    "number first": (
        "LossScaleOptimizer(loss_scale=8, optimizer=o)",
        f"{NEW}(dynamic=False, initial_scale=8, inner_optimizer=o)",
    ),
    "fixed": (
        "LossScaleOptimizer(o, FixedLossScale(flags.scale))",
        f"{NEW}(o, dynamic=False, initial_scale=flags.scale)",
    ),
    "dynamic object": ("LossScaleOptimizer(o, DynamicLossScale())", f"{NEW}(o)"),
    "its arguments": (
        "LossScaleOptimizer(o, DynamicLossScale(8, increment_period=n, multiplier=2))",
        f"{NEW}(o, initial_scale=8, dynamic_growth_steps=n)",
    ),
    "below the floor": (
        "LossScaleOptimizer(o, DynamicLossScale((.5), n))",
        f"{NEW}(o, initial_scale=(.5), min_scale=(.5), dynamic_growth_steps=n)",
    ),
    "another multiplier": (
        "LossScaleOptimizer(o, DynamicLossScale(multiplier=4.))",
        f"{NEW}(o, growth_factor=4., backoff_factor=1 / 4.)",
    ),
    "a multiplier that is computed": (
        "LossScaleOptimizer(o, DynamicLossScale(multiplier=2 * 2))",
        f"{NEW}(o, growth_factor=2 * 2, backoff_factor=1 / (2 * 2))",
    ),
    "a list of weights": (
        "opt = LossScaleOptimizer(o, 'dynamic')\nlen(opt.weights)",
        f"opt = {KERAS_2}(o)\nlen(opt.weights)",
    ),
    "trailing comma": ("LossScaleOptimizer(o, 'dynamic',)", f"{NEW}(o,)"),
    "nested": (
        "LossScaleOptimizer(make(experimental.global_policy()), 'dynamic')",
        f"{NEW}(make(keras_mp.global_policy()))",
    ),
    "parentheses": (
        "LossScaleOptimizer((o), (128))",
        f"{NEW}((o), dynamic=False, initial_scale=(128))",
    ),
    "a comment stays": (
        "LossScaleOptimizer(\n    o,\n    # why\n    'dynamic')",
        f"{NEW}(\n    o,\n    # why\n    dynamic=True)",
    ),
    "a comment inside stays": (
        "LossScaleOptimizer(\n    o,\n    FixedLossScale(\n        8,  # why\n    ))",
        f"{NEW}(\n    o,\n    # why\n    dynamic=False, initial_scale=8)",
    ),
    "a comment behind what goes": (
        "LossScaleOptimizer(\n    loss_scale='dynamic',  # why\n    optimizer=o)",
        f"{NEW}(\n    dynamic=True,  # why\n    inner_optimizer=o)",
    ),
    "the scale of a policy": (
        "LossScaleOptimizer(o, loss_scale=self.policy.loss_scale)",
        f"{COMPAT}(o, loss_scale=self.policy.loss_scale)",
    ),
    "slots of Keras 2": (
        "opt = LossScaleOptimizer(o, 'dynamic')\nopt.get_slot(v, 'm')",
        f"opt = {KERAS_2}(o)\nopt.get_slot(v, 'm')",
    ),
}

BY_COMPAT = {
    "a name": ("LossScaleOptimizer(o, scale)", f"{COMPAT}(o, scale)"),
    "a product with a name": ("LossScaleOptimizer(o, n * 2)", f"{COMPAT}(o, n * 2)"),
    "a call": ("LossScaleOptimizer(o, scale())", f"{COMPAT}(o, scale())"),
    "stars": ("LossScaleOptimizer(*a)", f"{COMPAT}(*a)"),
    "two stars": ("LossScaleOptimizer(o, **k)", f"{COMPAT}(o, **k)"),
    "a large number": ("LossScaleOptimizer(o, 10000 ** 150)", f"{COMPAT}(o, 10000 ** 150)"),
    "no scale": ("LossScaleOptimizer(o)", f"{COMPAT}(o)"),
    "a number above every float": (
        f"LossScaleOptimizer(o, 1{'0' * 400})",
        f"{COMPAT}(o, 1{'0' * 400})",
    ),
    "a fixed scale of stars": (
        "LossScaleOptimizer(o, FixedLossScale(*a))",
        f"{COMPAT}(o, {SCALES}.FixedLossScale(*a))",
    ),
    "a dynamic scale of stars": (
        "LossScaleOptimizer(o, DynamicLossScale(*a))",
        f"{COMPAT}(o, {SCALES}.DynamicLossScale(*a))",
    ),
    "an old name that is no scale": (
        "LossScaleOptimizer(o, experimental.Policy('float32'))",
        f"{COMPAT}(o, keras_mp.Policy('float32'))",
    ),
    "another position": ("LossScaleOptimizer(o, 'dynamic', x)", f"{COMPAT}(o, 'dynamic', x)"),
    "another keyword": ("LossScaleOptimizer(o, 'dynamic', x=1)", f"{COMPAT}(o, 'dynamic', x=1)"),
    "a multiplier that is not written out": (
        "LossScaleOptimizer(o, DynamicLossScale(multiplier=m))",
        f"{COMPAT}(o, {SCALES}.DynamicLossScale(multiplier=m))",
    ),
}


@pytest.mark.parametrize(("before", "after"), header("KMP001"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert {verdict for _, verdict in said(before, "KMP001")} == {"rewritten"}


@pytest.mark.parametrize(("before", "after"), BY_COMPAT.values(), ids=BY_COMPAT)
def test_goes_through_compat_and_is_reported(before, after):
    assert rewritten(before) == after
    assert {verdict for _, verdict in said(before, "KMP001")} == {"manual"}
