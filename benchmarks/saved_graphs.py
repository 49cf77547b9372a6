"""What predicting with the graph in a SavedModel takes, beside the Keras model made of the file.

python benchmarks/saved_graphs.py FOLDER [--backends BACKEND ...] [--batch N] [--calls N]
    [--repeat N] [--json FILE]

FOLDER is searched for SavedModels, zip archives of them included. Each is loaded twice, as a Keras
model and `from_graph`; both are compiled before. Printed are the milliseconds of a
`predict_on_batch` of the Keras model, and the ratio of the graph's time in the same turn to it: the
median of the repetitions, in parentheses their quartiles. What cannot be loaded both ways is left
out, and counted. The aim is a ratio below 3.
"""

import argparse
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import running
from benchmarks.running import spread, versions
from keras_mp.diagnosis.benchmarking.recommending import in_turn, quartiles, ratios

AIM = 3.0
SPACE, STEPS = 64, 16  # sizes of free axes: of images, of others


def saved_models(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yields name and path of each SavedModel in a folder, and in the archives there."""
    for archive in sorted(folder.rglob("*.zip")):
        with zipfile.ZipFile(archive) as file:
            if any(name.endswith("saved_model.pb") for name in file.namelist()):
                file.extractall(scratch / archive.relative_to(folder).with_suffix(""))
    for root in (folder, scratch):
        for path in sorted(root.rglob("saved_model.pb")):
            yield str(path.parent.relative_to(root)), path.parent


def batch_of(model: Any, size: int) -> list[Any]:
    """Returns seeded inputs of a model: normal numbers, or ids that are 0 or 1."""
    random, found = np.random.default_rng(0), []
    for one in model.inputs:
        free = SPACE if len(one.shape) > 3 else STEPS
        shape = [axis or (free if i else size) for i, axis in enumerate(one.shape)]
        numbers = random.integers(0, 2, shape) if "int" in one.dtype else random.normal(size=shape)
        found.append(numbers.astype(one.dtype))
    return found


def predicting(model: Any, arrays: list[Any]) -> Callable[[], Any]:
    inputs = arrays if len(arrays) > 1 else arrays[0]
    return lambda: model.predict_on_batch(inputs)


def measured(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    from keras_mp.compat import load_model

    model = load_model(path, differences="ignore", compile=False)
    graph = load_model(path, from_graph=True)
    arrays = batch_of(model, options.batch)
    calls = {"keras": predicting(model, arrays), "graph": predicting(graph, arrays)}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for name in in_turn(list(calls), options.repeat):
        begin = time.perf_counter()
        for _ in range(options.calls):
            calls[name]()
        taken[name].append(1e3 * (time.perf_counter() - begin) / options.calls)
    return {
        "milliseconds": quartiles(taken["keras"]),
        "ratio": ratios(taken["graph"], taken["keras"]),
    }


def inside(options: argparse.Namespace) -> dict[str, Any]:
    import keras

    from keras_mp.compat.checkpoints import Unreadable
    from keras_mp.compat.errors import LegacyError

    found: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in saved_models(Path(options.folder), Path(scratch)):
            try:
                found[name] = measured(path, options)
            except (LegacyError, Unreadable, ValueError, TypeError) as error:
                left_out[name] = str(error).partition("\n")[0]
    kind = keras.backend.backend()
    return {"backend": kind, "versions": versions(kind), "models": found, "left_out": left_out}


def show(found: dict[str, Any]) -> None:
    print(f"\n{found['backend']}, {found['versions']}")
    for name, one in found["models"].items():
        spent, ratio = spread(one["milliseconds"], 2), spread(one["ratio"], 2)
        print(f"  {name:50} Keras {spent:>24} ms, graph {ratio} times that")
    medians = sorted(one["ratio"][1] for one in found["models"].values())
    if medians:
        above = sum(one > AIM for one in medians)
        print(
            f"  {len(medians)} models: the graph takes {quartiles(medians)[1]:.2f} times as long, "
            f"{medians[-1]:.2f} at most; {above} above {AIM:g}; {len(found['left_out'])} left out"
        )


def main() -> int:
    parser = running.parser(__doc__)
    parser.add_argument("folder", nargs="?", default="tests/data")
    parser.add_argument("--batch", type=int, default=32, help="rows of a batch (default: 32)")
    parser.add_argument("--calls", type=int, default=10, help="of one turn (default: 10)")
    parser.add_argument("--repeat", type=int, default=9, help="turns of each (default: 9)")
    return running.command(
        __file__, parser, inside, show, lambda given: f"{given.folder}, batches of {given.batch}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
