"""KMP012: training loops that scale the loss."""

from tests.source_rules import rewritten, said

SCALE = "    loss = opt.get_scaled_loss(loss)\n"
UNSCALE = "    grads = opt.get_unscaled_gradients(grads)\n"


def test_a_whole_loop_is_kept():
    before = f"def step(opt, loss, grads):\n{SCALE}{UNSCALE}".rstrip()
    assert rewritten(before) == before
    assert said(before, "KMP012") == [(2, "kept"), (3, "kept")]


def test_a_function_within_counts_as_its_outer_one():
    before = f"def step(opt, loss, grads):\n{SCALE}    def inner():\n    {UNSCALE}"
    assert said(before, "KMP012") == [(2, "kept"), (4, "kept")]


def test_half_a_loop_is_reported():
    assert said(f"def step(opt, loss):\n{SCALE}", "KMP012") == [(2, "person")]
    assert said(f"def step(opt, grads):\n{UNSCALE}", "KMP012") == [(2, "person")]
    halves = f"def a(opt, loss):\n{SCALE}def b(opt, grads):\n{UNSCALE}"
    assert said(halves, "KMP012") == [(2, "person"), (4, "person")]
