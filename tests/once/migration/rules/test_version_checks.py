"""KMP014: code that asks which TensorFlow there is."""

import pytest

from keras_mp.migration.code.rewriting import rewrite

LEFT_ALONE = {
    "as text": (
        "import tensorflow as tf\nif tf.__version__ >= '2.4':\n"
        "    tf.keras.mixed_precision.set_global_policy(p)\nelse:\n"
        "    tf.keras.mixed_precision.experimental.set_policy(p)\n",
        {3, 5},
    ),
    "not known": (
        "import tensorflow as tf\nif LooseVersion(tf.__version__) >= '2.18':\n"
        "    tf.keras.mixed_precision.set_global_policy(p)\n",
        {3},
    ),
    "a name for it": (
        "import tensorflow as tf\nNEW = tf.__version__ > '2.4'\n"
        "p = tf.keras.mixed_precision.Policy(x) if NEW else None\n",
        {3},
    ),
    "hasattr": (
        "import tensorflow as tf\nif hasattr(tf.keras.mixed_precision, 'set_global_policy'):\n"
        "    tf.keras.mixed_precision.set_global_policy(p)\n",
        {2, 3},
    ),
    "try": (
        "try:\n    from tensorflow.keras import mixed_precision\nexcept ImportError:\n"
        "    from tensorflow.keras.mixed_precision import experimental as mixed_precision\n"
        "mixed_precision.Policy('mixed_float16')\n",
        {2, 4, 5},
    ),
    "catching anything": (
        "try:\n    from tensorflow.keras import mixed_precision\nexcept Exception:\n"
        "    mixed_precision = None\nmixed_precision.global_policy()\n",
        {2, 5},
    ),
    "and": (
        "import tensorflow as tf\n"
        "tf.__version__ > '2.4' and tf.keras.mixed_precision.set_global_policy(p)\n",
        {2},
    ),
    "match": (
        "import tensorflow as tf\nmatch tf.__version__:\n    case '2.4':\n"
        "        tf.keras.mixed_precision.set_global_policy(p)\n",
        {4},
    ),
    "suppress": (
        "from contextlib import suppress\nwith suppress(ImportError):\n"
        "    from tensorflow.keras import mixed_precision\nmixed_precision.global_policy()\n",
        {3, 4},
    ),
    "two meanings": (
        "from tensorflow.keras.mixed_precision import Policy\nif x:\n    from mine import Policy\n"
        "Policy('mixed_float16')\n",
        {1, 4},
    ),
}


@pytest.mark.parametrize(("source", "lines"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_is_left_alone_and_reported(source, lines):
    result = rewrite(source)
    assert result.text == source
    found = {(f.line, f.rule, f.verdict) for f in result.findings if f.rule != "KMP016"}
    assert found == {(line, "KMP014", "manual") for line in lines}


DECIDED = {
    "if": (
        "import tensorflow as tf\nif LooseVersion(tf.__version__) >= '2.4':\n"
        "    tf.keras.mixed_precision.set_global_policy(p)\nelse:\n"
        "    tf.keras.mixed_precision.experimental.set_policy(p)\n"
    ),
    "elif": (
        "import tensorflow as tf\nif version.parse(tf.__version__) < version.parse('2.1'):\n"
        "    tf.keras.mixed_precision.experimental.set_policy(p)\n"
        "elif version.parse(tf.__version__) < version.parse('2.4'):\n"
        "    tf.keras.mixed_precision.experimental.set_policy(p)\n"
        "else:\n    tf.keras.mixed_precision.set_global_policy(p)\n"
    ),
    "a name": (
        "import tensorflow as tf\nOLD = int(tf.__version__.split('.')[0]) < 2\nif not OLD:\n"
        "    tf.keras.mixed_precision.set_global_policy(p)\nelse:\n"
        "    tf.keras.mixed_precision.experimental.set_policy(p)\n"
    ),
    "imports": (
        "import tensorflow as tf\nif tf.__version__.startswith('1.'):\n"
        "    from tensorflow.keras.mixed_precision.experimental import set_policy\nelse:\n"
        "    from tensorflow.keras.mixed_precision import set_global_policy as set_policy\n"
        "set_policy(p)\n"
    ),
    "an attribute of optimizers": (
        "import tensorflow as tf\ntf.keras.mixed_precision.set_global_policy(p)\n"
        "def scale(opt):\n"
        "    if version.parse(tf.__version__) < version.parse('2.4.0'):\n"
        "        return opt.loss_scale()  # experimental\n"
        "    return opt.loss_scale\n"
    ),
    "what the other module had": (
        "import tensorflow as tf\nNEW = LooseVersion(tf.__version__) >= '2.4'\n"
        "if LooseVersion(tf.__version__) >= '2.4':\n"
        "    from tensorflow.keras import mixed_precision\nelse:\n"
        "    from tensorflow.keras.mixed_precision import experimental as mixed_precision\n"
        "if NEW:\n    mixed_precision.set_global_policy(p)\n"
        "else:\n    mixed_precision.set_policy(p)\n"
    ),
    "an expression": (
        "import tensorflow as tf\n"
        "tf.keras.mixed_precision.set_global_policy(p) if LooseVersion(tf.__version__) > '2.4' "
        "else tf.keras.mixed_precision.experimental.set_policy(p)\n"
    ),
    "and": (
        "import tensorflow as tf\n"
        "LooseVersion(tf.__version__) > '2.4' and tf.keras.mixed_precision.set_global_policy(p)\n"
        "LooseVersion(tf.__version__) > '2.4' or tf.keras.mixed_precision.experimental.Policy(p)\n"
    ),
}


@pytest.mark.parametrize("source", DECIDED.values(), ids=DECIDED)
def test_what_is_reached_is_rewritten_and_the_rest_is_kept(source):
    result = rewrite(source)
    assert result.text.count("keras_mp.compat.mixed_precision.set_global_policy") == 1
    assert "experimental" in result.text, "what is not reached stays"
    assert {f.verdict for f in result.findings} == {"rewritten", "kept"}
    compile(result.text, "program", "exec")
    assert rewrite(result.text).text == result.text


def test_a_comparison_of_text_is_told():
    result = rewrite(LEFT_ALONE["as text"][0])
    assert "tf.__version__ >= '2.4' is False for TensorFlow 2.21" in result.findings[0].message


def test_a_missing_add_on_is_no_question_of_versions():
    source = (
        "import tensorflow as tf\ntry:\n    import tensorflow_addons as tfa\n"
        "except ImportError:\n    pass\nelse:\n    tf.keras.mixed_precision.set_global_policy(p)\n"
    )
    assert [f.verdict for f in rewrite(source).findings] == ["rewritten"]


REWRITTEN = {
    "whether TensorFlow is there": "try:\n    import tensorflow as tf\nexcept ImportError:\n"
    "    tf = None\ntf.keras.mixed_precision.set_global_policy(p)\n",
    "the version of Python": "import sys\nimport tensorflow as tf\nif sys.version_info > (3, 8):\n"
    "    tf.keras.mixed_precision.set_global_policy(p)\n",
    "another error": "import tensorflow as tf\ntry:\n"
    "    tf.keras.mixed_precision.set_global_policy(p)\nexcept ValueError:\n    pass\n",
}


@pytest.mark.parametrize("source", REWRITTEN.values(), ids=REWRITTEN)
def test_other_questions_do_not_matter(source):
    assert "keras_mp.compat.mixed_precision.set_global_policy(p)" in rewrite(source).text
