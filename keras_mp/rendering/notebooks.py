"""Whether this runs in a notebook, and showing there what elsewhere is printed."""

import sys
from typing import Any


def running_cell() -> object:
    """Returns what tells the cell of a notebook that runs now from others; None elsewhere.

    >>> running_cell() is None
    True
    """
    shell = _shell()
    return None if shell is None else (id(shell), getattr(shell, "execution_count", None))


def show(found: Any, text: str) -> None:
    """Prints `text`; in a notebook, shows `html()` of `found` instead."""
    if running_cell() is None:
        print(text)  # noqa: T201 - what it is for
        return
    display: Any = sys.modules["IPython"].display
    display.display(display.HTML(found.html()))


def _shell() -> Any:
    # Who does not have IPython loaded is in no notebook; its shell in a terminal has no kernel.
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = None if get is None else get()
    return shell if hasattr(shell, "kernel") else None
