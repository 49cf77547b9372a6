"""All hooks, installed and removed as one.

`install` resolves every name of Keras when it is called, and raises where one is missing.
"""

import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.graph_rewrite.hooks import loops, operators, ops, own_ops, scopes
from keras_mp.graph_rewrite.hooks.dispatch import dispatching, prepare_jax, put

# Of keras.src; ops that a version does not have are left out.
_NAMES = (
    *(f"backend.{module}" for module in ops.MODULES),
    "backend.random",
    "backend.core.remat",
    "backend.rnn",
    *(f"backend.core.{name}" for name in (*loops.LOOPS, *loops.FUNCTIONAL)),
    *(f"backend.{name}" for name in scopes.HELPERS),
    *(f"backend.core.{name}" for name in scopes.HELPERS),
    "backend.compute_output_spec",
    "backend.SymbolicScope",
    "backend.in_symbolic_scope",
    "backend.get_stateless_scope",
    "backend.in_stateless_scope",
    "backend.get_keras_mask",
    "backend.set_keras_mask",
    "backend.common.name_scope.current_path",
    "backend.common.global_state.get_global_attribute",
    "backend.common.global_state.set_global_attribute",
    "ops.nn",
)


# What must be found, or no matrix product would run in float16.
_REQUIRED = ("matmul", "einsum", "tensordot", "dot", "conv", "conv_transpose", "depthwise_conv")


_lock = threading.Lock()


_undo: list[Callable[[], None]] = []


def install() -> None:
    """Hooks every op; does nothing where that is done.

    Raises:
        RuntimeError: This Keras has no such name or op, or does not call it through the hook.
    """
    with _lock:
        if _undo:
            return
        for name in _unresolved():
            raise RuntimeError(_missing(name))
        prepare_jax()
        try:
            for module, name in ops.functions():
                _undo.append(ops.hook(module, name, ops.FROM_OPS.get(name, name)))
            for module, name in loops.recurrent():
                _undo.append(loops.refuse(module, name))
            _undo.append(loops.hook_loop(keras_hooks.internal_backend(), "rnn"))
            _undo.extend(
                loops.hook_loop(keras_hooks.internal_backend().core, name) for name in loops.LOOPS
            )
            _undo.append(loops.hook_remat())
            if own_ops.are_seen():
                _undo.extend(put(*hook) for hook in own_ops.hooks_of_primitives())
                _undo.extend(
                    loops.hook_functional(keras_hooks.internal_backend().core, name)
                    for name in loops.FUNCTIONAL
                )
                _undo.append(scopes.hook_layers())
                _undo.extend(scopes.hook_helpers())
            for cls in operators.tensor_classes():
                for method, name in operators.OPERATORS.items():
                    if hasattr(cls, method):
                        _undo.append(operators.hook_operator(cls, method, name))
                for method, (name, operation) in operators.IN_PLACE.items():
                    if hasattr(cls, method):
                        _undo.append(operators.hook_in_place(cls, method, name, operation))
            _check()
        except BaseException:
            _uninstall()
            raise


def uninstall() -> None:
    """Puts every original back."""
    with _lock:
        _uninstall()


def is_installed() -> bool:
    """Returns whether the hooks are in place."""
    return bool(_undo)


def _uninstall() -> None:
    while _undo:
        _undo.pop()()


def _unresolved() -> Iterator[str]:
    for name in _NAMES:
        try:
            operator.attrgetter(name)(keras.src)
        except AttributeError:
            yield f"the name keras.src.{name}"
    if keras.backend.backend() == "torch":
        from torch._subclasses import fake_tensor

        if not hasattr(fake_tensor, "FakeTensorMode"):
            yield "the name torch._subclasses.fake_tensor.FakeTensorMode"


def _missing(what: str) -> str:
    return (
        f"The graph rewrite cannot see {what} of keras {keras.__version__}: nothing would run in "
        "float16. Use keras_mp.set_global_policy('mixed_float16'), or a newer keras_mp."
    )


def _check() -> None:
    seen: list[str] = []

    def note(name: str, original: Any, args: Any, kwargs: Any) -> Any:
        seen.append(name)
        return original(*args, **kwargs)

    found = {name for _, name in ops.functions()}
    missing = [name for name in _REQUIRED if name not in found]
    with dispatching(note):
        keras.ops.matmul(keras.ops.ones((1, 1)), keras.ops.ones((1, 1)))
    if missing or "matmul" not in seen:
        raise RuntimeError(_missing(f"the op {(missing or ['matmul'])[0]!r}"))
