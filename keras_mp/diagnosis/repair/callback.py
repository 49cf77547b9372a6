"""`PrecisionRepair`: watches the skipped steps of `fit`, and repairs the model when they go on."""

import functools
import logging
from typing import Any, Literal

import keras

from keras_mp.backends.common.batches import LastBatch
from keras_mp.diagnosis.repair.agreeing import agreed
from keras_mp.diagnosis.repair.live import forget_streak
from keras_mp.diagnosis.repair.record import Repairs, Verdict
from keras_mp.diagnosis.repair.repairing import (
    as_float32_layers,
    as_found,
    as_rules,
    denied_layers,
    healthy_scale,
    optimizers_of,
    repair_again,
    searched,
)
from keras_mp.diagnosis.repair.search import Found
from keras_mp.diagnosis.repair.watching import Limits, SkipWatch
from keras_mp.graph_rewrite.submodels import has_own_step
from keras_mp.optimizer.loss_scale_optimizer import LossScaleOptimizer
from keras_mp.optimizer.widened import widened_paths

_SKIPS = 20

_logger = logging.getLogger("keras_mp")


class _Watched:
    """An optimizer, and its skipped steps.

    Attributes:
        optimizer: The optimizer.
        watch: Says when to act.
        healthy: The loss scale before training.
        skipped, skipped_at_repair: Steps that were skipped so far, and up to the last repair.
    """

    def __init__(self, optimizer: LossScaleOptimizer, watch: SkipWatch, counts: bool) -> None:
        self.optimizer, self.watch = optimizer, watch
        self.healthy = 0.0
        self.skipped = self.skipped_at_repair = 0
        # A train_step of the model's own may take several steps for a batch, or none.
        self._counts, self._iterations = counts, 0

    def begin(self) -> None:
        """Notes where the training begins."""
        self.skipped = self.skipped_at_repair = int(self.optimizer.skipped_steps)
        self.healthy = healthy_scale(self.optimizer)
        if self._counts:
            self._iterations = int(self.optimizer.iterations)

    def look(self, batches: int) -> str | None:
        """Returns why to act now, or None."""
        optimizer = self.optimizer
        before, self.skipped = self.skipped, int(optimizer.skipped_steps)
        new = max(0, self.skipped - before)  # state may be restored
        steps = batches
        if self._counts:
            taken = int(optimizer.iterations)
            steps, self._iterations = max(0, taken - self._iterations), taken
            steps += 0 if optimizer._settings.count_skipped_steps else new
        return self.watch.look(steps, new, lambda: float(optimizer.loss_scale))


class PrecisionRepair(keras.callbacks.Callback):
    """Repairs a float16 training that overflows for good, and lets it go on.

    Where steps are skipped again and again, no loss scale helps: some layer computes numbers that
    float16 does not have. This callback then takes a batch, finds the smallest part of the model
    that has to compute in float32, as `keras_mp.repair` does, and changes it in the running model.
    Weights, slots, averages, counters, epoch and batch stay; the loss scale returns to what it was.

    ```python
    repair = keras_mp.PrecisionRepair()
    model.fit(x, y, callbacks=[repair])
    print(repair.repairs)       # what was done and why, and a DTypePolicyMap to paste
    ```

    One line on the logger "keras_mp" says what was done:

    ```
    step 20: `attention` now computes in float32: matmul reached 3.1e+05 (limit 65504). 20 steps
    were skipped; the loss scale is 32768 again.
    ```

    Where precision is not the matter (the batch holds nan, the loss is not finite in float32
    either, the weights have blown up, the code casts to float16 itself) it says that, and stops the
    training. `logs["repairs"]`, at the end of an epoch, is the number of repairs so far.

    Of a model with a `train_step` of its own, such as a GAN, it watches all `LossScaleOptimizer`s
    in its attributes, and repairs when one of them skips; the loss scale of that one returns.

    It lasts: `model.save` keeps the policies of the layers. Weights files, such as those of
    `BackupAndRestore`, keep the paths of what was repaired, and this callback, or
    `keras_mp.resume`, repairs the model of the new process before its first step.

    It reads one number from the device in `skips` steps, and changes nothing of the compiled step,
    so a training that is never repaired ends bit for bit as without it. Put it before
    `LossScaleMonitor` where the optimizer has `max_consecutive_skips`, at which that one stops.

    Args:
        skips: Skipped steps in a row after which to act; None for `max_consecutive_skips` of the
            optimizer, or 20.
        min_loss_scale: Act, too, where the loss scale has been this or less for as many steps, with
            a skip among them; None for `min_scale` of the optimizer.
        skipped_share: Act, too, where more than this share of `5 * skips` steps was skipped.
        max_repairs: How many repairs there may be in one `fit`.
        stop: Whether to stop the training where it cannot be repaired. False: it goes on skipping.
        all_float32: Whether, as the last resort, all layers may compute in float32.
        remedy: "float32", or "bfloat16" for layers with which that is as good, as in
            `keras_mp.repair`.

    Raises:
        TypeError: At the start of `fit`, if the model has another optimizer.
        ValueError: A number is out of its range; at the start of `fit`, if the optimizer skips
            nothing (`skip_nonfinite=False`).

    Attributes:
        repairs: The `Repairs` so far.
        stopped: Why training was stopped, or None.

    >>> import numpy as np
    >>> from keras_mp import LossScaleOptimizer
    >>> planted = keras.layers.Dense(
    ...     1, kernel_initializer="ones", dtype="mixed_float16", name="planted"
    ... )
    >>> model = keras.Sequential([keras.Input((4,)), planted], name="net")
    >>> model.compile(LossScaleOptimizer(keras.optimizers.SGD(0.0), initial_scale=16), "mae")
    >>> x, y = np.full((8, 4), 30000.0), np.ones((8, 1))
    >>> callback = PrecisionRepair(skips=3)
    >>> _ = model.fit(x, y, batch_size=1, verbose=0, callbacks=[callback])
    >>> callback.repairs.layers, int(model.optimizer.skipped_steps)
    (('planted',), 3)
    """

    def __init__(
        self,
        skips: int | None = None,
        *,
        min_loss_scale: float | None = None,
        skipped_share: float = 0.25,
        max_repairs: int = 8,
        stop: bool = True,
        all_float32: bool = False,
        remedy: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        super().__init__()
        for name, value in (("skips", skips), ("max_repairs", max_repairs)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be an integer of at least 1, but got {value!r}.")
        if not 0 < skipped_share <= 1:
            raise ValueError(
                f"skipped_share must be above 0 and at most 1, but got {skipped_share!r}."
            )
        self.repairs = Repairs()
        self.stopped: str | None = None
        self._skips, self._min_scale, self._share = skips, min_loss_scale, skipped_share
        self._max_repairs, self._stop = max_repairs, stop
        self._rules = as_rules(all_float32, remedy)
        self._batch = LastBatch()
        self._watched: list[_Watched] = []
        self._has_begun = self._gave_up = self._is_waiting = False
        self._steps_a_call = self._since_look = self._pause = self._fruitless = 0
        self._looks_after = self._made_in_fit = 0

    # -- callbacks -------------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        optimizers = optimizers_of(self.model, "PrecisionRepair")
        if not all(optimizer.skip_nonfinite for optimizer in optimizers):
            raise ValueError(
                "PrecisionRepair has nothing to watch: the optimizer was made with "
                "skip_nonfinite=False, and checks no gradient."
            )
        self._has_begun = self._gave_up = self._is_waiting = False
        self.stopped = None
        self._made_in_fit = self._fruitless = self._pause = 0
        self._watched = [
            _Watched(optimizer, SkipWatch(self._limits(optimizer)), has_own_step(self.model))
            for optimizer in optimizers
        ]
        self._looks_after = min(each.watch.limits.skips for each in self._watched)
        self._batch.follow(self.model)

    def _limits(self, optimizer: LossScaleOptimizer) -> Limits:
        return Limits(
            self._skips or optimizer.max_consecutive_skips or _SKIPS,
            optimizer.min_scale if self._min_scale is None else float(self._min_scale),
            self._share,
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._has_begun:
            self._begin()

    def _begin(self) -> None:
        # Not at the beginning of training: callbacks after this one may restore a backup there.
        self._has_begun = True
        self._sync()
        for each in self._watched:
            each.begin()
        self._since_look = 0
        self._steps_a_call = self.model.steps_per_execution
        if again := repair_again(self.model):
            self._batch.follow_again(self.model)
            _logger.warning(
                "keras_mp: as in the training that is continued, %s compute in float32",
                ", ".join(f"`{path}`" for path in again),
            )
        if any(widened_paths(each.optimizer) for each in self._watched):
            layers, denied = as_float32_layers(self.model), denied_layers(self.model)
            self.repairs = Repairs(self.repairs.made, None, layers, denied)

    # No self.model at each batch: on JAX, Keras assigns the state to all variables when it is read.
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._since_look + self._steps_a_call > self._looks_after:
            self._sync()
            self._look()
        self._since_look += self._steps_a_call

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["repairs"] = len(self.repairs)

    def on_train_end(self, logs: Any = None) -> None:
        self._batch.end()

    # -- what is done ----------------------------------------------------------------------------

    def _look(self) -> None:
        steps, self._since_look = self._since_look, 0
        sick = [(each, why) for each in self._watched if (why := each.look(steps)) is not None]
        self._pause = max(0, self._pause - steps)
        if not sick or self._gave_up or self._is_waiting or self._pause:
            return
        watched, reason = sick[0]
        if self._made_in_fit >= self._max_repairs:
            self._give_up(
                Verdict(
                    "bound",
                    f"After {self._made_in_fit} repairs (max_repairs) {reason}: "
                    "train with mixed_bfloat16, or look for the cause with find_overflow.",
                )
            )
            return
        self._is_waiting = True
        if not self._batch.show(self.model, functools.partial(self._repair, watched)):
            forget_streak(watched.optimizer)  # the repair comes with the next batch

    def _repair(self, watched: "_Watched", data: Any) -> None:
        self._is_waiting = False
        optimizer, tolerated = watched.optimizer, watched.watch.tolerated

        def search(batch: Any) -> Found | Verdict:
            batch = keras.utils.unpack_x_y_sample_weight(batch)
            return searched(self.model, batch, watched.healthy, tolerated, self._rules)

        found = agreed(self.model, search, data)
        skipped = watched.skipped - watched.skipped_at_repair
        done = as_found(self.model, found, skipped, optimizer)
        self.repairs = self.repairs.plus(done)
        if done:
            self._batch.follow_again(self.model)
            for each in self._watched:
                each.watch.forget()
            self._made_in_fit += 1
            self._fruitless = 0
            watched.skipped_at_repair = watched.skipped
            for made in done:
                _logger.warning("keras_mp: %s", made)
            return
        assert done.verdict is not None
        if done.verdict.ends:
            self._give_up(done.verdict)
            return
        self._fruitless += 1
        # A search takes as long as many steps.
        self._pause = watched.watch.limits.skips * 2**self._fruitless
        if self._fruitless == 1:
            _logger.warning("keras_mp: steps are skipped. %s", done.verdict.text)

    def _give_up(self, verdict: Verdict) -> None:
        self._gave_up = True
        self.repairs = self.repairs.plus(Repairs(verdict=verdict))
        if self._stop:
            self.model.stop_training = True
            self.stopped = verdict.text
            _logger.error("keras_mp: training stops: %s", verdict.text)
        else:
            _logger.error("keras_mp: nothing is repaired, and steps are skipped: %s", verdict.text)

    def _sync(self) -> None:
        # On JAX the state is on loan to the compiled step.
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
