"""Operations as layers: what became of TensorFlow's operations and of Lambda layers.

Their configs say in words what they compute; no code is in them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_mp.compat.errors import NotComputed
from keras_mp.compat.operations import expressions
from keras_mp.compat.operations.vocabulary import RANDOM


class _Unmasked(keras.layers.Layer):
    """Takes tensors in any dtype; masks end here, as in tf.keras."""

    def __init__(self, **options: Any) -> None:
        super().__init__(autocast=False, **options)
        self.supports_masking = True

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        return None


class _Passing(_Unmasked):
    """Returns its first input, with its mask."""

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        return previous_mask[0] if isinstance(previous_mask, list | tuple) else previous_mask


@keras.saving.register_keras_serializable("keras_mp")
class Operation(_Unmasked):
    """An operation on tensors, with results and dtypes as of TensorFlow.

    The inputs of a call are `{"tensor": 0}`, `{"tensor": 1}` and so on in the arguments, which are
    expressions: numbers, lists, and operations inside of operations. See
    `keras_mp.compat.operations.vocabulary` for the operations that there are.

    Args:
        operation: Its name.
        arguments: Name -> expression.
        steps: Expressions whose results are `{"step": 0}` and so on in later ones.
        seed: Of random numbers, where there are any; None for others in each process.
        **options: Those of `keras.layers.Layer`.

    Raises:
        ValueError: There is no such operation, or its arguments are others.

    >>> layer = Operation("divide", {"x1": {"tensor": 0}, "x2": 255})
    >>> layer.expression
    'x / 255'
    >>> float(layer(ops.array([127.5]))[0])
    0.5
    """

    def __init__(
        self,
        operation: str,
        arguments: dict[str, Any],
        steps: Sequence[Any] = (),
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.operation = {"operation": operation, "arguments": arguments}
        self.steps = list(steps)
        for one in (*self.steps, self.operation):
            expressions.checked_expression(one)
        self.seed = seed
        parts = [part for one in (*self.steps, self.operation) for part in expressions.walk(one)]
        is_random = any(
            isinstance(part, dict) and part.get("operation") in RANDOM for part in parts
        )
        self.seed_generator = keras.random.SeedGenerator(seed) if is_random else None
        self.masked = False  # whether it was called with a mask, which ends here

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        self.masked |= any(mask is not None for mask in keras.tree.flatten(previous_mask))
        return None

    @property
    def expression(self) -> str:
        """What it computes, as a line of Python: "ops.mean(x, axis=1)"."""
        return expressions.shown_program(self.steps, self.operation)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        # Here, as it imports keras, which may be what imports this module.
        from keras_mp.compat.operations.computing.evaluating import as_result, evaluate

        given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        options: dict[str, Any] = {"training": bool(training), "seed": self.seed_generator}
        done: list[Any] = []
        try:
            for one in (*self.steps, self.operation):
                done.append(evaluate(one, given, steps=done, **options))
            return as_result(done[-1])
        except Exception as error:
            text = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise NotComputed(f"{self.name} = {self.expression:.200}: {text}") from error

    def compute_output_spec(self, *arguments: Any, **options: Any) -> Any:
        from keras_mp.compat.operations.computing import symbolic

        # That of keras.Layer would go by compute_output_shape, and by the dtype of the policy.
        infer = functools.partial(keras.Operation.compute_output_spec, self)
        return symbolic.spec(infer, *arguments, **options)

    def compute_output_shape(self, input_shape: Any) -> Any:
        several = isinstance(input_shape[0], list | tuple)
        given = [
            keras.KerasTensor(shape, self.compute_dtype)
            for shape in (input_shape if several else [input_shape])
        ]
        spec = self.compute_output_spec(given if several else given[0])
        return keras.tree.map_structure(lambda one: one.shape, spec)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config |= dict(self.operation)
        if self.steps:
            config["steps"] = self.steps
        if self.seed is not None:
            config["seed"] = self.seed
        return config


@keras.saving.register_keras_serializable("keras_mp")
class AddLoss(_Passing):
    """Adds its second input to the loss, and returns its first.

    What `model.add_loss(tensor)` became in tf.keras. There the layer stood beside the model; here
    it stands between two layers, or behind the last.

    >>> layer = AddLoss()
    >>> _ = layer([ops.ones((2, 3)), ops.array(0.5)])
    >>> float(layer.losses[0])
    0.5
    """

    def call(self, inputs: Any) -> Any:
        passed, value = inputs if isinstance(inputs, list | tuple) else (inputs, inputs)
        self.add_loss(ops.cast(value, "float32"))
        return passed

    def get_config(self) -> dict[str, Any]:
        # Keras leaves the name out of the config of a layer that has no such method.
        return dict(super().get_config())


class _MeanOfLayer(keras.metrics.Metric):
    """The mean that an `AddMetric` keeps in its weights, which a call may change on any backend."""

    def __init__(self, name: str, kept: Callable[[], tuple[Any, Any]]) -> None:
        super().__init__(name=name)
        # A function, as a metric would take variables for its own.
        self._kept = kept

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the layer does it when it is called."""

    def result(self) -> Any:
        try:
            total, count = (ops.convert_to_tensor(one) for one in self._kept())
        except TypeError:  # JAX has the weights elsewhere while it compiles a step
            return ops.zeros(())
        return ops.divide_no_nan(total, count)

    def reset_state(self) -> None:
        for one in self._kept():
            one.assign(ops.zeros(()))


@keras.saving.register_keras_serializable("keras_mp")
class AddMetric(_Passing):
    """Keeps the mean of its second input as a metric, and returns its first.

    What `model.add_metric(tensor, name)` became in tf.keras. The mean is in variables of the layer
    that are in no file. On JAX the logs of single batches have 0 for it; those of epochs, and what
    `evaluate` returns, are right.

    Args:
        metric_name: Its name in the logs.
        aggregation: "mean".
        **options: Those of `keras.layers.Layer`.

    Raises:
        ValueError: `aggregation` is not "mean".

    >>> layer = AddMetric("norm")
    >>> _ = layer([ops.ones((2, 3)), ops.array(0.5)])
    >>> float(layer.metrics[0].result())
    0.5
    """

    def __init__(self, metric_name: str, aggregation: str = "mean", **options: Any) -> None:
        super().__init__(**options)
        if aggregation != "mean":
            raise ValueError(f"aggregation={aggregation!r}: only 'mean' is supported.")
        self.metric_name, self.aggregation = metric_name, aggregation
        self.total, self.count = (
            self.add_weight(
                name=name, shape=(), dtype="float32", initializer="zeros", trainable=False
            )
            for name in ("total", "count")
        )
        self.metric = _MeanOfLayer(metric_name, lambda: (self.total, self.count))

    @property
    def weights(self) -> list[Any]:
        """None: as the seeds of other layers, what it keeps is state and no weight."""
        return []

    def call(self, inputs: Any) -> Any:
        passed, value = inputs if isinstance(inputs, list | tuple) else (inputs, inputs)
        value = ops.cast(value, "float32")
        self.total.assign(ops.add(self.total, ops.sum(value)))
        self.count.assign(ops.add(self.count, ops.cast(ops.size(value), "float32")))
        return passed

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"metric_name": self.metric_name, "aggregation": self.aggregation}
