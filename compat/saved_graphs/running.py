"""Evaluates functions of a SavedModel with keras.ops: values in, results and changed state out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_mp.compat.errors import NotComputed
from keras_mp.compat.operations import expressions, tables
from keras_mp.compat.operations.computing.evaluating import FUNCTIONS, evaluate
from keras_mp.compat.operations.computing.values import Value, has_tensor, is_tensor
from keras_mp.compat.operations.tables import Line
from keras_mp.compat.operations.vocabulary import RANDOM, SEVERAL
from keras_mp.compat.saved_graphs import control_flow, lists, plain, recurrent, states, support
from keras_mp.compat.saved_graphs.programs import ARGUMENT, Program, Programs, Step
from keras_mp.compat.saved_graphs.values import Handle, TensorList, Unknown

MOST_LEVELS = 60  # functions that call functions
MOST_STEPS = 1 << 21  # of one evaluation, each turn of a loop included
_MOST_LITERAL = 64  # numbers of a known array that stands in an expression

# Is called with the layers around a program, the program, and the results of its steps.
Watch = Callable[[tuple[str, ...], Program, list[list[Any]]], None]
_Kernel = Callable[["Run", Step, list[Any]], list[Any]]
_KERNELS: dict[str, _Kernel] = {
    **control_flow.KERNELS,
    **states.KERNELS,
    **lists.KERNELS,
    **plain.KERNELS,
    **recurrent.KERNELS,
}


class NotEvaluated(NotComputed):
    """A function of a SavedModel cannot be evaluated; the message names function, node and op."""


class Run:
    """One evaluation: what it reads, what it changes, and how much it may still do.

    Args:
        programs: Whatever has the functions.
        variables: Number of a variable -> its value, a tensor.
        seed: A `keras.random.SeedGenerator` for random ops.
        watch: Is shown each program that ran.

    Attributes:
        updates: Number of a variable -> its new value.
    """

    def __init__(
        self,
        programs: Programs,
        variables: Mapping[int, Value],
        seed: Any = None,
        watch: Watch | None = None,
    ) -> None:
        self.programs = programs
        self.variables = variables
        self.seed = seed
        self.watch = watch
        self._scopes: list[str] = []  # of the steps that are running
        self.updates: dict[int, Value] = {}
        self._left = MOST_STEPS
        self._level = 0

    def call(self, name: str, arguments: Sequence[Any]) -> list[Any]:
        """Returns the results of a function.

        Args:
            name: Its name.
            arguments: Tensors, known values, `Handle`s and `TensorList`s.

        Raises:
            NotEvaluated: An op cannot be evaluated, or it would take too much.
        """
        program = self.programs.program(name)
        if len(arguments) != len(program.arguments):
            takes, got = len(program.arguments), len(arguments)
            raise NotEvaluated(f"{name} takes {takes} arguments, and gets {got}")
        if self._level >= MOST_LEVELS:
            raise NotEvaluated(f"{name}: functions call each other more than {MOST_LEVELS} deep")
        self._level += 1
        try:
            return self._run(program, arguments)
        finally:
            self._level -= 1

    def _run(self, program: Program, arguments: Sequence[Any]) -> list[Any]:
        done: list[list[Any]] = []

        def of(place: tuple[int, int]) -> Any:
            step, number = place
            results = arguments if step == ARGUMENT else done[step]
            if number >= len(results):
                raise NotEvaluated(f"{program.name}: there is no result {number}")
            return results[number]

        for step in program.steps:
            self._left -= 1
            if self._left < 0:
                raise NotEvaluated(f"{program.name}: more than {MOST_STEPS} steps")
            self._scopes.append(step.scope)
            done.append(self._step(program, step, [of(place) for place in step.inputs]))
            self._scopes.pop()
        if self.watch is not None:
            self.watch(tuple(filter(None, self._scopes)), program, done)
        return [of(place) for place in program.results]

    def _step(self, program: Program, step: Step, given: list[Any]) -> list[Any]:
        kernel = _KERNELS.get(step.op)
        try:
            if kernel is not None:
                return kernel(self, step, given)
            line = tables.of_graph_ops().get(step.op)
            if line is None:
                raise NotComputed(f"the op {support.reason(step.op)}")
            return self._computed(line, step, given)
        except NotEvaluated:
            raise
        except Exception as error:
            text = next(iter(str(error).strip().splitlines()), type(error).__name__)
            where = f"{program.name}: {step.name} = {step.op}"
            raise NotEvaluated(f"{where}: {text}") from error

    def _computed(self, line: Line, step: Step, given: list[Any]) -> list[Any]:
        for one in given:
            if isinstance(one, Handle | TensorList | Unknown):
                what = one.what if isinstance(one, Unknown) else type(one).__name__
                raise NotComputed(f"it is given {what}, which is no tensor")
        said = {key: step.attributes[key] for key in line.attributes if key in step.attributes}
        given = [_plain(one) for one in given]
        inputs = [{"tensor": i} if _is_opaque(one) else one for i, one in enumerate(given)]
        expression = tables.result_of_call(line, inputs, said)
        if isinstance(expression, list):
            return [self._evaluated(part, given) for part in expression]
        found = self._evaluated(expression, given)
        return list(found) if _has_several(expression) else [found]

    def _evaluated(self, expression: Any, given: list[Any]) -> Any:
        is_random = any(
            isinstance(part, Mapping) and part.get("operation") in RANDOM
            for part in expressions.walk(expression)
        )
        return evaluate(expression, given, seed=self._known_seed() if is_random else None)

    def drawn(self, operation: str, **arguments: Any) -> Value:
        """Returns random numbers."""
        return FUNCTIONS[operation](seed=self._known_seed(), **arguments)

    def _known_seed(self) -> Any:
        if self.seed is None:
            raise NotComputed("it draws random numbers, and no seed is given")
        return self.seed


def _plain(value: Any) -> Any:
    """Returns small known whole numbers as Python's, as axes and sizes are."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "iub":
        small = np.ndim(value) <= 1 and np.size(value) <= _MOST_LITERAL
        return np.asarray(value).tolist() if small else value
    return value


def _is_opaque(value: Any) -> bool:
    return is_tensor(value) or has_tensor(value) or not isinstance(value, int | float | list | str)


def _has_several(expression: Any) -> bool:
    name = expression.get("operation") if isinstance(expression, Mapping) else None
    return name in SEVERAL or name == "as_list"


__all__ = ["MOST_LEVELS", "MOST_STEPS", "NotEvaluated", "Run", "Watch"]
