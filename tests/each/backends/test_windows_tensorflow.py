"""TensorFlow's graphs: gradients are divided a few at a time, and nothing else changes."""

import keras
import numpy as np
import pytest
from keras import ops, optimizers

from keras_mp import LossScaleOptimizer

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "tensorflow", reason="other backends have no such graphs"
    ),
    pytest.mark.filterwarnings("ignore:Gradients do not exist"),  # there is one that is None
]
SCALE = 1024.0
SHAPES = [(3, 4), (4,), (3, 2), (2, 3, 2), ()]
INNER = {
    "AdamW": lambda: optimizers.AdamW(0.1, weight_decay=0.1),
    "Lamb": lambda: optimizers.Lamb(0.1),
    "Muon": lambda: optimizers.Muon(0.1),
    "Nadam": lambda: optimizers.Nadam(0.1),
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "averages": lambda: optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
    "clipped": lambda: optimizers.Adam(0.1, global_clipnorm=0.5),
    "accumulation": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
}


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch):
    from keras_mp.backends.tensorflow import windows as windows_tensorflow

    monkeypatch.setattr(windows_tensorflow, "_OPEN", 1)


def traced(optimizer, variables, autograph=False):
    import tensorflow as tf

    def step(gradients):
        optimizer.apply(gradients, variables)

    return tf.function(step, autograph=autograph)


def run(optimizer, autograph=False):
    """Returns all state after each step; one gradient is sparse, one None."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    variables = [keras.Variable(random.standard_normal(s).astype("float32")) for s in SHAPES]
    scaled = isinstance(optimizer, LossScaleOptimizer)
    optimizer.build(variables)
    inner = optimizer.inner_optimizer if scaled else optimizer
    factor = float(optimizer.scale_loss(1.0))
    step = traced(optimizer, variables, autograph)
    found = []
    for _ in range(4):
        arrays = [random.standard_normal(s).astype("float32") * np.float32(factor) for s in SHAPES]
        gradients = [*map(tf.constant, arrays)]
        gradients[1] = None
        gradients[2] = tf.IndexedSlices(gradients[2][:2], tf.constant([2, 0]), tf.constant([3, 2]))
        step(gradients)
        found.append([ops.convert_to_numpy(v).tobytes() for v in (*variables, *inner.variables)])
    return found


def scaled(optimizer, **settings):
    return LossScaleOptimizer(optimizer, initial_scale=SCALE, dynamic_growth_steps=100, **settings)


@pytest.mark.parametrize(
    ("name", "autograph"), [*((name, False) for name in INNER), ("SGD", True), ("clipped", True)]
)
def test_the_order_changes_no_bit(name, autograph):
    assert run(scaled(INNER[name]()), autograph) == run(INNER[name](), autograph)


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_waits_for_the_update_before_it(fused):
    """Of the step's branch, each division but the first waits for an update's write."""
    import tensorflow as tf

    variables = [keras.Variable(np.ones(3, "float32")) for _ in range(4)]
    optimizer = scaled(optimizers.Adam(0.1), fused=fused)
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    step = traced(optimizer, variables).get_concrete_function([tf.ones(3)] * 4)
    branches = [
        function
        for function in step.graph.as_graph_def().library.function
        if any("Adam" in node.op or "AssignSub" in node.op for node in function.node_def)
    ]
    assert len(branches) == 1
    nodes = {node.name: node for node in branches[0].node_def}
    waits = [
        [nodes[name[1:].partition(":")[0]].op for name in node.input if name.startswith("^")]
        for node in nodes.values()
        if node.op == "RealDiv" and node.attr["T"].type == tf.float32.as_datatype_enum
        if any(name.startswith("^") for name in node.input)
    ]
    assert len(waits) == 3
    writes = "ResourceApplyAdam" if fused else "AssignSubVariableOp"
    assert all(writes in found for found in waits)
