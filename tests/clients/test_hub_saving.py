"""What a saved task of keras-hub keeps: `load_model` drops the optimizer of any class."""

import keras
import pytest
from keras import ops

import keras_mp
from tests.clients.small import keras_own, ours, plain, quick_on, state
from tests.clients.tasks import BATCH, TASKS, train, trained


@quick_on("torch")
@pytest.mark.parametrize("make_optimizer", [ours, keras_own, plain], ids=["ours", "keras", "plain"])
def test_load_model_drops_every_optimizer(make_optimizer, tmp_path):
    """Tasks override `compile`, and Keras then does not compile what it loads."""
    if make_optimizer is plain:
        keras_mp.set_global_policy("float32")
    task = trained(TASKS["bert"], make_optimizer()).task
    task.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert state(loaded.weights) == state(task.weights)
    assert not loaded.optimizer.built
    assert int(loaded.optimizer.iterations) == 0
    assert type(loaded.optimizer) is not keras_mp.LossScaleOptimizer
    # That of `compile()` without arguments, in the constructor of the task.
    inner = getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)
    assert float(inner.learning_rate) == pytest.approx(5e-5)


def test_auto_wrap_restores_float16_scaling(tmp_path):
    task = trained(TASKS["bert"], ours()).task
    task.save(tmp_path / "task.keras")
    with keras_mp.auto_wrap():
        loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert type(loaded.optimizer) is keras_mp.LossScaleOptimizer
    assert float(loaded.optimizer.loss_scale) == float(task.optimizer.loss_scale) == 4096.0


@pytest.mark.parametrize("name", [pytest.param("bert", marks=quick_on("torch")), "gpt2", "resnet"])
@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_it_continues_bit_for_bit(name, suffix, tmp_path):
    """Compile again, build, load: ends where the run without a break does, with the same seeds."""
    path = tmp_path / f"task{suffix}"
    example = trained(TASKS[name], ours())
    if suffix == ".keras":
        example.task.save(path)
        task = keras.saving.load_model(path)
    else:
        example.task.save_weights(path)
        task = TASKS[name]().task
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    task.compile(ours(), loss=loss)
    task.optimizer.build(task.trainable_variables)
    task.load_weights(path)
    assert state(task.optimizer.variables) == state(example.task.optimizer.variables)
    # Of seeds, files of Keras hold none.
    for mine, theirs in zip(
        task.non_trainable_variables, example.task.non_trainable_variables, strict=True
    ):
        mine.assign(ops.convert_to_numpy(theirs))  # a copy: fit takes what JAX lends
    arrays = example.arrays
    for one in (example.task, task):
        train(one, arrays)
    assert int(task.optimizer.iterations) == 8
    assert state(task.trainable_variables) == state(example.task.trainable_variables)
    assert state(task.optimizer.variables) == state(example.task.optimizer.variables)


def test_a_backbone_keeps_its_optimizer(tmp_path):
    """A plain `keras.Model` around a backbone is loaded with all of it."""
    keras.utils.set_random_seed(1)
    example = TASKS["resnet"]()
    backbone = example.task.backbone
    pooled = keras.layers.GlobalAveragePooling2D()(backbone.output)
    model = keras.Model(backbone.input, keras.layers.Dense(2, dtype="float32")(pooled))
    model.compile(ours(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(example.x, example.y, batch_size=BATCH, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is keras_mp.LossScaleOptimizer
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)
    assert state(loaded.weights) == state(model.weights)


@pytest.mark.parametrize("make_optimizer", [ours, plain], ids=["ours", "plain"])
def test_presets_want_the_policy_and_hold_no_optimizer(make_optimizer, tmp_path):
    """keras-hub takes the name of a mixed policy in a preset for a dtype, unless it is told one."""
    task = trained(TASKS["bert"], make_optimizer()).task
    preset = str(tmp_path / "preset")
    task.save_to_preset(preset)
    with pytest.raises(ValueError, match="Invalid dtype: mixed_float16"):
        type(task).from_preset(preset)
    loaded = type(task).from_preset(preset, dtype="mixed_float16")
    assert state(loaded.weights) == state(task.weights)
    assert int(loaded.optimizer.iterations) == 0
