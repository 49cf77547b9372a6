"""Models with a `train_step` of two optimizers: a GAN as a whole."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_mp import LossScaleOptimizer, PrecisionRepair
from tests.each.diagnosis.repair.test_callback import sum_of_large

BACKEND = keras.backend.backend()
pytestmark = [
    pytest.mark.usefixtures("mixed_float16"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
    pytest.mark.skipif(
        BACKEND == "jax", reason="on JAX, Keras hands train_step the state of one optimizer"
    ),
]


class Gan(keras.Model):
    """Its discriminator overflows, its generator does not."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.discriminator = sum_of_large(name="discriminator")
        inputs = keras.Input((2,))
        self.generator = keras.Model(inputs, layers.Dense(4)(inputs), name="generator")

    def build(self, shape):
        self.built = True

    def call(self, x):
        raise NotImplementedError

    def compile(self, **kwargs):
        super().compile(auto_scale_loss=False)
        self.optimizer.build(self.trainable_variables)  # which nobody uses, but files hold it
        scaled = {"initial_scale": 2.0**8}
        self.d_optimizer = LossScaleOptimizer(keras.optimizers.Adam(1e-6), **scaled)
        self.g_optimizer = LossScaleOptimizer(keras.optimizers.Adam(1e-6), **scaled)
        self.d_optimizer.build(self.discriminator.trainable_variables)
        self.g_optimizer.build(self.generator.trainable_variables)

    def train_step(self, data):
        noise = ops.ones((2, 2))
        self._step(
            self.d_optimizer,
            self.discriminator,
            lambda: ops.mean(self.discriminator(data)) - ops.mean(self.discriminator(data * 0.5)),
        )
        self._step(self.g_optimizer, self.generator, lambda: ops.mean(self.generator(noise)))
        return {"loss": ops.zeros(())}

    def _step(self, optimizer, model, loss):
        weights = model.trainable_variables
        if BACKEND == "torch":
            import torch

            model.zero_grad()
            optimizer.scale_loss(loss()).backward()
            gradients = [weight.value.grad for weight in weights]
            with torch.no_grad():
                optimizer.apply(gradients, weights)
            return
        import tensorflow as tf

        with tf.GradientTape() as tape:
            scaled = optimizer.scale_loss(loss())
        optimizer.apply(tape.gradient(scaled, weights), weights)


def trained(*callbacks):
    model = Gan()
    model.build((None, 4))
    model.compile()
    x = np.ones((24, 4), "float32")
    model.fit(x, batch_size=2, verbose=0, shuffle=False, callbacks=list(callbacks))
    return model


def test_both_optimizers_are_watched():
    repair = PrecisionRepair(skips=3)
    model = trained(repair)
    assert repair.repairs.layers == ("discriminator/large",), repair.repairs
    assert int(model.d_optimizer.skipped_steps) == 3
    assert int(model.g_optimizer.skipped_steps) == 0
    assert float(model.d_optimizer.loss_scale) == float(model.g_optimizer.loss_scale) == 2.0**8
    assert int(model.d_optimizer.iterations) == int(model.g_optimizer.iterations) == 12
    assert "Only the forward pass of discriminator was searched" in str(repair.repairs.made[0])


def test_it_lasts(tmp_path):
    model = trained(PrecisionRepair(skips=3))
    path = tmp_path / "a.weights.h5"
    model.save_weights(path)
    again = Gan()
    again.build((None, 4))
    again.compile()
    again.load_weights(path)
    repair = PrecisionRepair(skips=3)
    again.fit(np.ones((8, 4), "float32"), batch_size=2, verbose=0, callbacks=[repair])
    assert again.discriminator.get_layer("large").compute_dtype == "float32"
    assert int(again.d_optimizer.skipped_steps) == 3  # those before
