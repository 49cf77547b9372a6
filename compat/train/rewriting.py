"""`enable_mixed_precision_graph_rewrite`: what of it can be had without a graph to rewrite.

The optimizer is wrapped, and whether the rewrite is on is known to those who must not be mixed
with it. No layer is rewritten to float16.
"""

import logging
import threading
import warnings
from typing import Any

import keras

from keras_mp.compat.train import wrappers

_logger = logging.getLogger("keras_mp")
_lock = threading.Lock()
_enabled = False
_warned = False

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
    """Returns `opt` wrapped for loss scaling, as old programs expect it.

    In TensorFlow this also had the graph rewritten: float32 operations that are safe in float16
    ran in float16. That part is not here: the layers compute as they did, and a warning says so
    once. What does both today is a policy and an optimizer:

    ```python
    keras_mp.set_global_policy("mixed_float16")
    opt = keras_mp.LossScaleOptimizer(opt)
    ```

    Args:
        opt: A Keras optimizer, or one that `register_loss_scale_wrapper` knows.
        loss_scale: "dynamic", a number of at least 1 for a fixed scale, or a `LossScale`.

    Raises:
        ValueError: A mixed policy is set globally; `opt` is wrapped already, or no optimizer that
            is known; `loss_scale` is out of range. The rewrite is not enabled then.
        TypeError: `loss_scale` is of another kind.

    Source: TF 2.3, python/training/experimental/mixed_precision.py.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     opt = enable_mixed_precision_graph_rewrite(keras.optimizers.SGD(), loss_scale=128)
    >>> opt.dynamic, float(opt.loss_scale)
    (False, 128.0)
    >>> disable_mixed_precision_graph_rewrite()
    """
    global _enabled, _warned
    policy = keras.config.dtype_policy()
    if _is_mixed(policy):
        raise ValueError(
            "The mixed precision graph rewrite cannot be enabled, because the global Keras dtype "
            f'Policy has been set to a mixed precision policy, "{policy.name}". '
            + _AT_MOST_ONE.format(first=_SET_POLICY, second=_ENABLE)
            + ": drop this call and write keras_mp.LossScaleOptimizer(opt)."
        )
    result = wrappers.wrapped(opt, loss_scale)
    with _lock:
        _enabled = True
        warn, _warned = not _warned, True
    if warn:
        warnings.warn(
            "enable_mixed_precision_graph_rewrite wraps the optimizer only: no layer is rewritten "
            "to float16, and the model computes as before. For float16 drop this call; write "
            "keras_mp.set_global_policy('mixed_float16') before the layers are made, and "
            "keras_mp.LossScaleOptimizer(opt).",
            stacklevel=2,
        )
    return result


def disable_mixed_precision_graph_rewrite() -> None:
    """Ends what `enable_mixed_precision_graph_rewrite` began: mixed policies may be set again.

    Optimizers stay wrapped, as in TensorFlow. Where it is not enabled, the logger "keras_mp" says
    so.
    """
    global _enabled
    with _lock:
        was, _enabled = _enabled, False
    if not was:
        _logger.warning(
            "disable_mixed_precision_graph_rewrite() called when mixed precision is already "
            "disabled."
        )


def is_mixed_precision_graph_rewrite_enabled() -> bool:
    """Returns whether it is enabled."""
    return _enabled


def check_policy(policy: Any) -> None:
    """Raises ValueError for a mixed policy that is to be set globally while the rewrite is enabled.

    Args:
        policy: A `keras.DTypePolicy`, or None.

    Source: TF 2.3, python/keras/mixed_precision/experimental/policy.py, set_policy.

    >>> check_policy(keras.DTypePolicy("mixed_float16"))
    """
    if _enabled and policy is not None and _is_mixed(policy):
        raise ValueError(
            f'The global dtype policy cannot be set to "{policy.name}", because the mixed '
            "precision graph rewrite has already been enabled.\n"
            + _AT_MOST_ONE.format(first=_ENABLE, second=_SET_POLICY)
            + ": call disable_mixed_precision_graph_rewrite(), or drop the call that enabled it."
        )


def _is_mixed(policy: Any) -> bool:
    return bool(policy.compute_dtype != policy.variable_dtype)
