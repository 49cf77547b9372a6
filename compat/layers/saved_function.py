"""A function of a SavedModel as a layer: names of operations, constants, and weights."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mp.compat.layers.operation import _Unmasked
from keras_mp.compat.saved_graphs import programs, structures
from keras_mp.compat.saved_graphs.programs import Program

MOST_BYTES = 1 << 28  # of all constants

Json = Mapping[str, Any]


class _Kept:
    """Programs and constants, which Keras would otherwise track one by one."""

    def __init__(self, said: Sequence[Json], constants: Sequence[Any]) -> None:
        self.said, self.constants = said, constants
        self.arrays = _arrays(constants)
        found = [programs.from_json(one, self.arrays) for one in said]
        self.programs = {one.name: one for one in found}
        for one in found:
            for name in one.calls():
                if name not in self.programs:
                    raise ValueError(f"{one.name} calls {name!r}, which is not among the programs")

    def program(self, name: str) -> Program:
        return self.programs[name]


class _Function:
    """How a program is called: with which tensors and variables, and what it returns."""

    def __init__(self, said: Json, kept: _Kept, variables: Sequence[Json]) -> None:
        try:
            self.name = str(said["function"])
            self.inputs = structures.from_json(said["inputs"])
            self.results = structures.from_json(said["results"])
            self.captured = [_captured(one, kept, variables) for one in said["captured"]]
            program = kept.programs[self.name]
        except (KeyError, TypeError) as error:
            raise ValueError(f"a function of a SavedModel lacks {error}") from None
        takes = len(structures.specs(self.inputs)) + len(self.captured)
        if takes != len(program.arguments):
            raise ValueError(f"{self.name} takes {len(program.arguments)} arguments, not {takes}")


@keras.saving.register_keras_serializable("keras_mp")
class SavedFunction(_Unmasked):
    """Computes what a function of a SavedModel does, with results and dtypes as of TensorFlow.

    `keras_mp.compat.load_model(..., from_graph=True)` makes it. It runs operations of
    `keras_mp.compat.operations` that its config names, and no code. In training it calls the
    training function where the SavedModel has one, and assigns what that assigns, such as moving
    statistics.

    Args:
        programs: The functions, as `keras_mp.compat.saved_graphs.programs` has them in JSON.
        constants: [dtype, shape, base64 of the bytes] of each constant.
        variables: {"name", "shape", "dtype", "trainable"} of each weight.
        predicting: {"function", "captured", "inputs", "results"}: what is called.
        training: The same of what is called in training; None for `predicting`.
        seed: Of random numbers, where there are any; None for others in each process.
        **options: Those of `keras.layers.Layer`.

    Raises:
        ValueError: The programs are none, or do not fit together.

    >>> abs_x = {"name": "a", "op": "Abs", "inputs": [[-1, 0]], "attributes": {}}
    >>> program = {"name": "f", "arguments": ["float32"], "steps": [abs_x], "results": [[0, 0]]}
    >>> spec = {"spec": ["x", [None, 2], "float32"]}
    >>> called = {"function": "f", "captured": [], "inputs": spec, "results": spec}
    >>> layer = SavedFunction([program], [], [], called)
    >>> ops.convert_to_numpy(layer(ops.array([[-1.0, 2.0]]))).tolist()
    [[1.0, 2.0]]
    """

    def __init__(
        self,
        programs: Sequence[Json],
        constants: Sequence[Any],
        variables: Sequence[Json],
        predicting: Json,
        training: Json | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._kept = _Kept(programs, constants)
        self._said = _Untracked((variables, predicting, training))
        self._predicting = _Function(predicting, self._kept, variables)
        self._training = None if training is None else _Function(training, self._kept, variables)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        names = _distinct([str(one["name"]).replace("/", "_") for one in variables])
        self.held = [
            self.add_weight(
                name=name,
                shape=_shape(one["shape"]),
                dtype=str(one["dtype"]),
                initializer="zeros",
                trainable=bool(one["trainable"]),
            )
            for name, one in zip(names, variables, strict=True)
        ]

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        # Here, as they import keras, which may be what imports this module.
        from keras_mp.compat.operations.computing.evaluating import as_result
        from keras_mp.compat.operations.computing.values import as_tensor
        from keras_mp.compat.saved_graphs.running import Run

        function = self._training if training and self._training else self._predicting
        specs = structures.specs(function.inputs)
        given = keras.tree.flatten(inputs)
        if len(given) != len(specs):
            raise ValueError(f"{self.name} takes {len(specs)} tensors, and got {len(given)}")
        tensors = [as_tensor(x, spec.dtype) for x, spec in zip(given, specs, strict=True)]
        values = {i: ops.convert_to_tensor(variable) for i, variable in enumerate(self.held)}
        run = Run(self._kept, values, self.seed_generator)
        found = [as_result(one) for one in run.call(function.name, [*tensors, *function.captured])]
        for number, value in run.updates.items():
            self.held[number].assign(value)
        return structures.packed(function.results, iter(found))

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        specs = structures.specs(self._predicting.results)
        if any(spec.shape is None for spec in specs):
            return keras.Operation.compute_output_spec(self, inputs, training=training)
        tensors = (keras.KerasTensor(spec.shape, spec.dtype) for spec in specs)
        return structures.packed(self._predicting.results, tensors)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        variables, predicting, training = self._said.value
        config |= {"programs": self._kept.said, "constants": self._kept.constants}
        config |= {"variables": variables, "predicting": predicting, "training": training}
        if self.seed is not None:
            config["seed"] = self.seed
        return config


def _distinct(names: Sequence[str]) -> list[str]:
    """Returns names without repetitions: Keras on PyTorch keeps one gradient for each.

    >>> _distinct(["a", "b", "a", "a_1"])
    ['a', 'b', 'a_1', 'a_1_1']
    """
    found: list[str] = []
    for name in names:
        number, other = 0, name
        while other in found:
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found


class _Untracked:
    def __init__(self, value: Any) -> None:
        self.value = value


def constant_of(array: Any) -> list[Any]:
    """Returns a constant as JSON: dtype, shape, and the bytes, little-endian, in base64."""
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    return [str(array.dtype), list(array.shape), base64.b64encode(data.tobytes()).decode()]


def _arrays(constants: Sequence[Any]) -> list[Any]:
    found, total = [], 0
    for one in constants:
        match one:
            case [str(dtype), [*sizes], str(text)]:
                shape = _shape(sizes)
                data = base64.b64decode(text, validate=True)
            case _:
                raise ValueError("a constant has a dtype, a shape and bytes")
        total += len(data)
        if total > MOST_BYTES:
            raise ValueError(f"constants of more than {MOST_BYTES} bytes")
        kind = _dtype(dtype)
        if len(data) != math.prod(shape) * kind.itemsize:
            raise ValueError(f"a constant of {len(data)} bytes, for {dtype}{list(shape)}")
        found.append(np.frombuffer(data, kind).reshape(shape))
    return found


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # of Keras' own requirements; adds the dtype to NumPy

        return np.dtype(ml_dtypes.bfloat16)
    try:
        kind = np.dtype(name)
    except TypeError:
        raise ValueError(f"{name!r} is no dtype") from None
    if kind.kind not in "fiub":
        raise ValueError(f"a constant of the dtype {name}")
    return kind.newbyteorder("<")


def _shape(sizes: Any) -> tuple[int, ...]:
    is_shape = isinstance(sizes, Sequence) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in sizes
    )
    if not is_shape:
        raise ValueError(f"{sizes!r} is no shape")
    return tuple(sizes)


def _captured(said: Any, kept: _Kept, variables: Sequence[Json]) -> Any:
    from keras_mp.compat.saved_graphs.values import Handle, Unknown

    match said:
        case ["variable", int(number)] if 0 <= number < len(variables):
            one = variables[number]
            return Handle(number, str(one["dtype"]), str(one["name"]))
        case ["constant", int(number)] if 0 <= number < len(kept.arrays):
            return kept.arrays[number]
        case ["other", str(what)]:
            return Unknown(what)
    raise ValueError(f"{said!r} is neither a variable nor a constant")
