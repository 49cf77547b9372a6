"""What a step of an optimizer consists of: counts that need no quiet machine.

- JAX, and TensorFlow with XLA: bytes that the compiled step reads and writes, and how many kernels
  it launches, where all gradients are finite; and instructions of its HLO;
- TensorFlow: nodes of the traced graph;
- torch: calls of aten, and times that Python waits for the device, as if the CPU were one, unless
  asked for those of the CPU.

Used by `benchmarks/step.py`, and by tests that hold the counts to bounds.
"""

import re
import unittest.mock
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from benchmarks import monitor

_ROW = re.compile(r"\s+(?:ROOT )?%?(\S+) = (.+?) ([\w-]+)\((.*)")
_ARRAY = re.compile(r"\b(?:pred|bf|[fsu])(\d*)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^%([\w.-]+) \(.*\{\n((?:.*\n)*?)\}", re.MULTILINE)
_TRUE_BRANCH = re.compile(r"(?:branch_computations=\{[^}]*|true_computation=)%([\w.-]+)")
_NO_KERNELS = ("bitcast", "constant", "get-tuple-element", "parameter", "tuple")  # compute nothing


def of(optimizer: Any, variables: int, elements: int, **modes: Any) -> dict[str, float]:
    """Returns the counts of a step of `optimizer`, a plain one or one that scales the loss.

    Args:
        optimizer: Not built yet.
        variables: How many to train.
        elements: Of each.
        modes: `skipped=True` on torch puts an inf into the gradients, `host=True` there counts the
            step of a CPU, `xla=True` on TensorFlow counts what XLA makes of the step, `dtype` is
            that of variables and gradients.
    """
    import keras

    dtype = modes.get("dtype", "float32")
    trained = [keras.Variable(np.ones(elements), dtype=dtype) for _ in range(variables)]
    optimizer.build(trained)
    optimizer.scale_loss(1.0)
    gradient = np.full(elements, 1.0, "float32")
    if modes.get("skipped"):
        gradient[0] = np.inf
    gradients = [keras.ops.cast(gradient, dtype) for _ in trained]
    match keras.backend.backend():
        case "jax":
            return _of_jax(optimizer, gradients, trained)
        case "tensorflow" if modes.get("xla"):
            return _of_xla(optimizer, gradients, trained)
        case "tensorflow":
            return dict(monitor._of_tensorflow(optimizer, gradients, trained))
    from keras_mp.backends.torch import batched as batched_torch, bits as bits_torch

    if modes.get("host"):
        return dict(monitor._of_torch(optimizer, gradients, trained))
    device = unittest.mock.patch.object(batched_torch, "is_host", return_value=False)
    with device, unittest.mock.patch.object(bits_torch, "_is_eager", return_value=False):
        return dict(monitor._of_torch(optimizer, gradients, trained))


def _of_jax(optimizer: Any, gradients: list[Any], variables: list[Any]) -> dict[str, float]:
    import jax

    given = [[v.value for v in optimizer.variables], gradients, [v.value for v in variables]]
    # Nothing is given away: copies that XLA makes of donated arrays are its own affair.
    compiled = jax.jit(optimizer.stateless_apply).lower(*given).compile()
    return _of_hlo(compiled.as_text(), gradients)


def _of_xla(optimizer: Any, gradients: list[Any], variables: list[Any]) -> dict[str, float]:
    import tensorflow as tf

    @tf.function(jit_compile=True, autograph=False)
    def step(gradients: list[Any]) -> None:
        optimizer.apply(gradients, variables)

    text = step.experimental_get_compiler_ir(gradients)(stage="optimized_hlo")
    return _of_hlo(text, gradients) | {"conditionals": text.count(" conditional(")}


def _of_hlo(text: str, gradients: list[Any]) -> dict[str, float]:
    moved = bytes_of_kernels(text)
    return {
        "bytes a parameter": sum(moved) / sum(prod(each.shape) for each in gradients),
        "launches": len(moved),
        "instructions": instructions(text),
    }


def bytes_of_kernels(hlo: str) -> list[int]:
    """Returns of each kernel that a compiled module launches what it reads and writes, in bytes.

    Of a conditional, the branch that is taken where its predicate is true.
    """
    bodies = dict(_COMPUTATION.findall(hlo))
    entry = hlo[hlo.index("\nENTRY ") :].partition("\n}")[0]
    return list(_of_computation(entry, bodies))


def _of_computation(text: str, bodies: dict[str, str]) -> Iterator[int]:
    rows = {row[1]: row for row in map(_ROW.match, text.splitlines()) if row}
    sizes = {name: _bytes(row[2]) for name, row in rows.items()}
    for name, row in rows.items():
        if row[3] == "conditional":
            yield from _of_computation(bodies[_TRUE_BRANCH.findall(row[4])[-1]], bodies)
        elif row[3] not in _NO_KERNELS:
            yield sizes[name] + sum(sizes[read] for read in _names(row[4]) if read in sizes)


def _names(operands: str) -> list[str]:
    return re.findall(r"%([\w.-]+)", operands.partition("), ")[0])


def _bytes(shape: str) -> int:
    return sum(
        max(int(bits or 8), 8) // 8 * prod(map(int, filter(None, sizes.split(","))))
        for bits, sizes in _ARRAY.findall(shape)
    )


def instructions(hlo: str) -> int:
    """Returns how many instructions there are in the text of an HLO module."""
    return sum(" = " in line for line in hlo.splitlines())
