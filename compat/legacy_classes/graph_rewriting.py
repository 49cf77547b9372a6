"""`enable_mixed_precision_graph_rewrite` as TensorFlow had it, on `keras_mp.graph_rewrite`."""

import logging
from typing import Any

import keras

from keras_mp import graph_rewrite
from keras_mp.compat.legacy_classes import wrapper_registry
from keras_mp.graph_rewrite.enabling import enable_with_defaults
from keras_mp.policies import graph_rewrite_switch as switch

_logger = logging.getLogger("keras_mp")

_AT_MOST_ONE = (
    "At most, one of the following can be called:\n\n"
    "  1. {first} (You called this first)\n\n"
    "  2. {second} (You called this second)\n\n"
    "You called both functions, which is an error, because both functions enable you to use mixed "
    "precision. If in doubt which function to use, use the policy"
)
_SET_POLICY = "set_global_policy() or set_policy() with a mixed precision policy"
_ENABLE = "enable_mixed_precision_graph_rewrite()"


def enable_mixed_precision_graph_rewrite(opt: Any, loss_scale: Any = "dynamic") -> Any:
    """Returns `opt` wrapped for loss scaling; models compiled with it train in mixed precision.

    It is `keras_mp.graph_rewrite.enable` with the arguments, results and errors of old programs.
    In TensorFlow every graph of the process was rewritten; here it is the models that are compiled
    with the result, and `keras_mp.graph_rewrite.apply(model)` for loops of one's own. A skipped
    step does not advance `iterations`.

    Args:
        opt: A Keras optimizer, or one that `register_loss_scale_wrapper` knows.
        loss_scale: "dynamic", a number of at least 1 for a fixed scale, or a `LossScale`.

    Raises:
        ValueError: A mixed policy is set globally; `opt` is wrapped already, or no optimizer that
            is known; `loss_scale` is out of range. The rewrite is not enabled then.
        TypeError: `loss_scale` is of another kind.

    Source: TF 2.3, python/training/experimental/mixed_precision.py.

    >>> opt = enable_mixed_precision_graph_rewrite(keras.optimizers.SGD(), loss_scale=128)
    >>> opt.dynamic, float(opt.loss_scale), opt.get_config()["count_skipped_steps"]
    (False, 128.0, False)
    >>> disable_mixed_precision_graph_rewrite()
    """
    policy = keras.config.dtype_policy()
    if switch.is_mixed(policy):
        raise ValueError(
            "The mixed precision graph rewrite cannot be enabled, because the global Keras dtype "
            f'Policy has been set to a mixed precision policy, "{policy.name}". '
            + _AT_MOST_ONE.format(first=_SET_POLICY, second=_ENABLE)
            + ": drop this call and write keras_mp.LossScaleOptimizer(opt)."
        )
    result = wrapper_registry.wrapped(opt, loss_scale)
    enable_with_defaults(result)
    return result


def disable_mixed_precision_graph_rewrite() -> None:
    """Ends what `enable_mixed_precision_graph_rewrite` began: models compute in float32 again.

    Optimizers stay wrapped, as in TensorFlow. Where it is not enabled, the logger "keras_mp" says
    so.
    """
    if not switch.is_enabled():
        _logger.warning(
            "disable_mixed_precision_graph_rewrite() called when mixed precision is already "
            "disabled."
        )
    graph_rewrite.disable()


def check_policy(policy: Any) -> None:
    """Raises ValueError for a mixed policy that is to be set globally while the rewrite is enabled.

    Args:
        policy: A `keras.DTypePolicy`, or None.

    Source: TF 2.3, python/keras/mixed_precision/experimental/policy.py, set_policy.

    >>> check_policy(keras.DTypePolicy("mixed_float16"))
    """
    if switch.is_enabled() and policy is not None and switch.is_mixed(policy):
        raise ValueError(
            f'The global dtype policy cannot be set to "{policy.name}", because the mixed '
            "precision graph rewrite has already been enabled.\n"
            + _AT_MOST_ONE.format(first=_ENABLE, second=_SET_POLICY)
            + ": call disable_mixed_precision_graph_rewrite(), or drop the call that enabled it."
        )
