"""What docs/reference/limitations.md says is left alone: that it is so, and what to do instead."""

import contextlib
import copy
import json
import zipfile

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from keras_mp import LossScaleOptimizer
from tests import faults, programs
from tests.compiled_steps import compiled_step

BACKEND = keras.backend.backend()


@pytest.mark.skipif(BACKEND == "torch", reason="torch.compile compiles anew for another number")
@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.filterwarnings("ignore:LossScaleOptimizer divides these gradients")
def test_a_hyperparameter_is_a_constant_of_what_is_compiled(wrapped):
    optimizer = inner = keras.optimizers.SGD(1.0, weight_decay=0.5)
    if wrapped:
        optimizer = LossScaleOptimizer(inner, initial_scale=1.0)
    variable = keras.Variable([8.0])
    optimizer.build([variable])
    step = compiled_step(optimizer, [variable], jit_compile=False)
    step([ops.ones(1)])
    assert float(variable[0]) == 8 - 4 - 1
    optimizer.weight_decay = 0.0
    assert inner.weight_decay == 0.0
    step([ops.ones(1)])
    assert float(variable[0]) == 3 - 1.5 - 1


def test_compile_by_name_is_keras_own():
    with keras_mp.policy_scope("mixed_float16"):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    assert type(model.optimizer) is keras.optimizers.LossScaleOptimizer


def test_a_keras_2_dictionary_goes_to_keras_own_class():
    adam = {"class_name": "Adam", "config": {"name": "Adam", "learning_rate": 0.5}}
    config = {"inner_optimizer": adam, "dynamic": True, "initial_scale": 8.0}
    config["dynamic_growth_steps"] = 7
    with pytest.raises((TypeError, ValueError)) as error:
        keras.optimizers.get(copy.deepcopy({"class_name": "LossScaleOptimizer", "config": config}))
    assert "keras_mp" not in str(error.value)
    ours = LossScaleOptimizer.from_config(config)
    assert (ours.initial_scale, ours.dynamic_growth_steps) == (8.0, 7)
    assert float(ours.learning_rate) == 0.5


def test_after_fit_gradients_are_taken_for_scaled(fit, data):
    for told, ended in (({}, -(2**-6)), ({"gradients_scaled": False}, -(2**-4))):
        optimizer = LossScaleOptimizer(
            keras.optimizers.SGD(2**-4), dynamic=False, initial_scale=4.0
        )
        model = fit(optimizer, *data)
        variable = model.trainable_variables[-1]
        variable.assign(ops.zeros(variable.shape))
        gradients = [ops.zeros(v.shape) for v in model.trainable_variables[:-1]]
        pairs = zip([*gradients, ops.ones(variable.shape)], model.trainable_variables, strict=True)
        optimizer.apply_gradients(list(pairs), **told)
        assert ops.convert_to_numpy(variable.value).tolist() == [ended]


@pytest.mark.skipif(BACKEND != "jax", reason="about files that were written on JAX")
def test_a_file_written_on_jax_says_jit_compile(make_model, tmp_path):
    for optimizer in (keras.optimizers.SGD(), LossScaleOptimizer(keras.optimizers.SGD())):
        model = make_model()
        model.compile(optimizer, "mse")
        model.save(tmp_path / "model.keras")
        with zipfile.ZipFile(tmp_path / "model.keras") as file:
            config = json.loads(file.read("config.json"))
        assert config["compile_config"]["jit_compile"] is True


def test_a_skipped_step_draws_random_numbers_and_enters_the_metrics(data):
    """Compared with the run on good data, and with that which never saw the batch."""
    x, y = data
    bad = y.copy()
    batch = range(24, 32)
    bad[batch] = np.nan
    runs = (x, bad), (x, y), (np.delete(x, batch, 0), np.delete(y, batch, 0))
    ends = []
    for run in runs:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5, seed=3)])
        model.add(keras.layers.Dense(1))
        model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.01)), "mse")
        history = model.fit(*run, batch_size=8, shuffle=False, verbose=0).history
        seed = ops.convert_to_numpy(model.layers[0].seed_generator.state).tolist()
        ends.append((seed, history["loss"][0], int(model.optimizer.skipped_steps)))
    bad, good, without = ends
    assert (bad[2], good[2], without[2]) == (1, 0, 0)
    assert bad[0] == good[0] != without[0]
    assert np.isnan(bad[1])
    assert np.isfinite(good[1])


@pytest.mark.skipif(BACKEND != "jax", reason="JAX lends the state to the compiled step")
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_keras_variable_is_on_loan_in_fit(fit, data, wrapped):
    inner = keras.optimizers.SGD(0.01)
    optimizer, asked = LossScaleOptimizer(inner) if wrapped else inner, []

    class Read(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            with pytest.raises(TypeError):
                int(optimizer.iterations)
            asked.append(int(self.model.optimizer.iterations))

    fit(optimizer, *data, callbacks=[Read()])
    assert asked == list(range(1, 9))


def make(optimizer):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model


def test_h5_files_do_not_continue(data, tmp_path):
    model = make(keras.optimizers.Adam())
    model.fit(*data, verbose=0)
    model.save(tmp_path / "model.h5")
    loaded = keras.models.load_model(tmp_path / "model.h5")
    assert len(loaded.optimizer.variables) == 2 < len(model.optimizer.variables)
    with pytest.raises(ValueError, match=r"was (originally )?built with"):
        loaded.fit(*data, verbose=0)


@pytest.mark.skipif(BACKEND != "torch", reason="about a call of torch with an empty list")
def test_weight_decay_with_everything_excluded(data):
    optimizer = keras.optimizers.Adam(weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["kernel", "bias"])
    with pytest.raises(RuntimeError, match="must have at least one tensor"):
        make(optimizer).fit(*data, verbose=0)


DISTRIBUTED = """
import numpy as np, keras, tensorflow as tf
from tests.engines.tensorflow import devices

def fit(strategy, **settings):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse", **settings)
    model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)
"""


@pytest.mark.processes
@pytest.mark.skipif(BACKEND != "tensorflow", reason="MirroredStrategy is TensorFlow's")
def test_several_steps_or_xla_under_mirrored_strategy():
    programs.run(
        "-c",
        DISTRIBUTED
        + """
strategy = tf.distribute.MirroredStrategy(devices(2))
fit(strategy)
for settings in ({"jit_compile": True}, {"steps_per_execution": 2}):
    try:
        fit(strategy, **settings)
    except tf.errors.InvalidArgumentError:
        continue
    raise AssertionError(f"{settings} work")
""",
        imported=True,
    )


@pytest.mark.processes
@pytest.mark.skipif(BACKEND != "tensorflow", reason="MultiWorkerMirroredStrategy is TensorFlow's")
def test_fit_under_several_workers(tmp_path):
    addresses = faults.free_addresses(2)
    with contextlib.ExitStack() as scope:
        logs = [scope.enter_context((tmp_path / f"{i}.log").open("w+")) for i in range(2)]
        workers = []
        for i, log in enumerate(logs):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            program = DISTRIBUTED + "fit(tf.distribute.MultiWorkerMirroredStrategy())"
            worker = programs.started(
                "-c", program, stdout=log, imported=True, TF_CONFIG=json.dumps(task)
            )
            workers.append(scope.enter_context(worker))
        codes = [worker.wait(timeout=100) for worker in workers]
    said = [(tmp_path / f"{i}.log").read_text() for i in range(2)]
    assert all(codes), said
    # The other may end because this one did.
    assert any("ValueError: Attempt to convert a value (PerReplica" in text for text in said), said
