"""Two processes of JAX, one killed: the other ends, too, and both continue from the last backup."""

import contextlib
import json
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import programs
from tests.engines import jax as engines
from tests.faults import free_addresses

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="about jax.distributed"),
]
EPOCHS, BATCHES, BATCH, BAD = 4, 4, 24, 1
HEARTBEAT = 5  # seconds without a sign of life, and a process counts as dead

# Arguments: where the backup is, where the result goes, which process is killed (-1: none).
PROGRAM = r"""
import os, signal, sys
import jax, keras, numpy as np
import keras_mp

folder, out, killed = sys.argv[1], sys.argv[2], int(sys.argv[3])
EPOCHS, BATCHES, BATCH, BAD, HEARTBEAT = map(int, sys.argv[4:])
keras_mp.set_global_policy("mixed_float16")  # all this before JAX has devices
keras_mp.auto_wrap()
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(
    os.environ["KERAS_DISTRIBUTION_JOB_ADDRESSES"].split(",")[0],
    int(os.environ["KERAS_DISTRIBUTION_NUM_PROCESSES"]),
    int(os.environ["KERAS_DISTRIBUTION_PROCESS_ID"]),
    heartbeat_timeout_seconds=HEARTBEAT,
)
rank, size = jax.process_index(), BATCH // 2
parallel = keras.distribution.DataParallel(auto_shard_dataset=False)
keras.distribution.set_distribution(parallel)
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
inner = keras.optimizers.Adam(0.01)
optimizer = keras_mp.LossScaleOptimizer(inner, initial_scale=256.0, dynamic_growth_steps=2)
model.compile(optimizer, keras.losses.MeanSquaredError())
x = np.random.RandomState(rank).randn(BATCHES * size, 4).astype("float32")
y = x.sum(1, keepdims=True)
if rank == 1:
    x[BAD * size] = np.nan  # a step of each epoch is skipped, by both

class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 2) and rank == killed:
            os.kill(os.getpid(), signal.SIGKILL)

# A backup each: Keras creates variables while it saves, which all processes must do together.
# Doubled, as the process that is left ends while it writes the next, whose numbers never come.
callbacks = [Killed()]
if folder:
    callbacks.append(
        keras.callbacks.BackupAndRestore(
            f"{folder}/{rank}", double_checkpoint=True, delete_checkpoint=False
        )
    )
model.fit(x, y, batch_size=size, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks)
found = [*model.variables, *optimizer.variables]
found = {f"{i:02} {v.path}": keras.ops.convert_to_numpy(v) for i, v in enumerate(found)}
np.savez(f"{out}.{rank}.npz", **found)
jax.distributed.shutdown()
"""


def together(folder, out, killed=-1):
    """Runs the program twice at the same time; returns the exit statuses, and seconds to the end.

    No process outlives this.
    """
    addresses, started, begin = free_addresses(2), [], time.monotonic()
    command = ["-c", PROGRAM, folder, out, killed, EPOCHS, BATCHES, BATCH, BAD, HEARTBEAT]
    with contextlib.ExitStack() as scope:
        for i in range(2):
            text = scope.enter_context(Path(f"{out}.{i}.txt").open("w"))
            # Not forks: what one that fails has not written yet must be written as it ends.
            environment = engines.environment(i, addresses)
            process = programs.started(*command, stdout=text, **environment)
            started.append(scope.enter_context(process))
        return [process.wait(timeout=60) for process in started], time.monotonic() - begin


def ended_with(out):
    """Returns what both processes ended with, which is the same to the bit."""
    both = []
    for i in range(2):
        with np.load(f"{out}.{i}.npz") as arrays:
            both.append({key: arrays[key].tobytes() for key in arrays.files})
    assert both[0] == both[1]
    return both[0]


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "found"
    assert together("", out)[0] == [0, 0], Path(f"{out}.0.txt").read_text()[-3000:]
    return ended_with(out)


def test_as_the_rule_says(never_killed):
    scale, counter = 256.0, 0
    for step in range(EPOCHS * BATCHES):
        if step % BATCHES == BAD:
            scale, counter = scale / 2, 0
        elif counter + 1 == 2:
            scale, counter = scale * 2, 0
        else:
            counter += 1
    found = {key.rpartition("/")[2]: value for key, value in never_killed.items()}
    assert np.frombuffer(found["dynamic_scale"], "float32") == scale
    assert np.frombuffer(found["step_counter"], "int32") == counter


@pytest.mark.parametrize("killed", [0, 1], ids=["the coordinator", "the other"])
def test_killed_and_continued_is_as_never_killed(never_killed, tmp_path, killed):
    backup = tmp_path / "backup"
    statuses, seconds = together(backup, tmp_path / "killed", killed)
    assert statuses[killed] == -9
    assert statuses[1 - killed] != 0
    assert seconds < 60
    for i in range(2):
        saved = json.loads((backup / str(i) / "training_metadata.json").read_text())
        assert saved["epoch"] == 2
    statuses, _ = together(backup, tmp_path / "continued")
    assert statuses == [0, 0], Path(tmp_path / "continued.0.txt").read_text()[-3000:]
    assert ended_with(tmp_path / "continued") == never_killed
