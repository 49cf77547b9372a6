"""Reads Keras' optimizers and variables beyond their public API, on every backend."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_mp.array_types import Optimizer, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common import fused_rules

# Options that need divided gradients before the rule. Averages come after it.
_BEFORE_THE_RULE = [option for option in fused_rules.OPTIONS if option != "use_ema"]
_NOTED = "_keras_mp_those_inside"


def flatten_optimizers(optimizer: Optimizer) -> list[Any]:
    """Returns `optimizer` and the optimizers inside: a MultiOptimizer's, or the one that it wraps.

    An optimizer that keeps masters around another is replaced by the other.

    >>> import keras
    >>> len(flatten_optimizers(keras.optimizers.SGD()))
    1
    """
    if hasattr(optimizer, "_narrow_weights"):
        return flatten_optimizers(optimizer.inner_optimizer)
    noted = optimizer.__dict__.get(_NOTED)
    return list(noted) if noted is not None else _with_inner_optimizers(optimizer)


def keeper_of_narrow_weights(optimizer: Optimizer) -> Any:
    """Returns the optimizer that keeps 16-bit weights: this one, or one inside of it; or None."""
    while optimizer is not None and not hasattr(optimizer, "_narrow_weights"):
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return optimizer


def note_those_inside(optimizer: Optimizer) -> None:
    """Makes `flatten_optimizers` search a built optimizer once instead of at each step."""
    object.__setattr__(optimizer, _NOTED, tuple(_with_inner_optimizers(optimizer)))


def _with_inner_optimizers(optimizer: Optimizer) -> list[Any]:
    all_optimizers = [optimizer]
    for outer in all_optimizers:  # which grows meanwhile
        for held in (getattr(outer, "optimizers", ()), *vars(outer).values()):
            for each in held if isinstance(held, (list, tuple)) else (held,):
                is_one = isinstance(each, keras.optimizers.Optimizer)
                if is_one and not any(each is known for known in all_optimizers):
                    all_optimizers.append(each)
    return all_optimizers


def state_of(optimizer: Optimizer) -> list[Any]:
    """Returns the variables of `optimizer`, then those that only optimizers inside it have.

    A wrapper need not list the variables of the optimizer that it wraps.

    >>> import keras
    >>> len(state_of(keras.optimizers.SGD()))
    2
    """
    if hasattr(optimizer, "_narrow_weights"):
        return list(optimizer.variables)
    by_id = {id(variable): variable for variable in optimizer.variables}
    for part in flatten_optimizers(optimizer):
        for variable in part.variables:
            by_id.setdefault(id(variable), variable)
    return list(by_id.values())


def built_for(optimizer: Optimizer) -> list[Any]:
    """Returns the variables that an optimizer was built for.

    An optimizer that only forwards `build` lists none itself: then those of the other.

    >>> import keras
    >>> built_for(keras.optimizers.SGD())
    []
    """
    own = list(keras_hooks.trained_variables(optimizer))
    if own or hasattr(optimizer, "_narrow_weights"):
        return own
    inside = [
        v for part in flatten_optimizers(optimizer) for v in keras_hooks.trained_variables(part)
    ]
    return list({id(variable): variable for variable in inside}.values())


def updated(optimizer: Optimizer, variables: Sequence[Variable]) -> list[Any]:
    """Returns what a step of `optimizer` updates for each variable: its master, or itself.

    >>> import keras
    >>> weight = keras.Variable(1.0)
    >>> updated(keras.optimizers.SGD(), [weight])[0] is weight
    True
    """
    masters: dict[int, Any] = {}
    for part in (optimizer, *getattr(optimizer, "optimizers", ())):
        if hasattr(part, "_narrow_weights"):
            known = keras_hooks.trained_variables(part)
            masters.update(zip(map(id, known), part._narrow_weights.targets(known), strict=True))
    return [masters.get(id(variable), variable) for variable in variables]


def averages(optimizer: Optimizer) -> bool:
    """Returns whether `optimizer` keeps averages of weights.

    >>> import keras
    >>> averages(keras.optimizers.SGD(use_ema=True))
    True
    """
    return any(part.use_ema for part in flatten_optimizers(optimizer))


def accumulates(optimizer: Optimizer) -> bool:
    """Returns whether `optimizer` accumulates gradients over several steps.

    >>> import keras
    >>> accumulates(keras.optimizers.SGD(gradient_accumulation_steps=2))
    True
    """
    return any(part.gradient_accumulation_steps for part in flatten_optimizers(optimizer))


def forwards_gradients(optimizer: Optimizer) -> bool:
    """Returns whether a step is Keras' own, and forwards gradients unchanged to the rule.

    Then they can be divided by the loss scale there, a few at a time.

    >>> import keras
    >>> adam = keras.optimizers.Adam
    >>> [forwards_gradients(each) for each in (adam(), adam(clipnorm=1.0))]
    [True, False]
    """
    cls, own = type(optimizer), vars(optimizer)
    return (
        cls.__module__.startswith("keras.src.")
        and cls.apply is keras.optimizers.Optimizer.apply
        and own.keys().isdisjoint(fused_rules.METHODS)
        and not any(map(own.get, _BEFORE_THE_RULE))
    )


@contextlib.contextmanager
def with_method(owner: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """A scope in which `method` is called instead of the owner's own method of that name.

    >>> import keras
    >>> sgd = keras.optimizers.SGD()
    >>> with with_method(sgd, "update_step", print):
    ...     sgd.update_step("gradient", "variable", 0.5)
    gradient variable 0.5
    """
    object.__setattr__(owner, name, method)
    try:
        yield
    finally:
        object.__delattr__(owner, name)


def updated_variables(optimizer: Optimizer, variables: Sequence[Variable]) -> list[Any]:
    """Returns the variables that a step of `optimizer` with `variables` may write, each once."""
    touched = (*variables, *built_for(optimizer), *state_of(optimizer))
    return list({id(variable): variable for variable in touched}.values())


def overwrites_with_gradient(variable: Variable) -> bool:
    """Returns whether `variable` takes its gradient as its new value, unscaled (float8's scales).

    >>> import keras
    >>> overwrites_with_gradient(keras.Variable(1.0))
    False
    """
    return bool(getattr(variable, "overwrite_with_gradient", False))


def class_path(given: Any) -> str:
    """Returns the public name of an object's class, with its module.

    >>> import keras
    >>> class_path(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())), class_path(None)
    ('keras.optimizers.LossScaleOptimizer', 'NoneType')
    """
    cls = type(given)
    # On PyTorch an optimizer's class is a subclass of the public one.
    public = getattr(keras.optimizers, cls.__name__, None)
    if cls.__module__.startswith("keras.src.") and isinstance(given, public or ()):
        return f"keras.optimizers.{cls.__name__}"
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def path(variable: Variable) -> str:
    """Returns the path of a Keras variable, or the name of another one.

    >>> import keras
    >>> path(keras.Variable(1.0, name="weight"))
    'weight'
    """
    return str(getattr(variable, "path", variable.name))
