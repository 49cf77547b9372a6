"""keras-tuner, MLflow, W&B, TensorBoard, Orbax, keras-tcn and keras-rs with loss scaling."""

import json

import keras
import numpy as np
import pytest
from keras import ops

import keras_mp
from tests.clients.small import keras_own, ours, plain, quick_on, small_model, state

WITH_PLAIN = pytest.mark.parametrize("make_optimizer", [ours, plain], ids=["ours", "plain"])


@quick_on("jax")
@WITH_PLAIN
@pytest.mark.filterwarnings("ignore:.*was not loaded")  # of the optimizer of the best model
def test_keras_tuner(make_optimizer, tmp_path):
    """Two trials, a new optimizer each; the scale is one of the metrics of a trial."""
    keras_tuner = pytest.importorskip("keras_tuner")
    scales = []

    def build(hyperparameters):
        exponent = hyperparameters.Int("exponent", 8, 15)
        scales.append(2.0**exponent)
        optimizer = ours(2.0**exponent, 1000) if make_optimizer is ours else plain()
        return small_model(optimizer)[0]

    tuner = keras_tuner.RandomSearch(
        build, "val_loss", max_trials=2, seed=1, directory=tmp_path, project_name="search"
    )
    _, x, y = small_model(plain())
    callbacks = [keras_mp.LossScaleMonitor(trace=True)] if make_optimizer is ours else []
    tuner.search(x, y, validation_data=(x, y), epochs=2, verbose=0, callbacks=callbacks)
    trials = tuner.oracle.get_best_trials(2)
    assert {trial.status for trial in trials} == {"COMPLETED"}
    best = tuner.get_best_models(1)[0]
    assert np.isfinite(best.evaluate(x, y, verbose=0))
    if make_optimizer is ours:
        wanted = 2.0 ** trials[0].hyperparameters.get("exponent")
        assert wanted in scales
        assert type(best.optimizer) is keras_mp.LossScaleOptimizer
        assert trials[0].metrics.get_best_value("loss_scale") == wanted


def tracking(mlflow, folder):
    """A store in `folder`, and nothing asked of the network."""
    mlflow.set_tracking_uri(f"sqlite:///{folder}/runs.db")
    experiment = mlflow.create_experiment("scales", artifact_location=f"file://{folder}/artefacts")
    mlflow.set_experiment(experiment_id=experiment)
    return mlflow.MlflowClient()


@quick_on("tensorflow")
def test_mlflow_callback(tmp_path):
    """The monitor before it, and the scale is a metric with a history by epoch."""
    mlflow = pytest.importorskip("mlflow")
    client = tracking(mlflow, tmp_path)
    model, x, y = small_model(ours(growth_steps=3))
    with mlflow.start_run() as run:
        callbacks = [keras_mp.LossScaleMonitor(), mlflow.keras.MlflowCallback()]
        model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=callbacks)
    scales = [each.value for each in client.get_metric_history(run.info.run_id, "loss_scale")]
    assert scales == [2048.0, 4096.0, 16384.0]
    data = client.get_run(run.info.run_id).data
    assert data.metrics["skipped_steps"] == 0
    assert data.params["optimizer_name"] == "loss_scale_optimizer"
    assert data.params["optimizer_initial_scale"] == "1024.0"


@pytest.mark.parametrize(
    "make_optimizer",
    [pytest.param(ours, marks=quick_on("tensorflow")), keras_own],
    ids=["ours", "keras"],
)
def test_mlflow_model(make_optimizer, tmp_path):
    """A model that is logged comes back with its optimizer, and trains on."""
    mlflow = pytest.importorskip("mlflow")
    tracking(mlflow, tmp_path)
    model, x, y = small_model(make_optimizer())
    model.fit(x, y, batch_size=8, verbose=0)
    with mlflow.start_run():
        # Without the list pip is asked for one, which takes half a minute.
        info = mlflow.keras.log_model(model, name="model", pip_requirements=["keras", "keras-mp"])
    loaded = mlflow.keras.load_model(info.model_uri)
    assert type(loaded.optimizer) is type(model.optimizer)
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)
    assert state(loaded.weights) == state(model.weights)
    loaded.fit(x, y, batch_size=8, verbose=0)
    assert int(loaded.optimizer.iterations) == 8


def test_mlflow_autolog(tmp_path):
    """It adds its callback to those given, after the monitor."""
    mlflow = pytest.importorskip("mlflow")
    client = tracking(mlflow, tmp_path)
    model, x, y = small_model(ours(growth_steps=3))
    mlflow.keras.autolog(log_models=False)
    try:
        with mlflow.start_run() as run:
            model.fit(
                x, y, batch_size=8, epochs=2, verbose=0, callbacks=[keras_mp.LossScaleMonitor()]
            )
    finally:
        mlflow.keras.autolog(disable=True)
    scales = [each.value for each in client.get_metric_history(run.info.run_id, "loss_scale")]
    assert scales == [2048.0, 4096.0]


@pytest.fixture
def wandb_run(tmp_path, monkeypatch):
    """A run of W&B that stays on this machine."""
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    wandb = pytest.importorskip("wandb")
    run = wandb.init(project="scales", dir=tmp_path)
    yield run
    run.finish()


@quick_on("jax")
def test_wandb(wandb_run, tmp_path):
    from wandb.integration.keras import WandbMetricsLogger, WandbModelCheckpoint

    model, x, y = small_model(ours(growth_steps=3))
    path = tmp_path / "checkpoint.keras"
    callbacks = [
        keras_mp.LossScaleMonitor(),
        WandbMetricsLogger(),
        WandbModelCheckpoint(str(path)),
    ]
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    summary = dict(wandb_run.summary)
    assert summary["epoch/loss_scale"] == 4096.0
    assert summary["epoch/skipped_steps"] == 0
    assert summary["epoch/learning_rate"] == pytest.approx(1e-2)
    loaded = keras.saving.load_model(path)
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)


def test_tensorboard(tmp_path):
    """Keras' own callback, which writes by TensorFlow on every backend."""
    model, x, y = small_model(ours(growth_steps=3))
    callbacks = [keras_mp.LossScaleMonitor(), keras.callbacks.TensorBoard(tmp_path)]
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(tmp_path / "train"))
    events.Reload()
    written = [float(make_ndarray(e.tensor_proto)) for e in events.Tensors("epoch_loss_scale")]
    assert written == [2048.0, 4096.0]


@quick_on("jax")
@WITH_PLAIN
def test_orbax(make_optimizer, tmp_path):
    """Orbax itself, with all variables as one tree."""
    checkpoint = pytest.importorskip("orbax.checkpoint")

    def variables(model):
        return [*model.weights, *model.optimizer.variables]

    model, x, y = small_model(make_optimizer())
    model.fit(x, y, batch_size=8, verbose=0)
    tree = [ops.convert_to_numpy(v) for v in variables(model)]
    with checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "tree", tree)
    other = small_model(make_optimizer())[0]
    other.optimizer.build(other.trainable_variables)
    with checkpoint.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "tree", tree)
    for variable, value in zip(variables(other), restored, strict=True):
        variable.assign(value)
    assert state(variables(other)) == state(variables(model))


def test_state_trees():
    """`get_state_tree` has the loss scale, and `set_state_tree` puts it back."""
    model, x, y = small_model(ours())
    model.fit(x, y, batch_size=8, verbose=0)
    tree = model.get_state_tree(value_format="numpy_array")  # fit takes what JAX lends
    model.fit(x, y, batch_size=8, verbose=0)
    assert float(model.optimizer.loss_scale) == 16384.0
    model.set_state_tree(tree)
    assert float(model.optimizer.loss_scale) == 4096.0


@pytest.mark.parametrize(
    "make_optimizer",
    [pytest.param(ours, marks=quick_on("tensorflow")), keras_own],
    ids=["ours", "keras"],
)
def test_keras_tcn(make_optimizer, tmp_path):
    """It is written on `tf.keras`, which is Keras 3 on the backend of this process."""
    tcn = pytest.importorskip("tcn")
    random = np.random.RandomState(0)
    x = random.randn(16, 8, 2).astype("float32")
    y = x.sum((1, 2))[:, None] / 8
    model = keras.Sequential(
        [
            keras.Input((8, 2)),
            tcn.TCN(4, kernel_size=2, dilations=[1, 2]),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    model.compile(make_optimizer(initial_scale=16.0), "mse")
    model.fit(x, y, batch_size=4, verbose=0)
    assert int(model.optimizer.iterations) == 4
    if make_optimizer is ours:
        assert float(model.optimizer.loss_scale) == 64.0
        assert keras_mp.find_overflow(model, x, y, loss_scale=1.0).first is None
        assert "mixed_float16" in str(keras_mp.explain(model))
        model.save(tmp_path / "model.keras")
        # Its layers hold Lambdas, which Keras loads where one says so.
        loaded = keras.saving.load_model(tmp_path / "model.keras", safe_mode=False)
        assert state(loaded.optimizer.variables) == state(model.optimizer.variables)


@WITH_PLAIN
def test_keras_rs(make_optimizer, tmp_path):
    """A cross network of KerasRS, saved and loaded with its optimizer."""
    layers = pytest.importorskip("keras_rs").layers
    random = np.random.RandomState(0)
    x = random.randn(32, 4).astype("float32")
    y = (x[:, :1] * x[:, 1:2]).astype("float32")
    inputs = keras.Input((4,))
    crossed = layers.FeatureCross()(inputs, layers.FeatureCross()(inputs, inputs))
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(crossed))
    # Low: with what JAX draws for weights a scale of 2048 is too high.
    options = {"initial_scale": 16.0} if make_optimizer is ours else {}
    model.compile(make_optimizer(**options), "mse")
    model.fit(x, y, batch_size=8, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)
    if make_optimizer is ours:
        assert keras_mp.find_overflow(model, x, y, loss_scale=1.0).first is None
        report = json.loads(json.dumps(keras_mp.find_overflow(model, x, y).to_dict()))
        assert report["loss_scale"] == 64.0
