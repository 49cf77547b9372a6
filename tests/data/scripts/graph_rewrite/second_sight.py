"""Six models made after what those of `unfitted.py` had shown was repaired: see `fitted.py`."""

from shim import BATCH, bits, floats, integers, one_hot, recipe


def layers(shim):
    L = shim.keras.layers

    class HardSwish(L.Layer):
        """x * relu6(x + 3) / 6, as MobileNetV3 has it."""

        def __init__(self, **options):
            super().__init__(**options)
            self.relu6 = L.ReLU(6.0, name="relu6")

        def call(self, x):
            return x * (self.relu6(x + 3.0) * (1.0 / 6.0))

    class Interactions(L.Layer):
        """The products of all pairs of fields, summed: of a factorization machine."""

        def call(self, x):
            of_sum = shim.square(shim.sum(x, axis=1))
            of_squares = shim.sum(shim.square(x), axis=1)
            return 0.5 * shim.sum(of_sum - of_squares, axis=1, keepdims=True)

    class Divergence(L.Layer):
        """Adds the distance to a standard normal distribution to the loss."""

        def call(self, distribution):
            mean, log_variance = distribution
            inside = 1.0 + log_variance - shim.square(mean) - shim.exp(log_variance)
            self.add_loss(-0.5 * 1e-3 * shim.mean(shim.sum(inside, axis=-1)))
            return mean

    class Sample(L.Layer):
        """mean + sigma * noise; the noise is given."""

        def call(self, inputs):
            mean, log_variance, noise = inputs
            return mean + shim.exp(0.5 * log_variance) * noise

    class LastStep(L.Layer):
        def call(self, x):
            return x[:, -1, :]

    class Positions(L.Layer):
        """Scales the embedding and adds a weight for each position."""

        def build(self, shape):
            self.table = self.add_weight(
                name="table", shape=(1, shape[1], shape[2]), initializer="uniform"
            )
            super().build(shape)

        def call(self, x):
            return x * 4.0 + self.table

    class MultiHead(L.Layer):
        """Attention of several heads, with a mask of the steps: 1 is looked at, 0 is not."""

        def __init__(self, heads, depth, **options):
            super().__init__(**options)
            self.heads, self.depth = heads, depth
            self.q, self.k, self.v, self.merge = (
                L.Dense(heads * depth, name=name) for name in ("q", "k", "v", "merge")
            )

        def split(self, x):
            x = shim.reshape(x, (BATCH, -1, self.heads, self.depth))
            return shim.transpose(x, (0, 2, 1, 3))

        def call(self, inputs):
            x, mask = inputs
            q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
            logits = shim.matmul(q, shim.transpose(k, (0, 1, 3, 2))) / self.depth**0.5
            logits = logits + (1.0 - mask[:, None, None, :]) * -1e9
            heads = shim.transpose(shim.matmul(shim.softmax(logits), v), (0, 2, 1, 3))
            return self.merge(shim.reshape(heads, (BATCH, -1, self.heads * self.depth)))

    class MaskedMean(L.Layer):
        def call(self, inputs):
            x, mask = inputs
            weights = shim.expand_dims(mask, -1)
            return shim.sum(x * weights, axis=1) / (shim.sum(weights, axis=1) + 1e-3)

    made = (HardSwish, Interactions, Divergence, Sample, LastStep, Positions, MultiHead, MaskedMean)
    return {cls.__name__: cls for cls in made}


def models(shim):
    K, L = shim.keras, shim.keras.layers
    own = layers(shim)
    made = {}

    def swish(x):
        return x * shim.sigmoid(x)

    def mish(x):
        return x * shim.tanh(shim.softplus(x))

    @recipe(made)
    def unet():
        x = a = shim.input(20, 20, 1)
        x = L.Conv2D(4, 3, activation="relu", name="down1a")(x)
        x = skip1 = L.Conv2D(4, 3, activation="relu", name="down1b")(x)
        x = L.MaxPooling2D(2, name="pool")(x)
        x = L.Conv2D(8, 3, name="down2a")(x)
        x = L.PReLU(shared_axes=[1, 2], name="prelu")(x)
        x = L.Conv2D(8, 3, activation="relu", name="down2b")(x)
        x = L.Dropout(0.5, name="drop")(x)
        x = L.Conv2DTranspose(4, 2, strides=2, name="up1")(x)
        x = L.Concatenate(name="join1")([L.Cropping2D(4, name="crop1")(skip1), x])
        x = L.Conv2D(8, 3, use_bias=False, name="up1a")(x)
        x = L.BatchNormalization(name="bn1")(x)
        x = L.Activation("relu", name="r1")(x)
        x = L.UpSampling2D(2, interpolation="bilinear", name="up2")(x)
        x = L.Concatenate(name="join2")([L.Cropping2D(2, name="crop2")(skip1), x])
        x = L.Conv2D(4, 3, padding="same", activation="relu", name="up2a")(x)
        x = L.Conv2D(1, 1, activation="sigmoid", name="mask")(x)
        return K.Model(a, x), [floats(20, 20, 1)], [bits(12, 12, 1)], ["binary_crossentropy"]

    @recipe(made)
    def mobilenet():
        x = a = shim.input(17, 17, 3)
        x = L.ZeroPadding2D(((0, 1), (0, 1)), name="pad")(x)
        x = L.Conv2D(8, 3, strides=2, use_bias=False, name="stem")(x)
        x = L.BatchNormalization(name="bn0")(x)
        x = block = own["HardSwish"](name="hswish0")(x)
        x = L.Conv2D(16, 1, padding="same", use_bias=False, name="expand")(x)
        x = L.BatchNormalization(momentum=0.9, name="bn1")(x)
        x = L.ReLU(6.0, name="r1")(x)
        x = L.DepthwiseConv2D(3, padding="same", use_bias=False, name="depthwise")(x)
        x = wide = L.BatchNormalization(scale=False, name="bn2")(x)
        gate = L.GlobalAveragePooling2D(name="squeeze")(x)
        gate = L.Reshape((1, 1, 16), name="as_image")(gate)
        gate = L.Conv2D(4, 1, activation="relu", name="reduce")(gate)
        gate = L.Conv2D(16, 1, activation="hard_sigmoid", name="gate")(gate)
        x = L.Multiply(name="excite")([wide, gate])
        x = L.ReLU(6.0, name="r2")(x)
        x = L.Conv2D(8, 1, padding="same", use_bias=False, name="project")(x)
        x = L.BatchNormalization(name="bn3")(x)
        x = L.Add(name="residual")([block, x])
        x = L.GlobalAveragePooling2D(name="gap")(x)
        x = L.Reshape((1, 1, 8), name="pixel")(x)
        x = L.Conv2D(16, 1, activation=swish, name="head")(x)
        x = L.Dropout(0.2, name="drop")(x)
        x = L.Conv2D(5, 1, name="logits")(x)
        x = L.Reshape((5,), name="flat")(x)
        x = L.Activation("softmax", name="probs")(x)
        return K.Model(a, x), [floats(17, 17, 3)], [one_hot(5)], ["categorical_crossentropy"]

    @recipe(made)
    def wide_deep():
        l2 = K.regularizers.l2(1e-3)
        user, item = (shim.input(1, name=name, dtype="int32") for name in ("user", "item"))
        tags = shim.input(4, name="tags", dtype="int32")
        numbers = shim.input(6, name="numbers")
        u = L.Embedding(30, 8, embeddings_regularizer=l2, name="users")(user)
        i = L.Embedding(20, 8, embeddings_regularizer=l2, name="items")(item)
        t = L.Embedding(12, 8, name="tag_factors")(tags)
        fields = L.Concatenate(axis=1, name="fields")([u, i, t])
        pairs = own["Interactions"](name="pairs")(fields)
        matched = L.Multiply(name="matched")([L.Flatten(name="u")(u), L.Flatten(name="i")(i)])
        x = L.Concatenate(name="deep")([L.Flatten(name="all")(fields), numbers])
        x = L.BatchNormalization(name="bn")(x)
        x = L.Dense(16, activation="relu", kernel_regularizer=l2, name="d1")(x)
        x = L.Dropout(0.3, name="drop")(x)
        x = L.Dense(8, activation=swish, kernel_regularizer=l2, name="d2")(x)
        x = L.Concatenate(name="both")([x, matched])
        deep = L.Dense(1, name="score")(x)
        wide = L.Embedding(12, 1, name="tag_weights")(tags)
        wide = L.Dense(1, use_bias=False, name="wide")(L.Flatten(name="t")(wide))
        x = L.Add(name="sum")([deep, wide, pairs])
        x = L.Activation("sigmoid", name="click")(x)
        inputs = [user, item, tags, numbers]
        specs = [integers(30, 1), integers(20, 1), integers(12, 4), floats(6)]
        return K.Model(inputs, x), specs, [bits(1)], ["binary_crossentropy"]

    @recipe(made)
    def vae():
        x = a = shim.input(12, 12, 1, name="image")
        noise = shim.input(4, name="noise")
        x = L.Conv2D(4, 3, strides=2, padding="same", name="conv")(x)
        x = L.LeakyReLU(0.2, name="leaky")(x)
        x = L.Flatten(name="flat")(x)
        x = L.Dense(16, activation="relu", name="enc")(x)
        mean = L.Dense(4, name="mean")(x)
        log_variance = L.Dense(4, name="log_variance")(x)
        clip = L.Lambda(lambda x: shim.clip(x, -6.0, 2.0), name="clip")
        log_variance = clip(log_variance)
        mean = own["Divergence"](name="divergence")([mean, log_variance])
        x = own["Sample"](name="sample")([mean, log_variance, noise])
        x = L.Dense(36, activation="elu", name="dec")(x)
        x = L.Reshape((6, 6, 1), name="grid")(x)
        x = L.Conv2DTranspose(4, 3, strides=2, padding="same", use_bias=False, name="up")(x)
        x = L.BatchNormalization(name="bn")(x)
        x = L.ReLU(name="relu")(x)
        x = L.Conv2DTranspose(1, 3, padding="same", activation="sigmoid", name="out")(x)
        specs = [floats(12, 12, 1), floats(4)]
        return K.Model([a, noise], x), specs, [floats(12, 12, 1)], ["mse"]

    @recipe(made)
    def temporal():
        x = a = shim.input(16, 3)
        skips = []
        x = L.Conv1D(8, 1, padding="causal", name="first")(x)
        for i in (1, 2, 4):
            f = L.Conv1D(8, 2, dilation_rate=i, padding="causal", name=f"filter{i}")(x)
            g = L.Conv1D(8, 2, dilation_rate=i, padding="causal", name=f"gate{i}")(x)
            f = L.Activation("tanh", name=f"tanh{i}")(f)
            g = L.Activation("sigmoid", name=f"sigmoid{i}")(g)
            h = L.Multiply(name=f"gated{i}")([f, g])
            h = L.SpatialDropout1D(0.1, name=f"drop{i}")(h)
            h = L.Conv1D(8, 1, name=f"mix{i}")(h)
            skips.append(h)
            x = L.Add(name=f"residual{i}")([x, h])
        x = L.Add(name="skips")(skips)
        x = L.ReLU(name="relu")(x)
        x = L.Conv1D(4, 3, strides=2, padding="causal", activation="relu", name="last")(x)
        x = L.AveragePooling1D(2, name="pool")(x)
        x = own["LastStep"](name="step")(x)
        x = L.Dense(1, activation="softplus", name="rate")(x)
        return K.Model(a, x), [floats(16, 3)], [floats(1)], ["poisson"]

    @recipe(made)
    def masked_attention():
        a = shim.input(10, name="ids", dtype="int32")
        mask = shim.input(10, name="steps")
        x = L.Embedding(40, 16, name="emb")(a)
        x = own["Positions"](name="positions")(x)
        x = L.Dropout(0.1, name="drop1")(x)
        h = own["MultiHead"](2, 8, name="heads")([x, mask])
        h = L.Dropout(0.1, name="drop2")(h)
        x = L.Add(name="add1")([x, h])
        x = L.LayerNormalization(epsilon=1e-6, name="norm1")(x)
        h = L.Dense(32, activation=mish, name="ff1")(x)
        h = L.Dense(16, name="ff2")(h)
        x = L.Add(name="add2")([x, h])
        x = L.LayerNormalization(epsilon=1e-6, name="norm2")(x)
        x = own["MaskedMean"](name="pool")([x, mask])
        x = L.Dense(8, activation="tanh", name="pooler")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        specs = [integers(40, 10), bits(10)]
        return K.Model([a, mask], x), specs, [one_hot(3)], ["categorical_crossentropy"]

    return made
