"""TensorFlow: a `tf.cond` around the step, outside of replicas; under XLA gated assignments."""

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_mp.array_types import Gradient, Gradients, Optimizer, Tensor, Variable
from keras_mp.backends.common.numerics import (
    HALVES,
    StepResult,
    Update,
    cast_to_variable_dtype,
    dtype_of_sums,
    map_unscaled,
    nonfinite_kind,
    nonzero_rows,
    overflow_weight,
    real_parts,
    reciprocal_factors,
    small_magnitudes,
    still_scaled,
    sum_magnitudes,
    tensors_to_check,
    upcast,
)
from keras_mp.backends.common.optimizers import (
    forwards_gradients,
    overwrites_with_gradient,
    updated,
)
from keras_mp.backends.protocol import Backend
from keras_mp.backends.tensorflow import gating, strategies, windows as windows_tensorflow

# Keras' optimizers for TensorFlow update `tf.Variable`s with these, others Keras' variables.
_BY_VARIABLE = (
    "add_variable_from_reference",
    "assign",
    "assign_add",
    "assign_sub",
    "_apply_weight_decay",
    "_backend_increment_gradient_accumulators",
    "_overwrite_model_variables_with_average_value",
    "_var_key",
)


def unscale(gradients: Gradients, scale: Tensor, skip_unscale: Sequence[bool]) -> list[Any]:
    """Returns `gradients` divided by `scale`, except None and those marked `skip_unscale`."""
    under_xla = gating.under_xla()
    scales = functools.cache(lambda dtype: tf.cast(scale, dtype))
    factors = functools.cache(lambda dtype: reciprocal_factors(scale, dtype))

    def divided(gradient: Gradient) -> Any:
        if isinstance(gradient, tf.IndexedSlices):
            values = divided(gradient.values)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        gradient = upcast(gradient)
        if under_xla:
            first, second = factors(gradient.dtype)
            return gradient * first * second
        return gradient / scales(gradient.dtype)

    return map_unscaled(gradients, skip_unscale, divided)


def _sum_magnitudes(gradients: Gradients) -> Any:
    return sum_magnitudes(_leaves(gradients)) if gradients else tf.zeros((0,))


def _leaves(gradients: Gradients) -> list[Any]:
    return [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]


def in_known_form(gradients: Gradients, variables: Sequence[Variable] | None = None) -> list[Any]:
    """Returns `gradients` with duplicate rows of IndexedSlices summed.

    Keras 3.15 squares each duplicate row's gradient separately, and adds the squares. Variables are
    read, because the reduction over replicas does not accept them inside a `tf.cond`.
    """
    read = [tf.convert_to_tensor(g) if isinstance(g, tf.Variable) else g for g in gradients]
    return [_unique_rows(g) if isinstance(g, tf.IndexedSlices) else g for g in read]


def _unique_rows(gradient: Gradient) -> Any:
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def _apply_if_finite_here(update: Update) -> StepResult:
    optimizer, gradients, variables, scale, skip_unscale = update
    targets = updated(optimizer, variables)
    result = check_gradients(Update(optimizer, gradients, targets, scale, skip_unscale))
    finite = result.finite

    def ready() -> list[Any]:
        return gradients if scale is None else unscale(gradients, scale, skip_unscale)

    def step() -> None:
        if scale is None or any(skip_unscale) or not forwards_gradients(optimizer):
            strategies.apply(optimizer, ready(), variables, False)
            return
        windows_tensorflow.apply(
            optimizer,
            gradients,
            variables,
            lambda gradient: unscale([gradient], scale, [False])[0],
        )

    if state := gating.variables_to_gate(optimizer, gradients, variables):
        with gating.gated(state, finite):
            strategies.apply(optimizer, ready(), variables, False)
    elif tf.distribute.has_strategy():
        _apply(optimizer, ready(), variables, False, finite)
    else:
        tf.cond(finite, step, lambda: None)
    return result


def check_gradients(update: Update) -> StepResult:
    """Checks the divided gradients, on the only replica."""
    scale = update.scale
    to_check = functools.partial(
        tensors_to_check, update, lambda gradient: unscale([gradient], scale, [False])[0]
    )
    magnitudes = _magnitudes(
        lambda: _leaves(to_check()), _leaves(to_check(at_first=True)), still_scaled(update), scale
    )
    each = tf.math.is_finite(magnitudes)
    finite = tf.reduce_all(each)
    return StepResult(finite, each, tf.where(finite, 0, nonfinite_kind(magnitudes)))


def _magnitudes(
    exact: Callable[[], list[Any]], at_first: list[Any], scaled: Sequence[bool], scale: Tensor
) -> Any:
    """Returns `sum_magnitudes`; zeros if plain sums, which are cheaper, are finite.

    Args:
        exact: Returns the tensors, which are computed where they are checked.
        at_first: Tensors that are finite only if those are, at a scale of 1 or more.
        scaled: Which ones are yet to be divided.
        scale: float32, shape (); None for 1.
    """
    axes = functools.cache(tf.range)  # one constant, not one per tensor
    sums = [
        tf.constant(0.0) if tensor is None else _reduced_to_one(tensor, axes) for tensor in at_first
    ]
    wide = dtype_of_sums(at_first)
    total = tf.stack([each if each.dtype == wide else tf.cast(each, wide) for each in sums])
    fine = tf.reduce_all(tf.math.is_finite(total))
    if scale is not None:
        fine = tf.logical_and(fine, scale >= 1)
    return tf.cond(
        fine,
        lambda: tf.zeros_like(total),
        lambda: _magnitudes_by_shape(exact(), scaled, overflow_weight(scale), wide),
    )


def _reduced_to_one(tensor: Tensor, axes: Callable[[int], Tensor]) -> Any:
    """Returns the sum, or 0 or inf for 16 bits, whose sum would write them in float32 first.

    No maximum: TensorFlow's XLA for CPUs loses nans there (tensorflow/tensorflow#116992).
    """
    if tensor.dtype.name in HALVES:
        return tf.where(tf.reduce_all(tf.math.is_finite(tensor)), 0.0, float("inf"))
    tensor = real_parts(tensor)
    if tensor.shape.rank is None:
        return tf.reduce_sum(tensor)
    return tf.raw_ops.Sum(input=tensor, axis=axes(tensor.shape.rank))


def _magnitudes_by_shape(
    tensors: list[Tensor], scaled: Sequence[bool], weight: Tensor, wide: Any
) -> Any:
    """Returns `sum_magnitudes`; tensors of one shape are stacked, which keeps the graph small."""
    groups: dict[Any, list[int]] = {}
    for i, tensor in enumerate(tensors):
        known = tensor is not None and tensor.shape.is_fully_defined()
        alike = (tensor.dtype, scaled[i], *tensor.shape) if known else i
        groups.setdefault(alike, []).append(i)
    parts, places = [], []
    for members in groups.values():
        places += members
        if tensors[members[0]] is None:
            parts.append(tf.zeros((1,), wide))
            continue
        stacked = tf.stack([real_parts(tensors[i]) for i in members])
        small = small_magnitudes(stacked, weight if scaled[members[0]] else None)
        sums = tf.reduce_sum(tf.reshape(small, [len(members), -1]), axis=1)
        parts.append(tf.cast(sums, wide))
    return tf.gather(tf.concat(parts, 0), np.argsort(places))


def _on_all_replicas(magnitudes: Tensor) -> Any:
    """Returns `sum_magnitudes` of all replicas: they are not negative, so infs stay."""
    return strategies.summed([magnitudes])[0] if strategies.replicas() > 1 else magnitudes


def after(tensors: Sequence[Tensor]) -> contextlib.AbstractContextManager[Any]:
    """Returns a scope in which no op of a graph runs before these tensors are computed.

    `fit` detects the end of data of unknown length by running a step without a batch: ops that do
    not depend on the gradients run there, too, and would count a step, or decay weights.
    """
    if tf.distribute.has_strategy():
        return contextlib.nullcontext()
    scope: contextlib.AbstractContextManager[Any] = tf.control_dependencies(
        [next(tensor for tensor in tensors if tensor is not None)]
    )
    return scope


def _sums(gradients: list[Gradient], variables: list[Variable]) -> tuple[list[Any], Any]:
    """Returns the sums over the replicas, and their `sum_magnitudes`, the same on each replica.

    Gradients that become values (float8) stay those of the replica, where they are assigned; their
    `sum_magnitudes` are summed in the same batch.
    """
    values = {i for i, variable in enumerate(variables) if overwrites_with_gradient(variable)}
    places = [i for i, gradient in enumerate(gradients) if gradient is not None and i not in values]
    of_values = _sum_magnitudes([gradients[i] for i in values])
    sums = strategies.summed([gradients[i] for i in places] + [of_values] * bool(values))
    out = list(gradients)
    for i, total in zip(places, in_known_form(sums[: len(places)]), strict=True):
        out[i] = total
    applied = [
        None if i in values else cast_to_variable_dtype(out[i], v) for i, v in enumerate(variables)
    ]
    magnitudes = _sum_magnitudes(applied)
    if values:
        elsewhere = tf.scatter_nd([[i] for i in values], sums[-1], [len(variables)])
        magnitudes += tf.cast(elsewhere, magnitudes.dtype)
    return out, magnitudes


def _apply(
    optimizer: Optimizer,
    gradients: list[Gradient],
    variables: list[Variable],
    is_summed: bool,
    finite: Tensor = None,
) -> None:
    def if_finite(step: Callable[[], None], finite: Tensor) -> None:
        if finite is None:
            step()
        else:
            tf.cond(finite, step, lambda: None)

    # A strategy that reduces in a merge call cannot do so inside a tf.cond of one replica: there
    # the cond goes around all replicas, or around the only one. Keras makes the same distinction.
    if tf.__internal__.distribute.strategy_supports_no_merge_call():
        if_finite(lambda: strategies.apply(optimizer, gradients, variables, is_summed), finite)
        return

    def across_replicas(strategy: Any, finite: Tensor, gradients: list[Gradient]) -> None:
        agreed = None if finite is None else strategy.experimental_local_results(finite)[0]
        if_finite(
            lambda: strategies.apply_across(strategy, optimizer, gradients, variables, is_summed),
            agreed,
        )

    tf.distribute.get_replica_context().merge_call(across_replicas, args=(finite, gradients))


class TensorFlow(Backend):
    """The functions of `Backend` on TensorFlow."""

    unscale = staticmethod(unscale)
    in_known_form = staticmethod(in_known_form)
    bitcast = staticmethod(tf.bitcast)
    thread = staticmethod(threading.get_ident)
    init_scope = staticmethod(tf.init_scope)
    replicas = staticmethod(strategies.replicas)
    check_strategy = staticmethod(strategies.check)

    def read(self, variable: Variable) -> Any:
        """Returns the value of `variable` as a tensor, read at this point of the program."""
        return tf.identity(variable.value)

    def copier(self) -> Callable[[Variable], Any]:
        """Returns `read` for the graph that is being built, also for functions inside of it."""
        here = tf.init_scope
        if not tf.executing_eagerly():
            here = tf.compat.v1.get_default_graph().as_default

        def read_here(variable: Variable) -> Any:
            with here():
                return self.read(variable)

        return read_here

    def all_finite(self, gradients: Gradients) -> Any:
        """Returns a bool of shape (): no inf and no nan in `gradients`, on any replica."""
        return tf.reduce_all(tf.math.is_finite(_on_all_replicas(_sum_magnitudes(gradients))))

    def to_dense_gradient(self, gradient: Gradient, variable: Variable) -> Any:
        """Returns IndexedSlices as a tensor, duplicate rows summed; a tensor unchanged."""
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        # Not tf.convert_to_tensor, which needs dense_shape and warns about its own cost.
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, variable.shape[0])

    def touched_rows(self, gradient: Gradient, variable: Variable) -> Any:
        """Returns a bool of shape (rows, 1, 1, ...): the rows of IndexedSlices, zero or not.

        For a tensor: the rows with a nonzero element.
        """
        if not isinstance(gradient, tf.IndexedSlices):
            return nonzero_rows(gradient)
        rows = variable.shape[0]
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(gradient.indices), gradient.indices, rows
        )
        return tf.reshape(counts > 0, [rows] + [1] * (len(variable.shape) - 1))

    def apply_if_finite(self, update: Update, tell_each: bool) -> StepResult:
        """Applies the divided gradients if they are finite, else changes nothing.

        With several replicas, their summed gradients are checked: a step applies the sum.
        """
        self.check_strategy()
        if self.replicas() == 1:
            return _apply_if_finite_here(update)
        optimizer, gradients, variables, scale, skip_unscale = update
        ready = gradients if scale is None else unscale(gradients, scale, skip_unscale)
        targets = updated(optimizer, variables)
        is_summed = strategies.takes_summed_gradients(optimizer)
        if is_summed:
            ready, magnitudes = _sums(ready, targets)
        else:
            magnitudes = _on_all_replicas(
                _sum_magnitudes(list(map(cast_to_variable_dtype, ready, targets)))
            )
        each = tf.math.is_finite(magnitudes)
        finite = tf.reduce_all(each)
        _apply(optimizer, ready, variables, is_summed, finite)
        return StepResult(finite, each, tf.where(finite, 0, nonfinite_kind(magnitudes)))

    def apply(
        self, optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable]
    ) -> None:
        """Applies `gradients`, finite or not; with several replicas sums them first."""
        self.check_strategy()
        is_summed = self.replicas() > 1 and strategies.takes_summed_gradients(optimizer)
        if is_summed:
            gradients, _ = _sums(gradients, updated(optimizer, variables))
        with after(gradients):
            _apply(optimizer, gradients, variables, is_summed)

    def gradients(self, loss: Callable[[], Any], variables: list[Variable]) -> list[Any]:
        """Returns the gradients of `loss()` with respect to `variables`."""
        values = [v.value if isinstance(v, keras.Variable) else v for v in variables]
        with tf.GradientTape() as tape:
            tape.watch(values)
            total = loss()
        return list(tape.gradient(total, values))

    def tape_gradients(
        self,
        tape: Any,
        loss: Tensor | float,
        scale: Callable[[Any], Any],
        variables: list[Variable],
    ) -> list[Any]:
        """Returns the gradients of `scale(loss)`, for a `loss` recorded on the caller's `tape`."""
        with tape:
            scaled = scale(loss)
        return list(
            tape.gradient(
                scaled, [v.value if isinstance(v, keras.Variable) else v for v in variables]
            )
        )

    def shifted_right(self, bits: Tensor, count: int) -> Any:
        """Returns int32 numbers shifted by 1 bit or more, with zeros on the left."""
        return tf.bitcast(tf.bitwise.right_shift(tf.bitcast(bits, tf.uint32), count), tf.int32)

    def update_tensors(self, optimizer: Optimizer) -> None:
        """Lets `optimizer` also update variables that are plain tensors during a step.

        Keras' class for TensorFlow expects `tf.Variable`s, for replicas; its base class does not.
        """
        base = next(cls for cls in type(optimizer).__mro__ if cls.__name__ == "BaseOptimizer")
        for name in _BY_VARIABLE:
            object.__setattr__(optimizer, name, types.MethodType(getattr(base, name), optimizer))

        def update(gradients: list[Gradient], variables: list[Variable], rate: Tensor) -> None:
            pairs = list(zip(gradients, variables, strict=True))
            for gradient, variable in optimizer._all_reduce_sum_gradients(pairs):
                optimizer.update_step(gradient, variable, rate)

        object.__setattr__(optimizer, "_backend_update_step", update)


BACKEND = TensorFlow()
