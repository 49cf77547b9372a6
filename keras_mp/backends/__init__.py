"""The room that imports tensorflow, jax and torch; beside it only `graph_rewrite/hooks.py` may.

`tensorflow.py`, `jax.py` and `torch.py` have the same functions, which `LossScaleOptimizer` calls:

- `read(variable)`: its value now, as a tensor;
- `unscale(gradients, scale, raw)`: the gradients divided by the scale, None and sparse kept;
- `all_finite(gradients)`: bool, shape (): no inf and no nan in any of them, on any replica;
- `apply_if_finite(optimizer, gradients, variables, scale, raw)`: one step of `optimizer` with
  `unscale(gradients, scale, raw)`, or with `gradients` if the scale is None, if these are finite;
  returns an `Outcome`. (Dividing keeps every inf and nan; dividing by less than 1 adds some.)
- `apply(optimizer, gradients, variables)`: one step of `optimizer`, whatever is in the gradients;
- `merged(gradients)`: the gradients, rows that a sparse one names twice summed;
- `densified(gradient, variable)`: a sparse gradient as a tensor of the variable's shape, rows that
  it names twice summed; any other as it is;
- `rows_held(gradient, variable)`: which rows of a dense or sparse gradient there are;
- `stateless_values(values)`: values that an in-place optimizer may change;
- `gradients(loss, variables)`: of a callable, by the backend's own differentiation;
- `unshare(variables)`: no two of them, or of others, with one array;
- `buffers(layers)`: tensors that `layers` keep and that are no variables, to be changed in place;
- `is_compiling()`: whether Python code is traced that must not warn;
- `is_baked_in(value)`: whether a function that is being compiled would take it as a constant;
- `lifted()`: a scope in which variables may be created, even while a function is traced;
- `replicas()`: how many replicas the current step runs on;
- `check_strategy()`: raises where devices are used in a way that loss scaling does not work with.

TensorFlow's has one more:

- `tape_gradients(tape, loss, scale, variables)`: of `scale(loss)`, for a `loss` that was recorded.
"""

import importlib
from types import ModuleType

import keras


def current() -> ModuleType:
    """Returns the module of the backend that Keras runs on.

    >>> current().__name__ == f"keras_mp.backends.{keras.backend.backend()}"
    True
    """
    name = keras.backend.backend()
    if name not in ("jax", "tensorflow", "torch"):
        raise RuntimeError(
            f"keras_mp works on jax, tensorflow and torch, but the backend of Keras is {name}."
        )
    return importlib.import_module(f"keras_mp.backends.{name}")
