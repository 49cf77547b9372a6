"""fsspec's drivers, with retries, and their errors translated to ours.

The user chooses the driver and its credentials: it finds them where it always does (environment,
files, `fsspec.config`). No credentials are read, written or shown here.
"""

import errno
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from keras_mp.files.stores.errors import Denied, NoDriver, NotThere, StoreError, ThereAlready
from keras_mp.files.stores.urls import TAKEN, is_chain, plain, scheme, without_secrets

T = TypeVar("T")
# Seconds between two tries. A random half is added, so that clients do not all retry at once.
PAUSES = (0.5, 1.0, 2.0, 4.0)
# Seconds until a silent server times out, where the driver itself would wait forever.
SILENCE = 120.0
SFTP = "fsspec.implementations.sftp"
_LONGEST = 400
_PASSING = {408, 425, 429, 500, 502, 503, 504}
_REFUSING = {401, 403, 407}
_GONE = {404, 410}
_NUMBERS = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNABORTED,
    errno.ECONNRESET,
    errno.EIO,
    errno.EPIPE,
    errno.ETIMEDOUT,
    getattr(errno, "EREMOTEIO", errno.EIO),
}
# By name, because their packages may not be installed.
_BROKEN = {
    "ClientPayloadError",
    "ConnectionClosedError",
    "IncompleteRead",
    "IncompleteReadError",
    "ResponseStreamingError",
    "SSHException",
    "ServerDisconnectedError",
}
_NO_ENTRY = {
    "AuthenticationException",
    "BadAuthenticationType",
    "BadHostKeyException",
    "NoCredentialsError",
    "PartialCredentialsError",
    "PasswordRequiredException",
}


def opened(url: str) -> tuple[Any, str]:
    """Returns (file system of fsspec, path in it) for an address.

    Raises:
        NoDriver: fsspec, or the driver, is not installed.
        StoreError: No driver supports such addresses, or it does not reach the store.
    """
    if is_chain(url):
        raise StoreError.of(url, f"files inside another file are not supported: {TAKEN}")
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "fsspec":
            raise
        why = "needs fsspec: pip install 'keras-mp[remote]'"
        raise NoDriver.of(url, why) from None
    try:
        fs, path = url_to_fs(plain(url))
    except ImportError as error:
        needed = next(
            (name for one in _causes(error) if (name := getattr(one, "name", None))), None
        )
        if needed is None:
            raise NoDriver.of(url, _text(error, url)) from None
        package = needed.partition(".")[0]
        raise NoDriver.of(url, f"needs {package}: pip install {package}") from None
    except ValueError as error:
        if "Protocol not known" not in str(error):
            raise
        raise StoreError.of(url, f"fsspec has no driver for {scheme(url)}://: {TAKEN}") from None
    if type(fs).__module__ == SFTP:
        fs.ftp.get_channel().settimeout(SILENCE)  # other drivers do not wait forever
    return fs, path


def with_retries(url: str, work: Callable[[Any, str], T]) -> T:
    """Returns the result of `work(file system, path)`, called with retries.

    Time-outs, broken connections and throttling are retried, with pauses; a refusal is not.

    Raises:
        StoreError: It failed.
    """
    for pause in (*PAUSES, None):
        fs = None
        try:
            fs, path = opened(url)
            return work(fs, path)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - of any driver
            if pause is None or not is_transient(error):
                raise translated(error, url, tries=len(PAUSES) + 1) from None
        if fs is not None:
            type(fs).clear_instance_cache()  # its connection may be broken
        time.sleep(pause * random.uniform(1.0, 1.5))
    raise AssertionError


def is_transient(error: BaseException) -> bool:
    """Returns whether a retry may help after a driver's error."""
    error, status = _root_cause(error), _status(error)
    if status is not None:
        return status in _PASSING
    for one in _causes(error):
        kind = type(one).__name__
        if isinstance(one, TimeoutError | EOFError) or "Timeout" in kind:
            return True
        if kind in _BROKEN or isinstance(one, ConnectionResetError | ConnectionAbortedError):
            return True
        if isinstance(one, OSError) and type(one) is OSError and one.errno in _NUMBERS:
            return True
    return False


def translated(error: BaseException, url: str, *, tries: int = 1) -> StoreError:
    """Returns a driver's error as an error of ours."""
    if isinstance(error, StoreError):
        return error
    error = _root_cause(error)
    text, status = _text(error, url), _status(error)
    names = {type(one).__name__ for one in _causes(error)}
    if is_transient(error):
        again = f", {tries} times" if tries > 1 else ""
        return StoreError.of(url, f"the store did not answer as it should{again}: {text}")
    if status in _REFUSING or isinstance(error, PermissionError) or names & _NO_ENTRY:
        return Denied.of(url, f"the store refuses it: {text}")
    if status in _GONE or (isinstance(error, FileNotFoundError) and status is None):
        return NotThere.of(url, "there is no such file")
    if isinstance(error, FileExistsError):
        return ThereAlready.of(url, "exists already")
    if isinstance(error, NotImplementedError):
        return StoreError.of(url, "the store or its driver does not support that")
    return StoreError.of(url, text)


def _root_cause(error: BaseException) -> BaseException:
    """Returns the cause of an error that a driver turned into "there is no such file"."""
    cause = error.__cause__
    hidden = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    return cause if hidden and isinstance(error, FileNotFoundError) and cause else error


def _text(error: BaseException, url: str) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = str(error.strerror)
    elif not text or not isinstance(error, OSError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    text = without_secrets(text, url)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(8):
        if one is None:
            return
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _status(error: BaseException) -> int | None:
    """Returns the HTTP status of an error, where drivers store it."""
    for one in _causes(error):
        response = getattr(one, "response", None)
        if isinstance(response, dict):  # botocore
            found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if isinstance(found, int):
                return found
        for name in ("status", "status_code", "code"):
            found = getattr(one, name, None)
            if isinstance(found, int) and 400 <= found < 600:
                return found
    return None
