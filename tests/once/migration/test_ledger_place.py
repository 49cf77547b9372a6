"""A ledger in a store: there in time, whole, and without sending it over and over."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from keras_mp.files.stores import objects
from keras_mp.migration import ledger

pytest.importorskip("fsspec")
Patch = pytest.MonkeyPatch


def test_a_local_one_is_where_it_is(tmp_path: Path) -> None:
    with ledger.open_ledger(str(tmp_path)) as place:
        assert place.path == tmp_path / ledger.NAME
        place.saved(now=True)
    assert not place.path.exists()


def test_what_is_sent_is_a_few_times_the_ledger(monkeypatch: Patch) -> None:
    sent: list[int] = []
    write = objects.write_text

    def counting(url: str, text: str, **options: Any) -> None:
        sent.append(len(text))
        write(url, text, **options)

    monkeypatch.setattr(objects, "write_text", counting)
    # A second passes each time that somebody looks at the clock.
    monkeypatch.setattr(time, "monotonic", itertools.count().__next__)
    url = "memory://place/sent"
    with ledger.open_ledger(url) as place:
        writer = ledger.Writer(place.path)
        for i in range(3000):
            writer.append({"name": f"{i:04}"})
            place.saved()
        writer.close()
        size = place.path.stat().st_size
    assert 20 < len(sent) < 60
    assert sum(sent) < 8 * size
    text = objects.read_text(f"{url}/{ledger.NAME}")
    assert text is not None
    assert len(text) == size
    before = len(sent)
    with ledger.open_ledger(url) as place:
        assert place.path.read_text() == text
        place.saved(now=True)
    assert len(sent) == before, "what is there is not sent again"


def test_it_waits_and_is_there_at_the_end(monkeypatch: Patch) -> None:
    url = "memory://place/waits"

    def write() -> None:
        with ledger.open_ledger(url) as place:
            place.path.write_text('{"name": "a"}\n')
            place.saved()
            assert objects.read_text(f"{url}/{ledger.NAME}") is None, "not yet"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert objects.read_text(f"{url}/{ledger.NAME}") == '{"name": "a"}\n'
