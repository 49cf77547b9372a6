"""A run for TensorBoard, by tensorboardX: no TensorFlow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_mp.diagnosis.ranges.file import check_ranges
from keras_mp.monitor import drawing
from keras_mp.monitor.trace import Trace


def write_tensorboard(
    trace: Trace, ranges: Mapping[str, Any] | None, logdir: str | Path, *, most: int = 4000
) -> None:
    """Writes an event file into a folder.

    | tag                    | what it is                                                       |
    | ---------------------- | ---------------------------------------------------------------- |
    | loss_scale             | scalar by step, before the step                                  |
    | skipped_steps          | scalar by step: how many were skipped so far, this one included  |
    | repairs                | text by step: what `PrecisionRepair` changed just before it      |
    | activation/dense, ...  | histogram of log2 of the magnitudes, by the kind and the path    |

    Args:
        trace: Of a run.
        ranges: As `ranges.json` holds them, or None.
        logdir: The folder; it is made. Each call writes a file of its own.
        most: Above so many changes of the loss scale the trace is thinned; skipped steps and
            extremes are never lost.

    Raises:
        ImportError: tensorboardX is not installed.
        ValueError: `ranges` are not of that form.
        OSError: It could not be written.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "Event files need tensorboardX: pip install 'keras-mp[tensorboard]'."
        ) from error
    if ranges is not None:
        check_ranges(ranges)
    skipped = np.cumsum(trace.is_skipped)
    with SummaryWriter(str(logdir), write_to_disk=True) as writer:
        for i in drawing.downsampled(trace, most).tolist():
            step = int(trace.steps[i])
            writer.add_scalar("loss_scale", float(trace.scales[i]), step)
            if trace.has_kinds:
                writer.add_scalar("skipped_steps", int(skipped[i]), step)
        for step, repaired in trace.told_repairs():
            writer.add_text("repairs", repaired, step)
        if ranges is not None:
            _write_ranges(writer, ranges)


def _write_ranges(writer: Any, ranges: Mapping[str, Any]) -> None:
    first, last = ranges["exponents"]
    middles = np.arange(first, last + 1) + 0.5
    for row in ranges["rows"]:
        counts = np.asarray(row["histogram"])
        held = np.flatnonzero(counts)
        if not len(held):
            continue
        writer.add_histogram_raw(
            f"{row['kind']}/{row['path']}",
            min=float(first + held[0]),
            max=float(first + held[-1] + 1),
            num=int(counts.sum()),
            sum=float(counts @ middles),
            sum_squares=float(counts @ middles**2),
            bucket_limits=[float(first + i + 1) for i in range(len(counts))],
            bucket_counts=counts.tolist(),
            global_step=int(ranges.get("steps") or 0),
        )
