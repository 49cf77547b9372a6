"""Models of several models with their own `train_step`, and small data for them.

As in Keras' examples: a variational autoencoder without `call`, and a GAN with two optimizers and
its own `compile`.
"""

import keras
import numpy as np
from keras import layers, ops

BACKEND = keras.backend.backend()
ROWS, BATCH, SIDE, LATENT = 16, 8, 6, 2


def rows():
    """Returns data: (ROWS, SIDE), between 0 and 1, float32."""
    return np.random.RandomState(0).rand(ROWS, SIDE).astype("float32")


def minimize(optimizer, loss_of, variables, scaled=True):
    """Takes a step, by default with gradients of the scaled loss; returns the loss."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = loss_of()
            in_full = optimizer.scale_loss(loss) if scaled else loss
        gradients = tape.gradient(in_full, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss
    import torch

    for variable in variables:
        variable.value.grad = None
    loss = loss_of()
    (optimizer.scale_loss(loss) if scaled else loss).backward()
    with torch.no_grad():
        optimizer.apply([variable.value.grad for variable in variables], variables)
    return loss.detach()


def jax_minimize(optimizer, values, loss_of, variables, given, others, kept, scaled=True):
    """Returns the loss, and the new values of variables, of the others, and of the optimizer."""
    import jax

    def compute(given):
        values_of = zip([*variables, *others], [*given, *kept], strict=True)
        with keras.StatelessScope(values_of) as scope:
            loss = loss_of()
        new = [scope.get_current_value(v) for v in others]
        if scaled and hasattr(optimizer, "stateless_scale_loss"):
            return optimizer.stateless_scale_loss(values, loss), (loss, new)
        return loss, (loss, new)

    gradients, (loss, kept) = jax.grad(compute, has_aux=True)(given)
    given, values = optimizer.stateless_apply(values, gradients, given)
    return loss, given, kept, values


class OwnStep(keras.Model):
    """Trains by `loss_of(x)`, which subclasses define."""

    scaled = True

    def train_step(self, *args):
        data = args[-1]
        x = data[0] if isinstance(data, tuple) else data
        if BACKEND == "jax":
            given, kept, values, metrics = args[0]
            loss, given, kept, values = jax_minimize(
                self.optimizer,
                values,
                lambda: self.loss_of(x),
                self.trainable_variables,
                given,
                self.non_trainable_variables,
                kept,
                self.scaled,
            )
            return {"total": loss}, (given, kept, values, metrics)
        x = ops.convert_to_tensor(x)
        loss = minimize(
            self.optimizer, lambda: self.loss_of(x), self.trainable_variables, self.scaled
        )
        return {"total": loss}


@keras.saving.register_keras_serializable("own_steps")
class Sampling(layers.Layer):
    """Samples from the encoder's distribution."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed = keras.random.SeedGenerator(3)

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), seed=self.seed)
        return mean + ops.exp(0.5 * log_variance) * noise


def encoder():
    x = inputs = keras.Input((SIDE,))
    x = layers.Dense(8, activation="relu", name="encoder_hidden")(x)
    mean, log_variance = layers.Dense(LATENT, name="mean")(x), layers.Dense(LATENT, name="log")(x)
    return keras.Model(
        inputs, [mean, log_variance, Sampling()([mean, log_variance])], name="encoder"
    )


def decoder():
    return keras.Sequential(
        [
            keras.Input((LATENT,)),
            layers.Dense(8, activation="relu", name="decoder_hidden"),
            layers.Dense(SIDE, activation="sigmoid", name="pixels"),
        ],
        name="decoder",
    )


@keras.saving.register_keras_serializable("own_steps")
class VAE(OwnStep):
    """Keras' example; `built` tells JAX that there is nothing to build."""

    def __init__(self, encoder, decoder, **options):
        super().__init__(**options)
        self.encoder, self.decoder = encoder, decoder
        self.built = True

    def loss_of(self, x):
        mean, log_variance, z = self.encoder(x)
        found = ops.sum(keras.losses.binary_crossentropy(x[..., None], self.decoder(z)[..., None]))
        divergence = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
        return (found + ops.sum(divergence)) / ops.cast(ops.shape(x)[0], "float32")

    def get_config(self):
        config = super().get_config()
        for name in ("encoder", "decoder"):
            config[name] = keras.saving.serialize_keras_object(getattr(self, name))
        return config

    @classmethod
    def from_config(cls, config):
        for name in ("encoder", "decoder"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


def vae(cls=VAE):
    """Returns a new VAE, the same each time."""
    keras.utils.set_random_seed(0)
    return cls(encoder(), decoder())


class GAN(keras.Model):
    """Two models and two optimizers; Keras knows of neither optimizer.

    On JAX steps are those of `train_on_batch` with `run_eagerly`: Keras compiles with the state of
    one optimizer.
    """

    def __init__(self, generator, discriminator, **options):
        super().__init__(**options)
        self.generator, self.discriminator = generator, discriminator
        self.built = True

    def compile(self, d_optimizer, g_optimizer):
        super().compile(run_eagerly=BACKEND == "jax")
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def loss_of(self, x, real):
        return ops.mean(keras.losses.binary_crossentropy(real, ops.sigmoid(x)))

    def train_step(self, *args):
        data = args[-1]
        x = data[0] if isinstance(data, tuple) else data
        noise = ops.convert_to_tensor(np.random.RandomState(1).randn(BATCH, LATENT), "float32")
        ones, zeros = ops.ones((BATCH, 1)), ops.zeros((BATCH, 1))

        def of_discriminator():
            fake = self.discriminator(ops.stop_gradient(self.generator(noise)))
            return self.loss_of(self.discriminator(x), ones) + self.loss_of(fake, zeros)

        def of_generator():
            return self.loss_of(self.discriminator(self.generator(noise)), ones)

        steps = (
            (self.d_optimizer, of_discriminator, self.discriminator.trainable_variables),
            (self.g_optimizer, of_generator, self.generator.trainable_variables),
        )
        losses = dict(zip("dg", [_step(*step) for step in steps], strict=True))
        if BACKEND != "jax":
            return losses
        kinds = ("trainable", "non_trainable", "optimizer", "metrics")
        holders = (self, self, self.optimizer, self)
        lists = [
            getattr(holder, "variables" if kind == "optimizer" else f"{kind}_variables")
            for holder, kind in zip(holders, kinds, strict=True)
        ]
        return losses, tuple([v.value for v in each] for each in lists)


def _step(optimizer, loss_of, variables):
    if BACKEND != "jax":
        return minimize(optimizer, loss_of, variables)
    import jax

    optimizer.build(variables)
    values = [v.value for v in optimizer.variables]
    given = [v.value for v in variables]

    def step(values, given):
        return jax_minimize(optimizer, values, loss_of, variables, given, [], [])

    loss, given, _, values = jax.jit(step)(values, given)
    new = zip([*variables, *optimizer.variables], [*given, *values], strict=True)
    for variable, value in new:
        variable.assign(value)
    return loss


def gan():
    """Returns a new GAN, the same each time."""
    keras.utils.set_random_seed(0)
    discriminator = keras.Sequential(
        [keras.Input((SIDE,)), layers.Dense(8, activation="relu"), layers.Dense(1)],
        name="discriminator",
    )
    generator = decoder()
    generator.name = "generator"
    return GAN(generator, discriminator)
