"""The part of the wrapper that tells what came of a step: values on the device, never read here."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from keras import ops

from keras_mp.backends.numerics import Outcome, as_skipped
from keras_mp.backends.optimizers import path
from keras_mp.extra_state import ExtraState
from keras_mp.settings import Settings

KINDS = {0: "finite", 1: "inf", 2: "nan"}
ROW = ("loss_scale", "kind", "variable")  # what is recorded of a step


@dataclass(frozen=True, slots=True)
class NonfiniteVariable:
    """A variable whose gradient was not finite, and how often; see `diagnose`."""

    path: str
    steps: int
    first_step: int


@dataclass(frozen=True, slots=True)
class FirstOverflow:
    """The first step that was skipped; see `diagnose`.

    `variable` is the last of the model's variables, in their order, whose gradient was not finite.
    Where layers are listed in the order in which they run, that is the first in the order of
    backpropagation: what is nearer to the loss was still finite. After an overflow in the forward
    pass every gradient is bad, and it is the last layer, whatever layer overflowed.
    """

    step: int
    variable: str
    kind: str
    scale_before: float
    scale_after: float

    def __str__(self) -> str:
        return (
            f"first overflow: step {self.step}, {self.variable} ({self.kind}), "
            f"scale {self.scale_before:g} -> {self.scale_after:g}"
        )


class TellsOutcomes:
    """`last_step_applied`, `skipped_steps`, `nonfinite_kind`, and what `diagnose` counts."""

    dynamic_scale: Any
    _add_extra: Callable[..., Any]
    _add_own: Callable[..., Any]
    _var_key: Callable[[Any], Any]
    _trainable_variables_indices: dict[Any, int]
    _native: ModuleType
    _settings: Settings
    variables: Any
    _trainable_variables: list[Any]
    extra_state: ExtraState
    _unseen_skips: weakref.WeakKeyDictionary[Any, int]

    def _add_outcome_variables(self) -> None:
        # Past Keras' tracking.
        object.__setattr__(self, "_unseen_skips", weakref.WeakKeyDictionary())
        self._nonfinite_kind = self._add_extra("nonfinite_kind")
        self._skipped_steps = self._add_extra("skipped_steps")
        self._steps = self._consecutive_skips = self._most_skips = self._recorded = None
        if self._settings.max_consecutive_skips is not None:
            self._consecutive_skips = self._add_extra("consecutive_skips")
            self._most_skips = self._add_extra("most_skips")
        if self._settings.diagnose:
            self._steps = self._add_extra("steps")
            self._last_nonfinite = self._add_own("last_nonfinite", -1)
            self._first_overflow = self._add_own("first_overflow", -1, "float32", (4,))

    def _add_diagnosis_variables(self) -> None:
        """Adds what `diagnose` needs for each variable of the model."""
        if self._settings.diagnose:
            count = (len(self._trainable_variables),)
            self._nonfinite_counts = self._add_own("nonfinite_counts", 0, shape=count)
            self._nonfinite_first_steps = self._add_own("nonfinite_first_steps", 0, shape=count)
            # Places among the variables of another model mean nothing in this one.
            self.extra_state.add(
                last_nonfinite=self._last_nonfinite,
                first_overflow=self._first_overflow,
                nonfinite_counts=self._nonfinite_counts,
                nonfinite_first_steps=self._nonfinite_first_steps,
            )

    # -- what users read -------------------------------------------------------------------------

    @property
    def last_step_applied(self) -> Any:
        """Whether the last step was taken, not skipped: a bool tensor of shape ().

        Like the two below it is a value on the device, for schedules, averages and loops that
        depend on it without waiting for it. True before the first step, and where nothing is
        checked (`skip_nonfinite=False`).

        >>> import keras
        >>> from keras_mp import LossScaleOptimizer
        >>> opt = LossScaleOptimizer(keras.optimizers.SGD())
        >>> weight = keras.Variable([1.0])
        >>> opt.build([weight])
        >>> _ = opt.apply_gradients([(ops.array([np.nan]), weight)], gradients_scaled=True)
        >>> bool(opt.last_step_applied), int(opt.skipped_steps), int(opt.nonfinite_kind)
        (False, 1, 2)
        """
        return ops.equal(self._native.read(self._nonfinite_kind), 0)

    @property
    def skipped_steps(self) -> Any:
        """How many steps were skipped so far, an integer tensor of shape ()."""
        return ops.copy(self._native.read(self._skipped_steps))

    def skipped_in(self, optimizer_variables: Sequence[Any]) -> Any:
        """Returns `skipped_steps` among `optimizer_variables`, values of `variables`."""
        return optimizer_variables[
            next(i for i, v in enumerate(self.variables) if v is self._skipped_steps)
        ]

    @property
    def count_skipped_steps(self) -> bool:
        """Whether `iterations` advances on a skipped step."""
        return self._settings.count_skipped_steps

    @property
    def skip_nonfinite(self) -> bool:
        """Whether steps with gradients that are not finite are skipped."""
        return self._settings.skip_nonfinite

    @property
    def nonfinite_kind(self) -> Any:
        """What the gradients of the last step held, an integer tensor of shape ().

        0: finite. 1: an inf and no nan, an overflow, which a smaller scale may cure. 2: a nan; it
        may follow from an inf (inf - inf, 0 * inf), or from no scale at all.
        """
        return ops.copy(self._native.read(self._nonfinite_kind))

    @property
    def consecutive_skips(self) -> Any:
        """Steps skipped in a row, an integer tensor of shape (); with `max_consecutive_skips`.

        None without.
        """
        if self._consecutive_skips is None:
            return None
        return ops.copy(self._native.read(self._consecutive_skips))

    @property
    def diagnose(self) -> bool:
        """Whether it is counted which variables have gradients that are not finite."""
        return self._settings.diagnose

    @property
    def max_consecutive_skips(self) -> int | None:
        """Skipped steps in a row after which `LossScaleMonitor` stops the training."""
        return self._settings.max_consecutive_skips

    def nonfinite_variables(self) -> list[NonfiniteVariable]:
        """Returns the variables whose gradients were not finite, the most frequent first.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        self._check_diagnosed()
        if not hasattr(self, "_nonfinite_counts"):
            return []
        counts = ops.convert_to_numpy(self._nonfinite_counts)
        firsts = ops.convert_to_numpy(self._nonfinite_first_steps)
        found = [
            NonfiniteVariable(self._path(int(i)), int(counts[i]), int(firsts[i]))
            for i in np.flatnonzero(counts)
        ]
        return sorted(found, key=lambda each: (-each.steps, each.first_step))

    def first_overflow(self) -> FirstOverflow | None:
        """Returns the first step that was skipped, and the variable; None if there was none.

        Needs `diagnose=True`. Reads from the device.

        Raises:
            ValueError: `diagnose` is off.
        """
        self._check_diagnosed()
        index, kind, before, after = ops.convert_to_numpy(self._first_overflow).tolist()
        if index < 0 or not hasattr(self, "_nonfinite_first_steps"):
            return None
        step = int(ops.convert_to_numpy(self._nonfinite_first_steps)[int(index)])
        return FirstOverflow(step, self._path(int(index)), KINDS[int(kind)], before, after)

    # -- what a step writes ----------------------------------------------------------------------

    def record_steps(self, rows: int) -> bool:
        """Has every step written to a table on the device, of the last `rows` steps.

        A row is `ROW`: the loss scale before the step, the kind of `nonfinite_kind`, and the index
        of the variable that overflowed (see `path_of`), or -1.

        Returns:
            Whether this is new: functions that were traced before then go on without.
        """
        if self._recorded is not None:
            return False
        with self._native.lifted():
            if self._steps is None:
                self._steps = self._add_extra("steps")
            # Not among the extra state: no file needs it.
            self._recorded = self._add_own("recorded", -1, "float32", (rows, len(ROW)))
        return True

    @property
    def recorded_rows(self) -> int:
        """How many steps the table of `record_steps` holds; the first call decides. 0 for none."""
        return 0 if self._recorded is None else int(self._recorded.shape[0])

    def recorded(self, since: int) -> tuple[int, list[tuple[int, float, int, int]]]:
        """Returns the number of steps so far, and (step, *row) of those after step `since`.

        Rows that were overwritten by later ones are left out, the oldest, and steps that were taken
        elsewhere, of which only the number was restored. Reads from the device.
        """
        steps = int(ops.convert_to_numpy(self._steps))
        table = ops.convert_to_numpy(self._recorded).tolist()
        numbers = range(max(since, steps - len(table)), steps)
        rows = [(step + 1, *table[step % len(table)]) for step in numbers]
        return steps, [(n, scale, int(kind), int(i)) for n, scale, kind, i in rows if kind >= 0]

    def take_most_skips(self, asker: Any = None) -> int:
        """Returns the longest run of skipped steps since the last call, and begins anew.

        Of calls with the same `asker`: several may ask, and each is told of every run. Whoever asks
        for the first time is told of those since anybody asked. Reads from the device. Needs
        `max_consecutive_skips`.
        """
        assert self._most_skips is not None
        most = int(ops.convert_to_numpy(self._most_skips))
        if most:
            self._most_skips.assign(ops.zeros((), self._most_skips.dtype))
        asker = self if asker is None else asker
        unseen = self._unseen_skips
        for each in {*unseen, asker}:
            unseen[each] = max(unseen.get(each, 0), most)
        most, unseen[asker] = unseen[asker], 0
        return most

    def _note_outcome(self, outcome: Outcome, variables: Sequence[Any], before: Any) -> None:
        self.extra_state.forget_waiting()
        read = self._native.read
        # Operators and not keras.ops, which would copy their numbers to the device, and wait.
        taken = outcome.finite is True  # known from a branch: then little changes
        if taken:
            kind = skipped = ops.zeros_like(read(self._nonfinite_kind))
        else:
            kind = outcome.kind
            skipped = as_skipped(outcome.finite, self._skipped_steps)
            self._skipped_steps.assign_add(skipped)
        self._nonfinite_kind.assign(kind)
        if self._consecutive_skips is not None and self._most_skips is not None:
            run = (read(self._consecutive_skips) + 1) * skipped
            self._consecutive_skips.assign(run)
            self._most_skips.assign(ops.maximum(read(self._most_skips), run))
        if self._steps is not None:
            # Always 1, but known by the gradients: a function of TensorFlow whose data have come to
            # their end still does what does not depend on them.
            one = 1 if isinstance(outcome.finite, bool) else skipped | 1
            self._steps.assign(read(self._steps) + one)
        if self._settings.diagnose and not taken:
            self._note_variables(outcome, variables, before)
        if self._recorded is not None:
            last = read(self._last_nonfinite) if self._settings.diagnose else -1
            row = (before, kind, (last + 1) * skipped - 1)
            row = ops.stack([ops.cast(each, "float32") for each in row])
            # Not slice_update: on torch older Keras reads its place from the device.
            place = ops.reshape((read(self._steps) - 1) % self.recorded_rows, (1, 1))
            table = ops.scatter_update(read(self._recorded), place, ops.expand_dims(row, 0))
            self._recorded.assign(table)

    def _note_variables(self, outcome: Outcome, variables: Sequence[Any], before: Any) -> None:
        bad = ops.logical_not(outcome.each)
        places = [len(variables)] * len(self._trainable_variables)
        for i, variable in enumerate(variables):
            places[self._trainable_variables_indices[self._var_key(variable)]] = i
        if places != list(range(len(variables))):
            bad = ops.take(ops.concatenate([bad, ops.zeros((1,), "bool")]), places)
        counts, firsts = self._nonfinite_counts, self._nonfinite_first_steps
        firsts.assign(
            ops.where(
                ops.logical_and(bad, self._native.read(firsts) == 0),
                self._native.read(self._steps),
                self._native.read(firsts),
            )
        )
        counts.assign_add(ops.cast(bad, counts.dtype))
        # The last True; keras.ops.max breaks the graph of torch.compile.
        index = len(places) - 1 - ops.argmax(ops.cast(ops.flip(bad), "int32"))
        skipped = as_skipped(outcome.finite, self._skipped_steps) > 0
        self._last_nonfinite.assign(
            ops.where(skipped, index, self._native.read(self._last_nonfinite))
        )
        first = self._native.read(self._first_overflow)
        after = self._native.read(self.dynamic_scale)
        row = [ops.cast(each, "float32") for each in (index, outcome.kind, before, after)]
        is_first = ops.logical_and(first[0] < 0, skipped)
        self._first_overflow.assign(ops.where(is_first, ops.stack(row), first))

    # -- who watches -----------------------------------------------------------------------------

    def call_before_steps(self, function: Callable[[Sequence[Any]], None] | None) -> None:
        """Has `function` called with the variables of each step before it is taken; None ends it.

        Where steps are traced, it is called once a trace.
        """
        object.__setattr__(self, "_before_step", function)

    def last_nonfinite_variable(self) -> str | None:
        """Returns the variable that overflowed in the last step that was skipped.

        Chosen as in `FirstOverflow`. Needs `diagnose=True`, reads from the device.
        """
        self._check_diagnosed()
        return self.path_of(int(ops.convert_to_numpy(self._last_nonfinite)))

    def path_of(self, index: int) -> str | None:
        """Returns the path of a variable that the optimizer was built for; None for -1."""
        return self._path(index) if 0 <= index < len(self._trainable_variables) else None

    def _check_diagnosed(self) -> None:
        if not self._settings.diagnose:
            raise ValueError(
                "Which variables overflow is counted with diagnose=True only: "
                "LossScaleOptimizer(..., diagnose=True)."
            )

    def _path(self, index: int) -> str:
        return path(self._trainable_variables[index])
