"""Which hyperparameters of the inner optimizer the wrapper delegates.

Knowledge of Keras 2 as a table; no framework, no keras.
"""

import numbers

from keras_mp.array_types import Optimizer
from keras_mp.settings import BASE_OPTIONS

# Keras' own loss_scale_factor is missing: the wrapper scales the loss.
_ALWAYS = ("learning_rate", *(name for name in BASE_OPTIONS if name != "loss_scale_factor"))

# The hyperparameters that each optimizer of TensorFlow 2.4 (python/keras/optimizer_v2) created with
# `_set_hyper`. All have learning_rate; Keras 3 dropped `decay`. AdamW, of TensorFlow 2.11, has
# those of Adam. MultiOptimizer, of Keras 3, has none; it is listed because its get_config()
# contains its optimizers.
KERAS_2: dict[str, tuple[str, ...]] = {
    "SGD": ("momentum",),
    "Adam": ("beta_1", "beta_2"),
    "AdamW": ("beta_1", "beta_2"),
    "Adamax": ("beta_1", "beta_2"),
    "Nadam": ("beta_1", "beta_2"),
    "RMSprop": ("rho", "momentum"),
    "Adadelta": ("rho",),
    "Adagrad": (),
    "MultiOptimizer": (),
    "Ftrl": (
        "learning_rate_power",
        "l1_regularization_strength",
        "l2_regularization_strength",
        "beta",
    ),
}


def names(optimizer: Optimizer) -> frozenset[str]:
    """Returns the attributes of `optimizer` that its wrapper delegates.

    For an optimizer of Keras 2 these are its hyperparameters of then; for any other, every number
    (no bool) in `get_config()` except epsilon. The options of the base class are always included.
    An optimizer that wraps another has those of the other.
    """
    if (inner := getattr(optimizer, "inner_optimizer", None)) is not None:
        return names(inner)
    known = KERAS_2.get(type(optimizer).__name__)
    if known is None or not type(optimizer).__module__.startswith("keras."):
        known = tuple(_numeric_keys(optimizer))
    # Without reading learning_rate: keras.optimizers.MultiOptimizer raises AttributeError for it,
    # with a message of its own that users should see.
    return frozenset((*_ALWAYS, *(name for name in known if hasattr(optimizer, name))))


def _numeric_keys(optimizer: Optimizer) -> list[str]:
    try:
        config = optimizer.get_config()
    except Exception:  # noqa: BLE001 - the user's code; wrapping does not need it
        return []
    return [
        key
        for key, value in config.items()
        if isinstance(value, numbers.Number) and not isinstance(value, bool) and key != "epsilon"
    ]
