"""Six recurrent models made after what the unfitted ones had shown was repaired."""

from shim import floats, integers, one_hot, recipe


def cells(shim):
    Layer = shim.keras.layers.Layer

    class Gated(Layer):
        """Weights, made at once, of what follows."""

        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = units
            self.output_size = units

        def build(self, shape):
            self.w = self.add_weight(name="w", shape=(shape[-1], self.units))
            self.u = self.add_weight(name="u", shape=(self.units, self.units))
            self.built = True

    class NormalizedCell(Gated):
        """h = tanh(y / |y|), y = W x + U h."""

        def call(self, x, states):
            y = shim.matmul(x, self.w) + shim.matmul(states[0], self.u)
            h = shim.tanh(y / shim.sqrt(shim.sum(shim.square(y), axis=-1, keepdims=True) + 1e-3))
            return h, [h]

    class SoftmaxCell(Gated):
        """h = softmax(W x) relu(U h)."""

        def call(self, x, states):
            chosen = shim.softmax(shim.matmul(x, self.w))
            h = chosen * shim.maximum(shim.matmul(states[0], self.u), 0.1)
            return h, [h]

    class DecayCell(Gated):
        """s = 0.9 s + W x, which only the output sees: out = sigmoid(s) x U'."""

        def call(self, x, states):
            s = 0.9 * states[0] + shim.matmul(x, self.w)
            return shim.matmul(shim.sigmoid(s), self.u), [s]

    return NormalizedCell, SoftmaxCell, DecayCell


def models(shim):
    K, L = shim.keras, shim.keras.layers
    NormalizedCell, SoftmaxCell, DecayCell = cells(shim)
    made = {}

    @recipe(made)
    def backwards():
        x = a = shim.input(11, 5)
        x = shim.gru(8, return_sequences=True, go_backwards=True, name="back")(x)
        x = shim.lstm(8, return_sequences=True, name="forth")(x)
        x = L.GlobalMaxPooling1D(name="pool")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(11, 5)], [one_hot(3)], ["categorical_crossentropy"]

    @recipe(made)
    def frames():
        x = a = shim.input(4, 8, 8, 2)
        x = L.Conv3D(4, (1, 3, 3), activation="relu", name="each")(x)
        x = L.Reshape((4, 144), name="flat")(x)
        x = shim.lstm(10, name="lstm")(x)
        x = L.Dense(2, name="out")(x)
        return K.Model(a, x), [floats(4, 8, 8, 2)], [floats(2)], ["mse"]

    @recipe(made)
    def normalized_cell():
        x = a = shim.input(8, 6)
        x = L.RNN(NormalizedCell(9, name="normalized"), name="rnn")(x)
        x = L.Dense(4, activation="tanh", name="hidden")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(8, 6)], [floats(1)], ["mse"]

    @recipe(made)
    def softmax_cell():
        x = a = shim.input(8, 6)
        x = L.RNN(SoftmaxCell(9, name="softmax"), return_sequences=True, name="rnn")(x)
        x = L.Dense(4, activation="relu", name="hidden")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(8, 6)], [floats(8, 1)], ["mse"]

    @recipe(made)
    def decay_cell():
        x = a = shim.input(8, 6)
        x = L.RNN(DecayCell(9, name="decay"), name="rnn")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(8, 6)], [floats(1)], ["mse"]

    @recipe(made)
    def residual_text():
        a = shim.input(12, dtype="int32")
        x = L.Embedding(40, 8, mask_zero=True, name="emb")(a)
        h = shim.gru(8, return_sequences=True, name="first")(x)
        x = L.Add(name="sum")([x, h])
        x = L.Bidirectional(shim.lstm(4, name="both"), name="bi")(x)
        x = L.Dense(1, activation="sigmoid", name="out")(x)
        return K.Model(a, x), [integers(40, 12)], [floats(1)], ["mse"]

    return made
