"""A skipped step changes no bit of any weight or state: of layers that assign to one, too."""

import inspect
import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleOptimizer
from keras_mp.diagnosis.explaining import explain
from keras_mp.state.state_protection import (
    assigned_variables,
    self_assigned_weights,
)
from tests.compiled_steps import settled

X = np.random.RandomState(0).randn(2, 4).astype("float32")
SEQUENCES = np.random.RandomState(0).randn(2, 3, 4).astype("float32")
Y = np.ones((2, 1), "float32")


def after(x, *parts):
    return keras.Sequential([keras.Input(batch_shape=x.shape), *parts]), x


class Keeps(layers.Layer):
    """A trained weight, and a count of calls."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")


class Assigns(Keeps):
    """A weight that the forward pass halves, before it is used."""

    def call(self, x):
        self.scale.assign(self.scale / 2)
        self.calls.assign_add(1.0)
        return x * self.scale


class Counts(Keeps):
    def call(self, x):
        self.calls.assign_add(1.0)
        return x * self.scale


def halve(weight):
    weight.assign(weight / 2)


class AssignsByHelper(Keeps):
    def call(self, x):
        return self.scaled(x)

    def scaled(self, x):
        halve(self.scale)
        return x * self.scale


class AssignsInside(layers.Layer):
    """Writes a weight of a layer in it."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        halve(self.dense.kernel)
        return self.dense(x)


def renorm():
    if "renorm" not in inspect.signature(layers.BatchNormalization).parameters:
        pytest.skip("of a later Keras")
    return layers.BatchNormalization(renorm=True)


def torch_module():
    if keras.backend.backend() != "torch":
        pytest.skip("about modules of torch")
    import torch

    return layers.TorchModuleWrapper(torch.nn.BatchNorm1d(4))


def jax_function():
    if keras.backend.backend() != "jax":
        pytest.skip("about functions of JAX")

    def init(rng, inputs):
        return {"scale": np.ones((), "float32")}, {"last": np.zeros(4, "float32")}

    def call(params, state, inputs):
        return inputs * params["scale"], {"last": inputs.mean(0)}

    return layers.JaxLayer(call, init)


PARTS = {
    "spectral": lambda: after(X, layers.SpectralNormalization(layers.Dense(3))),
    "spectral convolution": lambda: after(
        SEQUENCES, layers.SpectralNormalization(layers.Conv1D(3, 2)), layers.Flatten()
    ),
    "spectral embedding": lambda: after(
        np.array([[1, 2], [0, 1]]),
        layers.SpectralNormalization(layers.Embedding(3, 2)),
        layers.Flatten(),
    ),
    "normalization": lambda: after(X, layers.BatchNormalization()),
    "renormalization": lambda: after(X, renorm()),
    "stateful": lambda: after(SEQUENCES, layers.LSTM(3, stateful=True)),
    "stateful, both ways": lambda: after(
        SEQUENCES, layers.Bidirectional(layers.GRU(3, stateful=True))
    ),
    "stateful, stacked": lambda: after(
        SEQUENCES, layers.RNN([layers.SimpleRNNCell(3), layers.LSTMCell(2)], stateful=True)
    ),
    "stateful convolution": lambda: after(
        np.stack([SEQUENCES] * 2, axis=1),
        layers.ConvLSTM1D(2, 2, stateful=True),
        layers.Flatten(),
    ),
    "module of torch": lambda: after(X, torch_module()),
    "function of JAX": lambda: after(X, jax_function()),
    "of one's own": lambda: after(X, Assigns()),
    "of one's own, by a helper": lambda: after(X, AssignsByHelper()),
    "of one's own, inside": lambda: after(X, AssignsInside()),
    "of one's own, a count": lambda: after(X, Counts()),
}


def made(part, **compile):
    keras.utils.set_random_seed(1)
    model, x = PARTS[part]()
    model.add(layers.Dense(1, name="out"))
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9), initial_scale=8.0)
    return model, optimizer, x


def everything(model, optimizer):
    """{name: bytes} of all that a skipped step must leave alone."""
    slots = [v for v in optimizer.inner_optimizer.variables if "momentum" in v.path]
    kept = [*model.weights, *slots]
    for layer in model._flatten_layers():
        kept += keras.tree.flatten(getattr(layer, "states", None) or [])
    found = {f"{i} {v.path}": ops.convert_to_numpy(v).tobytes() for i, v in enumerate(kept)}
    if keras.backend.backend() == "torch":
        for layer in model.layers:
            found.update((name, b.numpy().tobytes()) for name, b in layer.named_buffers())
    return found


def check(model, optimizer, x):
    """Trains, skips a step, trains; returns what the last step changed."""
    model.train_on_batch(x, Y)
    first = everything(model, optimizer)
    bad = x * np.nan if x.dtype == np.float32 else x
    model.train_on_batch(bad, Y * np.inf)
    assert int(optimizer.skipped_steps) == 1
    now = everything(model, optimizer)
    assert [name for name in first if now[name] != first[name]] == []
    model.train_on_batch(x, Y)
    last = everything(model, optimizer)
    return {name for name in first if last[name] != first[name]}


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("part", PARTS)
def test_no_bit_changes(part, frozen, backend):
    if backend == "torch" and part.startswith("stateful") and not frozen:
        pytest.skip("Keras cannot train these on torch, with any optimizer")
    model, optimizer, x = made(part)
    if frozen:
        for layer in model.layers[:-1]:
            layer.trainable = False
    keras_mp.protect_state(model)
    model.compile(optimizer, "mse")
    changed = check(model, optimizer, x)
    assert changed
    if part == "module of torch":
        assert any("running_var" in name for name in changed)


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize(
    "compile",
    [{"run_eagerly": True}, {"jit_compile": True}],
    ids=["eager", "jit"],
)
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
def test_no_bit_of_a_spectral_norm_changes_however_it_is_compiled(
    compile, frozen, backend, quick_compile, compiled_once
):
    if backend == "jax" and "jit_compile" in compile:
        pytest.skip("the default")
    if backend == "torch" and "jit_compile" in compile and frozen:
        pytest.skip("half a minute for what the trained one shows")
    model, optimizer, x = made("spectral")
    settled(optimizer)
    model.layers[0].trainable = not frozen
    keras_mp.protect_state(model)
    model.compile(optimizer, "mse", **compile)
    changed = check(model, optimizer, x)
    assert any("vector_u" in name for name in changed)
    assert any("spectral" in name and "kernel" in name for name in changed)


def test_in_a_loop_of_ones_own(backend):
    model, optimizer, x = made("spectral")
    kernel = model.layers[0].layer.kernel
    optimizer.build(model.trainable_variables)
    variables = model.trainable_variables

    def step(factor):
        with keras_mp.protect_state_scope(model, optimizer):
            model(x, training=True)
            pairs = [(factor * ops.ones(v.shape), v) for v in variables]
            optimizer.apply_gradients(pairs, gradients_scaled=True)

    if backend == "tensorflow":
        import tensorflow as tf

        step = tf.function(step)
    step(ops.array(1.0))
    first = everything(model, optimizer)
    before = kernel.numpy()
    step(ops.array(float("inf")))
    assert everything(model, optimizer) == first
    step(ops.array(1.0))
    assert np.abs(kernel.numpy() - before).max() > 0


class Averages(keras.Model):
    """A frozen teacher follows the weights, in the train step."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = (
            layers.Dense(1, name="student"),
            layers.Dense(1, name="teacher"),
        )
        self.teacher.trainable = False

    def build(self, shape):
        self.student.build(shape)
        self.teacher.build(shape)

    def call(self, x):
        return self.student(x)

    def train_step(self, *args):
        done = super().train_step(*args)
        if keras.backend.backend() != "jax":
            for mine, other in zip(self.teacher.weights, self.student.weights, strict=True):
                mine.assign(0.5 * mine + 0.5 * other)
            return done
        logs, (trained, others, *rest) = done
        return logs, (
            trained,
            [0.5 * a + 0.5 * b for a, b in zip(others, trained, strict=True)],
            *rest,
        )


def test_no_bit_of_a_teacher_changes():
    model = keras_mp.protect_state(Averages())
    model.build(X.shape)
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9))
    model.compile(optimizer, "mse")
    assert any("teacher" in name for name in check(model, optimizer, X))


# -- where an assignment is -----------------------------------------------------------------------


class AssignsInBranch(Keeps):
    """In one of two branches, twice, and in 16 bits."""

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    def call(self, x):
        def halved():
            self.scale.assign(self.scale / 3)
            self.scale.assign(self.scale / 3)
            return ops.ones((), x.dtype)

        return x * self.scale * ops.cond(ops.all(ops.isfinite(x)), halved, halved)


@pytest.mark.parametrize(
    "compile", [{}, {"run_eagerly": True}, {"jit_compile": True}], ids=["default", "eager", "jit"]
)
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
def test_in_a_branch_and_in_16_bits(compile, backend, quick_compile, compiled_once):
    """A weight of 0.1 is none of float16."""
    if backend == "jax":
        pytest.skip("JAX does not assign in branches")
    layer = AssignsInBranch(dtype="mixed_bfloat16")
    model, x = after(X, layer, layers.Dense(1))
    layer.scale.assign(0.1)
    optimizer = settled(LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)))
    keras_mp.protect_state(model)
    model.compile(optimizer, "mse", **compile)
    assert any("scale" in name for name in check(model, optimizer, x))


def test_a_function_that_was_traced_before(backend):
    """TensorFlow does not run its Python again: what it assigns to was seen, or is named."""
    if backend != "tensorflow":
        pytest.skip("about tf.function")
    import tensorflow as tf

    class Traced(Keeps):
        def compute_output_spec(self, x):
            return keras.KerasTensor(x.shape)

        @tf.function
        def halve(self):
            self.scale.assign(self.scale / 2)

        def call(self, x):
            self.halve()
            return x * self.scale

    def trained(named, traced):
        layer = Traced()
        model, x = after(X, layer, layers.Dense(1))
        if traced:
            layer.halve()
        keras_mp.protect_state(model, variables=[layer.scale] if named else ())
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9))
        model.compile(optimizer, "mse", run_eagerly=True)
        return check(model, optimizer, x)

    assert trained(named=False, traced=False)
    assert trained(named=True, traced=True)


def test_a_tensor_that_is_changed_itself(backend):
    """No assignment to the variable: it is named."""
    if backend != "torch":
        pytest.skip("tensors of others cannot be changed")

    class InPlace(Keeps):
        def call(self, x):
            self.scale.value.data.mul_(0.5)
            return x * self.scale

    layer = InPlace()
    model, x = after(X, layer, layers.Dense(1))
    keras_mp.protect_state(model, variables=[layer.scale])
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.01, momentum=0.9))
    model.compile(optimizer, "mse")
    assert check(model, optimizer, x)


def test_steps_of_other_optimizers_stay():
    """What a plain optimizer assigns, by a constraint too, is its step; nobody skipped that."""
    kept = layers.Dense(1, kernel_constraint="max_norm")
    model, x = after(X, kept)
    skips = settled(LossScaleOptimizer(keras.optimizers.SGD(0.01)))
    plain = keras.optimizers.SGD(10.0)
    for optimizer in (skips, plain):
        optimizer.build(model.trainable_variables)
    with keras_mp.protect_state_scope(model, skips):
        model(x, training=True)
        ones, infs = ([f * ops.ones(v.shape) for v in kept.weights] for f in (1.0, np.inf))
        plain.apply(ones, kept.weights)
        skips.apply(infs, kept.weights)
    assert int(skips.skipped_steps) == 1
    norm = np.linalg.norm(kept.kernel.numpy())
    assert 1.9 < norm < 2.1, "max_norm(2) after a step of 10"


# -- what without it cannot be had -----------------------------------------------------------------


def test_without_it_a_spectral_norm_changes_its_weight(backend):
    """The forward pass is over when the optimizer is asked. JAX drops what it assigned."""
    model, optimizer, x = made("spectral")
    kernel = model.layers[0].layer.kernel
    model.compile(optimizer, "mse")
    model.train_on_batch(x, Y)
    before = kernel.numpy()
    model.train_on_batch(x, Y * np.inf)
    assert int(optimizer.skipped_steps) == 1
    assert (kernel.numpy() == before).all() == (backend == "jax")


# -- what is found, and what is not copied ---------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "written"),
    [
        ("spectral", {"kernel", "vector_u"}),
        ("normalization", {"moving_mean", "moving_variance"}),
        ("of one's own", {"scale", "calls"}),
        ("of one's own, by a helper", {"scale", "calls"}),
        ("of one's own, inside", {"kernel"}),
        ("of one's own, a count", {"calls"}),
    ],
)
def test_only_what_is_written_is_copied(part, written):
    model, optimizer, x = made(part)
    with keras_mp.protect_state_scope(model, optimizer):
        model(x, training=True)
    assert {variable.name for variable in assigned_variables(model)} == written


def test_jax_chooses_only_between_values_that_differ(backend):
    """Of a frozen weight that nobody writes there is no choice in the compiled step."""
    if backend != "jax":
        pytest.skip("copies are counted above")
    import jax

    def choices(protect):
        model, optimizer, x = made("normalization")
        model.layers[-1].trainable = False
        if protect:
            keras_mp.protect_state(model)
        model.compile(optimizer, "mse")
        model.train_on_batch(x, Y)
        state = [model.trainable_variables, model.non_trainable_variables]
        state += [optimizer.variables, model.metrics_variables]
        values = [[v.value for v in each] for each in state]
        return jax.jit(model.train_step).lower(values, (x, Y)).as_text().count("call @_where")

    assert choices(True) - choices(False) == 2  # the moving mean and variance


# What those of Keras assign to, read in their sources (3.10 to 3.15): weights in one of them.
WRITERS = {
    "BatchNormalization": "moving statistics",
    "JaxLayer": "state, made as not trainable",
    "FlaxLayer": "state, made as not trainable",
    "RNN": "`states`, if stateful",
    "SpectralNormalization": "kernel",
}


def test_no_other_layer_of_keras_assigns():
    """A new one, in a later Keras, is for `explain` to name."""
    found = {
        name
        for name, cls in vars(layers).items()
        if isinstance(cls, type)
        and issubclass(cls, layers.Layer)
        and re.search(r"\.assign(_add|_sub)?\(", inspect.getsource(cls.call))
    }
    assert found <= set(WRITERS)
    assert {"BatchNormalization", "SpectralNormalization"} <= found


def test_a_class_that_inherits_the_assignment():
    class Inherited(layers.SpectralNormalization):
        pass

    layer = Inherited(layers.Dense(2))
    layer.build((None, 4))
    assert self_assigned_weights(layer) == [layer.layer.kernel]


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_explain_names_the_layer_and_the_remedy(backend, frozen):
    model, optimizer, _ = made("spectral")
    model.layers[0].trainable = not frozen
    path = model.layers[0].name
    expected = [] if backend == "jax" and not frozen else [("assigned_weights", path)]

    def found(optimizer):
        listed = explain(model, optimizer).findings
        return [(each.code, each.path) for each in listed if each.code == "assigned_weights"]

    assert found(optimizer) == expected
    assert found(keras.optimizers.SGD()) == []
    keras_mp.protect_state(model)
    assert found(optimizer) == []
