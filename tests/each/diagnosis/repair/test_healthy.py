"""Trainings that are healthy end bit for bit as without `PrecisionRepair`."""

import keras
import numpy as np
import pytest
from keras import applications, layers, ops

from keras_mp import LossScaleOptimizer, PrecisionRepair, demo
from tests.backends import on
from tests.several_faults import Block

BATCH, STEPS, SKIPS, BAD = 2, 8, 3, 4


def head(units=3):
    return layers.Dense(units, dtype="float32", name="head")


def model_of(shape, *stack, dtype="float32"):
    inputs = h = keras.Input(shape, dtype=dtype)
    for layer in stack:
        h = layer(h)
    return keras.Model(inputs, head()(h))


def residual():
    inputs = keras.Input((8, 8, 3))
    h = layers.Conv2D(4, 3, padding="same")(inputs)
    for _ in range(2):
        side = layers.BatchNormalization()(h)
        side = layers.Conv2D(4, 3, padding="same", use_bias=False)(layers.ReLU()(side))
        h = layers.Add()([h, side])
    return keras.Model(inputs, head()(layers.GlobalAveragePooling2D()(h)))


def u_net():
    inputs = keras.Input((8, 8, 3))
    down = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    h = layers.Conv2D(4, 3, padding="same")(layers.MaxPooling2D()(down))
    h = layers.Concatenate()([down, layers.Conv2DTranspose(4, 2, strides=2)(h)])
    return keras.Model(inputs, head()(layers.GlobalAveragePooling2D()(h)))


def inception():
    inputs = keras.Input((8, 8, 3))
    sides = [layers.Conv2D(2, size, padding="same")(inputs) for size in (1, 3, 5)]
    h = layers.LayerNormalization()(layers.Concatenate()(sides))
    return keras.Model(inputs, head()(layers.Flatten()(h)))


def mixer():
    inputs = keras.Input((8, 4))
    h = layers.LayerNormalization()(inputs)
    h = layers.Permute((2, 1))(layers.Dense(8, activation="gelu")(layers.Permute((2, 1))(h)))
    h = layers.Add()([inputs, layers.Dense(4, activation="gelu")(h)])
    return keras.Model(inputs, head()(layers.GlobalAveragePooling1D()(h)))


def attention():
    # Without dropout JAX has one op for it, which float16 does not have on a CPU.
    return layers.MultiHeadAttention(2, 2, dropout=0.1)


def masked():
    inputs = keras.Input((6,), dtype="int32")
    h = layers.Embedding(9, 4, mask_zero=True)(inputs)
    h = attention()(h, h)
    h = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(h))
    return keras.Model(inputs, head()(h))


def causal():
    inputs = keras.Input((6,), dtype="int32")
    h = layers.Embedding(9, 4)(inputs)
    h = layers.Add()([h, attention()(h, h, use_causal_mask=True)])
    h = layers.LayerNormalization()(layers.Dense(4, activation="gelu")(h))
    return keras.Model(inputs, head()(layers.Flatten()(h)))


def gated_experts():
    inputs = keras.Input((4,))
    gate = layers.Dense(2, activation="softmax")(inputs)
    experts = [layers.Dense(4, activation="silu")(inputs) for _ in range(2)]
    h = layers.Dot(1)([gate, layers.Reshape((2, 4))(layers.Concatenate()(experts))])
    return keras.Model(inputs, head()(h))


def autoencoder():
    squeeze = [layers.Dense(2, activation="tanh"), layers.GaussianNoise(0.1), layers.Dense(4)]
    return model_of((4,), *squeeze)


def squeeze_and_excite():
    inputs = keras.Input((8, 8, 3))
    h = layers.DepthwiseConv2D(3, depth_multiplier=2)(inputs)
    weights = layers.GlobalAveragePooling2D(keepdims=True)(h)
    weights = layers.Conv2D(6, 1, activation="hard_sigmoid")(weights)
    h = layers.Activation("hard_silu")(layers.Multiply()([h, weights]))
    return keras.Model(inputs, head()(layers.GlobalMaxPooling2D()(h)))


def mobile_net():
    shape = {"input_shape": (32, 32, 3), "weights": None, "classes": 3}
    return applications.MobileNet(**shape, alpha=0.25, classifier_activation=None)


MODELS = {
    "dense": lambda: model_of((4,), layers.Dense(4, activation="relu"), layers.Dropout(0.5)),
    "demo": lambda: demo._model(keras),
    "convolutions": lambda: model_of(
        (8, 8, 3), layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(), layers.Flatten()
    ),
    "separable": lambda: model_of(
        (8, 8, 3), layers.SeparableConv2D(4, 3), layers.GroupNormalization(2), layers.Flatten()
    ),
    "dilated": lambda: model_of(
        (8, 4), layers.Conv1D(4, 2, padding="causal", dilation_rate=2), layers.Flatten()
    ),
    "residual": residual,
    "U-Net": u_net,
    "inception": inception,
    "mixer": mixer,
    "GRU": lambda: model_of((6, 4), layers.GRU(4)),
    "LSTM": lambda: model_of((6, 4), layers.Bidirectional(layers.LSTM(3))),
    "time distributed": lambda: model_of(
        (6, 4), layers.TimeDistributed(layers.Dense(3)), layers.SimpleRNN(3)
    ),
    "masked attention": masked,
    "causal attention": causal,
    "bag of words": lambda: model_of(
        (6,),
        layers.Embedding(9, 4),
        layers.GlobalAveragePooling1D(),
        layers.Dense(4),
        dtype="int32",
    ),
    "vision transformer": lambda: model_of(
        (8, 8, 3), layers.Conv2D(4, 4, 4), layers.Reshape((4, 4)), Block(4), layers.Flatten()
    ),
    "experts": gated_experts,
    "autoencoder": autoencoder,
    "squeeze and excite": squeeze_and_excite,
    "MobileNet": mobile_net,
}


def trained(name, *callbacks):
    """Returns all numbers that a training ends with; one batch is not finite where it can be."""
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    (inputs,) = model.inputs
    draw = np.random.default_rng(0)
    x = draw.normal(size=(STEPS * BATCH, *inputs.shape[1:])).astype("float32")
    if inputs.dtype == "int32":
        x = draw.integers(0, 9, x.shape)
    else:
        x[BAD * BATCH] = np.nan
    optimizer = LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=16.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=name != "demo")
    # XLA takes long, on TensorFlow; test_callback.py has it.
    jit = False if keras.backend.backend() == "tensorflow" else "auto"
    model.compile(optimizer, loss, jit_compile=jit)
    y = draw.integers(0, 3, len(x))
    model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=list(callbacks))
    held = [v for v in optimizer.variables if "seed" not in v.name]
    return [ops.convert_to_numpy(v) for v in (*model.weights, *held)], optimizer


@pytest.mark.usefixtures("mixed_float16")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=on("torch") if name == "MobileNet" else ())  # it compiles long
        for name in MODELS
    ],
)
def test_never_touches_a_healthy_training(name):
    repair = PrecisionRepair(skips=SKIPS)
    (alone, _), (watched, optimizer) = trained(name), trained(name, repair)
    assert int(optimizer.skipped_steps) <= 1
    for mine, theirs in zip(watched, alone, strict=True):
        assert np.array_equal(mine, theirs, equal_nan=True)
    assert (len(repair.repairs), repair.repairs.verdict) == (0, None)
