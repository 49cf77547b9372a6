"""What a backend offers: `tensorflow.py`, `jax.py` and `torch.py` have these functions.

mypy holds the three modules against `Backend` where `backends.current` returns them, and those of
fused kernels against `FusedKernels`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from keras_mp.array_types import Gradient, Gradients, Layer, Optimizer, Tensor, Variable
from keras_mp.backends.common.numerics import StepResult
from keras_mp.settings import Settings

Places = Callable[[], Tensor]
# Takes what gives the place of each number in the whole (int32), and tensors of one shape.
Elementwise = Callable[..., Any]


class Backend(Protocol):
    """The functions that `LossScaleOptimizer` and its parts call."""

    def read(self, variable: Variable) -> Tensor:
        """Returns the value of `variable` now."""

    def copier(self) -> Callable[[Variable], Tensor]:
        """Returns a function that copies the value of a variable.

        While TensorFlow traces a branch, the body of a loop or another function that is called
        from here, it reads the value outside of them.
        """

    def unscale(
        self, gradients: Gradients, scale: Tensor, skip_unscale: Sequence[bool]
    ) -> list[Gradient]:
        """Returns the gradients divided by `scale`, 16-bit ones in float32.

        None stays None, sparse stays sparse; those marked `skip_unscale` stay as they are.
        """

    def all_finite(self, gradients: Gradients) -> Tensor:
        """Returns a bool of shape (): no inf and no nan in any gradient, on any replica."""

    def apply_if_finite(
        self,
        optimizer: Optimizer,
        gradients: list[Gradient],
        variables: list[Variable],
        scale: Tensor | None,
        skip_unscale: Sequence[bool],
        tell_each: bool,
    ) -> StepResult:
        """Takes a step of `optimizer` with the gradients divided by `scale`, if these are finite.

        A scale of None divides nothing. (Dividing keeps every inf and nan; dividing by less than 1
        adds some.) The gradients may be changed during the step; after it they are as before.
        `tell_each`: whether `each` of the result is looked at.
        """

    def apply(
        self, optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable]
    ) -> None:
        """Takes a step of `optimizer`, whatever is in the gradients."""

    def in_known_form(
        self, gradients: Gradients, variables: Sequence[Variable] | None = None
    ) -> list[Gradient]:
        """Returns the gradients as the other functions take them.

        Rows that a sparse one names twice are summed. ValueError where one has no numbers, and its
        variable has some.
        """

    def to_dense_gradient(self, gradient: Gradient, variable: Variable) -> Tensor:
        """Returns a sparse gradient as a tensor of the variable's shape, a dense one as it is."""

    def touched_rows(self, gradient: Gradient, variable: Variable) -> Tensor:
        """Returns which rows of a dense or sparse gradient there are: bool, (rows, 1, 1, ...)."""

    def values_to_change(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Returns values that an optimizer may change in place."""

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

    def copy_shared_arrays(self, variables: Sequence[Variable]) -> None:
        """Gives each variable an array of its own."""

    def buffers(self, layers: Sequence[Layer]) -> list[Tensor]:
        """Returns tensors that `layers` keep and that are no variables, to be changed in place."""

    def bitcast(self, tensor: Tensor, dtype: str) -> Tensor:
        """Returns the bits of `tensor` as numbers of another dtype with as many bits."""

    def shifted_right(self, bits: Tensor, count: int) -> Tensor:
        """Returns int32 numbers shifted by 1 bit or more, with zeros on the left."""

    def upper_half(self, bits: Tensor) -> Tensor:
        """Returns the upper 16 bits of int32 numbers, which are not used any more: int16."""

    def keep_nan(self, numbers: Tensor, wide: Tensor) -> Tensor:
        """Returns `numbers`, but nan where `wide`, of the same shape, is nan."""

    def elementwise(
        self, function: Elementwise, *columns: Sequence[Tensor], starts: Sequence[int] = ()
    ) -> list[Any]:
        """Returns `function(places, *row)` for each row of tensors of one shape.

        Each number of what it returns, a tensor or a tuple of them, is made of those at its place
        alone: so several rows may be handed over as one, or a row in parts. `places` gives int32
        numbers that count from `starts` on, in each row.
        """

    def assign_each(self, variables: Sequence[Variable], values: Sequence[Tensor]) -> None:
        """Assigns each variable a value, in its dtype."""

    def version(self, variable: Variable) -> Any:
        """Returns what differs once `variable` was assigned to; None where nothing tells that."""

    def thread(self) -> int:
        """Returns a number that differs where several threads take a step together."""

    def shard_like(self, kept: Variable, variable: Variable) -> None:
        """Lays out a variable as another of its shape, of which each process has a part only."""

    def cut_slots(self, optimizer: Optimizer, weights: Mapping[int, Variable]) -> None:
        """Lays out the slots as the weights; `weights`: id of what stands for one -> it."""

    def update_tensors(self, optimizer: Optimizer) -> None:
        """Has `optimizer` update variables that are plain tensors during a step, too."""

    def is_compiling(self) -> bool:
        """Returns whether Python code is traced that must not warn."""

    def is_trace_constant(self, value: Tensor) -> bool:
        """Returns whether the function that is being compiled would take `value` as a constant."""

    def is_at_hand(self, value: Tensor) -> bool:
        """Returns whether Python may read `value` now, and waits for nothing."""

    def init_scope(self) -> AbstractContextManager[None]:
        """Returns a scope in which variables may be created, even while a function is traced."""

    def replicas(self) -> int:
        """Returns how many replicas the current step runs on."""

    def check_strategy(self) -> None:
        """Raises ValueError under a strategy of devices that loss scaling does not work with."""


class FusedKernels(Protocol):
    """The functions of `fused_tensorflow.py` and `fused_torch.py`."""

    def fallback(
        self, optimizer: Optimizer, gradients: Gradients, variables: Sequence[Variable]
    ) -> str | None:
        """Returns why a step with these is not fused, or None."""

    def apply(
        self,
        optimizer: Optimizer,
        gradients: list[Gradient],
        variables: list[Variable],
        scale: Tensor | None,
        settings: Settings,
    ) -> StepResult | str:
        """Takes a step with `gradients / scale` on a built optimizer, or returns `fallback`.

        `each` of the result is told with `settings.diagnose` only.
        """
