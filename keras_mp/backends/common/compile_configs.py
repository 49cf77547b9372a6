"""Keeps our optimizers in a model's config of `compile`, where Keras drops them.

`model.save("m.h5")` of Keras 3.15 removes the optimizer from the model's config of `compile`. A
model that is saved or cloned later then has the default optimizer, RMSprop, at step 0.
"""

import functools
from collections.abc import Callable
from typing import Any

from keras_mp.backends.common.trainer_hook import trainer_class


def keep(cls: type, serialized: Callable[[Any], Any]) -> None:
    """Makes `get_compile_config` of models always name their optimizer, if it is of `cls`.

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
