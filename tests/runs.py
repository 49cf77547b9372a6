"""A run with overflows, made from a plain rule, for tests of traces, plots and reports."""

import math

import numpy as np

from keras_mp.diagnosis.ranges.file import write_ranges
from keras_mp.monitor.run_folder import write_run
from keras_mp.monitor.trace import Trace

BAD = "head/<script>alert(1)</script> & \"$x_{1}$\" 'ß'"
VARIABLES = ("head/logits/kernel", "encoder/block_0/dense/kernel", f"{BAD}/bias")
DTYPES = {"float16": (2.0**-25, 2.0**-14, 65520.0), "bfloat16": (2.0**-134, 2.0**-126, 3.396e38)}


def trace(steps=400, growth=60, limit=2.0**17, nans=(250,), steps_per_epoch=80):
    """A scale that grows every `growth` steps, overflows at `limit`, and meets some nans."""
    rows, scale, good = [], 2.0**15, 0
    for step in range(1, steps + 1):
        kind, variable = 0, None
        if step in nans:
            kind, variable = 2, VARIABLES[2]
        elif scale > limit:
            kind, variable = 1, VARIABLES[step % 3 == 0]
        rows.append((step, (step - 1) // steps_per_epoch, scale, kind, variable))
        good = 0 if kind else good + 1
        scale = scale / 2 if kind else scale * 2 if good % growth == 0 else scale
    return Trace.from_rows(rows)


def row(path, kind, values, *, scale=1.0, ends=(-60, 40), dtype="float16", layer="Dense"):
    """Returns a row of ranges.json, from the values themselves."""
    sizes = np.abs(np.asarray(values, np.float64))
    finite = sizes[np.isfinite(sizes) & (sizes > 0)]
    bins = np.clip(np.floor(np.log2(finite)).astype(int), *ends) - ends[0]
    fractions = {}
    for name, (zero, normal, largest) in DTYPES.items():
        held = finite * scale
        fractions[name] = {
            "zero": float(np.sum(held <= zero) / len(sizes)),
            "subnormal": float(np.sum((held > zero) & (held < normal)) / len(sizes)),
            "overflow": float(np.sum(held >= largest) / len(sizes)),
        }
    return {
        "path": path,
        "class": layer,
        "kind": kind,
        "dtype": dtype,
        "count": len(sizes),
        "zeros": int(np.sum(sizes == 0)),
        "infs": int(np.sum(np.isinf(sizes))),
        "nans": int(np.sum(np.isnan(sizes))),
        "largest": float(finite.max()) if len(finite) else None,
        "smallest": float(finite.min()) if len(finite) else None,
        "histogram": np.bincount(bins, minlength=ends[1] - ends[0] + 1).tolist(),
        **fractions,
    }


def ranges(blocks=2, scale=2.0**15, seed=0):
    """Returns the possible measurements of a small encoder, whose last layer overflows."""
    random = np.random.default_rng(seed)

    def around(exponent, width, count=500):
        return np.exp2(random.normal(exponent, width, count))

    rows = []
    for block in range(blocks):
        for i, layer in enumerate(("attention/query", "attention/softmax", "dense", "norm")):
            path = f"encoder/block_{block}/{layer}"
            rows.append(row(path, "activation", [*around(i - 2, 2 + block), 0.0, 0.0]))
            gradient = around(-24 - block - 2 * i, 3)
            rows.append(row(path, "activation gradient", gradient, scale=scale))
            if "softmax" not in layer:
                kernel = f"{path}/kernel"
                rows.append(row(kernel, "weight", around(-5, 1.5), dtype="float32"))
                gradient = around(-18 - 3 * block - i, 3.5)
                rows.append(row(kernel, "weight gradient", gradient, scale=scale))
    rows.append(row(BAD, "activation", [*around(13, 2), math.inf, math.nan]))
    rows.append(row("head/dead", "activation gradient", np.zeros(100), scale=scale))
    return {
        "format": "keras_mp.ranges",
        "version": 1,
        "model": "encoder",
        "backend": "jax",
        "loss_scale": scale,
        "steps": 12,
        "exponents": [-60, 40],
        "rows": rows,
        "advice": {
            "initial_scale": 2.0**20,
            "dtype": "bfloat16",
            "float32_layers": ["head"],
            "text": ["3 % of the gradients are zero in float16.", f"{BAD} overflows."],
        },
    }


def write(folder, *, with_ranges=True, model="encoder <b>"):
    """Writes the folder of a run; returns its trace."""
    found = trace()
    layers = [*(f"encoder/block_{i}/dense" for i in range(2)), BAD]
    overflows = [
        {**each, "layer": each["variable"].rpartition("/")[0]} for each in found.overflows()
    ]
    run = {
        "keras": "3.15.1",
        "keras_mp": "0.1.0",
        "backend": "jax",
        "model": model,
        "started": "2025-01-01T00:00:00+00:00",
        "optimizer": {"name": "loss_scale_optimizer", "initial_scale": 32768.0, "min_scale": 1.0},
        "steps": len(found),
        "skipped": found.skipped,
        "loss_scale": 131072.0,
        "layers": [
            {
                "path": path,
                "class": "Dense",
                "policy": "float32" if path == BAD else "mixed_float16",
                "compute_dtype": "float32" if path == BAD else "float16",
                "variable_dtype": "float32",
            }
            for path in layers
        ],
        "overflows": overflows,
    }
    write_run(folder, run)
    found.save(folder / "trace.jsonl")
    if with_ranges:
        write_ranges(folder, ranges())
    return found
