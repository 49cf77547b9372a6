"""How the cost of loss scaling grows with the work: with variables, and with parameters.

python benchmarks/scaling.py [--backends BACKEND ...] [--variables N ...] [--parameters N ...]
    [--repeat N] [--limit S] [--svg FILE] [--json FILE]

A step of Adam with our LossScaleOptimizer, less one without, in a process for each backend (JAX
jitted, TensorFlow as graph, torch eager as in `fit`): for each number of variables that hold
2**17 parameters together, and for each number of parameters in 8 variables. Both steps in turn;
each time is of the processors, which other programs on the machine disturb less than the clock.
Printed are the median of the step, and of the difference in milliseconds with its quartiles.

Through the differences of each row of sizes a straight line is laid, by least squares in which each
counts by the time of its plain step, as its noise grows with it: what there is in any case, and
what a variable, or a million parameters, cost; and R2, of the same residuals. A size whose first
step would take longer than `--limit` seconds to compile, by that of the size before, or that would
take more than half of the memory, is left out, and said so.

`--svg` draws it (needs matplotlib).
"""

import argparse
import gc
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import running, step_variants
from keras_mp.diagnosis.benchmarking.recommending import in_turn, quartiles

VARIABLES = (10, 30, 100, 300, 1_000, 3_000, 10_000)
PARAMETERS = tuple(10**n for n in range(5, 10))
TOGETHER = 2**17  # parameters of all variables, where these are counted
FEW = 8  # variables, where parameters are counted
MODES = {"jax": "jit", "tensorflow": "graph", "torch": "eager"}
BYTES = 2 * 16 + 4 + 16  # a parameter: two states, gradients, and temporaries of a step
SECONDS = 2.0  # at least, for the repetitions of a size


def pair(backend: str) -> dict[str, Any]:
    """Returns functions that make the state of plain Adam and of ours."""
    made = step_variants.of_backend(MODES[backend])
    suffix = ", in fit" if backend == "torch" else ""
    return {name: made[f"{name}{suffix}"] for name in ("plain", "ours")}


def memory() -> float:
    """Returns the bytes of memory of this machine; infinity where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def measure(backend: str, count: int, parameters: int, repeat: int) -> dict[str, Any]:
    """Returns the milliseconds of a step, and of the difference, for a number of variables."""
    size = max(1, parameters // count)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(size, "float32") for _ in range(count)]
    cases: dict[str, Any] = {}
    first = 0.0
    for name, make in pair(backend).items():
        case = make(arrays)
        given = case.given(arrays, case.scale())
        start = time.perf_counter()
        case.step(case.again(given))
        case.wait()
        first = max(first, time.perf_counter() - start)
        case.step(case.again(given))
        case.wait()
        cases[name] = case, given
    del arrays
    times: dict[str, list[float]] = {name: [] for name in cases}
    began = time.perf_counter()
    while len(times["ours"]) < repeat or time.perf_counter() - began < SECONDS:
        for name in in_turn(list(cases), 2):
            case, given = cases[name]
            given = case.again(given)
            start = time.process_time()
            case.step(given)
            case.wait()
            times[name].append(1e3 * (time.process_time() - start))
    more = [a - b for a, b in zip(times["ours"], times["plain"], strict=True)]
    return {
        "variables": count,
        "parameters": size * count,
        "first": first,
        "plain": statistics.median(times["plain"]),
        "more": quartiles(more),
    }


def line(x: Sequence[float], y: Sequence[float], noise: Sequence[float]) -> dict[str, float] | None:
    """Returns the straight line through points, each weighted by the noise that it has.

    R2 is 1 less the squares of what is left, over those of what the best constant leaves.

    >>> found = line([1, 10, 100], [3.0, 12.0, 102.0], [1.0, 1.0, 5.0])
    >>> {name: round(value, 9) for name, value in found.items()}
    {'slope': 1.0, 'intercept': 2.0, 'r2': 1.0}
    """
    if len(x) < 2:
        return None
    a, b, weights = (np.array(column, "float64") for column in (x, y, noise))

    def left(columns: Any) -> tuple[Any, float]:
        columns, aim = columns / weights[:, None], b / weights
        found = np.linalg.lstsq(columns, aim, rcond=None)[0]
        return found, float(((columns @ found - aim) ** 2).sum())

    (slope, intercept), of_line = left(np.stack([a, np.ones_like(a)], axis=1))
    _, of_constant = left(np.ones((len(a), 1)))
    r2 = 1 - of_line / of_constant if of_constant else 1.0
    return {"slope": float(slope), "intercept": float(intercept), "r2": r2}


def sweep(backend: str, sizes: Sequence[tuple[int, int]], options: Any) -> dict[str, Any]:
    """Returns the rows of (variables, parameters), from the smallest, and their line."""
    rows: list[dict[str, Any]] = []
    left_out = []
    for count, parameters in sizes:
        name = f"{count:,} variables, {parameters:,} parameters"
        if BYTES * parameters > memory() / 2:
            left_out.append(f"{name}: more than half of the memory")
            continue
        if rows:
            last = rows[-1]
            # Each variable is traced and compiled by itself; XLA takes longer than in proportion.
            guess = last["first"] * (count / last["variables"]) ** 1.2
            if guess > options.limit:
                left_out.append(f"{name}: the first step would take about {guess:.0f} s")
                continue
        rows.append(measure(backend, count, parameters, options.repeat))
        gc.collect()
        print(f"{backend}, {name}: done", file=sys.stderr)
    return {"rows": rows, "left out": left_out}


def inside(options: argparse.Namespace) -> dict[str, Any]:
    """Measures on the backend that this process was started with."""
    import keras

    backend = keras.backend.backend()
    by_variables = [(count, TOGETHER) for count in options.variables]
    by_parameters = [(FEW, count) for count in options.parameters]
    found: dict[str, Any] = {
        "backend": backend,
        "versions": running.versions(*step_variants.PACKAGES[backend]),
        "variables": sweep(backend, by_variables, options),
        "parameters": sweep(backend, by_parameters, options),
    }
    for what in ("variables", "parameters"):
        rows = found[what]["rows"]
        columns = (
            [r[what] for r in rows],
            [r["more"][1] for r in rows],
            [r["plain"] for r in rows],
        )
        found[what]["line"] = line(*columns)
    return found


def show(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    print(f"\n{found['backend']}: {versions}")
    for what in ("variables", "parameters"):
        print(f"\n  {what:>12}{'plain, ms':>12}  more with loss scaling, ms")
        for row in found[what]["rows"]:
            more = running.spread(row["more"], 2)
            print(f"  {row[what]:12,}{row['plain']:12.2f}  {more}")
        for why in found[what]["left out"]:
            print(f"  left out: {why}")
        if found[what]["line"]:
            print(f"  {told(found[what]['line'], what)}")


def told(fitted: dict[str, float], what: str) -> str:
    """Returns a line in words.

    >>> told({"slope": 0.002, "intercept": 0.1, "r2": 0.99}, "variables")
    '0.1 ms, and 2 us a variable; R2 0.990'
    """
    each = fitted["slope"] * (1e3 if what == "variables" else 1e6)
    unit = "us a variable" if what == "variables" else "ms a million parameters"
    return f"{fitted['intercept']:.3g} ms, and {each:.3g} {unit}; R2 {fitted['r2']:.3f}"


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws what loss scaling adds to a step, with the lines, as SVG."""
    import matplotlib as mpl

    from keras_mp.rendering import pictures
    from keras_mp.rendering.style import LIGHT

    colours = dict(zip(running.BACKENDS, (LIGHT.line, LIGHT.inf, LIGHT.bfloat16), strict=True))
    # Texts as texts.
    with mpl.rc_context({"svg.fonttype": "none"}), pictures.figures(path) as (make, save):
        figure = make(figsize=(8, 3.6), dpi=pictures.DPI, facecolor=LIGHT.ground)
        titles = {
            "variables": f"variables, of {TOGETHER:,} parameters together",
            "parameters": f"parameters, in {FEW} variables",
        }
        for place, (what, title) in enumerate(titles.items(), 1):
            axes = figure.add_subplot(1, 2, place)
            pictures.styled(axes, LIGHT)
            for found in results:
                rows = [row for row in found[what]["rows"] if row["more"][1] > 0]
                x = [row[what] for row in rows]
                colour, name = colours[found["backend"]], found["backend"]
                axes.plot(x, [row["more"][1] for row in rows], "o", color=colour, ms=5, label=name)
                fitted = found[what]["line"]
                if fitted and len(x) > 1:
                    along = np.geomspace(min(x), max(x), 60)
                    y = fitted["slope"] * along + fitted["intercept"]
                    axes.plot(along[y > 0], y[y > 0], color=colour, lw=1.3)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel(title)
            axes.grid(True, color=LIGHT.faint, linewidth=0.6)
            axes.set_axisbelow(True)
            if place == 1:
                axes.set_ylabel("what loss scaling adds to a step, ms")
                axes.legend(frameon=False, fontsize=9)
        figure.tight_layout()
        save(figure)


def settings(options: argparse.Namespace) -> str:
    return f"at least {options.repeat} repetitions, times of the processors"


def main() -> int:
    parser = running.parser(__doc__)
    parser.add_argument("--variables", nargs="*", type=int, default=list(VARIABLES))
    parser.add_argument("--parameters", nargs="*", type=int, default=list(PARAMETERS))
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of a first step")
    parser.add_argument("--svg", type=Path, help="draw it into this file")
    return running.command(__file__, parser, inside, show, settings, draw)


if __name__ == "__main__":
    raise SystemExit(main())
