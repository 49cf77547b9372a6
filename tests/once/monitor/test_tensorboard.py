"""The event file for TensorBoard, read back record by record."""

import struct
import subprocess
import sys

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from keras_mp.monitor.tensorboard import write_tensorboard
from keras_mp.monitor.trace import Trace
from tests import runs


def events(folder):
    """Of the only file of a folder: TFRecord, a length, its checksum, the data, its checksum."""
    (path,) = folder.iterdir()
    assert "tfevents" in path.name
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 12 + length + 4
    assert at == len(data)


def scalars(folder, tag):
    return {
        event.step: value.simple_value
        for event in events(folder)
        for value in event.summary.value
        if value.tag == tag
    }


def test_scalars_are_the_trace(tmp_path):
    trace = runs.trace()
    write_tensorboard(trace, None, tmp_path / "log")
    scales, skips = (
        scalars(tmp_path / "log", "loss_scale"),
        scalars(tmp_path / "log", "skipped_steps"),
    )
    seen, count = None, 0
    for step, _, scale, kind, _ in trace.rows():
        count += kind > 0
        seen = scales.get(step, seen)
        assert seen == scale, f"step {step}: every change is there"
        assert skips.get(step, count) == count
        assert step in skips or not kind
    assert skips[trace.steps[-1]] == trace.skipped > 0


def test_histograms_are_the_ranges(tmp_path):
    ranges = runs.ranges()
    write_tensorboard(runs.trace(10), ranges, tmp_path)
    found = {
        value.tag: (event.step, value.histo)
        for event in events(tmp_path)
        for value in event.summary.value
        if value.HasField("histo")
    }
    held = [row for row in ranges["rows"] if any(row["histogram"])]
    assert len(found) == len(held) == len(ranges["rows"]) - 1
    for row in held:
        step, histogram = found[f"{row['kind']}/{row['path']}"]
        assert list(histogram.bucket) == row["histogram"]
        assert step == ranges["steps"]
        assert histogram.num == sum(row["histogram"])
        assert list(histogram.bucket_limit) == list(np.arange(-59.0, 42.0))
        assert 2.0**histogram.min <= row["smallest"]
        assert row["largest"] < 2.0**histogram.max


def test_a_table_of_epochs_has_no_skips(tmp_path):
    trace = Trace([1, 2], [0, 1], [4.0, 2.0], [0, 0], [None] * 2, unit="epoch", has_kinds=False)
    write_tensorboard(trace, None, tmp_path)
    assert scalars(tmp_path, "loss_scale") == {1: 4.0, 2: 2.0}
    assert scalars(tmp_path, "skipped_steps") == {}


def test_other_ranges_write_nothing(tmp_path):
    with pytest.raises(ValueError, match="exponents is null"):
        write_tensorboard(runs.trace(10), {"rows": []}, tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_without_tensorboardx_the_remedy_is_named():
    program = """
import sys
sys.modules["tensorboardX"] = None
from keras_mp.monitor.tensorboard import write_tensorboard
from keras_mp.monitor.trace import Trace
try:
    write_tensorboard(Trace.from_rows(()), None, "nowhere")
except ImportError as error:
    assert "pip install 'keras-mp[tensorboard]'" in str(error), error
else:
    raise SystemExit("no tensorboardX, and no error")
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_repairs_are_text(tmp_path):
    trace = Trace([1, 2], [0, 0], [4.0, 2.0], [1, 0], [None, None], repairs=[None, "step 1: done."])
    write_tensorboard(trace, None, tmp_path)
    found = [
        (event.step, value.tensor.string_val[0].decode())
        for event in events(tmp_path)
        for value in event.summary.value
        if value.tag.startswith("repairs")
    ]
    assert found == [(2, "step 1: done.")]
