"""As people wrote it for TF 2.3: a loop of one's own with `tf.GradientTape`.

Prints one line of JSON.
"""

import json

import numpy as np
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision

mixed_precision.set_policy("mixed_float16")


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = tf.keras.layers.Dense(12, activation="tanh")
        self.out = tf.keras.layers.Dense(1, dtype="float32")

    def call(self, x):
        return self.out(self.hidden(x))


model = Net()
optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
optimizer = mixed_precision.LossScaleOptimizer(optimizer, loss_scale="dynamic")
loss_object = tf.keras.losses.MeanSquaredError()


@tf.function
def train_step(x, y, weight):
    with tf.GradientTape() as tape:
        loss = loss_object(y, model(x, training=True)) * weight
        scaled_loss = optimizer.get_scaled_loss(loss)
    scaled_gradients = tape.gradient(scaled_loss, model.trainable_variables)
    gradients = optimizer.get_unscaled_gradients(scaled_gradients)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


random = np.random.RandomState(0)
x = random.randn(10, 8, 5).astype("float32")
y = x.sum(axis=2, keepdims=True)
model(x[0])
model.set_weights([random.randn(*w.shape).astype("float32") * 0.4 for w in model.get_weights()])

scales, losses = [], []
for step in range(10):
    weight = 1e8 if step in (3, 4) else 1.0  # two steps overflow
    loss = train_step(tf.constant(x[step]), tf.constant(y[step]), tf.constant(weight))
    scales.append(float(optimizer.loss_scale()))
    losses.append(float(loss))

print(
    json.dumps(
        {
            "scales": scales,
            "losses": losses,
            "iterations": int(optimizer.iterations),
            "slots": [
                optimizer.get_slot(v, "momentum").numpy().ravel().astype("float64").tolist()
                for v in model.trainable_variables
            ],
            "weights": [w.ravel().astype("float64").tolist() for w in model.get_weights()],
        }
    )
)
