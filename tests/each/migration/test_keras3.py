"""What `--keras3` says of Keras: the installed one refuses the old, and takes the new."""

import contextlib
import io
import textwrap

import keras
import numpy as np
import pytest

from keras_mp.compat import mixed_precision
from keras_mp.migration.code.rewriting import Options, rewrite
from keras_mp.migration.keras3 import gone_members, names
from keras_mp.migration.keras3.argument_advice import ARGUMENTS, Asked, Dropped
from keras_mp.migration.keras3.symbolic_tensors import TAKING

ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
tensorflow_only = pytest.mark.skipif(
    not ON_TENSORFLOW, reason="tf.keras is Keras 3 on TensorFlow, which needs that backend"
)
REFUSES = (AttributeError, ImportError, KeyError, NotImplementedError, TypeError, ValueError)

HEAD = """\
import keras
import numpy as np
from keras import layers

def trained(*more):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def batches():
    while True:
        yield np.zeros((2, 4), "float32"), np.zeros((2, 1), "float32")

x, y = next(batches())
"""
# Programs of `keras`: each is refused as it is, and runs as it is rewritten.
PROGRAMS = {
    "KMP102 losses": "keras.losses.mse(x, x)",
    "KMP103 import": "from keras.layers.core import Dense\nDense(1)",
    "KMP103 module": "from keras.utils import np_utils\nnp_utils.to_categorical([1])",
    "KMP103 attribute": "keras.engine.training.Model",
    "KMP105 lr": "keras.optimizers.Adam(lr=1e-3)",
    "KMP105 l": "keras.regularizers.l2(l=0.1)",
    "KMP105 time_major": "layers.LSTM(1, time_major=False)",
    "KMP105 dynamic": "layers.Dense(1, dynamic=False)",
    "KMP105 y": "keras.utils.to_categorical(y=[1])",
    "KMP105 transformers": "keras.optimizers.SGD(0.1, gradient_transformers=None)",
    "KMP105 sample_weight_mode": "m = trained()\nm.compile('sgd', 'mse', sample_weight_mode=None)",
    "KMP105 use_resource": """
        class L(layers.Layer):
            def build(self, shape):
                self.w = self.add_weight(name="w", shape=(3,), use_resource=True)
        L().build(None)
        """,
    "KMP105 add_loss": """
        class L(layers.Layer):
            def call(self, t):
                self.add_loss(keras.ops.sum(t), inputs=True)
                return t
        L()(x)
        """,
    "KMP106 add_weight": """
        class L(layers.Layer):
            def build(self, shape):
                self.w = self.add_weight("w", shape=(3,))
        L().build(None)
        """,
    "KMP106 metric": """
        class M(keras.metrics.Metric):
            def __init__(self):
                super().__init__("m")
                self.n = self.add_weight("n", initializer="zeros")
        M()
        """,
    "KMP106 loss": """
        class L(keras.losses.Loss):
            def __init__(self):
                super().__init__("sum", "l")
        L()
        """,
    "KMP106 metrics": "m = trained()\nm.compile('sgd', 'mse', ['mae'])\nm.fit(x, y, verbose=0)",
    "KMP106 Input": "keras.Input((4,), None, 'a')",
    "KMP106 Sequential": "assert keras.Sequential([], 'a').name == 'a'",
    "KMP107 reset_states": "m = keras.metrics.Mean()\nm.reset_states()",
    "KMP107 fit_generator": "m = trained()\n"
    "m.fit_generator(batches(), 2, verbose=0, shuffle=False)",
    "KMP107 evaluate_generator": "m = trained()\nm.evaluate_generator(batches(), 2, verbose=0)",
    "KMP107 predict_generator": "m = trained()\nm.predict_generator(batches(), 2)",
    "KMP107 lr": "o = keras.optimizers.SGD(0.1)\no.lr.assign(0.2)",
    "KMP107 variables": "o = keras.optimizers.SGD(0.1)\no.variables()",
    "KMP107 add_variable": "layer = layers.Dense(1)\nlayer.add_variable(name='w', shape=(3,))",
    "KMP107 set_value": "o = keras.optimizers.SGD(0.1)\nkeras.backend.set_value(o.lr, 0.2)",
    "KMP107 input": "s = keras.Sequential([keras.Input((4,)), layers.Dense(1)])\n"
    "keras.Model(s.input, s.output)",
    "KMP109 save_weights": "import os, tempfile\nm = trained()\n"
    "m.save_weights(os.path.join(tempfile.mkdtemp(), 'a.weights.h5'), save_format='h5')",
    "KMP112 training": "dropout = layers.Dropout(0.5)\ndropout(x, True)",
    "KMP112 own": """
        class L(layers.Layer):
            def call(self, t, mode):
                return t
        L()(x, "a")
        """,
    "KMP113 self": """
        class L(layers.Layer):
            def __init__(self):
                super().__init__(self)
        L()
        """,
    "KMP113 model": """
        class M(keras.Model):
            def __init__(self):
                super(M, self).__init__(self)
        M()
        """,
    "KMP116 as_list": """
        class L(layers.Layer):
            def build(self, shape):
                self.n = shape.as_list()[-1]
            def call(self, t):
                return t
        L()(x)
        """,
    "KMP116 get_shape": "t = keras.Input((4,))\nassert t.get_shape().as_list() == [None, 4]",
    "KMP116 rank": "t = keras.Input((4,))\nassert t.shape.rank == 2",
    "KMP116 dtype": "d = layers.Dense(1)\nd.build((None, 2))\n"
    "assert d.kernel.dtype.name == 'float32'",
    "KMP117 loss": "m = trained()\nm.compile('sgd', 'kullback_leibler_divergence')\n"
    "m.fit(x, y, verbose=0)",
    "KMP117 initializer": "d = layers.Dense(1, bias_initializer='constant')\nd.build((None, 2))",
}
# Programs of `tf.keras`.
OF_TENSORFLOW = {
    "KMP102 preprocessing": "tf.keras.layers.experimental.preprocessing.Rescaling(1)",
    "KMP102 imported": "from tensorflow.keras.layers.experimental import preprocessing\n"
    "preprocessing.Rescaling(1)",
    "KMP102 optimizers": "tf.keras.optimizers.experimental.AdamW()",
    "KMP102 losses": "tf.keras.losses.mean_squared_error(x, x)",
    "KMP102 v1": "from tensorflow.compat.v1.keras.layers import Dense\nDense(1)",
    "KMP102 CosineDecay": "tf.keras.experimental.CosineDecay(0.1, 10)",
    "KMP103 layer": "from tensorflow.python.keras.layers import Dense\n"
    "assert issubclass(Dense, tf.keras.layers.Layer)",
    "KMP105 input_text": "tf.keras.preprocessing.text.one_hot(text='a b', n=3)",
    "KMP107 set_value": "from tensorflow.keras import backend as K\n"
    "o = tf.keras.optimizers.SGD(0.1)\n"
    "K.set_value(o.learning_rate, 0.2)",
    "KMP107 update_add": "d = tf.keras.layers.Dense(1)\nd.build((None, 2))\n"
    "tf.keras.backend.update_add(d.bias, [1.0])",
    "KMP117 AUTO": "tf.keras.losses.MeanSquaredError(reduction=tf.keras.losses.Reduction.AUTO)",
    "KMP105 aggregation": "d = tf.keras.layers.Dense(1)\n"
    "d.add_weight(name='w', shape=(1,), aggregation=tf.VariableAggregation.MEAN)",
}


def run(text):
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, "program", "exec"), {"__name__": "program"})


def check(program, rule):
    """Holds that the program is refused, and that it runs when it is rewritten, by that rule."""
    result = rewrite(program, Options(keras3=True))
    assert rule in {f.rule for f in result.findings if f.verdict == "rewritten"}
    with pytest.raises((*REFUSES, AssertionError)):
        run(program)
    run(result.text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_refuses_the_old_and_takes_the_new(name):
    check(HEAD + textwrap.dedent(PROGRAMS[name]), name.split()[0])


@tensorflow_only
@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_refuses_the_old_and_takes_the_new_of_tensorflow(name):
    program = "import tensorflow as tf\nx = tf.zeros((2, 4))\n" + OF_TENSORFLOW[name]
    check(program, name.split()[0])


# -- the table --------------------------------------------------------------------------------


def has(root, name):
    for part in name.split("."):
        if not hasattr(root, part):
            return False
        root = getattr(root, part)
    return True


def lacking(root, there):
    """Returns the names of today that are not there; none where Keras is older than today's."""
    if keras.__version__ < "3.15":
        return []
    return [name for name in sorted(there) if not has(root, name)]


def test_names_of_keras_are_there_or_gone():
    table = names.table()
    there = names.today("keras")
    assert lacking(keras, there) == []
    gone = {*table["gone"], *table["not in keras"]} - there
    assert [name for name in sorted(gone) if has(keras, name) and "legacy" not in name] == []


@tensorflow_only
def test_names_of_tf_keras_are_there_or_gone():
    import tensorflow as tf

    there = names.today("tf.keras")
    assert lacking(tf.keras, there) == []
    imported = (*names.table()["only imported"], "saving")
    gone = [name for name in names.table()["gone"] if name not in imported]
    assert [name for name in gone if has(tf.keras, name) and "legacy" not in name] == []


def test_the_legacy_optimizers_raise():
    with pytest.raises(ImportError):
        keras.optimizers.legacy.Adam()


# Arguments that the class needs besides the one that is asked for.
NEEDED = {
    "Input": {"shape": (4,)},
    "layers.BatchNormalization": {},
    "layers.Embedding": {"input_dim": 2, "output_dim": 2},
    "layers.RNN": {"units": 2},
    "layers.Layer": {"units": 2},
    "optimizers.Optimizer": {"learning_rate": 0.1},
    "regularizers.L1": {},
    "regularizers.L2": {},
    "activations.relu": {"x": np.zeros(2)},
    "callbacks.ModelCheckpoint": {"filepath": "a.keras"},
    "callbacks.TensorBoard": {},
    "utils.to_categorical": {"x": [1]},
    "utils.load_img": {"path": "a.png"},
}
MADE_BY = {
    "layers.RNN": "layers.LSTM",
    "layers.Layer": "layers.Dense",
    "optimizers.Optimizer": "optimizers.SGD",
}
ASKED = [
    (scope, argument)
    for scope, arguments in ARGUMENTS.items()
    for argument, action in arguments.items()
    if scope in NEEDED and action is not None and argument != "y"
]


def called(name):
    found = keras
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("scope", "argument"), ASKED)
def test_arguments_that_are_told_are_refused(scope, argument):
    if (scope, argument) == ("optimizers.Optimizer", "decay"):
        with pytest.warns(UserWarning, match="no longer supported and will be ignored"):
            keras.optimizers.SGD(0.1, decay=0.1)
        return
    make = called(MADE_BY.get(scope, scope))
    with pytest.raises((TypeError, ValueError)):
        make(**NEEDED[scope], **{argument: 1})


METHODS = {
    "Model.compile": ("experimental_run_tf_function", "target_tensors", "distribute"),
    "Model.fit": ("workers", "use_multiprocessing", "max_queue_size"),
    "Model.train_on_batch": ("reset_metrics",),
    "Model.save": ("signatures", "options", "save_traces"),
}


@pytest.mark.parametrize(("method", "argument"), [(m, a) for m, of in METHODS.items() for a in of])
def test_arguments_of_methods_are_refused(method, argument, tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.zeros((2, 4)), np.zeros((2, 1))
    given = {"compile": ("sgd", "mse"), "save": (tmp_path / "a.keras",)}
    name = method.partition(".")[2]
    assert isinstance(ARGUMENTS[method][argument], (Asked, Dropped))
    with pytest.raises((TypeError, ValueError)):
        getattr(model, name)(*given.get(name, (x, y)), **{argument: None})


def test_formats_that_are_told_are_refused(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    for refused in (
        lambda: model.save(tmp_path / "folder"),
        lambda: model.save(tmp_path / "folder", save_format="tf"),
        lambda: model.save_weights(tmp_path / "w.h5"),
        lambda: model.load_weights(str(tmp_path / "ck")),
        lambda: keras.models.load_model(str(tmp_path)),
        lambda: keras.callbacks.ModelCheckpoint("c.hdf5"),
        lambda: keras.callbacks.ModelCheckpoint("c.h5", save_weights_only=True),
    ):
        with pytest.raises(
            ValueError, match=r"extension|save_format|\.weights\.h5|supported|\.keras"
        ):
            refused()


def test_members_that_are_told_are_gone():
    """Of objects as a training has them; what is recorded of classes that are not made is left."""
    model = keras.Model(inputs := keras.Input((4,)), (layer := keras.layers.Dense(1))(inputs))
    model.compile("sgd", "mse")
    model.fit(np.zeros((2, 4)), np.zeros((2, 1)), verbose=0)
    objects = {
        "Model": model,
        "layers.Layer": layer,
        "metrics.Metric": keras.metrics.Mean(),
        "optimizers.Optimizer": model.optimizer,
        "Variable": layer.kernel,
        "KerasTensor": inputs,
    }
    for kind, of in objects.items():
        there = []
        for name in names.table()["members"][kind]:
            with contextlib.suppress(Exception):
                getattr(of, name)
                there.append(name)
        # A layer on PyTorch is a torch.nn.Module, too.
        allowed = {"apply"} if keras.backend.backend() == "torch" else set()
        if kind == "Model":
            allowed |= {"compiled_loss", "distribute_reduction_method", "build"}
        assert set(there) <= allowed, kind


def test_a_loss_of_a_keras_tensor_is_refused():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    with pytest.raises((NotImplementedError, ValueError)):
        model.add_loss(keras.ops.sum(model.output))


def test_what_fails_silently():
    """KMP115 and KMP111: what the messages say of variables that nobody finds."""
    if not ON_TENSORFLOW:
        pytest.skip("variables and modules of TensorFlow")
    import tensorflow as tf

    class Scale(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable(1.0)

        def call(self, x):
            return x * self.scale

    class Generator(tf.Module):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

    layer, module = Scale(), Generator()
    layer(np.zeros((1, 1), "float32"))
    module.dense(np.zeros((1, 1), "float32"))
    assert layer.weights == []
    assert module.variables == ()


@tensorflow_only
def test_functions_of_the_backend_that_take_no_keras_tensor():
    """KMP114: all but those that it leaves alone."""
    import tensorflow as tf

    taking = set()
    for name in sorted(names.today("tf.keras")):
        if not name.startswith("backend."):
            continue
        function = getattr(tf.keras.backend, name.removeprefix("backend."))
        for more in ((), (1,), ((1,),), ("float32",), (1, 1)):
            with contextlib.suppress(Exception):
                function(keras.Input((4,)), *more)
                taking.add(name)
    keras.config.set_epsilon(1e-7)
    assert taking <= {*TAKING}


@tensorflow_only
@pytest.mark.parametrize("name", ["nn.relu", "concat", "reduce_mean", "cast", "shape"])
def test_functions_of_tensorflow_take_no_keras_tensor(name):
    import tensorflow as tf

    function = tf
    for part in name.split("."):
        function = getattr(function, part)
    x = keras.Input((4,))
    arguments = {"concat": ([x, x], -1), "cast": (x, "float16")}.get(name, (x,))
    with pytest.raises(ValueError, match="KerasTensor"):
        function(*arguments)


def test_a_loss_scale_optimizer_has_what_optimizers_of_keras_2_had():
    """KMP108 says nothing of these."""
    gone = names.table()["members"]["optimizers.Optimizer"]
    ours = mixed_precision.LossScaleOptimizer(keras.optimizers.SGD())
    assert {name for name in gone if hasattr(ours, name)} == {*gone_members.WRAPPERS}
