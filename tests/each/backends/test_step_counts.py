"""What a step costs, in counts: bytes, nodes, calls, waits. Bounds, as versions differ a little."""

import keras
import pytest
from keras.optimizers import Adam

from benchmarks import step_counts
from keras_mp import LossScaleOptimizer

BACKEND = keras.backend.backend()
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="reads the HLO of XLA")
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="counts nodes of graphs")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="counts calls of aten")


@on_jax
@pytest.mark.parametrize("variables", [1, 4])
def test_one_read_of_each_gradient_more(variables):
    """Adam moves 40 bytes a parameter, 4 for each read and each write; Keras' own class 78."""
    plain = step_counts.of(Adam(), variables, 100_000)["bytes a parameter"]
    ours = step_counts.of(LossScaleOptimizer(Adam()), variables, 100_000)["bytes a parameter"]
    assert 40 <= plain < 40.1
    assert plain + 4 <= ours < plain + 4.1


@on_jax
def test_a_fixed_scale_without_a_guard_reads_nothing_more():
    settings = {"dynamic": False, "initial_scale": 8.0, "skip_nonfinite": False}
    plain = step_counts.of(Adam(), 2, 100_000)["bytes a parameter"]
    ours = step_counts.of(LossScaleOptimizer(Adam(), **settings), 2, 100_000)
    assert ours["bytes a parameter"] < plain + 0.1


@on_tensorflow
def test_nodes_of_the_graph():
    plain = step_counts.of(Adam(), 400, 4)["nodes"]
    ours = step_counts.of(LossScaleOptimizer(Adam()), 400, 4)["nodes"]
    assert plain < ours <= 1.06 * plain


@on_tensorflow
def test_xla_has_a_branch_for_the_exact_check_only():
    """None around the step, for which it would copy the state."""
    counts = step_counts.of(LossScaleOptimizer(Adam()), 4, 100, xla=True)
    assert counts["conditionals"] == 1


@on_torch
def test_calls():
    """As many for 10 variables as for 400; plain Adam has 25, Keras' own class 2434."""
    few, many = (step_counts.of(LossScaleOptimizer(Adam()), n, 4) for n in (10, 400))
    assert few == many
    assert many["calls"] <= 45


@on_torch
@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ({}, 1),
        ({"fused": True}, 0),
        ({"dynamic": False, "initial_scale": 8.0}, 1),
        ({"dynamic": False, "initial_scale": 8.0, "skip_nonfinite": False}, 0),
    ],
)
@pytest.mark.parametrize("skipped", [False, True])
def test_waits_for_the_device(settings, waits, skipped):
    optimizer = LossScaleOptimizer(Adam(), **settings)
    counts = step_counts.of(optimizer, 3, 4, skipped=skipped)
    assert counts.get("waits", 0) == waits
