"""As people wrote it for TF 2.3: a policy with a loss scale, and `fit`.

Prints one line of JSON.
"""

import json

import numpy as np
import tensorflow as tf
from tensorflow.keras.mixed_precision import experimental as mixed_precision

mixed_precision.set_policy(mixed_precision.Policy("mixed_float16", loss_scale="dynamic"))
print("compute dtype", mixed_precision.global_policy().compute_dtype)

inputs = tf.keras.Input((6,))
x = tf.keras.layers.Dense(16, activation="relu", name="first")(inputs)
x = tf.keras.layers.Dense(3, name="second")(x)
outputs = tf.keras.layers.Activation("softmax", dtype="float32")(x)
model = tf.keras.Model(inputs, outputs)
assert mixed_precision.get_layer_policy(model.layers[1]).name == "mixed_float16"

random = np.random.RandomState(0)
model.set_weights([random.randn(*w.shape).astype("float32") * 0.3 for w in model.get_weights()])
features = random.randn(96, 6).astype("float32")
labels = np.argmax(features[:, :3], axis=1)
importance = np.ones(96)
importance[40] = 1e8  # one batch of six overflows in float16

model.compile(
    optimizer=tf.keras.optimizers.Adam(0.01),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
assert isinstance(model.optimizer, mixed_precision.LossScaleOptimizer)
model.fit(
    features, labels, batch_size=16, epochs=3, shuffle=False, verbose=0, sample_weight=importance
)
model.optimizer.learning_rate = 0.002
model.fit(features[:32], labels[:32], batch_size=16, shuffle=False, verbose=0)

print(
    json.dumps(
        {
            "loss_scale": float(model.optimizer.loss_scale()),
            "period": model.optimizer.loss_scale.increment_period,
            "iterations": int(model.optimizer.iterations),
            "learning_rate": round(float(model.optimizer.lr), 6),
            "weights": [w.ravel().astype("float64").tolist() for w in model.get_weights()],
        }
    )
)
