"""`PrecisionRepair` in `fit`: when it acts, what stays, and what it says where it cannot help."""

import logging

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_mp
from keras_mp import LossScaleMonitor, LossScaleOptimizer, PrecisionRepair
from keras_mp.monitor.html_report import html_report
from keras_mp.monitor.run_folder import RunFolder
from tests.compiled_steps import settled

BACKEND = keras.backend.backend()
pytestmark = [
    pytest.mark.usefixtures("mixed_float16"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]


def two_ways():
    """One layer overflows where the first column is large, another where the second is."""
    inputs = keras.Input((2,))
    left = layers.Dense(1, kernel_initializer="ones", name="left")(inputs[:, :1] * 4.0)
    right = layers.Dense(1, kernel_initializer="ones", name="right")(inputs[:, 1:] * 4.0)
    out = layers.Dense(1, kernel_initializer="zeros", dtype="float32", name="out")
    return keras.Model(inputs, out(left + right), name="net")


def sum_of_large(**kwargs):
    inputs = keras.Input((4,))
    h = layers.Dense(3, name="first")(inputs)
    h = layers.Dense(1, kernel_initializer=keras.initializers.Constant(4e4), name="large")(
        ops.abs(h) + 1.0
    )
    return keras.Model(inputs, layers.Dense(1, dtype="float32", name="out")(h * 1e-5), **kwargs)


def compiled(model, loss="mse", rate=1e-6, **kwargs):
    if kwargs.get("dynamic", True):
        kwargs.setdefault("initial_scale", 2.0**12)  # at which no gradient is near 65504
    model.compile(LossScaleOptimizer(keras.optimizers.Adam(rate), **kwargs), loss)
    return model


def ones(count, columns=4):
    return np.ones((count, columns), "float32"), np.ones((count, 1), "float32")


def fitted(model, x, y, *callbacks, batch_size=2, **kwargs):
    return model.fit(
        x, y, batch_size=batch_size, verbose=0, shuffle=False, callbacks=callbacks, **kwargs
    )


def test_acts_after_so_many_skips_and_no_more_are_skipped(caplog):
    model = compiled(sum_of_large(name="net"))
    repair = PrecisionRepair(skips=3)
    with caplog.at_level(logging.WARNING, "keras_mp"):
        history = fitted(model, *ones(24), repair)
    assert int(model.optimizer.skipped_steps) == 3
    assert repair.repairs.layers == ("large",)
    assert (len(repair.repairs), history.history["repairs"]) == (1, [1])
    assert float(model.optimizer.loss_scale) == 2.0**12
    lines = [line for line in caplog.messages if "step 3: `large` now computes in float32" in line]
    assert len(lines) == 1
    assert "3 steps were skipped; the loss scale is 4096 again." in lines[0]


def test_each_fault_is_repaired_when_it_comes():
    x = np.zeros((32, 2), "float32")
    x[:16, 0], x[16:, 1] = 30000, 30000
    model = compiled(two_ways())
    repair = PrecisionRepair(skips=3)
    fitted(model, x, ones(32)[1], repair)
    assert [each.layers for each in repair.repairs] == [("left",), ("right",)]
    assert int(model.optimizer.skipped_steps) <= 3 + 5  # the second look is at a multiple of 3
    assert repair.stopped is None


def test_no_more_repairs_than_are_allowed():
    x = np.zeros((48, 2), "float32")
    x[:16, 0], x[16:, 1] = 30000, 30000
    model = compiled(two_ways())
    repair = PrecisionRepair(skips=3, max_repairs=1)
    fitted(model, x, ones(48)[1], repair)
    assert len(repair.repairs) == 1
    assert repair.repairs.verdict.kind == "bound"
    assert "After 1 repairs (max_repairs)" in repair.stopped


def infinite(y, p):
    return ops.mean(y / (p * 0.0))


def in_float16(y, p):
    return ops.mean(ops.square(ops.cast(p, "float16") * 300.0))


def bad_data(model):
    x, y = ones(24)
    x[:, 1] = np.nan
    return x, y


def blown_up(model):
    model.get_layer("first").kernel.assign(np.full((4, 3), 1e6, "float32"))
    return ones(24)


REASONS = {
    "data": ("mse", bad_data, "The batch holds nan: 2 of 8 values of x."),
    "weights": ("mse", blown_up, "first/kernel has reached 1e+06, beyond float16"),
    "float32": (infinite, lambda model: ones(24), "The step is not finite in float32 either"),
    "code": (in_float16, lambda model: ones(24), "The code of in_float16 computes in float16 at"),
}


def plain():
    start = keras.initializers.Constant(2.0)
    inputs = keras.Input((4,))
    h = layers.Dense(3, kernel_initializer=start, name="first")(inputs)
    return keras.Model(inputs, layers.Dense(1, kernel_initializer=start, name="out")(h))


@pytest.mark.parametrize("kind", REASONS)
def test_stops_where_precision_is_not_the_matter(kind):
    loss, data, reason = REASONS[kind]
    model = compiled(plain(), loss)
    x, y = data(model)
    before = model.get_weights()
    repair = PrecisionRepair(skips=3)
    fitted(model, x, y, repair)
    assert repair.repairs.verdict.kind == kind, repair.repairs
    assert reason in repair.stopped
    assert not repair.repairs
    assert 3 <= int(model.optimizer.skipped_steps) <= 4
    assert all(map(np.array_equal, before, model.get_weights()))
    assert model.get_layer("first").compute_dtype == "float16"


def test_goes_on_skipping_if_asked_to(caplog):
    model = compiled(plain())
    repair = PrecisionRepair(skips=3, stop=False)
    with caplog.at_level(logging.ERROR, "keras_mp"):
        fitted(model, *bad_data(model), repair)
    assert int(model.optimizer.skipped_steps) == 12
    assert (repair.stopped, repair.repairs.verdict.kind) == (None, "data")
    assert len([line for line in caplog.messages if "nothing is repaired" in line]) == 1


def test_leaves_a_scale_that_only_has_to_fall():
    """The gradients fit at a lower scale, which is found by itself."""
    model = compiled(plain(), initial_scale=2.0**30)
    repair = PrecisionRepair(skips=3, skipped_share=1.0)
    fitted(model, *ones(80), repair)
    assert not repair.repairs
    assert repair.stopped is None
    assert 3 < int(model.optimizer.skipped_steps) < 30


def healthy_models():
    def conv():
        shape = [keras.Input((4, 4, 1)), layers.Conv2D(2, 3, activation="relu")]
        return keras.Sequential([*shape, layers.BatchNormalization(), layers.Flatten(), *end()])

    def recurrent():
        return keras.Sequential([keras.Input((4, 2)), layers.GRU(3), *end()])

    def attention():
        inputs = keras.Input((4, 4))
        h = layers.MultiHeadAttention(1, 2, dropout=0.5)(inputs, inputs)
        return keras.Model(inputs, end()[0](layers.GlobalMaxPooling1D()(h)))

    def end():
        return [layers.Dense(1, dtype="float32")]

    return {
        "dense": (lambda: keras.Sequential([keras.Input((4,)), layers.Dense(4), *end()]), (4,)),
        "conv": (conv, (4, 4, 1)),
        "recurrent": (recurrent, (4, 2)),
        "attention": (attention, (4, 4)),
    }


@pytest.mark.parametrize("with_nan", [False, True], ids=["all finite", "a nan"])
@pytest.mark.parametrize("name", healthy_models())
def test_never_touches_a_healthy_training(name, with_nan):
    make, shape = healthy_models()[name]
    x = np.random.default_rng(0).normal(size=(24, *shape)).astype("float32")
    if with_nan:
        x[5] = np.nan

    def trained(*callbacks):
        keras.utils.set_random_seed(0)
        model = compiled(make(), rate=1e-2)
        fitted(model, x, ones(24)[1], *callbacks)
        return [np.asarray(ops.convert_to_numpy(v)) for v in (*model.weights, *variables(model))]

    repair = PrecisionRepair(skips=6)  # in 6 steps the scale falls to what fits
    pairs = list(zip(trained(), trained(repair), strict=True))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)
    assert (len(repair.repairs), repair.repairs.verdict) == (0, None)


def variables(model):
    return [v for v in model.optimizer.variables if "seed" not in v.name]


def test_reads_one_number_in_so_many_steps(monkeypatch):
    """And none but that where no step is skipped; the optimizer has no variable more."""
    seen = []
    for name in ("skipped_steps", "loss_scale", "consecutive_skips", "iterations"):
        read = getattr(LossScaleOptimizer, name).fget

        def noted(self, name=name, read=read):
            seen.append(name)
            return read(self)

        monkeypatch.setattr(LossScaleOptimizer, name, property(noted, None))
    model = compiled(plain())
    fitted(model, *ones(24), PrecisionRepair(skips=4), LossScaleMonitor())
    watched = compiled(plain())
    fitted(watched, *ones(24), LossScaleMonitor())
    assert len(watched.optimizer.variables) == len(model.optimizer.variables)
    alone = seen.count("skipped_steps") - 2 * 2  # those of the monitors
    assert alone == 1 + 12 // 4 - 1


@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no steps_per_execution on PyTorch")
def test_several_steps_a_call():
    model = sum_of_large(name="net")
    model.compile(LossScaleOptimizer(keras.optimizers.Adam(1e-6)), "mse", steps_per_execution=2)
    repair = PrecisionRepair(skips=4)
    fitted(model, *ones(40), repair)
    assert repair.repairs.layers == ("large",)
    assert int(model.optimizer.skipped_steps) == 4
    assert int(model.optimizer.iterations) == 20


def test_no_batch_is_lost():
    """Weights are those of a float32 layer from the start, with as many steps skipped before."""
    x, y = ones(24)
    x *= np.random.default_rng(0).uniform(0.5, 1, x.shape).astype("float32")
    keras.utils.set_random_seed(0)
    model = compiled(sum_of_large(name="net"))
    fitted(model, x, y, PrecisionRepair(skips=3))
    keras.utils.set_random_seed(0)
    wanted = compiled(sum_of_large(name="net"), count_skipped_steps=True)
    wanted.get_layer("large").dtype_policy = "float32"
    wanted.optimizer.build(wanted.trainable_variables)
    wanted.optimizer.iterations.assign(3)
    fitted(wanted, x[6:], y[6:])
    for mine, theirs in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_unknown_length_and_a_generator():
    def batches():
        for _ in range(12):
            yield ones(2)

    model = compiled(sum_of_large(name="net"))
    repair = PrecisionRepair(skips=3)
    model.fit(batches(), steps_per_epoch=12, shuffle=False, verbose=0, callbacks=[repair])
    assert repair.repairs.layers == ("large",)
    assert int(model.optimizer.iterations) == 12


def test_nothing_that_was_compiled_before_is_left():
    """Also where somebody holds the functions of before; JAX then knows what these compiled."""
    model = compiled(sum_of_large(name="net"))
    x, y = ones(24)
    model.evaluate(x, y, verbose=0)
    model.predict(x, verbose=0)
    held = []

    class Hold(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            model = self.model
            held.extend([model.train_function, model.test_function, model.predict_function])

    fitted(model, x, y, Hold(), PrecisionRepair(skips=3))
    assert int(model.optimizer.skipped_steps) == 3
    assert np.isfinite(model.evaluate(x, y, verbose=0))
    assert np.isfinite(model.predict(x, verbose=0)).all()
    assert "train_step" not in vars(model)


@pytest.mark.parametrize("metrics", [False, True])
def test_a_protected_model(metrics):
    inputs = keras.Input((4,))
    h = layers.BatchNormalization(name="norm")(sum_of_large()(inputs))
    model = compiled(keras.Model(inputs, layers.Dense(1, dtype="float32")(h)))
    keras_mp.protect_state(model, metrics=metrics)
    repair = PrecisionRepair(skips=3)
    fitted(model, *ones(24), repair)
    assert len(repair.repairs) == 1
    assert int(model.optimizer.skipped_steps) == 3
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_statistics_that_are_not_finite_begin_anew():
    inputs = keras.Input((4,))
    h = layers.Dense(1, kernel_initializer=keras.initializers.Constant(4e4), name="large")(inputs)
    h = layers.BatchNormalization(name="norm")(h)
    model = compiled(keras.Model(inputs, layers.Dense(1, dtype="float32")(h)))
    repair = PrecisionRepair(skips=3)
    fitted(model, *ones(24), repair)
    (done,) = repair.repairs
    assert done.finding.layer == "large"
    assert "Moving statistics of norm were not finite" in done.notes[0]
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_before_a_monitor_that_would_stop():
    model = compiled(sum_of_large(name="net"), max_consecutive_skips=3)
    repair, monitor = PrecisionRepair(), LossScaleMonitor(trace=True)
    fitted(model, *ones(24), repair, monitor)
    assert (repair.repairs.layers, monitor.stopped) == (("large",), None)
    assert int(model.optimizer.skipped_steps) == 3
    assert len(monitor.trace) == 12


@pytest.mark.parametrize("comes_first", [True, False])
def test_the_page_of_a_run_names_what_was_repaired(tmp_path, comes_first):
    model = compiled(sum_of_large(name="net"))
    repair, monitor = PrecisionRepair(skips=3), LossScaleMonitor(tmp_path)
    fitted(model, *ones(12), *([repair, monitor] if comes_first else [monitor, repair]))
    run = RunFolder.read(tmp_path)
    assert run.run["repaired"] == ["large"]
    page = html_report(run)
    assert "In float32 since a repair: large." in page
    assert run.trace.told_repairs() == [(4, str(repair.repairs.made[0]))]
    assert "Repair at step 3: `large` now computes in float32" in page


def test_a_step_of_torch_compile(quick_compile, compiled_once):
    if BACKEND != "torch":
        pytest.skip("about torch.compile; the others compile in all tests here")
    import torch

    torch.compiler.reset()
    large = layers.Dense(1, kernel_initializer=keras.initializers.Constant(4e4), name="large")
    model = keras.Sequential([keras.Input((4,)), large], name="net")
    optimizer = settled(
        LossScaleOptimizer(keras.optimizers.SGD(1e-12), initial_scale=2.0**-8, min_scale=2.0**-8)
    )
    model.compile(optimizer, "mse", jit_compile=True)
    repair = PrecisionRepair(skips=2)
    fitted(model, *ones(8), repair)
    assert repair.repairs.layers == ("large",)
    assert int(model.optimizer.skipped_steps) == 2


def test_an_accumulated_step():
    model = sum_of_large(name="net")
    inner = keras.optimizers.Adam(1e-6, gradient_accumulation_steps=2)
    model.compile(LossScaleOptimizer(inner), "mse")
    repair = PrecisionRepair(skips=3)
    fitted(model, *ones(24), repair)
    assert repair.repairs.layers == ("large",)
    assert int(model.optimizer.skipped_steps) == 3


class Critic(keras.Model):
    """With a `train_step` that needs more than `compute_loss`; the forward pass is in a part."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.critic = sum_of_large(name="critic")

    def build(self, shape):
        self.critic.build(shape)
        self.built = True

    def call(self, x, training=False):
        raise NotImplementedError

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(self.critic(y, training=True))


if BACKEND == "jax":

    class OwnStep(Critic):
        def train_step(self, state, data):
            trained, others, optimizer, measured = state

            def loss(trained):
                out, _ = self.critic.stateless_call(trained, others, data)
                value = ops.mean(out)
                return self.optimizer.stateless_scale_loss(optimizer, value)

            import jax

            gradients = jax.grad(loss)(trained)
            trained, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trained)
            return {"loss": ops.zeros(())}, (trained, others, optimizer, measured)
else:

    class OwnStep(Critic):
        def train_step(self, data):
            weights = self.trainable_variables
            if BACKEND == "torch":
                self.zero_grad()
                self.optimizer.scale_loss(ops.mean(self.critic(data))).backward()
                gradients = [weight.value.grad for weight in weights]
                import torch

                with torch.no_grad():
                    self.optimizer.apply(gradients, weights)
            else:
                import tensorflow as tf

                with tf.GradientTape() as tape:
                    loss = self.optimizer.scale_loss(ops.mean(self.critic(data)))
                self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": ops.zeros(())}


def test_a_train_step_of_its_own():
    model = OwnStep()
    model.build((None, 4))
    model.compile(LossScaleOptimizer(keras.optimizers.Adam(1e-6)))
    repair = PrecisionRepair(skips=3)
    model.fit(ones(24)[0], batch_size=2, verbose=0, callbacks=[repair])
    assert repair.repairs.layers == ("critic/large",), repair.repairs
    assert int(model.optimizer.skipped_steps) == 3
    assert "Only the forward pass of critic was searched" in str(repair.repairs)


def test_needs_an_optimizer_that_skips():
    model = plain()
    model.compile("sgd", "mse", auto_scale_loss=False)
    with pytest.raises(TypeError, match="PrecisionRepair needs a model compiled with keras_mp"):
        fitted(model, *ones(4), PrecisionRepair())
    model = compiled(plain(), dynamic=False, initial_scale=4.0, skip_nonfinite=False)
    with pytest.raises(ValueError, match="nothing to watch"):
        fitted(model, *ones(4), PrecisionRepair())


@pytest.mark.parametrize("wrong", [{"skips": 0}, {"max_repairs": 1.5}, {"skipped_share": 0}])
def test_refuses_numbers_out_of_range(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PrecisionRepair(**wrong)
