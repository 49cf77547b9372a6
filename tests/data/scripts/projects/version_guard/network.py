import tensorflow as tf
from tensorflow.keras import layers


def residual(x, units):
    y = layers.Dense(units, activation='relu')(x)
    y = layers.Dense(units)(y)
    return layers.Activation('relu')(layers.Add()([x, y]))


def make_network(features, units=24, blocks=2):
    inputs = tf.keras.Input(shape=(features,))
    x = layers.Dense(units, activation='relu')(inputs)
    for _ in range(blocks):
        x = residual(x, units)
    outputs = layers.Dense(1, activation='sigmoid', dtype='float32')(x)
    return tf.keras.Model(inputs, outputs, name='tabular')
