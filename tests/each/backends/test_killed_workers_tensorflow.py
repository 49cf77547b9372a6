"""A worker is killed in the middle of training: nobody hangs, and it goes on from the checkpoint.

MultiWorkerMirroredStrategy, `tests/engines/tensorflow_workers.py`.
"""

import contextlib
import json
import signal

import keras
import numpy as np
import pytest

from tests import faults, programs
from tests.engines.tensorflow_workers import EVERY, FAULTS, STEPS

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.distribute"),
]
WORKERS = 2
DIES_AT = 12


def train(folder, *arguments):
    """Starts the workers; returns exit code, output and what each ended with; none outlives it."""
    addresses = faults.free_addresses(WORKERS)
    run, started = len(list(folder.iterdir())), []
    outs, logs = ([folder / f"{run}.{i}.{kind}" for i in range(WORKERS)] for kind in ("npz", "log"))
    with contextlib.ExitStack() as scope:
        for i, out in enumerate(outs):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            command = ["-m", "tests.engines.tensorflow_workers", folder, out, *arguments]
            log = scope.enter_context(logs[i].open("w"))
            process = programs.started(
                *command, stdout=log, imported=True, TF_CONFIG=json.dumps(task)
            )
            started.append(scope.enter_context(process))
        codes = [process.wait(timeout=100) for process in started]
    said = [log.read_text() for log in logs]
    return codes, said, [dict(np.load(out)) for out in outs if out.exists()]


def by_hand():
    """The rule: the loss scale and its counter after all steps."""
    scale, counter = 2.0**10, 0
    for step in range(STEPS):
        counter = 0 if step in FAULTS else counter + 1
        if step in FAULTS:
            scale /= 2
        elif counter == 4:
            scale, counter = scale * 2, 0
    return scale, counter


def test_they_end_as_if_nothing_had_happened(tmp_path):
    """One step is skipped before the break, and one after it."""
    assert FAULTS[0] < DIES_AT // EVERY * EVERY < DIES_AT < FAULTS[1]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    codes, said, uninterrupted = train(whole)
    assert codes == [0, 0], said

    codes, said, ended = train(cut, DIES_AT)
    assert codes == [3, -signal.SIGKILL], said
    assert "UnavailableError" in said[0]
    assert not ended

    codes, said, continued = train(cut)
    assert codes == [0, 0], said
    assert [int(state.pop("begin")) for state in continued] == [DIES_AT // EVERY * EVERY] * 2
    assert [int(state.pop("begin")) for state in uninterrupted] == [0, 0]
    assert len(uninterrupted) == len(continued) == WORKERS
    for state in [*uninterrupted, *continued]:
        assert state.keys() == uninterrupted[0].keys()
        for key, value in state.items():
            np.testing.assert_array_equal(value, uninterrupted[0][key], err_msg=key)
    counter, scale, iterations = (uninterrupted[0][key] for key in ("2", "3", "4"))
    assert (scale, counter) == by_hand()
    assert iterations == STEPS
