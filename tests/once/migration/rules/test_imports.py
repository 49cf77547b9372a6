"""KMP013: imports of old names, and old modules as values."""

import pytest

from keras_mp.migration.code.rewriting import rewrite

USE = "mixed_precision.global_policy()\n"
NEW = "keras_mp.global_policy()\n"
IMPORTS = {
    "goes": ("from tensorflow.keras import mixed_precision\n" + USE, "import keras_mp\n" + NEW),
    "others stay": (
        "from tensorflow.keras import layers, mixed_precision, models\n" + USE,
        "import keras_mp\nfrom tensorflow.keras import layers, models\n" + NEW,
    ),
    "the last goes": (
        "from tensorflow.keras import layers, mixed_precision\n" + USE,
        "import keras_mp\nfrom tensorflow.keras import layers\n" + NEW,
    ),
    "the first goes": (
        "from tensorflow.keras import mixed_precision, layers\n" + USE,
        "import keras_mp\nfrom tensorflow.keras import layers\n" + NEW,
    ),
    "a use that is not rewritten": (
        "from tensorflow.keras import mixed_precision\nregister(mixed_precision)\n",
        "from keras_mp.compat import mixed_precision\nregister(mixed_precision)\n",
    ),
    "no use": (
        "from tensorflow.keras.mixed_precision import Policy as P, set_global_policy\n",
        "from keras_mp.compat.mixed_precision import Policy as P, set_global_policy\n",
    ),
    "exported": (
        "from tensorflow.keras.mixed_precision import Policy\n__all__ = ['Policy']\n",
        "from keras_mp.compat.mixed_precision import Policy\n__all__ = ['Policy']\n",
    ),
    "comments behind": (
        "import tensorflow.keras.mixed_precision  # why\n"
        "import tensorflow.keras.mixed_precision as mixed_precision  # why not\n" + USE,
        "import keras_mp\nimport tensorflow  # why\n# why not\n" + NEW,
    ),
    "beside a star in a block": (
        "if x:\n    from tensorflow.keras import mixed_precision\n    from a import *\n" + USE,
        "import keras_mp\nif x:\n    from a import *\n" + NEW,
    ),
    "private, and public here": (
        "from tensorflow.python.keras.mixed_precision.experimental.policy import policy_scope\n",
        "from keras_mp import policy_scope\n",
    ),
    "in a function on one line": (
        "def f(): import tensorflow as tf; tf.keras." + USE,
        "import keras_mp\ndef f(): import tensorflow as tf; " + NEW,
    ),
    "below relative imports": (
        "def f():\n    from . import tensorflow\n    from .keras import a\n"
        "    from tensorflow import keras\n    keras." + USE,
        "def f():\n    from . import tensorflow\n    from .keras import a\n"
        "    import keras_mp\n    from tensorflow import keras\n    " + NEW,
    ),
    "in a function": (
        "def f():\n    from tensorflow.keras import mixed_precision\n    return " + USE,
        "def f():\n    import keras_mp\n    return " + NEW,
    ),
    "alone in a block": (
        "import tensorflow as tf\nif x:\n    from tensorflow.keras import mixed_precision\n" + USE,
        "import keras_mp\nimport tensorflow as tf\nif x:\n    pass\n" + NEW,
    ),
    "before others on a line": (
        "import os; from tensorflow.keras import mixed_precision; " + USE,
        "import keras_mp\nimport os; " + NEW,
    ),
    "a whole path": (
        "import tensorflow.keras.mixed_precision\ntensorflow.keras." + USE,
        "import keras_mp\nimport tensorflow\n" + NEW,
    ),
    "two whole paths": (
        "import tensorflow.keras.mixed_precision, keras.mixed_precision\ntensorflow.keras." + USE,
        "import keras_mp\nimport tensorflow, keras\n" + NEW,
    ),
    "another name": (
        "import tensorflow.keras.mixed_precision.experimental as mp\nuse(mp)\n",
        "import keras_mp.compat.mixed_precision.experimental as mp\nuse(mp)\n",
    ),
    "comments in it": (
        "from tensorflow.keras import (  # all of them\n    layers,  # these\n"
        "    mixed_precision,  # noqa: F401\n)\n" + USE,
        "import keras_mp\nfrom tensorflow.keras import (  # all of them\n    layers,  # these\n"
        ")\n" + NEW,
    ),
    "a comment about it": (
        "from tensorflow.keras import (\n    mixed_precision,  # fast\n    layers)\n" + USE,
        "import keras_mp\nfrom tensorflow.keras import (\n    # fast\n    layers)\n" + NEW,
    ),
    "the last in parentheses": (
        "from tensorflow.keras import (layers,  # slow\n    mixed_precision)\n" + USE,
        "import keras_mp\nfrom tensorflow.keras import (layers,  # slow\n    )\n" + NEW,
    ),
    "two of four": (
        "from tensorflow.keras.mixed_precision import no, global_policy, other, Policy\n"
        "global_policy(); Policy('float32')\n",
        "import keras_mp\nfrom tensorflow.keras.mixed_precision import no, other\n"
        "keras_mp.global_policy(); keras_mp.Policy('float32')\n",
    ),
    "two that fill a block": (
        "import tensorflow as tf\nif x:\n    from tensorflow.keras import mixed_precision\n"
        "    from tensorflow.keras.mixed_precision import Policy\n" + USE + "Policy('float32')\n",
        "import keras_mp\nimport tensorflow as tf\nif x:\n    pass\n    pass\n"
        + NEW
        + "keras_mp.Policy('float32')\n",
    ),
    "beside another in a block": (
        "import tensorflow as tf\nif x:\n    import os\n"
        "    from tensorflow.keras import mixed_precision\n" + USE,
        "import keras_mp\nimport tensorflow as tf\nif x:\n    import os\n" + NEW,
    ),
    "one line of several": (
        "from tensorflow.keras import layers, mixed_precision as mp; f(mp)\n",
        "from tensorflow.keras import layers; "
        "from keras_mp.compat import mixed_precision as mp; f(mp)\n",
    ),
    "a suite on one line": (
        "if x: from tensorflow.keras import layers, mixed_precision\nelse: pass\n",
        "if x: from tensorflow.keras import layers; from keras_mp.compat import mixed_precision\n"
        "else: pass\n",
    ),
    "two on one line": (
        "from tensorflow.keras import mixed_precision; "
        "from tensorflow.keras.mixed_precision import Policy\n" + USE + "Policy('float32')\n",
        "import keras_mp\n\n" + NEW + "keras_mp.Policy('float32')\n",
    ),
    "in a class": (
        "class A:\n    from tensorflow.keras import mixed_precision\n    p = " + USE,
        "import keras_mp\nclass A:\n    from keras_mp.compat import mixed_precision\n    p = "
        + NEW,
    ),
    "comments, and compat's": (
        "from tensorflow.keras.mixed_precision import (  # why\n    Policy)\n",
        "# why\nfrom keras_mp.compat.mixed_precision import Policy\n",
    ),
    "a module as a value": (
        "import tensorflow as tf\nmp = tf.keras.mixed_precision\nmp.set_global_policy('float32')\n",
        "import keras_mp\nimport tensorflow as tf\nmp = keras_mp.compat.mixed_precision\n"
        "keras_mp.compat.mixed_precision.set_global_policy('float32')\n",
    ),
}
LEFT_ALONE = {
    "star": "from tensorflow.keras.mixed_precision.experimental import *\n",
    "unknown": "from tensorflow.python.keras.mixed_precision import autocast_variable\n"
    "autocast_variable.AutoCastVariable\n",
    "unknown by its whole path": "import tensorflow.keras.mixed_precision\n"
    "tensorflow.keras.mixed_precision.no_such_name()\n",
    "unknown of a module": "from tensorflow.keras import mixed_precision as m\nm.no_such_name()\n",
}


@pytest.mark.parametrize(("before", "after"), IMPORTS.values(), ids=IMPORTS)
def test_rewrites(before, after):
    result = rewrite(before)
    assert result.text == after
    compile(after, "program", "exec")
    assert rewrite(after).text == after


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_is_left_alone_and_reported(source):
    result = rewrite(source)
    assert result.text == source
    assert ("manual", 1) in {(f.verdict, f.line) for f in result.findings}


HEADS = {
    "docstring and future": '"""Doc."""\n# c\nfrom __future__ import annotations\n\n',
    "what the environment must say first": "import os\n\nos.environ['A'] = '1'\n",
    "a guard": "import os\nif os.name:\n    pass\n",
}


@pytest.mark.parametrize("above", HEADS.values(), ids=HEADS)
def test_our_import_comes_right_before_that_of_tensorflow(above):
    source = f"{above}import tensorflow as tf\ntf.keras.mixed_precision.global_policy()\n"
    expected = f"{above}import keras_mp\nimport tensorflow as tf\n{NEW}"
    assert rewrite(source).text == expected


@pytest.mark.parametrize("head", ["", '"""Doc."""\n'])
@pytest.mark.parametrize("kind", ["def f():", "class A:"])
def test_our_import_comes_before_decorators(head, kind):
    lines = "@a\n@b\n{}\n    class B:\n        import tensorflow as tf\n        p = {}"
    before, after = lines.format(kind, "tf.keras." + USE), lines.format(kind, NEW)
    assert rewrite(head + before).text == f"{head}import keras_mp\n{after}"


def test_our_import_on_the_line_of_future():
    source = "from __future__ import division; import tensorflow as tf\ntf.keras." + USE
    expected = "from __future__ import division; import keras_mp; import tensorflow as tf\n" + NEW
    assert rewrite(source).text == expected


def test_our_import_that_comes_too_late_is_not_enough():
    source = "import tensorflow as tf\ntf.keras." + USE + "import keras_mp\n"
    assert rewrite(source).text.startswith("import keras_mp\nimport tensorflow")


def test_our_import_that_is_there_already_is_enough():
    source = "import keras_mp, os\nimport tensorflow as tf\ntf.keras.mixed_precision.Policy('x')\n"
    assert rewrite(source).text.count("import keras_mp") == 1


ODD = {
    "form feed": "import tensorflow as tf\n\x0cx = tf.keras.mixed_precision.Policy('x')\n",
    "backslash": "\\\nfrom tensorflow.keras import mixed_precision\nmixed_precision.Policy('x')\n",
}


@pytest.mark.parametrize("source", ODD.values(), ids=ODD)
def test_where_the_parser_does_not_know_its_place_nothing_is_changed(source):
    result = rewrite(source)
    assert result.text == source
    verdicts = {finding.verdict for finding in result.findings}
    assert "manual" in verdicts
    assert "rewritten" not in verdicts
