# Everything that the scripts need: from common import *
import os
import json
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, mixed_precision

SEED = 42
BATCH_SIZE = 8
EPOCHS = 2
SEQ_LEN = 12
VOCAB = 30

rng = np.random.RandomState(SEED)
