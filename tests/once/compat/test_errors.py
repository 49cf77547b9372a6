"""What the errors of compat say, and that they say it in another process, too."""

import pickle

import pytest

from keras_mp.compat.configs import convert
from keras_mp.compat.errors import LegacyError

OWN = LegacyError("$.a", "is a class", "pass it", needs_code=True)
OTHER = LegacyError("$.b", "is odd", "keep it")


@pytest.mark.parametrize(
    ("error", "needs_code"),
    [
        (OWN, True),
        (OTHER, False),
        (LegacyError("$", "has 2 layers", each=(OTHER, OWN)), True),
        (LegacyError("$", "has 1 layer", each=(OTHER,)), False),
    ],
)
def test_pickled(error: LegacyError, needs_code: bool) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.path, again.needs_code) == (error.path, needs_code)


LAMBDA = {"class_name": "Lambda", "config": {"name": "l", "function": "f", "trainable": True}}


def model(*layers: dict[str, object]) -> dict[str, object]:
    return {"class_name": "Sequential", "config": {"name": "net", "layers": list(layers)}}


@pytest.mark.parametrize(
    ("config", "needs_code"),
    [
        (model(LAMBDA), True),
        (model({"class_name": "TFOpLambda", "config": {"name": "a"}}), False),
        ({"class_name": "SGD", "config": {"learning_rate": "x"}}, False),
    ],
)
def test_needs_code(config: dict[str, object], needs_code: bool) -> None:
    with pytest.raises(LegacyError) as raised:
        convert(config)
    assert raised.value.needs_code is needs_code, raised.value
