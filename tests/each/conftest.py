"""Small models and data, and a way to fit them twice: once by us, once by an oracle."""

import functools
import gc
import logging
import os
from importlib.metadata import version

from tests.programs import ROOT

os.environ.setdefault("KERAS_BACKEND", "jax")
# The tests, and the programs that they start, compile the same small steps again and again, and so
# does the next run. JAX 0.4.30 crashes on what it kept.
if os.environ["KERAS_BACKEND"] == "jax" and not version("jax").startswith("0.4."):
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / "build" / "compiled"))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import keras
import numpy as np
import pytest
from keras import ops

BATCH, BATCHES = 8, 8
# It imports TensorFlow where there is one, for seconds that are not those of the first test.
keras.utils.set_random_seed(0)
if keras.backend.backend() == "torch":
    # pytest listens to each logger that does not propagate, and torch.compile then writes a trace
    # of all it does: a fifth of its time.
    logging.getLogger("torch.__trace").propagate = True
if keras.backend.backend() == "jax" and not version("jax").startswith("0.4."):
    # All that JAX lowers stays cached, each with an MLIR context of its own. Where there are
    # thousands, making one takes as long as compiling a small program.
    from jax._src.interpreters import mlir

    mlir.make_ir_context = functools.cache(mlir.make_ir_context)
# Tracing makes so many objects that looking for garbage after each 700 takes 5 % of the time.
gc.set_threshold(50_000)


def pytest_report_header():
    return f"keras {keras.__version__} on {keras.backend.backend()}"


@pytest.fixture(autouse=True)
def _same_start():
    """Global state that a test may change is put back."""
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(autouse=True)
def _traced_once(request):
    """Has the slots of optimizers made before `fit`, where only a part of the tests runs.

    TensorFlow traces a step twice if they are made in it: a third of the time of a small `fit`.
    Tests in core/ and of the first step have them made as users do.
    """
    config, file = request.config, request.node.nodeid.partition("::")[0]
    in_part = config.getoption("in_turns", False) or config.getoption("in_slices", False)
    is_left = "/core/" in file or "/test_first_step" in file
    if keras.backend.backend() != "tensorflow" or not in_part or is_left:
        yield
        return
    make = keras.Model.make_train_function

    def make_with_slots(self, force=False):
        optimizer = getattr(self, "optimizer", None)
        if self.built and not getattr(optimizer, "built", True):
            with self.distribute_strategy.scope():
                optimizer.build(self.trainable_variables)
        return make(self, force)

    # Not by the fixture `monkeypatch`: that would undo what a test sets only after its fixtures.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.Model, "make_train_function", make_with_slots)
        yield


@pytest.fixture(scope="module", autouse=True)
def _what_stays_is_not_looked_at_again():
    """Compiled steps pile up to gigabytes, through which each collection of garbage would go."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def backend():
    return keras.backend.backend()


@pytest.fixture(scope="session")
def data():
    """(x, y) of BATCHES batches of BATCH rows: x (64, 4), y (64, 1), float32."""
    random = np.random.RandomState(0)
    x = random.randn(BATCH * BATCHES, 4).astype("float32")
    return x, 0.5 * x.sum(1, keepdims=True)


@pytest.fixture(scope="session")
def with_nan(data):
    """The data with a nan in batch 3, and the same without batch 3."""
    x, y = data
    bad = x.copy()
    bad[3 * BATCH] = np.nan
    keep = np.r_[: 3 * BATCH, 4 * BATCH : len(x)]
    return (bad, y), (x[keep], y[keep])


@pytest.fixture(scope="session")
def make_model():
    """A function of a dtype policy that returns the same small model each time."""

    def make(policy="float32", *more):
        keras.utils.set_random_seed(1)
        x = inputs = keras.Input((4,))
        x = keras.layers.Dense(8, activation="relu", dtype=policy, name="hidden")(x)
        for layer in more:
            x = layer(x)
        return keras.Model(inputs, keras.layers.Dense(1, dtype=policy, name="out")(x))

    return make


@pytest.fixture(scope="session")
def fit(make_model):
    """A function that trains the small model for an epoch and returns it."""

    def run(optimizer, x, y, *, policy="float32", epochs=1, model=None, callbacks=None, **compile):
        model = model or make_model(policy)
        model.compile(optimizer, keras.losses.MeanSquaredError(), **compile)
        model.fit(
            x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
        )
        return model

    return run


@pytest.fixture(scope="session")
def weights():
    """A function that returns all numbers of the trainable weights, as one float64 array."""

    def get(model):
        return np.concatenate(
            [ops.convert_to_numpy(v).astype("float64").ravel() for v in model.trainable_weights]
        )

    return get


@pytest.fixture(scope="session")
def state():
    """A function that returns the bytes of every variable given."""

    def get(variables):
        return [ops.convert_to_numpy(v).tobytes() for v in variables]

    return get


@pytest.fixture
def rewrite_ends():
    """Ends the graph rewrite after a test, which leaves nothing of it."""
    from keras_mp import graph_rewrite
    from keras_mp.graph_rewrite import hooks

    yield
    assert not hooks.is_dispatching()
    graph_rewrite.disable()
    assert not hooks.is_installed()


@pytest.fixture
def compiled_once(monkeypatch):
    """Has torch.compile take the first step of `fit` for one like the others.

    `zero_grad` asks whether there are gradients, and a step is compiled again where there are. For
    what optimizers note see `tests.compiled_steps.settled`.
    """
    if keras.backend.backend() == "torch":
        import torch

        def zero_grad(self):
            for parameter in self.parameters():
                parameter.grad = None

        monkeypatch.setattr(torch.nn.Module, "zero_grad", zero_grad)


@pytest.fixture
def quick_compile(monkeypatch):
    """Has torch.compile trace, but make no machine code: that takes minutes."""
    if keras.backend.backend() == "torch":
        import torch

        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
