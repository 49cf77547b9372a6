"""KMP008: the class LossScaleOptimizer itself."""

import pytest

from tests.source_rules import header, rewritten, said

NEW = "keras_mp.LossScaleOptimizer"
COMPAT = "keras_mp.compat.mixed_precision.experimental.LossScaleOptimizer"

REWRITES = {
    "tuple": ("isinstance(o, (A, LossScaleOptimizer))", f"isinstance(o, (A, {NEW}))"),
    "union": ("isinstance(o, A | LossScaleOptimizer)", f"isinstance(o, A | {NEW})"),
    "issubclass": ("issubclass(c, LossScaleOptimizer)", f"issubclass(c, {NEW})"),
    "a test": ("t.assertIsInstance(o, LossScaleOptimizer)", f"t.assertIsInstance(o, {NEW})"),
    "pattern": (
        "match o:\n    case LossScaleOptimizer(): pass",
        f"match o:\n    case {NEW}(): pass",
    ),
    "annotation": ("def f(o: LossScaleOptimizer): pass", f"def f(o: {NEW}): pass"),
}
REPORTED = {
    "derived": ("class A(LossScaleOptimizer): pass", f"class A({COMPAT}): pass"),
    "value": ("partial(LossScaleOptimizer, loss_scale=8)", f"partial({COMPAT}, loss_scale=8)"),
    "first of isinstance": ("isinstance(LossScaleOptimizer, type)", f"isinstance({COMPAT}, type)"),
}


@pytest.mark.parametrize(("before", "after"), header("KMP008"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert {verdict for _, verdict in said(before, "KMP008")} == {"rewritten"}


@pytest.mark.parametrize(("before", "after"), REPORTED.values(), ids=REPORTED)
def test_goes_through_compat_and_is_reported(before, after):
    assert rewritten(before) == after
    assert said(before, "KMP008") == [(1, "manual")]
