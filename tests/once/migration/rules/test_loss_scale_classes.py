"""KMP007: loss scale classes."""

import pytest

from keras_mp.migration.code.rewriting import rewrite
from tests.source_rules import header, rewritten, said

NEW = "keras_mp.compat.mixed_precision.experimental"
SPACES = (
    "tf.mixed_precision.experimental",
    "tf.train.experimental",
    "tf.compat.v1.mixed_precision",
    "tf.compat.v1.mixed_precision.experimental",
    "tf.compat.v1.train.experimental",
    "tf.compat.v2.mixed_precision.experimental",
)


@pytest.mark.parametrize(("before", "after"), header("KMP007"))
def test_the_header(before, after):
    assert rewritten(before) == after


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", ["LossScale", "FixedLossScale", "DynamicLossScale"])
def test_all_public_names(space, name):
    text = rewrite(f"import tensorflow as tf\nuse({space}.{name})\n").text
    assert text.splitlines()[-1] == f"use({NEW}.{name})"


@pytest.mark.parametrize(
    "before",
    ["class Mine(DynamicLossScale): pass", "DynamicLossScale(multiplier=4)"],
    ids=["derived", "multiplier"],
)
def test_what_is_refused_here_is_reported(before):
    assert said(before, "KMP007") == [(1, "manual")]
