"""What we use of Keras' private names is in Keras, is in the table, and does what we take it for.

`make oldest` runs this on the oldest Keras, `make next KERAS=path` on a checkout of a newer one.
"""

import ast
import operator
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_mp.backends import keras_hooks
from tests import private_names
from tests.backends import on_one
from tests.durations import shared

BACKEND = keras.backend.backend()
# Of one backend only.
ONLY_ON = {
    "Layer._torch_params": "torch",
    "Variable._layout": "jax",
    "Layer._track_variables": "torch",
    "Optimizer._parallel_update_step": "torch",
    "Optimizer._all_reduce_sum_gradients": "tensorflow",
    "Model._aggregate_additional_loss": "tensorflow",
}
LIMIT = 80


def built(optimizer):
    optimizer.build([keras.Variable([1.0])])
    return optimizer


def compiled():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="inner")
    outer = keras.Sequential([keras.Input((2,)), model, keras.layers.Dense(1)])
    outer.compile("sgd", "mse", metrics=["mae"], loss_weights=2.0)
    outer.train_on_batch(np.ones((1, 2)), np.ones((1, 1)))
    return outer


def excluding():
    optimizer = keras.optimizers.SGD(weight_decay=0.1, gradient_accumulation_steps=2)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return built(optimizer)


PRIVATE_NAMES = private_names.table()
SUBJECTS = {
    "Layer": lambda: compiled().layers[-1],
    "Sequential": compiled,
    "Functional": lambda: keras.models.clone_model(compiled())._functional,
    "Model": compiled,
    "CompileLoss": lambda: compiled()._compile_loss,
    "CompileMetrics": lambda: compiled()._compile_metrics,
    "KerasTensor": lambda: compiled().outputs[0],
    "Loss": keras.losses.BinaryCrossentropy,
    "BaseImageAugmentationLayer": lambda: keras.layers.RandomFlip(),
    "Variable": lambda: keras.Variable([1.0]),
    "Optimizer": excluding,
    "Nadam": lambda: built(keras.optimizers.Nadam()),
    "Adam": lambda: built(keras.optimizers.Adam(amsgrad=True)),
    "Adagrad": lambda: built(keras.optimizers.Adagrad()),
}


@pytest.mark.parametrize("row", PRIVATE_NAMES, ids=lambda row: row.name)
def test_keras_has_it(row):
    if ONLY_ON.get(row.name, BACKEND) != BACKEND:
        pytest.skip(f"of {ONLY_ON[row.name]}")
    owner, _, name = row.name.partition(".")
    if owner in SUBJECTS:
        assert hasattr(SUBJECTS[owner](), name), row.without
    else:
        assert operator.attrgetter(row.name)(keras.src) is not None, row.without


def test_each_row_says_why_and_who():
    for row in PRIVATE_NAMES:
        assert all((row.why, row.without, row.used_by)), row.name
    names = [row.name for row in PRIVATE_NAMES]
    assert len(names) == len(set(names))


# -- the table and the code ------------------------------------------------------------------------


@shared
def found():
    source = Path(keras.src.__file__).parent
    of_keras = set()
    for path in source.rglob("*.py"):
        if not path.stem.endswith("_test"):
            of_keras |= private_names.defined(ast.parse(path.read_text(encoding="utf-8")))
    known = {row.name.rpartition(".")[2] for row in PRIVATE_NAMES}
    return private_names.uses({name for name in known if name.startswith("_")}, of_keras)


def users(name):
    """Returns who uses an attribute or a name of keras.src, by the table."""
    return {
        user for row in PRIVATE_NAMES if row.name.rpartition(".")[2] == name for user in row.used_by
    }


@on_one
def test_no_private_name_is_used_that_is_not_in_the_table():
    unknown = []
    for use in found():
        if use.name.startswith("keras.src"):
            path = use.name.removeprefix("keras.src.")
            names = [row.name for row in PRIVATE_NAMES]
            if not any(path.startswith(name) or name.startswith(path) for name in names):
                unknown.append(use)
        elif use.owner not in users(use.name):
            unknown.append(use)
    assert not unknown, [f"{each.name} in {each.owner}, {each.file.name}" for each in unknown]


def test_each_row_names_code_that_there_is():
    owners = set()
    for path in private_names.sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        owners.update(getattr(top, "name", "") for top in tree.body)
    for row in PRIVATE_NAMES:
        assert set(row.used_by) <= owners, row.name


@on_one
def test_uses_are_few():
    """Each name is reached through one function, but for few."""
    assert len(found()) < LIMIT


# -- what they do ----------------------------------------------------------------------------------


def test_layers_and_what_they_hold():
    model = compiled()
    inner, last = model.layers
    assert keras_hooks.child_layers(model)[-2:] == [inner, last]
    assert inner.layers[0] in keras_hooks.inner_layers(model)
    assert keras_hooks.all_layers(model)[0] is model
    last.trainable = False
    assert [v.name for v in keras_hooks.own_weights(last)] == ["kernel", "bias"]
    norm = keras.layers.BatchNormalization()
    norm.build((None, 2))
    assert [v.name for v in keras_hooks.own_state(norm)] == ["moving_mean", "moving_variance"]
    layer = keras.layers.Layer()
    layer.metric = keras.metrics.Mean()
    assert keras_hooks.own_metrics(layer) == [layer.metric]
    layer.add_loss(keras.ops.ones(()))
    assert len(keras_hooks.own_losses(layer)[0]) == 1


def test_the_graph_of_a_model():
    inputs = keras.Input((2, 2))
    masked = keras.layers.Masking()(inputs)
    layer = keras.layers.Dense(1)
    output = layer(masked)
    assert keras_hooks.made_by(output) is layer
    assert keras_hooks.made_by(3) is None
    assert [node.output_tensors[0] is output for node in keras_hooks.calls_of(layer)] == [True]
    assert keras_hooks.mask_of(masked) is not None
    assert keras_hooks.was_called(layer)


def test_what_compile_was_given():
    model = compiled()
    assert keras_hooks.given_loss(keras_hooks.compiled_loss(model)) == ("mse", 2.0)
    assert keras_hooks.given_metrics(keras_hooks.compiled_metrics(model)) == (["mae"], None)
    assert keras_hooks.compile_config(model)["loss"] == "mse"
    assert keras_hooks.given_metrics(None) == keras_hooks.given_loss(None) == (None, None)


def test_optimizers():
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.Nadam(0.5, clipvalue=1.0, gradient_accumulation_steps=3)
    optimizer.build([weight])
    assert keras_hooks.trained_variables(optimizer) == [weight]
    assert keras_hooks.variable_index(optimizer, weight) == 0
    assert [v.name for v in keras_hooks.own_variables(optimizer)][:2] == [
        "iteration",
        "learning_rate",
    ]
    optimizer.apply([keras.ops.array([2.0])], [weight])
    assert int(keras_hooks.step_counter(optimizer).numpy()) == 1
    assert int(optimizer.iterations) == 0
    assert float(keras_hooks.momentum_product(optimizer).numpy()) == 1.0
    clipped = keras_hooks.clipped(optimizer, [keras.ops.array([2.0])])
    assert float(clipped[0][0]) == 1.0
    with pytest.raises(ValueError, match="Unknown variable"):
        keras_hooks.check_variables(optimizer, [keras.Variable(0.0)])
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    assert keras_hooks.own_learning_rate(keras.optimizers.SGD(schedule)) is schedule
    adam = built(keras.optimizers.Adam())
    assert [len(slots) for slots in keras_hooks.slots_of(adam)[:2]] == [1, 1]


def test_a_step_in_parts():
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(0.5, weight_decay=0.1)
    optimizer.build([weight])
    keras_hooks.update(optimizer, [keras.ops.array([1.0])], [weight])
    assert np.allclose(weight.numpy(), 1.0 * (1 - 0.1 * 0.5) - 0.5)


def test_variables_and_replaced_attributes():
    variable = keras.Variable([0.1])
    layer = keras.layers.Dense(1)
    with keras_hooks.replaced_policies([layer], keras.DTypePolicy("float16")):
        assert layer.compute_dtype == "float16"
        with keras_hooks.replaced_dtypes([variable], "float16"):
            assert variable.dtype == "float16"
    assert (layer.compute_dtype, variable.dtype) == ("float32", "float32")
    assert keras_hooks.stored(variable) is not None
    assert keras_hooks.layout_of(variable) is None
