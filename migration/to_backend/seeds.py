"""KMP213: seeds of TensorFlow, which other backends do not draw from.

before:  tf.random.set_seed(1)
after:   keras.utils.set_random_seed(1)
"""

from keras_mp.migration.to_backend.uses import Use, message

ANCHOR = "seeds"
_SEEDS = ("random.set_seed", "random.set_random_seed", "set_random_seed")


def decide(use: Use) -> str | None:
    if use.call is None or use.tensorflow not in _SEEDS:
        return None
    do = "write keras.utils.set_random_seed, which seeds Python, NumPy and the backend"
    return message(f"tf.{use.tensorflow}", do, ANCHOR, use.target)
