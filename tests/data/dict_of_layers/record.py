"""Records weights of TF 2.15 of a model whose layers are in a dict, with keys in no order.

python record.py, in this folder. Writes net.h5, net.weights.h5 and expected.npz: x, and what the
model predicts from it, before and after one more step of training.
"""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np
import tensorflow as tf

Dense = tf.keras.layers.Dense


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.first = Dense(3)
        self.heads = {"policy": Dense(2), "critic": Dense(2), "actor": [Dense(2), Dense(2)]}

    def call(self, x):
        x, heads = self.first(x), self.heads
        return heads["policy"](x) - 2 * heads["critic"](x) + heads["actor"][1](heads["actor"][0](x))


def main():
    tf.keras.utils.set_random_seed(0)
    x = np.random.RandomState(0).standard_normal((4, 3)).astype("float32")
    model = Net()
    model.compile(tf.keras.optimizers.Adam(0.1), "mse")
    model.train_on_batch(x, x[:, :2])
    model.save_weights("net.h5")
    model.save_weights("net.weights.h5")
    before = model.predict_on_batch(x)
    model.train_on_batch(x, x[:, :2])
    np.savez_compressed("expected.npz", x=x, before=before, after=model.predict_on_batch(x))


if __name__ == "__main__":
    main()
