"""`tape_tf23.py` for any backend: only the differentiation is written otherwise.

Prints one line of JSON.
"""

import json

import keras
import numpy as np

from keras_mp.compat.mixed_precision import experimental as mixed_precision

mixed_precision.set_policy("mixed_float16")


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(12, activation="tanh")
        self.out = keras.layers.Dense(1, dtype="float32")

    def call(self, x):
        return self.out(self.hidden(x))


model = Net()
optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
optimizer = mixed_precision.LossScaleOptimizer(optimizer, loss_scale="dynamic")
loss_object = keras.losses.MeanSquaredError()


def train_step(x, y, weight):
    losses = []

    def loss():
        losses.append(loss_object(y, model(x, training=True)) * weight)
        return losses[-1]

    pairs = optimizer.compute_gradients(loss, model.trainable_variables)
    optimizer.apply_gradients(pairs)


random = np.random.RandomState(0)
x = random.randn(10, 8, 5).astype("float32")
y = x.sum(axis=2, keepdims=True)
model(x[0])
model.set_weights([random.randn(*w.shape).astype("float32") * 0.4 for w in model.get_weights()])

scales = []
for step in range(10):
    weight = 1e8 if step in (3, 4) else 1.0  # two steps overflow
    train_step(x[step], y[step], weight)
    scales.append(float(optimizer.loss_scale()))


def numbers(variable):
    return keras.ops.convert_to_numpy(variable).ravel().astype("float64").tolist()


print(
    json.dumps(
        {
            "scales": scales,
            "iterations": int(optimizer.iterations),
            "slots": [
                numbers(optimizer.get_slot(v, "momentum")) for v in model.trainable_variables
            ],
            "weights": [w.ravel().astype("float64").tolist() for w in model.get_weights()],
        }
    )
)
