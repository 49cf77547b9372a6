"""Five recurrent models on whose decisions the recording of loops was tuned.

As `fitted.py`: `models(shim)` maps a name to a function that returns (model, specs of the inputs,
specs of the targets, losses).
"""

from shim import floats, integers, one_hot, recipe


def models(shim):
    K, L = shim.keras, shim.keras.layers
    made = {}

    @recipe(made)
    def lstm_last():
        x = a = shim.input(12, 8)
        x = shim.lstm(16, name="lstm")(x)
        x = L.Dense(5, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(12, 8)], [one_hot(5)], ["categorical_crossentropy"]

    @recipe(made)
    def gru_sequence():
        x = a = shim.input(12, 8)
        x = L.Dense(8, activation="relu", name="before")(x)
        x = shim.gru(16, return_sequences=True, name="gru")(x)
        x = L.Dense(4, name="after")(x)
        return K.Model(a, x), [floats(12, 8)], [floats(12, 4)], ["mse"]

    @recipe(made)
    def simple_stacked():
        x = a = shim.input(10, 8)
        x = L.SimpleRNN(16, return_sequences=True, name="first")(x)
        x = L.SimpleRNN(8, activation="relu", name="second")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(10, 8)], [floats(1)], ["mse"]

    @recipe(made)
    def text_bidirectional():
        a = shim.input(10, dtype="int32")
        x = L.Embedding(50, 16, name="emb")(a)
        x = L.Bidirectional(shim.lstm(8, name="both"), name="bi")(x)
        x = L.Dense(8, activation="relu", name="hidden")(x)
        x = L.Dense(1, activation="sigmoid", name="out")(x)
        return K.Model(a, x), [integers(50, 10)], [floats(1)], ["mse"]

    @recipe(made)
    def conv_lstm():
        x = a = shim.input(5, 8, 8, 3)
        x = shim.conv_lstm(4, 3, padding="same", name="frames")(x)
        x = L.GlobalAveragePooling2D(name="gap")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(5, 8, 8, 3)], [one_hot(3)], ["categorical_crossentropy"]

    return made
