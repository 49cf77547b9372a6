"""Processes that train one model repair it alike, whatever each of them found on its own batch."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from keras_mp.backends.common.processes import gathered, process_count
from keras_mp.diagnosis.repair.changes import all_changes
from keras_mp.diagnosis.repair.record import Verdict
from keras_mp.diagnosis.repair.search import Found


def agreed(model: Any, search: Callable[[], Found | Verdict]) -> Found | Verdict:
    """Returns what to do in each process: all that one of them needs, or why none goes on.

    Args:
        model: The model, the same in each process.
        search: Searches on the batch of this process; takes part in no communication.
    """
    mine: Found | Verdict
    try:
        mine = search()
    except Exception as error:  # noqa: BLE001 - a train_step may take batches of any form
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        mine = Verdict("unsearched", f"The batch could not be run again: {what}")
    if process_count() == 1:
        return mine
    plain: dict[str, Any]
    if isinstance(mine, Verdict):
        plain = {"verdict": asdict(mine)}
    else:
        dtypes = {change.path: change.dtype for change in mine.changes}
        plain = {"dtypes": dtypes, "scale": mine.scale}
    every = [json.loads(text or "{}") for text in gathered(json.dumps(plain))]
    verdicts = [Verdict(**each["verdict"]) for each in every if "verdict" in each]
    for verdict in verdicts:
        if verdict.ends:
            return verdict
    found = [each for each in every if "dtypes" in each]
    if not found:
        return verdicts[0] if verdicts else Verdict("unsearched", "No process found anything.")
    wanted: dict[str, str] = {}
    for each in found:
        for path, dtype in each["dtypes"].items():
            wanted[path] = "float32" if wanted.get(path, dtype) != dtype else dtype
    changes = tuple(
        replace(change, dtype=wanted[change.path])
        for change in all_changes(model)
        if change.path in wanted
    )
    finding = mine.finding if isinstance(mine, Found) else None
    return Found(changes, min(each["scale"] for each in found), finding)
