"""Whatever a workflow does with plain Adam, it does with ours: one oracle for all of them.

Each workflow is a function of a `Kit`, run once with plain optimizers and once with
LossScaleOptimizers around the same. It returns the models whose weights, hyperparameters and
`iterations` are compared, and says with `allowed` which warnings of loading are expected.
"""

import contextlib
import copy
import pickle
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops

from keras_mp import LossScaleOptimizer
from tests.durations import shared

BACKEND = keras.backend.backend()
RANDOM = np.random.RandomState(0)
X = RANDOM.randn(32, 4).astype("float32")
Y = 0.5 * X.sum(1, keepdims=True)
NOT_LOADED = "was not loaded|Skipping variable loading"


def around(inner):
    """A loss scale that skips and changes nothing within these few steps."""
    return LossScaleOptimizer(inner, initial_scale=1024.0)


def alone(inner):
    return inner


@dataclass
class Kit:
    """What a workflow is made of: an optimizer is wrapped or not, all else is the same."""

    wrap: Callable[[Any], Any]
    folder: Path

    def adam(self, rate=1e-3, **options):
        return self.wrap(keras.optimizers.Adam(rate, **options))

    def model(self, optimizer=None, head=1, seed=1):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(8, activation="relu", name="hidden"),
                keras.layers.Dense(4, activation="relu", name="middle"),
                keras.layers.Dense(head, name=f"head{head}"),
            ]
        )
        if optimizer is not None:
            compiled(model, optimizer)
        return model

    def file(self, name="w.weights.h5"):
        return str(self.folder / name)

    def pretrained(self):
        """Writes weights and state of a trained model to `file()`."""
        Path(self.file()).write_bytes(weights_of_trained(self.wrap))


# On TensorFlow most of the time would go into tracing; some workflows are run in a graph, too.
EAGER = BACKEND == "tensorflow"


def compiled(model, optimizer, loss="mse"):
    model.compile(optimizer, loss, run_eagerly=EAGER)
    return model


def fitted(model, epochs=1, **options):
    y = np.tile(Y, (1, model.output_shape[-1]))
    model.fit(X, y, batch_size=16, epochs=epochs, shuffle=False, verbose=0, **options)
    return model


@shared
def weights_of_trained(wrap):
    """Returns the weights file of a trained model."""
    with tempfile.TemporaryDirectory() as folder:
        kit = Kit(wrap, Path(folder))
        fitted(kit.model(kit.adam(1e-2))).save_weights(kit.file())
        return Path(kit.file()).read_bytes()


# -- loading weights into a compiled model ---------------------------------------------------------


def loads_then_fits(kit):
    kit.pretrained()
    model = kit.model(kit.adam(1e-5), seed=2)
    model.load_weights(kit.file())
    return fitted(model)


def sets_the_rate_after_loading(kit):
    kit.pretrained()
    model = kit.model(kit.adam(1e-3), seed=2)
    model.load_weights(kit.file())
    model.optimizer.learning_rate = 1e-5
    return fitted(model)


def compiles_after_loading(kit):
    kit.pretrained()
    model = kit.model(seed=2)
    model.load_weights(kit.file())
    compiled(model, kit.adam(1e-5), "mse")
    return fitted(model)


def freezes_then_loads(kit):
    kit.pretrained()
    model = kit.model(seed=2)
    model.layers[0].trainable = False
    compiled(model, kit.adam(1e-5), "mse")
    model.load_weights(kit.file())
    return fitted(model)


def loads_then_freezes(kit):
    kit.pretrained()
    model = kit.model(kit.adam(1e-5), seed=2)
    model.load_weights(kit.file())
    model.layers[0].trainable = False
    compiled(model, kit.adam(1e-5), "mse")
    return fitted(model)


def a_new_head_by_skip_mismatch(kit):
    kit.pretrained()
    model = kit.model(kit.adam(1e-5), head=3, seed=2)
    model.load_weights(kit.file(), skip_mismatch=True)
    return fitted(model)


def another_optimizer_before_its_first_step(kit):
    kit.pretrained()
    model = kit.model(kit.wrap(keras.optimizers.SGD(1e-3, momentum=0.9)), seed=2)
    model.load_weights(kit.file())
    return fitted(model)


def another_optimizer_that_is_built(kit):
    kit.pretrained()
    model = fitted(kit.model(kit.wrap(keras.optimizers.SGD(1e-3, momentum=0.9)), seed=2))
    model.load_weights(kit.file())
    return fitted(model)


def other_options_that_add_slots(kit):
    kit.pretrained()
    model = fitted(kit.model(kit.adam(1e-4, use_ema=True), seed=2))
    model.load_weights(kit.file())
    return fitted(model)


def a_built_optimizer_restores(kit):
    kit.pretrained()
    model = fitted(kit.model(kit.adam(1e-5), seed=2))
    model.load_weights(kit.file())
    return fitted(model)


def an_optimizer_built_by_hand_restores(kit):
    kit.pretrained()
    model = kit.model(kit.adam(1e-5), seed=2)
    model.optimizer.build(model.trainable_variables)
    model.load_weights(kit.file())
    return fitted(model)


def a_built_optimizer_of_fewer_variables(kit):
    kit.pretrained()
    model = kit.model(seed=2)
    model.layers[0].trainable = False
    compiled(model, kit.adam(1e-5), "mse")
    fitted(model)
    model.load_weights(kit.file())
    return fitted(model)


def a_file_without_an_optimizer(kit):
    kit.model().save_weights(kit.file())
    model = fitted(kit.model(kit.adam(1e-5), seed=2))
    model.load_weights(kit.file())
    return fitted(model)


def two_stages_with_the_best_weights(kit):
    """ModelCheckpoint while frozen, unfreeze, recompile, load the best, go on slowly."""
    model = kit.model()
    model.layers[0].trainable = False
    compiled(model, kit.adam(1e-2), "mse")
    best = keras.callbacks.ModelCheckpoint(
        kit.file(), monitor="loss", save_best_only=True, save_weights_only=True
    )
    fitted(model, epochs=3, callbacks=[best])
    model.layers[0].trainable = True
    compiled(model, kit.adam(1e-4), "mse")
    model.load_weights(kit.file())
    return fitted(model, epochs=2)


def loads_the_best_and_goes_on(kit):
    model = kit.model(kit.adam(1e-2))
    best = keras.callbacks.ModelCheckpoint(
        kit.file(), monitor="loss", save_best_only=True, save_weights_only=True
    )
    fitted(model, epochs=3, callbacks=[best])
    model.load_weights(kit.file())
    return fitted(model)


def restores_the_best_weights(kit):
    model = kit.model(kit.adam(0.5))
    stop = keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
    return fitted(model, epochs=6, callbacks=[stop])


def loads_twice(kit):
    kit.pretrained()
    model = kit.model(kit.adam(1e-5), seed=2)
    model.load_weights(kit.file())
    fitted(model)
    model.load_weights(kit.file())
    return fitted(model)


def loads_a_keras_file_as_weights(kit):
    fitted(kit.model(kit.adam(1e-2))).save(kit.file("m.keras"))
    model = kit.model(kit.adam(1e-5), seed=2)
    model.load_weights(kit.file("m.keras"))
    return fitted(model)


# -- whole models, copies --------------------------------------------------------------------------


def saves_and_loads_a_model(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    model.save(kit.file("m.keras"))
    return fitted(keras.saving.load_model(kit.file("m.keras")))


def loads_a_model_and_sets_the_rate(kit):
    fitted(kit.model(kit.adam(1e-2))).save(kit.file("m.keras"))
    model = keras.saving.load_model(kit.file("m.keras"))
    model.optimizer.learning_rate = 1e-4
    return fitted(model)


def loads_a_model_and_compiles_anew(kit):
    fitted(kit.model(kit.adam(1e-2))).save(kit.file("m.keras"))
    model = keras.saving.load_model(kit.file("m.keras"))
    model.layers[0].trainable = False
    compiled(model, kit.adam(1e-4), "mse")
    return fitted(model)


def loads_a_model_without_compiling(kit):
    fitted(kit.model(kit.adam(1e-2))).save(kit.file("m.keras"))
    model = keras.saving.load_model(kit.file("m.keras"), compile=False)
    compiled(model, kit.adam(1e-4), "mse")
    return fitted(model)


def pickles_a_model(kit):
    return fitted(pickle.loads(pickle.dumps(fitted(kit.model(kit.adam(1e-2))))))


def copies_a_model(kit):
    return fitted(copy.deepcopy(fitted(kit.model(kit.adam(1e-2)))))


def clones_a_model(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    compiled(clone, kit.adam(1e-4), "mse")
    return fitted(clone), fitted(model)


def compiles_a_clone_from_the_config(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    clone = keras.models.clone_model(model)
    clone.compile_from_config(model.get_compile_config())
    clone.set_weights(model.get_weights())
    return fitted(clone)


def moves_weights_between_models(kit):
    source = fitted(kit.model(kit.adam(1e-2)))
    target = kit.model(kit.adam(1e-4), head=3, seed=2)
    for old, new in zip(source.layers[:2], target.layers[:2], strict=True):
        new.set_weights(old.get_weights())
    return fitted(target)


def moves_the_optimizer_state(kit):
    """Of a plain optimizer `set_weights` takes `variables`; ours takes what `get_weights` gives."""
    source = fitted(kit.model(kit.adam(1e-2)))
    target = kit.model(kit.adam(1e-4), seed=2)
    target.set_weights(source.get_weights())
    target.optimizer.build(target.trainable_variables)
    target.optimizer.set_weights([ops.convert_to_numpy(v) for v in source.optimizer.variables])
    return fitted(target)


def makes_the_optimizer_from_its_config(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    config = keras.optimizers.serialize(model.optimizer)
    compiled(model, keras.optimizers.deserialize(config), "mse")
    return fitted(model)


def keeps_a_state_tree(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    tree = model.get_state_tree(value_format="numpy_array")
    other = fitted(kit.model(kit.adam(1e-4), seed=2))
    other.set_state_tree({k: tree[k] for k in ("trainable_variables", "optimizer_variables")})
    return fitted(other)


# -- training in parts -----------------------------------------------------------------------------


def fits_twice(kit):
    return fitted(fitted(kit.model(kit.adam(1e-2))))


def compiles_again_with_the_same_optimizer(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    compiled(model, model.optimizer, "mae")
    return fitted(model)


def compiles_again_with_another(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    compiled(model, kit.adam(1e-3), "mae")
    return fitted(model)


def freezes_between_fits(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    model.layers[0].trainable = False
    compiled(model, kit.adam(1e-3), "mse")
    fitted(model)
    model.layers[0].trainable = True
    compiled(model, kit.adam(1e-4), "mse")
    return fitted(model)


def freezes_and_keeps_the_optimizer(kit):
    model = fitted(kit.model(kit.adam(1e-2)))
    model.layers[0].trainable = False
    compiled(model, model.optimizer, "mse")
    return fitted(model)


def trains_batch_by_batch(kit):
    model = kit.model(kit.adam(1e-2))
    for i in range(0, 32, 8):
        model.train_on_batch(X[i : i + 8], Y[i : i + 8])
    return fitted(model)


def one_optimizer_for_two_models(kit):
    optimizer = kit.adam(1e-2)
    first = fitted(kit.model(optimizer))
    second = kit.model(optimizer, seed=2)
    return first, fitted(second)


def a_callback_changes_the_rate(kit):
    rate = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    return fitted(kit.model(kit.adam(1e-2)), epochs=3, callbacks=[rate])


def the_rate_falls_on_a_plateau(kit):
    rate = keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=1e9)
    return fitted(kit.model(kit.adam(1e-2)), epochs=4, callbacks=[rate])


def backs_up_and_restores(kit):
    class Interrupted(Exception):
        pass

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise Interrupted

    def backup():
        return keras.callbacks.BackupAndRestore(str(kit.folder / "backup"))

    with contextlib.suppress(Interrupted):
        fitted(kit.model(kit.adam(1e-2)), epochs=4, callbacks=[backup(), Stop()])
    return fitted(kit.model(kit.adam(1e-5), seed=2), epochs=4, callbacks=[backup()])


def swaps_in_the_averages(kit):
    options = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": None}
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    return fitted(kit.model(kit.adam(1e-2, **options)), epochs=2, callbacks=[swap])


# -- options of the optimizer ----------------------------------------------------------------------


def with_options(**options):
    def workflow(kit):
        model = fitted(kit.model(kit.adam(1e-2, **options)), epochs=2)
        model.save_weights(kit.file())
        other = fitted(kit.model(kit.adam(1e-4, **options), seed=2))
        other.load_weights(kit.file())
        return fitted(other)

    return workflow


def with_a_schedule(kit):
    def scheduled():
        return kit.adam(keras.optimizers.schedules.ExponentialDecay(1e-2, 3, 0.5))

    fitted(kit.model(scheduled())).save_weights(kit.file())
    model = kit.model(scheduled(), seed=2)
    model.load_weights(kit.file())
    return fitted(model)


def a_schedule_in_place_of_a_rate(kit):
    kit.pretrained()
    rate = keras.optimizers.schedules.ExponentialDecay(1e-2, 3, 0.5)
    model = fitted(kit.model(kit.adam(rate), seed=2))
    model.load_weights(kit.file())
    return fitted(model)


def several_optimizers(kit):
    if not hasattr(keras.optimizers, "MultiOptimizer"):
        pytest.skip("keras.optimizers.MultiOptimizer came with Keras 3.15")
    adam, sgd = keras.optimizers.Adam(1e-2), keras.optimizers.SGD(1e-2)

    def by_kind(variable):
        return sgd if "kernel" in variable.path else adam

    return fitted(fitted(kit.model(kit.wrap(keras.optimizers.MultiOptimizer(by_kind)))))


def orbax(kit):
    pytest.importorskip("orbax.checkpoint")
    if not hasattr(keras.callbacks, "OrbaxCheckpoint"):
        pytest.skip("keras.callbacks.OrbaxCheckpoint came with Keras 3.14")
    keep = keras.callbacks.OrbaxCheckpoint(
        directory=str(kit.folder / "o"), save_on_background=False
    )
    fitted(kit.model(kit.adam(1e-2)), callbacks=[keep])
    model = fitted(kit.model(kit.adam(1e-4), seed=2))
    model.load_weights(str(kit.folder / "o"))
    return fitted(model)


WORKFLOWS = {
    each.__name__: (each, said)
    for each, said in {
        loads_then_fits: 1,
        sets_the_rate_after_loading: 1,
        compiles_after_loading: 0,
        freezes_then_loads: 1,
        loads_then_freezes: 1,
        a_new_head_by_skip_mismatch: 1,
        another_optimizer_before_its_first_step: 1,
        another_optimizer_that_is_built: 1,
        other_options_that_add_slots: 1,
        a_built_optimizer_restores: 0,
        an_optimizer_built_by_hand_restores: 0,
        a_built_optimizer_of_fewer_variables: 1,
        a_file_without_an_optimizer: 1,
        two_stages_with_the_best_weights: 1,
        loads_the_best_and_goes_on: 0,
        restores_the_best_weights: 0,
        loads_twice: 1,
        loads_a_keras_file_as_weights: 1,
        saves_and_loads_a_model: 0,
        loads_a_model_and_sets_the_rate: 0,
        loads_a_model_and_compiles_anew: 0,
        loads_a_model_without_compiling: 0,
        pickles_a_model: 0,
        copies_a_model: 0,
        clones_a_model: 0,
        compiles_a_clone_from_the_config: 0,
        moves_weights_between_models: 0,
        moves_the_optimizer_state: 0,
        makes_the_optimizer_from_its_config: 0,
        keeps_a_state_tree: 0,
        fits_twice: 0,
        compiles_again_with_the_same_optimizer: 0,
        compiles_again_with_another: 0,
        freezes_between_fits: 0,
        freezes_and_keeps_the_optimizer: 0,
        trains_batch_by_batch: 0,
        one_optimizer_for_two_models: 0,
        a_callback_changes_the_rate: 0,
        the_rate_falls_on_a_plateau: 0,
        backs_up_and_restores: 0,
        swaps_in_the_averages: 0,
        with_a_schedule: 1,
        a_schedule_in_place_of_a_rate: 1,
        several_optimizers: 0,
        orbax: 0,
    }.items()
} | {
    f"with {', '.join(options)}": (with_options(**options), 0)
    for options in (
        {"use_ema": True, "ema_overwrite_frequency": 2},
        {"gradient_accumulation_steps": 2},
        {"clipnorm": 0.1},
        {"global_clipnorm": 0.1, "weight_decay": 0.01},
        {"amsgrad": True, "clipvalue": 0.1},
    )
}


def observed(workflow, wrap, folder):
    """Returns what a workflow left of each model, or the type of what it raised; and warnings."""
    folder.mkdir()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            models = workflow(Kit(wrap, folder))
        except ValueError as error:
            return type(error), []
    found = []
    for model in models if isinstance(models, tuple) else (models,):
        optimizer = model.optimizer
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        found.append(
            {
                "class": type(inner).__name__,
                "config": {k: v for k, v in inner.get_config().items() if k != "name"},
                "iterations": int(optimizer.iterations),
                "rate": np.float32(ops.convert_to_numpy(optimizer.learning_rate))
                if not hasattr(inner, "optimizers")
                else None,
                "weights": [ops.convert_to_numpy(v) for v in model.weights],
                "state": [ops.convert_to_numpy(v) for v in inner.variables],
            }
        )
    return found, [str(w.message) for w in caught]


@pytest.mark.parametrize(("workflow", "said"), WORKFLOWS.values(), ids=WORKFLOWS)
def test_ends_as_with_the_plain_optimizer(workflow, said, tmp_path):
    check(workflow, said, tmp_path)


@pytest.mark.skipif(not EAGER, reason="all the others are compiled on JAX, and none on torch")
@pytest.mark.parametrize(
    "name", ["loads_then_fits", "freezes_then_loads", "saves_and_loads_a_model"]
)
def test_in_a_graph(name, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "EAGER", False)
    check(*WORKFLOWS[name], tmp_path)


def check(workflow, said, tmp_path):
    plain, _ = observed(workflow, alone, tmp_path / "plain")
    ours, messages = observed(workflow, around, tmp_path / "ours")
    if isinstance(plain, type):
        assert ours is plain
        return
    assert not isinstance(ours, type), ours
    for expected, found in zip(plain, ours, strict=True):
        for key in ("class", "config", "iterations", "rate"):
            assert found[key] == expected[key], key
        for key in ("weights", "state"):
            for a, b in zip(expected[key], found[key], strict=True):
                np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-7, err_msg=key)
    not_loaded = [m for m in messages if "was not loaded" in m]
    assert len(not_loaded) == said, messages
    assert all("keras_mp.resume" in m for m in not_loaded)


def test_a_state_of_other_shapes_is_taken_whole_or_not(tmp_path):
    """Plain Adam takes the rate and some slots of it, before it comes to the head and stops."""
    kit = Kit(around, tmp_path)
    kit.pretrained()
    model = fitted(kit.model(kit.adam(1e-5), head=3, seed=2))
    before = [ops.convert_to_numpy(v) for v in model.optimizer.variables]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.load_weights(kit.file(), skip_mismatch=True)
    assert sum("was not loaded" in str(w.message) for w in caught) == 1
    for old, variable in zip(before, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), old)
    fitted(model)
