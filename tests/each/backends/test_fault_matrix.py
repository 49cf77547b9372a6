"""Faults on some replicas: all skip the step, or none, and all end as one device would.

Each engine (`tests/engines`) trains in a process of its own (`tests/faults.py`), as its devices
must exist before the framework starts.
"""

import importlib

import keras
import numpy as np
import pytest

from tests import programs
from tests.durations import shared
from tests.faults import CASES, GROWTH, STEPS

pytestmark = pytest.mark.processes
OF_BACKEND = importlib.import_module(f"tests.engines.{keras.backend.backend()}")


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """A function that returns what an engine ended with: "case/count_skipped_steps/what"."""

    @shared
    def once(engine, replicas):
        out = tmp_path_factory.mktemp("faults") / "found.npz"
        programs.run("-m", "tests.faults", engine, replicas, out, timeout=250, imported=True)
        with np.load(out) as arrays:
            return dict(arrays)

    return once


def by_hand(bad):
    """The rule: what the loss scale and its counter are after all steps."""
    scale, counter = 2.0**10, 0
    for step in range(STEPS):
        if step in bad:
            scale, counter = max(scale / 2, 1.0), 0
        elif counter + 1 == GROWTH:
            scale, counter = scale * 2, 0
        else:
            counter += 1
    return scale, counter


def weights(found, start):
    return {key: value for key, value in found.items() if key.startswith(f"{start}/weights/")}


@pytest.mark.parametrize("count", [True, False], ids=["counted", "not counted"])
@pytest.mark.parametrize("case", CASES)
def test_one_device_follows_the_rule(train, case, count):
    found, bad = train("single", 1), CASES[case][0]
    assert (found[f"{case}/{count}/scale"], found[f"{case}/{count}/counter"]) == by_hand(bad)
    steps = STEPS if count else STEPS - len(bad)
    assert found[f"{case}/{count}/iterations"] == steps
    if bad:  # plain SGD: its steps do not hang on the number of the step
        for key, value in weights(found, f"{case}/{count}").items():
            without = found[key.replace("/weights/", "/without/weights/")]
            np.testing.assert_array_equal(value, without)


@pytest.mark.parametrize(("engine", "replicas"), OF_BACKEND.TESTED)
@pytest.mark.parametrize("count", [True, False], ids=["counted", "not counted"])
@pytest.mark.parametrize("case", CASES)
def test_replicas_end_as_one_device(train, engine, replicas, case, count):
    one, many = train("single", 1), train(engine, replicas)
    for what in ("scale", "counter", "iterations"):
        assert many[f"{case}/{count}/{what}"] == one[f"{case}/{count}/{what}"]
    copies = weights(many, f"{case}/{count}")
    assert copies.keys() >= weights(one, f"{case}/{count}").keys()
    for key, value in copies.items():
        first = f"{key.rpartition('/')[0]}/0"
        np.testing.assert_array_equal(value, copies[first], err_msg="replicas differ")
        np.testing.assert_allclose(value, one[first], rtol=0, atol=1e-6)
        assert np.isfinite(value).all()


@pytest.mark.parametrize(("engine", "replicas"), OF_BACKEND.TESTED)
def test_every_replica_was_looked_at(train, engine, replicas):
    found = train(engine, replicas)
    copies = [key for key in weights(found, "no fault/True") if "/out/bias/" in key]
    assert len(copies) == getattr(OF_BACKEND, "COPIES", {}).get(engine, replicas)
    assert found["no fault/True/cut"] == getattr(OF_BACKEND, "CUT", {}).get(engine, 0)
