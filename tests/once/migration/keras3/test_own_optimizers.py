"""KMP110: optimizers of the program's own."""

import pytest

from tests.keras3_rules import messages, said, verdicts

PROGRAM = """\
class Sign(keras.optimizers.Optimizer):
    def __init__(self, name="Sign", **kwargs):
        super().__init__(name, **kwargs)
    def _create_slots(self, variables):
        pass
    def _resource_apply_dense(self, gradient, variable):
        pass
"""


def test_methods_and_constructor():
    assert said(PROGRAM, "KMP110") == [(3, "manual"), (4, "manual"), (6, "manual")]


def test_says_what_is_called():
    found = " ".join(messages(PROGRAM, "KMP110"))
    assert "learning_rate=learning_rate" in found
    assert "build(self, variables)" in found
    assert "update_step(self, gradient, variable, learning_rate)" in found


def test_derived_from_one_that_has_a_rule():
    program = "class A(keras.optimizers.Adam):\n    def _resource_apply_dense(self, g, v): pass"
    assert verdicts(program, "KMP110") == ["manual"]


def test_derived_in_two_steps():
    program = PROGRAM + "class Two(Sign):\n    def get_updates(self, loss, params): pass"
    assert (8 + 1, "manual") in said(program, "KMP110")


@pytest.mark.parametrize(
    "program",
    [
        "class O:\n    def _resource_apply_dense(self, g, v): pass",
        "class O(keras.optimizers.Optimizer):\n    def update_step(self, g, v, r): pass",
        "class O(keras.optimizers.Optimizer):\n    def __init__(self): super().__init__(0.1)",
        "class O(keras.optimizers.Optimizer):\n"
        "    def __init__(self, r): super().__init__(learning_rate=r)",
        "class O(keras.optimizers.Optimizer):\n    def __init__(self, **k): super().__init__(**k)",
    ],
    ids=["another class", "of Keras 3", "a rate", "a rate by its name", "**kwargs"],
)
def test_is_left_alone(program):
    assert verdicts(program, "KMP110") == []
