"""`auto_wrap`: `compile("adam")` of a model that computes in float16 gets our loss scaler.

Decides which models and how; the hooks themselves are in `backends/trainer_hook.py`.
"""

import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Self

import keras

from keras_mp import backends
from keras_mp.array_types import Model, Optimizer
from keras_mp.backends import keras_hooks
from keras_mp.backends.common import trainer_hook
from keras_mp.optimizer.delegation import wrapper_of
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer

_lock = threading.Lock()
_open = 0
_uninstall: Callable[[], None] | None = None
# Models with layers that were not built at compile: decided at build.
_undecided: weakref.WeakSet[Any] = weakref.WeakSet()


def auto_wrap() -> "AutoWrap":
    """Makes `compile` wrap optimizers with `keras_mp.LossScaleOptimizer`.

    Applies to every model compiled from now on in which some layer computes in float16. They are
    wrapped with our class instead of Keras' own. This includes models that Keras would not wrap:
    those whose policy is set on layers only, is plain float16, a `DTypePolicyMap` or a float8
    policy. If layers are not built at `compile`, the model is wrapped when they are. A
    `keras.optimizers.LossScaleOptimizer`, explicit or in a loaded file, is replaced and its state
    kept. A `keras_mp.LossScaleOptimizer` is never touched, and `auto_scale_loss=False` is
    respected, also after saving and loading. If the model's dtype policy has a callable
    `wrap_optimizer`, the model trains with the optimizer that it returns, and files name that one.

    Saved files name the optimizer that was given to `compile`, so they open in plain Keras.

    Returns:
        An object that undoes it when called, or at the end of a `with` block.

    >>> with auto_wrap():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, dtype="float16")])
    ...     model.compile("sgd", "mse")
    >>> type(model.optimizer).__module__
    'keras_mp'
    >>> undo = auto_wrap()
    >>> undo()
    """
    global _open, _uninstall
    with _lock:
        if _uninstall is None:
            _uninstall = trainer_hook.install(_before_compile, _after_compile, _after_build)
        _open += 1
    return AutoWrap()


def is_active() -> bool:
    """Returns whether `auto_wrap` is active."""
    return _open > 0


class AutoWrap:
    """The result of `auto_wrap`. Calling it twice undoes once."""

    def __init__(self) -> None:
        self._done = False

    def __call__(self) -> None:
        global _open, _uninstall
        with _lock:
            if self._done:
                return
            self._done = True
            _open -= 1
            if _open == 0 and _uninstall is not None:
                _uninstall()
                _uninstall = None
                _undecided.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self()


def computes_in_float16(model: Model) -> bool:
    """Returns whether the model or one of its layers computes in float16.

    >>> computes_in_float16(keras.Sequential([keras.layers.Dense(1, dtype="mixed_float16")]))
    True
    >>> computes_in_float16(keras.Sequential([keras.layers.Dense(1, dtype="mixed_bfloat16")]))
    False
    """
    return any(
        layer.compute_dtype == "float16"
        for layer in keras_hooks.all_layers(model)
        if not isinstance(layer, keras.layers.InputLayer)
    )


def _before_compile(model: Model, optimizer: Optimizer) -> Any:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return None, None, False
    # Keras' own wrapper clears the factor silently. Our wrapper's scale must be kept, though
    # compile may drop the wrapper.
    explicit = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    return optimizer.loss_scale_factor, wrapper_of(optimizer), explicit


def _after_compile(model: Model, before: tuple[Any, Any, bool], auto_scale_loss: bool) -> None:
    factor, _, explicit = before
    _undecided.discard(model)
    optimizer = model.optimizer
    if optimizer is None or isinstance(optimizer, LossScaleOptimizer):
        return
    by_policy = getattr(model.dtype_policy, "wrap_optimizer", None)
    if by_policy is not None and auto_scale_loss and not explicit:
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer  # Keras' compile wrapped it
        with backends.current().init_scope():
            wrapped = wrapper_of(optimizer) or by_policy(optimizer)
        _set_optimizer(model, wrapped)
        if wrapped is optimizer:
            _stay_unscaled(model)
        else:  # a file could not tell the loss scale from the policy, which it names only
            keras_hooks.compile_config(model)["optimizer"] = wrapped
        return
    if type(optimizer) is keras.optimizers.LossScaleOptimizer:
        if factor is not None:
            warnings.warn(
                f"loss_scale_factor={factor} of the optimizer is cleared: LossScaleOptimizer "
                f"scales the loss. For a fixed scale pass keras_mp.LossScaleOptimizer(optimizer, "
                f"dynamic=False, initial_scale={factor}) to compile.",
                stacklevel=5,
            )
        _set_optimizer(model, _from_keras(optimizer))
    elif isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return  # a user's subclass; it scales the loss already
    elif not auto_scale_loss:
        _stay_unscaled(model)
    elif computes_in_float16(model):
        _set_optimizer(model, _wrapper_for(optimizer))
    elif not all(layer.built for layer in keras_hooks.all_layers(model)):
        _undecided.add(model)


def _after_build(model: Model) -> None:
    if model not in _undecided:
        return
    _undecided.discard(model)
    if computes_in_float16(model):
        optimizer = _wrapper_for(model.optimizer)
        optimizer.build(model.trainable_variables)
        _set_optimizer(model, optimizer)


def _wrapper_for(optimizer: Optimizer) -> LossScaleOptimizer:
    with backends.current().init_scope():
        return wrapper_of(optimizer) or LossScaleOptimizer(optimizer)


def _from_keras(theirs: Any) -> LossScaleOptimizer:
    inner = theirs.inner_optimizer
    with backends.current().init_scope():
        ours = wrapper_of(inner) or LossScaleOptimizer.from_config(
            {**theirs.get_config(), "inner_optimizer": inner}
        )
    if theirs.built and not ours.built:
        ours.build(keras_hooks.trained_variables(theirs.inner_optimizer))
        ours.step_counter.assign(theirs.step_counter)
        ours.dynamic_scale.assign(theirs.dynamic_scale)
    return ours


def _stay_unscaled(model: Model) -> None:
    # Keras does not write this argument of compile, and would scale after a reload.
    keras_hooks.compile_config(model)["auto_scale_loss"] = False


def _set_optimizer(model: Model, optimizer: Optimizer) -> None:
    # As compile does: without Keras' tracking of attributes.
    object.__setattr__(model, "optimizer", optimizer)
