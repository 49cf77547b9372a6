"""The functions and methods of torch that a thread calls, seen by a `TorchFunctionMode`."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Handler = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
Move = Callable[[Any, Any], None]


class Watching(TorchFunctionMode):
    """Sends each function of torch, called in this thread, to `handle`.

    Args:
        handle: Called with the name of the function, such as "matmul", "__get__:T", "add_" or, with
            an argument `out`, "matmul_"; the function and its arguments.
        move: Called with a tensor, and another one that is to have its value.
        is_seen: Returns whether a function is to be sent now.
    """

    def __init__(self, handle: Handler, move: Move, is_seen: Callable[[], bool]) -> None:
        super().__init__()
        self._handle, self._move, self._is_seen = handle, move, is_seen

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Runs a function of torch."""
        name, kwargs = _name(function), dict(kwargs or {})
        if not self._is_seen() or (name.startswith("__get__:") and name not in _TRANSPOSED):
            return function(*args, **kwargs)
        if kwargs.get("out") is not None:
            return self._handle(f"{name}_", function, tuple(args), kwargs)
        if name in _WIDENS:
            function = _widened(function)
            name = _WIDENED if _asks_for_float32(name, args, kwargs) else name
        if name in _DROPOUTS and not _is_training(args, kwargs):
            name = "identity"  # they return their argument, or a view of it
        changed = _without_inplace(name, tuple(args), kwargs)
        if changed is None:
            return self._handle(name, function, tuple(args), kwargs)
        x = args[0] if args else kwargs["input"]
        self._move(self._handle(name, function, *changed), x)
        return x


_TRANSPOSED = ("__get__:T", "__get__:mT")  # other attributes compute nothing
# They return their argument if it is of that dtype already.
_WIDENS = frozenset({"float", "to", "type"})
_WIDENED = "float"


def _asks_for_float32(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return name == "float" or torch.float32 in (*args[1:], *kwargs.values())


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, with another object of the same value for the argument itself.

    What the user asked to be float32 is not taken in 16 bits by what follows.
    """

    def widened(x: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(x, *args, **kwargs)
        return x.view_as(x) if result is x else result

    return widened


# Of torch.nn.functional: the place of the argument `inplace`.
_PLACE_OF_INPLACE: Mapping[str, int] = {
    **dict.fromkeys(("relu", "relu6", "selu", "silu", "hardswish", "hardsigmoid", "mish"), 1),
    **dict.fromkeys(("elu", "celu", "leaky_relu"), 2),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d"), 3),
    **dict.fromkeys(("alpha_dropout", "hardtanh"), 3),
}


_DROPOUTS = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"})


def _is_training(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    given = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
    return bool(given)


def _without_inplace(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Returns the arguments with `inplace=False`, where it is set; else None."""
    place = _PLACE_OF_INPLACE.get(name)
    if place is None:
        return None
    if kwargs.get("inplace"):
        return args, {**kwargs, "inplace": False}
    if len(args) > place and args[place] is True:
        return (*args[:place], False, *args[place + 1 :]), kwargs
    return None


def _name(function: Any) -> str:
    name: str = getattr(function, "__name__", "")
    if name == "__get__":  # of an attribute, such as x.T
        return f"__get__:{getattr(getattr(function, '__self__', None), '__name__', '')}"
    if name.startswith("_") and not name.startswith("__"):  # F._max_pool2d chooses a result
        return name.removeprefix("_")
    return name


def is_weight(x: Any) -> bool:
    """Returns whether a tensor is a parameter of a module."""
    return isinstance(x, torch.nn.Parameter)


def autocast(dtype: str, x: Any) -> AbstractContextManager[Any]:
    """Returns the scope of `torch.autocast` for the device of a tensor."""
    scope: AbstractContextManager[Any] = torch.autocast(x.device.type, getattr(torch, dtype))
    return scope
