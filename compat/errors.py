"""The error for input that has no faithful counterpart today."""


class LegacyError(ValueError):
    """Something in the input has no faithful counterpart today.

    Args:
        path: Where it is, as a JSON path from the root `$`.
        found: What is there, as the rest of a sentence.
        why: Why it stops, or what to do about it.

    >>> raise LegacyError("$.loss_scale.config.multiplier", "is 4.0", "only 2.0 can be kept")
    Traceback (most recent call last):
    keras_mp.compat.errors.LegacyError: $.loss_scale.config.multiplier is 4.0: only 2.0 can be kept
    """

    def __init__(self, path: str, found: str, why: str) -> None:
        # All three stay in `args`, so that the error survives pickling.
        super().__init__(path, found, why)
        self.path = path
        self.found = found
        self.why = why

    def __str__(self) -> str:
        return f"{self.path} {self.found}: {self.why}"


class NotComputed(ValueError):
    """An operation that cannot be computed of what it is given; says which, and why."""
