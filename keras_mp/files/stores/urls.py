"""Addresses of stores: recognizes them, takes them apart, shows them without their secrets."""

import re
from pathlib import Path
from urllib.parse import unquote

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::[A-Za-z][A-Za-z0-9+.-]+)*://", re.ASCII)
_LOCAL = ("file", "local")
# fsspec's caches. Here each file is read once, as a whole, into a scratch folder.
_CACHES = ("blockcache", "cached", "filecache", "simplecache")
TAKEN = (
    "supported are file:// and local://, and addresses that fsspec has a driver for, such as "
    "s3://, gs://, az://, sftp:// and https:// (reading), as they are or behind simplecache::, "
    "filecache:: or blockcache::"
)
_CHAIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?:://)?::(?=[A-Za-z][A-Za-z0-9+.:-]+://)", re.ASCII)
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://[^\s'\"<>]+")
_PLACE = re.compile(r"[^/?#]*")
_HOST = re.compile(r"(\[[^]]*\]|[^:]*)(:\d+)?")
_WEB = ("http", "https")
HIDDEN = "***"
MEMORY = "memory"
OF_ONE_PROCESS = "memory:// exists in one process, and ends with it"


def is_url(path: object) -> bool:
    """Returns whether a path is an address of a store. `file://` is a local path, see `local_of`.

    >>> is_url("s3://old/models"), is_url("models/a.keras"), is_url("C://models"), is_url("file:///a")
    (True, False, False, False)
    """
    match = _URL.match(_without_caches(path)) if isinstance(path, str) else None
    return match is not None and scheme(match[0]) not in _LOCAL


def plain(path: str) -> str:
    """Returns an address without the caches before it, and a local path for `file://`.

    >>> plain("simplecache::s3://old/models"), plain("filecache::file:///models"), plain("models")
    ('s3://old/models', '/models', 'models')
    """
    path = _without_caches(path)
    if _URL.match(path) and scheme(path) in _LOCAL:
        return local_of(path).as_posix()
    return path


def _without_caches(path: str) -> str:
    while (match := _CHAIN.match(path)) and match[1].lower() in _CACHES:
        path = path[match.end() :]
    return path


def is_chain(path: str) -> bool:
    """Returns whether an address is nested in another one, as `zip://` is, not just cached.

    >>> is_chain("zip://a.h5::s3://old/a.zip"), is_chain("simplecache::s3://old/a.h5")
    (True, False)
    """
    return is_url(path) and "::" in plain(path)


def local_of(path: str | Path) -> Path:
    """Returns a local path as a Path, without `file://`.

    >>> local_of("file:///models/a%20b.keras").as_posix(), local_of("models").as_posix()
    ('/models/a b.keras', 'models')
    """
    text = _without_caches(str(path))
    if _URL.match(text) and scheme(text) in _LOCAL:
        return Path(unquote(text.partition("://")[2].removeprefix("localhost")))
    return Path(path)


def scheme(url: str) -> str:
    """Returns the part before `://` in lower case, without caches."""
    return _without_caches(url).partition("://")[0].rpartition("::")[2].lower()


def join(url: str, *names: str) -> str:
    """Returns the address of a name in a folder.

    >>> join("s3://old/models/", "v1", "a.keras")
    's3://old/models/v1/a.keras'
    """
    rest, query = _split(url)
    return "/".join([rest.rstrip("/") if rest[-3:] != "://" else rest[:-1], *names]) + query


def parent(url: str) -> str:
    """Returns the address of the enclosing folder.

    >>> parent("s3://old/models/a.keras"), parent("memory://a.keras")
    ('s3://old/models', 'memory://')
    """
    rest, query = _split(url)
    head, _, path = rest.partition("://")
    return f"{head}://{path.rstrip('/').rpartition('/')[0]}{query}"


def name(url: str) -> str:
    """Returns the last part of an address.

    >>> name("s3://old/models/a.keras"), name("https://host/a.keras?signature=1")
    ('a.keras', 'a.keras')
    """
    return _split(url)[0].partition("://")[2].rstrip("/").rpartition("/")[2]


def _split(url: str) -> tuple[str, str]:
    """Returns an address and its query, which only the web has."""
    if scheme(url) not in _WEB:
        return url, ""
    rest, mark, query = url.partition("?")
    return rest, mark + query


def is_inside(url: str, folder: str) -> bool:
    """Returns whether an address is that of a folder or of its content.

    >>> is_inside("s3://a/b/c", "s3://a/b/"), is_inside("s3://a/bc", "s3://a/b")
    (True, False)
    """
    return f"{plain(url).rstrip('/')}/".startswith(f"{plain(folder).rstrip('/')}/")


def redacted(path: object) -> str:
    """Returns an address that may be shown and written: without passwords and query.

    >>> redacted("sftp://me:secret@host/a.keras"), redacted("https://host/a?signature=1")
    ('sftp://me:***@host/a.keras', 'https://host/a?***')
    >>> redacted("models/a.keras")
    'models/a.keras'
    """
    text = str(path)
    if not is_url(text):
        return text
    text = _without_caches(text)
    head, _, rest = text.partition("://")
    user, at, rest = _user(rest)
    rest, mark, _ = rest.partition("?")
    if at:
        name, colon, _ = user.partition(":")
        # On the web the name alone may be a token.
        user = HIDDEN if scheme(text) in _WEB else f"{name}:{HIDDEN}" if colon else name
    return f"{head}://{user}{at}{rest}{f'?{HIDDEN}' if mark else ''}"


def _user(rest: str) -> tuple[str, str, str]:
    """Returns (user and password, "@" or nothing, the others)."""
    place = _PLACE.match(rest)
    assert place is not None
    if "@" in place[0]:
        user, at, host = place[0].rpartition("@")
        return user, at, host + rest[place.end() :]
    # A password may contain these, though they should be percent-encoded.
    return ("", "", rest) if _HOST.fullmatch(place[0]) else rest.rpartition("@")


def without_secrets(text: str, *of: str) -> str:
    """Returns a text, such as a driver's, on one line and without the secrets of addresses in it.

    Args:
        text: The text to show.
        of: Addresses whose secrets it may contain.

    >>> without_secrets("no secret at\\nhttps://me:pw@host/a?key=1", "sftp://me:secret@host/a")
    'no *** at https://***@host/a?***'
    """
    hidden: set[str] = set()
    for url in of:
        if not is_url(url):
            continue
        user, _, rest = _user(url.partition("://")[2])
        query = rest.partition("?")[2]
        password = user.partition(":")[2]
        hidden |= {query, unquote(query), password, unquote(password)}
        hidden |= {part.partition("=")[2] for part in query.split("&")}
    text = _IN_TEXT.sub(lambda match: redacted(match[0]), text)
    for secret in sorted(hidden - {"", HIDDEN}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return " ".join(text.split())
