"""Hooks into `compile`, the build and the runs of every Keras model; installs and removes them.

Reaches Keras' trainer class through `keras.Model`, so it imports no private module. Its methods
`_symbolic_build` and `_compute_loss` are private: after `compile`, Keras decides there that layers
and optimizer are built, and has no public place for it.

Also keeps our optimizers in the config of `compile`: `model.save("m.h5")` of Keras 3.15 removes
them. A model that is saved or cloned later then has the default optimizer, RMSprop, at step 0.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras

from keras_mp.array_types import Model


def trainer_class() -> Any:
    """Returns the class that defines `compile`, a base of every Keras model."""
    return next(cls for cls in keras.Model.__mro__ if "compile" in vars(cls))


def install(
    before_compile: Callable[[Any, Any], Any],
    after_compile: Callable[[Any, Any, bool], None],
    after_build: Callable[[Any], None] | None = None,
    before_run: Callable[[Any], None] | None = None,
) -> Callable[[], None]:
    """Wraps the methods; returns a function that restores the originals.

    Args:
        before_compile: Called with the model and the optimizer argument; its result is passed to
            `after_compile`.
        after_compile: Called with the model, that value, and `auto_scale_loss`.
        after_build: Called with the model once its layers exist, before a step is taken; None
            does not hook the build.
        before_run: Called with the model before it trains, evaluates or predicts, and makes the
            function for it; None does not hook the runs.

    Raises:
        RuntimeError: This Keras lacks a private method that `after_build` needs.
    """
    trainer = trainer_class()
    for name in ("_symbolic_build", "_compute_loss"):
        if after_build is not None and not hasattr(trainer, name):
            raise RuntimeError(
                f"keras_mp hooks {trainer.__name__}.{name}, which Keras {keras.__version__} does "
                "not have. Pass keras_mp.LossScaleOptimizer(...) to compile instead."
            )
    signature = inspect.signature(trainer.compile)

    def hooked_compile(original: Any, model: Model, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(model, *args, **kwargs)
        bound.apply_defaults()
        seen = before_compile(model, bound.arguments["optimizer"])
        original(model, *args, **kwargs)
        after_compile(model, seen, bound.arguments["auto_scale_loss"])

    building: list[Any] = []
    built = after_build or (lambda model: None)

    def hooked_build(original: Any, model: Model, *args: Any, **kwargs: Any) -> None:
        building.append(model)
        try:
            original(model, *args, **kwargs)
        finally:
            building.remove(model)
        built(model)

    def hooked_loss(original: Any, model: Model, *args: Any, **kwargs: Any) -> Any:
        # TensorFlow builds layers while it traces the step: this is the first call after that.
        # A symbolic build calls it too, during which variables cannot be created.
        if model not in building:
            built(model)
        return original(model, *args, **kwargs)

    undo = [_wrap(trainer, "compile", hooked_compile)]
    if before_run is not None:
        ready = before_run

        def hooked_make(original: Any, model: Model, *args: Any, **kwargs: Any) -> Any:
            ready(model)
            return original(model, *args, **kwargs)

        for name in ("make_train_function", "make_test_function", "make_predict_function"):
            owner = next(cls for cls in keras.Model.__mro__ if name in vars(cls))
            undo.append(_wrap(owner, name, hooked_make))
    if after_build is not None:
        undo.append(_wrap(trainer, "_symbolic_build", hooked_build))
        undo.append(_wrap(trainer, "_compute_loss", hooked_loss))

    def uninstall() -> None:
        for restore in undo:
            restore()

    return uninstall


def _wrap(cls: type, name: str, hook: Callable[..., Any]) -> Callable[[], None]:
    original = vars(cls)[name]
    active = True

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs) if active else original(*args, **kwargs)

    setattr(cls, name, wrapper)

    def restore() -> None:
        nonlocal active
        active = False
        # If another wrapper was put around ours meanwhile, ours stays and does nothing.
        if vars(cls)[name] is wrapper:
            setattr(cls, name, original)

    return restore


def keep_in_compile_config(cls: type, serialized: Callable[[Any], Any]) -> None:
    """Makes `get_compile_config` of models always name their optimizer, if it is of `cls`.

    Args:
        cls: A class of optimizers.
        serialized: Returns the config of one of them.
    """
    trainer = trainer_class()
    original = trainer.get_compile_config

    @functools.wraps(original)
    def get_compile_config(model: Any) -> Any:
        config = original(model)
        optimizer = getattr(model, "optimizer", None)
        if config and "optimizer" not in config and isinstance(optimizer, cls):
            config = {**config, "optimizer": serialized(optimizer)}
        return config

    trainer.get_compile_config = get_compile_config
