"""Each operation computes what TensorFlow 1.15 to 2.15 did: recorded calls, computed again."""

import inspect
from typing import Any

import keras
import pytest

from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.computing.evaluating import FUNCTIONS, as_result, evaluate
from keras_mp.compat.operations.vocabulary import REQUIRED, signatures
from tests.data.operations.reading import Case
from tests.each.compat.operations.recorded_calls import (
    BACKEND,
    CALLS,
    flat,
    is_plain,
    problems,
    tensors_of,
)


def results(of: list[tuple[Any, Case]]) -> list[Any]:
    """Returns the results of calls, in the dtypes that they have there.

    JAX compiles them together, and without making them fast: one by one that takes minutes.
    """

    def compute(inputs: list[Any]) -> list[Any]:
        seed = keras.random.SeedGenerator(0)
        pairs = zip(of, inputs, strict=True)
        return [as_result(evaluate(one, given, seed=seed)) for (one, _), given in pairs]

    inputs = [tensors_of(case) for _, case in of]
    if BACKEND != "jax":
        return compute(inputs)
    import jax

    quickly = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    done: list[Any] = jax.jit(compute).lower(inputs).compile(compiler_options=quickly)(inputs)
    return done


@pytest.mark.parametrize("operation", sorted(CALLS))
def test_as_tensorflow(operation: str) -> None:
    tensors = [(one, case) for one, case in CALLS[operation] if not is_plain(case.result)]
    found = results(tensors)
    pairs = zip(tensors, found, strict=True)
    assert not [text for (one, case), result in pairs for text in problems(one, case, result)]
    for one, case in CALLS[operation]:
        if is_plain(case.result):
            given = tensors_of(case)
            assert flat(evaluate(one, given)) == [part["is"] for part in flat(case.result)], case


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_takes_what_the_vocabulary_says(name: str) -> None:
    found = {
        key: REQUIRED if one.default is one.empty else one.default
        for key, one in inspect.signature(FUNCTIONS[name]).parameters.items()
        if key != "seed"
    }
    assert found == signatures()[name].arguments


def test_all_operations_are_computed() -> None:
    computed_there = {
        str(part["operation"])
        for of in CALLS.values()
        for one, _ in of
        for part in expressions.walk(one)
        if expressions.is_operation(part)
    }
    of_python = {"item", "length", "join_lists", "int", "float", "is_none", "if_else"}
    assert computed_there | of_python >= signatures().keys(), "record these, or remove them"
