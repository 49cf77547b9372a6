"""The parts of a LossScaleOptimizer by themselves: their variables, a backend, and steps."""

import keras
from keras import ops

from keras_mp import backends
from keras_mp.backends.common.numerics import StepResult
from keras_mp.statistics.step import Step
from keras_mp.variables.variable_factory import ExtraState, VariableFactory

INT = keras.backend.standardize_dtype("int")


def places():
    """Returns (the optimizer that gets a part's variables, a `VariableFactory`)."""
    optimizer = keras.optimizers.SGD()
    return optimizer, VariableFactory(optimizer, ExtraState(), backends.current())


def step(kind, variables=(), each=None, scale=1.0):
    """Returns a step whose gradients were of `kind`: 0 finite, 1 inf, 2 nan."""
    finite = ops.convert_to_tensor(kind == 0)
    result = StepResult(finite, None if each is None else ops.array(each, "bool"), None)
    known = [id(variable) for variable in variables]
    return Step(
        result=result,
        variables=variables,
        index_of=lambda variable: known.index(id(variable)),
        kind=ops.array(kind, INT),
        skipped=ops.array(int(kind > 0), INT),
        scale_before=ops.array(scale, "float32"),
    )
