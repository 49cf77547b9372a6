"""Five models that nobody looked at before the tables of ops were final: see `fitted.py`."""

from shim import bits, floats, integers, one_hot, recipe


def layers(shim):
    K = shim.keras
    L = K.layers

    class SqueezeExcite(L.Layer):
        """Weighs the channels of an image by a gate computed from their means."""

        def __init__(self, channels, **options):
            super().__init__(**options)
            self.down = L.Dense(channels // 2, activation="relu", name="down")
            self.up = L.Dense(channels, activation="sigmoid", name="up")

        def call(self, x):
            gate = self.up(self.down(shim.mean(x, axis=(1, 2))))
            return x * shim.expand_dims(shim.expand_dims(gate, 1), 1)

    class Highway(L.Layer):
        """t * h + (1 - t) * x, in operators."""

        def __init__(self, units, **options):
            super().__init__(**options)
            self.plain = L.Dense(units, name="plain")
            self.gate = L.Dense(units, name="gate")

        def call(self, x):
            t = shim.sigmoid(self.gate(x))
            return t * shim.tanh(self.plain(x)) + (1.0 - t) * x

    class AttentionPooling(L.Layer):
        """The mean of the steps, weighed by a softmax of their scores."""

        def __init__(self, **options):
            super().__init__(**options)
            self.score = L.Dense(1, use_bias=False, name="score")

        def call(self, x):
            weights = shim.softmax(shim.squeeze(self.score(x), -1))
            return shim.squeeze(shim.matmul(shim.expand_dims(weights, 1), x), 1)

    class Distance(L.Layer):
        """|a - b| of a pair."""

        def call(self, pair):
            a, b = pair
            return shim.abs(a - b)

    return SqueezeExcite, Highway, AttentionPooling, Distance


def models(shim):
    K, L = shim.keras, shim.keras.layers
    SqueezeExcite, Highway, AttentionPooling, Distance = layers(shim)
    made = {}

    @recipe(made)
    def residual_gated():
        x = a = shim.input(16, 16, 3)
        x = h = L.Conv2D(8, 3, padding="same", activation="relu", name="stem")(x)
        h = L.BatchNormalization(name="bn1")(h)
        h = L.ReLU(6.0, name="r1")(h)
        h = L.Conv2D(8, 3, padding="same", use_bias=False, name="c1")(h)
        h = L.BatchNormalization(name="bn2")(h)
        h = SqueezeExcite(8, name="se")(h)
        h = L.Dropout(0.25, name="drop1")(h)
        x = L.Add(name="sum")([x, h])
        x = L.ReLU(name="r2")(x)
        x = L.GlobalMaxPooling2D(name="gmp")(x)
        x = L.Dropout(0.5, name="drop2")(x)
        x = L.Dense(10, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(16, 16, 3)], [one_hot(10)], ["categorical_crossentropy"]

    @recipe(made)
    def branches():
        x = a = shim.input(12, 12, 3)
        x = L.ZeroPadding2D(2, name="pad")(x)
        x = L.DepthwiseConv2D(3, depth_multiplier=2, name="dw")(x)
        x = L.LeakyReLU(0.1, name="leaky")(x)
        p = L.Conv2D(4, 1, activation="softplus", name="b1")(x)
        q = L.Conv2D(4, 1, activation="elu", name="b2a")(x)
        q = L.Conv2D(6, 3, padding="same", name="b2b")(q)
        q = L.ELU(0.5, name="elu")(q)
        r = L.AveragePooling2D(3, strides=1, padding="same", name="avg")(x)
        r = L.Conv2D(4, 1, activation="softsign", name="b3")(r)
        s = L.MaxPooling2D(3, strides=1, padding="same", name="max")(x)
        x = L.Concatenate(name="cat")([p, q, r, s])
        x = L.SeparableConv2D(8, 3, activation="selu", name="sep")(x)
        x = L.AveragePooling2D(2, name="down")(x)
        x = L.Flatten(name="flat")(x)
        x = L.Dense(1, activation="sigmoid", name="out")(x)
        return K.Model(a, x), [floats(12, 12, 3)], [bits(1)], ["binary_crossentropy"]

    @recipe(made)
    def siamese():
        a, b = shim.input(16, name="left"), shim.input(16, name="right")
        first = L.Dense(32, activation="relu", name="first")
        drop = L.Dropout(0.2, name="drop")
        second = L.Dense(8, activation="tanh", name="second")
        left, right = (second(drop(first(side))) for side in (a, b))
        likeness = L.Dot(1, normalize=True, name="cosine")([left, right])
        product = L.Multiply(name="product")([left, right])
        distance = Distance(name="distance")([left, right])
        x = L.Concatenate(name="cat")([likeness, product, distance])
        x = L.Average(name="avg")([L.Dense(4, name="one")(x), L.Dense(4, name="other")(x)])
        x = L.Dense(1, activation="sigmoid", name="same")(x)
        return K.Model([a, b], x), [floats(16), floats(16)], [bits(1)], ["binary_crossentropy"]

    @recipe(made)
    def autoencoder():
        x = a = shim.input(16, 16, 1)
        x = L.Conv2D(4, 3, strides=2, padding="same", activation="relu", name="e1")(x)
        x = L.Conv2D(8, 3, strides=2, padding="same", name="e2")(x)
        x = L.BatchNormalization(name="bn")(x)
        x = L.Activation("tanh", name="code")(x)
        x = L.Permute((2, 1, 3), name="swap")(x)
        x = L.UpSampling2D(2, name="up")(x)
        x = L.Conv2D(4, 3, padding="same", activation="relu", name="d1")(x)
        x = L.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu", name="d2")(x)
        x = L.Cropping2D(1, name="crop")(x)
        x = L.ZeroPadding2D(1, name="pad")(x)
        x = L.Conv2D(1, 3, padding="same", activation="sigmoid", name="image")(x)
        return K.Model(a, x), [floats(16, 16, 1)], [floats(16, 16, 1)], ["mse"]

    @recipe(made)
    def text_highway():
        a = shim.input(12, dtype="int32")
        x = L.Embedding(40, 8, name="emb")(a)
        x = L.SpatialDropout1D(0.2, name="drop")(x)
        x = L.Conv1D(16, 3, padding="same", activation="relu", name="conv")(x)
        x = L.MaxPooling1D(2, name="pool")(x)
        x = Highway(16, name="highway")(x)
        x = L.LayerNormalization(name="norm")(x)
        x = AttentionPooling(name="attend")(x)
        x = L.Reshape((4, 4), name="blocks")(x)
        x = L.GlobalAveragePooling1D(name="gap")(x)
        x = L.Dense(3, name="logits")(x)
        x = L.Softmax(name="probs")(x)
        return K.Model(a, x), [integers(40, 12)], [one_hot(3)], ["categorical_crossentropy"]

    return made
