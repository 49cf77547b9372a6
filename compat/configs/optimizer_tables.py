"""What TF 1.15 to 2.15 wrote into optimizer configs: class -> key -> check of its value.

Sources: `get_config` of TF 2.3.4 python/keras/optimizer_v2/*.py and
python/training/experimental/loss_scale.py, and of Keras 2.15 optimizers/*.py and
mixed_precision/loss_scale_optimizer.py. Keys are called the same in Keras 3 unless said.
"""

from keras_mp.compat.configs.checks import (
    Check,
    anything,
    empty,
    flag,
    int_or_float,
    name,
    number,
    number_list,
    or_none,
    scale,
    steps,
    truth,
)

_BETAS: dict[str, Check] = {"beta_1": number, "beta_2": number}
OPTIMIZERS: dict[str, dict[str, Check]] = {
    "SGD": {"momentum": number, "nesterov": truth},
    "Adam": _BETAS | {"epsilon": number, "amsgrad": truth},
    "AdamW": _BETAS | {"epsilon": number, "amsgrad": truth},
    "Adamax": _BETAS | {"epsilon": number},
    # Keras up to 2.2.4 called its `decay` so; TF took both.
    "Nadam": _BETAS | {"epsilon": number, "schedule_decay": number},
    "Lion": _BETAS,
    "Adagrad": {"initial_accumulator_value": number, "epsilon": number},
    "Adadelta": {"rho": number, "epsilon": number},
    "RMSprop": {"rho": number, "momentum": number, "epsilon": number, "centered": truth},
    "Ftrl": {
        "learning_rate_power": number,
        "initial_accumulator_value": number,
        "l1_regularization_strength": number,
        "l2_regularization_strength": number,
        "l2_shrinkage_regularization_strength": number,
        "beta": number,  # since TF 2.4; before, what is Keras 3's default
    },
    "Adafactor": {
        "beta_2_decay": number,
        "epsilon_1": number,
        "epsilon_2": number,
        "clip_threshold": number,
        "relative_step": truth,
    },
}

# What compile("lion") meant in Keras 2.13 to 2.15, where Keras 3 means something else.
OTHER_DEFAULTS: dict[str, dict[str, object]] = {"Lion": {"learning_rate": 0.0001}}

# Keys of every optimizer beside "learning_rate", which a number or a schedule may be.
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
SHARED: dict[str, Check] = {
    "name": or_none(name),
    **dict.fromkeys(CLIPPING, or_none(number)),
    # since TF 2.10
    "weight_decay": or_none(number),
    "use_ema": flag,
    "ema_momentum": number,
    "ema_overwrite_frequency": or_none(steps),
    # not in Keras 3: `inner_optimizers.py` says what becomes of each
    "decay": number,
    "jit_compile": flag,
    "is_legacy_optimizer": flag,
    # arguments since TF 2.4, which no get_config wrote by itself
    "gradient_aggregator": empty(
        "Keras 3 sums the gradients of the replicas itself; reduce them your own way in a train "
        "step, before optimizer.apply"
    ),
    "gradient_transformers": empty(
        "Keras 3 has none; transform the gradients in a train step, before optimizer.apply, or in "
        "a subclass of the optimizer"
    ),
}
DROPPED = ("jit_compile", "is_legacy_optimizer", "gradient_aggregator", "gradient_transformers")

# Optimizers of the new style whose rules no class of `keras_mp.compat.optimizers` has.
NEW_ONLY = ("AdamW", "Lion", "Adafactor")

# Those that `keras_mp.compat.optimizers` has with the dense rule of Keras 3.
OF_ROWS = ("Adam", "AdamW", "Adamax", "Adadelta", "Ftrl", "Lion")

# tf.compat.v1.train: their settings are in no file. Defaults from TF 1.15 python/training/*.py.
V1: dict[str, str] = {
    "TFOptimizer": "the class of the same name in keras.optimizers",
    "GradientDescentOptimizer": "keras.optimizers.SGD",
    "MomentumOptimizer": "keras.optimizers.SGD with momentum and nesterov",
    "AdamOptimizer": "keras.optimizers.Adam with epsilon=1e-8, its default there",
    "AdagradOptimizer": "keras.optimizers.Adagrad with epsilon=0",
    "AdadeltaOptimizer": "keras.optimizers.Adadelta with epsilon=1e-8, its default there",
    "RMSPropOptimizer": "keras.optimizers.RMSprop with rho (there decay) and epsilon=1e-10",
    "FtrlOptimizer": "keras.optimizers.Ftrl",
    "AdagradDAOptimizer": "keras.optimizers.Ftrl, the nearest rule",
    "ProximalAdagradOptimizer": "keras.optimizers.Ftrl, the nearest rule",
    "ProximalGradientDescentOptimizer": "keras.optimizers.SGD and a weight constraint",
    "SyncReplicasOptimizer": "its inner optimizer, from keras.optimizers",
    "MixedPrecisionLossScaleOptimizer": "keras_mp.LossScaleOptimizer",
}

# Class -> keys that must be there, keys that may be.
_RATE: dict[str, Check] = {"initial_learning_rate": number}
_STEPS: dict[str, Check] = {"decay_steps": int_or_float}
SCHEDULES: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    "ExponentialDecay": (_RATE | _STEPS | {"decay_rate": number}, {"staircase": truth}),
    "InverseTimeDecay": (_RATE | _STEPS | {"decay_rate": number}, {"staircase": truth}),
    "PiecewiseConstantDecay": ({"boundaries": number_list, "values": number_list}, {}),
    "PolynomialDecay": (
        _RATE | _STEPS,
        {"end_learning_rate": number, "power": number, "cycle": truth},
    ),
    "CosineDecay": (
        _RATE | _STEPS,
        {"alpha": number, "warmup_target": or_none(number), "warmup_steps": int_or_float},
    ),
    "CosineDecayRestarts": (
        _RATE | {"first_decay_steps": int_or_float},
        {"t_mul": number, "m_mul": number, "alpha": number},
    ),
}

# TF 2.1 to 2.3: a loss scale is an object of its own.
WRAPPED: dict[str, Check] = {"optimizer": anything, "loss_scale": anything}
LOSS_SCALES: dict[str, dict[str, Check]] = {
    "DynamicLossScale": {
        "initial_loss_scale": scale,
        "increment_period": steps,
        "multiplier": number,
    },
    "FixedLossScale": {"loss_scale_value": scale},
}

# TF 2.4 to 2.15: what there is to say about it stands beside the optimizer.
FLAT: dict[str, Check] = {
    "inner_optimizer": anything,
    "dynamic": flag,
    "initial_scale": or_none(scale),
    "dynamic_growth_steps": or_none(steps),
}
# Of keras_mp, for a config of today around an old optimizer.
KNOBS: dict[str, Check] = {
    "name": or_none(name),
    "growth_factor": number,
    "backoff_factor": number,
    "min_scale": scale,
    "max_scale": or_none(scale),
    "hysteresis": steps,
    "count_skipped_steps": flag,
    "skip_nonfinite": flag,
    "diagnose": flag,
    "max_consecutive_skips": or_none(steps),
    "fused": flag,
}

LOSS_SCALED = ("lossscaleoptimizer", "lossscaleoptimizerv1", "lossscaleoptimizerv3")

# Keras 2.13 and later wrote modules, sometimes private ones; tf_keras is Keras 2 today.
LOSS_SCALED_MODULE = r"keras_mp|(tf_)?keras(\.src)?\.(mixed_precision|optimizers)(\..+)?"
OPTIMIZER_MODULE = r"(tf_)?keras(\.src)?\.optimizers(\..+)?"
LOSS_SCALE_MODULE = r"(?!)"  # gone before there were modules
SCHEDULE_MODULE = r"(tf_)?keras(\.src)?\.optimizers\.schedules(\..+)?"
