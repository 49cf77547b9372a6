# coding=utf-8
"""Layers that Keras doesn't have."""
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

import tensorflow as tf


class ScaleNorm(tf.keras.layers.Layer):
  """Divides by the length of the vector, and multiplies with one learnt number.

  The length is computed in float32: the square of 256 overflows in float16.
  """

  def __init__(self, epsilon=1e-5, **kwargs):
    super(ScaleNorm, self).__init__(**kwargs)
    self.epsilon = epsilon

  def build(self, input_shape):
    self.g = self.add_weight(
        'g', shape=(), initializer='ones', trainable=True, dtype=tf.float32,
        experimental_autocast=False)
    super(ScaleNorm, self).build(input_shape)

  def call(self, inputs):
    x = tf.cast(inputs, tf.float32)
    length = tf.sqrt(tf.reduce_sum(tf.square(x), axis=-1, keepdims=True) + self.epsilon)
    return tf.cast(self.g * x / length, self._compute_dtype)


class GatedDense(tf.keras.layers.Layer):
  """y = (x W) * sigmoid(x V)"""

  def __init__(self, units, **kwargs):
    super(GatedDense, self).__init__(**kwargs)
    self.units = units

  def build(self, input_shape):
    shape = (int(input_shape[-1]), self.units)
    self.w = self.add_weight(name='w', shape=shape, initializer='glorot_uniform')
    self.v = self.add_weight(name='v', shape=shape, initializer='glorot_uniform')
    self.b = self.add_weight(name='b', shape=(self.units,), initializer='zeros')
    super(GatedDense, self).build(input_shape)

  def call(self, inputs):
    if inputs.dtype != self._compute_dtype:
      inputs = tf.cast(inputs, self._compute_dtype)
    value = tf.matmul(inputs, self.w)
    gate = tf.matmul(inputs, self.v) + self.b
    return value * tf.sigmoid(gate)

  def get_config(self):
    config = super(GatedDense, self).get_config()
    config.update({'units': self.units})
    return config
