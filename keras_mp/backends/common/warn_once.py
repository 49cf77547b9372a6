"""`WarnOnce`: gives each warning once per optimizer."""

import warnings

from keras_mp.backends.protocol import Backend


class WarnOnce:
    """Gives each warning once.

    Silent while torch.compile traces: a warning would break its graph.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._said: set[str] = set()

    def __call__(self, message: str | None, stacklevel: int = 3) -> None:
        """Warns, unless the message is None or was given before; `stacklevel` as for `warn`."""
        if message is None or message in self._said or self._backend.is_compiling():
            return
        self._said.add(message)
        warnings.warn(message, stacklevel=stacklevel)
