"""What a fleet costs: artefacts a second, time and memory an artefact, and what the way adds.

python benchmarks/fleet.py [COUNT] [--ways one,jobs,dask] [--jobs N] [--artefact FILE] [--cheap]

Copies a small artefact under many names, each with another first weight, and migrates the folder
in one process, in N, and on a Dask cluster of N on this machine. `one` is a loop over the same
tasks in one process, with neither executor nor ledger: what a way takes more than that, divided
by the cores, is its overhead. --cheap does nothing in a task, so that the overhead is all there is.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the tasks that cost nothing

from keras_mp.migration import fleet, processes, tasks  # noqa: E402
from keras_mp.migration.artefacts import Request  # noqa: E402
from keras_mp.migration.walking import walk  # noqa: E402
from tests import fleet_tasks  # noqa: E402

SMALL = ROOT / "tests/data/legacy/tf23/mlp_rmsprop_plain/model.h5"


def copies(artefact: Path, folder: Path, count: int) -> None:
    import h5py

    folder.mkdir()
    for i in range(count):
        path = folder / f"{i:06}.h5"
        shutil.copyfile(artefact, path)
        with h5py.File(path, "r+") as file:
            found: list[h5py.Dataset] = []

            def note(_: str, item: object, found: list[h5py.Dataset] = found) -> None:
                if isinstance(item, h5py.Dataset):
                    found.append(item)

            file["model_weights"].visititems(note)
            value = found[0][()]
            value.flat[0] = i
            found[0][...] = value


class Watched(threading.Thread):
    """The memory of this process's children, while something goes on."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.seen: list[tuple[float, float]] = []  # seconds, MB of the largest

    def run(self) -> None:
        began = time.monotonic()
        while not self.over.wait(1):
            sizes = [0.0]
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    sizes.append(child.memory_info().rss / 1e6)
            self.seen.append((time.monotonic() - began, max(sizes)))

    def __str__(self) -> str:
        if len(self.seen) < 8:
            return "too short"
        at = [self.seen[int(len(self.seen) * part) - 1][1] for part in (0.25, 0.5, 0.75, 1.0)]
        return " ".join(f"{size:.0f}" for size in at)


@contextlib.contextmanager
def cluster(jobs: int) -> Iterator[Executor]:
    from distributed import LocalCluster

    from keras_mp.migration import dask_cluster

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with (
        LocalCluster(n_workers=jobs, **options) as made,
        dask_cluster.connected(made.scheduler_address) as executor,
    ):
        yield executor


def alone(given: list[tasks.Task]) -> float:
    """Returns the seconds of the tasks in one process, the first (its imports) left out."""
    with processes.Worker() as worker:
        for i, task in enumerate(given):
            if i == 1:
                began = time.perf_counter()
            worker.call(tasks.migrate_task, task)
        return time.perf_counter() - began


def tasks_of(source: Path, out: Path, backend: str) -> list[tasks.Task]:
    out.mkdir()
    return [
        tasks.Task(
            name=Path(one.path).name,
            kind=one.kind,
            request=Request(one.path, str(out / one.out), tidy=False),
            out=str(one.out),
            backend=backend,
        )
        for one in walk(source).found
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("--ways", default="one,jobs,dask")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--artefact", type=Path, default=SMALL)
    parser.add_argument("--cheap", action="store_true")
    arguments = parser.parse_args()
    backend = os.environ.setdefault("KERAS_BACKEND", "jax")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    if arguments.cheap:
        tasks.migrate_task = fleet_tasks.cheap
    count, jobs, base = arguments.count, arguments.jobs, None
    size = arguments.artefact.stat().st_size
    print(f"{count} artefacts of {size} bytes, {backend}, {jobs} processes, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in")
        copies(arguments.artefact, source, count)
        for way in arguments.ways.split(","):
            out = Path(folder, way)
            watched = Watched()
            watched.start()
            if way == "one":
                few = tasks_of(source, out, backend)[: max(20, min(count, 500))]
                took = alone(few)
                base = took / (len(few) - 1)
                print(f"one process: {1 / base:.1f} a second, {base * 1e3:.1f} ms each")
            else:
                with contextlib.nullcontext() if way == "jobs" else cluster(jobs) as executor:
                    starts: list[float] = []
                    began = time.perf_counter()
                    counts = fleet.migrate_folder(
                        source,
                        out,
                        executor=executor,
                        jobs=jobs,
                        on_row=lambda _, starts=starts: starts.append(time.perf_counter()),
                    )
                    ended = time.perf_counter()
                # From the first row of each process on: the imports are of the start.
                took = (starts[-1] - starts[jobs]) / (count - jobs - 1)
                print(f"{way}: {dict(counts)} in {ended - began:.1f} s, {1 / took:.1f} a second")
                if base is not None:
                    print(
                        f"  {took * jobs * 1e3:.1f} ms of a process each: {base / took:.2f} times "
                        f"one process; {(took * jobs - base) * 1e3:+.1f} ms each"
                    )
                began = time.perf_counter()
                again = fleet.migrate_folder(source, out, jobs=jobs)
                print(f"  a second run: {dict(again)} in {time.perf_counter() - began:.1f} s")
                print(
                    f"  ledger: {(out / 'migration.jsonl').stat().st_size / count:.0f} bytes each"
                )
            watched.over.set()
            watched.join()
            print(f"  the largest process after each quarter, MB: {watched}", flush=True)


if __name__ == "__main__":
    main()
