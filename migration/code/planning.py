"""Plans the changes of source files, in one process or several."""

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

from keras_mp.files import regular_files
from keras_mp.migration.code import notebooks, project
from keras_mp.migration.code.files import Undecodable, decode
from keras_mp.migration.code.findings import (
    BASELINE,
    REWRITTEN,
    Failed,
    Failure,
    Found,
    Place,
    Plan,
    Spot,
)
from keras_mp.migration.code.project import NOTHING, Elsewhere
from keras_mp.migration.code.rewriting import Options, Result, Unparsable, may_concern, rewrite

# Fewer are done before other processes have started.
_MANY = 8


def plan(path: Path, data: bytes, options: Options, elsewhere: Elsewhere = NOTHING) -> Plan:
    """Returns what is to be done with a file of these bytes. It reads and writes nothing.

    Args:
        path: Its name, which says whether it is a notebook.
        data: What is in it.
        options: How.
        elsewhere: What other files of the program tell of it.

    Returns:
        The plan. It raises nothing that the bytes may cause.
    """
    try:
        after, findings = _rewritten(path, data, options, elsewhere)
    except Failed as error:
        return Plan(path, data, data, failure=error.failure)
    except Undecodable as error:
        return Plan(path, data, data, failure=Failure(str(error)))
    except RecursionError:
        return Plan(path, data, data, failure=Failure("nested too deeply"))
    except Exception as error:  # noqa: BLE001 - a fault of ours costs one file, not the others
        why = f"{type(error).__name__}: {error}"
        return Plan(path, data, data, failure=Failure(why, trace=traceback.format_exc()))
    standing = tuple(found for found in findings if not found.suppressed)
    suppressed = tuple(found for found in findings if found.suppressed)
    return Plan(path, data, after, standing, suppressed)


def plans(
    files: Sequence[Path],
    options: Options | Mapping[Path, Options],
    jobs: int = 1,
    step: Callable[[str, int], object] = lambda _what, _more: None,
) -> list[Plan]:
    """Returns a plan for each file, in their order.

    Args:
        files: To be read.
        options: How they are rewritten, or how each is.
        jobs: How many processes; with more than one, the program must be fit to be started anew,
            see `multiprocessing`.
        step: Is told what was done, and 1, after each.
    """
    result: list[Plan] = []
    there: dict[int, bytes] = {}
    of = [options[path] if isinstance(options, Mapping) else options for path in files]
    for i, path in enumerate(files):
        try:
            there[i] = regular_files.read_bytes(path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            result.append(Plan(path, failure=Failure(why or str(error))))
        else:
            result.append(Plan(path))
    told = _facts_of_modules(files, there)
    elsewhere = {i: told.get(str(files[i]), NOTHING) for i in there}
    work = {i: data for i, data in there.items() if may_concern(data, elsewhere[i], of[i])}
    for i, path in enumerate(files):
        if i not in work:
            step(str(path), 1)
    if jobs > 1 and len(work) >= _MANY:
        _in_processes(result, work, of, elsewhere, jobs, step)
    else:
        for i, data in work.items():
            result[i] = plan(files[i], data, of[i], elsewhere[i])
            step(str(files[i]), 1)
    return result


def _facts_of_modules(files: Sequence[Path], there: Mapping[int, bytes]) -> dict[str, Elsewhere]:
    """Returns what the modules of a program tell of each other; nothing where none is concerned."""
    if not any(map(may_concern, there.values())):
        return {}
    sources = {}
    for i, data in there.items():
        if files[i].suffix == ".py":
            with contextlib.suppress(Undecodable):
                sources[str(files[i])] = decode(data).text
    return project.analyse(sources)


def _in_processes(
    result: list[Plan],
    work: dict[int, bytes],
    options: Sequence[Options],
    elsewhere: Mapping[int, Elsewhere],
    jobs: int,
    step: Callable[[str, int], object],
) -> None:
    # Not forked: a progress bar is a thread, and it may hold a lock.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_begin)
    left = set(work)
    try:
        running = {
            pool.submit(plan, result[i].path, work[i], options[i], elsewhere[i]): i for i in work
        }
        for done in as_completed(running):
            i = running[done]
            result[i] = done.result()
            left.discard(i)
            step(str(result[i].path), 1)
    except BrokenProcessPool:
        for i in left:
            failure = Failure("a worker process was killed: rerun the command")
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


def _rewritten(
    path: Path, data: bytes, options: Options, elsewhere: Elsewhere
) -> tuple[bytes, tuple[Found, ...]]:
    def program(text: str) -> Result:
        def rewritten(places: Collection[Spot] = ()) -> Result:
            return rewrite(text, options, elsewhere=elsewhere, known=places)

        try:
            if options.known:
                return _rewrite_others(text, Counter(options.known), rewritten)
            return rewritten()
        except Unparsable as error:
            place = Place(error.line, error.column)
            raise Failed(f"does not parse: {error.message}", place) from None

    if path.suffix == ".ipynb":
        after, findings = notebooks.rewrite(data, program, may_concern)
        findings = tuple(found for found in findings if options.has(found.rule))
        return after, _marked(findings, options.known) if options.known else findings
    decoded = decode(data)
    result = program(decoded.text)
    return decoded.encode(result.text), result.findings


def _marked(
    findings: tuple[Found, ...], counts: Mapping[tuple[str, str], int]
) -> tuple[Found, ...]:
    """Returns the findings of a notebook, those marked, too, that are not of its program."""
    left = Counter(counts)
    left.subtract((found.rule, found.source) for found in findings if found.suppressed == BASELINE)
    others = set(_take_known(findings, left))
    return tuple(
        replace(found, suppressed=BASELINE) if found in others else found for found in findings
    )


def _take_known(findings: Iterable[Found], known: Counter[tuple[str, str]]) -> list[Found]:
    """Returns the findings that are known, and takes them out of `known`.

    Args:
        findings: In the order of their places. Of equal ones the first are known.
        known: Rule and line of source -> how many are.
    """
    result = []
    for found in findings:
        key = found.rule, found.source
        if found.stands and known[key] > 0:
            known[key] -= 1
            result.append(found)
    return result


def _rewrite_others(
    text: str, known: Counter[tuple[str, str]], rewrite: Callable[[frozenset[Spot]], Result]
) -> Result:
    """Returns a program with what is new in it rewritten, and what is known left alone.

    Args:
        text: The program.
        known: As `_take_known`.
        rewrite: Rewrites the program, but for the places that it is given.
    """
    result = rewrite(frozenset())
    found = _take_known(result.findings, known)
    others = set(result.findings).difference(found)
    new = [one for one in result.findings if one in others]
    if not any(one.stands for one in new):
        result = replace(result, text=text)
    elif found and result.text != text:
        # A place stays as it is, or does not.
        places = frozenset(one.spot for one in found) - {one.spot for one in new}
        result = rewrite(places)
        # A further line of something that is new, and so was rewritten with it.
        places -= {one.spot for one in result.findings if one.verdict == REWRITTEN and one.stands}
        found = [one for one in found if one.spot in places]
        new = [one for one in result.findings if one.spot not in places]
    marked = [replace(one, suppressed=BASELINE) for one in found]
    findings = sorted([*new, *marked], key=lambda one: one.spot)
    return replace(result, findings=tuple(findings))
