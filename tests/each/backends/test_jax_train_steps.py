"""A `train_step` of one's own on JAX, which is handed the state: what works, and what is said."""

import re

import keras
import numpy as np
import pytest

from keras_mp import LossScaleOptimizer
from tests.programs import ROOT

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="about JAX")

USES = {
    "right": lambda opt, values, loss: opt.stateless_scale_loss(values, loss),
    "the scale itself": lambda opt, values, loss: loss * opt.stateless_scale_loss(values, 1.0),
    "scale_loss": lambda opt, values, loss: opt.scale_loss(loss),
    "get_scaled_loss": lambda opt, values, loss: opt.get_scaled_loss(loss),
    "loss_scale": lambda opt, values, loss: loss * opt.loss_scale,
    "get_unscaled_gradients": lambda opt, values, loss: opt.get_unscaled_gradients([loss])[0],
    "skipped_steps": lambda opt, values, loss: loss * opt.skipped_steps,
}


class Custom(keras.Model):
    """With the signature that Keras has on JAX."""

    use = staticmethod(USES["right"])

    def train_step(self, state, data):
        import jax

        trainable, non_trainable, optimizer_variables, metrics = state
        x, y, *_ = data

        def compute_loss(trainable):
            y_pred, new = self.stateless_call(trainable, non_trainable, x, training=True)
            loss = keras.ops.mean(keras.losses.mean_squared_error(y, y_pred))
            return self.use(self.optimizer, optimizer_variables, loss), (loss, new)

        graded = jax.grad(compute_loss, has_aux=True)
        gradients, (loss, non_trainable) = graded(trainable)
        trainable, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, trainable
        )
        return {"loss": loss}, (trainable, non_trainable, optimizer_variables, metrics)


@pytest.fixture
def train(make_model, data):
    def run(use, eagerly=False, cls=Custom, method="fit"):
        small = make_model()
        model = cls(small.inputs[0], small.outputs[0])
        if use:
            model.use = USES[use]
        model.compile(lso(), "mse", run_eagerly=eagerly)
        if method == "fit":
            model.fit(*data, batch_size=8, shuffle=False, verbose=0)
        else:
            model.train_on_batch(data[0][:8], data[1][:8])
        return model

    return run


def lso():
    return LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=2.0**10, dynamic_growth_steps=3
    )


@pytest.mark.parametrize("use", ["right", "the scale itself"])
def test_it_trains_as_that_of_keras_does(use, train, weights):
    whole, mine = train(None, cls=keras.Model), train(use)
    np.testing.assert_allclose(weights(mine), weights(whole), rtol=1e-5)
    assert float(mine.optimizer.loss_scale) == float(whole.optimizer.loss_scale) == 2.0**12


@pytest.mark.parametrize("use", list(USES)[2:])
def test_what_reads_the_variables_inside_the_step_is_told_of_the_values(use, train):
    with pytest.raises(RuntimeError, match="stateless_scale_loss") as error:
        train(use)
    assert "stateless_apply(optimizer_variables" in str(error.value)
    assert "jax_state_sync" not in str(error.value), "which would fail, inside of it"


@pytest.mark.parametrize("use", ["scale_loss", "loss_scale"])
def test_of_a_step_that_is_not_compiled_both_are_told(use, train):
    """It cannot be told from a callback there."""
    with pytest.raises(RuntimeError, match=r"jax_state_sync.*stateless_scale_loss"):
        train(use, eagerly=True)


BAKED_IN = list(USES)[2:6]


@pytest.mark.filterwarnings("ignore:LossScaleOptimizer")  # of the gradients, too
@pytest.mark.parametrize("use", BAKED_IN)
def test_a_scale_that_would_be_a_constant_is_warned_of(use, train):
    """train_on_batch leaves the values in the variables."""
    message = r"as a constant.*stateless_scale_loss"
    with pytest.warns(UserWarning, match=message) as caught:
        train(use, method="train_on_batch")
    told = [each for each in caught if re.search(message, str(each.message))]
    assert {each.filename for each in told} == {__file__}


def test_the_recipe_logs_what_keras_logs(make_model, data):
    """The mean over an epoch, of the loss and of each metric."""
    page = (ROOT / "docs" / "how-to" / "leave-tensorflow.md").read_text(encoding="utf-8")
    recipe = page[page.index("import jax\n\n\nclass Custom(keras.Model)") :]
    names = {"keras": keras}
    exec(recipe[: recipe.index("```")], names)
    logs = []
    for cls in (names["Custom"], keras.Model):
        small = make_model()
        model = cls(small.inputs[0], small.outputs[0])
        model.compile(lso(), "mse", metrics=["mae"])
        logs.append(model.fit(*data, batch_size=8, epochs=2, shuffle=False, verbose=0).history)
    assert logs[0].keys() == logs[1].keys() == {"loss", "mae"}
    for name in logs[0]:
        np.testing.assert_allclose(logs[0][name], logs[1][name], rtol=1e-5)
