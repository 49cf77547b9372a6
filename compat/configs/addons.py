"""What TensorFlow Addons 0.10 to 0.23 wrote into optimizer configs, and what becomes of it.

Sources: tensorflow_addons 0.11.2, optimizers/*.py, `get_config`; keys of later versions are
marked. A class is converted where `keras_mp.compat.optimizers` has its rule, else refused.
"""

from keras_mp.compat.configs.checks import Check, describe, empty, number, truth
from keras_mp.compat.errors import LegacyError

PREFIX = "Addons>"

_EXCLUDED = empty(
    "configs of Keras 3 do not say which variables are excluded: leave the key out, and call "
    "exclude_from_weight_decay(var_names=...) on the optimizer before it is built"
)


def _weight_decay(value: object, path: str) -> float:
    if isinstance(value, dict):
        why = "a schedule of the weight decay has no counterpart; set decoupled_weight_decay, a "
        raise LegacyError(path, describe(value), why + "number, in a callback")
    return number(value, path)


_BETAS: dict[str, Check] = {"beta_1": number, "beta_2": number}
_ADAM: dict[str, Check] = _BETAS | {"epsilon": number, "amsgrad": truth}
_DECOUPLED: dict[str, Check] = {
    "weight_decay": _weight_decay,
    "exclude_from_weight_decay": _EXCLUDED,  # 0.13
}
_NO_ADAPTATION = empty("there is no counterpart; build the optimizer in code")

# Of `optimizer_tables.SHARED`, the keys that these have, too.
SHARED = (
    "name",
    "decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "gradient_aggregator",
    "gradient_transformers",
)

# Class -> (class today, keys beside those of every optimizer).
CLASSES: dict[str, tuple[str, dict[str, Check]]] = {
    "AdamW": ("Adam", _ADAM | _DECOUPLED),
    "SGDW": ("SGD", {"momentum": number, "nesterov": truth} | _DECOUPLED),
    "LazyAdam": ("LazyAdam", _ADAM),
    "LAMB": (
        "LAMB",
        _BETAS
        | {
            "epsilon": number,
            "weight_decay_rate": number,
            "weight_decay": number,  # its name since 0.16
            "exclude_from_weight_decay": _NO_ADAPTATION,  # 0.13, as the next
            "exclude_from_layer_adaptation": _NO_ADAPTATION,
        },
    ),
}

# Key -> keyword today, per class.
RENAMED: dict[str, dict[str, str]] = {
    "AdamW": {"weight_decay": "decoupled_weight_decay"},
    "SGDW": {"weight_decay": "decoupled_weight_decay"},
    "LAMB": {"weight_decay": "weight_decay_rate"},
}
DROPPED = (
    "exclude_from_weight_decay",
    "exclude_from_layer_adaptation",
    "gradient_aggregator",
    "gradient_transformers",
)

# Why the class is ours. What is not in the config but changes training is said, too.
REASONS: dict[str, str] = {
    "AdamW": "Addons decays weights by weight_decay, Keras 3 by weight_decay * learning_rate",
    "SGDW": "Addons decays weights by weight_decay, Keras 3 by weight_decay * learning_rate",
    "LazyAdam": "Keras 3 has none; rows that are not in the batch stay only for the variables that "
    "sparse_variables names",
    "LAMB": "Addons decays weights inside the trust ratio; exclude_from_weight_decay and "
    "exclude_from_layer_adaptation, which Addons kept out of configs, are lost if they were used",
}

_NEAREST = "no class of today has its rule; the nearest is "
REFUSED: dict[str, str] = {
    "RectifiedAdam": _NEAREST + "keras.optimizers.Adam with a warm-up in its learning rate",
    "Lookahead": _NEAREST + "its inner optimizer with use_ema=True and ema_overwrite_frequency",
    "MovingAverage": _NEAREST + "its inner optimizer with use_ema=True and ema_momentum, which "
    "puts the averages into the weights when fit ends",
    "SWA": _NEAREST + "its inner optimizer with use_ema=True and keras.callbacks.SwapEMAWeights",
    "NovoGrad": _NEAREST + "keras.optimizers.AdamW",
    "Yogi": _NEAREST + "keras.optimizers.Adam with amsgrad=True",
    "AdaBelief": _NEAREST + "keras.optimizers.Adam",
    "ProximalAdagrad": _NEAREST + "keras.optimizers.Ftrl",
    "ConditionalGradient": _NEAREST + "keras.optimizers.SGD with a weight constraint",
    "COCOB": _NEAREST + "keras.optimizers.Adadelta with learning_rate=1",
}
