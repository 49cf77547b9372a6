"""bfloat16 instead of float32, where it was asked for and the loss stays the same."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import PrecisionRepair, repair
from tests.each.diagnosis.repair.test_callback import compiled, fitted

pytestmark = [
    pytest.mark.usefixtures("mixed_float16"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]


@keras.saving.register_keras_serializable("tests")
class Spread(layers.Layer):
    """How far values are from 300, which is little: bfloat16 has 8 bits, and loses it."""

    def call(self, x):
        return ops.mean(ops.square(x) - 9e4, -1, keepdims=True) / 600.0


def two_layers():
    inputs = keras.Input((4,))
    large = layers.Dense(
        1, kernel_initializer=keras.initializers.Constant(4e4), use_bias=False, name="large"
    )
    spread = Spread(name="spread")
    h = layers.Add(dtype="float32", name="add")(
        [large(inputs[:, :4] / 300.0) * 1e-5, spread(inputs)]
    )
    out = layers.Dense(1, kernel_initializer="ones", dtype="float32", name="out")
    return compiled(keras.Model(inputs, out(h), name="net"))


def batch(count):
    x = 300 + np.random.default_rng(0).uniform(-0.5, 0.5, (count, 4)).astype("float32")
    return x, np.zeros((count, 1), "float32")


def dtypes(model):
    return {name: model.get_layer(name).compute_dtype for name in ("large", "spread")}


def test_each_layer_where_it_is_as_good():
    model = two_layers()
    done = repair(model, *batch(8), remedy="bfloat16")
    assert done.layers == ("large", "spread")
    assert dtypes(model) == {"large": "bfloat16", "spread": "float32"}
    assert "`spread` now computes in float32, `large` now computes in bfloat16: " in str(done)
    assert '"^large$": keras.dtype_policies.get("mixed_bfloat16")' in done.code().replace(
        "(/.*)?", ""
    )
    policies = done.policy_map()
    assert (policies["large"].name, policies["spread"].name) == ("mixed_bfloat16", "float32")
    assert "To compute spread in float32 and large in bfloat16," in " ".join(str(done).split())
    fitted(model, *batch(8))
    assert int(model.optimizer.skipped_steps) == 0


def test_only_if_it_is_asked_for():
    model = two_layers()
    assert repair(model, *batch(8)).layers == ("large", "spread")
    assert dtypes(model) == {"large": "float32", "spread": "float32"}


def test_it_lasts(tmp_path):
    model = two_layers()
    callback = PrecisionRepair(skips=3, remedy="bfloat16")
    fitted(model, *batch(24), callback)
    assert int(model.optimizer.skipped_steps) == 3
    assert callback.repairs.made[0].bfloat16 == ("large",)
    found = {f.path: f for f in keras_mp.explain(model).findings if f.code == "repaired"}
    assert "computes in bfloat16 since" in found["large"].what
    assert "dtype='mixed_bfloat16'" in found["large"].remedy
    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    again = two_layers()
    keras_mp.resume(again, path)
    assert dtypes(again) == {"large": "bfloat16", "spread": "float32"}
    model.save(tmp_path / "a.keras")
    assert dtypes(keras.saving.load_model(tmp_path / "a.keras")) == dtypes(model)


def test_another_name_is_refused():
    with pytest.raises(ValueError, match="remedy must be 'float32' or 'bfloat16'"):
        PrecisionRepair(remedy="float16")
