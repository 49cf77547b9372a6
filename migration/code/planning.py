"""What is to be done with source files: each is read and planned for, in one process or several."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from keras_mp import regular_files
from keras_mp.migration.code import notebooks
from keras_mp.migration.code.files import Undecodable, decode
from keras_mp.migration.code.findings import Failed, Failure, Found, Place, Plan
from keras_mp.migration.code.rewriting import Result, Unparsable, may_concern, rewrite

# Fewer are done before other processes have started.
_MANY = 8


@dataclass(frozen=True, slots=True)
class Options:
    """Which rules are applied, and how.

    Attributes:
        only: Rules by their ids; None for all.
        skip: Rules to leave out.
        unsafe: Whether to make edits, too, that may be wrong.
        keras3: Whether to look for what else stops a program under Keras 3.
    """

    only: frozenset[str] | None = None
    skip: frozenset[str] = frozenset()
    unsafe: bool = False
    keras3: bool = False

    def has(self, rule: str) -> bool:
        return (self.only is None or rule in self.only) and rule not in self.skip


def plan(path: Path, data: bytes, options: Options) -> Plan:
    """Returns what is to be done with a file of these bytes. It reads and writes nothing.

    Args:
        path: Its name, which says whether it is a notebook.
        data: What is in it.
        options: How.

    Returns:
        The plan. It raises nothing that the bytes may cause.
    """
    try:
        after, findings = _rewritten(path, data, options)
    except Failed as error:
        return Plan(path, data, data, failure=error.failure)
    except Undecodable as error:
        return Plan(path, data, data, failure=Failure(str(error)))
    except RecursionError:
        return Plan(path, data, data, failure=Failure("nested too deeply"))
    except Exception as error:  # noqa: BLE001 - a fault of ours costs one file, not the others
        why = f"{type(error).__name__}: {error}"
        return Plan(path, data, data, failure=Failure(why, trace=traceback.format_exc()))
    return Plan(path, data, after, findings)


def plans(
    files: Sequence[Path],
    options: Options,
    jobs: int = 1,
    step: Callable[[str, int], object] = lambda _what, _more: None,
) -> list[Plan]:
    """Returns a plan for each file, in their order.

    Args:
        files: To be read.
        options: How they are rewritten.
        jobs: How many processes; with more than one, the program must be fit to be started anew,
            see `multiprocessing`.
        step: Is told what was done, and 1, after each.
    """
    result: list[Plan] = []
    work: dict[int, bytes] = {}
    for i, path in enumerate(files):
        try:
            data = regular_files.read_bytes(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            result.append(Plan(path, failure=Failure(why or str(error))))
        else:
            result.append(Plan(path))
            if may_concern(data, keras3=options.keras3):
                work[i] = data
        if i not in work:
            step(str(path), 1)
    if jobs > 1 and len(work) >= _MANY:
        _in_processes(result, work, options, jobs, step)
    else:
        for i, data in work.items():
            result[i] = plan(files[i], data, options)
            step(str(files[i]), 1)
    return result


def _in_processes(
    result: list[Plan],
    work: dict[int, bytes],
    options: Options,
    jobs: int,
    step: Callable[[str, int], object],
) -> None:
    # Not forked: a progress bar is a thread, and it may hold a lock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin)
    left = set(work)
    try:
        running = {pool.submit(plan, result[i].path, work[i], options): i for i in work}
        for done in as_completed(running):
            i = running[done]
            result[i] = done.result()
            left.discard(i)
            step(str(result[i].path), 1)
    except BrokenProcessPool:
        for i in left:
            failure = Failure("a process was killed while it was at work: run it again")
            result[i] = Plan(result[i].path, work[i], work[i], failure=failure)
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    # Ctrl-C reaches every process; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A pool's processes wait for each other, too, and so would outlive one that is killed.
    threading.Thread(target=_end_with_first, daemon=True).start()


def _end_with_first() -> None:
    first = multiprocessing.parent_process()
    if first is not None:
        first.join()
        os._exit(1)


def _rewritten(path: Path, data: bytes, options: Options) -> tuple[bytes, tuple[Found, ...]]:
    def program(text: str) -> Result:
        try:
            return rewrite(
                text,
                only=options.only,
                skip=options.skip,
                unsafe=options.unsafe,
                keras3=options.keras3,
            )
        except Unparsable as error:
            place = Place(error.line, error.column)
            raise Failed(f"does not parse: {error.message}", place) from None

    if path.suffix == ".ipynb":
        after, findings = notebooks.rewrite(data, program, may_concern)
        return after, tuple(found for found in findings if options.has(found.rule))
    decoded = decode(data)
    result = program(decoded.text)
    found = (
        Found(Place(f.line, f.column), f.rule, f.verdict, f.source, f.message)
        for f in result.findings
    )
    return decoded.encode(result.text), tuple(found)
