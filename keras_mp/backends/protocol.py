"""The functions that each backend implements: `tensorflow`, `jax` and `torch` have them.

mypy checks modules of fused kernels against `FusedKernels` where `backends.fused_kernels` returns
them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from keras import ops

from keras_mp.array_types import Gradient, Gradients, Layer, Optimizer, Tensor, Variable
from keras_mp.backends.common.numerics import StepResult, Update, each_whole
from keras_mp.settings import Settings

Places = Callable[[], Tensor]
# Takes a function that returns each number's index in the whole (int32), and tensors of one shape.
Elementwise = Callable[..., Any]


class Backend(Protocol):
    """The functions that `LossScaleOptimizer` and its parts call.

    What most backends do, or need not do, is done here.
    """

    def read(self, variable: Variable) -> Tensor:
        """Returns the current value of `variable`."""

    def copier(self) -> Callable[[Variable], Tensor]:
        """Returns a function that copies the value of a variable.

        While TensorFlow traces a branch, the body of a loop or another function that is called
        from here, it reads the value outside of them.
        """

    def unscale(
        self, gradients: Gradients, scale: Tensor, skip_unscale: Sequence[bool]
    ) -> list[Gradient]:
        """Returns the gradients divided by `scale`, 16-bit ones in float32.

        None stays None, sparse stays sparse; those marked `skip_unscale` are unchanged.
        """

    def all_finite(self, gradients: Gradients) -> Tensor:
        """Returns a bool of shape (): no inf and no nan in any gradient, on any replica."""

    def apply_if_finite(self, update: Update, tell_each: bool) -> StepResult:
        """Takes a step with the divided gradients, if these are finite.

        (Dividing keeps every inf and nan; dividing by less than 1 adds some.) The step may change
        the gradients, but restores them. `tell_each`: whether the caller reads `each` of the
        result.
        """

    def apply(
        self, optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable]
    ) -> None:
        """Takes a step of `optimizer`, whether the gradients are finite or not."""

    def in_known_form(
        self, gradients: Gradients, variables: Sequence[Variable] | None = None
    ) -> list[Gradient]:
        """Returns the gradients in the form that the other functions expect.

        Duplicate rows of a sparse gradient are summed. ValueError if a gradient has no values, and
        its variable has some.
        """

    def to_dense_gradient(self, gradient: Gradient, variable: Variable) -> Tensor:
        """Returns a sparse gradient as a tensor of the variable's shape, a dense one unchanged."""

    def touched_rows(self, gradient: Gradient, variable: Variable) -> Tensor:
        """Returns which rows a dense or sparse gradient contains: bool, (rows, 1, 1, ...)."""

    def values_to_change(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Returns values that an optimizer may change in place: copies of mutable arrays."""
        return list(values)

    def gradients(self, loss: Callable[[], Tensor], variables: list[Variable]) -> list[Gradient]:
        """Returns the gradients of `loss()` by the backend's own differentiation."""

    def tape_gradients(
        self,
        tape: Any,
        loss: Tensor,
        scale: Callable[[Tensor], Tensor],
        variables: list[Variable],
    ) -> list[Gradient] | None:
        """Returns the gradients of `scale(loss)`, for a loss that a `tf.GradientTape` recorded.

        None on JAX and PyTorch, which have no tapes.
        """
        return None

    def copy_shared_arrays(self, variables: Sequence[Variable]) -> None:
        """Gives each variable its own array, where an assignment does not copy."""
        return

    def buffers(self, layers: Sequence[Layer]) -> list[Tensor]:
        """Returns tensors of `layers` that are not variables and may be changed in place."""
        return []

    def bitcast(self, tensor: Tensor, dtype: str) -> Tensor:
        """Returns the bits of `tensor` as numbers of another dtype with as many bits."""

    def shifted_right(self, bits: Tensor, count: int) -> Tensor:
        """Returns int32 numbers shifted by 1 bit or more, with zeros on the left."""

    def upper_half(self, bits: Tensor) -> Tensor:
        """Returns the upper 16 bits of int32 numbers, which may be overwritten: int16."""
        return ops.cast(ops.right_shift(bits, 16), "int16")

    def keep_nan(self, numbers: Tensor, wide: Tensor) -> Tensor:
        """Returns `numbers`, with nan where `wide`, of the same shape, is nan."""
        return ops.where(ops.isnan(wide), float("nan"), numbers)

    def elementwise(
        self, function: Elementwise, *columns: Sequence[Tensor], starts: Sequence[int] = ()
    ) -> list[Any]:
        """Returns `function(places, *row)` for each row of tensors of one shape.

        Each number of its result, a tensor or a tuple of them, depends only on the numbers at the
        same index. So several rows may be passed as one, or a row in parts. `places` returns int32
        indices, which start at `starts` in each row.
        """
        return each_whole(function, *columns, starts=starts)

    def assign_each(self, variables: Sequence[Variable], values: Sequence[Tensor]) -> None:
        """Assigns a value to each variable, in its dtype."""
        for variable, value in zip(variables, values, strict=True):
            variable.assign(ops.cast(value, variable.dtype))

    def version(self, variable: Variable) -> Any:
        """Returns a value that changes when `variable` is assigned to; None if nothing does."""
        return None

    def thread(self) -> int:
        """Returns a number that differs between threads that take a step together."""
        return 0

    def shard_like(self, kept: Variable, variable: Variable) -> None:
        """Shards a variable like another of its shape, if that is not done when it is created."""
        return

    def cut_slots(self, optimizer: Optimizer, weights: Mapping[int, Variable]) -> None:
        """Shards the slots like the weights; `weights`: id of a target -> its weight."""
        return

    def update_tensors(self, optimizer: Optimizer) -> None:
        """Lets `optimizer` also update variables that are plain tensors during a step."""
        return

    def is_compiling(self) -> bool:
        """Returns whether Python code is being traced that must not warn."""
        return False

    def is_trace_constant(self, value: Tensor) -> bool:
        """Returns whether the function being compiled would capture `value` as a constant."""
        return False

    def is_at_hand(self, value: Tensor) -> bool:
        """Returns whether Python may read `value` now without waiting."""
        return False

    def init_scope(self) -> AbstractContextManager[None]:
        """Returns a scope in which variables may be created, even while a function is traced."""
        return nullcontext()

    def replicas(self) -> int:
        """Returns the number of replicas of the current step."""
        return 1

    def check_strategy(self) -> None:
        """Raises ValueError under a distribution strategy that loss scaling does not support."""
        return


class FusedKernels(Protocol):
    """The functions of the modules `fused`."""

    def fallback(
        self, optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
    ) -> str | None:
        """Returns why a step with these gradients is not fused, or None."""

    def apply(self, update: Update, settings: Settings) -> StepResult | str:
        """Takes a step with the divided gradients on a built optimizer, or returns `fallback`.

        `each` of the result is set only with `settings.diagnose`.
        """
