"""What lambdas ask of types is answered where it is known, and decides which code there is."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from keras_mp.compat.operations import expressions, lambdas
from keras_mp.compat.operations.tables import NotConverted

X, PAIR = {"tensor": 0}, [{"tensor": 0}, {"tensor": 1}]


@dataclass
class Written:
    """A function as `code_objects` reads one."""

    result: ast.expr
    steps: tuple[tuple[str, ast.expr], ...] = ()
    parameters: tuple[str, ...] = ("x",)
    defaults: Mapping[str, object] = field(default_factory=dict)
    closure: Mapping[str, object] = field(default_factory=dict)


def computed(source: str, given: object) -> str:
    *steps, result = (ast.parse(one, mode="eval").body for one in source.split("; "))
    names = [(f"step_{i}", step) for i, step in enumerate(steps)]
    program = lambdas.program(Written(result, tuple(names)), given, {})
    return "; ".join(expressions.as_source(one) for one in (*program.steps, program.result))


@pytest.mark.parametrize(
    ("condition", "of_one", "of_two"),
    [
        ("isinstance(x, list)", False, True),
        ("isinstance(x, tuple)", False, False),
        ("isinstance(x, (list, tuple))", False, True),
        ("isinstance(x, dict)", False, False),
        ("isinstance(x, tf.Tensor)", True, False),
        ("isinstance(x, (np.ndarray, tf.Variable))", False, False),
        ("not isinstance(x, list)", True, False),
        ("tf.is_tensor(x)", True, False),
        ("tensorflow.is_tensor(x)", True, False),
        ("type(x) == list", False, True),
        ("type(x) is list", False, True),
        ("type(x) is not list", True, False),
        ("type(x) != tuple", True, True),
        ("type(x) in (list, tuple)", False, True),
        ("type(x) not in [list, dict]", True, False),
        ("isinstance(x, list) and len(x) == 2", False, True),
        ("isinstance(x, list) or tf.is_tensor(x)", True, True),
    ],
)
def test_of_what_is_given(condition: str, of_one: bool, of_two: bool) -> None:
    assert computed(f"1.0 if {condition} else 0.0", X) == ("1.0" if of_one else "0.0")
    assert computed(f"1.0 if {condition} else 0.0", PAIR) == ("1.0" if of_two else "0.0")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x[0] if isinstance(x, list) else x", "x"),
        ("[x, x] if not isinstance(x, list) else x; step_0[1]", "x"),
        ("x + x if tf.is_tensor(tf.tanh(x)) else x", "x + x"),
        ("tf.tanh(x); step_0 * step_0 if isinstance(step_0, list) else step_0",
         "ops.tanh(x); step_0"),
        ("tf.split(x, 2, 1); step_0[0] if isinstance(step_0, (list, tuple)) else step_0",
         "ops.split(x, indices_or_sections=2, axis=1); step_0[0]"),
        ("x * 2 if isinstance(2, int) and isinstance(True, int) else x", "x * 2"),
        ("x if isinstance('a', (int, float)) or isinstance(None, str) else x + 1", "x + 1"),
        ("x if isinstance((x, 1), list) or isinstance((x, 1), tuple) else x", None),
    ],
)  # fmt: skip
def test_of_other_values(source: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(NotConverted, match="asks for the type of"):
            computed(source, X)
    else:
        assert computed(source, X) == expected


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x if isinstance(x, Image) else x", "asks for the type Image, which is not known"),
        ("x if isinstance(x.shape, list) else x", "asks for the type of ops.static_shape"),
        ("x if isinstance(x.shape[0], int) else x", "asks for the type of ops.static_shape"),
        ("x if isinstance(tf.split(x, 2), list) else x", "asks for the type of ops.split"),
        ("x if isinstance(x, list, 2) else x", "list"),
        ("x if K.is_keras_tensor(x) else x", "true in one version of TensorFlow and false in"),
    ],
)
def test_what_is_not_known(source: str, why: str) -> None:
    with pytest.raises(NotConverted, match=why):
        computed(source, X)
