"""A summary says what is counted by hand."""

import json
import re
from collections import defaultdict

import pytest

from keras_mp.migration import LedgerSummary
from keras_mp.migration.ledger import RESULTS
from keras_mp.migration.ledger_reading import Ledger, Row
from keras_mp.migration.ledger_summary import summary
from tests.ledgers import VERSIONS, lines, many, row

COUNT = 500
WRITTEN = many(COUNT)


@pytest.fixture(scope="module")
def found():
    return summary(Ledger.of(lines(WRITTEN)))


def by_hand(key):
    """Counts the results of the names that `key` gives for a row."""
    counts = defaultdict(lambda: defaultdict(int))
    for each in WRITTEN:
        for name in key(each):
            counts[name][each["result"]] += 1
    return {name: dict(each) for name, each in counts.items()}


def test_counts(found):
    results = [each["result"] for each in WRITTEN]
    assert found.artefacts == COUNT
    assert found.results == {result: results.count(result) for result in RESULTS}
    assert all(found.results.values())
    assert found.kinds == by_hand(lambda each: [each["kind"]])
    assert found.writers == by_hand(lambda each: [each["written_by"]])
    assert found.policies == by_hand(lambda each: each["policies"])
    totals = [sum(each.values()) for each in found.kinds.values()]
    assert totals == sorted(totals, reverse=True)
    assert found.versions == {name: {version: COUNT} for name, version in VERSIONS.items()}


def test_bytes_and_seconds(found):
    done = [each for each in WRITTEN if each["result"].startswith("done")]
    assert found.bytes == sum(each["bytes"] for each in WRITTEN)
    assert found.bytes_done == sum(each["bytes"] for each in done)
    assert found.bytes_out == 900 * len(done)
    assert found.seconds == pytest.approx(sum(each["seconds"] for each in WRITTEN))
    timed = [each for each in done if each["seconds"]]
    rate = sum(each["bytes"] for each in timed) / sum(each["seconds"] for each in timed)
    assert found.bytes_per_second == pytest.approx(rate)
    reads = [each for each in done if any(change["matters"] for change in each["changes"])]
    assert found.matters == len(reads) > 0


def test_refusals(found):
    for each in found.refusals:
        rows = [
            row for row in WRITTEN if (row["result"], row["reason"]) == (each.result, each.reason)
        ]
        assert each.count == len(rows) > 0
        assert each.bytes == sum(row["bytes"] for row in rows)
        kinds = [row["kind"] for row in rows]
        assert each.kinds == {kind: kinds.count(kind) for kind in kinds}
        assert each.examples[0].name == rows[0]["name"]
        assert len(each.examples) == 1, "they differ in names and numbers alone"
    counts = [each.count for each in found.refusals]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == found.results["refused"] + found.results["failed"]


def test_examples_are_of_what_differs():
    whys = ["a.h5 is odd", "b.h5 is odd", "c.h5 is even", "d.h5 is none", "e.h5 is all"]
    rows = [Row(why[:4], "refused", reason="odd", why=why) for why in whys]
    (refusal,) = summary(Ledger(tuple(rows))).refusals
    assert [each.name for each in refusal.examples] == ["a.h5", "c.h5", "d.h5"]


def test_largest_slowest_and_most_memory(found):
    for shown, key in (
        (found.largest, "bytes"),
        (found.slowest, "seconds"),
        (found.most_memory, "peak_memory"),
    ):
        known = [each for each in WRITTEN if each[key]]
        expected = sorted(known, key=lambda each: each[key], reverse=True)[:10]
        assert [each.name for each in shown] == [each["name"] for each in expected]


def test_runs_by_the_clock():
    rows = [row("a", when="2030-01-31T12:00:00Z"), row("b", when="2030-01-31T13:00:01.500000")]
    (run,) = summary(Ledger.of(lines(rows))).to_dict()["runs"]
    assert run["seconds"] == 3601.5
    assert run["rows"] == {"done": 2}
    (run,) = summary(Ledger.of(lines([row("a", when=None)]))).to_dict()["runs"]
    assert run["seconds"] is None


def test_nothing_is_summed_up_to_nothing():
    found = summary(Ledger(()))
    assert (found.artefacts, found.seconds, found.bytes_per_second) == (0, 0, None)
    assert set(found.results.values()) == {0}
    assert found.refusals == found.largest == ()


def test_what_is_not_known_is_called_so():
    found = summary(Ledger((Row("a", "failed"), Row("b", "done"))))
    assert found.kinds == found.writers == {"unknown": {"failed": 1, "done": 1}}
    assert [(each.result, each.reason) for each in found.refusals] == [("failed", "unknown")]


def test_as_json(found):
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["results"] == found.results
    assert plain["largest"][0] == {
        "name": found.largest[0].name,
        "result": found.largest[0].result,
        "bytes": found.largest[0].bytes,
    }
    first = plain["refusals"][0]
    assert first["examples"][0].keys() == {"name", "where", "why"}
    assert set(plain) == set(found.__slots__)


def test_is_read_from_the_folder(tmp_path):
    (tmp_path / "migration.jsonl").write_bytes(b"".join(lines(WRITTEN)))
    for path in (tmp_path, tmp_path / "migration.jsonl"):
        assert LedgerSummary.load(path) == summary(Ledger.of(lines(WRITTEN)))
    with pytest.raises(ValueError, match=r"nowhere: there is no migration\.jsonl here"):
        LedgerSummary.load(tmp_path / "nowhere")


def test_as_text_and_in_a_notebook(found, capsys):
    text, shown = str(found), found._repr_html_()
    assert text.startswith(f"{found.artefacts} artefacts in ")
    assert shown.startswith('<div class="keras-mp">')
    for each in found.refusals:
        assert [each.reason, each.result, f"{each.count:,}"] in [
            re.split("  +", line)[:3] for line in text.splitlines()
        ]
        assert f">{each.reason}</th>" in shown
    assert capsys.readouterr() == ("", "")


def test_names_are_escaped():
    name = "<b>\x1b[2J"
    found = summary(Ledger((Row(name, "failed", reason="odd", why="it is odd", bytes=1),)))
    assert "\x1b" not in str(found)
    assert "<b>" not in found._repr_html_()
