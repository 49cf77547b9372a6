"""`LossScaleMonitor`: what the loss scale did during `fit`, in logs, by step, and in a folder."""

import datetime
import inspect
import logging
import math
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras

import keras_mp
from keras_mp.backends import keras_hooks
from keras_mp.backends.common.batches import LastBatch
from keras_mp.monitor import run_folder
from keras_mp.monitor.trace import FILE, Row, Trace, append_jsonl, open_jsonl
from keras_mp.optimizer.errors import unwrapped
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.optimizer.widened import widened_paths
from keras_mp.rendering.text import pluralized
from keras_mp.statistics.step_statistics import StepLog

_NO_CURE = "which no loss scale can cure"

_logger = logging.getLogger("keras_mp")


class LossScaleMonitor(keras.callbacks.Callback):
    """Adds the loss scale and the skipped steps to the logs of `fit`.

    `logs["loss_scale"]`, at the end of an epoch, and `logs["skipped_steps"]`, of the epoch, are in
    `History`, and in what callbacks after this one make of logs (CSVLogger, TensorBoard, W&B): put
    it first. It reads from the device once an epoch, every `rows` steps if they are traced, and
    every N steps with `max_consecutive_skips=N` of the optimizer; with `by_batch`, once a batch.

    ```python
    monitor = keras_mp.LossScaleMonitor("runs/first")
    model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.Adam(), diagnose=True), "mse")
    model.fit(x, y, callbacks=[monitor])
    print(monitor)          # steps, skips, which variable overflowed first
    monitor.plot("scale.png")
    ```

    and then, in a shell, `keras-mp plot runs/first` or `keras-mp report runs/first -o report.html`.

    With `max_consecutive_skips` of the optimizer, training stops after that many skipped steps in a
    row, with a message on the logger "keras_mp", kept as `stopped`: the last scale, the variable
    that overflowed (with `diagnose=True`), and whether the loss itself is already not finite at
    scale 1, which no loss scale can cure. For that the last batch is run again; on TensorFlow,
    where a batch cannot be had, what the logs say of the loss has to do.

    Args:
        folder: Where the run is written as it goes on, for the two commands: `run.json` and
            `trace.jsonl`. A run that is resumed there is continued. None for nowhere.
        trace: Whether to keep the loss scale of each step, as `monitor.trace`; with a folder it is.
        rows: Steps between two reads of the device. A step writes a row of three numbers into a
            table of this length among the optimizer's variables; the first monitor of an optimizer
            decides.
        by_batch: Whether both are in the logs of each batch, too: the loss scale after it, and the
            steps skipped so far in the epoch. For `TensorBoard(update_freq=...)` and the like. Each
            batch then waits for the device.

    Warns:
        UserWarning: A callback that writes the logs comes before this one.

    Raises:
        TypeError: At the start of `fit`, if the model has another optimizer.
        ValueError: There, if steps are to be traced, but none is checked (`skip_nonfinite=False`).

    Attributes:
        stopped: Why training was stopped, or None.

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(keras_mp.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=64), "mse")
    >>> monitor = LossScaleMonitor(trace=True)
    >>> x, y = np.ones((3, 2)), np.array([1, np.nan, 1])
    >>> history = model.fit(x, y, batch_size=1, shuffle=False, verbose=0, callbacks=[monitor])
    >>> history.history["skipped_steps"], history.history["loss_scale"]
    ([1], [32.0])
    >>> monitor.trace.scales.tolist(), monitor.trace.kinds.tolist()
    ([64.0, 64.0, 32.0], [0, 2, 0])
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        trace: bool = False,
        rows: int = 1024,
        by_batch: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(rows, int) or rows < 1:
            raise ValueError(f"rows must be an integer of at least 1, but got {rows!r}.")
        if by_batch:
            # Keras waits for the logs of each batch as soon as somebody has this method.
            self.on_train_batch_end = self._log_batch
        self.stopped: str | None = None
        self._folder = None if folder is None else Path(folder)
        self._is_traced = trace or folder is not None
        self._rows = rows
        self._batch = LastBatch()
        self._kept: list[Row] = []
        self._started = ""
        self._has_begun = False
        self._watched: Any = None
        self._limit: int | None = None
        self._steps_a_call = self._table_rows = 0
        self._epoch = self._skipped = self._since_read = self._since_check = 0
        self._began = self._steps = 0

    @property
    def trace(self) -> Trace:
        """The steps that were read so far; all of them after an epoch."""
        return Trace.from_rows(self._kept)

    @property
    def _optimizer(self) -> LossScaleOptimizer:
        optimizer = self.model.optimizer
        if not isinstance(optimizer, LossScaleOptimizer):
            raise TypeError(
                "LossScaleMonitor needs a model compiled with keras_mp.LossScaleOptimizer, but the "
                f"optimizer is {unwrapped(optimizer)}."
            )
        return optimizer

    @property
    def _step_log(self) -> StepLog:
        log = self._optimizer._statistics.log
        assert log is not None
        return log

    def _take_most_skips(self) -> int:
        runs = self._optimizer._statistics.runs
        assert runs is not None
        return runs.take_most(self)

    # -- callbacks -------------------------------------------------------------------------------

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        if self._is_traced and self._optimizer._log_steps(self._rows):
            model.train_function = None  # it was traced without

    def on_train_begin(self, logs: Any = None) -> None:
        optimizer = self._optimizer
        if self._is_traced and not optimizer.skip_nonfinite:
            raise ValueError(
                "LossScaleMonitor has nothing to trace: the optimizer was made with "
                "skip_nonfinite=False, and checks no gradient."
            )
        self._warn_of_order()
        self.stopped = None
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._has_begun = False
        if optimizer.max_consecutive_skips is not None:
            self._take_most_skips()  # of a training before this one
            self._batch.follow(self.model)
        if self._folder is not None:
            self._write_run()  # fail early if the folder is not writable

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._has_begun:
            self._begin()
        self._epoch = epoch

    def _begin(self) -> None:
        # Not at the beginning of training: callbacks after this one may restore a backup there.
        self._has_begun = True
        self._sync()
        optimizer = self._optimizer
        self._skipped = int(optimizer.skipped_steps)
        self._since_read = self._since_check = 0
        self._steps_a_call = self.model.steps_per_execution
        self._limit = optimizer.max_consecutive_skips
        log = optimizer._statistics.log
        self._table_rows = 0 if log is None else log.rows
        if self._is_traced:
            steps, _ = self._step_log.since(self._steps)
            if optimizer is self._watched and steps >= self._steps:
                self._read_rows()  # a training that was interrupted left some
            else:
                self._began = steps
            self._steps = steps
        self._watched = optimizer

    # The end of a batch would do as well, but Keras then waits for the logs of each batch. And no
    # self.model at each batch: on JAX, Keras assigns the state to all variables when it is read.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._is_traced and self._since_read + self._steps_a_call > self._table_rows:
            self._sync()
            self._read_rows()
        if self._limit is not None and self._since_check + self._steps_a_call > self._limit:
            self._sync()
            self._check_skips(self._limit, self.model.get_metrics_result)
        self._since_read += self._steps_a_call
        self._since_check += self._steps_a_call

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._sync()
        optimizer = self._optimizer
        self._skipped = self._log(optimizer, logs)
        if self._is_traced:
            self._read_rows()
        if self._folder is not None:
            self._write_run()
        if optimizer.max_consecutive_skips is not None:
            self._check_skips(optimizer.max_consecutive_skips, lambda: logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._batch.end()

    # -- what was seen ---------------------------------------------------------------------------

    def __str__(self) -> str:
        if self.model is None:
            return "LossScaleMonitor, not used in fit yet"
        optimizer = self._optimizer
        lines = [f"loss scale {float(optimizer.loss_scale):g}"]
        lines.append(f"{pluralized(int(optimizer.skipped_steps), 'step')} skipped")
        if optimizer.diagnose:
            first = optimizer.first_overflow()
            lines.append("no overflow" if first is None else str(first))
            lines += [
                f"{each.path}: {each.steps} steps, the first {each.first_step}"
                for each in optimizer.nonfinite_variables()
            ]
        return "\n".join(lines)

    def plot(self, path: str | Path | None = None, *, dark: bool = False) -> Any:
        """Returns a `matplotlib.figure.Figure` of the loss scale by step.

        Args:
            path: A .png, .svg or .pdf to write, too.
            dark: For a dark page.

        Raises:
            ImportError: matplotlib is not there: pip install 'keras-mp[plot]'.
        """
        return self.trace.plot(path, dark=dark)

    # -- logs ------------------------------------------------------------------------------------

    def _log_batch(self, batch: int, logs: Any = None) -> None:
        self._sync()
        self._log(self._optimizer, logs)

    def _log(self, optimizer: LossScaleOptimizer, logs: Any) -> int:
        skipped = int(optimizer.skipped_steps)
        if logs is not None:
            logs["loss_scale"] = float(optimizer.loss_scale)
            logs["skipped_steps"] = max(0, skipped - self._skipped)  # a callback may restore state
        return skipped

    def _warn_of_order(self) -> None:
        early = [type(each).__name__ for each in called_before(self) if writes_logs(each)]
        if early:
            names = ", ".join(early)
            warnings.warn(
                f"{names} will not see loss_scale and skipped_steps: LossScaleMonitor, which puts "
                f"them into the logs, comes later. Put it first: callbacks=[monitor, {names}].",
                stacklevel=2,
            )

    # -- parts -----------------------------------------------------------------------------------

    def _sync(self) -> None:
        # On JAX the state is on loan to the compiled step.
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()

    def _read_rows(self) -> None:
        log = self._step_log
        steps, found = log.since(self._steps)
        if steps < self._steps + self._since_read:
            rows = self._read_again(steps)
        else:
            rows = self._as_rows(found)
            if (lost := steps - self._steps - len(found)) > 0:
                _logger.warning(
                    "keras_mp: %d steps are missing in the trace: more than %d were taken between "
                    "two reads. LossScaleMonitor(rows=...) of a newly made optimizer sets their "
                    "number",
                    lost,
                    log.rows,
                )
        self._steps = steps
        self._since_read = 0
        self._kept += rows
        if self._folder is not None and rows:
            with open_jsonl(self._folder / FILE) as file:
                append_jsonl(file, rows)

    def _read_again(self, steps: int) -> list[Row]:
        """Returns the rows to add where there were fewer steps than batches.

        Either a callback restored state meanwhile: what was taken back is replaced in the trace, by
        rows that go back. Or batches made no step each, as in a `train_step` that trains two models
        in turn: then the rows are those that are held.
        """
        went_back = steps < self._steps
        since = max(0 if went_back else self._began, steps - max(self._since_read, 1))
        newest = self._kept[-(max(self._steps, steps) - since) :]
        held = {(step, *values): epoch for step, epoch, *values in newest}
        rows = self._as_rows(self._step_log.since(since)[1])
        known = [held.get((step, *values)) for step, _, *values in rows]
        if not went_back:
            first = next((i for i, epoch in enumerate(known) if epoch is None), len(rows))
            rows, known = rows[first:], known[first:]
        return [
            row if epoch is None else (row[0], epoch, *row[2:])
            for row, epoch in zip(rows, known, strict=True)
        ]

    def _as_rows(self, found: Iterable[tuple[int, float, int, int]]) -> list[Row]:
        path_of = self._optimizer._statistics.path_of
        return [(step, self._epoch, scale, kind, path_of(i)) for step, scale, kind, i in found]

    def _write_run(self) -> None:
        assert self._folder is not None
        optimizer = self._optimizer
        overflows = optimizer.nonfinite_variables() if optimizer.diagnose else []
        config = optimizer.get_config()
        inner = config.pop("inner_optimizer")
        layers = [layer for layer in keras_hooks.all_layers(self.model) if layer is not self.model]
        run = {
            "keras": keras.__version__,
            "keras_mp": keras_mp.__version__,
            "backend": keras.backend.backend(),
            "model": self.model.name,
            "started": self._started,
            "optimizer": {**config, "inner_optimizer": inner["class_name"]},
            "steps": self._steps,
            "skipped": int(optimizer.skipped_steps),
            "loss_scale": float(optimizer.loss_scale),
            "layers": [
                {
                    "path": layer.path or layer.name,
                    "class": type(layer).__name__,
                    "policy": layer.dtype_policy.name,
                    "compute_dtype": layer.compute_dtype,
                    "variable_dtype": layer.variable_dtype,
                }
                for layer in layers
            ],
            "repaired": widened_paths(optimizer),  # by PrecisionRepair
            "overflows": [
                {
                    "variable": each.path,
                    "layer": each.path.rpartition("/")[0],
                    "count": each.steps,
                    "first_step": each.first_step,
                }
                for each in overflows
            ],
        }
        run_folder.write_run(self._folder, run)

    def _check_skips(self, limit: int, logs: Callable[[], Any]) -> None:
        self._since_check = 0
        run = self._take_most_skips()
        if run < limit or self.stopped is not None:
            return
        self.model.stop_training = True
        self.stopped = f"{self._reason(run)} {self._cause(logs() or {})}"
        _logger.error("keras_mp: training stops: %s", self.stopped)

    def _reason(self, run: int) -> str:
        optimizer = self._optimizer
        scale = float(optimizer.loss_scale)
        reason = f"{run} steps in a row were skipped; the loss scale is {scale:g}"
        if optimizer.diagnose:
            last = optimizer.last_nonfinite_variable()
            reason += f", and the gradient of {last} is not finite"
        return f"{reason}."

    def _cause(self, logs: Mapping[str, Any]) -> str:
        batch = self._batch.get()
        if batch is None:
            return _by_logs(logs)
        from keras_mp.diagnosis.overflow_search.search import (
            find_in_batch,  # late: few runs are stopped
        )

        try:
            x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
            found = find_in_batch(self.model, x, y, weight, loss_scale=1.0)
        except Exception as error:  # noqa: BLE001 - a train_step may take batches of any form
            return f"{_by_logs(logs)} (The batch could not be run again: {error})"
        where = str(found).partition("\n")[0]
        match found.loss_finite_at_scale_1:
            case False:
                return f"The loss of the last batch is not finite at scale 1, {_NO_CURE}: {where}."
            case True:
                return f"The loss of the last batch is finite at scale 1: {where}."
            case _:
                return f"The model has no loss of its own to look at: {where}."


def _by_logs(logs: Mapping[str, Any]) -> str:
    if "loss" not in logs:
        return "Whether the loss is finite is not in the logs."
    if math.isfinite(float(logs["loss"])):
        return "The loss of this epoch is finite, so it is gradients that overflow."
    return (
        f"The loss of at least one step of this epoch is not finite, {_NO_CURE}: look at the data, "
        "the learning rate, and keras_mp.find_overflow(model, x, y), of what fit takes."
    )


# Those of Keras that write all that they find in the logs.
_WRITERS = ("CSVLogger", "RemoteMonitor", "TensorBoard")
_PACKAGES = ("mlflow", "wandb")  # whose callbacks write them, too


def called_before(callback: Any) -> list[Any]:
    """Returns the callbacks that come before `callback` in the list that calls it now.

    Keras tells no callback of the others: the list is looked for on the stack, where the call comes
    from. It is for a warning only, and empty where there is none.

    >>> called_before(keras.callbacks.Callback())
    []
    """
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            places = [i for i, each in enumerate(caller.callbacks) if each is callback]
            return list(caller.callbacks[: places[0]]) if places else []
    return []


def writes_logs(callback: Any) -> bool:
    """Returns whether `callback` writes whatever is in the logs.

    >>> writes_logs(keras.callbacks.CSVLogger("log.csv"))
    True
    >>> writes_logs(keras.callbacks.TerminateOnNaN())
    False
    """
    if any(isinstance(callback, getattr(keras.callbacks, name)) for name in _WRITERS):
        return True
    return any(cls.__module__.partition(".")[0] in _PACKAGES for cls in type(callback).__mro__)
