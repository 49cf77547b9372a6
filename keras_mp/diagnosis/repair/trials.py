"""`Trials`: whether the step of a batch would be taken, with some changes and at some scale."""

import contextlib
import copy
from collections.abc import Sequence

from keras_mp.diagnosis.dry_run.observers import Call, changed_by, observed_by
from keras_mp.diagnosis.dry_run.program import StepPrograms, run_as_program
from keras_mp.diagnosis.dry_run.step import DryRun, ForwardPass
from keras_mp.diagnosis.dry_run.tensors import Perturber, floats, is_finite
from keras_mp.diagnosis.overflow_search.float32_suggestions import SMALL_SCALE
from keras_mp.diagnosis.overflow_search.undefined import LostConstant
from keras_mp.diagnosis.repair.changes import Change, in_float32


class Trials:
    """Runs a batch with changes, which hold for the trial only.

    Args:
        dry_run: The batch.
        scale: The loss scale of a healthy training.
    """

    def __init__(self, dry_run: DryRun, scale: float) -> None:
        self.dry_run = dry_run
        self.scale = scale
        self._folded: tuple[LostConstant, ...] = ()
        self._known: dict[tuple[float, frozenset[int]], float | None] = {}

    def fitting_scale(self, changes: Sequence[Change], lowest: float = SMALL_SCALE) -> float | None:
        """Returns the highest scale by halving at which the step is finite, or None.

        What a lower scale than that of a healthy training mends is no fault.

        Args:
            changes: What computes in float32.
            lowest: The least scale to look at, where that of a healthy training is not less.
        """
        key = lowest, frozenset(id(change.target) for change in changes)
        if key not in self._known:
            try:
                with in_float32(changes), self._without_constants():
                    self._known[key] = self._searched(min(lowest, self.scale))
            except Exception:
                if not changes:
                    raise
                self._known[key] = None  # TensorFlow adds no float16 to float32
        return self._known[key]

    def helps(self, changes: Sequence[Change]) -> bool:
        """Returns whether the step is finite with changes."""
        return self.fitting_scale(changes) is not None

    def lose(self, constants: Sequence[LostConstant]) -> None:
        """Has trials compute without constants that the compiled step folds away."""
        self._folded = tuple(constants)
        self._known.clear()

    def _searched(self, lowest: float) -> float | None:
        programs = StepPrograms(self.dry_run.model, with_ops=bool(self._folded))
        scale = self.scale
        if self._is_finite(programs, scale):
            return scale
        if scale == lowest or not self._is_finite(programs, lowest):
            return None
        while scale / 2 > lowest:
            scale /= 2
            if self._is_finite(programs, scale):
                return scale
        return lowest

    def _is_finite(self, programs: StepPrograms, scale: float) -> bool:
        dry_run = copy.copy(self.dry_run)
        dry_run.loss_scale = scale
        weights = list(dry_run.model.trainable_variables)
        program = run_as_program(dry_run, programs)
        if program is None:
            with self._observed():
                out = dry_run.run()
        else:
            out = program.out
        if out.scaled_loss is None:
            return _all_finite(out)
        if not _all_finite(out):
            return False
        if program is not None:
            gradients = [program.of_variable.get(id(weight)) for weight in weights]
        else:
            gradients = dry_run.gradients(weights, [], self._observed())
        return all(each is None or is_finite(each) is not False for each in gradients)

    def _observed(self) -> contextlib.AbstractContextManager[None]:
        if not self._folded:
            return contextlib.nullcontext()
        return observed_by(Perturber({}), self.dry_run.model)  # whose ops are changed

    def _without_constants(self) -> contextlib.AbstractContextManager[None]:
        if not self._folded:
            return contextlib.nullcontext()

        def change(call: Call) -> Call:
            for constant in self._folded:
                call = constant.replaced(call, 0.0)
            return call

        return changed_by(change)


def _all_finite(out: ForwardPass) -> bool:
    seen = [out.scaled_loss] if out.scaled_loss is not None else floats(out.outputs)
    return all(is_finite(each) is not False for each in seen)
