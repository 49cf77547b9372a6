"""KMP018: private names of optimizers."""

import pytest

from tests.source_rules import header, rewritten, said

CONCERNED = "tf.keras.mixed_precision.global_policy()\n"
AFTER = "keras_mp.global_policy()\n"


@pytest.mark.parametrize(("before", "after"), header("KMP018"))
def test_the_header(before, after):
    assert rewritten(CONCERNED + before) == AFTER + after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = self.opt._hyper['learning_rate']", "x = self.opt.learning_rate"),
        ("f(opts[0]._decayed_lr('float32'))", "f(opts[0].learning_rate)"),
        ("x = opt.lr(opt.iterations)", "x = opt.learning_rate"),
        ("x = opt.inner.learning_rate(opt.inner.iterations)", "x = opt.inner.learning_rate"),
    ],
)
def test_public_names_take_their_place(before, after):
    assert rewritten(CONCERNED + before) == AFTER + after
    assert said(CONCERNED + before, "KMP018") == [(2, "rewritten")]


REPORTED = {
    "of one's own": "class A(B):\n    def f(self):\n        return self._get_hyper('rate')",
    "super": "class A(B):\n    def f(self):\n        return super()._decayed_lr(x)",
    "a name": "opt._get_hyper(name)",
    "a dtype": "opt._get_hyper('beta_1', tf.float32)",
    "aggregates": "opt._aggregate_gradients(pairs)",
    "clips": "opt._clip_gradients(gradients)",
    "a copy of Keras": "if optimizer._HAS_AGGREGATE_GRAD: pass",
    "assigned": "opt._hyper['rate'] = 1",
    "in an expression": "x = [opt._set_hyper('rate', 1)]",
    "as a value": "f = opt._decayed_lr",
}


@pytest.mark.parametrize("code", REPORTED.values(), ids=REPORTED)
def test_the_rest_is_reported(code):
    assert rewritten(CONCERNED + code) == AFTER + code
    assert [verdict for _, verdict in said(CONCERNED + code, "KMP018")] == ["manual"]


LEFT = {
    "another argument": "opt.learning_rate(step)",
    "of another": "opt.learning_rate(other.iterations)",
    "a value": "x = opt.learning_rate",
}


@pytest.mark.parametrize("code", LEFT.values(), ids=LEFT)
def test_public_names_stay(code):
    assert rewritten(CONCERNED + code) == AFTER + code
    assert said(CONCERNED + code, "KMP018") == []


def test_a_program_without_mixed_precision_is_left_alone():
    assert said("opt._get_hyper('rate')", "KMP018") == []
