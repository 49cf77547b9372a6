from common import *


class TokenAndPosition(layers.Layer):
    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.token = layers.Embedding(VOCAB, dim)
        self.position = layers.Embedding(SEQ_LEN, dim)

    def call(self, x):
        return self.token(x) + self.position(tf.range(SEQ_LEN))


def get_model(dim=16):
    policy = mixed_precision.global_policy()
    print("building with", policy.name)
    inp = keras.Input((SEQ_LEN,), dtype="int32")
    x = TokenAndPosition(dim)(inp)
    a = layers.MultiHeadAttention(num_heads=2, key_dim=8)(x, x)
    x = layers.LayerNormalization(epsilon=1e-6)(x + a)
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dense(16, activation="gelu")(x)
    # numerically stable in float32
    out = layers.Dense(2, activation="softmax", dtype="float32")(x)
    model = keras.Model(inp, out)
    model.set_weights([(rng.rand(*w.shape) - 0.5) * 0.5 if w.ndim > 1 else w
                       for w in model.get_weights()])
    return model
