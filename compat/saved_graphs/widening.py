"""Functions with all in float32 that they compute in 16 bits, to compare more closely."""

import dataclasses
import math
from typing import Any

import numpy as np

from keras_mp.compat.saved_graphs.programs import Program, Programs, Step

NARROW = ("float16", "bfloat16")
_EXACT_BITS = 5  # of a constant that nobody rounded, such as 0.5, 2 or 0.375


class InFloat32:
    """Programs by their names, in float32 where they are in 16 bits."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._done: dict[str, Program] = {}

    def program(self, name: str) -> Program:
        """Returns the program of a function."""
        if name not in self._done:
            self._done[name] = _wide_program(self._programs.program(name))
        return self._done[name]


def wide(dtype: str) -> str:
    """Returns float32 for dtypes of 16 bits, and others as they are.

    >>> wide("bfloat16"), wide("int32")
    ('float32', 'int32')
    """
    return "float32" if dtype in NARROW else dtype


def _wide_program(program: Program) -> Program:
    steps = tuple(dataclasses.replace(one, attributes=_wide_step(one)) for one in program.steps)
    return dataclasses.replace(program, arguments=tuple(map(wide, program.arguments)), steps=steps)


def _wide_step(step: Step) -> dict[str, Any]:
    return {key: _wide_value(value) for key, value in step.attributes.items()}


def _wide_value(value: Any) -> Any:
    match value:
        case str():
            return wide(value)
        case list():
            return [_wide_value(one) for one in value]
        case np.ndarray() if str(value.dtype) in NARROW:
            return value.astype("float32")
    return value


def has_rounded_constants(program: Program) -> bool:
    """Returns whether a program has constants of 16 bits that 0.1 and the like were rounded to.

    >>> def of(value):
    ...     step = Step("c", "Const", (), {"value": np.array(value, "float16")})
    ...     return has_rounded_constants(Program("f", (), (step,), ()))
    >>> of(0.1), of([0.5, -3.0])
    (True, False)
    """
    for step in program.steps:
        value = step.attributes.get("value")
        if isinstance(value, np.ndarray) and str(value.dtype) in NARROW:
            numbers = value.astype("float64").ravel()
            if any(_is_rounded(one) for one in numbers[np.isfinite(numbers)]):
                return True
    return False


def _is_rounded(number: float) -> bool:
    return not (math.frexp(number)[0] * 2.0**_EXACT_BITS).is_integer()
