"""What a step of the optimizer costs: keras_mp's LossScaleOptimizer against everybody else's.

python benchmarks/step.py [--backends BACKEND ...] [--profiles PROFILE ...] [--modes MODE ...]
    [--dtype DTYPE] [--core N] [--repeat N] [--json FILE]

Per backend, in a process of its own, and per way of running (jit or graph or eager): a step of Adam
for `many` (400 tensors, 5 million numbers), `few` (40 tensors, 50 million) and `tiny` (400 tensors
of 4 numbers); compiled by torch, which takes minutes for 400 tensors, for `few` only. Measured in
turn, in another order each time: Keras' plain Adam; Keras' own LossScaleOptimizer; ours, in its
variants; and what is installed of tf_keras, torch.amp.GradScaler, flax's DynamicScale, jmp,
optax.apply_if_finite. Printed are milliseconds and ratios, the median of the repetitions and in
parentheses their quartiles: to Keras' Adam, and where that is another one also to the same
optimizer without loss scaling ("to own"). Beside ours stands the aim, which is for a ratio to
Keras' Adam ("in fit", to Keras' Adam in fit), and where the median is above it, why. With `--core`
all runs on one core. With `--dtype float16`, which is for Keras and ours, weights, slots and
gradients have 16 bits, as under the policies of that name.

Before it is measured, each variant passes a check of its work: three steps end where an Adam in
NumPy and float64 does; an inf, a -inf and a nan in the last gradient change no bit of the weights
and slots; the next step moves them. A variant that fails is not measured, and said so.

Also printed are counts that need no quiet machine (see benchmarks/step_counts.py): of plain Adam,
Keras' own class and ours, for 400 variables.
"""

import argparse
import os
import statistics
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import running, step_variants
from benchmarks.running import spread, versions
from keras_mp.diagnosis.benchmarking.recommending import in_turn, ratios

PROFILES = {"many": (400, 12_500), "few": (40, 1_250_000), "tiny": (400, 4)}
MODES = {"jax": ("jit", "eager"), "tensorflow": ("graph", "xla"), "torch": ("eager", "compile")}
# Ratios to Keras' Adam that we aim at: (backend, mode, variant) -> those of profiles.
AIMS: dict[tuple[str, str, str], dict[str, float]] = {
    ("jax", "jit", "ours"): {"many": 1.20, "few": 1.20},
    ("tensorflow", "xla", "ours"): {"many": 1.20, "few": 1.20},
    ("tensorflow", "graph", "ours"): {"many": 1.20, "few": 1.20},
    ("tensorflow", "graph", "ours, fused"): {"many": 0.80, "few": 0.55},
    ("torch", "eager", "ours"): {"many": 1.12, "few": 1.10},
    ("torch", "eager", "ours, in fit"): {"many": 1.12, "few": 1.10},
    ("torch", "eager", "ours, fused"): {"many": 0.35, "few": 0.15},
    ("torch", "compile", "ours"): {"few": 1.15},
}
ON_ONE_CORE = {("jax", "jit", "ours"): {"many": 1.25}}
# Why a median is above the aim, where it is.
WHY = {
    ("jax", "jit", "ours", "many"): (
        "each of 1,202 kernels is handed the scale and whether all is finite, and 36 more add "
        "gradients up, 16 at once: without any check 1.0 to 1.2. A sum for each (400 kernels) and "
        "dot products: no faster"
    ),
    ("jax", "jit", "ours", "few"): (
        "28 bytes a parameter at memory speed, and 32 with the check, without which it is 1.0"
    ),
    ("tensorflow", "xla", "ours", "many"): (
        "XLA makes 3 kernels of each sum of 12,500 numbers: 2,415 in place of 1,202. Sums of many "
        "gradients at once (1,313 kernels), products, maxima of bits: no faster, as each reads all"
    ),
    ("tensorflow", "graph", "ours, fused", "many"): (
        "on several cores TensorFlow's kernel cuts each tensor into pieces for threads, whatever "
        "its size, so that from 8,192 to 49,151 numbers Keras' rule updates; 0.7 on one core"
    ),
    ("torch", "eager", "ours, fused", "few"): (
        "the kernel moves 28 bytes a parameter, and the check reads 4 before: as torch's own, with "
        "and without its GradScaler"
    ),
    ("torch", "compile", "ours", "few"): (
        "28 bytes a parameter at memory speed, and 32 with the check. Without a check it is 1.10; "
        "sums, maxima or products in place of roots: 1.30 to 1.35"
    ),
}
WHY_16_BITS = {
    ("jax", "jit"): (
        "the check reads each gradient for its maximum and for its minimum: 24 bytes a parameter "
        "in place of 20, and two kernels. A mask or 16 bits as float32 would be written: 28 to 30"
    ),
    ("tensorflow", "graph"): (
        "a graph writes the quotient in float32, and casts it: 20 bytes a parameter. In 16 bits it "
        "is exact for powers of two up to 2**24 only"
    ),
    ("tensorflow", "xla"): (
        "a mask is written and reduced: 24 bytes a parameter in place of 20. Sums write a copy in "
        "float32 (34), maxima lose nans there, products and maxima of bits take longer"
    ),
    ("torch", "compile"): "the check reads each gradient once more, as in float32",
}
RATE, BETAS, EPSILON = 0.01, (0.9, 0.999), 1e-7


def adam(weights: list[Any], gradients: list[list[Any]]) -> list[Any]:
    """Returns `weights` after a step for each list of `gradients`: Adam of Keras in float64."""
    weights = [np.asarray(w, "float64") for w in weights]
    first, second = ([np.zeros_like(w) for w in weights] for _ in BETAS)
    for step, given in enumerate(gradients, 1):
        alpha = RATE * np.sqrt(1 - BETAS[1] ** step) / (1 - BETAS[0] ** step)
        for i, gradient in enumerate(given):
            gradient = np.asarray(gradient, "float64")
            first[i] += (gradient - first[i]) * (1 - BETAS[0])
            second[i] += (gradient**2 - second[i]) * (1 - BETAS[1])
            weights[i] = weights[i] - alpha * first[i] / (np.sqrt(second[i]) + EPSILON)
    return weights


def check(make: Any, tolerance: float) -> None:
    """Raises AssertionError unless a variant does the work; see above."""
    random = np.random.default_rng(0)
    shapes = [(3, 5), (7,), (2,)]
    weights = [random.standard_normal(shape, "float32") for shape in shapes]
    case = make(weights)
    steps = [[random.standard_normal(s, "float32") for s in shapes] for _ in range(3)]
    for gradients in steps:
        case.step(case.given(gradients, case.scale()))
    for found, expected in zip(case.weights(), adam(weights, steps), strict=True):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    if case.guarded:
        for bad in (np.inf, -np.inf, np.nan):
            before = [array.tobytes() for array in (*case.weights(), *case.slots())]
            gradients = [gradient.copy() for gradient in steps[0]]
            gradients[-1].flat[-1] = bad
            case.step(case.given(gradients, case.scale()))
            after = [array.tobytes() for array in (*case.weights(), *case.slots())]
            assert before == after, f"a step with {bad} was taken"
    before = [array.copy() for array in case.weights()]
    case.step(case.given(steps[0], case.scale()))
    for old, new in zip(before, case.weights(), strict=True):
        assert (old != new).any(), "the next step does not move"


def measure(mode: str, profile: str, dtype: str, repeat: int) -> dict[str, Any]:
    """Returns the times of all variants of this backend."""
    count, size = PROFILES[profile]
    cases: dict[str, tuple[Any, Any]] = {}
    found: dict[str, Any] = {"mode": mode, "profile": profile, "variants": {}, "failed": {}}
    random = np.random.default_rng(0)
    weights = [random.standard_normal(size, "float32") for _ in range(count)]
    # Peers with another epsilon, or one in another place, are as near as that.
    tolerance = 2e-5 if dtype == "float32" else 5e-3
    gradients = [random.standard_normal(size, "float32") for _ in range(count)]
    for name, make in step_variants.of_backend(mode, dtype).items():
        if profile != "few" and name in step_variants.SLOW_TO_COMPILE:
            found["failed"][name] = "compiles for minutes at 400 tensors"
            continue
        try:
            check(make, tolerance)
            case = make(weights)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises
            found["failed"][name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            continue
        given = case.given(gradients, case.scale())
        start = time.perf_counter()
        case.step(given)
        case.wait()
        cases[name] = case, given
        found["variants"][name] = {"first": time.perf_counter() - start}
        case.step(case.again(given))
        case.wait()
    times: dict[str, list[float]] = {name: [] for name in cases}
    for name in in_turn(list(cases), repeat):
        case, given = cases[name]
        given = case.again(given)
        start = time.perf_counter()
        case.step(given)
        case.wait()
        times[name].append(time.perf_counter() - start)
    for name, taken in times.items():
        bases = {"ratio": "plain", "to own": step_variants.OWN.get(name, "plain")}
        found["variants"][name] |= {"milliseconds": 1e3 * statistics.median(taken)} | {
            key: ratios(taken, times[base]) for key, base in bases.items() if base in times
        }
    return found


def counted(backend: str, dtype: str) -> dict[str, Any]:
    import keras

    import keras_mp
    from benchmarks import step_counts

    makers = {
        "plain": lambda: keras.optimizers.Adam(RATE),
        "Keras' own": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(RATE)),
        "ours": lambda: keras_mp.LossScaleOptimizer(keras.optimizers.Adam(RATE)),
        "ours, fused": lambda: keras_mp.LossScaleOptimizer(keras.optimizers.Adam(RATE), fused=True),
    }
    if backend == "jax" or dtype != "float32":
        del makers["ours, fused"]  # the same as ours
    size = PROFILES["many"][1] if backend == "jax" else 4
    return {name: step_counts.of(make(), 400, size, dtype=dtype) for name, make in makers.items()}


def inside(options: argparse.Namespace) -> dict[str, Any]:
    """Measures on the backend that this process was started with."""
    import keras

    backend = keras.backend.backend()
    return {
        "backend": backend,
        "versions": versions(*step_variants.PACKAGES[backend]),
        "counts": counted(backend, options.dtype),
        "dtype": options.dtype,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "times": [
            measure(mode, profile, options.dtype, options.repeat)
            for mode in MODES[backend]
            if options.modes is None or mode in options.modes
            for profile in options.profiles
            if mode != "compile" or profile == "few"
        ],
    }


def show(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    print(f"\n{found['backend']}: {versions}\n\n  counts of a step, 400 variables")
    for name, counts in found["counts"].items():
        print(f"  {name:24}" + ", ".join(f"{what} {n:g}" for what, n in counts.items()))
    for times in found["times"]:
        count, size = PROFILES[times["profile"]]
        print(
            f"\n  {times['mode']}, {times['profile']}: {count} tensors of {size}\n"
            f"  {'':24}{'ms':>9}  {'to plain Adam':24}{'to own':24}first step, s"
        )
        for name, each in times["variants"].items():
            ratio, own = (spread(each[key]) if key in each else "" for key in ("ratio", "to own"))
            place = (found["backend"], times["mode"])
            aims = AIMS.get((*place, name), {})
            if found["cores"] == 1:
                aims = aims | ON_ONE_CORE.get((*place, name), {})
            aim = aims.get(times["profile"])
            base = "to own" if name in step_variants.OWN else "ratio"
            over = aim is not None and base in each and each[base][1] > aim
            print(
                f"  {name:24}{each['milliseconds']:9.3f}  {ratio:24}"
                f"{own if name in step_variants.OWN else '':24}{each['first']:8.2f}"
                f"{f'  aim {aim}' if aim else ''}{', above' if over else ''}"
            )
            wide = found["dtype"] == "float32"
            why = WHY.get((*place, name, times["profile"])) if wide else WHY_16_BITS.get(place)
            if over and why:
                print(textwrap.indent(textwrap.fill(why, 92), " " * 8))
        for name, why in times["failed"].items():
            print(f"  {name:24}not measured: {why}")


def settings(options: argparse.Namespace) -> str:
    where = "" if options.core is None else ", on one core"
    return f"{options.dtype}, {options.repeat} repetitions{where}"


def main() -> int:
    parser = running.parser(__doc__)
    parser.add_argument("--profiles", nargs="+", choices=PROFILES, default=list(PROFILES))
    parser.add_argument(
        "--modes", nargs="+", choices=sorted({m for ms in MODES.values() for m in ms})
    )
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--core", type=int, metavar="N", help="the only core to run on; Linux")
    parser.add_argument("--repeat", type=int, default=9)
    core = parser.parse_args().core
    if core is not None and not hasattr(os, "sched_setaffinity"):
        print("Not measured on one core: this system has no sched_setaffinity, Linux has.")
        return 0
    if core is not None:
        os.sched_setaffinity(0, [core])
    return running.command(__file__, parser, inside, show, settings)


if __name__ == "__main__":
    sys.exit(main())
