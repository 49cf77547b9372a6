"""A rewritten model saved, copied, nested, threaded, broken, compiled again and restored."""

import copy
import gc
import json
import pickle
import threading
import warnings
import weakref
import zipfile

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import hooks, rewritten
from tests.compiled_steps import settled
from tests.graph_rewrite_kinds import (
    BATCH,
    ROWS,
    assert_close,
    dense,
    differs,
    floats,
    functional,
    numpy,
    rows,
    sequential,
    targets,
)

pytestmark = pytest.mark.usefixtures("rewrite_ends")


# -- saving and copying ----------------------------------------------------------------------------


def saved(rewrite, path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,), name="in"), dense(name="a")], name="m")
    if rewrite:
        optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.1), loss_scale=8.0)
        model.compile(optimizer, "mse")
    else:
        model.compile(keras.optimizers.SGD(0.1), "mse")
    model.save(path)
    return model


def test_a_saved_model_is_that_of_float32(tmp_path):
    plain = saved(False, tmp_path / "plain.keras")
    model = saved(True, tmp_path / "ours.keras")
    configs, names = [], []
    for name in ("plain", "ours"):
        with zipfile.ZipFile(tmp_path / f"{name}.keras") as archive:
            names.append(sorted(archive.namelist()))
            config = json.loads(archive.read("config.json"))
            config["compile_config"].pop("optimizer")
            configs.append(config)
    assert names[0] == names[1]
    assert configs[0] == configs[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the optimizer of one of them
        loaded = keras.models.load_model(tmp_path / "ours.keras")
    for a, b, c in zip(loaded.weights, model.weights, plain.weights, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)


def test_a_loaded_model_is_not_rewritten(tmp_path):
    model = saved(True, tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    x = floats(4)
    ours = numpy(model(x))
    assert rewritten.state_of(loaded) is None
    plain = numpy(loaded(x))
    assert not np.array_equal(ours, plain)
    graph_rewrite.apply(loaded)
    assert np.array_equal(numpy(loaded(x)), ours)


def test_weights_go_round(tmp_path):
    model = saved(True, tmp_path / "ours.keras")
    model.save_weights(tmp_path / "w.weights.h5")
    plain = keras.models.clone_model(saved(False, tmp_path / "plain.keras"))
    plain.set_weights([np.zeros(w.shape) for w in plain.get_weights()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the optimizer
        plain.load_weights(tmp_path / "w.weights.h5")
    for a, b in zip(plain.get_weights(), model.get_weights(), strict=True):
        assert np.array_equal(a, b)


def clone(model):
    copied = keras.models.clone_model(model)
    copied.set_weights(model.get_weights())
    return copied


@pytest.mark.parametrize(
    "duplicate",
    [
        clone,
        lambda model: type(model).from_config(model.get_config()),
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
    ],
    ids=["clone_model", "from_config", "deepcopy", "pickle"],
)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "applied"])
def test_a_copy_is_a_model_of_its_own(duplicate, compiled):
    """It computes in float32, also after the original is gone, and does not disturb it."""
    keras.utils.set_random_seed(0)
    model, x = sequential()
    plain = numpy(model(x))
    if compiled:
        optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.1))
        model.compile(optimizer, "mse")
    else:
        graph_rewrite.apply(model)
    ours = numpy(model(x))
    copied = duplicate(model)
    copied.set_weights(model.get_weights())
    model.set_weights([np.zeros(w.shape) for w in model.get_weights()])
    assert np.array_equal(numpy(copied(x)), plain)
    graph_rewrite.apply(copied)
    assert np.array_equal(numpy(copied(x)), ours)
    assert not np.any(numpy(model(x)))
    graph_rewrite.disable()
    assert np.array_equal(numpy(copied(x)), plain)


# -- several models, threads, errors ---------------------------------------------------------------


def test_a_rewritten_model_inside_another():
    keras.utils.set_random_seed(0)
    inner = keras.Sequential([keras.Input((8,)), dense(), layers.Dense(3)], name="inner")
    x = inputs = keras.Input((4,))
    outer = keras.Model(inputs, layers.Dense(2)(inner(dense()(x))), name="outer")
    plain = numpy(outer(floats(4)))
    plain_inner = numpy(inner(floats(8)))
    graph_rewrite.apply(inner)
    assert_close(numpy(outer(floats(4))), plain)
    graph_rewrite.apply(outer)
    assert_close(numpy(outer(floats(4))), plain)
    assert_close(numpy(inner(floats(8))), plain_inner)
    low = [row.layer for row in rows(outer) if row.dtype == "float16" and row.op == "matmul"]
    assert len(low) == 4
    rewritten.restore(outer)
    assert not np.array_equal(numpy(outer(floats(4))), plain)
    graph_rewrite.disable()
    assert np.array_equal(numpy(outer(floats(4))), plain)


def test_other_models_are_left_alone():
    keras.utils.set_random_seed(0)
    (model, x), (other, _) = sequential(), functional()
    plain = numpy(other(x))
    twin = keras.models.clone_model(other)
    twin.set_weights(other.get_weights())
    y = targets(np.zeros((ROWS, 2)))
    twin.compile("sgd", "mse")
    expected = [twin.train_on_batch(x, y) for _ in range(2)]
    graph_rewrite.apply(model)
    model(x)
    assert np.array_equal(numpy(other(x)), plain)
    other.compile("sgd", "mse")
    assert [other.train_on_batch(x, y) for _ in range(2)] == expected


def test_threads():
    """Each runs its own model, rewritten or not, and none meets another's casts."""
    keras.utils.set_random_seed(0)
    models = [sequential()[0] for _ in range(6)]
    x = floats(4)
    plain = [numpy(model(x)) for model in models]
    for model in models[::2]:
        graph_rewrite.apply(model)
    expected = [numpy(model(x)) for model in models]
    assert [np.array_equal(a, b) for a, b in zip(expected, plain, strict=True)] == [False, True] * 3
    wrong = []

    def run(model, expected):
        for _ in range(20):
            if not np.array_equal(numpy(model(x)), expected):
                wrong.append(model.name)

    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(models, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_that_call_one_model_for_the_first_time():
    model, x = functional()
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    found, failed = [], []

    def run():
        try:
            found.append(numpy(model(x)))
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert all(np.array_equal(y, found[0]) for y in found)
    assert not np.array_equal(found[0], plain)


class Fails(layers.Layer):
    fail = True

    def call(self, x):
        if self.fail:
            raise ArithmeticError("of the layer")
        return x


def test_an_error_inside_leaves_nothing_behind():
    keras.utils.set_random_seed(0)
    fails = Fails()
    fails.fail = False
    model = keras.Sequential([keras.Input((4,)), dense(), fails, layers.Dense(2)])
    x = floats(4)
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    fails.fail = True
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="of the layer"):
            model(x)
        assert not hooks.is_dispatching()
        h = ops.matmul(ops.ones((1, 1)), ops.full((1, 1), 1.0001))
        assert float(h[0, 0]) == float(np.float32(1.0001))
    fails.fail = False
    first = numpy(model(x))
    assert_close(first, plain)
    fails.fail = True
    with pytest.raises(ArithmeticError, match="of the layer"):
        model(x)
    graph_rewrite.disable()
    fails.fail = False
    assert np.array_equal(numpy(model(x)), plain)


def test_disable_while_a_model_is_called():
    class Disables(layers.Layer):
        def call(self, x):
            if not isinstance(x, keras.KerasTensor):
                graph_rewrite.disable()
            return x

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), dense(), Disables(), layers.Dense(2)])
    plain = numpy(model(floats(4)))
    graph_rewrite.apply(model)
    assert_close(numpy(model(floats(4))), plain)
    assert np.array_equal(numpy(model(floats(4))), plain)


# -- and back --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch.compile, of itself
@pytest.mark.parametrize("jit", [False, True])
def test_disable_is_float32_to_the_bit(jit, backend, quick_compile, compiled_once):
    """A model that was trained rewritten, and then disabled, goes on as one that never was."""
    keras.utils.set_random_seed(0)
    (model, x), (plain, _) = sequential(), sequential()
    y = targets(np.zeros((ROWS, 2)))
    optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.05), loss_scale=1.0)
    model.compile(settled(optimizer), "mse", jit_compile=jit)
    model.fit(x, y, batch_size=BATCH, verbose=0)
    model.evaluate(x, y, batch_size=BATCH, verbose=0)
    model.predict(x, batch_size=BATCH, verbose=0)
    graph_rewrite.disable()
    # What is traced on PyTorch are the same kernels; to trace the plain one, too, takes a minute.
    plain.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit and backend != "torch")
    plain.set_weights(model.get_weights())
    for each in (model, plain):
        each.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        assert np.array_equal(ours, theirs)
    said = [each.evaluate(x, y, batch_size=BATCH, verbose=0) for each in (model, plain)]
    assert said[0] == said[1]
    predicted = [each.predict(x, batch_size=BATCH, verbose=0) for each in (model, plain)]
    assert np.array_equal(*predicted)
    assert "call" not in vars(model)


def test_compiling_with_another_optimizer_undoes_it():
    model, x = functional()
    plain = numpy(model(x))
    optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.05))
    model.compile(optimizer, "mse")
    assert differs(model, x)
    model.compile("sgd", "mse")
    assert np.array_equal(numpy(model(x)), plain)
    model.predict(x, verbose=0)
    model.compile(graph_rewrite.enable(keras.optimizers.SGD(0.05)), "mse")
    assert differs(model, x)
    assert not np.array_equal(model.predict(x, verbose=0), plain)


def test_compiling_does_not_undo_apply():
    model, x = functional()
    graph_rewrite.apply(model)
    model.compile("sgd", "mse")
    assert differs(model, x)


def test_applying_twice_is_applying_once():
    model, x = functional()
    plain = numpy(model(x))
    graph_rewrite.apply(model)
    once = numpy(model(x))
    graph_rewrite.apply(model)
    assert np.array_equal(numpy(model(x)), once)
    graph_rewrite.disable()
    assert np.array_equal(numpy(model(x)), plain)


@pytest.mark.parametrize("way", ["apply", "compile", "report"])
def test_a_rewritten_model_can_be_collected(way):
    model, x = functional()
    if way == "compile":
        optimizer = graph_rewrite.enable(keras.optimizers.SGD(0.05))
        model.compile(optimizer, "mse")
        assert rewritten.state_of(model) is not None
    elif way == "apply":
        graph_rewrite.apply(model)
    else:
        graph_rewrite.report(model)
    model(x)
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None


def test_results_can_be_collected():
    """Neither a plan nor the 16-bit cache keeps the tensors of a call."""
    model, x = functional()
    graph_rewrite.apply(model)
    outputs = model(x)
    held = weakref.ref(outputs)
    del outputs
    gc.collect()
    assert held() is None
    before = len(gc.get_objects())
    for _ in range(200):
        model(x)
    gc.collect()
    assert len(gc.get_objects()) < before + 200, "one of each call, or more"


# -- ops that the plan does not know ---------------------------------------------------------------


class Branches(layers.Layer):
    """Takes another way from the second call on: ops that were not recorded."""

    def __init__(self):
        super().__init__()
        self.inside, self.other = dense(4, name="inside"), dense(4, name="other")
        self.way = 0

    def build(self, shape):
        self.inside.build(shape)
        self.other.build(shape)

    def call(self, x):
        x = self.inside(x)
        return x if self.way == 0 else ops.log(ops.exp(self.other(x) * 100.0))


def test_ops_that_were_not_recorded_are_counted():
    keras.utils.set_random_seed(0)
    branches = Branches()
    model = keras.Sequential([keras.Input((4,)), branches, layers.Dense(2)])
    x = floats(4)
    branches.way = 1
    expected = numpy(model(x))
    branches.way = 0
    graph_rewrite.apply(model)
    model(x)
    (plan,) = rewritten.state_of(model).plans.values()
    assert not plan.missed
    branches.way = 1
    with pytest.warns(UserWarning, match="has not recorded the op 'matmul'") as warned:
        ours = [numpy(model(x)) for _ in range(3)]
    assert len([each for each in warned if "has not recorded" in str(each.message)]) == 1
    assert_close(ours, [expected] * 3)
    assert plan.missed["branches/other", "matmul"] == 3
