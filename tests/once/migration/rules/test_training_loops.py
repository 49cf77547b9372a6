"""KMP012: training loops that scale the loss."""

import textwrap

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
    assert said(f"def step(opt, loss):\n{SCALE}", "KMP012") == [(2, "manual")]
    assert said(f"def step(opt, grads):\n{UNSCALE}", "KMP012") == [(2, "manual")]
    halves = f"def a(opt, loss):\n{SCALE}{UNSCALE}def b(opt, grads):\n{UNSCALE}"
    assert said(halves, "KMP012") == [(2, "kept"), (3, "kept"), (5, "manual")]


def test_halves_in_two_functions_are_kept():
    halves = f"def a(opt, loss):\n{SCALE}def b(opt, grads):\n{UNSCALE}"
    assert said(halves, "KMP012") == [(2, "kept"), (4, "kept")]


def test_halves_in_two_methods_of_a_class_are_kept():
    methods = textwrap.indent(f"def a(opt, loss):\n{SCALE}def b(opt, grads):\n{UNSCALE}", "    ")
    assert said(f"class Loop:\n{methods}", "KMP012") == [(3, "kept"), (5, "kept")]
    one = textwrap.indent(f"def a(opt, loss):\n{SCALE}", "    ")
    other = textwrap.indent(f"def b(opt, grads):\n{UNSCALE}", "    ")
    found = said(f"class A:\n{one}class B:\n{other}", "KMP012")
    assert found == [(3, "manual"), (6, "manual")]


def test_an_override_has_the_other_half_of_super():
    code = "class A(LossScaleOptimizer):\n    def get_unscaled_gradients(self, grads):\n"
    code += "        return super().get_unscaled_gradients(grads)\n"
    assert said(code, "KMP012") == [(3, "kept")]
