"""Stage 1: `fit`, with warmup. Stage 2: a loop of our own, with a decaying rate."""
import json

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.keras.mixed_precision import experimental as mixed_precision

from callbacks import LossScaleLogger
from schedules import WarmupDecay

mixed_precision.set_policy('mixed_float16')

rs = np.random.RandomState(9)
x = rs.uniform(-1, 1, size=(120, 9)).astype('float32')
y = np.stack([x.max(axis=1), x.min(axis=1)], axis=1)
y[55] = 1e7


def build():
    model = keras.Sequential([
        layers.Dense(20, activation='relu', input_shape=(9,)),
        layers.Dense(20, activation='relu'),
        layers.Dense(2),
        layers.Activation('linear', dtype='float32'),
    ])
    model.set_weights([rs.randn(*w.shape) * 0.25 for w in model.get_weights()])
    return model


def stage1(model):
    logger = LossScaleLogger()
    model.compile(keras.optimizers.Adam(WarmupDecay(2e-3, 4)), 'mse', metrics=['mae'])
    model.fit(x, y, batch_size=20, epochs=1, shuffle=False, verbose=0, callbacks=[logger])
    return logger, int(model.optimizer.iterations)


def stage2(model, epochs=2):
    schedule = keras.optimizers.schedules.ExponentialDecay(5e-3, decay_steps=3, decay_rate=0.5)
    opt = keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True)
    opt = mixed_precision.LossScaleOptimizer(opt, 'dynamic')
    loss_metric = keras.metrics.Mean()
    losses, scales, rates = [], [], []
    for epoch in range(epochs):
        loss_metric.reset_states()
        for i in range(0, len(x), 40):
            with tf.GradientTape() as tape:
                error = model(x[i:i + 40], training=True) - y[i:i + 40]
                loss = tf.reduce_mean(tf.square(error))
                scaled = opt.get_scaled_loss(loss)
            grads = opt.get_unscaled_gradients(tape.gradient(scaled, model.trainable_variables))
            opt.apply_gradients(zip(grads, model.trainable_variables))
            loss_metric.update_state(loss)
            scales.append(float(opt.loss_scale()))
            rates.append(float(opt.learning_rate(opt.iterations)))
        losses.append(float(loss_metric.result()))
    return losses, scales, rates, int(opt.iterations)


model = build()
logger, iterations = stage1(model)
loss1 = model.evaluate(x[:40], y[:40], verbose=0)
losses, scales, rates, iterations2 = stage2(model)
print(json.dumps({
    'losses': loss1 + losses,
    'loss_scales': [logger.scales, scales],
    'skipped': [sum(b < a for a, b in zip([2 ** 15] + s, s)) for s in (logger.scales, scales)],
    'learning_rates': logger.rates + rates,
    'iterations': [iterations, iterations2],
    'weights': [w.ravel().astype('float64').tolist() for w in model.get_weights()],
}))
