"""KMP004: setting the global policy."""

import pytest

from tests.source_rules import header, rewritten, said

NEW = "keras_mp.compat.mixed_precision.set_global_policy"

REWRITES = {
    "2.4": ("mixed_precision.set_global_policy(p)", f"{NEW}(p)"),
    "before": ("tf.keras.mixed_precision.experimental.set_policy(p)", f"{NEW}(p)"),
    "as a value": ("atexit.register(experimental.set_policy, 'float32')",
                   f"atexit.register({NEW}, 'float32')"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), header("KMP004"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after


def test_infer_is_left_alone_and_reported():
    before = "experimental.set_policy('infer')"
    assert rewritten(before) == before
    assert said(before, "KMP004") == [(1, "manual")]


def test_another_function_of_that_name_is_left_alone():
    assert rewritten("agent.set_policy('mixed')") == "agent.set_policy('mixed')"
