"""The old names: one table, importable where they were, deprecated once each."""

import importlib
import operator
import warnings

import pytest

import keras_mp
from keras_mp.compat import names
from tests import programs
from tests.backends import on_one

# As people imported them, with `tf` or `tensorflow` replaced by `keras_mp.compat`.
MODULES = {
    "tf.keras.mixed_precision": "keras_mp.compat.mixed_precision",
    "tf.keras.mixed_precision.experimental": "keras_mp.compat.mixed_precision.experimental",
    "tf.mixed_precision.experimental": "keras_mp.compat.mixed_precision.experimental",
    "tf.train.experimental": "keras_mp.compat.train.experimental",
    "tf.compat.v1.keras.mixed_precision": "keras_mp.compat.v1.keras:mixed_precision",
    "tf.compat.v1.keras.mixed_precision.experimental": (
        "keras_mp.compat.v1.keras:mixed_precision:experimental"
    ),
    "tf.compat.v1.mixed_precision": "keras_mp.compat.v1.mixed_precision",
    "tf.compat.v1.mixed_precision.experimental": "keras_mp.compat.v1.mixed_precision:experimental",
    "tf.compat.v1.train.experimental": "keras_mp.compat.v1.train:experimental",
}


def opened(path):
    module, *attributes = path.split(":")
    found = importlib.import_module(module)
    for attribute in attributes:
        found = getattr(found, attribute)
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("old", names.NAMES)
def test_every_old_name_is_there(old):
    space, _, name = old.rpartition(".")
    module = opened(MODULES[space])
    assert getattr(module, name) is names.find(names.NAMES[old])
    assert name in dir(module)


@on_one
def test_from_imports_work_as_they_were_written():
    source = (
        "from keras_mp.compat import mixed_precision\n"
        "from keras_mp.compat.mixed_precision import experimental as mp, LossScaleOptimizer\n"
        "from keras_mp.compat.mixed_precision.experimental import Policy, LossScaleOptimizer as L\n"
        "import keras_mp.compat.mixed_precision.experimental as again\n"
        "from keras_mp.compat.train.experimental import DynamicLossScale\n"
        "from keras_mp.compat.train import experimental\n"
        "from keras_mp.compat.v1.mixed_precision import FixedLossScale\n"
        "import keras_mp.compat.v1.train.experimental, keras_mp.compat.v1.keras.mixed_precision\n"
        "import keras_mp.compat.v1.keras.mixed_precision.experimental as v1\n"
        "from keras_mp.compat.v1.mixed_precision.experimental import LossScale\n"
        "assert v1 is mp\n"
        "assert mixed_precision.experimental is mp is again\n"
        "assert issubclass(L, LossScaleOptimizer) and mp.DynamicLossScale is DynamicLossScale\n"
    )
    programs.run("-c", source, timeout=120)


@pytest.mark.parametrize(
    "source",
    [
        "import keras_mp.compat.v1 as tf1; tf1.train.experimental; tf1.keras.mixed_precision",
        "from keras_mp import compat; compat.train, compat.mixed_precision, compat.v1",
        "import keras_mp; keras_mp.compat.mixed_precision.Policy",
    ],
)
@on_one
def test_attributes_lead_there(source):
    programs.run("-c", source, timeout=120)


def test_a_name_that_never_was():
    with pytest.raises(AttributeError, match="has no attribute 'MovingLossScale'"):
        _ = opened(MODULES["tf.train.experimental"]).MovingLossScale


def test_each_name_warns_once_and_for_the_line_of_the_caller(monkeypatch):
    monkeypatch.setattr(names, "_warned", set())
    experimental = opened("keras_mp.compat.mixed_precision.experimental")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            _ = experimental.Policy
            _ = experimental.set_policy
    assert [str(w.message).split(" is")[0].split(".")[-1] for w in caught] == [
        "Policy",
        "set_policy",
    ]
    assert {w.filename for w in caught} == {__file__}
    assert "use keras_mp.Policy" in str(caught[0].message)


def test_every_deprecated_name_has_a_replacement_that_exists():
    deprecated = {home for home in names.NAMES.values() if home in names.INSTEAD}
    assert deprecated == set(names.INSTEAD)
    for text in names.INSTEAD.values():
        for word in text.replace("(", " ").split():
            if word.startswith("keras_mp."):
                operator.attrgetter(word.removeprefix("keras_mp.").rstrip(","))(keras_mp)


def test_what_never_was_deprecated_does_not_warn(monkeypatch):
    monkeypatch.setattr(names, "_warned", set())
    from keras_mp.compat import mixed_precision

    for name in ("LossScaleOptimizer", "Policy", "set_global_policy", "global_policy"):
        assert hasattr(mixed_precision, name)
