"""Modules of torch, flax and JAX in Keras layers, under a mixed dtype policy.

Keras casts the inputs of `TorchModuleWrapper`, but not its weights, and the forward pass fails. It
casts the weights of `FlaxLayer` and `JaxLayer`, but also their state: a moving mean of 2049 is
rounded to 2048. Here the public method `call` of these layers is wrapped, as there is no hook.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import keras

_LOW = ("float16", "bfloat16")


def compute_by_policy() -> None:
    """Has modules of other libraries compute by a mixed policy: weights and state in float32.

    - `TorchModuleWrapper`: the module runs under `torch.autocast`.
    - `FlaxLayer`, `JaxLayer`: the parameters are cast where they are used, the state is not.

    All of them return the policy's compute dtype. Layers with another policy, and layers whose
    class has its own `call`, compute as before.
    """
    if keras.backend.backend() == "torch":
        _wrap(keras.layers.TorchModuleWrapper, _autocast)
    else:
        _wrap(keras.layers.JaxLayer, _state_as_it_is)


def _is_mixed(layer: Any) -> bool:
    """Returns whether a layer computes in 16 bits with variables in another dtype."""
    return layer.compute_dtype in _LOW and layer.variable_dtype != layer.compute_dtype


def _wrap(cls: Any, scope: Callable[..., contextlib.AbstractContextManager[None]]) -> None:
    original = cls.call

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_mixed(self):
            return original(self, *args, **kwargs)
        with scope(self, args, kwargs):
            result = original(self, *args, **kwargs)
        return _lowered(result, self.compute_dtype)

    cls.call = call


def _lowered(result: Any, dtype: str) -> Any:
    def lowered(x: Any) -> Any:
        is_float = keras.ops.is_tensor(x) and keras.backend.is_float_dtype(_dtype_of(x))
        return keras.ops.cast(x, dtype) if is_float else x

    # torch.compile does not trace into keras.tree, which few modules need.
    if keras.ops.is_tensor(result):
        return lowered(result)
    return keras.tree.map_structure(lowered, result)


def _dtype_of(x: Any) -> str:
    return str(keras.backend.standardize_dtype(x.dtype))


def _autocast(layer: Any, args: Any, kwargs: Any) -> contextlib.AbstractContextManager[None]:
    import torch

    given = [*args, *kwargs.values()]
    if not any(isinstance(x, torch.Tensor) for x in given):
        given = keras.tree.flatten(given)
    device = next((x.device.type for x in given if isinstance(x, torch.Tensor)), None)
    # Keras first asks for shapes on the device "meta", and again on another if that fails.
    if device is None or not torch.amp.is_autocast_available(device):
        return contextlib.nullcontext()
    scope: contextlib.AbstractContextManager[None]
    scope = torch.autocast(device, getattr(torch, layer.compute_dtype))
    return scope


def _state_as_it_is(layer: Any, args: Any, kwargs: Any) -> contextlib.AbstractContextManager[None]:
    for variable in keras.tree.flatten(layer.tracked_state or ()):
        # As if made by `add_weight(autocast=False)`.
        variable._autocast = False
    return contextlib.nullcontext()
