"""Audits the list of members of a zip archive, before any member is read."""

import stat
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath

from keras_mp.compat.inspecting.findings import Finding

# What nobody needs in an artefact of Keras, and what runs if it is opened.
_PROGRAMS = (
    *(".py", ".pyc", ".pkl", ".pickle", ".joblib", ".dill", ".pt", ".pth"),
    *(".so", ".dll", ".dylib", ".exe", ".sh", ".bat"),
)
_MOST_RATIO, _SMALL = 100, 1 << 20


def of_archive(archive: zipfile.ZipFile) -> Iterator[Finding]:
    """Yields findings in its list of members."""
    members = archive.infolist()
    first = min((member.header_offset for member in members), default=0)
    if first:
        yield Finding("size", "archive", f"begins with {first:,} bytes that are not of a zip file")
    for name, count in Counter(member.filename for member in members).items():
        if count > 1:
            yield Finding(
                "name", name, f"is there {count:,} times: programs differ in which one they use"
            )
    for member in members:
        yield from _of_member(member)


def is_too_large(member: zipfile.ZipInfo) -> bool:
    """Returns whether a member unpacks to more than Keras would ever make of its bytes."""
    return member.file_size > _MOST_RATIO * member.compress_size + _SMALL


def of_name(name: str, where: str) -> Iterator[Finding]:
    """Yields findings in the name of a file of an artefact."""
    if not name.isprintable():
        yield Finding("name", where, f"has characters that are not seen: {name!a}")
    if PurePosixPath(name).suffix.lower() in _PROGRAMS:
        yield Finding("code", where, "is a program or a pickle, by its name")


def _of_member(member: zipfile.ZipInfo) -> Iterator[Finding]:
    name = member.orig_filename
    yield from of_name(name, name)
    parts = PureWindowsPath(name).parts
    if name.startswith(("/", "\\")) or PureWindowsPath(name).drive or ".." in parts:
        yield Finding("path", name, "leads out of the folder that the archive is unpacked to")
    if stat.S_ISLNK(member.external_attr >> 16):
        yield Finding("link", name, "is a symbolic link")
    if is_too_large(member):
        what = f"claims {member.file_size:,} bytes, of which {member.compress_size:,} are stored"
        yield Finding("size", name, what)
