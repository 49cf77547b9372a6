"""Files of Keras, read without Keras: which format it is, HDF5, zip archives, SavedModels.

Checkpoints have a package of their own, `keras_mp.compat.checkpoints`.
"""
