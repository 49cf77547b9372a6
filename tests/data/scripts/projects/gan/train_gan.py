import json

import numpy as np
import tensorflow as tf
from tensorflow import keras

from gan import GAN
from monitor import GANMonitor
from networks import LATENT, build_discriminator, build_generator

keras.mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(2)


def set_weights(model, random):
    model.set_weights([random.normal(0, 0.2, w.shape) for w in model.get_weights()])


random = np.random.RandomState(2)
images = np.tanh(random.normal(size=(40, 8, 8, 1))).astype("float32")
images[20] = 6e3  # a pixel format that nobody expected
latent = random.normal(size=(40, LATENT)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((images, latent)).batch(8)

discriminator, generator = build_discriminator(), build_generator()
set_weights(discriminator, random)
set_weights(generator, random)
gan = GAN(discriminator, generator)
gan.compile(
    d_optimizer=keras.optimizers.Adam(learning_rate=0.0003, beta_1=0.5),
    g_optimizer=keras.optimizers.Adam(learning_rate=0.0003, beta_1=0.5),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
monitor = GANMonitor()
gan.fit(dataset, epochs=2, callbacks=[monitor], verbose=0)

print(
    json.dumps(
        {
            "losses": monitor.losses,
            "loss_scales": monitor.scales,
            "skipped": {name: int(count) for name, count in monitor.skipped.items()},
            "iterations": [
                int(gan.d_optimizer.iterations.numpy()),
                int(gan.g_optimizer.iterations.numpy()),
            ],
            "weights": [
                w.ravel().astype("float64").tolist()
                for w in discriminator.get_weights() + generator.get_weights()
            ],
        }
    )
)
