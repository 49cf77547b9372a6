"""What a repair leaves: in files, in copies, in a training that goes on, and beside it."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleOptimizer, PrecisionRepair, repair
from tests.each.diagnosis.repair.test_callback import compiled, fitted, ones, sum_of_large

pytestmark = [
    pytest.mark.usefixtures("mixed_float16"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]


@keras.saving.register_keras_serializable("tests")
class Pair(layers.Layer):
    """Its inner layer is made by its own code, with the global policy."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        large = keras.initializers.Constant(4e4)
        self.inner = layers.Dense(1, kernel_initializer=large, name="inner")

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x) * 1e-5


def with_pair():
    inputs = keras.Input((4,))
    out = layers.Dense(1, dtype="float32", name="out")
    return compiled(keras.Model(inputs, out(Pair(name="pair")(inputs)), name="net"))


def values(variables):
    return [np.asarray(ops.convert_to_numpy(v)) for v in variables]


def test_nothing_else_changes():
    model = compiled(sum_of_large(name="net"))
    x, y = ones(8)
    model.get_layer("large").kernel.assign(np.full((3, 1), 1.0, "float32"))
    fitted(model, x, y)  # so that there are slots
    model.get_layer("large").kernel.assign(np.full((3, 1), 4e4, "float32"))
    before = values(model.weights), values(model.optimizer.inner_optimizer.variables)
    steps = int(model.optimizer.iterations)
    done = repair(model, x, y)
    assert done.layers == ("large",)
    after = values(model.weights), values(model.optimizer.inner_optimizer.variables)
    assert all(map(np.array_equal, before[0] + before[1], after[0] + after[1]))
    assert (int(model.optimizer.iterations), done.made[0].step) == (steps, steps)
    fitted(model, x, y)
    assert int(model.optimizer.skipped_steps) == 0


def test_the_loss_scale_returns():
    model = compiled(sum_of_large(name="net"), initial_scale=2.0**10, hysteresis=2)
    model.optimizer._scaler.restart(2.0)
    done = repair(model, *ones(4))
    assert (done.made[0].scale_before, done.made[0].scale) == (2.0, 2.0**10)
    assert float(model.optimizer.loss_scale) == 2.0**10
    model.optimizer._scaler.restart(2.0)
    fixed = compiled(sum_of_large(), dynamic=False, initial_scale=512.0)
    assert repair(fixed, *ones(4)).made[0].scale == 512.0


def repaired_model():
    model = compiled(sum_of_large(name="net"))
    assert repair(model, *ones(4)).layers == ("large",)
    return model


def policies(model):
    return [(each.name, each.compute_dtype) for each in model.layers[1:]]


def test_explain_marks_what_was_repaired():
    found = keras_mp.explain(repaired_model())
    notes = [each for each in found.findings if each.code == "repaired"]
    assert [(each.path, each.level) for each in notes] == [("large", "note")]
    assert "it was repaired in training" in str(found)


def test_a_saved_model(tmp_path):
    model = repaired_model()
    model.save(tmp_path / "net.keras")
    again = keras.saving.load_model(tmp_path / "net.keras")
    assert policies(again) == policies(model)
    assert ("large", "float32") in policies(again)


def test_a_clone():
    model = repaired_model()
    assert policies(keras.models.clone_model(model)) == policies(model)


def test_a_saved_model_whose_layers_make_layers(tmp_path):
    """Keras writes no policy of these: the optimizer's state says it, and the callback does it."""
    model = with_pair()
    assert repair(model, *ones(4)).layers == ("pair/inner",)
    model.save(tmp_path / "net.keras")
    again = keras.saving.load_model(tmp_path / "net.keras")
    callback = PrecisionRepair(skips=2)
    before = int(again.optimizer.skipped_steps)
    fitted(again, *ones(12), callback)
    assert again.get_layer("pair").inner.compute_dtype == "float32"
    assert int(again.optimizer.skipped_steps) == before


def test_a_weights_file_and_resume(tmp_path):
    model = with_pair()
    callback = PrecisionRepair(skips=2)
    fitted(model, *ones(12), callback)
    assert len(callback.repairs) == 1
    model.save_weights(tmp_path / "a.weights.h5")
    again = with_pair()
    keras_mp.resume(again, tmp_path / "a.weights.h5")
    assert again.get_layer("pair").inner.compute_dtype == "float32"
    fitted(again, *ones(12))
    assert int(again.optimizer.skipped_steps) == 2


class KilledError(Exception):
    pass


class Kill(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KilledError


def test_a_run_that_was_killed(tmp_path):
    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))

    model = with_pair()
    with pytest.raises(KilledError):
        fitted(model, *ones(12), PrecisionRepair(skips=2), backup(), Kill(), epochs=4)
    assert int(model.optimizer.skipped_steps) == 2
    again = with_pair()
    callback = PrecisionRepair(skips=2)
    fitted(again, *ones(12), callback, backup(), epochs=4)
    assert again.get_layer("pair").inner.compute_dtype == "float32"
    assert int(again.optimizer.skipped_steps) == 2
    assert int(again.optimizer.iterations) == 24
    assert '"^net/pair/inner' in callback.repairs.code() or "pair/inner" in str(callback.repairs)


def test_the_code_makes_a_model_that_is_well():
    done = repair(compiled(sum_of_large(name="net")), *ones(4))
    exec(done.code(), {})
    model = compiled(sum_of_large(name="net"))
    fitted(model, *ones(12))
    assert model.get_layer("large").compute_dtype == "float32"
    assert int(model.optimizer.skipped_steps) == 0


def test_a_map_of_other_models_stays_as_it_is():
    policy = keras.dtype_policies.DTypePolicyMap("mixed_float16")
    keras_mp.set_global_policy(policy)
    model = compiled(sum_of_large(name="net"))
    assert repair(model, *ones(4)).layers == ("large",)
    assert model.get_layer("large").compute_dtype == "float32"
    assert len(policy) == 0
    fitted(model, *ones(12))
    assert int(model.optimizer.skipped_steps) == 0


def test_float16_weights_are_not_for_a_policy():
    keras_mp.set_global_policy("float16")
    model = compiled(sum_of_large(name="net"))
    done = repair(model, *ones(4))
    assert (bool(done), done.verdict.kind) == (False, "code")
    assert "Make the model with mixed_float16" in done.verdict.text


def test_means_of_normalization_are_made_again():
    inputs = keras.Input((2,))
    norm = layers.Normalization(name="norm")
    norm.adapt(np.array([[1e6, 1e6], [1.2e6, 1.4e6]], "float32"))
    model = compiled(keras.Model(inputs, layers.Dense(1, dtype="float32")(norm(inputs))))
    x = np.array([[1.1e6, 1.2e6]], "float32")
    assert repair(model, x, ones(1)[1]).layers == ("norm",)
    assert np.isfinite(ops.convert_to_numpy(model(x))).all()


def test_what_a_file_says_of_repairs_may_be_damaged():
    model = compiled(sum_of_large(name="net"))
    model.optimizer.extra_state.notes["float32_paths"] = np.array([255, 1], "uint8")
    with pytest.warns(UserWarning, match="cannot be read"):
        fitted(model, *ones(4), PrecisionRepair())


def test_needs_our_optimizer():
    model = sum_of_large()
    model.compile("sgd", "mse", auto_scale_loss=False)
    with pytest.raises(TypeError, match="repair needs a model compiled with"):
        repair(model, *ones(4))


def test_several_faults_at_once():
    inputs = keras.Input((2,))
    large = keras.initializers.Constant(4e4)
    sides = [layers.Dense(1, kernel_initializer=large, name=name)(inputs) * 1e-5 for name in "ab"]
    model = keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.Add()(sides)))
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(1e-6)), "mse")
    assert repair(model, *ones(4, 2)).layers == ("a", "b")
