"""Layers that train as in tf.keras, where those of Keras 3 train differently.

Weights are the same, and so are predictions but for a tiny epsilon; what further training does is
not. Measured: two steps of 55 layers in TF 2.3.4, replayed in Keras 3 on JAX, TensorFlow and
PyTorch. The others agree to float32 rounding (1e-6 of the largest number), gradients included:
Dense, Conv*, Embedding, LSTM, GRU (reset_after or not, either implementation), SimpleRNN,
Bidirectional, ConvLSTM2D, LayerNormalization, pooling, activations, regularizers.

| layer                               | tf.keras                          | Keras 3                |
| ----------------------------------- | --------------------------------- | ---------------------- |
| BatchNormalization of images        | keeps the variance N / (N - 1)    | keeps the biased one   |
| the same, epsilon below 1.001e-5    | is raised to that                 | as given               |
| BatchNormalization behind a mask    | ignores it, up to TF 2.11         | leaves elements out    |
| BatchNormalization in float16       | statistics in float32             | in float16             |
| BatchNormalization, mean >> std     | variance of x - mean              | PyTorch: E[x2] - E[x]2 |
| TimeDistributed(BatchNormalization) | statistics of all time steps      | of a step at a time    |
| TimeDistributed(layer with          | the regularization is in the loss | it is not              |
| activity_regularizer)               |                                   |                        |
| LSTM and GRU with dropout and the   | drops other inputs at each step   | the same at each step  |
| fused kernel                        |                                   |                        |
| activity_regularizer                | is divided by the batch size      | so from Keras 3.14 on  |
| hard_sigmoid                        | see `activations`                 |                        |

`convert(config, exact_training=True)` makes these of the legacy ones.
"""

import inspect
from typing import Any

import keras
from keras import ops

from keras_mp.compat.configs.versions import parse_version

_LEAST_FUSED_EPSILON = 1.001e-5  # of cuDNN, and of every kernel since
_FUSED_DTYPES = ("float16", "bfloat16", "float32")


@keras.saving.register_keras_serializable("keras_mp")
class BatchNormalization(keras.layers.BatchNormalization):
    """Batch normalization whose moving statistics are those of tf.keras.

    tf.keras used a fused kernel for inputs of rank 4 with channels at axis 1 or 3. It keeps the
    unbiased variance of a batch, N / (N - 1) times the one it normalizes with, for N numbers a
    channel. Other inputs, and float64, have no such kernel: there both are biased.

    Variables and statistics are float32 under float16 and bfloat16 policies.

    Args:
        axis: The channels' axis.
        tf_version: The TensorFlow it was trained with. From 2.6 on inputs of rank 5 with channels
            at axis 1 or 4 are fused, too. From 2.12 on a mask leaves elements out of the statistics
            of an input that is not fused; before, and in the fused kernel, masks are ignored.
        **options: Those of `keras.layers.BatchNormalization`, but for `renorm` and `synchronized`.

    Raises:
        ValueError: `renorm` or `synchronized` is true, or `tf_version` is no version.

    Source: TF 2.3.4, python/keras/layers/normalization.py; Keras 2.15.0,
    layers/normalization/batch_normalization.py; TF 2.3.4, core/kernels/fused_batch_norm_op.cc.

    >>> layer = BatchNormalization(momentum=0.0)
    >>> _ = layer(ops.array([[[[1.0]], [[3.0]]]]), training=True)  # the variance is 1, or 1 * 2 / 1
    >>> round(float(layer.moving_variance.numpy()[0]), 4)
    2.0
    """

    def __init__(self, axis: int = -1, *, tf_version: str = "2.5", **options: Any) -> None:
        for name in ("renorm", "synchronized"):
            if options.get(name):
                raise ValueError(
                    f"{name}=True: use keras.layers.BatchNormalization, if your Keras has it there."
                )
        super().__init__(axis, **options)
        self.tf_version = tf_version
        version = parse_version(tf_version)
        self._fused_ranks = (4, 5) if version >= (2, 6) else (4,)
        self._ignores_masks = version < (2, 12)
        self._fused = False

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        rank = len(input_shape)
        self._axes = [axis for axis in range(rank) if axis != self.axis % rank]
        self._fused = (
            rank in self._fused_ranks
            and self.axis % rank in (1, rank - 1)
            and self.compute_dtype in _FUSED_DTYPES
        )

    def add_weight(self, *args: Any, **options: Any) -> Any:
        if self.variable_dtype in ("float16", "bfloat16"):
            options["dtype"] = "float32"
        return super().add_weight(*args, **options)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        mean, variance = (
            ops.cast(self._along_axis(moving, x), x.dtype)
            for moving in (self.moving_mean, self.moving_variance)
        )
        if training and self.trainable:
            weights = None if self._fused or self._ignores_masks else mask
            mean, variance, kept = self._statistics(x, weights)
            for moving, new in ((self.moving_mean, mean), (self.moving_variance, kept)):
                old = ops.cast(moving, x.dtype)
                moving.assign(
                    old * self.momentum + ops.squeeze(new, self._axes) * (1.0 - self.momentum)
                )
        epsilon = max(self.epsilon, _LEAST_FUSED_EPSILON) if self._fused else self.epsilon
        factor = ops.rsqrt(variance + epsilon)
        if self.scale:
            factor = factor * ops.cast(self._along_axis(self.gamma, x), x.dtype)
        y = (x - mean) * factor
        if self.center:
            y = y + ops.cast(self._along_axis(self.beta, x), x.dtype)
        return ops.cast(y, self.compute_dtype)

    def _along_axis(self, variable: Any, x: Any) -> Any:
        shape = [1] * len(x.shape)
        shape[self.axis] = -1
        return ops.reshape(variable, shape)

    def _statistics(self, x: Any, mask: Any) -> tuple[Any, Any, Any]:
        """Returns the mean, the variance and the variance to keep, each as wide as `x`."""
        if mask is not None:
            # A part of the elements counts: the mask has all axes but the last.
            weight = ops.broadcast_to(ops.expand_dims(ops.cast(mask, x.dtype), -1), ops.shape(x))
            total = ops.sum(weight, self._axes, keepdims=True)
            mean = ops.sum(x * weight, self._axes, keepdims=True) / total
            squares = ops.square(x - mean) * weight
            variance = ops.sum(squares, self._axes, keepdims=True) / total
            return mean, variance, variance
        mean = ops.mean(x, self._axes, keepdims=True)
        variance = ops.mean(ops.square(x - mean), self._axes, keepdims=True)
        if not self._fused:
            return mean, variance, variance
        count = ops.ones((), x.dtype)
        for axis in self._axes:
            count = count * ops.cast(ops.shape(x)[axis], x.dtype)
        return mean, variance, variance * (count / ops.maximum(count - 1.0, 1.0))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        for name in ("renorm", "renorm_clipping", "renorm_momentum", "synchronized"):
            config.pop(name, None)
        return config | {"tf_version": self.tf_version}


class _DropsAtEachStep:
    """Drops other numbers of the inputs at each time step, and none inside the cell."""

    dropout: float
    cell: Any

    def __init__(self, units: int, **options: Any) -> None:
        if options.get("recurrent_dropout"):
            kind = type(self).__name__
            raise ValueError(
                f"recurrent_dropout={options['recurrent_dropout']}: tf.keras then dropped the same "
                f"inputs at each step, as keras.layers.{kind} does; use that."
            )
        super().__init__(units, **options)  # type: ignore[call-arg]

    def inner_loop(
        self, sequences: Any, initial_state: Any, mask: Any, training: bool | None = False
    ) -> Any:
        if training and self.dropout:
            seed = self.cell.seed_generator
            sequences = keras.random.dropout(sequences, self.dropout, seed=seed)
        # The cell's only use of `training` is to drop.
        return super().inner_loop(sequences, initial_state, mask, training=False)  # type: ignore[misc]


@keras.saving.register_keras_serializable("keras_mp")
class LSTM(_DropsAtEachStep, keras.layers.LSTM):
    """LSTM whose `dropout` drops different inputs at each step, as in tf.keras.

    tf.keras of TF 2 did so where it could take the fused kernel (on a CPU, too): activation tanh,
    recurrent_activation sigmoid, use_bias, no recurrent_dropout, no unroll. Elsewhere, and always
    in Keras 3, the same inputs are dropped at all steps of a sequence.

    Args:
        units: The size of the output.
        **options: Those of `keras.layers.LSTM`.

    Raises:
        ValueError: `recurrent_dropout` is not 0.

    Source: TF 2.3.4, python/keras/layers/recurrent_v2.py; the same in Keras 2.15.0.

    >>> layer = LSTM(2, dropout=0.5)
    >>> layer(ops.ones((1, 4, 3)), training=True).shape[-1]
    2
    """


@keras.saving.register_keras_serializable("keras_mp")
class GRU(_DropsAtEachStep, keras.layers.GRU):
    """GRU whose `dropout` drops different inputs at each step, as in tf.keras.

    See `LSTM`; besides, tf.keras of TF 2 did so with reset_after only.

    >>> GRU(2, dropout=0.5).get_config()["dropout"]
    0.5
    """


@keras.saving.register_keras_serializable("keras_mp")
class TimeDistributed(keras.layers.TimeDistributed):
    """Applies a layer to all time steps at once, as tf.keras did.

    The layer sees (batch * time, ...). Keras 3 calls it a step at a time, so a BatchNormalization
    inside normalizes, and averages, each step by itself; and past `__call__`, so an
    activity_regularizer inside is not added to the loss.

    tf.keras called a layer that was not its own a step at a time where the batch size was static;
    here that is so for `stateful` layers only. Arguments are those of
    `keras.layers.TimeDistributed`.

    Source: TF 2.3.4, python/keras/layers/wrappers.py.

    >>> inside = keras.layers.BatchNormalization(momentum=0.0)
    >>> _ = TimeDistributed(inside)(ops.array([[[1.0], [3.0]]]), training=True)
    >>> float(inside.moving_mean.numpy()[0])
    2.0
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if getattr(self.layer, "stateful", False):
            return super().call(inputs, training=training, mask=mask)
        parameters = inspect.signature(self.layer.call).parameters
        options: dict[str, Any] = {}
        if "training" in parameters:
            options["training"] = training
        if "mask" in parameters and mask is not None:
            options["mask"] = ops.reshape(mask, (-1, *ops.shape(mask)[2:]))
        batch, time, *rest = ops.shape(inputs)
        y = self.layer(ops.reshape(inputs, (-1, *rest)), **options)
        return ops.reshape(y, (batch, time, *ops.shape(y)[1:]))
