"""One process, one backend: `KERAS_BACKEND` is read when keras is imported."""

import os
import sys

import pytest
from hypothesis import settings

from tests.fuzzing import FUZZING, examples

os.environ.setdefault("KERAS_BACKEND", "jax")
pytest_plugins = ["tests.durations", "tests.store_servers", "tests.turns"]
LOOPBACK = (None, "", "localhost", "127.0.0.1", "::1", b"localhost", b"127.0.0.1", b"::1")


def _no_network(event, arguments):
    """Nothing in the project goes over a network; workers on this machine may talk."""
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if host not in LOOPBACK:
        raise PermissionError(f"a test wants to reach {host} over a network")


sys.addaudithook(_no_network)

settings.register_profile("keras_mp", max_examples=examples(100))
settings.load_profile("keras_mp")
if FUZZING:
    settings.register_profile("fuzz", settings.get_profile("keras_mp"), derandomize=False)
    settings.load_profile("fuzz")

# The first re-exports: the examples are run where they are written. The other is recordings.
collect_ignore = ["keras_mp/__init__.py", "tests/data"]


@pytest.fixture(autouse=True)
def _compile_as_before():
    """What the policies of tf.keras make of `compile` ends with the test, or the example."""
    yield
    policies = sys.modules.get("keras_mp.compat.legacy_classes.policies")
    if policies is not None and policies._undo is not None:
        policies._undo()
        policies._undo = None
