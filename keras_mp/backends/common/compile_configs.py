"""Keeps our optimizers in what a model says of `compile`, where Keras loses them.

`model.save("m.h5")` of Keras 3.15 takes the optimizer out of the model's record of `compile`. What
is saved or cloned afterwards then has the default optimizer, RMSprop, at step 0.
"""

import functools
from collections.abc import Callable
from typing import Any

from keras_mp.backends.common.trainer_hook import trainer_class


def keep(cls: type, serialized: Callable[[Any], Any]) -> None:
    """Has `get_compile_config` of models name their optimizer, if it is of `cls`, always.

    Args:
        cls: A class of optimizers.
        serialized: Returns the config of one of them.
    """
    trainer = trainer_class()
    original = trainer.get_compile_config

    @functools.wraps(original)
    def get_compile_config(model: Any) -> Any:
        config = original(model)
        optimizer = getattr(model, "optimizer", None)
        if config and "optimizer" not in config and isinstance(optimizer, cls):
            config = {**config, "optimizer": serialized(optimizer)}
        return config

    trainer.get_compile_config = get_compile_config
