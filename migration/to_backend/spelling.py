"""Names of TensorFlow, Keras and Horovod, whichever way a program spells them.

Knows names, no syntax: it takes what `Program.meaning` resolved through imports and aliases.
"""

_TENSORFLOW = ("tensorflow", "tensorflow_core")
# What TensorFlow 2 has of Keras without `keras.`; in TensorFlow 1 these are others.
_OF_KERAS = ("initializers", "losses", "metrics", "optimizers")
_IN_TENSORFLOW = ("compat.v1.", "compat.v2.", "_api.v1.", "_api.v2.")
_IN_KERAS = ("api.", "src.", "engine.", "legacy.", "_v1.", "_v2.", "api._v1.", "api._v2.")


def tensorflow_name(full: str) -> str | None:
    """Returns a name of TensorFlow as programs write it, without `tf.`; None for any other.

    >>> tensorflow_name("tensorflow.compat.v2.math.reduce_mean"), tensorflow_name("numpy.mean")
    ('math.reduce_mean', None)
    >>> tensorflow_name("tensorflow.keras.layers.Dense") is None
    True
    """
    root, _, rest = full.partition(".")
    if root not in _TENSORFLOW or keras_name(full) is not None:
        return None
    rest = _without(rest, _IN_TENSORFLOW)
    return None if rest.startswith("python.") else rest


def keras_name(full: str) -> str | None:
    """Returns a name of Keras as programs write it, without `keras.`; None for any other.

    >>> keras_name("tensorflow.compat.v1.keras.layers.Dense"), keras_name("keras.layers.Dense")
    ('layers.Dense', 'layers.Dense')
    >>> keras_name("tensorflow.python.keras.backend"), keras_name("tf.optimizers.Adam")
    ('backend', None)
    """
    root, _, rest = full.partition(".")
    if root in ("keras", "tf_keras"):
        return _without(rest, _IN_KERAS)
    if root not in _TENSORFLOW:
        return None
    is_first = rest.startswith("compat.v1.")
    rest = _without(rest, _IN_TENSORFLOW).removeprefix("python.")
    first, _, below = rest.partition(".")
    if first == "keras":
        return _without(below, _IN_KERAS)
    return rest if first in _OF_KERAS and not is_first else None


def is_by_tensorflow(full: str) -> bool:
    """Returns whether a name of Keras is one that only TensorFlow, or Keras 2, has.

    >>> [is_by_tensorflow(f"{root}.layers") for root in ("tensorflow.keras", "tf_keras", "keras")]
    [True, True, False]
    """
    return keras_name(full) is not None and full.partition(".")[0] != "keras"


def horovod_name(full: str) -> str | None:
    """Returns a name of Horovod for TensorFlow or Keras, without the module; None for any other.

    >>> horovod_name("horovod.tensorflow.keras.callbacks.MetricAverageCallback")
    'callbacks.MetricAverageCallback'
    >>> horovod_name("horovod.torch.DistributedOptimizer") is None
    True
    """
    root, _, rest = full.partition(".")
    if root != "horovod":
        return None
    for module in ("tensorflow.keras", "tensorflow", "keras", "_keras"):
        if rest == module or rest.startswith(f"{module}."):
            return rest[len(module) + 1 :]
    return None


def _without(name: str, prefixes: tuple[str, ...]) -> str:
    while prefix := next((one for one in prefixes if name.startswith(one)), None):
        name = name.removeprefix(prefix)
    return name
