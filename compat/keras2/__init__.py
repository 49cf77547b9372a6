"""Optimizers of Keras 2: their update rules as pure functions, their options, their slots.

The classes that train by them are in `keras_mp.compat.optimizers`. `slots` needs no Keras.
"""
