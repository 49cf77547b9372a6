import numpy as np
import tensorflow as tf


class MLP(tf.keras.Model):

    def __init__(self, units=(32, 16), **kwargs):
        super(MLP, self).__init__(**kwargs)
        self.hidden = [tf.keras.layers.Dense(u, activation='relu') for u in units]
        self.head = tf.keras.layers.Dense(1, dtype=tf.float32)

    def call(self, x, training=False):
        for layer in self.hidden:
            x = layer(x)
        return self.head(x)


def init_weights(model, seed=3):
    rng = np.random.RandomState(seed)
    model.set_weights([
        (rng.normal(size=w.shape) * np.sqrt(1. / w.shape[0])).astype(np.float32)
        for w in model.get_weights()
    ])
