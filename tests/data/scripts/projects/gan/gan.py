import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import mixed_precision


class GAN(keras.Model):
    def __init__(self, discriminator, generator):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = mixed_precision.LossScaleOptimizer(d_optimizer)
        self.g_optimizer = mixed_precision.LossScaleOptimizer(g_optimizer)
        self.loss_fn = loss_fn

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, data):
        real_images, latent = data
        batch_size = tf.shape(real_images)[0]
        ones, zeros = tf.ones((batch_size, 1)), tf.zeros((batch_size, 1))

        # The discriminator
        generated_images = self.generator(latent, training=True)
        combined = tf.concat([generated_images, real_images], axis=0)
        labels = tf.concat([ones, zeros], axis=0)
        with tf.GradientTape() as tape:
            predictions = self.discriminator(combined, training=True)
            d_loss = self.loss_fn(labels, predictions)
            scaled_d_loss = self.d_optimizer.get_scaled_loss(d_loss)
        scaled_grads = tape.gradient(scaled_d_loss, self.discriminator.trainable_weights)
        grads = self.d_optimizer.get_unscaled_gradients(scaled_grads)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))

        # The generator
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(latent, training=True))
            g_loss = self.loss_fn(zeros, predictions)
            scaled_g_loss = self.g_optimizer.get_scaled_loss(g_loss)
        scaled_grads = tape.gradient(scaled_g_loss, self.generator.trainable_weights)
        grads = self.g_optimizer.get_unscaled_gradients(scaled_grads)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))

        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}
