"""What loss scaling costs on a CUDA GPU, with parameters as GPT models have them.

python benchmarks/cuda.py [--backends BACKEND ...] [--sizes SIZE ...] [--policies POLICY ...]
    [--repeat N] [--quick] [--json FILE] [--write benchmarks/RESULTS.md]

Per backend, in a process of its own, torch and JAX: a step of the optimizer alone, and a whole
training step of a decoder (causal attention, tied embeddings), of 125 million (12 blocks of 768)
and of 1.3 billion parameters (24 of 2048), with

- plain: keras.optimizers.Adam, without loss scaling under every policy;
- Keras' own: keras.optimizers.LossScaleOptimizer around it;
- ours: keras_mp.LossScaleOptimizer around it; "ours, fused" with `fused=True`, but on JAX;
- torch Adam: torch.optim.Adam(fused=True), in a loop of its own around the same model and loss;
- GradScaler: the same with torch.amp.GradScaler.

Training steps are those of mixed_float16, mixed_bfloat16 and float32. A step of the optimizer alone
has one line for all of them: variables, and so their gradients, are float32 under each. It takes
gradients that lie there, in torch as Keras' own `train_step` hands them over.

Printed are milliseconds, the median of the repetitions, and in parentheses their quartiles; the
ratio to plain, likewise; and the fraction of the copy bandwidth: the bytes that the update must
move, over its time and over what a copy on the device reads and writes in a second, measured here.
Adam must move 28 bytes a parameter (weight, two moments and gradient read, the first three
written), and 32 with the check, which has to read each gradient before anything is changed. 1.00
would be a step that does nothing else. Training steps have no such number.

A repetition makes the state of one variant anew, takes three steps, and then as many as fill
`--block` seconds, which are timed: by CUDA events in torch, by the clock and `block_until_ready` in
JAX. Variants take turns, in another order each time, and only one of them has its state in memory.
What is known not to fit, and what does not, is left out, and said so. The loss scale is 1 for the
optimizer alone, so that a variant that unscales in place leaves the gradients as they are, and 1024
for training; "skipped" marks a variant whose scale fell, so that its times are not those of steps.

`--quick` takes tiny sizes, and a CPU where there is no GPU: to try this program, not to measure.
`--write` puts the tables in the place of those in a file, with date, versions and device.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import running
from benchmarks.cuda_variants import QUICK, SIZES, Jax, Size, Torch, Variants
from benchmarks.running import in_turn, of_process, quartiles, ratios, spread

BACKENDS = ("torch", "jax")
POLICIES = ("mixed_float16", "mixed_bfloat16", "float32")
BEGIN, END = "<!-- cuda: begin -->", "<!-- cuda: end -->"
BYTES = 28  # that Adam moves for a parameter; the check reads 4 more
WARM_UP = 3
NO_DEVICE = (
    "No CUDA device is visible to {}: nothing was measured there. --quick runs on a CPU, too."
)


# -- times -----------------------------------------------------------------------------------------


def why_left_out(error: Exception, native: Any) -> str:
    """Returns what to say of a variant that did not run; raises what is no fault of the device."""
    text = str(error)
    if "out of memory" in text.lower() or "RESOURCE_EXHAUSTED" in text:
        return "out of memory"
    if not native.cuda and "not supported" in text:
        return f"not on a CPU: {text.splitlines()[0]}"  # as 16 bits in JAX's attention
    raise error


def measure(
    native: Any, variants: Variants, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Returns the times of each variant, or why there are none."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    found: dict[str, dict[str, Any]] = {name: {"skipped": False} for name in variants}
    # The first round compiles, and is not counted.
    for name in [*variants, *in_turn(list(variants), options.repeat)]:
        if "failed" in found[name]:
            continue
        steps = None
        try:
            steps = variants[name]()
            scale = steps.scale()
            guess = max(native.timed(steps, WARM_UP), 1e-6)
            count = min(max(1, round(1e3 * options.block / guess)), 200)
            times[name].append(native.timed(steps, count))
            found[name]["skipped"] |= scale is not None and (steps.scale() or 0.0) < scale
            found[name]["fallback"] = steps.fallback()
        except (RuntimeError, ValueError) as error:
            found[name]["failed"] = why_left_out(error, native)
        del steps
        native.free()
    for name, taken in times.items():
        if "failed" not in found[name]:
            found[name]["milliseconds"] = quartiles(taken[1:])
        if "failed" not in found[name] and "failed" not in found["plain"]:
            found[name]["ratio"] = ratios(taken[1:], times["plain"][1:])
    return found


def bandwidth(native: Any, options: argparse.Namespace) -> float:
    """Returns the bytes that a copy on the device reads and writes in a second."""
    elements = 2**20 if options.quick else 2**28
    steps = native.copying(elements)
    native.timed(steps, WARM_UP)
    taken = statistics.median(native.timed(steps, 10) for _ in range(options.repeat))
    return float(2 * 4 * elements / (taken / 1e3))


def inside(options: argparse.Namespace) -> dict[str, Any]:
    """Measures on the backend that this process was started with."""
    import keras

    import keras_mp

    backend = keras.backend.backend()
    native: Any = {"torch": Torch, "jax": Jax}[backend](options.quick)
    if not native.cuda and not options.quick:
        return {"backend": backend, "missing": True}
    found: dict[str, Any] = {
        "backend": backend,
        "device": native.name,
        "versions": {
            "python": platform.python_version(),
            "keras": keras.__version__,
            "keras_mp": keras_mp.__version__,
            **native.versions,
        },
        "copy": bandwidth(native, options) if native.cuda else 0.0,
        "tables": [],
    }
    for name in options.sizes:
        size = (SIZES | QUICK)[name]
        for policy in (None, *options.policies):
            table: dict[str, Any] = {"size": name, "parameters": size.parameters()}
            table["policy"] = policy
            free, needed = native.free(), size.needed(policy)
            if free is not None and needed > free:
                table["left out"] = f"needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB free"
            else:
                table["variants"] = of_size(native, size, policy, options)
            found["tables"].append(table)
            print(f"{backend}, {name}, {policy or 'optimizer'}: done", file=sys.stderr)
    return found


def of_size(native: Any, size: Size, policy: str | None, options: argparse.Namespace) -> Any:
    """Returns the times, or {"all": {"failed": why}} where not even the model fits."""
    import keras

    keras.config.set_dtype_policy(policy or "float32")
    try:
        variants = native.updates(size) if policy is None else native.training(size, 1024.0)
    except (RuntimeError, ValueError) as error:
        return {"all": {"failed": why_left_out(error, native)}}
    return measure(native, variants, options)


# -- the table -------------------------------------------------------------------------------------


def fraction(table: dict[str, Any], variant: str, copy: float) -> float | None:
    """Returns the part of the copy bandwidth at which the update moves what it must."""
    each = table["variants"][variant]
    if table["policy"] is not None or "milliseconds" not in each or not copy:
        return None
    needed = BYTES + (0 if variant in ("plain", "torch Adam") else 4)
    return float(needed * table["parameters"] / (each["milliseconds"][1] / 1e3) / copy)


def markdown(results: list[dict[str, Any]], date: str, options: argparse.Namespace) -> str:
    """Returns what was measured as Markdown, a table for each backend."""
    lines = []
    for found in results:
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        copy = f"; a copy reads and writes {found['copy'] / 1e9:.0f} GB/s" if found["copy"] else ""
        lines += [
            f"### {found['backend']}, {found['device']}",
            "",
            f"{date}; {versions}. {options.repeat} repetitions{copy}.",
            "",
            "| parameters | step | variant | ms (quartiles) | to plain (quartiles) | of copy |",
            "|---|---|---|---|---|---|",
        ]
        for table in found["tables"]:
            step = f"training, {table['policy']}" if table["policy"] else "optimizer"
            begin = f"| {table['size']} | {step} |"
            if "left out" in table:
                lines.append(f"{begin} all | left out: {table['left out']} | | |")
                continue
            for name, each in table["variants"].items():
                if "failed" in each:
                    lines.append(f"{begin} {name} | {each['failed']} | | |")
                    continue
                part = fraction(table, name, found["copy"])
                ratio = spread(each["ratio"]) if "ratio" in each else "-"
                mark = " (skipped)" if each["skipped"] else ""
                mark += f" (not fused: {each['fallback']})" if each["fallback"] else ""
                lines.append(
                    f"{begin} {name}{mark} | {spread(each['milliseconds'])} | {ratio} | "
                    f"{'-' if part is None else f'{part:.2f}'} |"
                )
        lines.append("")
    return "\n".join(lines)


def replaced(text: str, section: str) -> str:
    """Returns `text` with `section` between the two marks, and all else as it was.

    Raises:
        ValueError: The marks are not there, once each and in order.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"has not {BEGIN} and {END}, once each")
    return f"{before}{BEGIN}\n\n{section.strip()}\n\n{END}{after}"


# -- the command -----------------------------------------------------------------------------------


def main() -> int:
    parser = running.parser(__doc__, BACKENDS)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--block", type=float, default=0.3, help="seconds that are timed at once")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, also on a CPU")
    parser.add_argument("--write", type=Path, help="put the table into this file, too")
    options = parser.parse_args()
    if options.inside:
        print(json.dumps(inside(argparse.Namespace(**options.inside))))
        return 0
    if options.write and options.quick:
        parser.error("--write keeps results, and --quick gives none: leave one of them out")
    if options.write:
        try:  # before all the measuring
            replaced(options.write.read_text(encoding="utf-8"), "")
        except (OSError, ValueError) as error:
            parser.error(f"--write {options.write}: {error}")
    if options.quick:
        options.sizes, options.block = list(QUICK), 0.02
    # JAX takes three quarters of the memory unless told.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
    kept = ("sizes", "policies", "repeat", "block", "quick")
    results, missing = [], []
    for backend in options.backends:
        found = of_process(__file__, backend, {name: getattr(options, name) for name in kept})
        if found.get("missing"):
            missing.append(backend)
            continue
        results.append(found)
        if found["device"] == "cpu":
            print("On the CPU, with tiny sizes: this says nothing about a GPU.\n")
        print(markdown([found], time.strftime("%Y-%m-%d"), options), flush=True)
    if missing:
        print(NO_DEVICE.format(" or ".join(missing)), file=sys.stderr)
    if not results:
        return 2
    running.keep(results, options.json)
    if options.write:
        text = options.write.read_text(encoding="utf-8")
        section = markdown(results, time.strftime("%Y-%m-%d"), options)
        options.write.write_text(replaced(text, section), encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
