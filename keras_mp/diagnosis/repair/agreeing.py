"""Processes that train one model repair it alike, whatever each of them found on its own batch."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from keras_mp.backends.common.processes import (
    gathered,
    in_this_process,
    own_part,
    process_count,
)
from keras_mp.diagnosis.overflow_search.report import Finding
from keras_mp.diagnosis.repair.changes import all_changes
from keras_mp.diagnosis.repair.record import Verdict
from keras_mp.diagnosis.repair.search import Found


def agreed(model: Any, search: Callable[[Any], Found | Verdict], batch: Any) -> Found | Verdict:
    """Returns what to do in each process: all that one of them needs, or why none goes on.

    Args:
        model: The model, the same in each process.
        search: Searches on the batch of this process; takes part in no communication.
        batch: As `train_step` takes it.
    """
    mine: Found | Verdict
    try:
        own = own_part(batch)
        with in_this_process(model.variables):
            mine = search(own)
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
        first = None if mine.finding is None else asdict(replace(mine.finding, source=None))
        plain = {"dtypes": dtypes, "scale": mine.scale, "first": first, "note": mine.note}
    every = [json.loads(text or "{}") for text in gathered(json.dumps(plain))]
    verdicts = [Verdict(**each["verdict"]) for each in every if "verdict" in each]
    for verdict in verdicts:
        if verdict.ends:
            return verdict
    found = [each for each in every if "dtypes" in each]
    if not found:
        told = [verdict for verdict in verdicts if verdict.kind == "unsearched"] or verdicts
        return told[0] if told else Verdict("unsearched", "No process found anything.")
    wanted: dict[str, str] = {}
    for each in found:
        for path, dtype in each["dtypes"].items():
            wanted[path] = "float32" if wanted.get(path, dtype) != dtype else dtype
    changes = tuple(
        replace(change, dtype=wanted[change.path])
        for change in all_changes(model)
        if change.path in wanted
    )
    note = next((each["note"] for each in found if each["note"]), "")
    first = next((each["first"] for each in found if each["first"]), None)
    finding = None if first is None else Finding(**first)
    if isinstance(mine, Found) and mine.finding is not None:
        finding = mine.finding
    return Found(changes, min(each["scale"] for each in found), finding, note)
