"""KMP118: programs that ask for Keras 2."""

import pytest

from keras_mp.migration.code.rewriting import Options, rewrite

USE = "import tensorflow as tf\ntf.keras.optimizers.Adam(lr=1)\ntf.keras.backend.placeholder()\n"
SETS = {
    "assigned": "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n",
    "setdefault": "import os\nos.environ.setdefault('TF_USE_LEGACY_KERAS', 'True')\n",
    "putenv": "import os\nos.putenv('TF_USE_LEGACY_KERAS', '1')\n",
    "in a dict": "import os\nos.environ.update({'TF_USE_LEGACY_KERAS': '1'})\n",
    "unknown": "import os\nos.environ['TF_USE_LEGACY_KERAS'] = value\n",
}
DOES_NOT = {
    "off": "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '0'\n",
    "read": "import os\nos.environ.get('TF_USE_LEGACY_KERAS')\n",
    "a comment": "# TF_USE_LEGACY_KERAS\n",
}


def rules(text):
    return [(f.rule, f.verdict) for f in rewrite(text, Options(keras3=True)).findings]


@pytest.mark.parametrize("head", SETS.values(), ids=SETS)
def test_is_told_once_instead_of_what_does_not_apply(head):
    assert rules(head + USE) == [("KMP118", "manual")]
    assert rewrite(head + USE, Options(keras3=True)).text == head + USE


@pytest.mark.parametrize("head", DOES_NOT.values(), ids=DOES_NOT)
def test_the_program_is_judged_otherwise(head):
    assert rules(head + USE) == [("KMP105", "rewritten"), ("KMP101", "manual")]


def test_the_package_keras_stays_keras_3():
    text = SETS["assigned"] + "import keras\nkeras.backend.placeholder()\n"
    assert rules(text) == [("KMP118", "manual"), ("KMP101", "manual")]


def test_tf_keras_is_told_where_it_is_imported_and_not_judged():
    text = "import tf_keras\ntf_keras.optimizers.Adam(lr=1)\n"
    text += "from tf_keras import backend as K\nK.placeholder()\n"
    assert rules(text) == [("KMP118", "manual")]


def test_names_of_tensorflow_beside_it_are():
    assert rules("import tf_keras\n" + USE)[1:] == [("KMP105", "rewritten"), ("KMP101", "manual")]


def test_an_import_that_asks_what_there_is_is_kept():
    text = "try:\n    import tf_keras as keras\nexcept ImportError:\n"
    text += "    from tensorflow import keras\n"
    assert rules(text) == [("KMP118", "kept")]
