"""Recognizes what an incomplete download or checkout leaves in place of an artefact."""

from pathlib import Path

from keras_mp.files import regular_files

EMPTY = "is empty: a download or a copy was not completed"
LFS = "is a pointer of Git LFS, and not the file itself: run git lfs pull in its repository"
PAGE = "is a web page, and not a model: the address led to another page, or asked for a login"
_READ = 512


def kind_of_stand_in(path: str | Path) -> str | None:
    """Returns what a file is instead of an artefact; None where it may be one, or cannot be read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "model.h5")
    ...     _ = path.write_text("<!DOCTYPE html><html></html>")
    ...     kind_of_stand_in(path) == PAGE
    True
    """
    try:
        if not Path(path).is_file():
            return None
        with regular_files.opened(path) as file:
            start = file.read(_READ)
    except OSError:
        return None
    if not start:
        return EMPTY
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        return LFS
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return PAGE if text.startswith((b"<!doctype html", b"<html")) else None
