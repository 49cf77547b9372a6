"""`tf.distribute`: sums gradients over the replicas once, before any decision or clipping.

Uses private methods of Keras, at the first step of several replicas:

- `_all_reduce_sum_gradients`, in which a Keras optimizer sums over the replicas, after clipping:
  replaced, so that it does not sum gradients again;
- `_backend_apply_gradients`, in which it decides whether a window of accumulated gradients ends:
  replaced while it applies by its two branches, of which one is taken for all replicas.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_mp.array_types import Gradient, Gradients, Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.numerics import cast_for_optimizer
from keras_mp.backends.common.optimizers import flatten_optimizers, updated, with_method

_SUMS = "_all_reduce_sum_gradients"

_TPU = (
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.TPUStrategy,
    tf.compat.v1.distribute.experimental.TPUStrategy,
)
_CENTRAL = (
    tf.distribute.experimental.CentralStorageStrategy,
    tf.compat.v1.distribute.experimental.CentralStorageStrategy,
)
_SUPPORTED = (
    *_CENTRAL,
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.OneDeviceStrategy,
    tf.compat.v1.distribute.MirroredStrategy,
    tf.compat.v1.distribute.OneDeviceStrategy,
    tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy,
)


class _Summed(threading.local):
    """Whether the gradients that this replica applies now are summed over the replicas already.

    Replicas are threads.
    """

    is_summed = False


_summed = _Summed()


def check() -> None:
    """Raises ValueError under a `tf.distribute` strategy that loss scaling does not support.

    Supported are strategies in which one process or several step together, including
    CentralStorageStrategy, which `tf.keras` refuses.

    Source: TensorFlow 2.4, keras/mixed_precision/loss_scale_optimizer.py,
    `_raise_if_strategy_unsupported`.
    """
    if not tf.distribute.has_strategy():
        return
    strategy = tf.distribute.get_strategy()
    name = type(strategy).__name__
    supported = (
        "MirroredStrategy, MultiWorkerMirroredStrategy, CentralStorageStrategy, OneDeviceStrategy"
    )
    if isinstance(strategy, _TPU):
        raise ValueError(
            f"LossScaleOptimizer does not support {name}: TPUs compute in bfloat16, which has "
            "the range of float32 and needs no loss scaling. Use the inner optimizer by "
            "itself, with the policy mixed_bfloat16."
        )
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ValueError(
            f"LossScaleOptimizer does not support {name}: its workers take steps without "
            "waiting for each other, so one may change the loss scale between another's scaling "
            f"and unscaling. Use one of {supported}."
        )
    if not isinstance(strategy, _SUPPORTED) and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            f"LossScaleOptimizer does not know the strategy {name}, whose replicas might "
            f"disagree on which steps to skip. Use one of {supported}."
        )


def replicas() -> int:
    """Returns the number of replicas of the current step; ValueError in cross-replica context."""
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "LossScaleOptimizer takes steps and checks gradients only in a replica context: call "
            "it inside the function that is passed to strategy.run()."
        )
    return int(context.num_replicas_in_sync)


def takes_summed_gradients(optimizer: Optimizer) -> bool:
    """Returns whether `optimizer` can skip its own summing over the replicas.

    It cannot if it sums in its own way; then it sums after clipping, as without us.
    """
    for part in flatten_optimizers(optimizer):
        home = next((each for each in type(part).__mro__ if _SUMS in vars(each)), None)
        if home not in keras.optimizers.Optimizer.__mro__ or _SUMS in vars(part):
            return False
        _make_aware(home)
    return True


@functools.cache
def _make_aware(home: type) -> None:
    sums = vars(home)[_SUMS]

    @functools.wraps(sums)
    def unless_summed(self: Any, grads_and_vars: Any) -> Any:
        return list(grads_and_vars) if _summed.is_summed else sums(self, grads_and_vars)

    setattr(home, _SUMS, unless_summed)


def summed(tensors: list[Tensor]) -> list[Any]:
    """Returns the sums of `tensors`, dense ones and IndexedSlices, over the replicas: one batch."""
    if not tensors:
        return []
    context = tf.distribute.get_replica_context()
    return list(context.all_reduce(tf.distribute.ReduceOp.SUM, tensors))


def apply(
    optimizer: Optimizer, gradients: Gradients, variables: list[Variable], is_summed: bool
) -> None:
    """Takes a step of `optimizer` in a replica; with gradients that are summed, or not."""
    before, _summed.is_summed = _summed.is_summed, is_summed
    try:
        targets = updated(optimizer, variables)
        optimizer.apply(cast_for_optimizer(optimizer, gradients, targets), variables)
    finally:
        _summed.is_summed = before


def apply_across(
    strategy: Any,
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    is_summed: bool,
) -> None:
    """Takes a step of `optimizer` on every replica, from cross-replica context.

    An accumulating optimizer checks in each replica whether its window ends, in a `cond` whose
    branches call `merge_call`, which TensorFlow refuses: here it is checked once, outside of them.

    Raises:
        ValueError: It accumulates in a way that is not supported here.
    """

    def on_each(step: Callable[[list[Any]], None]) -> None:
        strategy.extended.call_for_each_replica(step, args=(gradients,))

    steps = _window(optimizer, is_summed)
    if not steps:
        on_each(lambda gradients: apply(optimizer, gradients, variables, is_summed))
        return

    def as_decided(last: bool) -> None:
        def accumulate(gradients: list[Gradient], variables: list[Variable]) -> None:
            sums = optimizer._accumulated_gradients
            held = [sums[keras_hooks.variable_index(optimizer, variable)] for variable in variables]
            if last:
                pairs = zip(gradients, held, strict=True)
                means = [(gradient + total) / steps for gradient, total in pairs]
                keras_hooks.update(optimizer, keras_hooks.clipped(optimizer, means), variables)
                optimizer._backend_reset_gradient_accumulators()
            else:
                optimizer._backend_increment_gradient_accumulators(gradients, held)
            if optimizer.use_ema:
                optimizer._update_model_variables_moving_average(
                    keras_hooks.trained_variables(optimizer)
                )

        with with_method(optimizer, "_backend_apply_gradients", accumulate):
            on_each(lambda gradients: apply(optimizer, gradients, variables, is_summed))

    last = tf.equal((keras_hooks.step_counter(optimizer).value + 1) % steps, 0)
    tf.cond(last, lambda: as_decided(True), lambda: as_decided(False))


def _window(optimizer: Optimizer, is_summed: bool) -> int:
    """Returns over how many steps `optimizer` accumulates here, or 0."""
    steps = optimizer.gradient_accumulation_steps or 0
    if not any(part.gradient_accumulation_steps for part in flatten_optimizers(optimizer)):
        return 0
    strategy = tf.distribute.get_strategy()
    reasons = {
        "in a part of a MultiOptimizer": len(flatten_optimizers(optimizer)) > 1,
        "together with ema_overwrite_frequency": bool(
            optimizer.use_ema and optimizer.ema_overwrite_frequency
        ),
        "with an optimizer that sums over replicas by itself": (
            strategy.num_replicas_in_sync > 1 and not is_summed
        ),
        "with variables that replicas share": (
            strategy.num_replicas_in_sync > 1 and isinstance(strategy, _CENTRAL)
        ),
    }
    for reason, found in reasons.items():
        if found:
            raise ValueError(
                f"gradient_accumulation_steps is not supported {reason} under "
                f"{type(strategy).__name__}: Keras would do in each replica what all must do "
                "together. Leave it out, and use larger batches."
            )
    return int(steps)
