"""Train steps under torch.compile: what loss scaling adds to them is neither break nor sync.

Graphs are traced and then run as they are: making machine code of them takes minutes.
"""

import functools
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="about torch.compile")
STEPS, BAD = 7, 4


def multi():
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("keras.optimizers.MultiOptimizer came with Keras 3.15")
    adam, other = keras.optimizers.Adam(0.05), keras.optimizers.RMSprop(0.05)
    return keras.optimizers.MultiOptimizer(lambda v: adam if "kernel" in v.path else other)


INNER = {
    "Adam": lambda: keras.optimizers.Adam(0.05),
    "AdamW": lambda: keras.optimizers.AdamW(0.05),
    "clipnorm": lambda: keras.optimizers.Adam(0.05, clipnorm=0.1),
    "global_clipnorm": lambda: keras.optimizers.Adam(0.05, global_clipnorm=0.1),
    "clipvalue": lambda: keras.optimizers.Adam(0.05, clipvalue=0.1),
    "EMA": lambda: keras.optimizers.Adam(0.05, use_ema=True),
    "schedule": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9)
    ),
    "MultiOptimizer": lambda: multi(),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.05),
}
SETTINGS = {
    "dynamic": {"initial_scale": 2.0**10, "dynamic_growth_steps": 2},
    "fixed": {"dynamic": False, "initial_scale": 8.0},
    "no guard": {"dynamic": False, "initial_scale": 8.0, "skip_nonfinite": False},
}


@pytest.fixture(autouse=True)
def fresh():
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs():
    """A backend of torch.compile, and the graphs that it was given."""
    given = []

    def backend(module, inputs):
        given.append(module)
        return module.forward

    backend.given = given
    return backend


def calls(graphs):
    """Returns the names of what the graphs call."""
    nodes = [node for module in graphs.given for node in module.graph.nodes]
    return [getattr(node.target, "__name__", node.target) for node in nodes]


def rows(bad):
    """The batches (x, y) of the steps; one is bad if `bad`."""
    random = np.random.RandomState(0)
    x = random.randn(STEPS, 8, 4).astype("float32")
    y = np.tanh(x.sum(2, keepdims=True))
    if bad:
        x[BAD, 0, 0] = np.nan
    return list(zip(ops.convert_to_tensor(x), ops.convert_to_tensor(y), strict=True))


@pytest.fixture
def small():
    """A model of two variables: to compile a step takes seconds for each."""
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])


def trained(model, optimizer, batches, forward, apply):
    variables = model.trainable_variables
    optimizer.build(variables)
    for x, y in batches:
        model.zero_grad()
        optimizer.scale_loss(ops.mean((forward(x) - y) ** 2)).backward()
        apply(optimizer, [v.value.grad for v in variables], variables)
    return [ops.convert_to_numpy(v).copy() for v in [*variables, *optimizer.variables]]


def applied(optimizer, gradients, variables):
    import torch

    with torch.no_grad():
        optimizer.apply(gradients, variables)


def plain(inner):
    """Returns an optimizer that takes part in `trained`, without any loss scaling."""
    optimizer = INNER[inner]()
    object.__setattr__(optimizer, "scale_loss", lambda loss: loss)
    return optimizer


@pytest.mark.parametrize(
    ("inner", "settings"),
    [*((inner, "dynamic") for inner in INNER), ("Adam", "fixed"), ("Adam", "no guard")],
)
def test_a_loop_is_compiled_as_often_as_with_the_plain_optimizer(inner, settings, graphs, small):
    """Whatever becomes of the scale; without a break, and so without a value that Python sees."""
    import torch

    batches, start = rows(bad=settings != "no guard"), small.get_weights()
    with_forward = (inner, settings) == ("Adam", "dynamic")  # the same for all of them

    def run(optimizer, forward, apply):
        small.set_weights(start)
        return trained(small, optimizer, batches, forward, apply)

    def compiled(optimizer):
        torch._dynamo.reset()
        del graphs.given[:]
        step = torch.compile(applied, backend=graphs, fullgraph=True)
        forward = torch.compile(small, backend=graphs, fullgraph=True) if with_forward else small
        return run(optimizer, forward, step), len(graphs.given)

    def wrapped():
        return LossScaleOptimizer(INNER[inner](), **SETTINGS[settings])

    expected = run(wrapped(), small, applied)
    _, times = compiled(plain(inner))
    found, our_times = compiled(wrapped())
    # One of the step; with Keras' cache of exclusions, two.
    assert our_times == times == 1 + (inner == "AdamW") + with_forward
    assert not set(calls(graphs)) & {"item", "tolist", "_local_scalar_dense"}
    for value, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=0, atol=1e-6)


BREAK = {  # as Keras reads a learning rate, or a condition, in Python
    "SGD with momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "accumulation": lambda: keras.optimizers.Adam(0.05, gradient_accumulation_steps=2),
}


def where(reason):
    """Returns what a reason says but for names and addresses, which differ each time."""
    return reason.partition("\n")[0], *re.findall(r'File "[^"]+", line \d+', reason)


@pytest.mark.parametrize("inner", BREAK)
def test_what_breaks_with_us_breaks_without_us(inner, graphs, small):
    import torch
    from torch._dynamo.utils import counters

    reasons = []
    for wrap in (False, True):
        torch._dynamo.reset()
        counters.clear()
        optimizer = BREAK[inner]()
        optimizer = LossScaleOptimizer(optimizer, **SETTINGS["dynamic"]) if wrap else optimizer
        if not wrap:
            object.__setattr__(optimizer, "scale_loss", lambda loss: loss)
        trained(
            small,
            optimizer,
            rows(bad=True)[BAD - 1 : BAD + 1],
            small,
            torch.compile(applied, backend=graphs),
        )
        reasons.append({where(reason) for reason in counters["graph_break"]})
    assert reasons[0] == reasons[1] != set()


def test_fit_has_as_many_graphs_as_with_the_plain_optimizer(with_nan, fit, monkeypatch):
    import torch
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    found = []
    for wrap in (False, True):
        torch._dynamo.reset()
        counters.clear()
        optimizer = INNER["Adam"]()
        optimizer = LossScaleOptimizer(optimizer, **SETTINGS["dynamic"]) if wrap else optimizer
        fit(optimizer, *with_nan[0], jit_compile=True)
        found.append((dict(counters["graph_break"]), counters["stats"]["unique_graphs"]))
    assert found[0] == found[1]
    assert all("backward" in reason for reason in found[0][0])  # as Keras calls it in the step


def test_a_module_of_distributed_data_parallel(graphs, make_model, tmp_path):
    """Compiled after it was wrapped: a group of one process, whose hooks are those of many."""
    import torch
    from torch import distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        ends = []
        for compile in (
            lambda function: function,
            functools.partial(torch.compile, backend=graphs),
        ):
            model = make_model()
            optimizer = LossScaleOptimizer(INNER["Adam"](), **SETTINGS["dynamic"])
            parallel = torch.nn.parallel.DistributedDataParallel(model)
            ends.append(
                trained(model, optimizer, rows(bad=True), compile(parallel), compile(applied))
            )
    finally:
        distributed.destroy_process_group()
    assert len(graphs.given) == 2
    for value, other in zip(*ends, strict=True):
        np.testing.assert_allclose(value, other, rtol=0, atol=1e-6)
