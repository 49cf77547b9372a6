"""What was found as a log in SARIF 2.1.0, which code scanning and editors read.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0, with Errata 01, 28 August 2023.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import keras_mp
from keras_mp.migration.code.findings import KEPT, NOQA, PERSON, Failure, Found, Place, Plan
from keras_mp.migration.code.notebooks import places_in_file
from keras_mp.migration.rules import RULES, Rule

VERSION = "2.1.0"
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
_GUIDE = "migration/README.md"
# Where the command ran; of which folder that is, whoever reads the log decides.
_ROOT = "%SRCROOT%"

Json = dict[str, object]


def log(plans: Sequence[Plan], folder: Path) -> Json:
    """Returns a log of one run.

    Args:
        plans: For files that were not written to.
        folder: An absolute path; files below it are named from there.
    """
    failures = [_failure(plan.path, plan.failure, folder) for plan in plans if plan.failure]
    run: Json = {
        "tool": {
            "driver": {
                "name": "keras-mp",
                "version": keras_mp.__version__,
                "rules": [_rule(name, rule) for name, rule in RULES.items()],
            }
        },
        "invocations": [
            {"executionSuccessful": not failures, "toolExecutionNotifications": failures}
        ],
        "originalUriBaseIds": {
            _ROOT: {"description": {"text": "The folder that keras-mp was run in."}}
        },
        "columnKind": "unicodeCodePoints",
        "results": [result for plan in plans for result in _results(plan, folder)],
    }
    return {"$schema": f"{_SCHEMA}sarif-schema-2.1.0.json", "version": VERSION, "runs": [run]}


def _rule(name: str, rule: Rule) -> Json:
    anchor = re.sub(r"[^\w -]", "", f"{name} {rule.title}").lower().replace(" ", "-")
    text = (rule.load().__doc__ or rule.title).strip()
    return {
        "id": name,
        "name": rule.module,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": text.partition("\n")[0]},
        "help": {"text": f"{text}\n\nSee {_GUIDE}#{anchor}"},
        "defaultConfiguration": {"level": "warning"},
    }


def _results(plan: Plan, folder: Path) -> Iterator[Json]:
    findings = sorted((*plan.findings, *plan.suppressed), key=lambda found: _order(found.place))
    told = [found for found in findings if found.verdict != KEPT and plan.failure is None]
    places = {place: (place.line, place.column) for place in (found.place for found in told)}
    if told and plan.path.suffix == ".ipynb":
        places = places_in_file(plan.before, places)
    ids = [*RULES]
    for found in told:
        yield {
            "ruleId": found.rule,
            "ruleIndex": ids.index(found.rule),
            "level": "warning" if found.verdict == PERSON else "note",
            "message": {"text": _message(found)},
            "locations": [_location(plan.path, folder, places[found.place])],
            "suppressions": _suppressions(found),
        }


def _order(place: Place) -> tuple[int, int, int]:
    return place.cell or 0, place.line, place.column


def _message(found: Found) -> str:
    text = found.message if found.verdict == PERSON else f"would be rewritten: {found.message}"
    return text if found.place.cell is None else f"{found.place}: {text}"


def _suppressions(found: Found) -> list[Json]:
    if not found.suppressed:
        return []
    return [{"kind": "inSource" if found.suppressed == NOQA else "external"}]


def _failure(path: Path, failure: Failure, folder: Path) -> Json:
    place, text = failure.place, failure.message
    at = None if place is None or place.cell is not None else (place.line, place.column)
    if place is not None and place.cell is not None:
        text = f"{place}: {text}"
    return {
        "level": "error",
        "message": {"text": text},
        "locations": [_location(path, folder, at)],
    }


def _location(path: Path, folder: Path, at: tuple[int, int] | None) -> Json:
    physical: Json = {"artifactLocation": _artifact(path, folder)}
    if at is not None:
        physical["region"] = {"startLine": at[0], "startColumn": at[1]}
    return {"physicalLocation": physical}


def _artifact(path: Path, folder: Path) -> Mapping[str, str]:
    path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay
    if not path.is_relative_to(folder):
        return {"uri": path.as_uri()}
    # A colon, too: what is before one in a relative URI would be its scheme.
    uri = quote(os.fsencode(path.relative_to(folder).as_posix()))
    return {"uri": uri, "uriBaseId": _ROOT}
