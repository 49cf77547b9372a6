"""What Keras 2 called the slots of its optimizers, and where Keras 3 keeps them.

A slot is a variable of the optimizer for each variable of the model, of the same shape.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from keras_mp.backends import keras_hooks

Of = TypeVar("Of")

# Class -> {slot name of Keras 2: attribute of Keras 3's optimizer, a list}. Keras 2 made and saved
# them in this order, as `in_order` says. Source: python/keras/optimizer_v2 of TF 2.3,
# `_create_slots`.
SLOTS: dict[str, dict[str, str]] = {
    "SGD": {"momentum": "momentums"},
    "Adam": {"m": "_momentums", "v": "_velocities", "vhat": "_velocity_hats"},
    "AdamW": {"m": "_momentums", "v": "_velocities", "vhat": "_velocity_hats"},
    "Adamax": {"m": "_m", "v": "_u"},
    "Nadam": {"m": "_momentums", "v": "_velocities"},
    "Lion": {"m": "_momentums"},
    "Lamb": {"m": "_momentums", "v": "_velocities"},
    "RMSprop": {"rms": "_velocities", "momentum": "_momentums", "mg": "_average_gradients"},
    "Adagrad": {"accumulator": "_accumulators"},
    "Adadelta": {"accum_grad": "_accumulated_grads", "accum_var": "_accumulated_delta_vars"},
    "Ftrl": {"accumulator": "_accumulators", "linear": "_linears"},
}


def of_class(made: Any, table: Mapping[str, Of]) -> Of | None:
    """Returns what a table has of the class of an object, or of the nearest one above it.

    >>> of_class(True, {"int": 1, "object": 2}), of_class([], {"int": 1})
    (1, None)
    """
    return next((table[cls.__name__] for cls in type(made).__mro__ if cls.__name__ in table), None)


def of(optimizer: Any) -> dict[str, list[Any]]:
    """Returns the slots that a built Keras 3 optimizer has: name of Keras 2 -> variables.

    The variables are in the order of those that the optimizer was built for. Those of a class that
    Keras 2 did not know are called as Keras 3 calls them, without the underscore.

    >>> import keras
    >>> sgd = keras.optimizers.SGD(momentum=0.9)
    >>> sgd.build([keras.Variable([1.0, 2.0])])
    >>> {name: len(variables) for name, variables in of(sgd).items()}
    {'momentum': 1}
    """
    names = of_class(optimizer, SLOTS)
    if names is None:
        made_for = len(keras_hooks.trained_variables(optimizer))
        names = {
            attribute.lstrip("_"): attribute
            for attribute, value in vars(optimizer).items()
            if attribute not in ("_variables", "_trainable_variables")
            and isinstance(value, list)
            and len(value) == made_for
            and all(any(item is one for one in optimizer.variables) for item in value)
        }
    found = {name: getattr(optimizer, attribute, None) for name, attribute in names.items()}
    return {name: list(variables) for name, variables in found.items() if variables}


def in_order(
    optimizer: Any, names: Iterable[str], variables: Iterable[Any]
) -> list[tuple[str, Any]]:
    """Returns (slot, variable of the model) of each slot, as optimizers before TF 2.11 listed them.

    All of the first slot, then all of the second, and so on; those of Ftrl variable by variable.

    Args:
        optimizer: Of Keras 3.
        names: Its slots by their names in Keras 2, in the order of `SLOTS`.
        variables: What was trained, or anything that stands for it, in Keras 2's order.

    >>> import keras
    >>> in_order(keras.optimizers.Ftrl(), ["accumulator", "linear"], [0, 1])
    [('accumulator', 0), ('linear', 0), ('accumulator', 1), ('linear', 1)]
    """
    names, variables = list(names), list(variables)
    if of_class(optimizer, {"Ftrl": True}):
        return [(name, variable) for variable in variables for name in names]
    return [(name, variable) for name in names for variable in variables]
