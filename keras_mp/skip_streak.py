"""`SkipStreak`: how many steps in a row are skipped, with `max_consecutive_skips`."""

import weakref
from typing import Any

from keras import ops

from keras_mp.array_types import Tensor
from keras_mp.backends.protocol import Backend
from keras_mp.step import Step
from keras_mp.variable_factory import VariableFactory


class SkipStreak:
    """How many steps were skipped in a row: now, and at most since somebody asked."""

    def __init__(self, variables: VariableFactory, backend: Backend) -> None:
        self._backend = backend
        self._now = variables.add_extra("consecutive_skips")
        self._most = variables.add_extra("most_skips")
        self._unseen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def note(self, step: Step) -> None:
        """Takes note of a step."""
        run = (self.read() + 1) * step.skipped
        self._now.assign(run)
        self._most.assign(ops.maximum(self._backend.read(self._most), run))

    def read(self) -> Tensor:
        """Returns the steps skipped in a row until now: integer, shape ()."""
        return self._backend.read(self._now)

    def take_most(self, asker: Any = None) -> int:
        """Returns the longest run of skipped steps since the last call, and begins anew.

        Of calls with the same `asker`: several may ask, and each is told of every run. Whoever asks
        for the first time is told of those since anybody asked. Reads from the device.
        """
        most = int(ops.convert_to_numpy(self._most))
        if most:
            self._most.assign(ops.zeros((), self._most.dtype))
        asker = self if asker is None else asker
        for each in {*self._unseen, asker}:
            self._unseen[each] = max(self._unseen.get(each, 0), most)
        most, self._unseen[asker] = self._unseen[asker], 0
        return most
