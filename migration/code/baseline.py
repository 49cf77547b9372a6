"""A baseline: a file of findings that are known, so that only new ones count.

A finding is known by its file, its rule and the text of its line. So it stays known where lines
above it come and go.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from keras_mp.files import regular_files
from keras_mp.files.atomic_writing import write_atomically
from keras_mp.migration.code.findings import BASELINE, KEPT, Plan
from keras_mp.migration.code.rewriting import Options
from keras_mp.migration.console import json_text
from keras_mp.migration.publishing import Refused

SCHEMA = 1
_ANEW = "remove it and recreate it with --write-baseline"
_STRINGS = ("path", "rule", "source")


class Entry(NamedTuple):
    """Findings that are the same to a baseline.

    Attributes:
        path: Of their file, from the folder of the baseline, with forward slashes.
        rule: "KMP001" and so on.
        source: The line, stripped.
    """

    path: str
    rule: str
    source: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is in the file of a baseline.

    Attributes:
        file: Where it is.
        entries: How many findings there are of each entry.
    """

    file: Path
    entries: Mapping[Entry, int]

    def of_files(self) -> dict[str, Counter[tuple[str, str]]]:
        """Returns path -> rule and line -> how many."""
        result: dict[str, Counter[tuple[str, str]]] = {}
        for entry, count in self.entries.items():
            result.setdefault(entry.path, Counter())[entry.rule, entry.source] = count
        return result

    def name(self, path: Path) -> str:
        """Returns the path of an entry of a file."""
        return _name(self.file, path)

    def gone(self, plans: Iterable[Plan], options: Mapping[Path, Options]) -> dict[Entry, int]:
        """Returns the entries that no longer occur, and how many of each.

        Nothing is said of files that are there and that nobody looked at, nor of rules that are
        not applied to a file.
        """
        looked = {self.name(plan.path): plan for plan in plans}
        result = {}
        for entry, count in sorted(self.entries.items()):
            plan = looked.get(entry.path)
            if plan is None:
                left = 0 if os.path.lexists(self.file.parent / entry.path) else count
            elif plan.failure is not None or not options[plan.path].has(entry.rule):
                left = 0
            else:
                left = count - sum(
                    (found.rule, found.source) == entry[1:] and found.suppressed == BASELINE
                    for found in plan.suppressed
                )
            if left > 0:
                result[entry] = left
        return result

    def report(self, gone: Mapping[Entry, int]) -> dict[str, object]:
        """Returns its part of the --json report."""
        rows = [{**entry._asdict(), "count": count} for entry, count in gone.items()]
        return {"path": str(self.file), "gone": rows}


def read_baseline(file: Path) -> Baseline:
    """Returns what is in the file of a baseline.

    Raises:
        Refused: It cannot be read, or is damaged.
    """
    try:
        data = json.loads(regular_files.read_bytes(file))
    except OSError as error:
        raise Refused(f"{file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{file} is not a baseline: {error}: {_ANEW}") from None
    wrong = _wrong(data)
    if wrong:
        raise Refused(f"{file} is not a baseline: {wrong}: {_ANEW}")
    entries: Counter[Entry] = Counter()
    for row in data["findings"]:
        entries[Entry(*(row[name] for name in _STRINGS))] += row["count"]
    return Baseline(file, entries)


def write(file: Path, plans: Iterable[Plan]) -> int:
    """Writes a baseline of all that is found and not suppressed; returns how many findings it has.

    Raises:
        Refused: There is something else by that name, or it cannot be written.
    """
    if os.path.lexists(file):
        _refuse_others(file)
    entries = Counter(
        Entry(_name(file, plan.path), found.rule, found.source)
        for plan in plans
        if plan.failure is None
        for found in plan.findings
        if found.verdict != KEPT
    )
    rows = [{**entry._asdict(), "count": count} for entry, count in sorted(entries.items())]
    try:
        write_atomically(file, json_text({"schema": SCHEMA, "findings": rows}))
    except OSError as error:
        raise Refused(f"{file} cannot be written: {error.strerror or error}") from None
    return entries.total()


def _refuse_others(file: Path) -> None:
    try:
        read_baseline(file)
    except Refused as error:
        raise Refused(f"{error}, or choose another file") from None


def _name(file: Path, path: Path) -> str:
    # However it is reached: a file may be named through links, and from another folder.
    try:
        return Path(
            os.path.relpath(os.path.realpath(path), os.path.realpath(file.parent))
        ).as_posix()
    except ValueError:  # on another drive, or not a path
        return path.as_posix()


def _wrong(data: object) -> str:
    """Returns what is wrong with what was read; "" where nothing is."""
    if not isinstance(data, dict):
        return "$ must be an object"
    if data.get("schema") != SCHEMA:
        return f"$.schema is {json.dumps(data.get('schema'))}, not {SCHEMA}"
    if not isinstance(data.get("findings"), list):
        return "$.findings must be an array"
    for i, row in enumerate(data["findings"]):
        if not isinstance(row, dict):
            return f"$.findings[{i}] must be an object"
        for name in _STRINGS:
            if not isinstance(row.get(name), str):
                return f"$.findings[{i}].{name} must be a string"
        count = row.get("count")
        if type(count) is not int or count < 1:
            return f"$.findings[{i}].count must be a whole number of at least 1"
    return ""
