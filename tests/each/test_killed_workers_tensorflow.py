"""A worker is killed in the middle of training: nobody hangs, and it goes on from the checkpoint.

MultiWorkerMirroredStrategy, `tests/engines/tensorflow_workers.py`.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import faults
from tests.engines.tensorflow_workers import EVERY, FAULTS, STEPS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.distribute"),
]
WORKERS = 2
DIES_AT = 12


def train(folder, *arguments):
    """Starts the workers; returns exit code, output and what each ended with; none outlives it."""
    addresses = faults.free_addresses(WORKERS)
    outs = [folder / f"{len(list(folder.iterdir()))}.{i}.npz" for i in range(WORKERS)]
    started = []
    try:
        for i, out in enumerate(outs):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
            command = [sys.executable, "-m", "tests.engines.tensorflow_workers", folder, out]
            started.append(
                subprocess.Popen(
                    [*map(str, command), *arguments],
                    env={**os.environ, "TF_CONFIG": json.dumps(task)},
                    cwd=Path(__file__).resolve().parents[2],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        said = [process.communicate(timeout=100)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    codes = [process.returncode for process in started]
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

    codes, said, ended = train(cut, str(DIES_AT))
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
