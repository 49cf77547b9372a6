"""KMP014: code that asks which TensorFlow there is. Left alone, and reported.

    if LooseVersion(tf.__version__) >= "2.4":
        mixed_precision.set_global_policy("mixed_float16")
    else:
        mixed_precision.experimental.set_policy("mixed_float16")

    try:
        from tensorflow.keras import mixed_precision
    except ImportError:
        mixed_precision = None

A person decides which branch stays. What is told by how Python compares text is said, too:
"2.21" >= "2.4" is False.
Kept: what no TensorFlow of Keras 3 gets to, as a comparison of versions decides; what it does get
to is rewritten as everywhere.
"""

from keras_mp.migration.code.names import Old
from keras_mp.migration.code.sites import Decision

DEAD = Decision("kept", "no TensorFlow from 2.16 on gets here")


def decide(old: Old, *, several: bool, as_text: tuple[str, bool] | None = None) -> Decision:
    """Returns what is said of an old name.

    Args:
        old: The name.
        several: Whether it has several meanings.
        as_text: A test around it that compares versions as text, and which way it goes.
    """
    if as_text is not None:
        test, value = as_text
        why = (
            f"{test} is {value} for TensorFlow 2.21, because it compares strings: compare parsed "
            "versions"
        )
        return Decision("manual", f"{why}; not rewritten; {old.now}")
    why = (
        "the name has several meanings in this program"
        if several
        else "the program checks the TensorFlow version"
    )
    return Decision("manual", f"{why}: not rewritten; {old.now}")
