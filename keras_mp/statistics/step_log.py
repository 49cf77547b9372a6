"""`StepLog`: a ring buffer of the last steps on the device, for the monitor."""

from keras import ops

from keras_mp.backends.protocol import Backend
from keras_mp.statistics.overflow_counts import OverflowCounts
from keras_mp.statistics.step import Step, StepCount
from keras_mp.variables.variable_factory import VariableFactory

ROW = ("loss_scale", "kind", "variable")  # the record of a step


class StepLog:
    """The last steps, a row each: the loss scale before the step, its kind, the variable.

    The variable is the index of the one that overflowed; -1 for none, or if that is not counted.

    Args:
        rows: How many steps it holds.
        steps: The step counter, which counts a step before this object does.
        counts: Knows the variable; None if nothing counts it.
        variables: Creates its variable.
        backend: Keras' backend.

    Attributes:
        remarks: What was changed just before a step, by the step; see `remark`.
    """

    def __init__(
        self,
        rows: int,
        steps: StepCount,
        counts: OverflowCounts | None,
        variables: VariableFactory,
        backend: Backend,
    ) -> None:
        self.rows = rows
        self._steps = steps
        self._counts = counts
        self._read = backend.read
        self.remarks: dict[int, str] = {}
        # Not part of the extra state: files do not need it.
        self._table = variables.add("recorded", -1, "float32", (rows, len(ROW)))

    def note(self, step: Step) -> None:
        """Writes a row."""
        last = -1 if self._counts is None else self._counts.read_last()
        row = (step.scale_before, step.kind, (last + 1) * step.skipped - 1)
        stacked = ops.stack([ops.cast(each, "float32") for each in row])
        # Not slice_update: on torch, older Keras reads the index from the device.
        place = ops.reshape((self._steps.read() - 1) % self.rows, (1, 1))
        table = ops.scatter_update(self._read(self._table), place, ops.expand_dims(stacked, 0))
        self._table.assign(table)

    def remark(self, text: str) -> None:
        """Keeps, on the host, what was changed just before the next step. Reads from the device."""
        step = self._steps.wait() + 1
        self.remarks[step] = " ".join(filter(None, (self.remarks.get(step), text)))

    def since(self, step: int) -> tuple[int, list[tuple[int, float, int, int]]]:
        """Returns the number of steps so far, and (step, *row) of the steps after `step`.

        Overwritten rows are missing, and so are steps before a restore, of which only the number
        is known. Reads from the device.
        """
        steps = self._steps.wait()
        table = ops.convert_to_numpy(self._table).tolist()
        numbers = range(max(step, steps - len(table)), steps)
        rows = [(number + 1, *table[number % len(table)]) for number in numbers]
        return steps, [(n, scale, int(kind), int(i)) for n, scale, kind, i in rows if kind >= 0]
