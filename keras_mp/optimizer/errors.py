"""Checks whether an object can be wrapped; the error says what to write instead."""

import numbers
from collections.abc import Mapping
from typing import Any

import keras

from keras_mp.array_types import Optimizer
from keras_mp.backends.common.optimizers import class_path

_AN_OPTIMIZER = "an optimizer, such as keras.optimizers.Adam(1e-3)"

# Optimizers of other libraries -> the class of keras.optimizers with the same rule, if renamed.
_TODAY = {
    "ASGD": None,
    "AdadeltaOptimizer": "Adadelta",
    "AdagradOptimizer": "Adagrad",
    "AdamOptimizer": "Adam",
    "FtrlOptimizer": "Ftrl",
    "GradientDescentOptimizer": "SGD",
    "LBFGS": None,
    "MomentumOptimizer": "SGD",
    "ProximalAdagradOptimizer": None,
    "RMSPropOptimizer": "RMSprop",
}


def check_inner_optimizer(optimizer: Optimizer) -> None:
    """Raises TypeError unless `optimizer` is a Keras 3 optimizer that does not scale by itself.

    >>> check_inner_optimizer(keras.optimizers.SGD())
    >>> check_inner_optimizer("adam")
    Traceback (most recent call last):
    TypeError: inner_optimizer must be a keras.optimizers.Optimizer, but got the string 'adam'; \
write keras.optimizers.get('adam').
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise TypeError(
            "inner_optimizer must not be a LossScaleOptimizer itself (the loss would be scaled "
            f"twice), but got {optimizer}. Wrap its inner_optimizer."
        )
    check_optimizer("inner_optimizer", optimizer)


def check_optimizer(name: str, optimizer: Optimizer) -> None:
    """Raises TypeError unless `optimizer` is a Keras 3 optimizer; the text says what to write.

    Imports no framework: objects of other libraries are recognized by class name and module.

    Args:
        name: The parameter, for the message.
        optimizer: Its argument.
    """
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return
    raise TypeError(
        f"{name} must be a keras.optimizers.Optimizer, but got {_described(optimizer)}."
    )


def unwrapped(optimizer: Optimizer) -> str:
    """Returns what a caller passed in place of a keras_mp.LossScaleOptimizer, and the remedy.

    >>> unwrapped(keras.optimizers.SGD())
    'keras.optimizers.SGD: wrap it, keras_mp.LossScaleOptimizer(optimizer)'
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return (
            f"{class_path(optimizer)}, which Keras puts around the optimizer of a model with the "
            "policy mixed_float16: wrap the optimizer in ours first, "
            "keras_mp.LossScaleOptimizer(optimizer), or call keras_mp.auto_wrap() before compile"
        )
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return f"{class_path(optimizer)}: wrap it, keras_mp.LossScaleOptimizer(optimizer)"
    return _described(optimizer)


def _described(given: Any) -> str:
    match given:
        case None:
            return "None, of type NoneType; a model has an optimizer only after compile"
        case str():
            if _keras_class(given) is None:
                return f"the string {given!r}, which names no optimizer; write {_AN_OPTIMIZER}"
            return f"the string {given!r}; write keras.optimizers.get({given!r})"
        case bool():
            return f"{given}, of type bool; write {_AN_OPTIMIZER}"
        case numbers.Real():
            return (
                f"the number {given}; for a learning rate of {given} write "
                f"keras.optimizers.Adam({given})"
            )
        case Mapping():
            return _of_a_dictionary(given)
        case list() | tuple() if given and all(map(_is_keras, given)):
            return (
                f"a {type(given).__name__} of {len(given)} optimizers; wrap one, "
                "or keras.optimizers.MultiOptimizer (Keras 3.15) of them"
            )
        case type():
            return _of_a_class(given)
    if isinstance(given, keras.optimizers.schedules.LearningRateSchedule):
        return (
            f"a learning-rate schedule, {type(given).__name__}; give it to an optimizer: "
            "keras.optimizers.Adam(schedule)"
        )
    if isinstance(given, keras.layers.Layer):
        kind = "model" if isinstance(given, keras.Model) else "layer"
        return (
            f"the {kind} {given.name!r}, a {type(given).__name__}; write {_AN_OPTIMIZER}, and give "
            "the wrapped optimizer to compile"
        )
    if isinstance(given, keras.Variable):
        return f"the variable {given.path!r}; write {_AN_OPTIMIZER}"
    for of_framework in (_of_torch, _of_tensorflow, _of_optax):
        if words := of_framework(type(given)):
            return words
    name = type(given).__name__
    if _keras_class(name) or name.endswith("Optimizer"):
        name = class_path(given)
    return f"{_short(given)} of type {name}; write {_AN_OPTIMIZER}"


def _of_a_dictionary(given: Mapping[Any, Any]) -> str:
    if "class_name" in given:
        return (
            f"a config of {given['class_name']!r}; write keras.optimizers.deserialize(config), and "
            "if tf.keras wrote it, run `keras-mp migrate` on it first"
        )
    return f"a dictionary with the keys {_short(sorted(map(str, given)))}; write {_AN_OPTIMIZER}"


def _of_a_class(given: type) -> str:
    if issubclass(given, keras.optimizers.Optimizer):
        return f"the class {given.__name__}; write {given.__name__}()"
    words = next(filter(None, (of(given) for of in (_of_torch, _of_tensorflow, _of_optax))), None)
    if words:
        return f"the class {given.__name__}, not even an object; it is {words}"
    return f"the class {given.__name__}; write {_AN_OPTIMIZER}"


def _of_torch(cls: type) -> str | None:
    if not _is_from(cls, "torch"):
        return None
    bases = {base.__name__ for base in cls.__mro__}
    if "GradScaler" in bases:
        return (
            "a torch GradScaler, which scales losses of PyTorch loops itself; leave it out, and "
            f"write {_AN_OPTIMIZER}"
        )
    if "lr_scheduler" in cls.__module__:
        return (
            f"a torch learning-rate scheduler, {cls.__name__}; give one of "
            "keras.optimizers.schedules to an optimizer"
        )
    if "Module" in bases:
        return f"a torch.nn.Module, {cls.__name__}; write {_AN_OPTIMIZER}"
    if "Tensor" in bases:
        return f"a torch tensor; write {_AN_OPTIMIZER}"
    return (
        f"a torch.optim optimizer, {cls.__name__}; {_same_in_keras(cls)}, or torch.amp.GradScaler "
        "with it"
    )


def _of_tensorflow(cls: type) -> str | None:
    if not _is_from(cls, "tf_keras", "tensorflow"):
        return None
    home = "tf_keras" if _is_from(cls, "tf_keras") else "TensorFlow"
    bases = {base.__name__ for base in cls.__mro__}
    if "LearningRateSchedule" in bases:
        return (
            f"a {home} learning-rate schedule, {cls.__name__}; give one of "
            "keras.optimizers.schedules to an optimizer"
        )
    if {"Layer", "Module"} & bases and "Optimizer" not in bases:
        return f"a {home} model or layer, {cls.__name__}; write {_AN_OPTIMIZER}"
    if {"Tensor", "Variable"} & bases:
        return f"a TensorFlow tensor or variable; write {_AN_OPTIMIZER}"
    if "LossScaleOptimizer" in cls.__name__:
        return (
            f"a {home} optimizer that scales losses itself, {cls.__name__}; wrap a Keras 3 "
            "optimizer in its place"
        )
    if cls.__module__.startswith("tensorflow.python.training"):
        return f"a TensorFlow optimizer, tf.compat.v1.train.{cls.__name__}; {_same_in_keras(cls)}"
    return f"a {home} optimizer, {cls.__name__}; {_same_in_keras(cls)}"


def _of_optax(cls: type) -> str | None:
    if not _is_from(cls, "optax"):
        return None
    return (
        "an optax transformation; use the class of the same name in keras.optimizers, such as "
        "keras.optimizers.Adam for optax.adam"
    )


def _same_in_keras(cls: type) -> str:
    known = [_TODAY.get(base.__name__, base.__name__) for base in cls.__mro__]
    today = next((found for name in known if name and (found := _keras_class(name))), None)
    if today is None:
        return "keras.optimizers has no class of this name; use another of its classes"
    return f"use keras.optimizers.{today}, whose defaults may differ"


def _keras_class(name: str) -> str | None:
    classes = {
        each.lower(): each
        for each in dir(keras.optimizers)
        if _is_keras_class(getattr(keras.optimizers, each))
        and each not in ("Optimizer", "LossScaleOptimizer")
    }
    return classes.get(name.lower())


def _is_keras_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, keras.optimizers.Optimizer)


def _is_keras(value: Any) -> bool:
    return isinstance(value, keras.optimizers.Optimizer)


def _is_from(cls: type, *frameworks: str) -> bool:
    return any(base.__module__.split(".")[0] in frameworks for base in cls.__mro__)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
