"""`RandomHeight` and `RandomWidth`, which Keras 3 has dropped."""

from typing import Any

import keras

from keras_mp import backends
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.warn_once import WarnOnce

FIXED = (
    "{}: on this backend a compiled step cannot give images another size, so they keep theirs. "
    "Change it where the data are loaded, or compile with run_eagerly=True."
)


class _RandomSize(keras.layers.Resizing):
    """What both classes share; `axis` is that of the batch of images, from the end."""

    axis: int

    def __init__(
        self, factor: Any, interpolation: str = "bilinear", seed: int | None = None, **options: Any
    ) -> None:
        super().__init__(1, 1, interpolation=interpolation, data_format="channels_last", **options)
        self.factor = factor
        self.seed = seed
        low, high = factor if isinstance(factor, list | tuple) else (-factor, factor)
        if high < low or low < -1 or high < -1:
            raise ValueError(
                "factor must be a number above 0, or two numbers above -1, the lower first, but "
                f"got {factor!r}."
            )
        self._range = 1 + low, 1 + high
        self.generator = keras.random.SeedGenerator(seed)
        self._warn = WarnOnce(backends.current())

    def compute_output_shape(self, input_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the shape of the input, one size of which is not known."""
        shape = list(input_shape)
        shape[self.axis] = None
        return tuple(shape)

    def get_random_transformation(self, data: Any, training: Any = True, seed: Any = None) -> Any:
        """Returns the new size, (height, width); None where there is none."""
        if not training:
            return None
        seed = keras_hooks.seed_generator(self) if seed is None else seed
        factor = self.backend.random.uniform((), *self._range, seed=seed)
        sizes = list(self.backend.shape(data)[-3:-1])
        size = factor * self.backend.cast(sizes[self.axis + 3], "float32")
        sizes[self.axis + 3] = self.backend.cast(size, "int32")
        return tuple(sizes)

    def transform_images(
        self, images: Any, transformation: Any = None, training: bool = True
    ) -> Any:
        """Returns the images, in training with another size; of the compute dtype."""
        images = self.backend.cast(images, self.compute_dtype)
        if transformation is None:
            return images
        backend = backends.current()
        sizes = [
            int(size) if isinstance(size, int) or backend.is_at_hand(size) else size
            for size in transformation
        ]
        try:
            found = self._resized(images, sizes)
        except TypeError:  # of JAX, whose compiled shapes are numbers
            if all(isinstance(size, int) for size in sizes):
                raise
            self._warn(FIXED.format(self.name))
            return images
        return self.backend.cast(found, self.compute_dtype)

    def _resized(self, images: Any, sizes: list[Any]) -> Any:
        return self.backend.image.resize(
            self.backend.cast(images, "float32"),
            tuple(sizes),
            interpolation=self.interpolation,
            data_format="channels_last",
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, JSON-serializable."""
        inherited = keras.layers.Layer.get_config(self)
        own = {"factor": self.factor, "interpolation": self.interpolation, "seed": self.seed}
        return {**inherited, **own}


@keras.saving.register_keras_serializable("keras_mp")
class RandomHeight(_RandomSize):
    """`tf.keras.layers.RandomHeight`: in training all images of a batch get another height.

    On JAX a compiled step, as `fit` has, leaves them as they are, and warns.

    Args:
        factor: By how much at most, in parts of the height; or two numbers, such as (-0.2, 0.3).
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        seed: Of the random numbers.
        **options: `name` and `dtype`.

    Source: TF 2.15.1, keras/layers/preprocessing/image_preprocessing.py.

    >>> RandomHeight(0.5)(keras.ops.ones((2, 8, 4, 3)), training=False).shape == (2, 8, 4, 3)
    True
    """

    axis = -3


@keras.saving.register_keras_serializable("keras_mp")
class RandomWidth(_RandomSize):
    """`tf.keras.layers.RandomWidth`: in training all images of a batch get another width.

    On JAX a compiled step, as `fit` has, leaves them as they are, and warns.

    Args:
        factor: By how much at most, in parts of the width; or two numbers, such as (-0.2, 0.3).
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        seed: Of the random numbers.
        **options: `name` and `dtype`.

    Source: TF 2.15.1, keras/layers/preprocessing/image_preprocessing.py.

    >>> RandomWidth(0.5)(keras.ops.ones((2, 8, 4, 3)), training=False).shape == (2, 8, 4, 3)
    True
    """

    axis = -2
