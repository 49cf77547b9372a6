"""What `--keras3` takes grows as the program does, and what depends on itself comes to an end."""

import functools
from collections.abc import Callable

import pytest

from keras_mp.migration.code.rewriting import Options, rewrite
from tests.counting import growth

HEAD = "import tensorflow as tf\nfrom tensorflow.keras import layers, Model, backend as K\n"
INPUT = f"{HEAD}x = tf.keras.Input((3,))\n"
REPEATED: dict[str, Callable[[int], str]] = {
    "aliases": lambda n: (
        f"{HEAD}a0 = layers.Dense(3)\n"
        + "".join(f"a{i + 1} = a{i}\na{i}.output_shape\n" for i in range(n))
    ),
    "a name of layers": lambda n: INPUT + "x = layers.Dense(3)(x)\n" * n + "tf.abs(x)\n",
    "names that depend on each other": lambda n: (
        HEAD
        + "".join(
            f"a{i} = layers.add([a{(i + 1) % n}, a{(i * 7 + 3) % n}])\ntf.abs(a{i})\n"
            for i in range(n)
        )
    ),
    "functions that return each other": lambda n: (
        HEAD
        + "".join(
            f"def f{i}():\n    if a: return f{(i + 1) % n}()\n    return f{(i + 2) % n}()\n"
            f"f{i}().input_names\n"
            for i in range(n)
        )
    ),
    "uses": lambda n: HEAD + "K.placeholder()\n" * n,
    "metrics": lambda n: f"{HEAD}m = tf.keras.metrics.Mean()\n" + "m.reset_states()\n" * n,
    "imports": lambda n: HEAD + "from tensorflow.python.keras.layers import Dense\n" * n,
    "a sum": lambda n: f"{INPUT}tf.abs({' + '.join(['x'] * n)})\n",
}


# What each of these lines costs is bounded, and much.
COSTLY = (
    *("a name of layers", "functions that return each other", "imports"),
    "names that depend on each other",
)


@pytest.mark.parametrize("case", REPEATED)
def test_what_is_repeated(case: str) -> None:
    keras3 = functools.partial(rewrite, options=Options(keras3=True))
    first = 20 if case in COSTLY else 40
    programs = map(REPEATED[case], (first, 2 * first, 4 * first))
    assert growth(keras3, programs) < 2.4


def test_a_tensor_that_depends_on_itself():
    blocks = "y = x\nx = layers.Dense(3)(x)\nx = layers.add([x, y])\n" * 40
    found = rewrite(f"{INPUT}{blocks}tf.abs(x)\n", Options(keras3=True)).findings
    assert [one.rule for one in found] == ["KMP114"]


def test_names_that_depend_on_each_other_and_on_no_input():
    program = f"{HEAD}x = layers.add([y, y])\ny = layers.add([x, x])\ntf.abs(x)\n"
    assert rewrite(program, Options(keras3=True)).findings == ()
