"""Models with layers that call TensorFlow's own functions, as most models of tf.keras do.

Decisions about them were compared when all were made: see `test_tf_ops.py`.
"""

import tensorflow as tf
from shim import floats, one_hot, recipe

NEAREST = tf.image.ResizeMethod.NEAREST_NEIGHBOR


def layers(shim):
    Layer = shim.keras.layers.Layer

    class Weighted(Layer):
        """A layer with a weight for each shape of `shapes`."""

        def __init__(self, *shapes, **kwargs):
            Layer.__init__(self, **kwargs)
            self.shapes = shapes

        def build(self, shape):
            weights = [
                self.add_weight(name=f"w{i}", shape=s, initializer="glorot_uniform")
                for i, s in enumerate(self.shapes)
            ]
            self.w = weights
            self.built = True

    return Layer, Weighted


def models(shim):
    K, L = shim.keras, shim.keras.layers
    Layer, Weighted = layers(shim)
    made = {}

    class Conv(Weighted):
        def call(self, x):
            x = tf.nn.conv2d(x, tf.convert_to_tensor(self.w[0]), [1, 1, 1, 1], "SAME")
            return tf.nn.relu(tf.nn.bias_add(x, tf.convert_to_tensor(self.w[1])))

    class Down(Layer):
        def call(self, x):
            return tf.nn.max_pool2d(x, 2, 2, "SAME")

    class Up(Weighted):
        def call(self, inputs):
            x, beside = inputs
            to = [8, 2 * x.shape[1], 2 * x.shape[2], self.shapes[0][2]]
            w = tf.convert_to_tensor(self.w[0])
            x = tf.nn.conv2d_transpose(x, w, to, [1, 2, 2, 1], "SAME")
            return tf.concat([x, beside], -1)

    class Attention(Weighted):
        def call(self, x):
            q, k, v = (tf.einsum("btd,dhk->bthk", x, tf.convert_to_tensor(w)) for w in self.w[:3])
            s = tf.einsum("bthk,bshk->bhts", q, k) / tf.sqrt(4.0)
            x = tf.einsum("bhts,bshk->bthk", tf.nn.softmax(s), v)
            return tf.einsum("bthk,hkd->btd", x, tf.convert_to_tensor(self.w[3]))

    class Normalize(Weighted):
        def call(self, x):
            mean, variance = tf.nn.moments(x, [0, 1, 2])
            scale, offset = (tf.convert_to_tensor(w) for w in self.w)
            return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)

    class Products(Weighted):
        def call(self, x):
            h = tf.tanh(tf.matmul(x, tf.convert_to_tensor(self.w[0])))
            h = tf.nn.bias_add(h, tf.convert_to_tensor(self.w[1]))
            return tf.add(x, tf.matmul(h, tf.convert_to_tensor(self.w[2])))

    class NormalizeLast(Layer):
        def call(self, x):
            mean = tf.reduce_mean(x, -1, keepdims=True)
            variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
            return (x - mean) * tf.math.rsqrt(variance + 1e-3)

    class Inside(Weighted):
        def call(self, x):
            w, v = (tf.convert_to_tensor(each) for each in self.w)

            @tf.function
            def gated(x, w):
                h = tf.matmul(x, w)
                return tf.sigmoid(h) * tf.tanh(h)

            return tf.matmul(gated(x, w), v)

    class Chosen(Weighted):
        def call(self, x):
            w, v = (tf.convert_to_tensor(each) for each in self.w)
            return tf.cond(
                tf.reduce_sum(x) > 0.0,
                lambda: tf.nn.relu(tf.matmul(x, w)),
                lambda: tf.exp(tf.matmul(x, v)),
            )

    class Elementwise(Weighted):
        def call(self, x):
            w, v = (tf.convert_to_tensor(each) for each in self.w)
            h = tf.nn.leaky_relu(tf.matmul(x, w))
            h = tf.math.log1p(tf.abs(h)) - tf.reduce_max(h, -1, keepdims=True)
            h = tf.nn.elu(tf.matmul(h, v))
            return tf.clip_by_value(tf.maximum(h, 0.1), 0.0, 6.0)

    class Gathered(Weighted):
        def call(self, x):
            w = tf.convert_to_tensor(self.w[0])
            h = tf.transpose(tf.reshape(tf.matmul(x, w), [-1, 4, 8]), [0, 2, 1])
            a, b = tf.split(h, 2, axis=1)
            h = tf.stack([a, tf.nn.softplus(b)], axis=1)
            return tf.reshape(tf.tile(h, [1, 1, 1, 2]), [-1, 64])

    class Resized(Weighted):
        def call(self, x):
            x = tf.image.resize(x, [16, 16], method=NEAREST)
            x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
            x = tf.nn.conv2d(x, tf.convert_to_tensor(self.w[0]), [1, 2, 2, 1], "VALID")
            return tf.nn.relu6(x)

    class Pooled(Layer):
        def call(self, x):
            x = tf.nn.avg_pool2d(x, 2, 2, "VALID")
            return tf.math.log(tf.reduce_mean(tf.square(x), [1, 2]) + 1e-3)

    @recipe(made)
    def tf_unet():
        x = a = shim.input(8, 8, 3)
        x = one = Conv((3, 3, 3, 8), (8,), name="conv1")(x)
        x = Down(name="down1")(x)
        x = two = Conv((3, 3, 8, 16), (16,), name="conv2")(x)
        x = Conv((3, 3, 16, 16), (16,), name="conv3")(Down(name="down2")(x))
        x = Conv((3, 3, 32, 16), (16,), name="conv4")(Up((2, 2, 16, 16), name="up1")([x, two]))
        x = Conv((3, 3, 16, 8), (8,), name="conv5")(Up((2, 2, 8, 16), name="up2")([x, one]))
        x = L.Conv2D(1, 1, name="out")(x)
        return K.Model(a, x), [floats(8, 8, 3)], [floats(8, 8, 1)], ["mse"]

    @recipe(made)
    def attention():
        x = a = shim.input(6, 16)
        x = L.Dense(16, name="first")(x)
        shapes = [(16, 4, 4)] * 3 + [(4, 4, 16)]
        h = Attention(*shapes, name="attention")(x)
        x = L.Add(name="sum")([x, h])
        x = L.Dense(4, name="out")(x)
        return K.Model(a, x), [floats(6, 16)], [floats(6, 4)], ["mse"]

    @recipe(made)
    def own_batch_norm():
        x = a = shim.input(8, 8, 3)
        x = L.Conv2D(8, 3, padding="same", use_bias=False, name="c1")(x)
        x = L.ReLU(name="r1")(Normalize((8,), (8,), name="n1")(x))
        x = L.Conv2D(8, 3, padding="same", use_bias=False, name="c2")(x)
        x = L.ReLU(name="r2")(Normalize((8,), (8,), name="n2")(x))
        x = L.GlobalAveragePooling2D(name="pool")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(8, 8, 3)], [one_hot(3)], ["categorical_crossentropy"]

    @recipe(made)
    def mixture():
        x = a = shim.input(16)
        x = L.Dense(16, activation="relu", name="d1")(x)
        x = Products((16, 16), (16,), (16, 16), name="own1")(x)
        x = L.Dense(16, activation="relu", name="d2")(NormalizeLast(name="norm")(x))
        x = Products((16, 16), (16,), (16, 16), name="own2")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(16)], [floats(1)], ["mse"]

    @recipe(made)
    def functions():
        x = a = shim.input(16)
        x = L.Dense(16, activation="relu", name="d1")(x)
        x = Inside((16, 16), (16, 16), name="own")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(16)], [floats(1)], ["mse"]

    @recipe(made)
    def conditional():
        x = a = shim.input(16)
        x = L.Dense(16, activation="relu", name="d1")(x)
        x = Chosen((16, 16), (16, 16), name="own")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(16)], [floats(1)], ["mse"]

    @recipe(made)
    def elementwise():
        x = a = shim.input(16)
        x = L.Dense(16, name="d1")(x)
        x = Elementwise((16, 32), (32, 16), name="own")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(16)], [one_hot(3)], ["categorical_crossentropy"]

    @recipe(made)
    def shapes():
        x = a = shim.input(16)
        x = L.Dense(16, activation="tanh", name="d1")(x)
        x = Gathered((16, 32), name="own")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(16)], [floats(1)], ["mse"]

    @recipe(made)
    def images():
        x = a = shim.input(8, 8, 3)
        x = L.Conv2D(4, 3, padding="same", name="c1")(x)
        x = Resized((3, 3, 4, 8), name="own")(x)
        x = Pooled(name="pool")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(8, 8, 3)], [one_hot(3)], ["categorical_crossentropy"]

    return made
