"""What a process measures, on the backend that it was started with: part by part."""

import argparse
import functools
import platform
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.on_a_gpu.jax_steps import Jax
from benchmarks.on_a_gpu.sizes import QUICK, SIZES, Work, parts
from benchmarks.on_a_gpu.steps import Native
from benchmarks.on_a_gpu.tensorflow_steps import TensorFlow
from benchmarks.on_a_gpu.timing import NoTime, bandwidth, measure, why_left_out
from benchmarks.on_a_gpu.torch_steps import Torch

# In the order in which they are measured.
NATIVE: dict[str, type[Native]] = {"torch": Torch, "jax": Jax, "tensorflow": TensorFlow}


def sees_a_device(backend: str) -> bool:
    """Returns whether a backend is installed, and sees a GPU."""
    try:
        return NATIVE[backend](False).cuda
    except ImportError:
        return False


def inside(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measures on the backend that this process was started with.

    Yields:
        What is known beforehand; then a table for each part.
    """
    import keras

    import keras_mp

    until = time.monotonic() + options.seconds
    backend = keras.backend.backend()
    native = NATIVE[backend](options.quick)
    yield {
        "backend": backend,
        "device": native.name,
        "versions": {
            "python": platform.python_version(),
            "keras": keras.__version__,
            "keras_mp": keras_mp.__version__,
            **native.versions,
        },
        "copy": bandwidth(native, options) if native.cuda else 0.0,
    }
    for name, policy in parts(options.sizes, options.policies):
        yield table_of(native, name, policy, options, until)


def table_of(
    native: Native, name: str, policy: str | None, options: argparse.Namespace, until: float
) -> dict[str, Any]:
    """Returns the times of a part, or why it is left out."""
    size = (SIZES | QUICK)[name]
    table: dict[str, Any] = {"size": name, "parameters": size.parameters(), "policy": policy}
    free, needed = native.free(), size.needed(policy)
    if free is not None and needed > free:
        return table | {"left out": f"needs about {needed / 1e9:.0f} GB, {free / 1e9:.0f} GB free"}
    try:
        if time.monotonic() > until:
            raise NoTime
        return table | {"variants": of_size(native, size, policy, options, until)}
    except NoTime:
        return table | {"left out": "no time was left"}


def of_size(
    native: Native, size: Work, policy: str | None, options: argparse.Namespace, until: float
) -> Any:
    """Returns the times, or {"all": {"failed": why}} where not even the model fits."""
    try:
        training = functools.partial(native.training, size, 1024.0)
        variants = native.updates(size) if policy is None else training(policy)
    except native.failures as error:
        return {"all": {"failed": why_left_out(error, native)}}
    return measure(native, variants, options, until)
