"""A warning that is said once an optimizer, from the caller's line."""

import warnings
from types import SimpleNamespace

import pytest

from keras_mp.backends.common.warn_once import WarnOnce


def warn_once(compiling=False):
    return WarnOnce(SimpleNamespace(is_compiling=lambda: compiling))


def test_each_message_once():
    warn = warn_once()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for message in ("a", None, "b", "a", "b"):
            warn(message, stacklevel=2)
    assert [str(each.message) for each in caught] == ["a", "b"]
    assert {each.filename for each in caught} == {__file__}


def test_each_optimizer_has_its_own():
    for _ in range(2):
        with pytest.warns(UserWarning, match="^a$"):
            warn_once()("a")


def test_silent_while_compiling_and_not_lost():
    compiling = [True]
    warn = WarnOnce(SimpleNamespace(is_compiling=lambda: compiling[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn("a")
    compiling[0] = False
    with pytest.warns(UserWarning, match="^a$"):
        warn("a")
