"""Reading a checkpoint takes the memory of its largest tensor, however large the whole is."""

import json
import sys

import numpy as np
import pytest

from tests import bundles, programs

MB = 1 << 20
LARGEST = 8 * MB
SPARE = 6 * MB  # pieces of a file, the index, what Python does not give back

READS = """
import json, sys
from pathlib import Path
from keras_mp.compat.checkpoints import Checkpoint

def memory(which):
    status = Path("/proc/self/status").read_text()
    return int(status.split(which + ":")[1].split()[0]) << 10

checkpoint = Checkpoint(sys.argv[1])
checkpoint["small"]  # what reading imports is there now
before = memory("VmRSS")
kept = {key: checkpoint[key] for key in checkpoint} if sys.argv[2:] else None
read = sum(checkpoint[key].nbytes for key in checkpoint)
print(json.dumps({"read": read, "more": memory("VmHWM") - before}))
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux says how much memory a process had"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    random = np.random.default_rng(0)
    large = random.standard_normal((1024, LARGEST // 4096), dtype="float32")
    tensors = {f"large{i}": large + np.float32(i) for i in range(12)}
    small = {"small": np.ones(10, "float32")}
    bundles.write(folder / "whole", tensors | small)
    bundles.write(folder / "parts", tensors | {"small": np.ones(8, "float32")}, parts=8)
    return folder


def measured(prefix, *arguments):
    found = json.loads(programs.run("-c", READS, prefix, *arguments))
    assert found["read"] > 12 * LARGEST
    return found["more"]


def test_one_tensor_at_a_time(folder):
    assert measured(folder / "whole") < LARGEST + SPARE


def test_a_partitioned_tensor_is_there_once(folder):
    assert measured(folder / "parts") < LARGEST + LARGEST // 8 + SPARE


def test_the_measure_can_see_what_is_kept(folder):
    assert measured(folder / "whole", "keep") > 12 * LARGEST
