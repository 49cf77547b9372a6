"""Reading a checkpoint of 1 GB: ours against `tf.train.load_checkpoint`, side by side.

python benchmarks/read_checkpoint.py [MEGABYTES]

Needs TensorFlow, which writes the checkpoint and is one of the two readers. Prints the ratio of the
times (median and quartiles of interleaved runs that read every tensor) and the peak memory of a
process that reads it our way.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TENSOR = 64 << 20  # bytes of the largest tensor


def write(folder: Path, megabytes: int) -> str:
    """Writes a checkpoint of about that size; returns its prefix."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    count = max(1, (megabytes << 20) // TENSOR)
    variables = [
        tf.Variable(random.standard_normal(TENSOR // 4, dtype="float32")) for _ in range(count)
    ]
    small = [tf.Variable(random.standard_normal(100, dtype="float32")) for _ in range(500)]
    prefix: str = tf.train.Checkpoint(large=variables, small=small).write(str(folder / "ckpt"))
    return prefix


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


def peak(prefix: str) -> None:
    """Prints, for the parent, how much memory reading took beyond what importing took."""
    import keras_mp.compat.checkpoints  # noqa: F401

    before = high_water()
    print(json.dumps({"read": read_ours(prefix), "before": before, "peak": high_water()}))


def high_water() -> int:
    """Returns the most memory that this process ever had, in bytes (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def timed(read, prefix: str) -> float:
    start = time.perf_counter()
    read(prefix)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", nargs="?", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        peak(arguments.peak)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        prefix = write(Path(folder), arguments.megabytes)
        assert read_ours(prefix) == read_theirs(prefix), "both read the same bytes"
        ratios = []
        for _ in range(arguments.runs):
            theirs, ours = timed(read_theirs, prefix), timed(read_ours, prefix)
            ratios.append(ours / theirs)
            print(f"ours {ours:.2f} s, tf.train.load_checkpoint {theirs:.2f} s")
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"ratio of times: {middle:.2f} (quartiles {low:.2f} to {high:.2f})")
        found = subprocess.run(
            [sys.executable, __file__, "--peak", prefix], check=True, capture_output=True, text=True
        )
        memory = json.loads(found.stdout)
        print(
            f"peak memory: {memory['peak'] / 2**20:.0f} MB for {memory['read'] / 2**20:.0f} MB, "
            f"the largest tensor {TENSOR / 2**20:.0f} MB; {memory['before'] / 2**20:.0f} MB of it "
            "before anything was read"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
