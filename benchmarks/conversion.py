"""What it takes to read checkpoints and to convert models and programs, beside the least it could.

python benchmarks/conversion.py [PART ...] [--megabytes N] [--repeat N] [--files N] [--json FILE]
    [--architecture NAME]

PART is one or more of these, all of them unless given; ratios are of times in the same turn, the
median of the repetitions, in parentheses their quartiles:

- reading: every tensor of a checkpoint, checksums verified, ours against `tf.train.load_checkpoint`
  and against reading and copying the plain file; and checksums against copying memory. Needs
  TensorFlow, which writes the checkpoint. The aim: no more memory than the largest tensor and
  200 MB.
- migrating: `keras-mp migrate` of a checkpoint with the state of Adam and of an HDF5 file to
  `.keras`, a process each, on the backend that KERAS_BACKEND says, against copying the file to the
  disk. Needs TensorFlow, too. Beside it what Keras alone does of that: it is imported, builds the
  model, saves it and loads it again. Memory is the most that the process had, written what it gave
  to the disk.
- loading: an architecture of `tf.keras.applications` with random weights, in an HDF5 file of
  TF 2.15, in seconds of the processor. `keras_mp.compat.load_model` against
  `keras.saving.load_model` of the same model in a `.keras` file, each in a process of its own: for
  the first time, and later. And `keras-mp migrate` from start to end, with the comparison, against
  a process in which Keras loads the `.keras` file and saves it; on JAX also with its cache of
  compiled programs filled, as Keras else takes most of the time to compile its initializers.
- sources: a folder of programs (see migrate_sources.py) with one process and with two.

Files are in memory of the system when they are read: the disk is no part of reading.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import running
from benchmarks.running import spread
from keras_mp.diagnosis.benchmarking.recommending import in_turn, quartiles, ratios

MB = 1 << 20
TENSOR = 64 * MB  # the largest
WIDTH = 4096  # of a square kernel of that size
SPARE = 200 * MB
Quartiles = list[float]

# Of a process: what it does, then the most memory it had and what it wrote, in bytes.
WATCHED = """
import json, sys
from pathlib import Path

def number(file, name):
    return int(Path("/proc/self", file).read_text().split(name + ":")[1].split()[0])

def report(before):
    more, written = number("status", "VmHWM") << 10, number("io", "wchar")
    print(json.dumps({"memory": more, "before": before, "written": written}))

"""
READS = """
from keras_mp.compat.checkpoints import Checkpoint

checkpoint = Checkpoint(sys.argv[1])
checkpoint["small/0/.ATTRIBUTES/VARIABLE_VALUE"]
before = number("status", "VmRSS") << 10
for key in checkpoint:
    checkpoint[key]
report(before)
"""
MIGRATES = """
import keras
from keras_mp.migration.cli import main

before = number("status", "VmRSS") << 10
stdout, sys.stdout = sys.stdout, sys.stderr
assert main(["migrate", *sys.argv[1:]]) == 0
sys.stdout = stdout
report(before)
"""
# Of a process: the seconds of the processor that loading takes; or that it took from its start.
_LOADS = """
import json, sys, time
import keras
import keras_mp.compat.restoring.models

def seconds():
    start = time.process_time()
    {load}(sys.argv[1])
    return time.process_time() - start

taken = [seconds() for _ in range(4)]
print(json.dumps({{"the first time": taken[0], "later": min(taken[1:])}}))
"""
LOADS = {
    "keras_mp.compat.load_model": _LOADS.format(load="keras_mp.compat.load_model"),
    "keras.saving.load_model": _LOADS.format(load="keras.saving.load_model"),
}
_CONVERTS = """
import json, sys, time
stdout, sys.stdout = sys.stdout, sys.stderr
{convert}
sys.stdout = stdout
print(json.dumps({{"from start to end": time.process_time()}}))
"""
CONVERTS = {
    "keras-mp migrate": _CONVERTS.format(
        convert="""from keras_mp.migration.cli import main
assert main(["migrate", sys.argv[1], "-o", sys.argv[2]]) == 0"""
    ),
    "Keras loads and saves": _CONVERTS.format(
        convert="""import keras
keras.saving.load_model(sys.argv[1]).save(sys.argv[2])"""
    ),
}
OURS = ("keras_mp.compat.load_model", "keras-mp migrate")
# Of the first load in a process, in seconds; of migrating, as a ratio to Keras.
LOAD_AIM, MIGRATE_AIM = 1.5, 1.15
KERAS_ALONE = """
import keras

before = number("status", "VmRSS") << 10
config, optimizer, out = sys.argv[1:]
model = keras.models.model_from_json(Path(config).read_text())
if optimizer:
    model.compile(keras.optimizers.deserialize(json.loads(Path(optimizer).read_text())))
    model.optimizer.build(model.trainable_variables)
model.save(out)
del model
keras.saving.load_model(out)
report(before)
"""


# -- the parts -------------------------------------------------------------------------------------


def reading(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    prefix = write_checkpoint(folder, options.megabytes)
    data = Path(f"{prefix}.data-00000-of-00001")
    assert read_ours(prefix) == read_theirs(prefix), "both read the same bytes"
    copy = folder / "copy"
    times = interleaved(
        {
            "ours": lambda: read_ours(prefix),
            "tf.train.load_checkpoint": lambda: read_theirs(prefix),
            "reading the plain file": lambda: read_plain(data),
            "copying the plain file": lambda: shutil.copyfile(data, copy),
        },
        options.repeat,
    )
    watched = in_a_process(WATCHED + READS, prefix)
    memory = {
        "more than before": watched["memory"] - watched["before"],
        "aim": TENSOR + SPARE,
        "largest tensor": TENSOR,
    }
    return {
        "bytes": data.stat().st_size,
        "times": against(times, "ours"),
        "memory": memory,
        "checksums": checksums(options.repeat),
    }


def checksums(repeat: int) -> dict[str, Any]:
    from keras_mp.compat.checkpoints.crc import crc32c

    data = os.urandom(4 * TENSOR)
    source, target = np.frombuffer(data, "uint8"), np.ones(len(data), "uint8")
    times = interleaved(
        {"checksum": lambda: crc32c(data), "copy of memory": lambda: np.copyto(target, source)},
        repeat,
    )
    return {"bytes": len(data), "times": against(times, "checksum")}


def migrating(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for name, case in write_models(folder, options.megabytes).items():
        seen: dict[str, dict[str, int]] = {}
        times = interleaved(conversions(folder, case, seen), options.repeat)
        found[name] = {
            "bytes": case.data.stat().st_size,
            "times": against(times, "keras-mp migrate"),
            "process": seen,
        }
    return found


def conversions(
    folder: Path, case: "Case", seen: dict[str, dict[str, int]]
) -> dict[str, Callable[[], object]]:
    """Returns what converts a file, and what it is compared with; `seen` gets what they took."""

    def ours() -> None:
        out = fresh(folder / "ours.keras")
        program = WATCHED + MIGRATES
        seen["keras-mp migrate"] = in_a_process(program, case.path, "-o", out, *case.options)

    def keras() -> None:
        out, optimizer = fresh(folder / "keras.keras"), case.optimizer or ""
        seen["Keras alone"] = in_a_process(WATCHED + KERAS_ALONE, case.config, optimizer, out)

    def copy() -> None:
        copy_to_disk(case.data, folder / "copy")

    return {"keras-mp migrate": ours, "Keras alone": keras, "copying the plain file": copy}


def loading(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from tests.data.applications import reading

    old, today, out = folder / "old.h5", folder / "today.keras", folder / "out.keras"
    reading.write_hdf5(old, "tf215", options.architecture)
    in_a_process(CONVERTS["keras-mp migrate"], old, today)
    compiled = {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }

    def measured(programs: dict[str, str], more: dict[str, str] | None = None) -> dict[str, Any]:
        taken: dict[str, dict[str, list[float]]] = {name: {} for name in programs}
        for name in in_turn(list(programs), options.repeat):
            path = old if name in OURS else today
            found = in_a_process(programs[name], path, fresh(out), more=more)
            for what, seconds in found.items():
                taken[name].setdefault(what, []).append(seconds)
        ours = next(name for name in programs if name in OURS)
        whats = taken[ours]
        return {
            what: against({name: each[what] for name, each in taken.items()}, ours)
            for what in whats
        }

    found = measured(LOADS) | measured(CONVERTS)
    if os.environ.get("KERAS_BACKEND") == "jax":
        measured(CONVERTS, compiled)  # fills the cache
        once = measured(CONVERTS, compiled)
        found["from start to end, once compiled"] = once["from start to end"]
    return {"architecture": options.architecture, "bytes": old.stat().st_size, "times": found}


def sources(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks import migrate_sources

    migrate_sources.make(folder, options.files, max(1, options.files // 33), 300)
    command = [sys.executable, "-m", "keras_mp.migration", "migrate", "--json", str(folder)]
    said: dict[int, bytes] = {}

    def run(jobs: int) -> None:
        done = subprocess.run([*command, "--jobs", str(jobs)], capture_output=True, check=True)
        said[jobs] = done.stdout

    times = interleaved(
        {"one process": lambda: run(1), "two processes": lambda: run(2)}, options.repeat
    )
    assert said[1] == said[2], "two processes say what one does, in its order"
    return {"files": options.files, "times": against(times, "two processes")}


PARTS = {"reading": reading, "migrating": migrating, "loading": loading, "sources": sources}


# -- what is read ----------------------------------------------------------------------------------


def write_checkpoint(folder: Path, megabytes: int) -> str:
    """Writes a checkpoint of about that size; returns its prefix."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    count = max(1, megabytes // 64)
    large = [tf.Variable(random.random(TENSOR // 4, dtype="float32")) for _ in range(count)]
    small = [tf.Variable(random.random(100, dtype="float32")) for _ in range(500)]
    prefix: str = tf.train.Checkpoint(large=large, small=small).write(str(folder / "ckpt"))
    return prefix


@dataclass(frozen=True, slots=True)
class Case:
    """A model of then.

    Attributes:
        path: What is migrated.
        data: The file that has its numbers.
        config: The model of today.
        optimizer: That of today; None where none is saved.
    """

    path: Path
    data: Path
    config: Path
    optimizer: Path | None

    @property
    def options(self) -> list[object]:
        """Of `keras-mp migrate`: an HDF5 file says itself what model it is of."""
        if self.optimizer is None:
            return []
        return ["--model", self.config, "--optimizer", self.optimizer]


def write_models(folder: Path, megabytes: int) -> dict[str, Case]:
    """Writes a checkpoint with Adam and an HDF5 file, both of about that size."""
    import h5py
    import keras
    import tensorflow as tf

    random = np.random.default_rng(0)
    count = max(1, megabytes // 64)
    in_three = max(1, count // 3)

    def kernel() -> Any:
        return random.random((WIDTH, WIDTH), dtype="float32")

    def config(layers: int) -> str:
        dense = [keras.layers.Dense(WIDTH, use_bias=False) for _ in range(layers)]
        text: str = keras.Sequential([keras.Input((WIDTH,)), *dense]).to_json()
        return text

    (folder / "ckpt.json").write_text(config(in_three))
    (folder / "model.json").write_text(config(count))
    adam = keras.optimizers.serialize(keras.optimizers.Adam(1e-3))
    (folder / "optimizer.json").write_text(json.dumps(adam))

    def variables() -> list[Any]:
        return [tf.Variable(kernel()) for _ in range(in_three)]

    objects = tf.train.Checkpoint
    layers = {f"layer_with_weights-{i}": objects(kernel=v) for i, v in enumerate(variables())}
    optimizer = objects(
        _iterations=tf.Variable(7, dtype="int64"),
        _learning_rate=tf.Variable(1e-3),
        _momentums=variables(),
        _velocities=variables(),
    )
    prefix = folder / "ckpt"
    objects(model=objects(**layers), optimizer=optimizer).write(str(prefix))
    names = [f"dense_{i}" for i in range(count)]
    listed = [{"name": name, "units": WIDTH, "use_bias": False} for name in names]
    listed[0]["batch_input_shape"] = [None, WIDTH]
    inside = {"name": "net", "layers": [{"class_name": "Dense", "config": c} for c in listed]}
    with h5py.File(folder / "model.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": inside})
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = names
        for name in names:
            group[f"{name}/{name}/kernel:0"] = kernel()
            group[name].attrs["weight_names"] = [f"{name}/kernel:0"]
    data = Path(f"{prefix}.data-00000-of-00001")
    hdf5 = folder / "model.h5"
    return {
        "checkpoint": Case(prefix, data, folder / "ckpt.json", folder / "optimizer.json"),
        "HDF5": Case(hdf5, hdf5, folder / "model.json", None),
    }


def read_ours(prefix: str) -> int:
    from keras_mp.compat.checkpoints import Checkpoint

    checkpoint = Checkpoint(prefix)
    return sum(checkpoint[key].nbytes for key in checkpoint)


def read_theirs(prefix: str) -> int:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    keys = [key for key in shapes if key != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    return sum(reader.get_tensor(key).nbytes for key in keys)


def read_plain(path: Path) -> None:
    buffer = np.empty(TENSOR, "uint8")
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def copy_to_disk(path: Path, copy: Path) -> None:
    shutil.copyfile(path, copy)
    with copy.open("rb") as file:
        os.fsync(file.fileno())


def fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


# -- measuring -------------------------------------------------------------------------------------


def interleaved(runs: dict[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    """Returns the seconds of each run, all of them in turn."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for name in in_turn(list(runs), repeat):
        start = time.perf_counter()
        runs[name]()
        times[name].append(time.perf_counter() - start)
    return times


def against(times: dict[str, list[float]], ours: str) -> dict[str, dict[str, Quartiles]]:
    """Returns quartiles of the seconds of each, and of the ratio of ours to it in the same turn."""
    return {
        name: {"seconds": quartiles(taken), "ratio": ratios(times[ours], taken)}
        for name, taken in times.items()
    }


def in_a_process(
    program: str, *arguments: object, more: dict[str, str] | None = None
) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, **(more or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- the command -----------------------------------------------------------------------------------


def show_times(times: dict[str, dict[str, Quartiles]], ours: str, size: int = 0) -> None:
    for name, each in times.items():
        speed = f"{size / each['seconds'][1] / 1e9:6.1f} GB/s" if size else ""
        note = "" if name == ours else f"  {ours} takes {spread(each['ratio'], 2)} of it"
        print(f"  {name:28}{spread(each['seconds'], 2)} s{speed}{note}")


def _loading_aim(what: str, times: dict[str, Any], ours: str) -> tuple[float, float] | None:
    """Returns what is to be below an aim, and the aim: once compiled, where that takes most."""
    if what == "the first time":
        return times[ours]["seconds"][1], LOAD_AIM
    if what.startswith("from start to end"):
        keras = next(name for name in times if name != ours)
        return times[keras]["ratio"][1], MIGRATE_AIM
    return None


def show(part: str, found: dict[str, Any]) -> None:
    print(f"\n{part}")
    if part == "reading":
        show_times(found["times"], "ours", found["bytes"])
        memory = {name: f"{size / MB:.0f} MB" for name, size in found["memory"].items()}
        print(
            f"  memory: {memory['more than before']}, of {found['bytes'] / MB:.0f} MB; the largest "
            f"tensor has {memory['largest tensor']}, the aim is {memory['aim']}"
        )
        show_times(found["checksums"]["times"], "checksum", found["checksums"]["bytes"])
    elif part == "loading":
        print(f"  {found['architecture']}, {found['bytes'] / MB:.0f} MB; seconds of the processor")
        for what, times in found["times"].items():
            print(f"  {what}:")
            ours = next(name for name in times if name in OURS)
            show_times(times, ours)
            found_aim = _loading_aim(what, times, ours)
            if found_aim is not None:
                value, aim = found_aim
                print(f"  {ours}: {value:.2f}, aim {aim}{', above' if value > aim else ''}")
                if value > aim and ours == "keras-mp migrate":
                    seconds = found["times"]["later"]["keras.saving.load_model"]["seconds"][1]
                    print(f"{'':8}Keras loads what was written, to compare it: {seconds:.2f} s")
    elif part == "sources":
        print(f"  {found['files']} files of 300 lines")
        show_times(found["times"], "two processes")
    else:
        for name, each in found.items():
            print(f"  {name}, {each['bytes'] / MB:.0f} MB")
            show_times(each["times"], "keras-mp migrate")
            for who, row in each["process"].items():
                more, written = row["memory"] - row["before"], row["written"]
                print(
                    f"  {who:28}memory {row['memory'] / MB:.0f} MB, {more / each['bytes']:.2f} of "
                    f"the file more than with keras imported; written {written / each['bytes']:.2f}"
                )


def main() -> int:
    parser = running.parser(__doc__, backends=())
    parser.add_argument("parts", nargs="*", metavar="PART", default=list(PARTS))
    parser.add_argument("--megabytes", type=int, default=1024, metavar="N", help="of a file")
    parser.add_argument("--files", type=int, default=1000, metavar="N", help="of source code")
    parser.add_argument("--architecture", default="EfficientNetV2B0", help="that is loaded")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such PART: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(
        f"{running.machine()}; Python {platform.python_version()}, "
        f"{os.environ.get('KERAS_BACKEND') or 'the default backend'}, "
        f"{options.repeat} repetitions"
    )
    results = {}
    for part in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            results[part] = PARTS[part](Path(folder), options)
        show(part, results[part])
        sys.stdout.flush()
    running.keep(results, options.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
