"""What `keras-mp migrate` of a large checkpoint takes: seconds, memory, disk.

python benchmarks/large.py [--gigabytes N ...] [--megabytes N] [--backends B ...] [--folder FOLDER]
                           [--json FILE]

A process for each size and form of the output: one `.keras` file, and shards of 1 GB. The
checkpoint has weights, and two slots of Adam for each; its tensors are of 64 MiB unless
`--megabytes` says otherwise. Memory is the most that the process had, less what it had after a
small checkpoint, whose migration imports the same. Disk is the most that was in the folder of the
output while it was made. Seconds are of one run, with the checkpoint in memory of the system as far
as that goes; those of the processor hardly depend on what else the machine does.

Sizes are decimal: 1 GB is 10^9 bytes. Only Linux says how much memory a process had. FOLDER (the
system's for temporary files, unless given) needs room for three times the largest size.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import running
from tests import bundles

GB, MIB = 10**9, 1 << 20
FORMS = {".keras": (), "shards": ("--shard-size", "1GB")}
WIDTH = 4096  # of what goes into a layer


# -- in a process of its own ----------------------------------------------------------------------


def write(folder: Path, layers: int, units: int, width: int) -> int:
    """Writes a checkpoint with the state of Adam, and the configs; returns its bytes."""
    import keras

    import keras_mp

    folder.mkdir()
    inputs = keras.Input((width,))
    with keras.StatelessScope(initialize_variables=False):
        # Side by side: the kernels need not be square.
        each = [keras.layers.Dense(units, use_bias=False)(inputs) for _ in range(layers)]
        model = keras.Model(inputs, each)
    (folder / "model.json").write_text(model.to_json())
    optimizer = keras_mp.LossScaleOptimizer(keras.optimizers.Adam(1e-3))
    (folder / "optimizer.json").write_text(json.dumps(keras.optimizers.serialize(optimizer)))
    # One array for all of them: this process holds no checkpoint.
    kernel = np.random.default_rng(0).random((width, units), dtype="float32")
    state = {"_iterations": np.asarray(7), "_learning_rate": np.asarray(1e-3, "float32")}
    slots = {name: [kernel] * layers for name in ("_momentums", "_velocities")}
    weights = {f"layer_with_weights-{i}": {"kernel": kernel} for i in range(layers)}
    bundles.write_objects(folder / "ckpt", {"model": weights, "optimizer": state | slots})
    return sum(file.stat().st_size for file in folder.glob("ckpt.*"))


def migrate(folder: Path, form: str) -> Path:
    from keras_mp.migration.cli import main

    out = folder / "out" / ("out" + (form if form.startswith(".") else ""))
    out.parent.mkdir()
    command = ["migrate", str(folder / "ckpt"), "-o", str(out), *FORMS[form]]
    for option in ("model", "optimizer"):
        command += [f"--{option}", str(folder / f"{option}.json")]
    with contextlib.redirect_stdout(io.StringIO()):
        if main(command) != 0:
            raise SystemExit(1)
    return out


def inside(options: argparse.Namespace) -> dict[str, Any]:
    import keras

    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        small, large = Path(temporary, "small"), Path(temporary, "large")
        write(small, 1, 16, 16)
        migrate(small, options.form)
        units = options.megabytes * MIB // (4 * WIDTH)
        layers = max(1, round(options.gigabytes * GB / (3 * 4 * WIDTH * units)))
        size = write(large, layers, units, WIDTH)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the most that it had begins anew
        with most_in(large / "out") as disk:
            wall, processor = time.perf_counter(), time.process_time()
            out = migrate(large, options.form)
            seconds, processor = time.perf_counter() - wall, time.process_time() - processor
        files = [out] if out.is_file() else list(out.iterdir())
        return {
            "backend": keras.backend.backend(),
            "form": options.form,
            "checkpoint": size,
            "tensors": 3 * layers,
            "largest": 4 * WIDTH * units,
            "seconds": seconds,
            "processor": processor,
            "memory": resident("VmHWM") - before,
            "output": sum(file.stat().st_size for file in files),
            "files": len(files),
            "disk": disk[0],
            "versions": running.versions("jax", "tensorflow-cpu", "tensorflow", "torch", "h5py"),
        }


def resident(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{name}:")[1].split()[0]) << 10


@contextlib.contextmanager
def most_in(folder: Path) -> Iterator[list[int]]:
    """Yields a list whose number is the most bytes that were in a folder so far."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.05):
            most[0] = max(most[0], taken(folder))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def taken(folder: Path) -> int:
    there: dict[int, int] = {}  # a file that has two names is there once
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it is gone
                file = os.lstat(Path(path, name))
                there[file.st_ino] = file.st_size
    return sum(there.values())


# -- all of them ----------------------------------------------------------------------------------


def show(found: dict[str, Any]) -> None:
    size, memory, disk = found["checkpoint"], found["memory"], found["disk"]
    words = (
        f"{found['backend']:10}",
        f"{found['form']:6}",
        f"{size / GB:5.2f} GB",
        f"{found['seconds']:6.1f} s (processor {found['processor']:.1f} s)",
        f"memory {memory / GB:5.2f} GB ({(memory - size) / found['largest']:+.1f} tensors)",
        f"disk {disk / GB:5.2f} GB",
        f"output {found['output'] / GB:5.2f} GB in {found['files']}",
    )
    print("  ".join(words), flush=True)


def main() -> int:
    made = running.parser(__doc__)
    made.add_argument("--gigabytes", nargs="+", type=float, default=[1, 2, 4])
    made.add_argument("--megabytes", type=int, default=64, help="of a tensor, in MiB")
    made.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    made.add_argument("--folder", help="where the files are made, and removed")
    options = made.parse_args()
    if options.inside:
        print(json.dumps(inside(argparse.Namespace(**options.inside))))
        return 0
    where = f"{running.machine()}, Python {platform.python_version()}"
    print(f"{where}; tensors of {options.megabytes} MiB")
    results = []
    for backend in options.backends:
        for gigabytes in options.gigabytes:
            for form in options.forms:
                given = {
                    "gigabytes": gigabytes,
                    "megabytes": options.megabytes,
                    "form": form,
                    "folder": options.folder,
                }
                results.append(running.of_process(__file__, backend, given))
                show(results[-1])
    running.keep(results, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
