"""A process of a DistributedDataParallel group is killed: nobody hangs, and training goes on.

The processes are programs: python -m tests.each.backends.test_torch_processes PART RANK FOLDER
"""

import contextlib
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_mp
from tests import programs
from tests.engines.torch import group, in_parallel

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="about torch.distributed"),
]
REPLICAS, ROWS = 2, 6  # ROWS a step and process
STEPS, SAVED, KILLED, BAD = 16, 8, 10, (3, 12)  # of the loop: one bad step on each side
EPOCHS, KILLED_EPOCH, BATCHES = 4, 2, 4  # of fit, with a bad batch in each epoch
KINDS = ("keras", "weights.h5", "pt")


def made():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    optimizer = keras_mp.LossScaleOptimizer(
        keras.optimizers.Adam(0.05, clipnorm=1.0), initial_scale=2.0**10, dynamic_growth_steps=3
    )
    model.compile(optimizer, keras.losses.MeanSquaredError())
    optimizer.build(model.trainable_variables)
    return model


def rows(step, rank):
    """Returns x (ROWS, 6) and y (ROWS, 1); a bad step is one with a nan in the last process."""
    x = np.random.RandomState(REPLICAS * step + rank).randn(ROWS, 6).astype("float32")
    if step in BAD and rank == REPLICAS - 1:
        x[-1, -1] = np.nan
    return x, np.tanh(x.sum(1, keepdims=True))


def state(model):
    """Returns all that training goes on from, as arrays by name."""
    variables = [*model.variables, *model.optimizer.variables]
    return {str(i): keras.ops.convert_to_numpy(v).copy() for i, v in enumerate(variables)}


def save(model, folder):
    import torch

    model.save(folder / "saved.keras")
    model.save_weights(folder / "saved.weights.h5")
    parts = [model.variables, model.optimizer.variables]
    tensors = [[v.value.detach() for v in part] for part in parts]
    torch.save(tensors, folder / "saved.pt")


def restored(kind, folder):
    import torch

    if kind == "keras":
        return keras.saving.load_model(folder / "saved.keras")
    model = made()
    if kind == "weights.h5":
        model.load_weights(folder / "saved.weights.h5")
    else:
        weights, of_optimizer = torch.load(folder / "saved.pt")
        model.set_weights(weights)
        model.optimizer.set_weights(of_optimizer)
    return model


def loop(model, rank, steps, before_backward=lambda step: None, after=lambda step: None):
    import torch

    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer, variables = model.optimizer, model.trainable_variables
    for step in steps:
        x, y = map(torch.from_numpy, rows(step, rank))
        parallel.zero_grad()
        loss = optimizer.scale_loss(((parallel(x, training=True) - y) ** 2).mean())
        before_backward(step)
        loss.backward()
        with torch.no_grad():
            optimizer.apply([v.value.grad for v in variables], variables)
        after(step)
    return model


def fit(rank, folder, kill):
    """Returns a model that Keras' `fit` trained, whose backups process 0 makes and all restore."""

    class Kill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            if kill and rank == 1 and (self.epoch, batch) == (KILLED_EPOCH, BATCHES // 2):
                os.kill(os.getpid(), signal.SIGKILL)

    model = made()
    parallel = in_parallel(model)
    parallel.compile(model.optimizer, keras.losses.MeanSquaredError())
    backup = keras.callbacks.BackupAndRestore(
        str(folder / "backup"),
        save_freq="epoch" if rank == 0 else 10**9,
        delete_checkpoint=rank == 0,
    )
    batches = [rows(step, rank) for step in range(2, 2 + BATCHES)]
    x, y = map(np.concatenate, zip(*batches, strict=True))
    parallel.fit(
        x, y, batch_size=ROWS, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[backup, Kill()]
    )
    return model


def write(model, path, rank):
    np.savez(f"{path}.{rank}.npz", **state(model))


def whole_run(rank, folder):
    """Nothing happens to these, and then process 1 is killed between forward and backward."""
    write(loop(made(), rank, range(STEPS)), folder / "loop", rank)
    write(fit(rank, folder, kill=False), folder / "fit", rank)
    model = made()

    def after(step):
        if step + 1 == SAVED and rank == 0:
            save(model, folder)

    def before_backward(step):
        if step == KILLED and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    loop(model, rank, range(STEPS), before_backward, after)


def loop_goes_on(rank, folder):
    for kind in KINDS:
        model = loop(restored(kind, folder), rank, range(SAVED, STEPS))
        write(model, folder / f"loop {kind}", rank)
    fit(rank, folder, kill=True)


def fit_goes_on(rank, folder):
    assert (folder / "backup").exists()
    write(fit(rank, folder, kill=False), folder / "fit backup", rank)


PARTS = {"whole run": whole_run, "loop goes on": loop_goes_on, "fit goes on": fit_goes_on}


def main(part, rank, folder):
    import torch

    torch.set_num_threads(1)
    path = folder / f"{part}.store"
    with group(path, rank, REPLICAS, timeout=timedelta(seconds=20)):
        PARTS[part](rank, folder)


def run(part, folder):
    """Returns (exit code, what was said) of each process, and the seconds that 0 outlived 1."""
    started, ended = [], [0.0] * REPLICAS
    deadline = time.monotonic() + 90
    with contextlib.ExitStack() as scope:
        for rank in range(REPLICAS):
            command = ["-m", "tests.each.backends.test_torch_processes", part, rank, folder]
            log = scope.enter_context((folder / f"{rank}.log").open("w"))
            process = programs.started(*command, stdout=log, imported=True, GLOO_SOCKET_IFNAME="lo")
            started.append(scope.enter_context(process))
        while not all(ended) and time.monotonic() < deadline:
            time.sleep(0.05)
            for rank, process in enumerate(started):
                if not ended[rank] and process.poll() is not None:
                    ended[rank] = time.monotonic()
    said = [(folder / f"{rank}.log").read_text()[-3000:] for rank in range(REPLICAS)]
    assert all(ended), f"a process hangs: {said}"
    return [process.returncode for process in started], said, ended[0] - ended[1]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The folder with what every run ended with."""
    folder = tmp_path_factory.mktemp("killed")
    for part in ("whole run", "loop goes on"):
        codes, said, seconds = run(part, folder)
        assert codes == [1, -signal.SIGKILL], said
        assert "Error" in said[0]
        assert seconds < 25, "longer than the timeout of the group"
    codes, said, _ = run("fit goes on", folder)
    assert codes == [0, 0], said
    return folder


def of_run(found, name, rank):
    with np.load(found / f"{name}.{rank}.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", ["fit", "fit backup", "loop", *(f"loop {k}" for k in KINDS)])
@pytest.mark.parametrize("rank", range(REPLICAS))
def test_ends_as_the_run_that_nobody_killed(found, name, rank):
    expected, ended = of_run(found, name.split()[0], 0), of_run(found, name, rank)
    assert ended.keys() == expected.keys()
    for key, value in expected.items():
        assert np.isfinite(value).all()
        np.testing.assert_array_equal(ended[key], value)


def test_steps_were_skipped_on_both_sides(found):
    """The rule by hand: what the loss scale and its counter must be in the end."""
    scale, counter = 2.0**10, 0
    for step in range(STEPS):
        counter = 0 if step in BAD or counter == 2 else counter + 1
        scale *= 0.5 if step in BAD else 2.0 if counter == 0 else 1.0
    model = made()
    first = len(model.variables)
    ended = of_run(found, "loop", 0)
    names = [v.name for v in model.optimizer.variables]
    by_name = {name: ended[str(first + i)] for i, name in enumerate(names)}
    assert (by_name["dynamic_scale"], by_name["step_counter"]) == (scale, counter)
    assert BAD[0] < SAVED < KILLED < BAD[1]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
