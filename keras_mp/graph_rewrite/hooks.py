"""Where Keras and the frameworks are entered: the ops of the backend, operators, an abstract run.

The only module of this room that names a framework or `keras.src`. From keras.src:

- `backend.numpy`, `.nn`, `.math`, `.core`, `.linalg`, `.image`, `.random`: every keras op, also
  one that a layer calls without `keras.ops`, ends in a function that is looked up there at each
  call. Keras has no public way to see those calls.
- `ops.nn._layer_normalization`, `._rms_normalization`: on torch they call torch's own function.
- `backend.compute_output_spec`: runs a function without computing anything, on every backend.
- `backend.common.name_scope.current_path` and the stack behind it: which layer is being called.
- `backend.SymbolicScope`, `.in_symbolic_scope`, `.get_stateless_scope`: what such a run stands in.
- `backend.get_keras_mask`, `.set_keras_mask`: a mask decides which ops run, and JAX's tracers take
  no attribute.
- `backend.rnn`, `backend.core.while_loop`, `.fori_loop`, `.scan`, `.map`: the loops, whose bodies
  run more often than they are recorded.
- `backend.core.remat`: what is computed again for a gradient must be computed as it was.

torch's FakeTensorMode has no public name either.

`install` resolves every name when it is called, and raises where one is missing.
"""

import functools
import inspect
import operator
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.backends.generators import unchanged_generators
from keras_mp.graph_rewrite import decomposition

Dispatch = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

_MODULES = ("numpy", "nn", "math", "linalg", "image")
_FROM_CORE = ("slice", "stop_gradient", "unstack", "scatter", "scatter_update", "slice_update")
_FROM_RANDOM = ("dropout",)
# They run a function of the caller's once a step.
_LOOPS = ("while_loop", "fori_loop", "scan", "map")
# Several ops, or on torch one that no module of the backend has.
_FROM_OPS = {
    "_layer_normalization": "layer_normalization",
    "_rms_normalization": "rms_normalization",
}
# They run functions of the user, or say something about a tensor without computing.
_NOT_OPS = frozenset({"vectorize", "jvp", "ndim", "size", "shape", "wrap_flash_attention", "view"})
# Of keras.src; ops that a version does not have are left out.
_NAMES = (
    *(f"backend.{module}" for module in _MODULES),
    "backend.random",
    "backend.core.remat",
    "backend.rnn",
    *(f"backend.core.{name}" for name in ("while_loop", "fori_loop", "scan", "map")),
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

_OPERATORS = {
    "__add__": "add",
    "__radd__": "add",
    "__sub__": "subtract",
    "__rsub__": "subtract",
    "__mul__": "multiply",
    "__rmul__": "multiply",
    "__truediv__": "true_divide",
    "__rtruediv__": "true_divide",
    "__matmul__": "matmul",
    "__rmatmul__": "matmul",
    "__pow__": "power",
    "__rpow__": "power",
    "__neg__": "negative",
    "__abs__": "abs",
    "__getitem__": "get_item",
}
# torch changes its left side; elsewhere `x += y` is `x = x + y`.
_IN_PLACE = {
    "__iadd__": ("add", operator.add),
    "__isub__": ("subtract", operator.sub),
    "__imul__": ("multiply", operator.mul),
    "__itruediv__": ("true_divide", operator.truediv),
}
_LIBRARIES = ("jax.", "jaxlib.", "tensorflow.", "torch.", "keras.src.backend.", "optree.", "numpy.")

_jax_context: Callable[[Any], AbstractContextManager[Any]] = nullcontext
_lock = threading.Lock()
_undo: list[Callable[[], None]] = []


class _Active(threading.local):
    dispatch: Dispatch | None = None


_active = _Active()


@contextmanager
def dispatching(dispatch: Dispatch | None, traced_as: Any = None) -> Iterator[None]:
    """Sends each keras op that this thread calls to `dispatch`; None: lets them be.

    Args:
        dispatch: Called with the name of the op, the original, and its arguments.
        traced_as: What a function that JAX jits inside is cached under, beside its arguments, so
            that no trace is taken up where the ops go elsewhere.
    """
    before = _active.dispatch
    _active.dispatch = dispatch
    try:
        with _jax_context(traced_as):
            yield
    finally:
        _active.dispatch = before


def is_dispatching() -> bool:
    """Returns whether `dispatching` is in force in this thread."""
    return _active.dispatch is not None


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
        _prepare_jax()
        try:
            for module, name in _functions():
                _undo.append(_hook(module, name, _FROM_OPS.get(name, name)))
            for module, name in _recurrent():
                _undo.append(_refuse(module, name))
            _undo.append(_hook_loop(keras_hooks.internal_backend(), "rnn"))
            _undo.extend(_hook_loop(keras_hooks.internal_backend().core, name) for name in _LOOPS)
            _undo.append(_hook_remat())
            for cls in _tensor_classes():
                for method, name in _OPERATORS.items():
                    if hasattr(cls, method):
                        _undo.append(_hook_operator(cls, method, name))
                for method, (name, operation) in _IN_PLACE.items():
                    if hasattr(cls, method):
                        _undo.append(_hook_in_place(cls, method, name, operation))
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


def _stateless_scope() -> Any:
    return keras_hooks.internal_backend().get_stateless_scope()


def _functions() -> Iterator[tuple[Any, str]]:
    backend = keras_hooks.internal_backend()
    for part in _MODULES:
        module = getattr(backend, part, None)
        yield from [(module, name) for name, value in vars(module).items() if _is_op(name, value)]
    for part, names in (("core", _FROM_CORE), ("random", _FROM_RANDOM)):
        module = getattr(backend, part, None)
        yield from [(module, name) for name in names if hasattr(module, name)]
    module = keras.src.ops.nn
    yield from [(module, name) for name in _FROM_OPS if hasattr(module, name)]


def _is_op(name: str, value: Any) -> bool:
    if not inspect.isfunction(value) or name.startswith("_") or name in _NOT_OPS:
        return False
    # Imported helpers (convert_to_tensor, cast, draw_seed) stand among the ops of a module.
    home = value.__module__ or ""
    return home.startswith("keras.src.backend") and not home.endswith((".core", "backend_utils"))


def _hook(module: Any, attribute: str, name: str) -> Callable[[], None]:
    original = vars(module)[attribute]
    split_up = decomposition.of(name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        dispatch = _active.dispatch
        if dispatch is None:
            return original(*args, **kwargs)
        if split_up is not None:
            parts = split_up(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        return dispatch(name, original, args, kwargs)

    return _put(module, attribute, hooked)


def _put(owner: Any, name: str, hook: Any) -> Callable[[], None]:
    """Replaces an attribute; returns what puts it back, unless somebody has replaced it since."""
    own, original = name in vars(owner), getattr(owner, name)
    setattr(owner, name, hook)

    def restore() -> None:
        if vars(owner).get(name) is not hook:
            return
        if own:
            setattr(owner, name, original)
        else:  # it was inherited
            delattr(owner, name)

    return restore


def _hook_operator(cls: type, method: str, name: str) -> Callable[[], None]:
    original = getattr(cls, method)

    @functools.wraps(original)
    def hooked(*args: Any) -> Any:
        dispatch = _active.dispatch
        if dispatch is None or _called_by_library():
            return original(*args)
        return dispatch(name, run, args, {})

    def run(*args: Any) -> Any:
        # What was an array may be a tracer of JAX by now, which is of another class.
        return original(*args) if isinstance(args[0], cls) else getattr(args[0], method)(*args[1:])

    return _put(cls, method, hooked)


def _hook_in_place(
    cls: type, method: str, name: str, operation: Callable[[Any, Any], Any]
) -> Callable[[], None]:
    original = getattr(cls, method)

    @functools.wraps(original)
    def hooked(x: Any, other: Any) -> Any:
        dispatch = _active.dispatch
        moved = getattr(dispatch, "moved", None)
        if dispatch is None or moved is None or _called_by_library() or not _fits(x, other):
            return original(x, other)
        made = dispatch(name, operation, (x, other), {})
        with dispatching(None):
            x.copy_(made)  # whoever holds x sees it
        moved(made, x)
        return x

    return _put(cls, method, hooked)


def _fits(x: Any, other: Any) -> bool:
    """Returns whether `x + other` has the shape and dtype of `x`."""
    if isinstance(other, keras.Variable):
        other = other.value
    if not keras.ops.is_tensor(other):
        return isinstance(other, (int, float)) and bool(x.is_floating_point())
    sides = zip(reversed(other.shape), reversed(x.shape), strict=False)
    fits = len(other.shape) <= len(x.shape) and all(a in (1, b) for a, b in sides)
    return fits and bool(other.dtype == x.dtype)


def _recurrent() -> Iterator[tuple[Any, str]]:
    """Yields loops of Keras that call the framework, where no kernel of cuDNN runs."""
    backend = keras_hooks.internal_backend()
    if keras.backend.backend() == "jax":
        yield from [(backend, name) for name in ("gru",) if hasattr(backend, name)]
    if keras.backend.backend() == "torch":
        module = sys.modules[backend.gru.__module__]
        names = ("_fallback_lstm", "_fallback_gru")
        yield from [(module, name) for name in names if hasattr(module, name)]


def _refuse(module: Any, name: str) -> Callable[[], None]:
    original = vars(module)[name]

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if _active.dispatch is not None:
            raise NotImplementedError  # the layer then runs its loop of keras ops
        return original(*args, **kwargs)

    return _put(module, name, hooked)


def _hook_loop(module: Any, name: str) -> Callable[[], None]:
    original = getattr(module, name)

    @functools.wraps(original)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        loop = getattr(_active.dispatch, "loop", None)
        if loop is None:
            return original(*args, **kwargs)
        return loop(name, original, args, kwargs)

    return _put(module, name, hooked)


def _hook_remat() -> Callable[[], None]:
    module, name = keras_hooks.internal_backend().core, "remat"
    if keras.backend.backend() == "torch":
        import torch.utils.checkpoint

        # What Keras' remat looks up at each call: it may have been called long before.
        module, name = torch.utils.checkpoint, "checkpoint"
    original = getattr(module, name)

    @functools.wraps(original)
    def hooked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return original(_with_dispatch_of_now(function), *args, **kwargs)

    return _put(module, name, hooked)


def _with_dispatch_of_now(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` so that a later call, for the gradient, computes as a call now does."""
    dispatch = _active.dispatch
    if dispatch is None or not hasattr(dispatch, "resumed"):
        return function
    again = dispatch.resumed()
    state = keras_hooks.global_state
    scopes = list(state.get_global_attribute("name_scope_stack", default=[]))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _active.dispatch is not None:
            return function(*args, **kwargs)
        before = state.get_global_attribute("name_scope_stack")
        state.set_global_attribute("name_scope_stack", list(scopes))
        try:
            with dispatching(again()):
                return function(*args, **kwargs)
        finally:
            state.set_global_attribute("name_scope_stack", before)

    return run


def _called_by_library() -> bool:
    # JAX keeps what it traced inside its own jitted functions: a cast there would outlive us. An
    # operator gets nothing but its operands, so only the stack tells who computes.
    hooked = inspect.currentframe().f_back  # type: ignore[union-attr]
    caller = hooked.f_back.f_globals.get("__name__", "")  # type: ignore[union-attr]
    return f"{caller}.".startswith(_LIBRARIES)


def _tensor_classes() -> Sequence[type]:
    match keras.backend.backend():
        case "jax":
            import jax

            with jax.ensure_compile_time_eval():  # an array, also where JAX traces
                return (jax.core.Tracer, type(jax.numpy.zeros(())))
        case "tensorflow":
            import tensorflow as tf

            return (tf.Tensor,)
        case "torch":
            import torch

            return (torch.Tensor,)
    return ()


def _prepare_jax() -> None:
    global _jax_context
    if keras.backend.backend() == "jax" and _jax_context is nullcontext:
        import jax

        if hasattr(jax, "make_user_context"):
            _jax_context = jax.make_user_context(None)


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

    found = {name for _, name in _functions()}
    missing = [name for name in _REQUIRED if name not in found]
    with dispatching(note):
        keras.ops.matmul(keras.ops.ones((1, 1)), keras.ops.ones((1, 1)))
    if missing or "matmul" not in seen:
        raise RuntimeError(_missing(f"the op {(missing or ['matmul'])[0]!r}"))


def layer_path() -> str:
    """Returns the path of the layer that is being called in this thread."""
    return str(keras.src.backend.common.name_scope.current_path())


def path_of(model: Any) -> str:
    """Returns the path of `model` while it is called: below that in which it was first built."""
    parent = getattr(model, "_parent_path", None)
    return f"{parent}/{model.name}" if parent else str(model.name)


def mask_of(x: Any) -> Any:
    """Returns the mask that Keras has put on a tensor, or None."""
    return keras_hooks.mask_of(x)


def set_mask(x: Any, mask: Any) -> None:
    """Puts a mask on a tensor, as Keras does."""
    keras.src.backend.set_keras_mask(x, mask)


def in_symbolic_call() -> bool:
    """Returns whether Keras only wants to know shapes."""
    return bool(keras.src.backend.in_symbolic_scope())


def is_compiling() -> bool:
    """Returns whether torch.compile is tracing: what hangs on a tensor is not seen there."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return bool(torch.compiler.is_compiling())


def runs_eagerly() -> bool:
    """Returns whether Python calls each op of a loop whenever it runs: torch, not compiled."""
    return keras.backend.backend() == "torch" and not is_compiling()


def traced(
    function: Callable[..., Sequence[Any]], examples: Sequence[Any], variables: Sequence[Any]
) -> Any:
    """Returns a `keras_mp.backends.traced_torch.Traced`, or None for what cannot be traced."""
    from keras_mp.backends import traced_torch

    return traced_torch.traced(function, examples, variables)


def is_inference_tensor(x: Any) -> bool:
    """Returns whether `x` is of torch's inference mode, which counts no changes in place."""
    return keras.backend.backend() == "torch" and bool(x.is_inference())


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


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if keras.backend.backend() == "torch":
        # Keras would move tensors to the device "meta", and each op gets a copy of its input.
        _run_on_fake_tensors(function, args, kwargs)
    else:
        keras.src.backend.compute_output_spec(function, *args, **kwargs)


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

    with keras.src.backend.SymbolicScope(), torch.no_grad(), torch.random.fork_rng():
        is_done = False
        # Whatever is wrong, the second run says it better; and alone.
        with suppress(Exception), FakeTensorMode(allow_non_fake_inputs=True):
            run()
            is_done = True
        if not is_done:
            run()


def at_compile_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, which torch.compile calls while it compiles instead of tracing it.

    Its tensors are examples then, and what it returns is a constant of what is compiled.
    """
    if keras.backend.backend() != "torch":
        return function
    import torch

    return torch.compiler.assume_constant_result(function)  # type: ignore[no-any-return]
