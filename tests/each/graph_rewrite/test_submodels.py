"""Models that a `train_step` of one's own calls: rewritten with the model that holds them."""

import gc
import warnings
import weakref

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import graph_rewrite
from keras_mp.graph_rewrite import rewritten
from tests.graph_rewrite_kinds import low_ops, numpy
from tests.lowered import float16_on_cpu, products, training_step
from tests.own_steps import BATCH, LATENT, SIDE, OwnStep, decoder, gan, rows, vae

pytestmark = pytest.mark.usefixtures("hooked")

BACKEND = keras.backend.backend()
LOW, FULL = frozenset({"float16"}), frozenset({"float32"})


@pytest.fixture
def hooked(rewrite_ends):
    """Has `compile` hooked before a test looks it up, so that it rewrites at once."""
    graph_rewrite.enable(sgd())


def sgd():
    return keras.optimizers.SGD(0.1)


def enabled(loss_scale=8.0, **options):
    return graph_rewrite.enable(sgd(), loss_scale, **options)


def is_rewritten(*models):
    return [rewritten.state_of(model) is not None for model in models]


def outputs(model):
    """Returns what the models in a VAE or a GAN compute."""
    if hasattr(model, "encoder"):
        mean, log_variance, _ = model.encoder(rows())
        return [numpy(x) for x in (mean, log_variance, model.decoder(rows()[:, :LATENT]))]
    return [numpy(model.generator(rows()[:, :LATENT])), numpy(model.discriminator(rows()))]


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a, b)


def assert_differ(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert not np.array_equal(a, b)
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=5e-3)


# -- what is computed ------------------------------------------------------------------------------


def lowered_step(optimizer):
    model = vae()
    model.compile(optimizer, jit_compile=False)
    with float16_on_cpu():
        return [op.dtypes for op in products(training_step(model, rows(), rows()))]


def test_products_of_a_vae_compute_in_float16_forward_and_backward():
    plain, ours = lowered_step(sgd()), lowered_step(enabled())
    assert len(plain) == 5 + 9  # the gradient of the first layer's inputs is not needed
    assert plain == [FULL] * len(plain)
    assert ours == [LOW] * len(plain)


def trained(optimizer):
    model = vae()
    model.compile(optimizer)
    history = model.fit(rows(), batch_size=BATCH, epochs=8, shuffle=False, verbose=0)
    return history.history["total"], model.get_weights()


def test_a_vae_learns_as_in_float32():
    losses, weights = trained(sgd())
    ours, our_weights = trained(enabled())
    assert losses[-1] < losses[0]
    assert ours != losses
    np.testing.assert_allclose(ours, losses, rtol=2e-3)
    for a, b in zip(our_weights, weights, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-3)


def trained_gan(*optimizers):
    model = gan()
    model.compile(*optimizers)
    found = [model.train_on_batch(rows()[:BATCH], return_dict=True) for _ in range(2)]
    return model, [[float(logs[key]) for key in "dg"] for logs in found]


def test_a_gan_learns_as_in_float32():
    _, losses = trained_gan(sgd(), sgd())
    d_optimizer, g_optimizer = enabled(), enabled(loss_scale="dynamic")
    model, ours = trained_gan(d_optimizer, g_optimizer)
    assert ours != losses
    np.testing.assert_allclose(ours, losses, rtol=2e-3)
    for each in (model.generator, model.discriminator):
        assert "matmul" in low_ops(each)
    assert [int(each.iterations) for each in (d_optimizer, g_optimizer)] == [2, 2]


def test_a_call_that_does_not_say_whether_it_trains_is_painted_with_its_gradient():
    model = vae()
    model.compile(enabled())
    model.encoder(rows())
    model.encoder(rows(), training=False)
    model.decoder.predict(rows()[:, :LATENT], verbose=0)
    assert [list(rewritten.state_of(model.encoder).latest)] == [[True, False]]
    assert list(rewritten.state_of(model.decoder).latest) == [False]


class Called(OwnStep):
    """Has a `call`, too: its models run in that of the whole, or alone."""

    def __init__(self, first, second, **options):
        super().__init__(**options)
        self.first, self.second = first, second
        self.whole = True

    def call(self, x):
        return self.second(ops.softmax(self.first(x)))

    def loss_of(self, x):
        found = self(x) if self.whole else self.second(ops.softmax(self.first(x)))
        return ops.mean(ops.square(found - x))


def called():
    keras.utils.set_random_seed(0)
    dense = [layers.Dense(units, name=name) for units, name in ((8, "a"), (4, "b"), (SIDE, "c"))]
    first = keras.Sequential([keras.Input((SIDE,)), *dense[:2]], name="first")
    second = keras.Sequential([keras.Input((4,)), dense[2]], name="second")
    model = Called(first, second)
    model(rows())
    return model


def test_models_are_painted_in_the_model_that_calls_them():
    plain, model = called(), called()
    graph_rewrite.apply(plain)
    expected = numpy(plain(rows(), training=True))
    model.compile(enabled())
    assert np.array_equal(numpy(model(rows(), training=True)), expected)
    assert [bool(rewritten.state_of(m).plans) for m in (model, model.first)] == [True, False]
    assert graph_rewrite.report(model).rows == graph_rewrite.report(plain).rows
    model.train_on_batch(rows())
    assert not rewritten.state_of(model.first).plans
    model.whole = False
    model.compile(enabled())
    model.train_on_batch(rows())
    assert low_ops(model.first) == {"matmul", "add"}


# -- which models ----------------------------------------------------------------------------------


def small(name, units=3):
    return keras.Sequential([keras.Input((SIDE,)), layers.Dense(units)], name=name)


class Holder(OwnStep):
    """Holds models in every way that Keras follows."""

    def __init__(self, inner_too=False):
        super().__init__()
        inner = small("inner", SIDE)
        self.nested = keras.Sequential([keras.Input((SIDE,)), inner, layers.Dense(2)])
        if inner_too:
            self.inner = inner
        self.several = [small("a"), small("b")]
        self.named = {"c": small("c"), "d": layers.Dense(3, name="plain")}
        self.wrapped = layers.TimeDistributed(small("e"))
        self.built = True

    def models(self):
        return [self.nested, *self.several, self.named["c"], self.wrapped.layer]

    def loss_of(self, x):
        found = [self.nested(x), *[each(x) for each in (*self.several, *self.named.values())]]
        return sum(map(ops.mean, (*found, self.wrapped(x[:, None]))))


def test_the_outermost_models_are_rewritten_wherever_they_are_held():
    model = Holder()
    model.compile(enabled())
    assert all(is_rewritten(model, *model.models()))
    others = [each for each in model._flatten_layers(False) if each not in model.models()]
    assert {"inner", "plain"} <= {each.name for each in others}
    assert not any(is_rewritten(*others))
    graph_rewrite.disable()
    assert not any(is_rewritten(model, *model.models()))


def test_a_model_in_a_model_is_painted_once():
    """Also where both are children: called alone it is painted by itself."""
    model = Holder(inner_too=True)
    plain = numpy(model.nested(rows()))
    model.compile(enabled())
    ours = numpy(model.nested(rows()))
    assert rewritten.state_of(model.inner) is not None
    assert not rewritten.state_of(model.inner).plans
    model.compile(sgd())
    assert np.array_equal(numpy(model.nested(rows())), plain)
    graph_rewrite.apply(model.nested)
    assert np.array_equal(numpy(model.nested(rows(), training=True)), ours)


def test_models_of_a_model_with_the_step_of_keras_are_left_alone():
    inner = small("inner")
    model = keras.Sequential([keras.Input((SIDE,)), inner])
    model.compile(enabled(), "mse")
    assert is_rewritten(model, inner) == [True, False]


def test_a_step_that_one_model_was_given():
    inner = small("inner")
    model = keras.Sequential([keras.Input((SIDE,)), inner])
    model.train_step = lambda *args: None
    model.compile(enabled())
    assert is_rewritten(model, inner) == [True, True]


def test_a_model_without_weights_is_not_warned_of():
    """Such as one that augments images."""

    class Augmented(OwnStep):
        def __init__(self, model):
            super().__init__()
            self.augment = keras.Sequential([layers.GaussianNoise(0.1)], name="augment")
            self.model, self.built = model, True
            self.augment.build((None, SIDE))

        def loss_of(self, x):
            return ops.mean(self.model(self.augment(x, training=True)))

    model = Augmented(small("model"))
    model.compile(enabled())
    model.train_on_batch(rows())  # a warning is an error
    assert rewritten.state_of(model.augment).plans
    graph_rewrite.apply(model.augment)
    with pytest.warns(UserWarning, match="no op of the allow list in model 'augment'"):
        model.augment(rows(), training=True)


# -- which optimizers ------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_one_of_the_optimizers_of_a_compile_of_its_own(which):
    """The other one does not scale its loss, and its gradients come through both models."""
    model = gan()
    optimizers, names = [sgd(), sgd()], ["d_optimizer", "g_optimizer"]
    optimizers[which] = enabled()
    model.compile(*optimizers)
    line = rf"model\.{names[1 - which]} is not enabled.* Wrap each optimizer before compile: "
    with pytest.warns(UserWarning, match=line):
        model.make_train_function()
    assert all(is_rewritten(model, model.generator, model.discriminator))
    model.make_train_function()  # says it once
    optimizers[which] = enabled(dtype="bfloat16")  # needs no loss scale
    model.compile(*optimizers)
    model.make_train_function()
    optimizers[which] = enabled()
    model.compile(*optimizers)
    with pytest.warns(UserWarning, match=line):
        model.make_train_function()


def test_optimizers_in_a_dict():
    class Other(type(gan())):
        def compile(self, optimizers):
            super().compile(None, None)
            self.optimizers = optimizers

    model = gan()
    model = Other(model.generator, model.discriminator)
    model.compile({"d": enabled(), "g": enabled()})
    model.make_train_function()
    assert all(is_rewritten(model, model.generator, model.discriminator))


def test_optimizers_that_are_enabled_differently():
    model = gan()
    model.compile(enabled(), enabled(dtype="bfloat16"))
    with pytest.raises(ValueError, match=r"different options.* the same dtype, lists"):
        model.train_on_batch(rows()[:BATCH])
    assert not any(is_rewritten(model, model.generator, model.discriminator))


@pytest.mark.parametrize("run", ["fit", "train_on_batch"])
def test_enabling_in_the_call_of_compile(run):
    """Python looks `model.compile` up before it calls `enable`, which hooks it."""
    graph_rewrite.disable()
    model = vae()
    model.compile(graph_rewrite.enable(sgd()))
    assert not any(is_rewritten(model, model.encoder, model.decoder))
    getattr(model, run)(rows(), **({"verbose": 0} if run == "fit" else {}))
    assert all(is_rewritten(model, model.encoder, model.decoder))


# -- and back --------------------------------------------------------------------------------------


def trained_vae():
    model = vae()
    plain = outputs(model)
    model.compile(enabled(loss_scale=1.0))
    assert_differ(outputs(model), plain)
    model.train_on_batch(rows())
    return model


def trained_whole_gan():
    return trained_gan(enabled(), enabled())[0]


def twin(model):
    """Returns a model with the same weights that never was rewritten."""
    other = vae() if hasattr(model, "encoder") else gan()
    other.set_weights(model.get_weights())
    return other


def recompile(model):
    model.compile(*[sgd() for _ in range(1 if hasattr(model, "encoder") else 2)])


def disable(model):
    graph_rewrite.disable()


@pytest.mark.parametrize("end", [disable, recompile])
@pytest.mark.parametrize("train", [trained_vae, trained_whole_gan])
def test_it_ends_with_float32_to_the_bit(train, end):
    model = train()
    plain = twin(model)
    assert_differ(outputs(model), outputs(plain))
    end(model)
    assert_same(outputs(model), outputs(plain))
    held = [each for each in model._flatten_layers() if isinstance(each, keras.Model)]
    assert not any(is_rewritten(*held))
    assert not any("call" in vars(each) for each in held)
    for each in (model, plain):
        recompile(each)
        each.train_on_batch(rows()[:BATCH])
    assert not any(is_rewritten(*held))
    if train is trained_whole_gan:  # a VAE draws other random numbers than its twin
        assert_same(model.get_weights(), plain.get_weights())


def test_disable_forgets_what_was_traced():
    model, plain = vae(), vae()
    for each, optimizer in ((model, enabled(loss_scale=1.0)), (plain, sgd())):
        each.compile(optimizer)
        each.train_on_batch(rows())
    assert any(map(lambda a, b: (a != b).any(), model.get_weights(), plain.get_weights()))
    model.set_weights(plain.get_weights())
    graph_rewrite.disable()
    for each in (model, plain):
        each.train_on_batch(rows())
    assert_same(model.get_weights(), plain.get_weights())


def test_compiling_again_with_other_options():
    model = trained_vae()
    model.compile(graph_rewrite.enable(sgd(), dtype="bfloat16"))
    for each in (model, model.encoder, model.decoder):
        assert rewritten.state_of(each).options.dtype == "bfloat16"


def test_a_model_that_was_given_to_apply_stays_as_it_is():
    model = vae()
    graph_rewrite.apply(model.encoder, dtype="bfloat16")
    model.compile(enabled())
    assert rewritten.state_of(model.encoder).options.dtype == "bfloat16"
    assert rewritten.state_of(model.decoder).options.dtype == "float16"
    graph_rewrite.apply(model.decoder)
    model.compile(sgd())
    assert is_rewritten(model, model.encoder, model.decoder) == [False, True, True]


def test_models_that_two_models_hold():
    """The first to be compiled without ends it; the other begins anew when it runs."""
    first = vae()
    second = type(first)(first.encoder, first.decoder)
    for each in (first, second):
        each.compile(enabled())
    second.train_on_batch(rows())
    first.compile(sgd())
    assert not any(is_rewritten(first.encoder, first.decoder))
    assert second.train_function is None
    second.train_on_batch(rows())
    assert all(is_rewritten(first.encoder, first.decoder))


def test_what_is_traced_already_is_not_forgotten_while_it_runs():
    """A model that comes late is named by the warning; `fit` goes on with the function it has."""
    model = vae()
    model.compile(enabled())
    model.train_on_batch(rows())
    function, late = model.train_function, small("late")
    model.late = late
    model.make_predict_function()
    assert model.train_function is function is not None
    assert is_rewritten(late) == [False]
    model.compile(enabled())
    assert is_rewritten(late) == [True]


def test_apply_after_a_training_is_seen_by_the_next():
    model = vae()
    model.compile(enabled())
    model.train_on_batch(rows())
    assert model.train_function is not None
    graph_rewrite.apply(model.encoder, dtype="bfloat16")
    assert model.train_function is None


# -- saving ----------------------------------------------------------------------------------------


def test_a_saved_model_is_that_of_float32(tmp_path):
    model = trained_vae()
    model.save(tmp_path / "vae.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the optimizer
        loaded = keras.models.load_model(tmp_path / "vae.keras")
    assert_same(loaded.get_weights(), model.get_weights())
    assert not any(is_rewritten(loaded, loaded.encoder, loaded.decoder))
    assert_same(outputs(loaded), outputs(twin(model)))
    loaded.compile(enabled())
    assert_same(outputs(loaded), outputs(model))
    model.save_weights(tmp_path / "vae.weights.h5")
    plain = vae()
    plain.load_weights(tmp_path / "vae.weights.h5")
    assert_same(plain.get_weights(), model.get_weights())


def test_it_can_be_collected():
    model = trained_vae()
    held = [weakref.ref(each) for each in (model, model.encoder, model.decoder)]
    del model
    gc.collect()
    assert [each() for each in held] == [None, None, None]


# -- what it says ----------------------------------------------------------------------------------


class Plain(OwnStep):
    """Calls layers, some of them in lists and dicts, and a model."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(3, SIDE)
        self.hidden, self.norm = layers.Dense(SIDE), layers.LayerNormalization()
        self.blocks = [layers.Dense(SIDE), layers.Dense(SIDE)]
        self.heads = {"one": layers.Dense(1)}
        self.model = small("model", SIDE)
        self.built = True
        for layer in self._flatten_layers(include_self=False, recursive=False):
            layer.build((None, SIDE))

    def loss_of(self, x):
        x = self.model(self.norm(self.hidden(x + self.table(ops.zeros((1,), "int32")))))
        return ops.mean(self.heads["one"](self.blocks[1](self.blocks[0](x))))


NAMES = ["hidden", "blocks[0]", "blocks[1]", "heads['one']"]


def test_layers_that_are_called_by_the_step_are_named():
    model = Plain()
    model.compile(enabled())
    with pytest.warns(UserWarning, match=r"train_step of 'plain.*' calls them") as warned:
        model.train_on_batch(rows())
    (text,) = [str(each.message) for each in warned if "graph rewrite" in str(each.message)]
    lines = text.splitlines()[1:]
    assert lines == [f"    keras_mp.graph_rewrite.apply(model.{name})" for name in NAMES]
    model = Plain()
    for line in lines:
        exec(line.strip(), {"keras_mp": __import__("keras_mp"), "model": model})
    model.compile(enabled())
    model.train_on_batch(rows())  # a warning is an error
    assert all(is_rewritten(model.hidden, model.model, *model.blocks, *model.heads.values()))


def test_layers_in_a_model_that_is_not_called_itself_are_named():
    class Outer(OwnStep):
        def __init__(self):
            super().__init__()
            self.whole = keras.Sequential([keras.Input((SIDE,)), layers.Dense(3, name="last")])
            self.built = True

        def loss_of(self, x):
            return ops.mean(self.whole.layers[0](x))

    model = Outer()
    model.compile(enabled())
    with pytest.warns(UserWarning, match=r"apply\(model\.whole\.get_layer\('last'\)\)$"):
        model.train_on_batch(rows())


def test_a_model_that_the_step_has_no_use_for_is_not_named():
    """Such as a copy with averaged weights."""
    model = vae()
    model.averaged = decoder()
    model.compile(enabled())
    for each in (model.encoder, model.decoder):
        each(rows()[:, : each.input_shape[1]])
    optimizer, variables = model.optimizer, model.trainable_variables
    optimizer.build(variables)
    optimizer.scale_loss(1.0)
    optimizer.apply([ops.ones(v.shape) for v in variables], variables)  # a warning is an error


@pytest.mark.parametrize("loss_scale", [1.0, 8.0])
def test_a_step_that_does_not_scale_is_told_the_line(loss_scale):
    """Steps that divide by the scale what was not multiplied are too small."""
    model = vae()
    model.scaled = False
    model.compile(enabled(loss_scale))
    line = r"Add `loss = optimizer\.scale_loss\(loss\)` before computing the gradients"
    if BACKEND == "jax":
        line = r"`loss = optimizer\.stateless_scale_loss\(optimizer_variables, loss\)`"
    with pytest.warns(UserWarning, match=line):
        model.train_on_batch(rows())
