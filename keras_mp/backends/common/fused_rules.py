"""Which optimizers and options `LossScaleOptimizer(optimizer, fused=True)` supports.

One kernel of the framework updates in one pass over the state; Keras makes a dozen passes. The
state stays in the optimizer's variables, so files, checkpoints and `fused=False` read it as before.

Kernels round differently from Keras, so this is a choice. After 200 steps a weight differs from the
default path by less than 2**-20 of |weight| + the length of its path (measured: half of it).
TensorFlow's Adam computes 1 - beta_2 in float32, which changes beta_2: add 2**-26 / (1 - beta_2),
which is 1.5e-5 for 0.999 (measured: 0.7e-5).


| optimizer                        | TensorFlow | PyTorch  | JAX     |
| -------------------------------- | ---------- | -------- | ------- |
| Adam, AdamW                      | fused      | fused    | default |
| Adam, AdamW with amsgrad         | default    | fused    | default |
| SGD, with momentum, nesterov     | fused      | fused    | default |
| Adagrad, epsilon small enough    | fused      | fused    | default |
| RMSprop with momentum            | fused      | default  | default |
| RMSprop otherwise                | default    | default  | default |

TensorFlow's kernels run in graphs and eagerly. Under XLA, which `fit` chooses unless called with
`jit_compile=False`, XLA fuses the default path.

"default" is the path without `fused`, with the same results as before. Steps whose gradients a
kernel does not support (sparse ones, say) take it, too. `LossScaleOptimizer.fused_fallback` says
when and why. All other optimizers and options are errors, the same on every backend.

The kernels are in `backends/tensorflow/fused.py` and `backends/torch/fused.py`;
`optimizer/stepper.py` calls them.
"""

from keras_mp.array_types import Optimizer

CLASSES = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop")
# Options of keras.optimizers.Optimizer that change the rule. weight_decay does not: it is a factor
# before the step, for each class.
OPTIONS = (
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "gradient_accumulation_steps",
    "loss_scale_factor",
)
# Keras' methods that make up a step: an instance that overrides one has another rule.
METHODS = (
    "apply",
    "apply_gradients",
    "update_step",
    "assign",
    "assign_add",
    "assign_sub",
    "_apply_weight_decay",
    "_backend_apply_gradients",
    "_backend_update_step",
    "_clip_gradients",
    "_get_current_learning_rate",
    "_parallel_update_step",
    "_use_weight_decay",
)
ROUNDED = "weights or slots kept only in 16 bits are rounded after each step, not by kernels"
XLA = "XLA fuses the default path by itself"
_REMEDY = "use fused=False"
# Kernels divide by sqrt(accumulator) + epsilon, Keras by sqrt(accumulator + epsilon).
ADAGRAD_EPSILON = 2e-6


def check(optimizer: Optimizer) -> None:
    """Raises ValueError unless fused kernels exist for the rule of `optimizer`.

    The same on every backend, even one without such kernels, so that a script behaves alike.

    >>> import keras
    >>> check(keras.optimizers.Adam())
    >>> check(keras.optimizers.Adam(clipnorm=1.0))
    Traceback (most recent call last):
    ValueError: fused=True does not support clipnorm=1.0 of Adam: fused kernels have no such rule. \
Leave clipnorm out, or use fused=False.
    """
    name = rule_of(optimizer)
    if name is None:
        raise ValueError(_unknown(optimizer))
    for option in OPTIONS:
        value = getattr(optimizer, option)
        if value:
            raise ValueError(_not_possible(f"{option}={value!r} of {name}", option))
    for method in METHODS:
        if method in optimizer.__dict__:
            raise ValueError(_not_possible(f"the {method} that was set on this {name}", "it"))
    if optimizer.weight_decay and _has_exclusions(optimizer):
        raise ValueError(
            _not_possible(f"exclude_from_weight_decay of {name}", "exclude_from_weight_decay")
        )


def rule_of(optimizer: Optimizer) -> str | None:
    """Returns the name of the exact class of `optimizer` in keras.optimizers; None for others.

    A subclass may have another rule. On PyTorch, Keras itself creates objects of a subclass of its
    own.

    >>> import keras
    >>> rule_of(keras.optimizers.SGD()), rule_of(keras.optimizers.Lion())
    ('SGD', None)
    """
    cls = type(optimizer)
    if cls.__name__ not in CLASSES or not cls.__module__.startswith("keras.src."):
        return None
    return cls.__name__


def _has_exclusions(optimizer: Optimizer) -> bool:
    names = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
    return any(bool(getattr(optimizer, name, None)) for name in names)


def _not_possible(found: str, what: str) -> str:
    return (
        f"fused=True does not support {found}: fused kernels have no such rule. "
        f"Leave {what} out, or {_REMEDY}."
    )


def _unknown(optimizer: Optimizer) -> str:
    cls = type(optimizer)
    bases = [base.__name__ for base in cls.__mro__ if base.__name__ in CLASSES]
    kind = f", a subclass of {bases[0]} that may have another rule" if bases else ""
    return (
        f"fused=True supports {', '.join(CLASSES)} of keras.optimizers, but "
        f"inner_optimizer is of the class {cls.__name__}{kind}. Use one of them, or {_REMEDY}."
    )


def option_fallback(optimizer: Optimizer) -> str | None:
    """Returns why no kernel of any framework has the rule of `optimizer`, or None.

    >>> import keras
    >>> option_fallback(keras.optimizers.RMSprop())
    'RMSprop without momentum lacks a slot that the kernels need'
    """
    match rule_of(optimizer):
        case "Adagrad":
            if not 0 < optimizer.epsilon <= ADAGRAD_EPSILON * optimizer.initial_accumulator_value:
                return (
                    f"Adagrad with epsilon above {ADAGRAD_EPSILON} * initial_accumulator_value: "
                    "kernels add it at another place"
                )
        case "RMSprop" if optimizer.centered:
            return "centered RMSprop subtracts numbers whose rounding errors have no bound"
        case "RMSprop" if not optimizer.momentum:
            return "RMSprop without momentum lacks a slot that the kernels need"
    return None


def adagrad_epsilon(optimizer: Optimizer) -> float:
    """Returns the epsilon with which a kernel best matches the rule of Keras' Adagrad.

    sqrt(a + e) = sqrt(a) + e / (2 sqrt(a)) - ...: exact to first order at the initial value, from
    which accumulators only grow; elsewhere the relative error is at most e / (8 a).

    >>> import keras
    >>> f"{adagrad_epsilon(keras.optimizers.Adagrad()):.2g}"
    '1.6e-07'
    """
    initial: float = optimizer.initial_accumulator_value
    return float(optimizer.epsilon / (2 * initial**0.5))
