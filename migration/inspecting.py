"""`keras-mp inspect`: what is inside an artefact; with `--audit`, what to look at in a stranger's.

An audit may be of a folder of them.
"""

import argparse
from collections import Counter
from pathlib import Path

from keras_mp.compat.checkpoints import Unreadable, locating
from keras_mp.compat.file_formats.file_kinds import SHARDS
from keras_mp.compat.inspecting import Audit, audit, findings, inspect, inspection
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import is_url, redacted
from keras_mp.migration.console import (
    json_text,
    missing_package,
    put_exact,
    report_failure,
    say,
    say_error,
    show,
)
from keras_mp.migration.parser import scratch_of
from keras_mp.migration.walking import Walk, is_folder_of_artefacts, walk
from keras_mp.rendering.text import pluralized

CLOSED = "this folder cannot be read"
NONE = "this folder has no artefact"


def run(arguments: argparse.Namespace) -> int:
    """Prints what is inside, or the verdict of the audit; returns the exit status."""
    path, scratch = arguments.path, scratch_of(arguments)
    if arguments.audit:
        return _audit(path, scratch, as_json=arguments.json)
    return _inspect(path, scratch, as_json=arguments.json, everything=arguments.all)


def _inspect(path: str, scratch: Scratch, *, as_json: bool, everything: bool) -> int:
    """Returns 0, or 2 where something is damaged."""
    shown = redacted(path)
    try:
        found = inspect(path, scratch)
    except (Unreadable, OSError, ValueError, ImportError) as error:
        text = missing_package(error) if isinstance(error, ImportError) else str(error)
        if as_json:
            put_exact(json_text({"path": shown, "error": text}))
        say_error(shown, text)
        return 2
    if as_json:
        put_exact(json_text(found.to_dict()))
    else:
        most = None if everything else inspection.FEW
        show(inspection.lines(found, most, rest=": --all shows them"))
    for damage in found.damage:
        say(f"error: {damage}")
    return 2 if found.damage else 0


def _audit(path: str, scratch: Scratch, *, as_json: bool) -> int:
    """Returns 0, 1 where there is something to look at, or 2."""
    try:
        walked = walk(path) if _is_folder(path) else None
        paths = [path] if walked is None else [one.path for one in walked.found]
        audits = [audit(one, scratch) for one in paths]
    except (OSError, ValueError, ImportError) as error:
        return report_failure(error, redacted(path), as_json=as_json)
    if walked is not None:
        audits += [Audit(folder, errors=[CLOSED]) for folder in walked.closed]
        if not audits:
            audits = [Audit(redacted(path), errors=[NONE])]
    verdict = findings.VERDICTS[max(one.status for one in audits)]
    if as_json:
        put_exact(json_text({"verdict": verdict, "results": [one.to_dict() for one in audits]}))
    else:
        for one in audits:
            _show(one)
        if walked is not None:
            _say_rest(audits, walked)
    return findings.VERDICTS.index(verdict)


def _is_folder(path: str) -> bool:
    if not is_url(path) and locating.exists_or_raise((Path(path) / SHARDS).is_file):
        return False
    return is_folder_of_artefacts(path)


def _show(found: Audit) -> None:
    show(findings.lines(found))
    for error in found.errors:
        say_error(found.path, error)


def _say_rest(audits: list[Audit], walked: Walk) -> None:
    counts = Counter(one.verdict for one in audits)
    told = ", ".join(
        f"{counts[verdict]} {verdict}" for verdict in findings.VERDICTS if counts[verdict]
    )
    say(f"{pluralized(len(walked.found), 'artefact')}: {told}")
    left = [pluralized(walked.left, "other file")] if walked.left else []
    left += [pluralized(walked.links, "symbolic link")] if walked.links else []
    if left:
        say(f"not audited: {', '.join(left)}")
