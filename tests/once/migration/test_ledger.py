"""The ledger: whole lines, whoever else writes, and whatever became of the one before."""

import os
import threading
from pathlib import Path

import pytest

from keras_mp.migration import ledger


def row(name: str, **others: object) -> ledger.Row:
    return {"name": name, "result": "done", "versions": {"keras_mp": "1"}, **others}


def append(path: Path, *rows: ledger.Row) -> None:
    writer = ledger.Writer(path)
    for one in rows:
        writer.append(one)
    writer.close()


def test_of_several_rows_of_a_name_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME
    assert ledger.read_contents(path).known == {}
    append(path, row("a", result="failed"), row("b", bytes=3))
    append(path, row("a", sha256="x", why=float("nan")))
    known = ledger.read_contents(path).known
    assert {name: one.kept["result"] for name, one in known.items()} == {"a": "done", "b": "done"}
    assert (known["a"].kept["sha256"], known["b"].kept["bytes"]) == ("x", 3)
    assert known["a"].keras_mp == "1"
    assert ledger.row_at(path, known["a"].start)["why"] == "nan"
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("torn", [b'{"name": "b", "res', b'{"name": "b"', b"[1]", b'{"a": 1}'])
def test_a_torn_line_costs_only_itself(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME
    append(path, row("a"))
    path.write_bytes(path.read_bytes() + torn)
    found = ledger.read_contents(path)
    assert (list(found.known), found.torn) == (["a"], 1)
    append(path, row("c"))
    found = ledger.read_contents(path)
    assert (list(found.known), found.torn) == (["a", "c"], 1)
    with pytest.raises(ValueError, match="there is no row"):
        ledger.row_at(path, path.read_bytes().index(torn))


def test_lines_of_several_writers_are_whole(tmp_path: Path) -> None:
    path = tmp_path / ledger.NAME

    def write(who: int) -> None:
        append(path, *(row(f"{who}/{i}", why="x" * 5000) for i in range(50)))

    threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One that opens it while another writes may take that for a torn line, and leaves a blank one.
    found = [row for _, row in ledger.rows(path)]
    assert len({row["name"] for row in found}) == len(found) == 200


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ledger.Writer(tmp_path / ledger.NAME)
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:10]))
    with pytest.raises(OSError, match="No space left on device"):
        writer.append(row("a"))
    monkeypatch.undo()
    writer.close()
    append(tmp_path / ledger.NAME, row("b"))
    found = ledger.read_contents(tmp_path / ledger.NAME)
    assert (list(found.known), found.torn) == (["b"], 1)
