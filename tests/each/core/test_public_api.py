"""What users may rely on is written down: tests/data/api.txt."""

from tests import public_api, reference


def test_it_is_as_written_down():
    """A line that goes or changes breaks users: docs/reference/compatibility.md says how it may."""
    expected = public_api.FILE.read_text(encoding="utf-8").splitlines()
    assert list(public_api.lines()) == expected, "run python tests/public_api.py and read the diff"


def test_the_reference_is_up_to_date():
    """docs/reference/api.md as GitHub shows it: names, summaries, links to the source."""
    there = reference.PAGE.read_text(encoding="utf-8")
    assert reference.page() == there, "run python -m tests.reference and read the diff"
