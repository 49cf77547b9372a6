"""Returns freed memory to the operating system at once.

The C library keeps blocks for later, for each thread its own: with JAX, which makes the first
values of a model in other threads than those that replace them, a model more.
"""

import ctypes

_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of <malloc.h>
_SIZE = 1 << 18


def at_once() -> bool:
    """Lets all that is larger than some 100 kB have memory of its own, from now on.

    It holds for the process. Returns whether this system can do so: that of glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS; Windows
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _SIZE))
