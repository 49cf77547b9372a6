"""KMP204: operations of TensorFlow, in the code of models only."""

import pytest

from tests.obstacles import found, messages

IN_MODELS = {
    "call of a layer": "class L(tf.keras.layers.LSTM):\n    def call(self, x):\n        y = HERE\n",
    "call of a model": "class M(tf.keras.Model):\n    def call(self, x):\n        return HERE\n",
    "build": "class L(keras.layers.Dense):\n    def build(self, x):\n        self.x = HERE\n",
    "a loss": "class L(keras.losses.Loss):\n    def call(self, y_true, x):\n        return HERE\n",
    "a metric": "class M(keras.metrics.Metric):\n    def result(self, x=1):\n        return HERE\n",
    "a regularizer": (
        "class R(keras.regularizers.L2):\n    def __call__(self, x):\n        return HERE\n"
    ),
    "a schedule": (
        "class S(keras.optimizers.schedules.LearningRateSchedule):\n"
        "    def __call__(self, x):\n        return HERE\n"
    ),
    "a method that call calls": (
        "class L(keras.layers.Layer):\n    def call(self, x):\n        return self._f(x)\n"
        "    def _f(self, x):\n        return HERE\n"
    ),
    "a function that call calls": (
        "def f(x):\n    return HERE\n"
        "class L(keras.layers.Layer):\n    def call(self, x):\n        return f(x)\n"
    ),
    "a method of the class below": (
        "class A(keras.layers.Layer):\n    def call(self, x):\n        return self.f(x)\n"
        "class B(A):\n    def f(self, x):\n        return HERE\n"
    ),
    "what a constructor keeps": (
        "class L(keras.layers.Layer):\n    def __init__(self, x):\n        self.x = HERE\n"
    ),
    "a layer of another file": (
        "from .base import Block\nclass L(Block):\n    def call(self, x):\n        return HERE\n"
    ),
    "a loss of another file, with its function": (
        "from .base import MetricLoss\ndef f(x, y):\n    return HERE\n"
        "class L(MetricLoss):\n    def __init__(self):\n        super().__init__(f)\n"
    ),
    "tf.Module": "class M(tf.Module):\n    def __call__(self, x):\n        return HERE\n",
    "a function of y_true and y_pred": "def dice(y_true, x, y_pred=1): pass\n"
    "def loss(y_true, y_pred):\n    x = y_pred\n    return HERE\n",
    "one in a function": (
        "def make(gamma):\n    def loss(y_true, y_pred):\n        x = y_pred\n        return HERE\n"
        "    return loss\n"
    ),
    "what compile is given": "def f(x, y):\n    return HERE\nmodel.compile('sgd', loss=f)\n",
    "a list for compile": "def f(x, y):\n    return HERE\nmodel.compile('sgd', metrics=[f])\n",
    "a Lambda layer": "keras.layers.Lambda(lambda x: HERE)\n",
    "an activation": "def f(x):\n    return HERE\nkeras.layers.Dense(3, activation=f)\n",
    "under a tape": "with tf.GradientTape() as tape:\n    y = HERE\n",
    "after a tape": (
        "with tf.GradientTape() as tape:\n    x = model(1)\nfor i in range(3):\n    y = HERE\n"
    ),
    "of its gradients": (
        "with tf.GradientTape() as tape:\n    l = 1\ngradients = tape.gradient(l, w)\n"
        "z = [HERE for x in gradients]\n"
    ),
    "what a tape's body calls": (
        "def f(x):\n    return HERE\nwith tf.GradientTape() as tape:\n    y = f(1)\n"
    ),
    "a compiled function that calls a model": (
        "@tf.function\ndef f(x):\n    y = model(x, training=False)\n    return HERE\n"
    ),
    "compiled by a call": "def f(x):\n    model(x)\n    return HERE\ng = tf.function(f)\n",
    "on Keras' tensors": "x = keras.Input((3,))\nx = keras.layers.Dense(3)(x)\ny = HERE\n",
    "in a block of layers": (
        "def block(x):\n    x = tf.keras.layers.Dense(3)(x)\n    return HERE\n"
    ),
    "a helper of a model that is built": (
        "def f(x):\n    return HERE\ni = keras.Input((3,))\nm = keras.Model(i, f(i))\n"
    ),
    "the condition of an operation": (
        "class L(keras.layers.Layer):\n    def call(self, x):\n"
        "        return keras.ops.cond(x, lambda: HERE, lambda: x)\n"
    ),
}


@pytest.mark.parametrize("target", ["jax", "torch"])
@pytest.mark.parametrize("source", IN_MODELS.values(), ids=IN_MODELS)
def test_found_in_models(source, target):
    line = next(n for n, text in enumerate(source.split("\n"), 1) if "HERE" in text)
    message = found(source.replace("HERE", "tf.exp(x)"), "KMP204", target)
    assert message.keys() == {line}
    assert message[line] == (
        "tf.exp: write keras.ops.exp; docs/how-to/leave-tensorflow.md#operations"
    )


ELSEWHERE = {
    "a script": "x = 1\ny = HERE\n",
    "a function": "def load(x):\n    return HERE\n",
    "a pipeline": "def f(x):\n    return HERE\nds = tf.data.Dataset.range(3).map(f)\n",
    "a lambda of a pipeline": "ds = ds.map(lambda x: HERE).filter(lambda x: HERE)\n",
    "a compiled function of a pipeline": (
        "@tf.function\ndef f(x):\n    return HERE\nds = tf.data.Dataset.range(3).map(f)\n"
    ),
    "a compiled function that calls no model": "@tf.function\ndef f(x):\n    return HERE\n",
    "a pipeline in a train step": (
        "class M(keras.Model):\n    def train_step(self, state, data):\n"
        "        return data.map(lambda x: HERE)\n"
    ),
    "a method that a model's dataset is made by": (
        "class M(keras.Model):\n    def call(self, x):\n        return x\n"
        "    def dataset(self):\n        return tf.data.Dataset.range(3).map(self.parse)\n"
        "    def parse(self, x):\n        return HERE\n"
    ),
    "a callback": (
        "class C(keras.callbacks.Callback):\n    def on_epoch_end(self, x):\n        return HERE\n"
    ),
    "a data set of Keras 2": (
        "class S(keras.utils.Sequence):\n    def __getitem__(self, x):\n        return HERE\n"
    ),
    "a class of PyTorch": (
        "import torch\nclass M(torch.nn.Module):\n    def call(self, x):\n        return HERE\n"
    ),
    "a class of one's own": "class A:\n    def call(self, x):\n        return HERE\n",
    "an exception": "class A(Exception):\n    def call(self, x):\n        return HERE\n",
    "a constructor that keeps nothing": (
        "class L(keras.layers.Layer):\n    def __init__(self, x):\n        print(HERE)\n"
    ),
    "a plot of y_pred and y_true": "def plot(y_pred, y_true, title):\n    x = 1\n    return HERE\n",
    "what a model predicted": "x = model.predict(1)\ny = HERE\n",
    "a result that went to the host": (
        "with tf.GradientTape() as tape:\n    l = model(1)\nx = l.numpy()\ny = HERE\n"
    ),
    "a shape of Keras' tensors": "i = keras.Input((3,))\nx = i.shape[1]\ny = HERE\n",
}


@pytest.mark.parametrize("source", ELSEWHERE.values(), ids=ELSEWHERE)
def test_left_alone_elsewhere(source):
    assert found(source.replace("HERE", "tf.exp(x)"), "KMP204") == {}


ADVICE = {
    "tf.transpose(x, [1, 0])": "tf.transpose: write keras.ops.transpose",
    "tf.transpose(x, perm=[1, 0])": (
        "tf.transpose: write keras.ops.transpose (perm= is axes= there)"
    ),
    "tf.transpose(x, conjugate=True)": (
        "tf.transpose: write keras.ops.transpose (it has no conjugate=)"
    ),
    "tf.argmax(x)": "tf.argmax: write keras.ops.argmax (give axis=0)",
    "tf.argmax(x, 1)": "tf.argmax: write keras.ops.argmax",
    "tf.math.argmax(x, axis=1, name='a')": (
        "tf.math.argmax: write keras.ops.argmax (it has no name=)"
    ),
    "tf.compat.v1.concat([x, x], 1)": "tf.concat: write keras.ops.concatenate",
    "tf.math.reduce_euclidean_norm(x, 1)": (
        "tf.math.reduce_euclidean_norm: write keras.ops.norm (give axis= by its name)"
    ),
    "tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=x)": (
        "tf.nn.sigmoid_cross_entropy_with_logits: write keras.ops.binary_crossentropy "
        "(labels= is target= there, logits= is output= there, give from_logits=True)"
    ),
    "tf.matmul(x, x, transpose_b=True)": (
        "tf.matmul: write keras.ops.matmul "
        "(it has no transpose_b=, keras.ops.swapaxes(x, -1, -2) transposes)"
    ),
    "tf.reduce_sum(*x)": "tf.reduce_sum: write keras.ops.sum",
    "tf.where(x)": (
        "tf.where: with one argument its result has no fixed shape, which jax.jit needs"
    ),
    "tf.identity(x)": "tf.identity: remove it",
    "tf.math.squared_difference(x, x)": (
        "tf.math.squared_difference: write keras.ops.square(x - y)"
    ),
    "tf.strings.lower(x)": (
        "tf.strings.lower: do it in tf.data, before the model: other backends have no strings"
    ),
    "tf.raw_ops.Foo(x=x)": ("tf.raw_ops.Foo: keras.ops has no equivalent: combine other functions"),
}


@pytest.mark.parametrize(("call", "message"), ADVICE.items(), ids=ADVICE)
def test_what_to_write(call, message):
    source = f"class L(keras.layers.Layer):\n    def call(self, x):\n        return {call}\n"
    assert messages(source, "KMP204") == [message]


GIVEN = {
    "to a layer": "keras.layers.Dense(3, activation=tf.nn.relu)\n",
    "to Activation": "keras.layers.Activation(tf.nn.relu)\n",
    "in call": "class L(keras.layers.Layer):\n    def call(self, x):\n        f(tf.nn.relu)\n",
}


@pytest.mark.parametrize("source", GIVEN.values(), ids=GIVEN)
def test_an_operation_that_is_given_away(source):
    assert messages(source, "KMP204") == ["tf.nn.relu: give keras.ops.relu"]


NO_OPERATIONS = [
    "tf.float32", "tf.TensorShape([1])", "tf.newaxis", "tf.io.read_file(x)", "tf.nest.flatten(x)",
    "tf.executing_eagerly()", "tf.zeros_initializer()", "tf.keras.layers.Dense(2)",
    "tf.data.Dataset.range(3)", "tf.name_scope('a')", "tf.get_logger()", "tf.errors.OpError()",
    "keras.Input((2,))", "isinstance(x, tf.Tensor)",
]  # fmt: skip


@pytest.mark.parametrize("call", NO_OPERATIONS)
def test_what_is_no_operation(call):
    source = f"class L(keras.layers.Layer):\n    def call(self, x):\n        return {call}\n"
    assert found(source, "KMP204") == {}
