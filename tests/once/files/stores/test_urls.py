"""Addresses, and that nothing of them that is secret is shown."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from keras_mp.files.stores.errors import StoreError
from keras_mp.files.stores.urls import (
    is_chain,
    is_inside,
    is_url,
    join,
    local_of,
    name,
    parent,
    plain,
    redacted,
    scheme,
    without_secrets,
)

_SECRET = st.text("abcXYZ0189:@/?#!$&'()*+,;=-._~%", min_size=1, max_size=20).map("s3cr".__add__)


@given(_SECRET, st.sampled_from(["sftp", "ftp", "smb", "https", "http", "s3"]))
def test_no_password_is_shown(secret: str, scheme: str) -> None:
    url = f"{scheme}://me:{secret}@host:22/a/b.keras"
    assert secret not in redacted(url)
    said = without_secrets(f"cannot open {url} with {secret}", url)
    assert secret not in said
    error = StoreError.of(url, "is not there")
    assert secret not in f"{error} {error!r} {error.args}"


@given(_SECRET)
def test_no_query_is_shown(secret: str) -> None:
    url = f"https://host/a.keras?signature={secret}&x=1"
    assert secret not in redacted(url)
    assert secret not in without_secrets(f"GET {url} gave 403, {secret}", url)


def test_what_is_left_is_shown() -> None:
    shown = "sftp://me:***@host:22/a/b.keras"
    assert [
        redacted(f"sftp://me:{pw}@host:22/a/b.keras") for pw in ("pw", "p@w", "p/w", "p?w")
    ] == ([shown] * 4)


def test_a_token_in_place_of_a_user() -> None:
    assert redacted("https://t0ken@host/a") == "https://***@host/a"
    assert redacted("sftp://me@host/a@b") == "sftp://me@host/a@b"
    assert redacted("s3://bucket/a@b:c") == "s3://bucket/a@b:c"


@pytest.mark.parametrize(
    ("path", "expected"),
    [("s3://a/b", True), ("gs://a", True), ("abfs+x://a", True), ("http://a", True)]
    + [
        (each, False)
        for each in ("a/b", "C:/a", "c://a", "/a", "file:///a", "local://a", "a:b", "")
    ]
    + [(Path("s3://a"), False)],
)
def test_what_an_address_is(path: object, expected: bool) -> None:
    assert is_url(path) is expected


@pytest.mark.parametrize("cache", ["simplecache::", "filecache://::", "BlockCache::", "cached::"])
def test_caches_are_left_out(cache: str) -> None:
    address = f"{cache}s3://bucket/a/b.keras"
    assert is_url(address)
    assert not is_chain(address)
    assert plain(address) == "s3://bucket/a/b.keras"
    assert plain(f"{cache}file:///a/b%20c") == plain(f"{cache}local:///a/b c") == "/a/b c"
    assert not is_url(f"{cache}file:///a")
    assert (scheme(address), name(address), parent(address)) == (
        "s3",
        "b.keras",
        f"{cache}s3://bucket/a",
    )
    assert is_inside(address, "s3://bucket/a")
    web = f"{cache}https://me:secret@host/a?signature=secret"
    assert join(web, "b") == f"{cache}https://me:secret@host/a/b?signature=secret"
    assert redacted(web) == "https://***@host/a?***"


@pytest.mark.parametrize(
    "path", ["a::b", "simplecache::a", "/a::b", "C:/a", "models/a.keras", "s3://a", "tar::/a.tar"]
)
def test_others_are_plain(path: str) -> None:
    assert plain(path) == path


@pytest.mark.parametrize(
    "path", ["zip://a.h5::s3://b/a.zip", "simplecache::zip://a.h5::file:///b.zip"]
)
def test_what_is_inside_another_file(path: str) -> None:
    assert is_chain(path)


def test_parts() -> None:
    assert parent("s3://bucket/a/") == "s3://bucket"
    assert name("s3://bucket/a/") == "a"
    assert parent("https://host/a/b?x=1") == "https://host/a?x=1"
    assert join("https://host/a?x=1", "b") == "https://host/a/b?x=1"
    assert name("s3://bucket/a?b") == "a?b"
    assert join("memory://", "a") == "memory://a"
    assert local_of("file:///a/b%20c") == Path("/a/b c")
    assert local_of("file://localhost/a") == Path("/a")
