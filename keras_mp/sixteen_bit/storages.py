"""The storage of a 16-bit weight or slot, with its float32 target for the inner optimizer.

Slots may be bfloat16, rounded at random, for rules known to tolerate it.
"""

import contextlib
from collections.abc import Iterator, Sequence, Set
from typing import Any, Protocol

import keras
from keras import ops
from keras.backend import standardize_dtype

from keras_mp import backends
from keras_mp.array_types import Optimizer, Tensor, Variable
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.optimizers import class_path, with_method
from keras_mp.sixteen_bit.rounding import Draw, join, newest, split, stochastic


class Transient(keras.Variable):
    """A float32 variable that has a value, and takes memory, only during a step.

    Each replica of `tf.distribute` is a thread, with its own value.
    """

    def __init__(self, like: Variable, name: str, path: str) -> None:
        self._tensors: dict[int, Any] = {}
        self._backend = backends.current()
        super().__init__(
            "zeros", shape=like.shape, dtype="float32", trainable=like.trainable, name=name
        )
        self._path = path
        self._layout = keras_hooks.layout_of(like)  # which slots take from it, on JAX
        self.constraint = getattr(like, "constraint", None)

    def _initialize_with_initializer(self, initializer: Any) -> None:
        self._value = None

    @property
    def value(self) -> Any:
        tensor = self._tensors.get(self._backend.thread())
        if tensor is None:
            raise RuntimeError(f"{self._path} has a value only during a step of its optimizer.")
        return tensor

    def bind(self, tensor: Tensor) -> None:
        """Sets its value, which PyTorch's optimizers change in place."""
        self._tensors[self._backend.thread()] = tensor

    def release(self) -> Any:
        """Returns its value and drops it."""
        tensor = self.value
        del self._tensors[self._backend.thread()]
        return tensor

    def assign(self, value: Tensor) -> Any:
        tensor = ops.convert_to_tensor(value, "float32")
        self.bind(tensor)
        return tensor


class Storage(Protocol):
    """The storage of a 16-bit variable.

    `variable`: the 16-bit one. `target`: float32, updated by the inner optimizer. `start`: index of
    its first number, among all that are rounded at random.
    """

    variable: Variable
    target: Variable
    start: int

    @property
    def own(self) -> list[Variable]:
        """Variables that are kept between steps, besides the variable itself."""

    @staticmethod
    def load(storages: Sequence[Any]) -> None:
        """Sets the targets of several storages of this class, before a step."""

    @staticmethod
    def store(storages: Sequence[Any], draw: Draw) -> None:
        """Sets the variables, after a step."""

    def wide(self) -> Tensor:
        """Returns the exact value: float32."""

    def set(self, wide: Tensor) -> None:
        """Sets the exact value, float32, as far as it can be stored; rounded to nearest."""


class Master:
    """A float32 copy of a weight; the weight is the copy, rounded to nearest.

    A value assigned to the weight since the last step (`load_weights`, say) is the new master.

    Args:
        variable: The weight.
        target: Its copy.
    """

    start = 0

    def __init__(self, variable: Variable, target: Variable) -> None:
        self.variable, self.target = variable, target
        self._backend = backends.current()
        self._version: Any = None

    @property
    def own(self) -> list[Variable]:
        return [self.target]

    @property
    def _is_known(self) -> bool:
        version = self._version
        return version is not None and self._backend.version(self.variable) == version

    @staticmethod
    def load(storages: Sequence["Master"]) -> None:
        others = [each for each in storages if not each._is_known]
        masters = [each.target for each in others]
        values = newest([each.variable.value for each in others], [m.value for m in masters])
        backends.current().assign_each(masters, values)

    @staticmethod
    def store(storages: Sequence["Master"], draw: Draw) -> None:
        backend = backends.current()
        variables = [each.variable for each in storages]
        backend.assign_each(variables, [each.target.value for each in storages])
        for each in storages:
            each._version = backend.version(each.variable)

    def wide(self) -> Tensor:
        return newest([self.variable.value], [self.target.value])[0]

    def set(self, wide: Tensor) -> None:
        self.target.assign(wide)
        self.variable.assign(ops.cast(wide, self.variable.dtype))


class Split:
    """The lower 16 bits of a master whose upper half is the weight itself, in bfloat16.

    Args:
        variable: The weight.
        rest: int16, see `rounding.split`.
    """

    start = 0

    def __init__(self, variable: Variable, rest: Variable) -> None:
        self.variable, self.rest = variable, rest
        self.target = Transient(variable, variable.name, variable.path)

    @property
    def own(self) -> list[Variable]:
        return [self.rest]

    @staticmethod
    def load(storages: Sequence["Split"]) -> None:
        uppers, rests = zip(*((s.variable.value, s.rest.value) for s in storages), strict=True)
        for each, wide in zip(storages, join(uppers, rests), strict=True):
            each.target.bind(wide)

    @staticmethod
    def store(storages: Sequence["Split"], draw: Draw) -> None:
        uppers, rests = zip(*split([each.target.release() for each in storages]), strict=True)
        kept = [*(each.variable for each in storages), *(each.rest for each in storages)]
        backends.current().assign_each(kept, [*uppers, *rests])

    def wide(self) -> Tensor:
        return join([self.variable.value], [self.rest.value])[0]

    def set(self, wide: Tensor) -> None:
        upper, rest = split([wide])[0]
        self.variable.assign(upper)
        self.rest.assign(rest)


class Rounded:
    """A weight or slot without a copy: rounded at random after each step.

    Args:
        variable: The weight or slot, in 16 bits.
        target: Its float32 target.
    """

    start = 0

    def __init__(self, variable: Variable, target: Transient) -> None:
        self.variable, self.target = variable, target

    @property
    def own(self) -> list[Variable]:
        return []

    @staticmethod
    def load(storages: Sequence["Rounded"]) -> None:
        for each in storages:
            each.target.bind(each.wide())

    @staticmethod
    def store(storages: Sequence["Rounded"], draw: Draw) -> None:
        for dtype in ("bfloat16", "float16"):
            chosen = [s for s in storages if standardize_dtype(s.variable.dtype) == dtype]
            wide = [each.target.release() for each in chosen]
            rounded = stochastic(wide, dtype, draw, [each.start for each in chosen])
            backends.current().assign_each([each.variable for each in chosen], rounded)

    def wide(self) -> Tensor:
        return ops.cast(self.variable.value, "float32")

    def set(self, wide: Tensor) -> None:
        self.variable.assign(ops.cast(wide, self.variable.dtype))


# Rules whose slots are means, in which rounding errors average out.
KNOWN = ("Adam", "AdamW", "Lion", "SGD", "RMSprop", "Adafactor")
DTYPES = ("float32", "bfloat16")
# Keras' variables besides the rule's own slots: sums, which are exact, and final weights.
_WIDE = ("gradient_accumulator", "average")


def check_slots(dtype: str, optimizer: Optimizer) -> None:
    """Raises ValueError unless `optimizer` can have slots of `dtype`.

    >>> import keras
    >>> check_slots("bfloat16", keras.optimizers.Adam())
    >>> check_slots("bfloat16", keras.optimizers.Ftrl())
    Traceback (most recent call last):
    ValueError: slots='bfloat16' supports Adam, AdamW, Lion, SGD, RMSprop, Adafactor, but this is \
keras.optimizers.Ftrl: leave slots out.
    """
    if dtype not in DTYPES:
        raise ValueError(f"slots must be 'float32' or 'bfloat16', but got {dtype!r}.")
    if dtype == "float32":
        return
    parts = getattr(optimizer, "optimizers", None) or [optimizer]
    for part in parts:
        cls = type(part)
        if cls.__name__ not in KNOWN or not cls.__module__.startswith("keras.src."):
            raise ValueError(
                f"slots={dtype!r} supports {', '.join(KNOWN)}, but this is {class_path(part)}: "
                "leave slots out."
            )


@contextlib.contextmanager
def sixteen_bit_slots(
    optimizer: Optimizer, targets: Set[int], dtype: str
) -> Iterator[list[tuple[Variable, Rounded]]]:
    """A scope in which `optimizer` creates its slots of some weights in `dtype`.

    Args:
        optimizer: Built in the scope.
        targets: Ids of the weights.
        dtype: "bfloat16"; "float32" changes nothing.

    Returns:
        A list that holds (weight, slot) pairs after the scope.
    """
    pairs: list[tuple[Variable, Rounded]] = []
    if dtype == "float32":
        yield pairs
        return
    make = optimizer.add_variable_from_reference

    def add(
        reference_variable: Variable, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        if id(reference_variable) not in targets or name in _WIDE:
            return make(reference_variable, name=name, initializer=initializer)
        stored = optimizer.add_variable(
            shape=reference_variable.shape,
            initializer=initializer,
            dtype=dtype,
            name=f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
            layout=keras_hooks.layout_of(reference_variable),
        )
        target = Transient(reference_variable, stored.name, stored.path)
        target.constraint = None
        pairs.append((reference_variable, Rounded(stored, target)))
        return target

    with with_method(optimizer, "add_variable_from_reference", add):
        yield pairs
