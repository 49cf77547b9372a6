"""`keras-mp migrate` for a folder, without an output: what would become of each artefact."""

from dataclasses import replace
from pathlib import Path

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.file_formats.file_kinds import kind_of
from keras_mp.files.stores.urls import is_url, local_of, redacted
from keras_mp.migration import artefacts
from keras_mp.migration.publishing import Refused
from keras_mp.migration.requests import Outcome, Request
from keras_mp.migration.walking import Found, Walk

CLOSED = "this folder cannot be read: change its permissions, or name the other folders"


def look(request: Request, walked: Walk) -> list[Outcome]:
    """Returns what would become of each artefact in a folder, as far as is known unloaded."""
    return [_look(request, one) for one in walked.found]


def outcomes_of_closed(walked: Walk) -> list[Outcome]:
    """Returns an outcome for each folder that may not be read."""
    return [Outcome(path, "failed", why=CLOSED, reason="storage") for path in walked.closed]


def _look(request: Request, one: Found) -> Outcome:
    path, kind = one.path, one.kind
    if is_url(path):
        # Nothing is downloaded for this: what it is of is told by its name.
        return Outcome(redacted(path), "would convert", kind, out=str(one.out))
    try:
        kind_of(path)
        name = Path(path).relative_to(local_of(request.path)).as_posix()
        top = local_of(request.path)
        request = replace(request, path=path).for_artefact(name, top)
        artefacts.refuse_without_model(
            artefacts.without_unneeded_options(request, kind), Path(path), kind
        )
    except Refused as error:
        return Outcome(path, "refused", kind, why=str(error), reason=error.reason)
    except Unreadable as error:
        return Outcome(path, "failed", kind, why=str(error), reason="damaged")
    except OSError as error:
        return Outcome(
            path, "failed", kind, why=f"{error.filename}: {error.strerror}", reason="storage"
        )
    return Outcome(path, "would convert", kind, out=str(one.out))
