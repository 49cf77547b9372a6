import random

import numpy as np
import tensorflow as tf


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)


def fill(model, seed, std=0.3):
    """Same weights with each version: the initializers' random numbers changed."""
    rs = np.random.RandomState(seed)
    model.set_weights([rs.normal(0, std, w.shape) for w in model.get_weights()])
