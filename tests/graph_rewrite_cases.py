"""Small models whose ops are painted: those of Grappler's recordings, and some only in Keras 3."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import keras
import numpy as np
from keras import layers, ops

# The programs that recorded the decisions build the models, there with tf.keras of TF 1.15.
SCRIPTS = Path(__file__).parent / "data" / "scripts" / "graph_rewrite"
sys.path.insert(0, str(SCRIPTS))
shim, fitted, unfitted, second_sight = (
    import_module(name) for name in ("shim", "fitted", "unfitted", "second_sight")
)
recurrent, recurrent_unfitted, recurrent_second_sight = (
    import_module(f"recurrent{name}") for name in ("", "_unfitted", "_second_sight")
)
sys.path.pop(0)

floats, integers, one_hot = shim.floats, shim.integers, shim.one_hot
BATCH = shim.BATCH


@dataclass(frozen=True)
class Built:
    """A model and a batch for it.

    Attributes:
        model: Not compiled.
        inputs: An array, or a list of them where the model has several inputs.
        targets: Likewise, of the outputs.
        loss: The loss of `compile`: a name, or a list of names.
    """

    model: keras.Model
    inputs: object
    targets: object
    loss: object


@dataclass(frozen=True)
class Case:
    name: str
    recipe: Callable[[], tuple]  # -> model, specs of inputs, specs of targets, losses

    def build(self, seed=0) -> Built:
        """Builds the model with weights and a batch that depend only on `seed`."""
        keras.utils.set_random_seed(seed)
        random = np.random.RandomState(seed)
        model, inputs, targets, losses = self.recipe()
        x, y = ([shim.example(spec, random) for spec in specs] for specs in (inputs, targets))
        return Built(model, one_or_list(x), one_or_list(y), one_or_list(losses))


def one_or_list(values):
    return values[0] if len(values) == 1 else values


def cases(recipes):
    return {name: Case(name, recipe) for name, recipe in recipes.items()}


def keras_3_models():
    """Models of layers that TF 1.15 lacks, or that its Grappler saw in another form."""
    K, L = keras, layers
    made = {}
    inp = shim.Shim(keras).input

    @shim.recipe(made)
    def mha_block():
        x = a = inp(12, 16)
        h = L.LayerNormalization(name="ln1")(x)
        h = L.MultiHeadAttention(2, 8, name="mha", flash_attention=False)(h, h)
        x = L.Add(name="add1")([x, h])
        h = L.LayerNormalization(name="ln2")(x)
        h = L.Dense(32, activation="gelu", name="ff1")(h)
        h = L.Dense(16, name="ff2")(h)
        x = L.Add(name="add2")([x, h])
        x = L.GlobalAveragePooling1D(name="gap")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(12, 16)], [one_hot(3)], ["categorical_crossentropy"]

    @shim.recipe(made)
    def recurrent():
        x = a = inp(6, 8)
        x = L.GRU(8, return_sequences=True, name="gru")(x)
        x = L.TimeDistributed(L.Dense(8, activation="relu", name="step"), name="each")(x)
        x = L.LSTM(8, name="lstm")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(6, 8)], [floats(1)], ["mse"]

    @shim.recipe(made)
    def masked_bidirectional():
        a = inp(6, dtype="int32")
        x = L.Embedding(20, 8, mask_zero=True, name="emb")(a)
        x = L.Bidirectional(L.LSTM(4, name="lstm"), name="both")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [integers(20, 6)], [floats(1)], ["mse"]

    @shim.recipe(made)
    def residual():
        x = a = inp(8, 8, 4)
        for i in (1, 2):
            h = L.Conv2D(4, 3, padding="same", name=f"c{i}")(x)
            h = L.BatchNormalization(name=f"bn{i}")(h)
            h = L.ReLU(name=f"r{i}")(h)
            h = L.Dropout(0.2, name=f"drop{i}")(h)
            x = L.Add(name=f"sum{i}")([x, h])
        x = L.GlobalAveragePooling2D(name="gap")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(8, 8, 4)], [one_hot(3)], ["categorical_crossentropy"]

    @shim.recipe(made)
    def nested():
        b = K.Input((16,))
        inner = K.Model(b, L.Dense(16, activation="tanh", name="d2")(L.Dense(16, name="d1")(b)))
        inner.name = "block"
        x = a = inp(16)
        x = inner(L.Dense(16, activation="relu", name="first")(x))
        x = K.Sequential([L.Dense(8, name="d1"), L.ReLU(name="relu")], name="tail")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(16)], [floats(1)], ["mse"]

    @shim.recipe(made)
    def shared():
        x = a = inp(16)
        d = L.Dense(16, activation="relu", name="twice")
        x = L.Dense(1, name="out")(d(d(x)))
        return K.Model(a, x), [floats(16)], [floats(1)], ["mse"]

    class Gate(L.Layer):
        def __init__(self, units, **options):
            super().__init__(**options)
            self.open, self.value = L.Dense(units, name="open"), L.Dense(units, name="value")

        def call(self, x):
            return ops.multiply(ops.sigmoid(self.open(x)), self.value(x))

    class Net(K.Model):
        def __init__(self, **options):
            super().__init__(**options)
            self.gates = [Gate(16, name="gate0"), Gate(8, name="gate1")]
            self.norm = L.BatchNormalization(name="norm")
            self.out = L.Dense(3, name="out")

        def call(self, x, training=False):
            for gate in self.gates:
                x = gate(x)
            return ops.softmax(self.out(self.norm(x, training=training)))

    @shim.recipe(made)
    def subclassed():
        model = Net(name="net")
        model(np.zeros((BATCH, 16), "float32"))
        return model, [floats(16)], [one_hot(3)], ["categorical_crossentropy"]

    return made


FITTED = cases(fitted.models(shim.Shim(keras)))
UNFITTED = cases(unfitted.models(shim.Shim(keras)))
SECOND_SIGHT = cases(second_sight.models(shim.Shim(keras)))
RECURRENT = cases(recurrent.models(shim.Shim(keras)))
RECURRENT_UNFITTED = cases(recurrent_unfitted.models(shim.Shim(keras)))
RECURRENT_SECOND_SIGHT = cases(recurrent_second_sight.models(shim.Shim(keras)))
SETS = {
    "fitted": FITTED,
    "unfitted": UNFITTED,
    "second_sight": SECOND_SIGHT,
    "recurrent": RECURRENT,
    "recurrent_unfitted": RECURRENT_UNFITTED,
    "recurrent_second_sight": RECURRENT_SECOND_SIGHT,
}
KERAS_3 = cases(keras_3_models())
ALL = FITTED | UNFITTED | KERAS_3
