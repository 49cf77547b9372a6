# coding=utf-8
"""Trains a SequenceModel in a custom loop."""
import json

from absl import app
from absl import flags
from absl import logging
import numpy as np
import tensorflow as tf

from nets import SequenceModel

FLAGS = flags.FLAGS
flags.DEFINE_integer('steps', 10, 'Training steps.')
flags.DEFINE_integer('batch_size', 8, 'Sequences per batch.')
flags.DEFINE_float('learning_rate', 0.05, 'Learning rate of Adagrad.')
flags.DEFINE_enum('dtype', 'fp16', ['fp16', 'bf16', 'fp32'], 'Precision.')
flags.DEFINE_float('clip_norm', 1.0, 'Gradients are clipped by their global norm.')

POLICIES = {'fp16': 'mixed_float16', 'bf16': 'mixed_bfloat16', 'fp32': 'float32'}


def make_batches(random):
  x = random.normal(size=(FLAGS.steps, FLAGS.batch_size, 7, 5)).astype(np.float32)
  x[:, ::2, 5:] = 0  # shorter ones
  y = x[..., 0].sum(axis=2, keepdims=True)[:, :, 0:1].astype(np.float32)
  y[3:5] *= 1e6
  return x, y


def make_train_step(model, optimizer):
  use_loss_scale = FLAGS.dtype == 'fp16'

  @tf.function
  def train_step(x, y):
    with tf.GradientTape() as tape:
      loss = tf.reduce_mean(tf.math.squared_difference(model(x, training=True), y))
      if use_loss_scale:
        scaled_loss = optimizer.get_scaled_loss(loss)
    if use_loss_scale:
      grads = tape.gradient(scaled_loss, model.trainable_variables)
      grads = optimizer.get_unscaled_gradients(grads)
    else:
      grads = tape.gradient(loss, model.trainable_variables)
    grads, norm = tf.clip_by_global_norm(grads, FLAGS.clip_norm)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss

  return train_step


def main(_):
  tf.keras.mixed_precision.set_global_policy(POLICIES[FLAGS.dtype])
  random = np.random.RandomState(0)
  x, y = make_batches(random)
  model = SequenceModel(units=12, depth=2)
  model(x[0])
  model.set_weights([
      random.normal(scale=0.5, size=w.shape) if w.ndim == 2 else w for w in model.get_weights()])
  logging.info('variables: %s', [v.name for v in model.trainable_variables])

  optimizer = tf.keras.optimizers.Adagrad(FLAGS.learning_rate)
  if FLAGS.dtype == 'fp16':
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(
        optimizer, dynamic=True, initial_scale=2**13, dynamic_growth_steps=3)
  train_step = make_train_step(model, optimizer)

  losses, scales = [], [optimizer.initial_scale]
  for step in range(FLAGS.steps):
    losses.append(train_step(tf.constant(x[step]), tf.constant(y[step])).numpy().item())
    scales.append(optimizer.loss_scale.numpy().item())
  print(json.dumps({
      'losses': losses,
      'loss_scales': scales[1:],
      'skipped': sum(after < before for before, after in zip(scales, scales[1:])),
      'iterations': int(optimizer.iterations.numpy()),
      'weights': [w.ravel().astype(float).tolist() for w in model.get_weights()],
  }))


if __name__ == '__main__':
  app.run(main)
