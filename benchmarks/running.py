"""What the benchmarks have in common: options, turns, quartiles, a process for each backend."""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from keras_mp.diagnosis.benchmarking.recommending import ratios

BACKENDS = ("jax", "tensorflow", "torch")
CLOCKS = ("wall", "processor")


def spread(three: Sequence[float], digits: int = 3) -> str:
    """Returns quartiles as text.

    >>> spread([1.0, 1.25, 2.0], 2)
    '1.25 (1.00 to 2.00)'
    """
    low, middle, high = (f"{number:.{digits}f}" for number in three)
    return f"{middle} ({low} to {high})"


def by_clock(
    taken: Sequence[tuple[float, float]], base: Sequence[tuple[float, float]], steps: int
) -> dict[str, dict[str, Any]]:
    """Returns milliseconds a step, and their ratios to those of `base`, by each of two clocks."""
    found = {}
    for i, clock in enumerate(CLOCKS):
        mine, theirs = ([each[i] for each in times] for times in (taken, base))
        middle = 1e3 * statistics.median(mine) / steps
        found[clock] = {"milliseconds": middle, "ratio": ratios(mine, theirs)}
    return found


def machine() -> str:
    """Returns a line on where and when this is."""
    load = f", load {os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else ""
    return f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores{load}"


def versions(*packages: str) -> dict[str, str]:
    """Returns the versions of Python, Keras, keras_mp, and those of `packages` that are there."""
    found = {"python": platform.python_version()}
    for name in ("keras", "keras-mp", *packages):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def parser(doc: str | None, backends: Sequence[str] = BACKENDS) -> argparse.ArgumentParser:
    """Returns a parser with what benchmarks share: `--json`, and for some backends `--backends`."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="write what was measured to this file, too")
    if backends:
        made.add_argument("--backends", nargs="+", choices=backends, default=backends)
        made.add_argument("--inside", type=json.loads, help=argparse.SUPPRESS)
    return made


def keep(results: Any, path: Path | None) -> None:
    """Writes what was measured to a file, if there is to be one."""
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def of_process(script: str, backend: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns what `script` measures in a process of its own, as JSON in its last line."""
    done = subprocess.run(
        [sys.executable, script, "--inside", json.dumps(options)],
        env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def command(
    script: str,
    parser: argparse.ArgumentParser,
    inside: Callable[[argparse.Namespace], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    settings: Callable[[argparse.Namespace], str],
    draw: Callable[[list[dict[str, Any]], Path], None] | None = None,
) -> int:
    """Parses the command line, measures in a process for each backend, shows it as it comes.

    Args:
        script: The file of the benchmark.
        parser: Of `parser`, with options of its own.
        inside: Measures, on the backend of this process.
        show: Prints what it returned.
        settings: Returns words on the options, for the first line.
        draw: Draws what was measured, where `--svg` says so.

    Returns:
        The exit status.
    """
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(inside(argparse.Namespace(**options.inside))))
        return 0
    given = {
        k: v for k, v in vars(options).items() if k not in ("inside", "json", "svg", "backends")
    }
    print(f"{machine()}; {settings(options)}")
    results = []
    for backend in options.backends:
        results.append(of_process(script, backend, given))
        show(results[-1])
        sys.stdout.flush()
    keep(results, options.json)
    if draw is not None and options.svg:
        draw(results, options.svg)
    return 0
