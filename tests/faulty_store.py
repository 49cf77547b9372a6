"""A store in memory, `faulty://`, that fails on demand."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem

Fault = Callable[[bytes], bytes]


class FaultyFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """`faults` lists, by operation, the faults of its next calls.

    A fault is an error to raise, or a function that changes the returned bytes.
    """

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults: ClassVar[dict[str, list[Exception | Fault | None]]] = {}
    asked: ClassVar[list[tuple[str, str]]] = []
    tag: ClassVar[Callable[[bytes], str] | None] = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(str(path).replace("faulty://", "memory://")))

    def _next(self, what: str, path: str) -> Fault | None:
        type(self).asked.append((what, path))
        fault = self.faults[what].pop(0) if self.faults.get(what) else None
        if isinstance(fault, Exception):
            raise fault
        return fault

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        self._next("info", path)
        return self._tagged(dict(super().info(path, **kwargs)))

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._next("find", path)
        found = super().find(path, *args, **kwargs)
        if isinstance(found, dict):
            return {name: self._tagged(info) for name, info in found.items()}
        return found

    def _tagged(self, info: dict[str, Any]) -> dict[str, Any]:
        tag = type(self).tag
        if tag is not None and info["type"] == "file":
            info["ETag"] = tag(self.store[info["name"]].getvalue())
        return info

    def get_file(self, rpath: str, lpath: str, *args: Any, **kwargs: Any) -> None:
        fault = self._next("get", rpath)
        data = super().cat_file(rpath)
        Path(lpath).write_bytes(data if fault is None else fault(data))

    def put_file(self, lpath: str, rpath: str, *args: Any, **kwargs: Any) -> None:
        fault = self._next("put", rpath)
        data = Path(lpath).read_bytes()
        super().pipe_file(rpath, data if fault is None else fault(data))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._next("copy", path2)
        super().cp_file(path1, path2, **kwargs)


def throttled() -> OSError:
    """Returns the error that s3fs raises for SlowDown."""
    return OSError(errno.EBUSY, "Please reduce your request rate.")
