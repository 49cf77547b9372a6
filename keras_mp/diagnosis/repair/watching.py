"""When skipped steps are too many for a loss scale to end them. Numbers only: knows no framework.

The device is asked once in `skips` steps: what is seen are the skips since the last look.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW = 5  # looks


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on a training does not get well by itself.

    Attributes:
        skips: Skipped steps in a row; also the steps between two looks.
        scale: A loss scale of at most this, for as many steps, with a skip among them.
        share: Skipped steps among all, in `WINDOW` looks: more than this.
    """

    skips: int
    scale: float
    share: float


class SkipWatch:
    """Decides at each look whether to act.

    >>> watch = SkipWatch(Limits(skips=3, scale=1.0, share=0.5))
    >>> watch.look(3, 2, lambda: 8.0) is None
    True
    >>> watch.look(3, 3, lambda: 4.0)
    '3 steps in a row were skipped'
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._window: deque[tuple[int, int]] = deque(maxlen=WINDOW)
        self._low_steps = self._low_skips = 0

    def forget(self) -> None:
        """Begins anew: what was seen before a repair says nothing of the time after."""
        self._window.clear()
        self._low_steps = self._low_skips = 0

    @property
    def tolerated(self) -> float:
        """The loss scale down to which it may still fall by itself."""
        return 2 * self.limits.scale

    def look(self, steps: int, skipped: int, scale: Callable[[], float]) -> str | None:
        """Returns why to act now, or None.

        Args:
            steps: Steps since the last look.
            skipped: Of these, how many were skipped.
            scale: Reads the loss scale; called only where the number matters.
        """
        limits = self.limits
        self._window.append((steps, skipped))
        if skipped == steps >= limits.skips:
            return f"{skipped} steps in a row were skipped"
        if skipped or self._low_steps:
            is_low = scale() <= limits.scale
            self._low_steps = self._low_steps + steps if is_low else 0
            self._low_skips = self._low_skips + skipped if is_low else 0
            # The scale fell to there within the first of these looks.
            if self._low_steps > limits.skips and self._low_skips:
                return (
                    f"the loss scale was at most {limits.scale:.10g} for {self._low_steps} steps, "
                    f"{self._low_skips} of them skipped"
                )
        taken, lost = (sum(each) for each in zip(*self._window, strict=True))
        if len(self._window) == WINDOW and lost > limits.share * taken:
            return f"{lost} of {taken} steps were skipped"
        return None
