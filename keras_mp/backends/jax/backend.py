"""JAX: traced, assignments keep the old value on a skip; with concrete values an `if` decides."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental import sparse

from keras_mp.array_types import Gradient, Gradients, Optimizer, Tensor, Variable
from keras_mp.backends.common.numerics import (
    StepResult,
    Update,
    cast_for_optimizer,
    finite_each,
    map_unscaled,
    nonfinite_kind,
    nonzero_rows,
    reciprocal_factors,
    upcast,
)
from keras_mp.backends.common.optimizers import averages, updated
from keras_mp.backends.jax.checking import check, leaves
from keras_mp.backends.protocol import Backend

_INSIDE_THE_STEP = (
    "The optimizer's state is not in its variables inside the compiled step of fit(), which "
    "receives their values: use `optimizer.stateless_scale_loss(optimizer_variables, loss)`, and "
    "`optimizer.stateless_apply(optimizer_variables, gradients, trainable_variables)`. To divide "
    "gradients in between: `optimizer.stateless_unscale_gradients(optimizer_variables, gradients)`."
    " The loss scale, counters and skips by name: `optimizer.read_state(optimizer_variables)`."
)
_ON_LOAN = (
    "The compiled step of fit() holds the optimizer's state: call "
    "`model.jax_state_sync()` before reading it in a callback. In a train_step of your own use "
    "`optimizer.stateless_scale_loss(optimizer_variables, loss)`."
)


class _Scope(keras.StatelessScope):
    """A stateless scope that reads the values of variables in the enclosing scope."""

    def get_current_value(self, variable: Variable) -> Any:
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:
            return self.original_scope.get_current_value(variable)
        return value


class _Recording(_Scope):
    """A stateless scope that records which variables were assigned in it."""

    def __init__(self, state_mapping: Any = (), collect_losses: bool = False) -> None:
        super().__init__(state_mapping, collect_losses)
        self.assigned: dict[int, Any] = {}

    def add_update(self, update: tuple[Any, Any]) -> None:
        self.assigned[id(update[0])] = update[0]
        super().add_update(update)


class _Gate(_Recording):
    """A stateless scope in which `chosen` decides between the assigned and the old value."""

    def __init__(self, chosen: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self._chosen = chosen

    def add_update(self, update: tuple[Any, Any]) -> None:
        variable, value = update
        super().add_update((variable, self._chosen(value, variable.value)))


def _choice(finite: Tensor) -> Callable[[Tensor, Tensor], Any]:
    """Returns a function of a new and an old value, which returns the new one if `finite`.

    It adds one operation per value to the program. jnp.where would add a function call, and a
    broadcast scalar.
    """
    whole = functools.cache(functools.partial(jnp.broadcast_to, finite))
    return lambda new, old: jax.lax.select(whole(new.shape), new, old)


class Jax(Backend):
    """The functions of `Backend` on JAX."""

    def read(self, variable: Variable) -> Any:
        """Returns the value of `variable`, its array.

        Raises:
            RuntimeError: The compiled step of `fit` holds it.
        """
        try:
            return variable.value
        except TypeError as error:
            # Keras empties the variables meanwhile, and would complain about a missing initializer.
            inside = self.is_trace_constant(np.zeros(()))
            raise RuntimeError(_INSIDE_THE_STEP if inside else _ON_LOAN) from error

    def copier(self) -> Callable[[Variable], Any]:
        """Returns a function that copies the value of a variable, whose array may be donated."""
        return lambda variable: jnp.copy(self.read(variable))

    def bitcast(self, tensor: Tensor, dtype: str) -> Any:
        """Returns the bits of `tensor` as numbers of another dtype with as many bits."""
        return jax.lax.bitcast_convert_type(tensor, jnp.dtype(dtype))

    def shifted_right(self, bits: Tensor, count: int) -> Any:
        """Returns int32 numbers shifted by 1 bit or more, with zeros on the left."""
        return jax.lax.shift_right_logical(bits, jnp.int32(count))

    def is_trace_constant(self, value: Tensor) -> bool:
        """Returns whether `value` would become a constant of the function being compiled."""
        if isinstance(value, jax.core.Tracer):
            return False
        return isinstance(jnp.add(value, 0), jax.core.Tracer)

    def unscale(
        self, gradients: Gradients, scale: Tensor, skip_unscale: Sequence[bool]
    ) -> list[Any]:
        """Returns `gradients` divided by `scale`, except None and those marked `skip_unscale`."""
        factors = functools.cache(lambda dtype: reciprocal_factors(scale, dtype))

        @functools.cache
        def whole(shape: tuple[int, ...], dtype: Any) -> list[Any]:
            return [jnp.broadcast_to(each, shape) for each in factors(dtype)]

        def divided(gradient: Gradient) -> Any:
            if isinstance(gradient, sparse.BCOO):
                return sparse.BCOO(
                    (divided(gradient.data), gradient.indices),
                    shape=gradient.shape,
                    # Under jit Keras cannot check by itself for duplicate rows.
                    indices_sorted=gradient.indices_sorted,
                    unique_indices=gradient.unique_indices,
                )
            gradient = upcast(gradient)
            # A program would broadcast the scalars for each gradient; concrete arrays need not.
            is_traced = isinstance(gradient, jax.core.Tracer)
            dtype = gradient.dtype
            first, second = whole(gradient.shape, dtype) if is_traced else factors(dtype)
            return gradient * first * second

        return map_unscaled(gradients, skip_unscale, divided)

    def all_finite(self, gradients: Gradients) -> Any:
        """Returns a bool of shape (): no inf and no nan in `gradients`."""
        return jnp.all(finite_each(leaves(gradients)))

    def in_known_form(
        self, gradients: Gradients, variables: Sequence[Variable] | None = None
    ) -> list[Any]:
        """Returns `gradients` with duplicate rows of BCOO arrays summed, which may overflow."""
        return [
            g.sum_duplicates(nse=g.nse)
            if isinstance(g, sparse.BCOO) and not g.unique_indices
            else g
            for g in gradients
        ]

    def to_dense_gradient(self, gradient: Gradient, variable: Variable) -> Any:
        """Returns a BCOO gradient as an array, duplicate rows summed; others unchanged."""
        return gradient.todense() if isinstance(gradient, sparse.BCOO) else gradient

    def touched_rows(self, gradient: Gradient, variable: Variable) -> Any:
        """Returns a bool of shape (rows, 1, 1, ...): the rows with a nonzero element."""
        return nonzero_rows(self.to_dense_gradient(gradient, variable))

    def apply_if_finite(self, update: Update, tell_each: bool) -> StepResult:
        """Applies the divided gradients if they are finite, else changes nothing.

        When traced, a step always runs, and each of its assignments keeps the old value if the
        gradients are not finite. XLA fuses that and the division into the update: a step reads
        every gradient once more than the plain optimizer, and moves nothing else. (A `lax.cond`
        copies the state, and a choice at the end repeats the update for each result.)
        """
        optimizer, gradients, variables, scale, skip_unscale = update
        ready = gradients if scale is None else self.unscale(gradients, scale, skip_unscale)
        targets = updated(optimizer, variables)

        def unscaled(gradient: Gradient) -> Any:
            return self.unscale([gradient], scale, [False])[0]

        seen = check(update._replace(variables=targets), unscaled, tell_each)
        finite = seen.finite
        if not isinstance(finite, jax.core.Tracer):
            if not finite:
                return StepResult(False, seen.each, nonfinite_kind(seen.sums))
            self.apply(optimizer, ready, variables)
            return StepResult(True, None, None)
        # XLA computes averages of weights together with the weights, but not across a choice. So
        # the choice comes last, and rounding is the same as without us.
        last = averages(optimizer)
        chosen = _choice(finite)
        scope = _Recording() if last else _Gate(chosen)
        with scope:
            self.apply(optimizer, ready, variables)
        for variable in scope.assigned.values():
            value = scope.get_current_value(variable)
            variable.assign(chosen(value, variable.value) if last else value)
        return StepResult(finite, seen.each, jnp.where(finite, 0, nonfinite_kind(seen.sums)))

    def apply(
        self, optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable]
    ) -> None:
        """Applies `gradients`, finite or not."""
        targets = updated(optimizer, variables)
        optimizer.apply(cast_for_optimizer(optimizer, gradients, targets), variables)

    def gradients(self, loss: Callable[[], Any], variables: list[Variable]) -> list[Any]:
        """Returns the gradients of `loss()` with respect to `variables`.

        Values that `loss` assigns to other variables (seeds, moving statistics) are kept.
        """
        assigned: list[Any] = []

        def total(values: list[Tensor]) -> tuple[Any, list[Any]]:
            # Without collect_losses Layer.add_loss adds nothing.
            with _Recording(zip(variables, values, strict=True), collect_losses=True) as scope:
                result = keras.ops.sum(loss())
            assigned[:] = scope.assigned.values()
            return result, [scope.get_current_value(variable) for variable in assigned]

        results, updates = jax.grad(total, has_aux=True)([v.value for v in variables])
        for variable, value in zip(assigned, updates, strict=True):
            variable.assign(value)
        return list(results)

    def copy_shared_arrays(self, variables: Sequence[Variable]) -> None:
        """Gives each of `variables` its own array; Keras' EMA leaves two with the same one."""
        for variable in variables:
            variable.assign(jnp.copy(variable.value))


BACKEND = Jax()
