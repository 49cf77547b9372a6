"""Six models on whose decisions the tables of ops were tuned.

`models(shim)` maps a name to a function that returns (model, specs of the inputs, specs of the
targets, losses).
"""

from shim import floats, integers, one_hot, recipe


def layers(shim):
    Layer = shim.keras.layers.Layer

    class Gelu(Layer):
        def call(self, x):
            return 0.5 * x * (1.0 + shim.erf(x / 1.4142135))

    class SelfAttention(Layer):
        """softmax(q k^T / sqrt d) v of one head; q, k and v are given."""

        def call(self, qkv):
            q, k, v = qkv
            scores = shim.matmul(q, shim.transpose(k, (0, 2, 1))) * 0.25
            return shim.matmul(shim.softmax(scores), v)

    class LogExp(Layer):
        """log(1 + exp(x)), as it should not be written for float16."""

        def call(self, x):
            return shim.log(1.0 + shim.exp(x))

    class L2Normalize(Layer):
        def call(self, x):
            return x / shim.sqrt(shim.sum(x * x, axis=-1, keepdims=True) + 1e-6)

    return Gelu, SelfAttention, LogExp, L2Normalize


def models(shim):
    K, L = shim.keras, shim.keras.layers
    Gelu, SelfAttention, LogExp, L2Normalize = layers(shim)
    made = {}

    @recipe(made)
    def mlp_softmax():
        x = a = shim.input(16)
        x = L.Dense(32, activation="relu", name="d1")(x)
        x = L.Dense(32, activation="tanh", name="d2")(x)
        x = L.Dense(10, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(16)], [one_hot(10)], ["categorical_crossentropy"]

    @recipe(made)
    def convnet_bn():
        x = a = shim.input(16, 16, 3)
        x = L.Conv2D(8, 3, padding="same", use_bias=False, name="c1")(x)
        x = L.BatchNormalization(name="bn1")(x)
        x = L.Activation("relu", name="r1")(x)
        x = L.MaxPooling2D(2, name="mp1")(x)
        x = L.Conv2D(16, 3, padding="same", name="c2")(x)
        x = L.BatchNormalization(name="bn2")(x)
        x = L.Activation("relu", name="r2")(x)
        x = L.GlobalAveragePooling2D(name="gap")(x)
        x = L.Dense(10, name="fc")(x)
        x = L.Activation("softmax", name="probs")(x)
        return K.Model(a, x), [floats(16, 16, 3)], [one_hot(10)], ["categorical_crossentropy"]

    @recipe(made)
    def transformer_block():
        x = a = shim.input(12, 16)
        h = L.LayerNormalization(name="ln1")(x)
        q = L.Dense(16, name="q")(h)
        k = L.Dense(16, name="k")(h)
        v = L.Dense(16, name="v")(h)
        h = SelfAttention(name="attn")([q, k, v])
        h = L.Dense(16, name="proj")(h)
        x = L.Add(name="add1")([x, h])
        h = L.LayerNormalization(name="ln2")(x)
        h = L.Dense(32, name="ff1")(h)
        h = Gelu(name="gelu")(h)
        h = L.Dense(16, name="ff2")(h)
        x = L.Add(name="add2")([x, h])
        x = L.Dense(4, name="head")(x)
        return K.Model(a, x), [floats(12, 16)], [floats(12, 4)], ["mse"]

    @recipe(made)
    def embedding_flatten():
        a = shim.input(10, dtype="int32")
        x = L.Embedding(50, 16, name="emb")(a)
        x = L.Flatten(name="flat")(x)
        x = L.Dense(16, activation="elu", name="d1")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [integers(50, 10)], [floats(1)], ["mse"]

    @recipe(made)
    def two_output():
        x = a = shim.input(16)
        x = L.Dense(32, activation="relu", name="trunk")(x)
        y = L.Dense(32, activation="relu", name="h1")(x)
        c = L.Dense(5, activation="softmax", name="cls")(y)
        r = L.Dense(1, name="reg")(L.Concatenate(name="cat")([x, y]))
        targets = [one_hot(5), floats(1)]
        return K.Model(a, [c, r]), [floats(16)], targets, ["categorical_crossentropy", "mse"]

    @recipe(made)
    def logexp_middle():
        x = a = shim.input(16)
        x = L.Dense(32, name="d1")(x)
        x = LogExp(name="logexp")(x)
        x = L.Dense(32, name="d2")(x)
        x = L2Normalize(name="l2n")(x)
        x = L.ReLU(name="relu")(x)
        x = L.Dense(4, name="out")(x)
        return K.Model(a, x), [floats(16)], [floats(4)], ["mse"]

    return made
