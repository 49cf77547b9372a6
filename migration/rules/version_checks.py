"""KMP014: code that asks which TensorFlow there is. Left alone, and reported.

    if LooseVersion(tf.__version__) >= "2.4":
        mixed_precision.set_global_policy("mixed_float16")
    else:
        mixed_precision.experimental.set_policy("mixed_float16")

    try:
        from tensorflow.keras import mixed_precision
    except ImportError:
        mixed_precision = None

A person decides which branch stays.
"""

from keras_mp.migration.code.names import Old
from keras_mp.migration.code.sites import Decision

ID = "KMP014"


def decide(old: Old, *, several: bool) -> Decision:
    why = (
        "the name has several meanings in this program"
        if several
        else "the program asks which TensorFlow there is"
    )
    return Decision("person", f"{why}: left alone; {old.now}")
