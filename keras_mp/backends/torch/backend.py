"""PyTorch's `protocol.Backend`: foreach kernels, an `if` (one host sync) when eager."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from keras_mp.array_types import Gradient, Layer, Optimizer, Tensor, Variable
from keras_mp.backends.protocol import Backend
from keras_mp.backends.torch import batched, bits, distributed, gradients, steps


class Torch(Backend):
    """The functions of `Backend` on PyTorch."""

    assign_each = staticmethod(bits.assign_each)
    bitcast = staticmethod(bits.bitcast)
    elementwise = staticmethod(bits.elementwise)
    keep_nan = staticmethod(bits.keep_nan)
    shifted_right = staticmethod(bits.shifted_right)
    upper_half = staticmethod(bits.upper_half)
    cut_slots = staticmethod(distributed.cut_slots)
    shard_like = staticmethod(distributed.shard_like)
    all_finite = staticmethod(gradients.all_finite)
    in_known_form = staticmethod(gradients.in_known_form)
    to_dense_gradient = staticmethod(gradients.to_dense_gradient)
    touched_rows = staticmethod(gradients.touched_rows)
    unscale = staticmethod(gradients.unscale)
    apply_if_finite = staticmethod(steps.apply_if_finite)
    is_compiling = staticmethod(steps.is_compiling)

    def read(self, variable: Variable) -> Any:
        """Returns the value of `variable` as a tensor, sharing memory with it."""
        value = variable.value
        return value.detach() if value.requires_grad else value

    def copier(self) -> Callable[[Variable], Any]:
        """Returns a function that copies the value of a variable."""
        return lambda variable: self.read(variable).clone()

    def apply(
        self, optimizer: Optimizer, gradients: list[Gradient], variables: list[Variable]
    ) -> None:
        """Applies `gradients`, finite or not."""
        if any(map(distributed.is_distributed, gradients)):
            self.cut_slots(optimizer)
        optimizer.apply(gradients, variables)

    def values_to_change(self, values: Sequence[Tensor]) -> list[Any]:
        """Returns copies of `values`: Keras' torch optimizers update tensors in place."""
        return [torch.clone(keras.ops.convert_to_tensor(value)).detach() for value in values]

    def gradients(self, loss: Callable[[], Any], variables: list[Variable]) -> list[Any]:
        """Returns the gradients of `loss()` with respect to `variables`."""
        frozen = [variable.path for variable in variables if not variable.value.requires_grad]
        if frozen:
            raise ValueError(f"Not trainable, so there is no gradient: {', '.join(frozen)}.")
        with torch.enable_grad():
            total = keras.ops.sum(loss())
        if not total.requires_grad:
            return [None] * len(variables)
        return list(
            torch.autograd.grad(
                total, [variable.value for variable in variables], allow_unused=True
            )
        )

    def buffers(self, layers: Sequence[Layer]) -> list[Any]:
        """Returns the buffers of `layers`, and of modules in them, which Keras does not know."""
        wrapper = keras.layers.TorchModuleWrapper
        all_buffers = [
            buffer
            for layer in layers
            for buffer in layer.buffers(recurse=isinstance(layer, wrapper))
        ]
        return list({id(buffer): buffer for buffer in all_buffers}.values())

    def version(self, variable: Variable) -> Any:
        """Returns a value that changes when `variable` is assigned to; None if nothing does."""
        value = variable.value
        if self.is_compiling() or value.is_inference():
            return None
        return id(value), value._version

    def is_at_hand(self, value: Tensor) -> bool:
        """Returns whether Python reads `value` without a wait or a graph break."""
        return not self.is_compiling() and batched.is_host(value.device)


BACKEND = Torch()
