"""What loss scaling and mixed precision cost and bring on a CUDA GPU; the best parts first.

python benchmarks/cuda.py [--backends BACKEND ...] [--sizes SIZE ...] [--policies POLICY ...]
    [--seconds N] [--repeat N] [--quick] [--json FILE] [--write benchmarks/RESULTS.md]

Ten minutes (`--seconds 600`) give, in a process for each backend, torch, JAX and TensorFlow, in
this order and as far as the time goes: a step of the optimizer alone for the parameters of a
decoder of 125 million (causal attention, tied embeddings; 12 blocks of 768); a whole training step
of it, and of a ResNet-50, in mixed_float16, float32, mixed_bfloat16, by the graph rewrite and with
16-bit weights; and the same of a decoder of 1.3 billion (24 of 2048). Each part is printed, and
written to the files, as soon as it is measured: what interrupts the program costs the part that it
was at. Compared are

- plain: keras.optimizers.Adam, without loss scaling under every policy;
- Keras' own: keras.optimizers.LossScaleOptimizer around it;
- ours: keras_mp.LossScaleOptimizer around it; "ours, fused" with `fused=True`, but on JAX;
- graph: plain, ours and fused on TensorFlow without XLA, where the others are with it;
- torch Adam: torch.optim.Adam(fused=True), in a loop of its own around the same model and loss;
- GradScaler: the same with torch.amp.GradScaler;
- MasterWeights, StochasticRounding: with `sixteen_bit_policy("bfloat16")`; "split" is how masters are kept.

A step of the optimizer alone has one line for all policies: variables, and so their gradients, are
float32 under each. It takes gradients that lie there, in torch as Keras' own `train_step` hands
them over.

A step on TensorFlow is one `tf.function`. On a GPU it is compiled by XLA, as `fit` does there by
default (`jit_compile="auto"`); as XLA has no fused kernels, those are measured in a graph. On a CPU
`fit` takes graphs, and so does this program.

Printed are milliseconds, the median of the repetitions, and in parentheses their quartiles; the
ratio to plain, likewise; "x" how many times as fast a training step is as the plain one in float32;
the fraction of the copy bandwidth: the bytes that the update must move, over its time and over what
a copy on the device reads and writes in a second, measured here; GB, the peak of the device's
memory (torch, TensorFlow), or what the compiled step needs (JAX); and waits, how often a step of
torch waited for the device. Adam must move 28 bytes a parameter (weight, two moments and gradient
read, the first three written), and 32 with the check, which has to read each gradient before
anything is changed. 1.00 would be a step that does nothing else. Training steps have no such
number.

A repetition makes the state of one variant anew, takes three steps, and then as many as fill
`--block` seconds, which are timed: by CUDA events in torch, by the clock in JAX and TensorFlow,
which then wait for the device. Variants take turns, in another order each time, and only one of
them has its state in memory. What is known not to fit, and what does not, is left out, and said so.
The loss scale is 1 for the optimizer alone, so that a variant that unscales in place leaves the
gradients as they are, and 1024 for training; "skipped" marks a variant whose scale fell, so that
its times are not those of steps. A backend that is not installed or sees no GPU (as tensorflow-cpu)
is left out, and said so; others go on, and have its time. Of `--seconds`, JAX and TensorFlow have
two parts each, and torch three.

`--quick` takes tiny sizes, and a CPU where there is no GPU: to try this program, not to measure.
`--write` puts the tables in the place of those in a file, with date, versions and device.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import running
from benchmarks.on_a_gpu.measuring import NATIVE, inside, sees_a_device
from benchmarks.on_a_gpu.policies import POLICIES
from benchmarks.on_a_gpu.sizes import QUICK, SIZES
from benchmarks.on_a_gpu.table import markdown, replaced, rows_of

PARTS = {"torch": 3, "jax": 2, "tensorflow": 2}  # of the time
NO_DEVICE = (
    "No CUDA device is visible to {}: nothing is measured there. --quick runs on a CPU, too."
)


def as_measured(backend: str, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields what a process for a backend prints, JSON in each line, as it comes.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, "--inside", json.dumps(options)],
        env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        for text in process.stdout:
            if text.startswith("{"):
                yield json.loads(text)
    finally:
        process.stdout.close()
        if process.poll() is None and sys.exc_info()[0] is not None:
            process.kill()
        code = process.wait()
    if code:
        raise subprocess.CalledProcessError(code, backend)


def seen(backends: Sequence[str]) -> list[str]:
    """Returns those that see a GPU, each asked in a process of its own."""
    answers = {name: [*as_measured(name, {"look": name})] for name in backends}
    return [name for name, answer in answers.items() if answer[-1]["seen"]]


def shares(seconds: float, backends: Sequence[str]) -> dict[str, float]:
    """Returns the seconds of each backend.

    >>> shares(600, ["torch", "jax"]), shares(700, ["torch", "jax", "tensorflow"])
    ({'torch': 360.0, 'jax': 240.0}, {'torch': 300.0, 'jax': 200.0, 'tensorflow': 200.0})
    """
    parts = sum(PARTS[name] for name in backends)
    return {name: PARTS[name] * seconds / parts for name in backends}


def main() -> int:
    parser = running.parser(__doc__, list(NATIVE))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--policies", nargs="*", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--seconds", type=float, default=600.0, help="for all of it")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--block", type=float, default=0.2, help="seconds that are timed at once")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, also on a CPU")
    parser.add_argument("--write", type=Path, help="put the table into this file, too")
    options = parser.parse_args()
    if options.inside and "look" in options.inside:
        print(json.dumps({"seen": sees_a_device(options.inside["look"])}))
        return 0
    if options.inside:
        for found in inside(argparse.Namespace(**options.inside)):
            print(json.dumps(found), flush=True)
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
    # Unless told, JAX takes three quarters of the memory, and TensorFlow all, whatever they need.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    start = time.monotonic()
    measured = options.backends if options.quick else seen(options.backends)
    missing = [name for name in options.backends if name not in measured]
    if missing:
        print(NO_DEVICE.format(" or ".join(missing)), file=sys.stderr)
    left = options.seconds - (time.monotonic() - start)
    kept = ("sizes", "policies", "repeat", "block", "quick")
    given = {name: getattr(options, name) for name in kept}
    results: list[dict[str, Any]] = []
    for backend, seconds in shares(left, measured).items():
        for found in as_measured(backend, given | {"seconds": seconds}):
            if "device" in found:
                results.append(found | {"tables": []})
                if found["device"] == "cpu":
                    print("On the CPU, with tiny sizes: this says nothing about a GPU.\n")
                print(markdown(results[-1:], time.strftime("%Y-%m-%d"), options).rstrip())
            else:
                results[-1]["tables"].append(found)
                for row in rows_of(results[-1], found):
                    print(f"| {' | '.join(row)} |", flush=True)
                write(results, options)
    return 0 if results else 2


def write(results: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Writes what there is so far into the files that were named."""
    running.keep(results, options.json)
    if options.write:
        text = options.write.read_text(encoding="utf-8")
        section = markdown(results, time.strftime("%Y-%m-%d"), options)
        options.write.write_text(replaced(text, section), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    raise SystemExit(main())
