import numpy as np
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision

mixed_precision.set_policy("mixed_float16")

inputs = tf.keras.Input((8,))
hidden = tf.keras.layers.Dense(32, activation="relu", name="hidden")(inputs)
outputs = tf.keras.layers.Dense(4, activation="softmax", dtype="float32", name="classes")(hidden)
model = tf.keras.Model(inputs, outputs)

optimizer = mixed_precision.LossScaleOptimizer(
    tf.keras.optimizers.RMSprop(0.01),
    loss_scale=tf.mixed_precision.experimental.DynamicLossScale(increment_period=20),
)
model.compile(optimizer, loss="sparse_categorical_crossentropy")

random = np.random.RandomState(0)
x = random.randn(256, 8).astype("float32")
y = np.argmax(x[:, :4], axis=1)
model.fit(x, y, batch_size=32, epochs=4, shuffle=False, verbose=0)
print("loss scale", float(optimizer.loss_scale()), "at step", int(optimizer.iterations))
model.save("saved_model")
