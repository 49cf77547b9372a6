"""The past: APIs, configs, optimizers and files of TF 1.15 to 2.15, on today's Keras.

Modules and functions load on first use: this imports neither keras nor a framework.
"""

from typing import TYPE_CHECKING

from keras_mp.compat import names

if TYPE_CHECKING:
    from keras_mp.compat.restoring.checkpoints import restore
    from keras_mp.compat.restoring.models import load, load_model, load_weights
    from keras_mp.compat.scale_states import scale_state

_MODULES = ["configs", "mixed_precision", "optimizers", "train", "v1"]

__all__ = ["load", "load_model", "load_weights", "restore", "scale_state"]

__getattr__ = names.submodules(
    __name__,
    _MODULES,
    {
        "load": "keras_mp.compat.restoring.models:load",
        "load_model": "keras_mp.compat.restoring.models:load_model",
        "load_weights": "keras_mp.compat.restoring.models:load_weights",
        "restore": "keras_mp.compat.restoring.checkpoints:restore",
        "scale_state": "keras_mp.compat.scale_states:scale_state",
    },
)
