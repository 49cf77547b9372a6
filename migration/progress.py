"""A progress bar on a terminal, for what is large; nothing elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from keras_mp.rendering.text import printable

LARGE = 64 * 2**20

Step = Callable[[str, int], object]


@contextlib.contextmanager
def show_progress(total: int, *, worth: bool) -> Iterator[Step]:
    """Yields a function that takes (what is going on, how much more is done).

    Args:
        total: How much there is to do.
        worth: Whether it takes long enough to be shown.
    """
    if not worth or not sys.stderr.isatty():
        yield lambda _what, _more: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ModuleNotFoundError:
        yield lambda _what, _more: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda what, more: progress.update(task, description=printable(what), advance=more)
