"""Eight recurrent models that nobody looked at before the recording of loops was final."""

from shim import floats, integers, one_hot, recipe


def cells(shim):
    Layer = shim.keras.layers.Layer

    class MinimalCell(Layer):
        """h = (1 - f) h + f tanh(W x + U (f h)), f = sigmoid(V x): a minimal gated unit."""

        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = units
            self.output_size = units

        def build(self, shape):
            self.wf = self.add_weight(name="wf", shape=(shape[-1], self.units))
            self.wh = self.add_weight(name="wh", shape=(shape[-1], self.units))
            self.uh = self.add_weight(name="uh", shape=(self.units, self.units))
            self.built = True

        def call(self, x, states):
            h = states[0]
            f = shim.sigmoid(shim.matmul(x, self.wf))
            new = shim.tanh(shim.matmul(x, self.wh) + shim.matmul(f * h, self.uh))
            h = (1.0 - f) * h + f * new
            return h, [h]

    class ExponentialCell(Layer):
        """s = s + exp(W x), h = relu(U log(1 + s)): a sum of exponentials is carried."""

        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = units
            self.output_size = units

        def build(self, shape):
            self.w = self.add_weight(name="w", shape=(shape[-1], self.units))
            self.u = self.add_weight(name="u", shape=(self.units, self.units))
            self.built = True

        def call(self, x, states):
            s = states[0] + shim.exp(shim.matmul(x, self.w))
            h = shim.maximum(shim.matmul(shim.log(1.0 + s), self.u), 0.0)
            return h, [s]

    class SumsCell(Layer):
        """Carries the sum of squares over the features beside its state."""

        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = [units, 1]
            self.output_size = units

        def build(self, shape):
            self.w = self.add_weight(name="w", shape=(shape[-1], self.units))
            self.u = self.add_weight(name="u", shape=(self.units, self.units))
            self.built = True

        def call(self, x, states):
            h, total = states
            h = shim.tanh(shim.matmul(x, self.w) + shim.matmul(h, self.u))
            total = total + shim.sum(shim.square(h), axis=-1, keepdims=True)
            return h / shim.sqrt(1.0 + total), [h, total]

    return MinimalCell, ExponentialCell, SumsCell


def models(shim):
    K, L = shim.keras, shim.keras.layers
    MinimalCell, ExponentialCell, SumsCell = cells(shim)
    made = {}

    @recipe(made)
    def encoder_decoder():
        a = shim.input(9, 6, name="source")
        b = shim.input(7, 6, name="target")
        _, h, c = shim.lstm(12, return_state=True, name="encoder")(a)
        x = shim.lstm(12, return_sequences=True, name="decoder")(b, initial_state=[h, c])
        x = L.Dense(10, name="hidden", activation="tanh")(x)
        x = L.Dense(4, name="out")(x)
        return K.Model([a, b], x), [floats(9, 6), floats(7, 6)], [floats(7, 4)], ["mse"]

    @recipe(made)
    def forecaster():
        x = a = shim.input(24, 3)
        x = L.Conv1D(8, 3, padding="same", activation="relu", name="conv")(x)
        x = shim.gru(12, return_sequences=True, name="g1")(x)
        x = shim.gru(12, name="g2")(x)
        x = L.Dense(6, activation="elu", name="hidden")(x)
        x = L.Dense(1, name="out")(x)
        return K.Model(a, x), [floats(24, 3)], [floats(1)], ["mse"]

    @recipe(made)
    def attentive():
        x = a = shim.input(10, 8)
        x = L.Bidirectional(shim.gru(6, return_sequences=True, name="both"), name="bi")(x)
        scores = L.Dense(1, activation="tanh", name="score")(x)
        weights = L.Softmax(axis=1, name="weights")(scores)
        x = L.Multiply(name="weighted")([x, weights])
        x = L.GlobalAveragePooling1D(name="pooled")(x)
        x = L.Dense(3, activation="softmax", name="probs")(x)
        return K.Model(a, x), [floats(10, 8)], [one_hot(3)], ["categorical_crossentropy"]

    @recipe(made)
    def minimal_cell():
        x = a = shim.input(8, 6)
        x = L.RNN(MinimalCell(10, name="minimal"), return_sequences=True, name="rnn")(x)
        x = L.Dense(4, activation="relu", name="hidden")(x)
        x = L.Dense(2, name="out")(x)
        return K.Model(a, x), [floats(8, 6)], [floats(8, 2)], ["mse"]

    @recipe(made)
    def exponential_cell():
        x = a = shim.input(8, 6)
        x = L.Dense(6, activation="relu", name="before")(x)
        x = L.RNN(ExponentialCell(10, name="exponential"), name="rnn")(x)
        x = L.Dense(2, name="out")(x)
        return K.Model(a, x), [floats(8, 6)], [floats(2)], ["mse"]

    @recipe(made)
    def sums_cell():
        x = a = shim.input(8, 6)
        x = L.RNN(SumsCell(10, name="sums"), return_sequences=True, name="rnn")(x)
        x = L.Dense(2, name="out")(x)
        return K.Model(a, x), [floats(8, 6)], [floats(8, 2)], ["mse"]

    @recipe(made)
    def stacked_cells():
        x = a = shim.input(8, 6)
        cells = [shim.lstm_cell(10, name="low"), shim.lstm_cell(6, name="high")]
        x = L.RNN(cells, name="rnn")(x)
        x = L.Dense(2, activation="softplus", name="out")(x)
        return K.Model(a, x), [floats(8, 6)], [floats(2)], ["mse"]

    @recipe(made)
    def masked_stack():
        a = shim.input(9, dtype="int32")
        x = L.Embedding(30, 8, mask_zero=True, name="emb")(a)
        x = shim.lstm(8, return_sequences=True, name="l1")(x)
        x = shim.lstm(6, name="l2")(x)
        x = L.Dense(4, activation="softmax", name="probs")(x)
        return K.Model(a, x), [integers(30, 9)], [one_hot(4)], ["categorical_crossentropy"]

    return made
