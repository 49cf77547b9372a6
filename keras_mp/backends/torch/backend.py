"""PyTorch's `protocol.Backend`: foreach kernels, an `if` (one host sync) when eager."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from keras_mp.array_types import Gradient, Layer, Optimizer, Tensor, Variable
from keras_mp.backends.torch import batched
from keras_mp.backends.torch.bits import (
    assign_each as assign_each,
    bitcast as bitcast,
    elementwise as elementwise,
    keep_nan as keep_nan,
    shifted_right as shifted_right,
    upper_half as upper_half,
)
from keras_mp.backends.torch.distributed import (
    cut_slots as cut_slots,
    is_distributed,
    shard_like as shard_like,
)
from keras_mp.backends.torch.gradients import (
    all_finite as all_finite,
    in_known_form as in_known_form,
    to_dense_gradient as to_dense_gradient,
    touched_rows as touched_rows,
    unscale as unscale,
)
from keras_mp.backends.torch.steps import (
    apply_if_finite as apply_if_finite,
    is_compiling as is_compiling,
)


def read(variable: Variable) -> Any:
    """Returns the value of `variable` as a tensor, sharing memory with it."""
    value = variable.value
    return value.detach() if value.requires_grad else value


def copier() -> Callable[[Variable], Any]:
    """Returns a function that copies the value of a variable."""
    return lambda variable: read(variable).clone()


def apply(optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable]) -> None:
    """Applies `gradients`, finite or not."""
    if any(map(is_distributed, gradients)):
        cut_slots(optimizer)
    optimizer.apply(gradients, variables)


def values_to_change(values: Sequence[Tensor]) -> list[Any]:
    """Returns copies of `values`: Keras' torch optimizers update tensors in place."""
    return [torch.clone(keras.ops.convert_to_tensor(value)).detach() for value in values]


def gradients(loss: Callable[[], Any], variables: list[Variable]) -> list[Any]:
    """Returns the gradients of `loss()` with respect to `variables`."""
    frozen = [variable.path for variable in variables if not variable.value.requires_grad]
    if frozen:
        raise ValueError(f"Not trainable, so there is no gradient: {', '.join(frozen)}.")
    with torch.enable_grad():
        total = keras.ops.sum(loss())
    if not total.requires_grad:
        return [None] * len(variables)
    return list(
        torch.autograd.grad(total, [variable.value for variable in variables], allow_unused=True)
    )


def tape_gradients(
    tape: Any, loss: Tensor | float, scale: Callable[[Any], Any], variables: list[Variable]
) -> None:
    """Returns None: only TensorFlow has tapes."""


def copy_shared_arrays(variables: Sequence[Variable]) -> None:
    """Does nothing: assigning copies here."""


def buffers(layers: Sequence[Layer]) -> list[Any]:
    """Returns the buffers of `layers`, and of modules in them, which Keras does not know."""
    wrapper = keras.layers.TorchModuleWrapper
    all_buffers = [
        buffer for layer in layers for buffer in layer.buffers(recurse=isinstance(layer, wrapper))
    ]
    return list({id(buffer): buffer for buffer in all_buffers}.values())


def version(variable: Variable) -> Any:
    """Returns a value that changes when `variable` is assigned to; None if nothing does."""
    value = variable.value
    if is_compiling() or value.is_inference():
        return None
    return id(value), value._version


def thread() -> int:
    """Returns 0: a step runs in one thread."""
    return 0


def update_tensors(optimizer: Optimizer) -> None:
    """Does nothing: steps change the tensors of variables in place, wherever they come from."""


def is_trace_constant(value: Tensor) -> bool:
    """Returns False: compiled functions read variables here."""
    return False


def is_at_hand(value: Tensor) -> bool:
    """Returns whether Python reads `value` without a wait or a graph break."""
    return not is_compiling() and batched.is_host(value.device)


def init_scope() -> contextlib.AbstractContextManager[None]:
    """Returns a scope in which variables may be created."""
    return contextlib.nullcontext()


def replicas() -> int:
    """Returns 1: each process runs its own step."""
    return 1


def check_strategy() -> None:
    """Does nothing: only TensorFlow has `tf.distribute`."""
