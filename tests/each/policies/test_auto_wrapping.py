"""`auto_wrap`: which models get our optimizer from `compile`, and that it comes off entirely."""

import keras
import numpy as np
import pytest

import keras_mp
from keras_mp import LossScaleOptimizer
from keras_mp.backends.common import trainer_hook
from keras_mp.backends.common.trainer_hook import trainer_class
from keras_mp.policies import auto_wrapping

DATA = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


@pytest.fixture
def wrapping():
    with keras_mp.auto_wrap():
        yield
    assert not auto_wrapping.is_active()


def dense(*policies):
    layers = [keras.layers.Dense(4, dtype=policy) for policy in policies]
    return keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, dtype="float32")])


def mapped():
    """The model's own policy is a map, which has no name to look at."""
    model = dense("mixed_float16")
    model.dtype_policy = keras.dtype_policies.DTypePolicyMap()
    return model


def nested():
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(1)(dense("mixed_float16")(inputs)))


class Subclassed(keras.Model):
    def __init__(self, policy):
        super().__init__(dtype="float32")
        self.d = keras.layers.Dense(1, dtype=policy)

    def call(self, x):
        return self.d(x)


class Late(keras.Model):
    """Its layer is not there before build, let alone at compile."""

    def __init__(self, policy):
        super().__init__(dtype="float32")
        self._policy = policy

    def build(self, shape):
        self.d = keras.layers.Dense(1, dtype=self._policy)
        self.d.build(shape)
        self.built = True

    def call(self, x):
        return self.d(x)


FLOAT16 = {
    "layers only": lambda: dense("mixed_float16"),
    "one of many": lambda: dense("float32", "mixed_float16", "mixed_bfloat16"),
    "pure float16": lambda: dense("float16"),
    "nested": nested,
    "float8": lambda: dense("float8_from_mixed_float16"),
    "policy map": mapped,
    "subclassed": lambda: Subclassed("mixed_float16"),
}
OTHER = {
    "float32": lambda: dense("float32"),
    "bfloat16": lambda: dense("mixed_bfloat16"),
    "float16 input": lambda: keras.Sequential(
        [keras.Input((4,), dtype="float16"), keras.layers.Dense(1, dtype="float32")]
    ),
}


@pytest.mark.parametrize("make", FLOAT16.values(), ids=FLOAT16)
def test_wraps_where_a_layer_computes_in_float16(make, wrapping):
    model = make()
    model.compile("sgd", "mse")
    assert type(model.optimizer) is LossScaleOptimizer
    model.train_on_batch(*DATA)
    assert int(model.optimizer.iterations) == 1


@pytest.mark.parametrize("make", OTHER.values(), ids=OTHER)
def test_leaves_others_alone(make, wrapping):
    model = make()
    model.compile("sgd", "mse")
    model.train_on_batch(*DATA)
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_wraps_under_a_global_policy(wrapping):
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    assert type(model.optimizer) is LossScaleOptimizer
    assert model.optimizer.name == "loss_scale_optimizer"


@pytest.mark.parametrize("policy", ["mixed_float16", "float32"])
@pytest.mark.parametrize("how", ["fit", "train_on_batch", "eager"])
def test_layers_unknown_at_compile_are_decided_at_build(policy, how, wrapping):
    model = Late(policy)
    model.compile("sgd", "mse", run_eagerly=how == "eager")
    assert not isinstance(model.optimizer, LossScaleOptimizer)
    if how == "train_on_batch":
        model.train_on_batch(*DATA)
    else:
        model.fit(*DATA, batch_size=4, verbose=0)
    assert isinstance(model.optimizer, LossScaleOptimizer) == (policy == "mixed_float16")
    assert int(model.optimizer.iterations) == (1 if how == "train_on_batch" else 2)
    if policy == "mixed_float16":
        # The first step was scaled, and counted or skipped.
        steps = int(model.optimizer.iterations)
        skipped = round(np.log2(2.0**15 / float(model.optimizer.loss_scale)))
        assert int(model.optimizer.dynamic_counter) == steps - skipped


def test_our_optimizer_is_never_touched(wrapping):
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False, initial_scale=8.0)
    model = dense("mixed_float16")
    model.compile(optimizer, "mse")
    assert model.optimizer is optimizer


def test_keras_own_class_is_replaced_with_its_state(wrapping):
    model = dense("mixed_float16")
    theirs = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.5), initial_scale=0.5, dynamic_growth_steps=9, name="mine"
    )
    theirs.build(model.trainable_variables)
    theirs.dynamic_scale.assign(64.0)
    theirs.step_counter.assign(5)
    model.compile(theirs, "mse")
    ours = model.optimizer
    assert type(ours) is LossScaleOptimizer
    assert ours.inner_optimizer is theirs.inner_optimizer
    assert (float(ours.loss_scale), int(ours.dynamic_counter)) == (64.0, 5)
    assert (ours.initial_scale, ours.dynamic_growth_steps, ours.name) == (0.5, 9, "mine")


def test_recompiling_keeps_the_wrapper(wrapping):
    model, optimizer = dense("mixed_float16"), keras.optimizers.SGD()
    model.compile(optimizer, "mse")
    model.optimizer.dynamic_scale.assign(64.0)  # and nothing else holds the wrapper
    model.compile(optimizer, "mse")
    assert float(model.optimizer.loss_scale) == 64.0


def test_a_loss_scale_factor_is_not_cleared_in_silence(wrapping):
    optimizer = keras.optimizers.SGD(loss_scale_factor=8.0)
    with pytest.warns(UserWarning, match=r"loss_scale_factor=8\.0.*cleared"):
        dense("mixed_float16").compile(optimizer, "mse")
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    with pytest.warns(UserWarning, match=r"loss_scale_factor=8\.0.*cleared"):
        model.compile(keras.optimizers.SGD(loss_scale_factor=8.0), "mse")


@pytest.mark.parametrize("explicit", [False, True], ids=["compiled adam", "compiled Keras' class"])
def test_files_of_keras_own_class_come_back_with_ours(explicit, state, tmp_path):
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    adam = keras.optimizers.Adam(0.01)
    model.compile(keras.optimizers.LossScaleOptimizer(adam) if explicit else adam, "mse")
    model.fit(*DATA, batch_size=2, verbose=0)
    path = str(tmp_path / "theirs.keras")
    model.save(path)
    with keras_mp.auto_wrap():
        loaded = keras.saving.load_model(path)
    assert type(loaded.optimizer) is LossScaleOptimizer
    shared = 4 + len(model.optimizer.inner_optimizer.variables)
    assert state(loaded.optimizer.variables[:shared]) == state(model.optimizer.variables[:shared])


def test_our_files_open_in_plain_keras(state, tmp_path):
    """What compile wrapped is written as what compile was given."""
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    with keras_mp.auto_wrap():
        model.compile("adam", "mse")
    model.fit(*DATA, batch_size=2, verbose=0)
    path = str(tmp_path / "ours.keras")
    model.save(path)
    with pytest.warns(UserWarning, match="Skipping variable loading"):  # of the second copy
        loaded = keras.saving.load_model(path)
    assert type(loaded.optimizer) is keras.optimizers.LossScaleOptimizer
    shared = 4 + len(model.optimizer.inner_optimizer.variables)
    assert state(loaded.optimizer.variables[:shared]) == state(model.optimizer.variables[:shared])


def test_auto_scale_loss_false_is_respected_and_saved(wrapping, state, tmp_path):
    """Keras forgets the argument in the file, and scales after loading."""
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse", auto_scale_loss=False)
    model.fit(*DATA, batch_size=2, verbose=0)
    path = str(tmp_path / "plain.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert type(loaded.optimizer) is type(model.optimizer)
    assert state(loaded.optimizer.variables) == state(model.optimizer.variables)


def test_is_undone_completely():
    trainer = trainer_class()
    before = {name: vars(trainer)[name] for name in ("compile", "_symbolic_build", "_compute_loss")}
    undo = keras_mp.auto_wrap()
    with keras_mp.auto_wrap():
        assert vars(trainer)["compile"] is not before["compile"]
    assert auto_wrapping.is_active(), "the outer one is still in force"
    undo()
    undo()
    assert not auto_wrapping.is_active()
    assert {name: vars(trainer)[name] for name in before} == before
    model = dense("mixed_float16")
    model.compile("sgd", "mse")
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_is_undone_when_the_block_raises():
    with pytest.raises(KeyError), keras_mp.auto_wrap():
        raise KeyError
    assert not auto_wrapping.is_active()


def test_an_undecided_model_stays_plain_after_undo():
    with keras_mp.auto_wrap():
        model = Late("mixed_float16")
        model.compile("sgd", "mse")
    model.fit(*DATA, verbose=0)
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_recompiling_under_a_global_policy_keeps_the_scale(wrapping):
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD()
    model.compile(optimizer, "mse")
    model.optimizer.dynamic_scale.assign(64.0)
    model.compile(optimizer, "mse")
    assert float(model.optimizer.loss_scale) == 64.0


def test_keras_own_wrapper_around_what_we_wrapped_already(wrapping):
    """The scale of now, not of the fresh wrapper."""
    model, optimizer = dense("mixed_float16"), keras.optimizers.SGD()
    model.compile(optimizer, "mse")
    model.train_on_batch(*DATA)
    ours = model.optimizer
    ours.dynamic_scale.assign(64.0)
    theirs = keras.optimizers.LossScaleOptimizer(optimizer)
    theirs.build(model.trainable_variables)
    model.compile(theirs, "mse")
    assert model.optimizer is ours
    assert float(ours.loss_scale) == 64.0


def test_recompiling_an_undecided_model_with_ours(wrapping):
    model, optimizer = Late("mixed_float16"), LossScaleOptimizer(keras.optimizers.SGD())
    model.compile("sgd", "mse")
    model.compile(optimizer, "mse")
    model.train_on_batch(*DATA)
    assert model.optimizer is optimizer


def test_an_undecided_model_is_forgotten_by_undo():
    model = Late("mixed_float16")
    with keras_mp.auto_wrap():
        model.compile("sgd", "mse")
    with keras_mp.auto_wrap():
        model.train_on_batch(*DATA)
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def test_a_layer_that_is_never_called_does_not_hold_up_the_others(wrapping):
    model = Late("mixed_float16")
    model.spare = keras.layers.Dense(1)
    model.compile("sgd", "mse")
    model.fit(*DATA, batch_size=4, verbose=0)
    assert type(model.optimizer) is LossScaleOptimizer


def test_no_optimizer(wrapping):
    model = dense("mixed_float16")
    model.compile(optimizer=None, loss="mse")
    assert model.optimizer is None


def test_somebodys_own_loss_scale_optimizer_is_left_alone(wrapping):
    class Mine(keras.optimizers.LossScaleOptimizer):
        pass

    model, optimizer = dense("mixed_float16"), Mine(keras.optimizers.SGD())
    model.compile(optimizer, "mse")
    assert model.optimizer is optimizer


def test_undo_under_somebody_elses_hook():
    """Theirs stays, and calls through ours, which does nothing any more."""
    trainer = trainer_class()
    original = vars(trainer)["compile"]
    undo = keras_mp.auto_wrap()
    ours = vars(trainer)["compile"]

    def theirs(self, *args, **kwargs):
        return ours(self, *args, **kwargs)

    trainer.compile = theirs
    try:
        undo()
        assert vars(trainer)["compile"] is theirs
        model = dense("mixed_float16")
        model.compile("sgd", "mse")
        assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    finally:
        trainer.compile = original


def test_a_keras_that_has_changed_is_named(monkeypatch):
    class Other:
        compile = keras.Model.compile

    monkeypatch.setattr(trainer_hook, "trainer_class", lambda: Other)
    with pytest.raises(RuntimeError, match=r"hooks Other\._symbolic_build.*Pass keras_mp"):
        keras_mp.auto_wrap()
    assert not auto_wrapping.is_active()
    original = Other.compile
    trainer_hook.install(lambda *_: None, lambda *_: None)()  # needs neither
    assert Other.compile is original
