"""`Functional`: a model whose calls keep the `training` that they were made with.

| `layer(x, training=...)` in a functional model | tf.keras                | Keras 3              |
| ---------------------------------------------- | ----------------------- | -------------------- |
| `fit`                                          | what the call says      | as in training       |
| `predict`, `evaluate`                          | what the call says      | as in inference      |

So Monte Carlo dropout (`training=True`) drops nothing in `predict` of Keras 3, and `fit` updates
the moving statistics of a base model that was called with `training=False`.
"""

from collections.abc import Callable
from typing import Any

import keras


class _WithoutContext:
    """An operation that a model hands no `training` of its own."""

    def __init__(self, operation: Any) -> None:
        self._operation = operation
        self.compute_output_spec = operation.compute_output_spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._operation(*args, **kwargs)


@keras.saving.register_keras_serializable("keras_mp")
class Functional(keras.Model):
    """A functional model that runs each call with the `training` that it was made with.

    Calls with `training=None` run as in any functional model: with that of the model. Saving,
    copying (`clone_model`) and nesting keep both. In code, say `training=None` where a call says
    nothing: else Keras notes the default of the layer, which is False for most.

    Args:
        inputs, outputs, name, **options: Those of `keras.Model`.

    Source: TF 2.15.1, keras/engine/functional.py, where arguments of a call that are in the node
    come before those of the model; Keras 3.15.1, models/functional.py, `operation_fn`.

    >>> inputs = keras.Input((2,))
    >>> outputs = keras.layers.Dropout(0.5)(inputs, training=True)
    >>> x = keras.ops.ones((8, 2))
    >>> bool(keras.ops.all(keras.Model(inputs, outputs)(x, training=False) == x))
    True
    >>> bool(keras.ops.all(Functional(inputs, outputs)(x, training=False) == x))
    False
    """

    keeps_training_of_calls = True  # for `keras_mp.explain`

    def _run_through_graph(
        self,
        inputs: Any,
        operation_fn: Callable[[Any], Any] = lambda operation: operation,
        call_fn: Callable[..., Any] | None = None,
    ) -> Any:
        def as_recorded(operation: Any) -> Callable[..., Any]:
            by_model: Callable[..., Any] = operation_fn(operation)
            if call_fn is not None or isinstance(by_model, keras.Operation):
                return by_model  # itself or a copy of it: Keras hands it nothing
            by_call = operation_fn(_WithoutContext(operation))

            def run(*args: Any, **kwargs: Any) -> Any:
                chosen = by_model if kwargs.get("training") is None else by_call
                return chosen(*args, **kwargs)

            return run

        return super()._run_through_graph(inputs, as_recorded, call_fn)
