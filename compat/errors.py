"""The error for input that has no faithful counterpart today."""

from keras_mp.rendering.text import printable


class LegacyError(ValueError):
    """Something in the input has no faithful counterpart today.

    Args:
        path: Where it is, as a JSON path from the root `$`.
        found: What is there, as the rest of a sentence.
        why: Why it stops, or what to do about it.
        each: Of an error that stands for several: them, a line each, after `why`.
        needs_code: Whether all that is missing is a class or a function of the user's own.

    >>> raise LegacyError("$.loss_scale.config.multiplier", "is 4.0", "only 2.0 can be kept")
    Traceback (most recent call last):
    keras_mp.compat.errors.LegacyError: $.loss_scale.config.multiplier is 4.0: only 2.0 can be kept
    """

    def __init__(
        self,
        path: str,
        found: str,
        why: str = "",
        each: "tuple[LegacyError, ...]" = (),
        needs_code: bool = False,
    ) -> None:
        # All of them stay in `args`, so that the error survives pickling.
        super().__init__(path, found, why, each, needs_code)
        self.path = path
        self.found = found
        self.why = why
        self.each = each
        self.needs_code: bool = needs_code or any(one.needs_code for one in each)

    def with_way(self, text: str) -> "LegacyError":
        """Returns the same error, which tells another way out."""
        why = f"{self.why}; {text}" if self.why else text
        return LegacyError(self.path, self.found, why, self.each, self.needs_code)

    def __str__(self) -> str:
        text = printable(f"{self.path} {self.found}: {self.why}")
        return "\n".join([text, *(f"  {one}" for one in self.each)])


class NotComputed(ValueError):
    """An operation that cannot be computed of what it is given; says which, and why."""
