"""`LocallyConnected1D` and `LocallyConnected2D`: convolutions with another kernel at each place."""

import itertools
import math
from typing import Any

import keras
import numpy as np
from keras import activations, constraints, initializers, ops, regularizers

_PARTS = {
    f"{weight}_{kind}": package
    for weight in ("kernel", "bias")
    for kind, package in (
        ("initializer", initializers),
        ("regularizer", regularizers),
        ("constraint", constraints),
    )
}


_MOST_CONNECTIONS = 1 << 24


class _LocallyConnected(keras.layers.Layer):
    """What both classes share; `rank` is the number of spatial axes."""

    rank: int

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        activation: Any = None,
        use_bias: bool = True,
        implementation: int = 1,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if implementation not in (1, 2, 3):
            raise ValueError(f"implementation must be 1, 2 or 3, but got {implementation!r}.")
        if padding not in ("valid", "same") or (padding == "same" and implementation == 1):
            raise ValueError(
                f"padding must be 'valid', or 'same' where implementation is 2 or 3, but got "
                f"{padding!r}."
            )
        self.filters = filters
        self.kernel_size = self._each_axis(kernel_size)
        self.strides = self._each_axis(strides)
        self.padding = padding
        self.data_format = data_format or keras.config.image_data_format()
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.implementation = implementation
        given = {
            "kernel_initializer": kernel_initializer,
            "bias_initializer": bias_initializer,
            "kernel_regularizer": kernel_regularizer,
            "bias_regularizer": bias_regularizer,
            "kernel_constraint": kernel_constraint,
            "bias_constraint": bias_constraint,
        }
        for name, package in _PARTS.items():
            setattr(self, name, package.get(given[name]))

    def _each_axis(self, value: Any) -> tuple[int, ...]:
        values = (value,) * self.rank if isinstance(value, int) else tuple(value)
        if len(values) != self.rank:
            raise ValueError(f"expected {self.rank} numbers, but got {value!r}.")
        return values

    def _arranged(self, channels: Any, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        return (channels, *sizes) if self.data_format == "channels_first" else (*sizes, channels)

    def _parted(self, shape: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Returns the channels and the spatial sizes of an input."""
        if self.data_format == "channels_first":
            return shape[1], tuple(shape[2:])
        return shape[-1], tuple(shape[1:-1])

    def _out(self, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
        found: list[int | None] = []
        for size, kernel, stride in zip(sizes, self.kernel_size, self.strides, strict=True):
            lacks = kernel - 1 if self.padding == "valid" else 0
            found.append(None if size is None else -(-(size - lacks) // stride))
        return tuple(found)

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the shape of the output, the batch first."""
        _, sizes = self._parted(input_shape)
        return (input_shape[0], *self._arranged(self.filters, self._out(sizes)))

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Makes kernel and bias, which depend on the size of the input."""
        channels, sizes = self._parted(input_shape)
        if None in (channels, *sizes):
            raise ValueError(
                f"{self.name} has a kernel at each place, so the size of its input must be known, "
                f"but it is {input_shape}."
            )
        self._inputs = self._arranged(channels, sizes)
        self._outputs = self._arranged(self.filters, self._out(sizes))
        if min(self._outputs) <= 0:
            raise ValueError(f"{self.name} is larger than its input of the shape {input_shape}.")
        if self.implementation == 1:
            features = math.prod(self.kernel_size) * channels
            shape: tuple[int, ...] = (math.prod(self._out(sizes)), features, self.filters)
        elif self.implementation == 2:
            shape = (*self._inputs, *self._outputs)
        else:
            # Not by listing them: a file may not hold what its config claims.
            places = math.prod(self._out(sizes))
            most = places * math.prod(self.kernel_size) * channels * self.filters
            if most > _MOST_CONNECTIONS:
                raise ValueError(
                    f"{self.name} has up to {most} connections; with implementation=3 it can have "
                    f"{_MOST_CONNECTIONS}."
                )
            windows = [sum(map(len, ranges)) for ranges in self._ranges()]
            shape = (math.prod(windows) * channels * self.filters,)
        self.kernel = self._weight("kernel", shape)
        self.bias = (
            self._weight("bias", (*self._out(sizes), self.filters)) if self.use_bias else None
        )

    def _weight(self, name: str, shape: tuple[int, ...]) -> Any:
        kinds = ("initializer", "regularizer", "constraint")
        parts = {kind: getattr(self, f"{name}_{kind}") for kind in kinds}
        return self.add_weight(name=name, shape=shape, **parts)

    def _ranges(self) -> list[list[range]]:
        """Returns for each axis and place along it, of which of the input it is computed."""
        _, sizes = self._parted((None, *self._inputs))
        found = []
        for size, out, kernel, stride in zip(
            sizes, self._out(sizes), self.kernel_size, self.strides, strict=True
        ):
            before = 0 if self.padding == "valid" else kernel // 2
            starts = [at * stride - before for at in range(out)]
            found.append([range(max(0, start), min(size, start + kernel)) for start in starts])
        return found

    def _windows(self) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
        """Returns each place of the output, and the places of the input that it is computed of."""
        ranges = self._ranges()
        found = []
        for place in itertools.product(*(range(len(axis)) for axis in ranges)):
            window = [axis[at] for axis, at in zip(ranges, place, strict=True)]
            found.append((place, list(itertools.product(*window))))
        return found

    def _flat(self, channel: int, place: tuple[int, ...], shape: tuple[int, ...]) -> int:
        return int(np.ravel_multi_index(self._arranged(channel, place), shape))

    def _connections(self) -> list[tuple[int, int]]:
        """Returns (number of an output, number of an input) of all that are connected, sorted."""
        channels, _ = self._parted((None, *self._inputs))
        return sorted(
            (self._flat(out, place, self._outputs), self._flat(into, other, self._inputs))
            for place, others in self._windows()
            for other in others
            for into in range(channels)
            for out in range(self.filters)
        )

    def _patches(self) -> Any:
        """Returns the numbers of the inputs of each place: (places, features), int32."""
        channels, _ = self._parted((None, *self._inputs))
        rows = []
        for _, others in self._windows():
            pairs = (
                [(channel, other) for channel in range(channels) for other in others]
                if self.data_format == "channels_first"
                else [(channel, other) for other in others for channel in range(channels)]
            )
            rows.append([self._flat(channel, other, self._inputs) for channel, other in pairs])
        return np.array(rows, "int32")

    def _matrix(self) -> Any:
        """Returns the kernel as that of a Dense layer: (inputs, outputs)."""
        shape = (math.prod(self._inputs), math.prod(self._outputs))
        numbers = np.array(self._connections(), "int32")[:, ::-1]
        if self.implementation == 3:
            return ops.scatter(numbers, ops.convert_to_tensor(self.kernel), shape)
        mask = np.zeros(shape, "float32")
        mask[tuple(numbers.T)] = 1
        kernel = ops.convert_to_tensor(self.kernel)
        return ops.reshape(kernel, shape) * ops.cast(mask, kernel.dtype)

    def call(self, inputs: Any) -> Any:
        """Returns the activations, of the shape that `compute_output_shape` says."""
        flat = ops.reshape(inputs, (-1, math.prod(self._inputs)))
        if self.implementation == 1:
            patches = ops.take(flat, self._patches(), axis=1)
            found = ops.einsum("bpf,pfc->bpc", patches, self.kernel)
            if self.data_format == "channels_first":
                found = ops.transpose(found, (0, 2, 1))
        else:
            found = ops.matmul(flat, self._matrix())
        found = ops.reshape(found, (-1, *self._outputs))
        if self.bias is not None:  # reshaped, not transposed, where channels come first
            found = found + ops.reshape(self.bias, (1, *self._outputs))
        return self.activation(found)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        parts = {name: package.serialize(getattr(self, name)) for name, package in _PARTS.items()}
        names = ("filters", "kernel_size", "strides", "padding", "data_format", "use_bias")
        return {
            **super().get_config(),
            **{name: getattr(self, name) for name in names},
            "implementation": self.implementation,
            "activation": activations.serialize(self.activation),
            **parts,
        }


@keras.saving.register_keras_serializable("keras_mp")
class LocallyConnected1D(_LocallyConnected):
    """`tf.keras.layers.LocallyConnected1D`, which Keras 3 has dropped.

    Args:
        filters: Channels of the output.
        kernel_size, strides: In steps.
        padding: "valid"; or "same" where `implementation` is 2 or 3.
        data_format: "channels_last" for inputs of shape (batch, steps, channels), or
            "channels_first".
        activation, use_bias, kernel_..., bias_...: As of `keras.layers.Conv1D`.
        implementation: How the kernel is stored: (places, features, filters), masked, or sparse.
        **options: Those of `keras.layers.Layer`.

    Source: TF 2.15.1, keras/layers/locally_connected.

    >>> layer = LocallyConnected1D(2, 3)
    >>> layer(keras.ops.ones((1, 5, 4))).shape == (1, 3, 2), tuple(layer.kernel.shape)
    (True, (3, 12, 2))
    """

    rank = 1


@keras.saving.register_keras_serializable("keras_mp")
class LocallyConnected2D(_LocallyConnected):
    """`tf.keras.layers.LocallyConnected2D`, which Keras 3 has dropped.

    Args:
        filters: Channels of the output.
        kernel_size, strides: In pixels, of rows and columns.
        padding: "valid"; or "same" where `implementation` is 2 or 3.
        data_format: "channels_last" for inputs of shape (batch, rows, columns, channels), or
            "channels_first".
        activation, use_bias, kernel_..., bias_...: As of `keras.layers.Conv2D`.
        implementation: How the kernel is stored: (places, features, filters), masked, or sparse.
        **options: Those of `keras.layers.Layer`.

    Source: TF 2.15.1, keras/layers/locally_connected.

    >>> layer = LocallyConnected2D(2, 3)
    >>> layer(keras.ops.ones((1, 5, 5, 1))).shape == (1, 3, 3, 2), tuple(layer.kernel.shape)
    (True, (9, 9, 2))
    """

    rank = 2
