"""KMP101: names that Keras 3 does not have."""

import pytest

from tests.keras3_rules import messages, rewritten, said

GONE = {
    "attribute": ("c = tf.keras.backend.placeholder((3,))", "write keras.Input"),
    "of an alias": ("K.learning_phase()", "training=True"),
    "import": ("from tensorflow.keras.utils import multi_gpu_model", "MirroredStrategy"),
    "of keras only": ("import keras as k\nk.backend.mean(1)", "write keras.ops.mean"),
    "another name in ops": ("from keras import backend as B\nB.pow(1, 2)", "keras.ops.power"),
    "one that raises": ("tf.keras.optimizers.legacy.Adam()", "keras_mp.compat.optimizers"),
    "estimators": ("tf.estimator.Estimator(f)", "since TF 2.16"),
    "Keras' estimators": ("tf.keras.estimator.model_to_estimator(m)", "since TF 2.16"),
    "sessions": ("tf.compat.v1.keras.backend.get_session()", "no sessions"),
    "cuDNN": ("layers.CuDNNLSTM(3)", "write keras.layers.LSTM"),
    "scikit-learn": (
        "from tensorflow.keras.wrappers.scikit_learn import KerasClassifier",
        "SKLearnClassifier",
    ),
    "private, and gone": (
        "from tensorflow.python.keras.utils.multi_gpu_utils import multi_gpu_model",
        "MirroredStrategy",
    ),
    "star": ("from tensorflow.keras.wrappers.scikit_learn import *", "SKLearnClassifier"),
}
FINE = {
    "there": "tf.keras.layers.Dense(1)",
    "there in tf.keras only": "K.mean(1)",
    "its attribute": "tf.keras.layers.Dense.build",
    "version": "tf.keras.__version__",
    "mixed precision": "tf.keras.mixed_precision.experimental.set_policy('float32')",
    "an own name": "class Own: pass\nOwn.backend.placeholder",
    "another package": "import other as o\no.keras.backend.placeholder",
    "a parameter": "def f(keras): return keras.backend.placeholder",
    "tf_keras": "import tf_keras\ntf_keras.backend.placeholder",
}


@pytest.mark.parametrize(("line", "advice"), GONE.values(), ids=GONE)
def test_is_reported_with_what_to_write(line, advice):
    found = messages(line, "KMP101")
    assert len(found) == 1
    assert advice in found[0]


@pytest.mark.parametrize("line", FINE.values(), ids=FINE)
def test_is_left_alone(line):
    assert messages(line, "KMP101") == []


def test_the_place_is_that_of_the_name():
    assert said("\n\nz = [1,\n     K.placeholder()]", "KMP101") == [(4, "manual")]


def test_each_use_of_a_module_is_told_and_an_imported_name_once():
    program = "from tensorflow.keras.utils import multi_gpu_model\nmulti_gpu_model(1)\n"
    assert said(program + "K.placeholder()\nK.placeholder()", "KMP101") == [
        (1, "manual"),
        (3, "manual"),
        (4, "manual"),
    ]


@pytest.mark.parametrize(
    "program",
    [
        "if tf.__version__ < '2.4':\n    K.placeholder()",
        "try:\n    from tensorflow.keras.utils import multi_gpu_model\n"
        "except ImportError:\n    pass",
        "if hasattr(K, 'placeholder'):\n    K.placeholder()",
        "import importlib\nif importlib.util.find_spec('x') is None:\n    K.placeholder()",
    ],
    ids=["version", "try", "hasattr", "find_spec"],
)
def test_is_kept_where_the_program_asks_what_there_is(program):
    assert [verdict for _, verdict in said(program, "KMP101")] == ["kept"]


def test_a_name_with_several_meanings_is_left_alone():
    program = (
        "if a:\n    from other import backend as B\nelse:\n    from keras import backend as B\n"
    )
    assert messages(program + "B.placeholder()", "KMP101") == []


@pytest.mark.parametrize(
    "program",
    [
        "tf.losses.mean_squared_error(a, b)",
        "from tensorflow import losses as l\nl.mean_squared_error(a, b)",
        "from tensorflow.losses import mean_squared_error",
    ],
)
def test_names_that_tensorflow_2_had_twice_are_not_rewritten(program):
    """TF 1 had another function by that name."""
    [message] = messages(program, "KMP101")
    assert message.endswith("write tf.keras.losses.mse")
    assert rewritten(program) == program


@pytest.mark.parametrize("line", ["tf.losses.get_total_loss()", "tf.metrics.accuracy(a, b)"])
def test_names_of_tensorflow_1_are_left_alone(line):
    assert messages(line, "KMP101") == messages(line, "KMP103") == []
