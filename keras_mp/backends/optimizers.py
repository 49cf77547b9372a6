"""What is asked of Keras' optimizers and variables, beyond their public API, on every backend."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_mp import fused_rules
from keras_mp.array_types import Optimizer, Variable
from keras_mp.backends import keras_hooks

# What needs divided gradients before they come to the rule. An average comes after it.
_BEFORE_THE_RULE = [option for option in fused_rules.OPTIONS if option != "use_ema"]
_NOTED = "_keras_mp_those_inside"


def flatten_optimizers(optimizer: Optimizer) -> list[Any]:
    """Returns `optimizer`, and the ones that it steps with: a MultiOptimizer's, or those it wraps.

    Of one that has masters around another, that other.

    >>> import keras
    >>> len(flatten_optimizers(keras.optimizers.SGD()))
    1
    """
    if hasattr(optimizer, "_narrow_weights"):
        return flatten_optimizers(optimizer.inner_optimizer)
    noted = optimizer.__dict__.get(_NOTED)
    return list(noted) if noted is not None else _with_those_inside(optimizer)


def note_those_inside(optimizer: Optimizer) -> None:
    """Has `flatten_optimizers` search a built optimizer once, and not in each step."""
    object.__setattr__(optimizer, _NOTED, tuple(_with_those_inside(optimizer)))


def _with_those_inside(optimizer: Optimizer) -> list[Any]:
    found = [optimizer]
    for outer in found:  # which grows
        for held in (getattr(outer, "optimizers", ()), *vars(outer).values()):
            for each in held if isinstance(held, (list, tuple)) else (held,):
                is_one = isinstance(each, keras.optimizers.Optimizer)
                if is_one and not any(each is known for known in found):
                    found.append(each)
    return found


def state_of(optimizer: Optimizer) -> list[Any]:
    """Returns the variables of `optimizer`, then those that only optimizers inside of it have.

    An optimizer that wraps another need not count the other's variables among its own.

    >>> import keras
    >>> len(state_of(keras.optimizers.SGD()))
    2
    """
    if hasattr(optimizer, "_narrow_weights"):
        return list(optimizer.variables)
    found = {id(variable): variable for variable in optimizer.variables}
    for part in flatten_optimizers(optimizer):
        for variable in part.variables:
            found.setdefault(id(variable), variable)
    return list(found.values())


def built_for(optimizer: Optimizer) -> list[Any]:
    """Returns the variables that a built optimizer is for.

    One that only hands `build` on to another says none itself: then those of the other.

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
    """Returns what a step of `optimizer` updates in place of each variable: its master, or it.

    >>> import keras
    >>> weight = keras.Variable(1.0)
    >>> updated(keras.optimizers.SGD(), [weight])[0] is weight
    True
    """
    found: dict[int, Any] = {}
    for part in (optimizer, *getattr(optimizer, "optimizers", ())):
        if hasattr(part, "_narrow_weights"):
            known = keras_hooks.trained_variables(part)
            found.update(zip(map(id, known), part._narrow_weights.targets(known), strict=True))
    return [found.get(id(variable), variable) for variable in variables]


def averages(optimizer: Optimizer) -> bool:
    """Returns whether `optimizer` keeps averages of weights.

    >>> import keras
    >>> averages(keras.optimizers.SGD(use_ema=True))
    True
    """
    return any(part.use_ema for part in flatten_optimizers(optimizer))


def accumulates(optimizer: Optimizer) -> bool:
    """Returns whether `optimizer` sums gradients up over several steps.

    >>> import keras
    >>> accumulates(keras.optimizers.SGD(gradient_accumulation_steps=2))
    True
    """
    return any(part.gradient_accumulation_steps for part in flatten_optimizers(optimizer))


def hands_gradients_on(optimizer: Optimizer) -> bool:
    """Returns whether a step is Keras' own, and hands gradients to the rule as it was given them.

    Then they can be divided by the loss scale there, a few at a time.

    >>> import keras
    >>> adam = keras.optimizers.Adam
    >>> [hands_gradients_on(each) for each in (adam(), adam(clipnorm=1.0))]
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
def with_method(optimizer: Optimizer, name: str, method: Callable[..., None]) -> Iterator[None]:
    """Has `optimizer` call `method` in place of its own of that name, meanwhile.

    >>> import keras
    >>> sgd = keras.optimizers.SGD()
    >>> with with_method(sgd, "update_step", print):
    ...     sgd.update_step("gradient", "variable", 0.5)
    gradient variable 0.5
    """
    object.__setattr__(optimizer, name, method)
    try:
        yield
    finally:
        object.__delattr__(optimizer, name)


def updated_variables(optimizer: Optimizer, variables: Sequence[Variable]) -> list[Any]:
    """Returns the variables that a step of `optimizer` with `variables` may write, each once."""
    touched = (*variables, *built_for(optimizer), *state_of(optimizer))
    return list({id(variable): variable for variable in touched}.values())


def overwrites_with_gradient(variable: Variable) -> bool:
    """Returns whether `variable` takes its gradient as new value, never scaled (float8's scales).

    >>> import keras
    >>> overwrites_with_gradient(keras.Variable(1.0))
    False
    """
    return bool(getattr(variable, "overwrite_with_gradient", False))


def class_path(given: Any) -> str:
    """Returns the public name of the class of an optimizer, or of anything, with its module.

    >>> import keras
    >>> class_path(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())), class_path(None)
    ('keras.optimizers.LossScaleOptimizer', 'NoneType')
    """
    cls = type(given)
    # On PyTorch the class of an optimizer is one below the public one.
    public = getattr(keras.optimizers, cls.__name__, None)
    if cls.__module__.startswith("keras.src.") and isinstance(given, public or ()):
        return f"keras.optimizers.{cls.__name__}"
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def path(variable: Variable) -> str:
    """Returns the path of a Keras variable, the name of any other.

    >>> import keras
    >>> path(keras.Variable(1.0, name="weight"))
    'weight'
    """
    return str(getattr(variable, "path", variable.name))
