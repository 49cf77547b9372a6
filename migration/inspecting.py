"""`keras-mp inspect`: prints what is inside an artefact."""

from keras_mp.compat.checkpoints import Unreadable
from keras_mp.compat.inspecting import inspect
from keras_mp.compat.inspecting.inspection import FEW, lines
from keras_mp.files.stores.scratch import Scratch
from keras_mp.files.stores.urls import redacted
from keras_mp.migration.console import (
    json_text,
    missing_package,
    put_exact,
    say,
    say_error,
    show,
)


def run(path: str, *, as_json: bool, everything: bool, scratch: Scratch | None = None) -> int:
    """Prints it; returns 0, or 2 where something is damaged."""
    given, path = path, redacted(path)
    try:
        found = inspect(given, scratch)
    except (Unreadable, OSError, ValueError, ImportError) as error:
        text = missing_package(error) if isinstance(error, ImportError) else str(error)
        if as_json:
            put_exact(json_text({"path": path, "error": text}))
        say_error(path, text)
        return 2
    if as_json:
        put_exact(json_text(found.to_dict()))
    else:
        show(lines(found, None if everything else FEW, rest=": --all shows them"))
    for damage in found.damage:
        say(f"error: {damage}")
    return 2 if found.damage else 0
