"""TensorFlow: one `tf.cond` around the step, outside of the replicas where a strategy asks so."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_mp.backends.numerics import (
    divided_each,
    finite_sums,
    narrowed,
    nonzero_rows,
    widened,
)


def read(variable: Any) -> Any:
    """Returns the value of `variable` as a tensor, read at this point of the program."""
    return tf.identity(variable.value)


def unscale(gradients: Sequence[Any], scale: Any, raw: Sequence[bool]) -> list[Any]:
    """Returns `gradients` divided by `scale`; None, and those marked `raw`, as they are."""
    return divided_each(gradients, raw, lambda gradient: _divided(gradient, scale))


def _divided(gradient: Any, scale: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            _divided(gradient.values, scale), gradient.indices, gradient.dense_shape
        )
    gradient = widened(gradient)
    return gradient / tf.cast(scale, gradient.dtype)


def all_finite(gradients: Sequence[Any]) -> Any:
    """Returns a bool of shape (): no inf and no nan in `gradients`, on any replica."""
    finite = finite_sums(
        [
            gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
            for gradient in gradients
            if gradient is not None
        ]
    )
    if replicas() > 1:
        context = tf.distribute.get_replica_context()
        bad = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(~finite, tf.float32))
        finite = tf.equal(bad, 0.0)
    return finite


def merged(gradients: Sequence[Any]) -> list[Any]:
    """Returns `gradients` with every row that IndexedSlices name twice summed into one.

    Keras 3.15 squares such rows one by one, and adds the squares.
    """
    return [_merged(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]


def _merged(gradient: Any) -> Any:
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def densified(gradient: Any, variable: Any) -> Any:
    """Returns IndexedSlices as a tensor, rows named twice summed; a tensor as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    # Not tf.convert_to_tensor, which needs dense_shape and warns of its own cost.
    return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])


def rows_held(gradient: Any, variable: Any) -> Any:
    """Returns a bool of shape (rows, 1, 1, ...): the rows that IndexedSlices name, zero or not.

    Of a tensor: the rows with an element that is not zero.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return nonzero_rows(gradient)
    rows = variable.shape[0]
    counts = tf.math.unsorted_segment_sum(tf.ones_like(gradient.indices), gradient.indices, rows)
    return tf.reshape(counts > 0, [rows] + [1] * (len(variable.shape) - 1))


def apply_if_finite(
    optimizer: Any,
    gradients: list[Any],
    variables: list[Any],
    unscaled: Callable[[list[Any]], list[Any]],
) -> Any:
    """Applies `unscaled(gradients)` if they are finite, else changes nothing; returns which."""
    gradients = unscaled(gradients)
    finite = all_finite(list(map(narrowed, gradients, variables)))

    def step(gradients: list[Any]) -> None:
        optimizer.apply(gradients, variables)

    # A strategy that reduces in a merge call cannot do so from inside a tf.cond of one replica:
    # there the cond goes around all replicas, or around the only one. Keras asks the same question.
    replicas()  # refuses a cross-replica context
    if tf.__internal__.distribute.strategy_supports_no_merge_call():
        tf.cond(finite, lambda: step(gradients), lambda: None)
        return finite

    def across_replicas(strategy: Any, finite: Any, gradients: list[Any]) -> None:
        agreed = strategy.experimental_local_results(finite)[0]
        tf.cond(
            agreed,
            lambda: strategy.extended.call_for_each_replica(step, args=(gradients,)),
            lambda: None,
        )

    tf.distribute.get_replica_context().merge_call(across_replicas, args=(finite, gradients))
    return finite


def stateless_values(values: Sequence[Any]) -> list[Any]:
    """Returns `values`; Keras refuses `stateless_apply` on this backend."""
    return list(values)


def gradients(loss: Callable[[], Any], variables: list[Any]) -> list[Any]:
    """Returns the gradients of `loss()` with respect to `variables`."""
    values = [v.value if isinstance(v, keras.Variable) else v for v in variables]
    with tf.GradientTape() as tape:
        tape.watch(values)
        total = loss()
    return list(tape.gradient(total, values))


def tape_gradients(
    tape: Any, loss: Any, scale: Callable[[Any], Any], variables: list[Any]
) -> list[Any]:
    """Returns the gradients of `scale(loss)`, for a `loss` recorded on the caller's `tape`."""
    with tape:
        scaled = scale(loss)
    return list(
        tape.gradient(scaled, [v.value if isinstance(v, keras.Variable) else v for v in variables])
    )


def unshare(variables: Sequence[Any]) -> None:
    """Does nothing: assigning copies here."""


def is_compiling() -> bool:
    """Returns False: only torch.compile traces through warnings."""
    return False


def is_baked_in(value: Any) -> bool:
    """Returns False: compiled functions read variables here."""
    return False


def lifted() -> contextlib.AbstractContextManager[None]:
    """Returns a scope in which variables may be created, even while a tf.function is traced."""
    scope: contextlib.AbstractContextManager[None] = tf.init_scope()
    return scope


def replicas() -> int:
    """Returns how many replicas the current step runs on; ValueError in cross-replica context."""
    context = tf.distribute.get_replica_context()
    if context is None:
        raise ValueError(
            "LossScaleOptimizer.apply must be called in a replica context: inside the function "
            "that is handed to strategy.run()."
        )
    return int(context.num_replicas_in_sync)
