"""The errors for functions that cannot be read: one for callers, two between the parts."""


class CodeError(ValueError):
    """A function in a file is damaged, or does what cannot be read as one expression.

    Args:
        why: What stands against it, and where, as the rest of a sentence about the function.
        so_far: The Python that was read before it; empty if nothing was.

    >>> raise CodeError("holds a loop (FOR_ITER in line 3)", "y = tf.nn.relu(x)")
    Traceback (most recent call last):
    keras_mp.compat.code_objects.errors.CodeError: holds a loop (FOR_ITER in line 3); read so \
far: y = tf.nn.relu(x)
    """

    def __init__(self, why: str, so_far: str = "") -> None:
        # Both stay in `args`, so that the error survives pickling.
        super().__init__(why, so_far)
        self.why = why
        self.so_far = so_far

    def __str__(self) -> str:
        return f"{self.why}; read so far: {self.so_far}" if self.so_far else self.why


class Malformed(ValueError):
    """Bytes are not what a version of Python writes; another version may have written them."""


class Underflow(Malformed):
    """An instruction takes more values than there are, or than it may."""


class Refused(ValueError):
    """Python wrote this, and it is no expression that can be read here."""
