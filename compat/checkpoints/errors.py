"""The error for a file that cannot be read: one line that names file, place and reason."""

from keras_mp.rendering.text import printable


class Unreadable(ValueError):
    """A file is damaged, or of an unsupported kind.

    Args:
        file: Its path.
        where: The key or part of it that is meant; empty for the whole.
        why: What is wrong with it.

    >>> raise Unreadable("ckpt-1.index", "block at 0", "its checksum does not match")
    Traceback (most recent call last):
    keras_mp.compat.checkpoints.errors.Unreadable: ckpt-1.index: block at 0: its checksum does not \
match
    """

    def __init__(self, file: str, where: str, why: str) -> None:
        # All three stay in `args`, so that the error survives pickling.
        super().__init__(file, where, why)
        self.file = file
        self.where = where
        self.why = why

    def __str__(self) -> str:
        return ": ".join(printable(part) for part in (self.file, self.where, self.why) if part)


class Malformed(ValueError):
    """Bytes are not what their format says; whoever knows the file makes it an `Unreadable`."""
