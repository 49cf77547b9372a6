"""What is trained, built: models and batches of the sizes, under each policy."""

from typing import Any

import numpy as np

from benchmarks.on_a_gpu.sizes import Images, Size, Work


def model_of(work: Work) -> Any:
    """Returns the model, under the policy that holds; its logits are float32."""
    return decoder(work) if isinstance(work, Size) else net(work)


def batch_of(work: Work) -> tuple[Any, Any]:
    """Returns a batch: tokens, and those that follow; or images, and their classes."""
    random = np.random.default_rng(0)
    if isinstance(work, Size):
        drawn = random.integers(
            work.vocabulary, size=(work.batch, work.sequence + 1), dtype="int32"
        )
        return drawn[:, :-1].copy(), drawn[:, 1:].copy()
    x = random.standard_normal((work.batch, work.side, work.side, 3), "float32")
    return x, random.integers(work.classes, size=(work.batch,), dtype="int32")


def decoder(size: Size) -> Any:
    import keras
    from keras import layers, ops

    class Tied(layers.Layer):  # type: ignore[misc]
        """Embeds tokens and their places, and tells tokens by the same table."""

        def build(self, _: Any) -> None:
            def table(rows: int, name: str) -> Any:
                normal = keras.initializers.RandomNormal()
                return self.add_weight((rows, size.width), normal, name=name)

            self.tokens = table(size.vocabulary, "tokens")
            self.places = table(size.sequence, "places")

        def call(self, x: Any, reverse: bool = False) -> Any:
            if reverse:
                return ops.matmul(x, ops.transpose(ops.cast(self.tokens, x.dtype)))
            return ops.take(self.tokens, x, axis=0) + ops.convert_to_tensor(self.places)

        def compute_output_spec(self, x: Any, reverse: bool = False) -> Any:
            last = size.vocabulary if reverse else size.width
            return keras.KerasTensor((*x.shape[:2], last), self.compute_dtype)

    tied = Tied()
    inputs = keras.Input((size.sequence,), dtype="int32")
    x = tied(inputs)
    for _ in range(size.blocks):
        y = layers.LayerNormalization()(x)
        attention = layers.MultiHeadAttention(size.heads, size.width // size.heads)
        x = layers.Add()([x, attention(y, y, use_causal_mask=True)])
        y = layers.Dense(4 * size.width, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(size.width)(y)])
    logits = tied(layers.LayerNormalization()(x), reverse=True)
    return keras.Model(inputs, layers.Activation("linear", dtype="float32")(logits))


def net(images: Images) -> Any:
    import keras

    shape = (images.side, images.side, 3)
    if images.blocks:
        body = keras.applications.ResNet50(
            include_top=False, weights=None, input_shape=shape, pooling="avg"
        )
    else:
        convolutions = [keras.layers.Conv2D(8, 3, activation="relu") for _ in range(3)]
        pooled = [keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D()]
        body = keras.Sequential([keras.Input(shape), *convolutions, *pooled])
    logits = keras.layers.Dense(images.classes, dtype="float32")
    return keras.Sequential([keras.Input(shape), body, logits])
