"""`RandomCrop` and `RandomFlip` as in tf.keras, where Keras 3 differs."""

from typing import Any

import keras

from keras_mp.backends import keras_hooks
from keras_mp.compat.configs.versions import parse_version


@keras.saving.register_keras_serializable("keras_mp")
class RandomCrop(keras.layers.RandomCrop):
    """Crops at random in training; else returns the largest window of the target's aspect ratio.

    That of Keras 3.15 returns images as they are in `predict`, whatever their size
    (keras-team/keras#21868).

    Args:
        height, width: Of what is returned, in pixels.
        tf_version: The TensorFlow of the model. Up to 2.6 images were resized and then cropped in
            the middle; from 2.7 on it is the other way round.
        **options: Those of `keras.layers.RandomCrop`.

    Source: TF 2.4.4, python/keras/layers/preprocessing/image_preprocessing.py; Keras 2.7.0 and
    2.15.0, layers/preprocessing/image_preprocessing.py.

    >>> RandomCrop(2, 2)(keras.ops.ones((1, 4, 6, 3)), training=False).shape[1:3] == (2, 2)
    True
    """

    def __init__(
        self, height: int, width: int, *, tf_version: str = "2.15", **options: Any
    ) -> None:
        super().__init__(height, width, **options)
        self.tf_version = tf_version
        self._resizes_first = parse_version(tf_version) < (2, 7)

    def get_random_transformation(self, data: Any, training: Any = True, seed: Any = None) -> Any:
        """Returns where the crop begins; None where there is none."""
        height, width = self._size(data)
        if not training or height < self.height or width < self.width:
            return None
        seed = keras_hooks.seed_generator(self) if seed is None else seed
        starts = []
        for room in (height - self.height, width - self.width):
            drawn = self.backend.random.uniform((), 0, maxval=float(room + 1), seed=seed)
            starts.append(self.backend.cast(drawn, "int32"))
        return tuple(starts)

    def transform_images(self, images: Any, transformation: Any, training: Any = True) -> Any:
        """Returns images of the target's size."""
        images = self.backend.cast(images, self.compute_dtype)
        if transformation is not None:
            top, left = transformation
            return self._cropped(images, top, left, self.height, self.width)
        height, width = self._size(images)
        if self._resizes_first:
            if height / width > self.height / self.width:
                height, width = int(self.width * height / width), self.width
            else:
                height, width = self.height, int(self.height * width / height)
            images = self._resized(images, height, width)
            return self._middle(images, height, width, self.height, self.width)
        most = min(height, int(width * self.height / self.width))
        widest = min(width, int(height * self.width / self.height))
        images = self._middle(images, height, width, most, widest)
        return self._resized(images, self.height, self.width)

    def _size(self, images: Any) -> tuple[int, int]:
        shape = self.backend.shape(images)
        return shape[self.height_axis], shape[self.width_axis]

    def _resized(self, images: Any, height: int, width: int) -> Any:
        size = (height, width)
        resized = self.backend.image.resize(images, size=size, data_format=self.data_format)
        return self.backend.cast(resized, self.compute_dtype)

    def _middle(self, images: Any, height: int, width: int, high: int, wide: int) -> Any:
        return self._cropped(images, int((height - high) / 2), int((width - wide) / 2), high, wide)

    def _cropped(self, images: Any, top: Any, left: Any, height: int, width: int) -> Any:
        window = [slice(None)] * len(images.shape)
        window[self.height_axis] = slice(top, top + height)
        window[self.width_axis] = slice(left, left + width)
        return images[tuple(window)]

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        return config | {"tf_version": self.tf_version}


@keras.saving.register_keras_serializable("keras_mp")
class RandomFlip(keras.layers.RandomFlip):
    """Flips each axis independently; Keras 3.15 flips both, or none.

    Args:
        mode: "horizontal", "vertical" or "horizontal_and_vertical".
        **options: Those of `keras.layers.RandomFlip`.

    Source: TF 2.15.1, keras/layers/preprocessing/image_preprocessing.py.

    >>> images = keras.ops.reshape(keras.ops.arange(4.0), (1, 2, 2, 1))
    >>> images = keras.ops.repeat(images, 99, axis=0)
    >>> flipped = keras.ops.convert_to_numpy(RandomFlip()(images, training=True))
    >>> len({tuple(image.ravel().tolist()) for image in flipped})
    4
    """

    def get_random_transformation(self, data: Any, training: Any = True, seed: Any = None) -> Any:
        """Returns which images are flipped, along the width and along the height."""
        found = super().get_random_transformation(data, training, seed)
        if found is not None and self.mode == "horizontal_and_vertical":
            found["along the height"] = super().get_random_transformation(data, training, seed)
        return found

    def transform_images(self, images: Any, transformation: Any, training: Any = True) -> Any:
        """Returns the images, some of them flipped, in the layer's compute dtype."""
        if not training or self.mode != "horizontal_and_vertical":
            return super().transform_images(images, transformation, training)
        images = self.backend.cast(images, self.compute_dtype)
        width = -1 if self.data_format == "channels_first" else -2
        for axis, of in ((width, transformation), (width - 1, transformation["along the height"])):
            flipped = self.backend.numpy.flip(images, axis=axis)
            images = self.backend.numpy.where(of["flips"], flipped, images)
        return images
