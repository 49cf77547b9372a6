"""What stands for a 16-bit weight, or a slot of it, while the inner optimizer takes its step."""

from typing import Any, Protocol

import keras
from keras import ops

from keras_mp import backends
from keras_mp.array_types import Tensor, Variable
from keras_mp.sixteen_bit.rounding import Draw, is_rounded, join, split, stochastic


class Transient(keras.Variable):
    """A float32 variable with a value during a step only, and no memory besides.

    Each replica of `tf.distribute` is a thread, with a value of its own.
    """

    def __init__(self, like: Variable, name: str, path: str) -> None:
        self._tensors: dict[int, Any] = {}
        self._backend = backends.current()
        super().__init__(
            "zeros", shape=like.shape, dtype="float32", trainable=like.trainable, name=name
        )
        self._path = path
        self._layout = getattr(like, "_layout", None)  # which slots take from it, on JAX
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
        """Gives it a value, which PyTorch's optimizers change in place."""
        self._tensors[self._backend.thread()] = tensor

    def release(self) -> Any:
        """Returns its value, and forgets it."""
        tensor = self.value
        del self._tensors[self._backend.thread()]
        return tensor

    def assign(self, value: Tensor) -> Any:
        tensor = ops.convert_to_tensor(value, "float32")
        self.bind(tensor)
        return tensor


class Storage(Protocol):
    """What stands for a 16-bit variable.

    `variable`: it. `target`: float32, what the inner optimizer updates. `own`: what is kept between
    steps besides the variable itself.
    """

    variable: Variable
    target: Variable

    @property
    def own(self) -> list[Variable]:
        """Variables that are the optimizer's own."""

    def load(self) -> None:
        """Gives the target its value, before a step."""

    def store(self, draw: Draw) -> None:
        """Gives the variable its value, after a step."""

    def wide(self) -> Tensor:
        """Returns the exact value: float32."""

    def set(self, wide: Tensor) -> None:
        """Sets the exact value, float32, as far as it can be kept; rounded to nearest."""


class Master:
    """A float32 copy of a weight; the weight is the copy, rounded to nearest.

    A weight that was assigned to since the last step (`load_weights`, say) is the new master.

    Args:
        variable: The weight.
        target: Its copy.
    """

    def __init__(self, variable: Variable, target: Variable) -> None:
        self.variable, self.target = variable, target
        self._backend = backends.current()
        self._version: Any = None

    @property
    def own(self) -> list[Variable]:
        return [self.target]

    def load(self) -> None:
        if self._version is not None and self._backend.version(self.variable) == self._version:
            return
        self.target.assign(self.wide())

    def store(self, draw: Draw) -> None:
        self.variable.assign(ops.cast(self.target.value, self.variable.dtype))
        self._version = self._backend.version(self.variable)

    def wide(self) -> Tensor:
        weight, master = self.variable.value, self.target.value
        return ops.where(is_rounded(weight, master), master, ops.cast(weight, "float32"))

    def set(self, wide: Tensor) -> None:
        self.target.assign(wide)
        self.variable.assign(ops.cast(wide, self.variable.dtype))


class Split:
    """The lower 16 bits of a master whose upper half is the weight itself, in bfloat16.

    Args:
        variable: The weight.
        rest: int16, see `rounding.split`.
    """

    def __init__(self, variable: Variable, rest: Variable) -> None:
        self.variable, self.rest = variable, rest
        self.target = Transient(variable, variable.name, variable.path)

    @property
    def own(self) -> list[Variable]:
        return [self.rest]

    def load(self) -> None:
        self.target.bind(self.wide())

    def store(self, draw: Draw) -> None:
        self.set(self.target.release())

    def wide(self) -> Tensor:
        return join(self.variable.value, self.rest.value)

    def set(self, wide: Tensor) -> None:
        upper, rest = split(wide)
        self.variable.assign(upper)
        self.rest.assign(rest)


class Rounded:
    """A weight or a slot that is all there is: rounded at random after each step.

    Args:
        variable: It, in 16 bits.
        target: Stands for it.
    """

    def __init__(self, variable: Variable, target: Transient) -> None:
        self.variable, self.target = variable, target

    @property
    def own(self) -> list[Variable]:
        return []

    def load(self) -> None:
        self.target.bind(self.wide())

    def store(self, draw: Draw) -> None:
        dtype = keras.backend.standardize_dtype(self.variable.dtype)
        self.variable.assign(stochastic(self.target.release(), dtype, draw))

    def wide(self) -> Tensor:
        return ops.cast(self.variable.value, "float32")

    def set(self, wide: Tensor) -> None:
        self.variable.assign(ops.cast(wide, self.variable.dtype))
