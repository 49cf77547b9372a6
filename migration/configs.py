"""`keras-mp migrate` for configs: JSON in, JSON out."""

import argparse
import tempfile
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from keras_mp.compat import configs
from keras_mp.compat.configs import Change, checks
from keras_mp.compat.errors import LegacyError
from keras_mp.files.locked_folders import remove_stale
from keras_mp.files.stores.errors import StoreError
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import is_url, local_of, redacted
from keras_mp.migration.console import SCHEMA, json_text, put_exact, say, say_error
from keras_mp.migration.parser import scratch_of
from keras_mp.migration.reading import Unreadable, read_json
from keras_mp.migration.wording import in_command_words
from keras_mp.migration.writing import folders_made, write_new

OTHER = "exists already with other content: choose another place"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one PATH."""

    path: str
    status: str
    config: dict[str, object] | None = None
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    error: dict[str, str | None] | None = None

    def to_dict(self, *, with_config: bool) -> dict[str, object]:
        """Returns its part of the --json report."""
        return {
            "path": self.path,
            "status": self.status,
            "config": self.config if with_config else None,
            "notes": list(self.notes),
            "changes": [asdict(change) for change in self.changes],
            "error": self.error,
        }


def migrate(arguments: argparse.Namespace) -> int:
    """Converts, writes or prints configs; returns the exit status."""
    check, out = arguments.check, arguments.out
    results = [replace(_convert(path, arguments), path=redacted(path)) for path in arguments.paths]
    if out is not None:
        results = [_write(results[0], out)]
    failed = any(result.error for result in results)
    if arguments.json:
        rows = [result.to_dict(with_config=not check) for result in results]
        counts = Counter(result.status for result in results)
        summary = {"schema": SCHEMA, "configs": dict(sorted(counts.items()))}
        put_exact(json_text({"results": rows, "summary": summary}))
    else:
        _tell(results, check=check)
        if out is None and not check and not failed:
            put_exact(json_text(results[0].config))
    if failed:
        return 2
    return int(check and any(result.status == "converted" for result in results))


def _convert(path: str, arguments: argparse.Namespace) -> Result:
    try:
        with _local(path, scratch_of(arguments)) as local:
            config = checks.mapping(read_json(str(local)), "$")
        converted = configs.convert(
            config,
            kind=arguments.kind,
            tf_version=arguments.tf_version,
            exact_training=arguments.exact_training,
        )
        # A config of today is taken as it is, but JSON knows neither NaN nor Infinity.
        json_text(converted.config)
    except LegacyError as error:
        return Result(
            path, "error", error={"path": error.path, "message": in_command_words(str(error))}
        )
    except (Unreadable, ValueError, StoreError) as error:
        why = getattr(error, "why", str(error))  # the path is said before
        return Result(path, "error", error={"path": None, "message": in_command_words(why)})
    status = "converted" if converted.changed else "unchanged"
    notes = tuple(map(in_command_words, converted.notes))
    changes = tuple(replace(one, what=in_command_words(one.what)) for one in converted.changes)
    return Result(path, status, converted.config, notes, changes)


def _write(result: Result, out: str) -> Result:
    if result.error:
        return result
    data = json_text(result.config)
    try:
        if is_url(out):
            _upload(data, out)
            return result
        place = local_of(out).resolve()
        if not place.exists():
            with folders_made(place.parent):
                remove_stale(place.parent)
                write_new(place, data, sync=True)
        elif not place.is_file() or place.read_bytes() != data.encode():
            raise ValueError(f"it {OTHER}, or remove it")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        message = f"cannot write {redacted(out)}: {reason or error}"
        return Result(result.path, "error", error={"path": None, "message": message})
    return result


def _local(path: str, scratch: Scratch) -> AbstractContextManager[str | Path]:
    if not is_url(path):
        return nullcontext(path)
    from keras_mp.compat.checkpoints.staging import local_artefact  # late: it needs NumPy

    return local_artefact(path, scratch)


def _upload(data: str, url: str) -> None:
    from keras_mp.files.stores.objects import read_text
    from keras_mp.files.stores.uploads import publish

    there = read_text(url)
    if there == data:
        return
    if there is not None:
        raise ValueError(f"it {OTHER}, or remove it")
    with tempfile.TemporaryDirectory(prefix="keras-mp-") as folder:
        file = Path(folder, "config.json")
        file.write_bytes(data.encode())
        publish(file, url)


def _tell(results: list[Result], *, check: bool) -> None:
    for result in results:
        for note in result.notes:
            say(f"{result.path}: note: {note}")
        if result.error:
            say_error(result.path, result.error["message"] or "")
        elif check and result.status == "converted":
            say(f"{result.path}: would change")
