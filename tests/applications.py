"""Loads every recorded architecture of tf.keras.applications, and writes the page with the figures.

    KERAS_BACKEND=torch python -m tests.applications       measures this backend
    python -m tests.applications --page                    writes docs/reference/applications.md

Figures are kept in tests/data/applications/measured_BACKEND.json. Existing ones are not measured
again, so an interrupted run can be resumed.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.data.applications import reading

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "applications.md"
ORDER = ("tf215", "tf24", "tf23", "tf210")  # the most different ones first
BACKENDS = ("jax", "tensorflow", "torch")
TITLES = {"tf23": "TF 2.3", "tf24": "TF 2.4", "tf210": "TF 2.10", "tf215": "TF 2.15"}
Measured = dict[str, dict[str, dict[str, Any]]]
HEAD = """# Architectures of tf.keras.applications

Every architecture of `tf.keras.applications`, as TF 2.3, 2.4, 2.10 and 2.15 saved it, loads with
`keras_mp.compat.load_model` on JAX, TensorFlow and PyTorch. The models have random weights, and
mostly images of 64 by 64.

A figure is the largest difference from TensorFlow's recorded prediction, divided by the largest
prediction: the worst of all versions from *since TF* on, with the top and without. A dash was not
measured. *Amplified* is the factor by which the net amplifies a small change of the image. Each
layer adds noise of 1e-7 in float32, of 5e-4 in float16. TensorFlow 2.10 and 2.15 themselves differ
by up to 2e-5 in float32 and 4e-2 in mixed_float16.

[Script](../../tests/applications.py); [test](../../tests/each/compat/test_applications.py) of some
of the models.
"""


def bound(policy: str, condition: float) -> float:
    """Returns the expected noise of a format, as a net amplifies it."""
    if policy == "mixed_float16":
        return 2e-3 * max(1.0, condition)
    return 1e-5 * max(1.0, condition / 4)


def measure() -> None:
    import keras
    import numpy as np

    from keras_mp.compat import load_model

    backend = keras.backend.backend()
    found = measured(backend)
    cases = [(version, name) for version in ORDER for name in reading.names(version)]
    for version, name in sorted(cases, key=lambda case: "without" in case[1]):
        done = found.setdefault(version, {})
        if name not in done:
            start = time.perf_counter()
            recorded = reading.read(version, name)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.h5"
                reading.write_hdf5(path, version, name)
                model = load_model(path)
            # On JAX, op by op would take longer.
            call = model.predict_on_batch if backend == "jax" else model
            predicted = keras.ops.convert_to_numpy(call(recorded["input"]))
            expected = recorded["predictions"]
            apart = float(np.abs(predicted - expected).max() / np.abs(expected).max())
            policy, condition = recorded["policy"], recorded["condition"]
            done[name] = {"apart": float(f"{apart:.2g}"), "condition": condition, "policy": policy}
            text = json.dumps(found, indent=1, sort_keys=True) + "\n"
            path_of(backend).write_text(text, encoding="utf-8")
            said = "" if apart <= bound(policy, condition) else "TOO FAR"
            seconds = time.perf_counter() - start
            line = f"{backend} {version} {name} {apart:.1e} {said} {seconds:.0f} s\n"
            sys.stdout.write(line)
            sys.stdout.flush()
            keras.backend.clear_session()


def path_of(backend: str) -> Path:
    return reading.FOLDER / f"measured_{backend}.json"


def measured(backend: str) -> Measured:
    """Returns the figures by version and model."""
    path = path_of(backend)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def page() -> str:
    """Returns the page."""
    lines = [HEAD]
    for policy in ("float32", "mixed_float16"):
        rows: dict[str, dict[str, float]] = {}
        there: dict[str, list[str]] = {}
        conditions: dict[str, float] = {}
        for backend in BACKENDS:
            for version, models in measured(backend).items():
                for name, row in models.items():
                    if row["policy"] != policy:
                        continue
                    short = name.partition("-")[0]
                    worst = rows.setdefault(short, {})
                    worst[backend] = max(worst.get(backend, 0.0), row["apart"])
                    conditions[short] = max(conditions.get(short, 0.0), row["condition"])
                    if version not in there.setdefault(short, []):
                        there[short].append(version)
        lines += [
            f"\n## {policy}\n",
            "| model | since TF | amplified | JAX | TensorFlow | PyTorch |",
        ]
        lines.append("|---|---|---|---|---|---|")
        for short in sorted(rows):
            versions = [version for version in TITLES if version in there[short]]
            assert versions == [*TITLES][-len(versions) :], (short, versions)
            since = TITLES[versions[0]].removeprefix("TF ")
            there_now = [rows[short].get(backend) for backend in BACKENDS]
            figures = " | ".join("-" if one is None else f"{one:.1e}" for one in there_now)
            lines.append(f"| {short} | {since} | {conditions[short]:.1f} | {figures} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="store_true")
    if parser.parse_args().page:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        measure()
