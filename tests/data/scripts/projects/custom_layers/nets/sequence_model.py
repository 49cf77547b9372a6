# coding=utf-8
import tensorflow as tf

from nets.layers import GatedDense, ScaleNorm


class SequenceModel(tf.keras.Model):
  """Mean over time of gated layers, then one number."""

  def __init__(self, units, depth, name='sequence_model'):
    super(SequenceModel, self).__init__(name=name)
    self.blocks = []
    for i in range(depth):
      self.blocks.append((ScaleNorm(name='norm_%d' % i), GatedDense(units, name='gated_%d' % i)))
    self.head = tf.keras.layers.Dense(1, dtype='float32', name='head')

  def call(self, inputs, training=None):
    x = inputs
    for norm, gated in self.blocks:
      x = gated(norm(x))
    mask = tf.cast(tf.not_equal(inputs[:, :, :1], 0), x.dtype)
    x = tf.reduce_sum(x * mask, axis=1) / tf.maximum(tf.reduce_sum(mask, axis=1), 1)
    return self.head(x)
