"""The optimizer of a checkpoint, inferred from what the checkpoint holds.

Checkpoints of `tf.keras` up to 2.10, and of `optimizers.legacy` later, hold the hyperparameters
that TensorFlow kept in variables. The class follows from the optimizer's name and slots.
"""

from dataclasses import dataclass
from typing import Any

from keras_mp.compat.inspecting.inspection import Optimizer
from keras_mp.settings import GROWTH_STEPS, INITIAL_SCALE

Json = dict[str, Any]

TOLD = (
    "assumed the optimizer {}, from its name and values in the checkpoint, with TensorFlow's "
    "defaults for the rest: {}. To use another, pass --optimizer optimizer.json"
)


@dataclass(frozen=True, slots=True)
class _Class:
    """What TF 1.15 to 2.10 kept of an optimizer.

    Attributes:
        kept: Hyperparameters in variables, besides learning_rate and decay.
        lost: Others, and the defaults that they had.
        slots: Names of its slots.
        some: Slots that it had with some options only -> that option.
    """

    kept: tuple[str, ...]
    lost: Json
    slots: tuple[str, ...] = ()
    some: tuple[tuple[str, str | None], ...] = ()


_EPSILON = {"epsilon": 1e-7}
_BETAS = ("beta_1", "beta_2")
_FTRL = ("learning_rate_power", "l1_regularization_strength", "l2_regularization_strength")
_CLASSES = {
    "SGD": _Class(("momentum",), {"nesterov": False}, (), (("momentum", None),)),
    "Adam": _Class(_BETAS, _EPSILON, ("m", "v"), (("vhat", "amsgrad"),)),
    "Adamax": _Class(_BETAS, _EPSILON, ("m", "v")),
    "Nadam": _Class(_BETAS, _EPSILON, ("m", "v")),
    "RMSprop": _Class(
        ("rho", "momentum"), _EPSILON, ("rms",), (("momentum", None), ("mg", "centered"))
    ),
    "Adagrad": _Class((), _EPSILON, ("accumulator",)),
    "Adadelta": _Class(("rho",), _EPSILON, ("accum_grad", "accum_var")),
    "Ftrl": _Class(_FTRL, {"l2_shrinkage_regularization_strength": 0.0}, ("accumulator", "linear")),
}
_NO_STATE = ("momentum_cache",)
_SOMETIMES = ("beta",)  # of Ftrl, from TF 2.4 on
_UNCLIPPED = "no clipping"


def config_of(found: Optimizer) -> tuple[Json, str | None, str] | str:
    """Returns (config as `tf.keras` wrote it, its TensorFlow, what to say); or why it is unclear.

    Args:
        found: The optimizer, as `inspect` shows it.

    >>> kept = {"learning_rate": 0.5, "decay": 0.0, "momentum": 0.0}
    >>> sgd = Optimizer(layout="flat", name="SGD", config=kept)
    >>> config_of(sgd)[0]["config"]
    {'learning_rate': 0.5, 'decay': 0.0, 'momentum': 0.0, 'nesterov': False}
    >>> config_of(Optimizer(layout="new", name="SGD"))
    'the optimizers of TF 2.11 keep their learning rate only'
    """
    if found.layout not in ("flat", "base_optimizer"):
        return "the optimizers of TF 2.11 keep their learning rate only"
    known = _CLASSES.get(found.name or "")
    if known is None:
        called = "has no name in the file" if found.name is None else f"is called {found.name!r}"
        return f"it {called}, so its class is not known"
    if found.loss_scaler is not None and found.loss_scale is None:
        return "its loss scale was fixed, and is not in the file"
    kept = {name: value for name, value in found.config.items() if name not in _NO_STATE}
    if "learning_rate" not in kept:
        return "its learning rate was a schedule, which is not in the file"
    slots = {*found.slots}
    optional = {name for name, _ in known.some}
    names = {*kept} - {*_SOMETIMES}
    if names != {"learning_rate", "decay", *known.kept} or slots - optional != {*known.slots}:
        return f"its slots and hyperparameters are not those of {found.name}"
    lost = {} if kept.get("momentum") == 0 and found.name == "SGD" else known.lost
    options = {option: name in slots for name, option in known.some if option is not None}
    config: Json = {"class_name": found.name, "config": {**kept, **options, **known.lost}}
    version = None
    if found.loss_scaler is not None:
        lost = {**lost, "dynamic_growth_steps": GROWTH_STEPS}
        config, version = _scaled(config, found.layout)
    shown = [f"{name}={value:g}" for name, value in kept.items() if name != "decay" or value]
    shown += [f"{name}={value}" for name, value in options.items() if value]
    defaults = ", ".join([*(f"{name}={value}" for name, value in lost.items()), _UNCLIPPED])
    return config, version, TOLD.format(f"{found.name}({', '.join(shown)})", defaults)


def _scaled(config: Json, layout: str) -> tuple[Json, str | None]:
    if layout == "flat":
        scaling = {"dynamic": True, "initial_scale": INITIAL_SCALE}
        inside = {"inner_optimizer": config, **scaling, "dynamic_growth_steps": GROWTH_STEPS}
        return {"class_name": "LossScaleOptimizer", "config": inside}, None
    scaling = {"initial_loss_scale": INITIAL_SCALE, "increment_period": GROWTH_STEPS}
    scale = {"class_name": "DynamicLossScale", "config": scaling}
    inside = {"optimizer": config, "loss_scale": scale}
    return {"class_name": "LossScaleOptimizer", "config": inside}, "2.2"
