"""An expression and tensors in, a result out."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from keras_mp.compat.operations.computing import (
    counting,
    crops,
    decompositions,
    elementwise,
    image_quality,
    images,
    indexing,
    known_values,
    linear_algebra,
    losses,
    networks,
    random_images,
    random_numbers,
    reductions,
    shapes,
    windows,
)
from keras_mp.compat.operations.computing.values import (
    Value,
    dtype_of,
    has_tensor,
    is_floating,
    is_tensor,
    tensor,
)
from keras_mp.compat.operations.expressions import Expression
from keras_mp.compat.operations.vocabulary import RANDOM, signatures

_ROOMS: tuple[ModuleType, ...] = (
    counting,
    decompositions,
    elementwise,
    reductions,
    shapes,
    indexing,
    linear_algebra,
    networks,
    losses,
    windows,
    images,
    crops,
    image_quality,
    random_images,
    random_numbers,
    known_values,
)
_LAZY = ("in_training", "if_else")


def function(name: str) -> Callable[..., Value]:
    """Returns what computes an operation.

    >>> function("add")(1, 2)
    3
    """
    own = {"slice": "slice_", "int": "int_", "float": "float_"}.get(name, name)
    found = next(vars(room)[own] for room in _ROOMS if own in vars(room) and _is_home(room, own))
    assert callable(found)
    return found  # type: ignore[no-any-return]


def _is_home(room: ModuleType, name: str) -> bool:
    of = getattr(vars(room)[name], "__module__", None)
    return of == room.__name__


FUNCTIONS = {name: function(name) for name in signatures() if name not in _LAZY}


def evaluate(
    expression: Expression,
    inputs: Sequence[Value],
    *,
    steps: Sequence[Value] = (),
    training: bool = False,
    seed: Any = None,
) -> Value:
    """Returns what an expression computes.

    Args:
        expression: As in `expressions`.
        inputs: The tensors that it names by numbers.
        steps: The results of earlier steps.
        training: Whether this is a training step.
        seed: A `keras.random.SeedGenerator`, where there are random numbers.

    >>> evaluate({"operation": "add", "arguments": {"x1": {"tensor": 0}, "x2": 2}}, [1])
    3
    """

    def of(value: Expression) -> Value:
        if isinstance(value, list):
            return [of(part) for part in value]
        if not isinstance(value, Mapping):
            return value
        if "tensor" in value:
            return inputs[int(str(value["tensor"]))]
        if "step" in value:
            return steps[int(str(value["step"]))]
        if "slice" in value:
            return slice(*of(value["slice"]))
        if "ellipsis" in value:
            return Ellipsis
        name, arguments = str(value["operation"]), value["arguments"]
        assert isinstance(arguments, Mapping)
        if name == "in_training":
            return of(arguments["x" if training else "alternative"])
        if name == "if_else":
            condition = of(arguments["condition"])
            if is_tensor(condition):
                raise ValueError("a condition on numbers that are known only when it computes")
            return of(arguments["then" if condition else "otherwise"])
        values = {key: of(part) for key, part in arguments.items()}
        if name in RANDOM:
            values["seed"] = seed
        return FUNCTIONS[name](**values)

    return of(expression)


def as_result(value: Value) -> Value:
    """Returns a result as tensors: what is only known becomes one, too, as a shape does."""
    if isinstance(value, list | tuple) and any(
        is_tensor(item) and (len(item.shape) or is_floating(dtype_of(item))) for item in value
    ):
        return [as_result(item) for item in value]
    if isinstance(value, list | tuple) and any(
        isinstance(i, list) and has_tensor(i) for i in value
    ):
        return [as_result(item) for item in value]
    if isinstance(value, dict):
        return {key: as_result(item) for key, item in value.items()}
    return tensor(value)
