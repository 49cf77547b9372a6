"""KMP117: strings that stand for losses and others."""

import pytest

from tests.keras3_rules import header, holds, rewritten, verdicts

REWRITES = {
    "second": ("model.compile('adam', 'logcosh')", "model.compile('adam', 'log_cosh')"),
    "in a dict": (
        "model.compile(loss={'a': 'cosine_proximity'})",
        "model.compile(loss={'a': 'cosine_similarity'})",
    ),
    "an initializer": (
        'layers.Dense(1, bias_initializer="constant")',
        'layers.Dense(1, bias_initializer="zeros")',
    ),
    "a default": (
        "def f(r=keras.losses.Reduction.AUTO): pass",
        "def f(r=keras.losses.Reduction.SUM_OVER_BATCH_SIZE): pass",
    ),
}
FINE = {
    "there": "model.compile('adam', 'mse', metrics=['mae', 'accuracy'])",
    "another argument": "layers.Dense(1, name='logcosh')",
    "another call": "f(loss='logcosh')",
    "another reduction": "keras.losses.Reduction.SUM",
}


@pytest.mark.parametrize(("before", "after"), header("KMP117"))
def test_the_header(before, after):
    assert holds(before, after)


@pytest.mark.parametrize(("before", "after"), REWRITES.values(), ids=REWRITES)
def test_rewrites(before, after):
    assert rewritten(before) == after
    assert set(verdicts(before, "KMP117")) == {"rewritten"}


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_leaves_alone(line):
    assert rewritten(line) == line
    assert verdicts(line, "KMP117") == []


@pytest.mark.parametrize(
    "line",
    [
        "model.compile('adam', 'mse', metrics=['kld'])",
        "model.compile('adam', 'mse', weighted_metrics={'a': ['logcosh']})",
        "layers.Dense(1, kernel_regularizer='l1_l2')",
        "model.compile(loss='''logcosh''')",
    ],
    ids=["metric", "in a dict", "regularizer", "quotes"],
)
def test_reports(line):
    assert "rewritten" not in verdicts(line, "KMP117") or "'''" in line
    assert verdicts(line, "KMP117") in (["manual"], ["rewritten"])
