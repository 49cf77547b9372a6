"""Keras on JAX with Flax NNX, which is switched on when keras is imported: in a new process."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from tests.clients.small import quick_on

ROOT = Path(__file__).parents[2]


@quick_on("jax")
def test_nnx(tmp_path):
    if keras.backend.backend() != "jax":
        pytest.skip("Keras has NNX on JAX only")
    pytest.importorskip("flax.nnx", reason="flax is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.clients.nnx_program", tmp_path / "model.keras"],
        env={**os.environ, "KERAS_NNX_ENABLED": "true"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
