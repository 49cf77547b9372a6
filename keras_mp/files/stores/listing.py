"""Lists stores: names, sizes, and what identifies the version of a file."""

import base64
import binascii
import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from keras_mp.files.stores.drivers import with_retries
from keras_mp.files.stores.errors import NotThere
from keras_mp.files.stores.urls import join, scheme

FileType = Literal["file", "folder", "link", "other"]
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created", "modified")
# Keys of a driver's answer that change with the version of a file; not all drivers have all.
_VERSION = (
    *("size", "Size", "ETag", "etag", "md5Hash", "content_md5", "Content-MD5", "crc32c"),
    *("generation", "VersionId", "version_id", "Last-Modified"),
    *_TIMES,
)
_MD5 = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]")
_TYPES: dict[object, FileType] = {"file": "file", "directory": "folder", "link": "link"}
# Links of web pages may form circles; stores have none.
_WEB_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """What a store reports of a file or folder.

    Attributes:
        name: Its path in the listed folder, with `/`; empty for the listed path itself.
        url: Its address.
        type: As fsspec names it. Links are not followed.
        size: In bytes; None if the store does not report it.
        version: (name, value) pairs that another version of it would not have.
        md5: Hexadecimal, or None: the MD5 that the store reports, or an ETag that may be one.
        modified: When it was written, in seconds since 1970; None if the store does not report it.
    """

    name: str
    url: str
    type: FileType
    size: int | None
    version: tuple[tuple[str, str], ...] = ()
    md5: str | None = None
    modified: float | None = None

    def is_same(self, other: "Entry") -> bool:
        """Returns whether nothing shows that the other is another version."""
        mine, others = dict(self.version), dict(other.version)
        return all(mine[name] == others[name] for name in mine.keys() & others.keys())


def entry(url: str) -> Entry:
    """Returns what a store reports of one file or folder, without a cache.

    Raises:
        NotThere: Nothing has that name.
        StoreError: The store gives no answer.
    """

    def work(fs: Any, path: str) -> Mapping[str, Any]:
        fs.invalidate_cache()
        return fs.info(path)  # type: ignore[no-any-return]

    return _entry("", url, with_retries(url, work))


def exists(url: str) -> bool:
    """Returns whether something has that name.

    Raises:
        StoreError: The store gives no answer.
    """
    try:
        entry(url)
    except NotThere:
        return False
    return True


def listed(url: str, *, deep: bool) -> list[Entry]:
    """Returns the content of a folder, by one listing, sorted by name.

    Args:
        url: The folder.
        deep: Whether to include the content of its folders, without the folders themselves.

    Raises:
        NotThere: There is no such folder, or it is empty.
        StoreError: The store gives no answer.
    """

    def work(fs: Any, path: str) -> dict[str, Mapping[str, Any]]:
        fs.invalidate_cache()
        if not deep:
            return {one["name"]: one for one in fs.ls(path, detail=True)}
        options = {"maxdepth": _WEB_DEPTH} if scheme(url) in ("http", "https") else {}
        infos = fs.find(path, detail=True, **options)
        if not infos:
            fs.ls(path)  # which gives a reason, where `find` does not
        return infos  # type: ignore[no-any-return]

    root = with_retries(url, lambda fs, path: str(fs._strip_protocol(path)).rstrip("/"))
    infos = with_retries(url, work)
    entries = []
    for path, info in infos.items():
        inside = str(path).rstrip("/")
        if inside == root:
            if info.get("type") != "directory":
                entries.append(_entry("", url, info))
            continue
        name = inside[len(root) :].lstrip("/") if inside.startswith(f"{root}/") else inside
        entries.append(_entry(name, join(url, name), info))
    if not entries and not infos:
        raise NotThere.of(url, "there is nothing in this folder, or no such folder")
    return sorted(entries, key=lambda one: one.name)


def _entry(name: str, url: str, info: Mapping[str, Any]) -> Entry:
    size = info.get("size", info.get("Size"))
    if info.get("mimetype") == "text/html":
        # The web shows a folder as a page, and no artefact is one.
        return Entry(name, url, "folder", None)
    version = tuple(
        (key, _plain(key, info[key])) for key in _VERSION if info.get(key) not in (None, "", b"")
    )
    return Entry(
        name,
        url,
        _TYPES.get(info.get("type"), "other"),
        int(size) if isinstance(size, int) else None,
        version,
        _md5(info),
        _modification_time(info),
    )


def _modification_time(info: Mapping[str, Any]) -> float | None:
    for key in ("mtime", "LastModified", "last_modified", "updated", "modified"):
        value = info.get(key)
        if isinstance(value, datetime.datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return None


def _plain(key: str, value: object) -> str:
    if isinstance(value, str) and _TIME.match(value):
        value = _time(value)
    elif isinstance(value, float) and key in _TIMES:
        value = datetime.datetime.fromtimestamp(value, datetime.UTC)
    if isinstance(value, datetime.datetime):
        # Listings have fractions of a second or a time zone where single answers have none.
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        return value.astimezone(datetime.UTC).replace(microsecond=0).isoformat()
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


def _time(text: str) -> datetime.datetime | str:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return text


def _md5(info: Mapping[str, Any]) -> str | None:
    settings = info.get("content_settings")
    inside = settings.get("content_md5") if isinstance(settings, Mapping) else None
    for value in (info.get("md5Hash"), info.get("content_md5"), info.get("Content-MD5"), inside):
        if isinstance(value, bytes | bytearray) and len(value) == 16:
            return value.hex()
        if isinstance(value, str):
            try:
                decoded = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                continue
            if len(decoded) == 16:
                return decoded.hex()
    tag = info.get("ETag") or info.get("etag")
    tag = tag.strip('"').lower() if isinstance(tag, str) else ""
    return tag if _MD5.fullmatch(tag) else None
