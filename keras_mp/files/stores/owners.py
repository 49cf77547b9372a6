"""Whether the owner of a temporary folder in a store is alive, so that leftovers can be removed.

A store has no locks. The owner writes who it is, and regularly the time. On the same machine the
system knows whether that process lives; on another, an owner that wrote nothing for an hour counts
as dead.
"""

import json
import os
import platform
import time
from pathlib import Path

BEAT = 60.0
DEAD = 3600.0
NAME = "owner"


def me() -> str:
    """Returns the text that the owner of a folder writes into it now."""
    return json.dumps({**_process(os.getpid()), "time": time.time()})


def is_dead(text: str) -> bool:
    """Returns whether the process that wrote `text` is gone, as far as is known."""
    try:
        said = json.loads(text)
        then = float(said["time"])
    except (ValueError, KeyError, TypeError):
        return True  # not our text, which is complete or missing
    if (alive := _is_alive(said)) is not None:
        return not alive
    return time.time() - then > DEAD


def _process(pid: int) -> dict[str, object]:
    return {"host": _host(), "pid": pid, "started": _start_time(pid)}


def _is_alive(said: dict[str, object]) -> bool | None:
    """Returns whether a process lives; None if it ran on another machine, or if unknown."""
    pid = said.get("pid")
    if said.get("host") != _host() or not isinstance(pid, int) or _start_time(os.getpid()) is None:
        return None
    return said.get("started") == _start_time(pid)


def _host() -> list[str]:
    """Returns what identifies this machine, and this container on it."""
    facts = [platform.node()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        try:
            file = Path(path)
            facts.append(str(file.readlink()) if "/ns/" in path else file.read_text().strip())
        except OSError:
            facts.append("")
    return facts


def _start_time(pid: int) -> str | None:
    """Returns when a process began, in ticks of this machine; None if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program, in brackets, may have spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]
