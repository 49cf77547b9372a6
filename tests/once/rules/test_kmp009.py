"""KMP009: attributes of a wrapped optimizer."""

import pytest

from keras_mp.migration.code.rewriting import rewrite
from tests.source_rules import header, rewritten, said

WRAP = "opt = LossScaleOptimizer(o, 'dynamic')\n"
AFTER = "opt = keras_mp.LossScaleOptimizer(o)\n"
PAIRS = {
    "scale": ("opt.loss_scale()", "opt.loss_scale"),
    "of a method": ("opt._optimizer.lr", "opt.inner_optimizer.lr"),
    "initial": ("opt.loss_scale.initial_loss_scale", "opt.initial_scale"),
    "period": ("opt.loss_scale.increment_period", "opt.dynamic_growth_steps"),
    "current": ("opt.loss_scale._current_loss_scale.numpy()", "opt.loss_scale.numpy()"),
}


def test_the_header():
    (calls, attributes) = header("KMP009")
    for before, after in zip(calls[0].split(), calls[1].split(), strict=True):
        assert rewritten(WRAP + before) == AFTER + after
    for before, after in zip(attributes[0].split(), attributes[1].split(), strict=True):
        assert rewritten(WRAP + before) == AFTER + after


@pytest.mark.parametrize(("before", "after"), PAIRS.values(), ids=PAIRS)
def test_of_a_name_that_is_assigned_one(before, after):
    assert rewritten(WRAP + before) == AFTER + after


@pytest.mark.parametrize("assigned", ["x: object = {}", "print(x := {})"])
def test_of_a_name_that_is_assigned_in_another_way(assigned):
    before = assigned.format("LossScaleOptimizer(o, 'dynamic')") + "\nx._optimizer"
    assert rewritten(before).endswith("\nx.inner_optimizer")


def test_of_a_name_that_is_asked_to_be_one():
    before = "if isinstance(x, LossScaleOptimizer):\n    x = x._optimizer"
    assert rewritten(before).endswith("    x = x.inner_optimizer")


@pytest.mark.parametrize("unsafe", [False, True])
def test_of_an_optimizer_that_may_be_one(unsafe):
    source = "def f(model):\n    return model.optimizer.loss_scale()\n"
    result = rewrite(source, unsafe=unsafe)
    assert result.text.endswith("optimizer.loss_scale\n") == unsafe
    assert [f.verdict for f in result.findings] == ["rewritten" if unsafe else "person"]


def test_what_is_no_optimizer_is_left_alone():
    before = "self._optimizer.step()"
    assert rewritten(WRAP + before) == AFTER + before
    assert said(WRAP + before, "KMP009") == []
    assert [f.rule for f in rewrite("scaler.loss_scale()").findings] == ["KMP016"]


@pytest.mark.parametrize(
    "before",
    [
        "opt.loss_scale.multiplier",
        "opt.loss_scale.get_config()",
        "opt.loss_scale._current_loss_scale.assign(8)",
        "opt._loss_scale",
    ],
)
def test_what_was_of_the_object_is_reported(before):
    assert rewritten(WRAP + before) == AFTER + before
    assert said(WRAP + before, "KMP009") == [(2, "person")]


def test_of_a_call_and_of_several_names():
    for names in ("a, b", "[a, b]"):
        before = f"{names} = LossScaleOptimizer(o, 8), None\na.loss_scale()"
        assert rewritten(before).endswith("\na.loss_scale")
    before = WRAP + "[opt for opt in others]\nopt.loss_scale()"
    assert rewritten(before).endswith("\nopt.loss_scale"), "it has a scope of its own"
    assert rewritten("LossScaleOptimizer(o, 'dynamic').loss_scale()") == (
        "keras_mp.LossScaleOptimizer(o).loss_scale"
    )


@pytest.mark.parametrize(
    "before",
    ["opt.loss_scale()", "opt.loss_scale.increment_period", "opt.loss_scale.multiplier"],
)
def test_what_compat_has_is_kept(before):
    lines = f"opt = LossScaleOptimizer(o, scale)\n{before}"
    assert rewritten(lines).endswith(f"\n{before}")
    assert said(lines, "KMP009") == [(2, "kept")]


ASUNDER = {
    "a comment": ("opt.loss_scale(  # now\n)", "opt.loss_scale"),
    "brackets": ("(opt.loss_scale)()", "opt.loss_scale"),
    "brackets around the object": ("(opt.loss_scale).increment_period", "dynamic_growth_steps"),
}


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize(("use", "now"), ASUNDER.values(), ids=ASUNDER)
def test_what_cannot_be_cut_out_is_reported_and_costs_nothing_else(use, now, unsafe):
    head = "from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer\n"
    result = rewrite(f"{head}{WRAP}{use}\nopt._optimizer\n", unsafe=unsafe)
    assert result.text == f"import keras_mp\n{AFTER}{use}\nopt.inner_optimizer\n"
    (finding,) = (f for f in result.findings if f.rule == "KMP009" and f.verdict == "person")
    assert finding.line == 3
    assert now in finding.message


OTHERS = {
    "of a loop": WRAP + "for opt in others:\n    opt._optimizer",
    "of a loop, with another": WRAP + "for i, (opt, _) in others:\n    opt._optimizer",
    "unpacked": WRAP + "opt, s = make()\nopt._optimizer",
    "unpacked from a call that makes one": "opt, s = LossScaleOptimizer(o, 8)\nopt._optimizer",
    "unpacked with a star": WRAP + "[opt, *s] = a, b\nopt._optimizer",
    "of a context": WRAP + "with make() as opt:\n    opt._optimizer",
    "of a comprehension": WRAP + "[opt._optimizer for opt in others]",
    "wrapped again": WRAP + "opt = tfa.optimizers.Lookahead(opt)\nopt._optimizer",
    "in a list": WRAP + "[opt][0]._optimizer",
    "only declared": "opt: LossScaleOptimizer\nopt._optimizer",
    "a loop over items": WRAP + "for x[opt] in others:\n    x[opt]._optimizer",
    "not one": "if not isinstance(x, LossScaleOptimizer):\n    x._optimizer",
    "the other branch": "if isinstance(x, LossScaleOptimizer):\n    pass\nelse:\n    x._optimizer",
    "of another class": (
        "class A:\n    def a(self):\n        self.x = LossScaleOptimizer(o, 'dynamic')\n"
        "class B:\n    def b(self):\n        return self.x._optimizer"
    ),
}


@pytest.mark.parametrize("before", OTHERS.values(), ids=OTHERS)
def test_what_may_be_something_else_is_not_rewritten(before):
    assert "inner_optimizer" not in rewritten(before)


def test_what_compat_makes_in_one_branch_is_reported():
    lines = (
        "if a:\n    opt = LossScaleOptimizer(o, scale)\nelse:\n"
        "    opt = LossScaleOptimizer(o, 'dynamic')\nopt.loss_scale()"
    )
    assert rewritten(lines).endswith("\nopt.loss_scale()")
    assert said(lines, "KMP009") == [(5, "person")]


@pytest.mark.parametrize("use", ["s = opt.loss_scale\ns()", "opt.loss_scale = 8"])
def test_the_scale_as_an_object_is_reported(use):
    assert rewritten(WRAP + use) == AFTER + use
    assert said(WRAP + use, "KMP009") == [(2, "person")]


def test_an_item_may_be_one():
    assert said(WRAP + "[opt][0].loss_scale.multiplier", "KMP009") == [(2, "person")]


def test_the_scale_of_compat_cannot_be_assigned_either():
    source = (
        "from tensorflow.keras.mixed_precision.experimental import LossScaleOptimizer\n"
        "opt = LossScaleOptimizer(o, scale)\nopt.loss_scale = 8\n"
    )
    finding = rewrite(source).findings[-1]
    assert (finding.line, finding.verdict) == (3, "person")
    assert "cannot be assigned" in finding.message


def test_of_a_name_in_another_function():
    before = (
        "def f():\n    x = LossScaleOptimizer(o, 'dynamic')\n    return x._optimizer\n"
        "def g(x):\n    return x._optimizer"
    )
    after = rewritten(before)
    assert after.count("inner_optimizer") == 1
    assert after.endswith("return x._optimizer")
