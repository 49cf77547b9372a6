"""Runs a function without computing anything: what a model does is recorded in such a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.backends.common.generators import unchanged_generators
from keras_mp.graph_rewrite.tensors import version_of


def run_abstractly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Calls `function` without computing anything: with tensors that have a shape and a dtype.

    Variables keep their values, and what happens to them inside is forgotten; so are losses. On
    torch, where a function needs numbers, it is called again on tensors of ones.

    Args:
        function: Called with `args` and `kwargs`, in which `KerasTensor`s have become tensors.
    """
    outer = _stateless_scope() if keras_hooks.internal_backend().in_stateless_scope() else None
    mapping = dict(outer.state_mapping) if outer is not None else {}

    def isolated(*args: Any, **kwargs: Any) -> Any:
        scope = keras.StatelessScope(collect_losses=True)
        scope.state_mapping.update(mapping)
        with scope:
            function(*args, **kwargs)
        return ()

    with unchanged_generators():
        _run(isolated, args, kwargs)


def _stateless_scope() -> Any:
    return keras_hooks.internal_backend().get_stateless_scope()


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if keras.backend.backend() == "torch":
        # Keras would move tensors to the device "meta", and each op gets a copy of its input.
        _run_on_fake_tensors(function, args, kwargs)
    else:
        keras_hooks.internal_backend().compute_output_spec(function, *args, **kwargs)


@contextmanager
def unchanged_buffers(model: Any) -> Iterator[None]:
    """A scope after which tensors that modules of torch hold are as before.

    An abstract run changes them if the module does so in place: they are no tensors of the run.
    """
    if keras.backend.backend() != "torch":
        yield
        return
    import torch

    held = {id(x): x for layer in keras_hooks.all_layers(model) for x in _held_tensors(layer)}
    with torch.no_grad():
        before = [(x, version_of(x), x.clone()) for x in held.values()]
    try:
        yield
    finally:
        with torch.no_grad():
            for x, version, value in before:
                if version_of(x) != version:
                    x.copy_(value)


def _held_tensors(layer: Any) -> Iterator[Any]:
    """Yields the buffers of a layer and the modules in it, and tensors that are attributes."""
    import torch

    for module in layer.modules():
        yield from module.buffers(recurse=False)
        yield from (x for x in vars(module).values() if isinstance(x, torch.Tensor))


def assigned_values() -> list[Any]:
    """Returns what variables were given in the abstract run that this is called in."""
    return list(_stateless_scope().state_mapping.values())


def added_losses() -> list[Any]:
    """Returns what layers added to the loss in the abstract run that this is called in."""
    return list(_stateless_scope().losses)


def _run_on_fake_tensors(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    def run() -> None:
        def ones(x: Any) -> Any:
            if not isinstance(x, keras.KerasTensor):
                return x
            return keras.ops.ones([1 if side is None else side for side in x.shape], x.dtype)

        arguments = keras.tree.map_structure(ones, (args, kwargs))
        function(*arguments[0], **arguments[1])

    with keras_hooks.internal_backend().SymbolicScope(), torch.no_grad(), torch.random.fork_rng():
        is_done = False
        # Whatever is wrong, the second run says it better; and alone.
        with suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True):
            run()
            is_done = True
        if not is_done:
            run()
