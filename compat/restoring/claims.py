"""Numbers in a config that cost memory by themselves, where nothing in the file is as large.

Weights are counted by `limits.py`, as they are made; this is for what becomes no weight.
"""

from typing import Any

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.configs.checks import objects_in

# Key of a config -> the most that it may be: Keras makes a list of so many indices.
_MOST = {"num_oov_indices": 1 << 20}


def refuse(file: str, where: str, config: Any) -> None:
    """Refuses a config that claims more than people use, such as 10**8 indices of unknown words.

    Args:
        file: For errors.
        where: The part of the file that the config is in, for errors.
        config: JSON, of Keras 2 or 3.

    Raises:
        Unreadable: Names the layer, the key and the number.

    >>> refuse("a.h5", "", {"class_name": "StringLookup", "config": {"num_oov_indices": 10**8}})
    Traceback (most recent call last):
    keras_mp.compat.checkpoints.errors.Unreadable: a.h5: num_oov_indices is 100000000, and at most \
1048576 are made
    """
    for value in objects_in(config):
        for key, most in _MOST.items():
            if isinstance(number := value.get(key), int | float) and number > most:
                name = f" of {value['name']!r}" if isinstance(value.get("name"), str) else ""
                why = f"{key}{name} is {number}, and at most {most} are made"
                raise Unreadable(file, where, why)
