"""Repairs of models of the graph rewrite: layers go to its `deny_layers`."""

import logging

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleMonitor, PrecisionRepair, graph_rewrite, repair
from tests.compiled_steps import settled

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


@pytest.fixture(autouse=True)
def undone():
    yield
    graph_rewrite.disable()


def sum_of_large(**kwargs):
    inputs = keras.Input((4,))
    h = layers.Dense(3, name="first")(inputs)
    h = layers.Dense(1, kernel_initializer=keras.initializers.Constant(4e4), name="large")(
        ops.abs(h) + 1.0
    )
    return keras.Model(inputs, layers.Dense(1, name="out")(h * 1e-5), **kwargs)


def compiled(model, loss="mse", rate=1e-6, **kwargs):
    kwargs = {"loss_scale": 4096.0, **kwargs}  # at which no gradient is near 65504
    optimizer = graph_rewrite.enable(keras.optimizers.Adam(rate), **kwargs)
    model.compile(optimizer, loss)
    return model


def ones(count):
    return np.ones((count, 4), "float32"), np.ones((count, 1), "float32")


def fitted(model, x, y, *callbacks, **kwargs):
    return model.fit(x, y, batch_size=2, verbose=0, shuffle=False, callbacks=callbacks, **kwargs)


def dtypes(model, **kwargs):
    rows = graph_rewrite.report(model, **kwargs).rows
    return {row.layer: row.dtype for row in rows if row.op == "matmul"}


def test_a_layer_is_denied_in_a_running_training(caplog):
    model = compiled(sum_of_large(name="net"), loss_scale="dynamic")
    callback, monitor = PrecisionRepair(skips=3), LossScaleMonitor()
    with caplog.at_level(logging.WARNING, "keras_mp"):
        fitted(model, *ones(24), callback, monitor)
    assert int(model.optimizer.skipped_steps) == 3
    assert callback.repairs.layers == callback.repairs.denied == ("large",)
    assert callback.repairs.made[0].finding.op == "matmul"
    assert callback.repairs.made[0].finding.largest > 65504
    assert "`large` now computes in float32: matmul reached" in caplog.text
    assert dtypes(model) == {"first": "float16", "large": "float32", "out": "float16"}
    whys = {row.why for row in graph_rewrite.report(model).layer("large").rows}
    assert whys == {"deny_layers has its layer"}
    assert np.isfinite(model.evaluate(*ones(2), verbose=0))
    assert np.isfinite(model.predict(ones(2)[0], verbose=0)).all()


def test_what_it_says_to_write_does_the_same():
    model = compiled(sum_of_large(name="net"))
    done = repair(model, *ones(2))
    line = "optimizer = keras_mp.graph_rewrite.enable(optimizer, deny_layers=('large',))"
    assert done.code() == line
    assert line in str(done)
    again = compiled(sum_of_large(name="net"), deny_layers=("large",))
    fitted(again, *ones(8))
    assert int(again.optimizer.skipped_steps) == 0
    assert dtypes(again) == dtypes(model)


def test_compiling_again_keeps_what_was_denied():
    model = compiled(sum_of_large(name="net"))
    assert repair(model, *ones(2)).layers == ("large",)
    model.compile(model.optimizer, "mae")
    fitted(model, *ones(8))
    assert dtypes(model)["large"] == "float32"
    assert int(model.optimizer.skipped_steps) == 0


def test_explain_marks_it():
    model = compiled(sum_of_large(name="net"))
    repair(model, *ones(2))
    (found,) = (f for f in keras_mp.explain(model).findings if f.code == "repaired")
    assert (found.path, found.remedy) == (
        "large",
        "pass deny_layers=('large',) to keras_mp.graph_rewrite.enable",
    )


def test_no_more_layers_than_needed():
    inputs = keras.Input((4,))
    large = keras.initializers.Constant(4e4)
    sides = [
        layers.Dense(2, kernel_initializer=large, name=name)(inputs) * 1e-5 for name in "abcdef"
    ]
    small = layers.Dense(2, kernel_initializer="zeros", name="small")(inputs)
    model = compiled(keras.Model(inputs, layers.Dense(1)(layers.Add()([*sides[::3], small]))))
    done = repair(model, *ones(2))
    assert sorted(done.layers) == ["a", "d"]
    assert not repair(model, *ones(2))


class OwnOps(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.out = layers.Dense(1, name="out")

    def call(self, x):
        return self.out(ops.matmul(x, ops.ones((4, 4)) * 4e4) * 1e-5)


def test_ops_that_the_model_calls_itself():
    model = compiled(OwnOps(name="net"))
    fitted(model, *ones(2))
    assert repair(model, *ones(2)).layers == ("(model)",)
    assert dtypes(model, inputs=ones(2)[0]) == {"": "float32", "out": "float16"}


@pytest.mark.parametrize("kind", ["data", "weights", "float32"])
def test_stops_where_precision_is_not_the_matter(kind):
    model = compiled(sum_of_large(), {"float32": lambda y, p: ops.mean(y / (p * 0.0))}.get(kind))
    if kind != "float32":
        model = compiled(sum_of_large())
    x, y = ones(24)
    if kind == "data":
        x[:, 1] = np.nan
    if kind == "weights":
        model.get_layer("first").kernel.assign(np.full((4, 3), np.inf, "float32"))
    callback = PrecisionRepair(skips=3)
    fitted(model, x, y, callback)
    assert (callback.repairs.verdict.kind, len(callback.repairs)) == (kind, 0), callback.repairs
    assert callback.stopped
    assert dtypes(model)["large"] == "float16"


def test_a_healthy_model_is_left_alone():
    def trained(*callbacks):
        keras.utils.set_random_seed(0)
        start = keras.Input((4,))
        h = layers.Dense(8, activation="relu")(start)
        model = compiled(keras.Model(start, layers.Dense(1)(layers.Dropout(0.5)(h))), rate=0.01)
        fitted(model, *ones(24), *callbacks)
        return model.get_weights()

    callback = PrecisionRepair(skips=3)
    assert all(map(np.array_equal, trained(), trained(callback)))
    assert (len(callback.repairs), callback.repairs.verdict) == (0, None)


@pytest.mark.parametrize("way", ["resume", "callback"])
def test_it_lasts_in_weights_files(tmp_path, way):
    model = compiled(sum_of_large(name="net"))
    fitted(model, *ones(24), PrecisionRepair(skips=3))
    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    again = compiled(sum_of_large(name="net"))
    callbacks = []
    if way == "resume":
        keras_mp.resume(again, path)
    else:
        again.optimizer.build(again.trainable_variables)

        class Restore(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                self.model.load_weights(path)

        callbacks = [PrecisionRepair(skips=3), Restore()]
    fitted(again, *ones(8), *callbacks)
    assert int(again.optimizer.skipped_steps) == 3  # those before
    assert dtypes(again)["large"] == "float32"


def test_a_model_in_a_model():
    inner = sum_of_large(name="inner")
    inputs = keras.Input((4,))
    model = compiled(keras.Model(inputs, layers.Dense(1, name="end")(inner(inputs)), name="net"))
    (path,) = repair(model, *ones(2)).layers
    assert dtypes(model) == {
        "first": "float16",
        "large": "float32",
        "out": "float16",
        "end": "float16",
    }
    assert path == "large"


def test_a_compiled_step(quick_compile, compiled_once):
    if BACKEND != "torch":
        pytest.skip("about torch.compile; the others compile in all tests here")
    import torch

    torch.compiler.reset()
    large = layers.Dense(1, kernel_initializer=keras.initializers.Constant(4e4), name="large")
    model = keras.Sequential([keras.Input((4,)), large], name="net")
    optimizer = settled(graph_rewrite.enable(keras.optimizers.SGD(1e-6), loss_scale=1.0))
    model.compile(optimizer, "mse", jit_compile=True)
    callback = PrecisionRepair(skips=2)
    fitted(model, *ones(8), callback)
    assert callback.repairs.denied == ("large",)
    assert int(model.optimizer.skipped_steps) == 2


@pytest.mark.parametrize("wrong", ["large", [1]])
def test_wrong_paths_are_refused(wrong):
    with pytest.raises(TypeError, match="deny_layers must be a sequence of paths"):
        graph_rewrite.enable(keras.optimizers.SGD(), deny_layers=wrong)
