"""What an observer receives: calls of ops and layers, each with its site in the step."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from keras_mp.diagnosis.dry_run.source_lines import SourceLine

Where = Literal["input", "weights", "forward", "regularizer", "loss", "metric", "backward"]
Key = tuple[str, str, int]


@dataclass(frozen=True, eq=False)
class Site:
    """The code that is running: a layer, or a loss, metric or regularizer.

    Attributes:
        where: The part of the step.
        path: Names from the model down, such as "encoder/dense"; "" for the model's own code.
        class_name: Its class.
        owner: The layer, or a `foreign_parts.Part` of it, or None.
        given: The arguments and keyword arguments of the layer, before Keras casts them.
        in_call: Whether the layer's `call` has been entered.
        running: The layer, loss or metric that is running, or None.
        source: The line that calls it.
    """

    where: Where
    path: str
    class_name: str
    owner: Any = None
    given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    in_call: bool = False
    running: Any = None
    source: SourceLine | None = None


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a keras op, or of a layer.

    Attributes:
        site: Its site in the step.
        key: Identifies the same call in every run of the step.
        op: Name of the op; None for a layer.
        function: The called function.
        args, kwargs: Its arguments; those of a layer after Keras' casts.
        source: The line that calls it.
        time_step: (which, of how many) in a recurrent layer, from 1.
    """

    site: Site
    key: Key
    op: str | None
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: SourceLine | None = None
    time_step: tuple[int, int] | None = None

    def run(self) -> Any:
        """Calls the function and returns its result."""
        return self.function(*self.args, **self.kwargs)

    def with_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Call":
        """Returns the same call with other arguments."""
        return replace(self, args=args, kwargs=kwargs)


class KeyCounter:
    """Numbers the calls of one run, in their order.

    >>> keys, site = KeyCounter(), Site("forward", "net/out", "Dense")
    >>> keys.next(site, "add"), keys.next(site, "add")
    (('forward net/out', 'add', 1), ('forward net/out', 'add', 2))
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def next(self, site: Site, name: str) -> Key:
        """Returns the key of the next call of `name` at a site."""
        path = f"{site.where} {site.path}"
        self._counts[path, name] += 1
        return path, name, self._counts[path, name]
