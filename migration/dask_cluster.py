"""The workers of a running Dask cluster, as an `Executor` for a fleet.

Dask runs a task again whose worker died; here is what it does not do: how much memory a task
needs is estimated from its artefact, so that one that fits on no worker is refused, and not killed.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import CancelledError, Executor, Future
from typing import Any

from keras_mp.migration import tasks
from keras_mp.migration.fleet import TooLarge
from keras_mp.migration.processes import Died
from keras_mp.migration.publishing import Refused

# Of a process with Keras and a framework, and of a model: its old arrays while they are read, the
# model, its optimizer, and the file being written, see docs/how-to/fleets.md.
BASE, FACTOR = 1_000_000_000, 4
RETRIES = 2
_SECONDS = 10
_FRESH = 5.0


def memory_of(size: int) -> int:
    """Returns how much memory the migration of an artefact takes at most, about, in bytes."""
    return BASE + FACTOR * size


@contextlib.contextmanager
def connected(address: str) -> Iterator["Cluster"]:
    """Yields the executor of a cluster.

    Raises:
        Refused: It cannot be reached, has no workers, or Dask is not installed.
    """
    try:
        import distributed
    except ModuleNotFoundError:
        raise Refused("--dask: pip install 'keras-mp[dask]'", "not installed") from None
    try:
        client: Any = distributed.Client(  # type: ignore[no-untyped-call]
            address, timeout=_SECONDS, set_as_default=False
        )
    except (OSError, ValueError) as error:
        raise Refused(f"--dask {address}: cannot connect: {error}", "not installed") from None
    with client:
        yield Cluster(client)


class Cluster(Executor):
    """Lets the workers of a cluster do tasks.

    Args:
        client: A `distributed.Client`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._of: dict[Future[Any], Any] = {}
        self._seen: list[Any] = []
        self._seen_at = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Returns the future of a task.

        Raises:
            TooLarge: It fits on no worker.
            RuntimeError: The cluster is gone.
        """
        if self.is_gone():
            raise RuntimeError("lost the connection to the cluster")
        needed = _needed(args)
        options: dict[str, Any] = {"retries": RETRIES, "pure": False}
        if needed is not None:
            options |= self._room(needed)
        theirs = self._client.submit(fn, *args, **options, **kwargs)
        ours: Future[Any] = Future()
        self._of[ours] = theirs
        ours.add_done_callback(self._done)
        theirs.add_done_callback(lambda _: _hand_over(theirs, ours))
        return ours

    def waiting(self, futures: Collection[Future[Any]]) -> list[Future[Any]]:
        """Returns those that no worker has in hand."""
        in_hand = {key for keys in self._client.processing().values() for key in keys}
        return [one for one in futures if one in self._of and self._of[one].key not in in_hand]

    def is_gone(self) -> bool:
        """Returns whether the cluster is lost for good."""
        return self._client.status not in ("running", "connecting")

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leaves the cluster as it is."""

    def _room(self, needed: int) -> dict[str, Any]:
        """Returns what to ask of a worker.

        Raises:
            TooLarge: None has so much.
        """
        workers = self._workers()
        limits = [one["memory_limit"] for one in workers]
        # 0 is no limit. Without workers, some may come.
        if limits and all(limits) and needed > max(limits):
            raise TooLarge(
                f"it needs about {needed / 1e9:.3g} GB, and the largest of {len(limits)} workers "
                f"has {max(limits) / 1e9:.3g} GB: start one with --memory-limit "
                f"{needed / 1e9:.0f}GB"
            )
        if any("MEMORY" in one.get("resources", {}) for one in workers):
            return {"resources": {"MEMORY": needed}}
        return {}

    def _workers(self) -> list[Any]:
        if time.monotonic() - self._seen_at > _FRESH:
            self._seen = list(self._client.scheduler_info(n_workers=-1)["workers"].values())
            self._seen_at = time.monotonic()
        return self._seen

    def _done(self, ours: Future[Any]) -> None:
        theirs = self._of.pop(ours)
        if ours.cancelled():
            theirs.cancel()


def _needed(args: tuple[Any, ...]) -> int | None:
    task = args[0] if args else None
    if not isinstance(task, tasks.Task) or task.size is None:
        return None
    return memory_of(task.size)


def _hand_over(theirs: Any, ours: Future[Any]) -> None:
    if ours.cancelled() or not ours.set_running_or_notify_cancel():
        return
    try:
        ours.set_result(theirs.result())
    except CancelledError as error:
        ours.set_exception(error)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is the task's
        ours.set_exception(_as_ours(error))


def _as_ours(error: Exception) -> Exception:
    import distributed

    return Died(-9) if isinstance(error, distributed.KilledWorker) else error
