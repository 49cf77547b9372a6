"""KMP002: LossScaleOptimizer of TF 2.4 and later, and of Keras 3."""

import pytest

from keras_mp.migration.code.rewriting import rewrite
from tests.source_rules import header, rewritten, said

OLD = "mixed_precision.LossScaleOptimizer"
NEW = "keras_mp.LossScaleOptimizer"

REWRITES = {
    "default": (f"{OLD}(o)", f"{NEW}(o)"),
    "keywords": (
        f"{OLD}(o, dynamic=False, initial_scale=s)",
        f"{NEW}(o, dynamic=False, initial_scale=s)",
    ),
    "positions": (
        f"{OLD}(o, True, 8, 50)",
        f"{NEW}(o, dynamic=True, initial_scale=8, dynamic_growth_steps=50)",
    ),
    "a name": (f"{OLD}(o, is_dynamic)", f"{NEW}(o, dynamic=is_dynamic)"),
    "the order of Keras 3": (f"{OLD}(o, 1024.0)", f"{NEW}(o, initial_scale=1024.0)"),
    "below the floor": (
        f"{OLD}(o, True, .5)",
        f"{NEW}(o, dynamic=True, initial_scale=.5, min_scale=.5)",
    ),
    "below the floor, in the order of Keras 3": (
        f"{OLD}(o, 0.5, name='s')",
        f"{NEW}(o, initial_scale=0.5, min_scale=0.5, name='s')",
    ),
    "a fixed scale has no floor": (
        f"{OLD}(o, initial_scale=.5, dynamic=False)",
        f"{NEW}(o, initial_scale=.5, dynamic=False)",
    ),
    "a loss scale, as before 2.4": (f"{OLD}(o, loss_scale='dynamic')", f"{NEW}(o)"),
}


@pytest.mark.parametrize(("before", "after"), header("KMP002"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after


def test_what_is_not_written_out_is_reported():
    assert said(f"{OLD}(*a)", "KMP002") == [(1, "manual")]


def test_more_positions_than_there_were_are_left_alone_and_reported():
    before = f"{OLD}(o, True, 8, 50, 2)"
    assert rewritten(before) == before
    assert said(before, "KMP002") == [(1, "manual")]


@pytest.mark.parametrize("arguments", ["o, scale", "*a"])
@pytest.mark.parametrize("name", ["mixed_precision", "optimizers"])
def test_of_keras_a_second_position_is_ambiguous(name, arguments):
    source = f"import keras\nopt = keras.{name}.LossScaleOptimizer({arguments})\n"
    result = rewrite(source)
    assert result.text == source
    assert [(f.line, f.verdict) for f in result.findings] == [(2, "manual")]


def test_of_keras_a_number_is_not():
    source = "import keras\nopt = keras.optimizers.LossScaleOptimizer(o, 1024, 500)\n"
    line = rewrite(source).text.splitlines()[-1]
    assert line == f"opt = {NEW}(o, initial_scale=1024, dynamic_growth_steps=500)"
