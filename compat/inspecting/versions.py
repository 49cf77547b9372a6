"""Infers which versions of TensorFlow or Keras can have written a file, and says from what."""

import json
import re
from collections.abc import Mapping

Guess = tuple[str, str]

# keras_version of the HDF5 files and configs of tf.keras -> the TensorFlow that had it. From 2.5
# on the two numbers are the same.
_OF_KERAS = {
    "2.2.4-tf": "TensorFlow 1.14 to 2.1",
    "2.3.0-tf": "TensorFlow 2.2",
    "2.4.0": "TensorFlow 2.3 or 2.4",
}


def of_keras_version(version: str, optimizer: object = None) -> Guess:
    """Returns the guess from a `keras_version`, and where that leaves two, from the optimizer.

    Args:
        version: As stored.
        optimizer: The serialized optimizer, if there is one.

    >>> of_keras_version("2.13.1")
    ('TensorFlow 2.13', 'keras_version is 2.13.1')
    >>> of_keras_version("3.4.1")[0]
    'Keras 3.4.1'
    """
    why = f"keras_version is {version}"
    if version == "2.4.0":
        text = json.dumps(optimizer)
        if "inner_optimizer" in text or "LossScaleOptimizerV1" in text:
            return "TensorFlow 2.4", f"{why}, and the loss scaler has an inner_optimizer"
        if '"loss_scale"' in text:
            return "TensorFlow 2.3", f"{why}, and the loss scaler has a loss_scale"
    if version in _OF_KERAS:
        return _OF_KERAS[version], why
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version)
    if match is None:
        return "unknown", why
    if int(match[1]) >= 3:
        return f"Keras {version}", why
    if (int(match[1]), int(match[2])) >= (2, 16):
        return f"tf_keras {version}", why
    if (int(match[1]), int(match[2])) >= (2, 5):
        return f"TensorFlow {match[1]}.{match[2]}", why
    return f"Keras {version}, without TensorFlow's", why


def is_keras_3(written_by: str) -> bool:
    """Returns whether a guess is Keras 3 or later, and not Keras without TensorFlow's.

    >>> is_keras_3("Keras 3.4.1"), is_keras_3("Keras 2.2.4, without TensorFlow's")
    (True, False)
    """
    return re.match(r"Keras (?!2\.|1\.|0\.)", written_by) is not None


def of_layers_group(names: Mapping[str, object] | set[str]) -> Guess:
    """Returns the guess from the groups of an HDF5 file in the layout of `.weights.h5`."""
    if "_layer_checkpoint_dependencies" in names:
        return "TensorFlow 2.12 to 2.14", "its layers are _layer_checkpoint_dependencies"
    return "TensorFlow 2.15, tf_keras or Keras 3", "its layers are in 'layers'"
