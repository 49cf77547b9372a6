"""One variant: builds its model, trains it for some steps at a time, and times them."""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import ops

from keras_mp.array_types import Model
from keras_mp.backends.common import measuring
from keras_mp.backends.common.generators import seeded_generators
from keras_mp.diagnosis.dry_run.step import current_scale
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.sixteen_bit.memory import bytes_of, memory_report

Batch = tuple[Any, Any, Any]
FIRST = 2  # steps that compile, then the same number known to be compiled


class _Feed(keras.utils.PyDataset):
    """The same batches, repeated in order for a number of steps."""

    def __init__(self, batches: Sequence[Batch], steps: int, begin: int) -> None:
        super().__init__()
        self._batches, self._steps, self._begin = batches, steps, begin

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> Any:
        x, y, sample_weight = self._batches[(self._begin + index) % len(self._batches)]
        if sample_weight is not None:
            return x, y, sample_weight
        return (x,) if y is None else (x, y)


class _Clock(keras.callbacks.Callback):
    """Times an epoch, without the work of `fit` before and after. No step waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._began = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        measuring.wait()
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        measuring.wait()
        self.seconds = time.perf_counter() - self._began


@dataclass
class Trial:
    """A variant of the model, and the results of its steps so far.

    Attributes:
        model: Compiled.
        steps: Steps taken.
        losses: The mean loss of each part of the training.
        seconds: Per step, in each part.
        memory: Bytes: the device's peak while only this variant ran, or counted.
        warm_skips: Skipped steps of the warm-up.
        notes: Warnings.
    """

    model: Model
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    memory: int | None = None
    first_seconds: float = 0.0
    warm_skips: int = 0
    notes: list[str] = field(default_factory=list)

    def train(self, batches: Sequence[Batch], steps: int) -> float:
        """Continues training for some steps, and returns the seconds per step."""
        clock = _Clock()
        feed = _Feed(batches, steps, self.steps)
        # Dropout is the same for each variant, also if no variable of Keras seeds it.
        with seeded_generators(self.steps), self._noting():
            # Not `fit` of the model's class: it would preprocess the batches again.
            history = keras.Model.fit(
                self.model, feed, verbose=0, shuffle=False, callbacks=[clock]
            ).history
        self.steps += steps
        self.losses.append(float(history["loss"][-1]))
        self.seconds.append(clock.seconds / steps)
        return self.seconds[-1]

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        messages = (str(each.message) for each in caught if each.category is UserWarning)
        self.notes = list(dict.fromkeys([*self.notes, *messages]))

    @property
    def skipped(self) -> int | None:
        """The number of skipped steps; None without loss scaling."""
        optimizer = self.model.optimizer
        if not isinstance(optimizer, LossScaleOptimizer):
            return None
        return int(ops.convert_to_numpy(optimizer.skipped_steps))

    @property
    def loss_scale(self) -> float | None:
        """The current loss scale; None without one."""
        optimizer = self.model.optimizer
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        return current_scale(optimizer) if scales else None

    def counted_bytes(self) -> int:
        """Returns the bytes of all weights, gradients, and optimizer variables."""
        others = map(bytes_of, self.model.non_trainable_weights)
        return memory_report(self.model).now.total + sum(others)


def begun(make: Callable[[], Model], batches: Sequence[Batch]) -> tuple[Trial, bool]:
    """Makes a variant and takes its first steps, which compile.

    Args:
        make: Makes the model.
        batches: To train on.

    Returns:
        The trial, whose last `seconds` are of compiled steps; and whether its memory is the
        device's, not counted.

    Raises:
        ValueError: The variant is not what its name says. Errors of the model's code, or of Keras,
            pass through.
    """
    before = measuring.mark()
    began = time.perf_counter()
    trial = Trial(make())
    trial.train(batches, FIRST)
    trial.first_seconds = time.perf_counter() - began
    trial.train(batches, FIRST)
    fallback = getattr(trial.model.optimizer, "fused_fallback", None)
    if fallback:
        raise ValueError(f"not fused: {fallback}")
    measured = None if before is None else measuring.peak_since(before)
    trial.memory = trial.counted_bytes() if before is None else measured
    trial.warm_skips = trial.skipped or 0
    return trial, before is not None
