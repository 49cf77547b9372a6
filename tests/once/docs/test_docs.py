"""The reference has every public name, and the site every page."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
API = (ROOT / "tests" / "data" / "api.txt").read_text(encoding="utf-8").splitlines()
REFERENCE = ROOT / "docs" / "reference" / "api.md"


def test_the_reference_has_every_public_name():
    page = REFERENCE.read_text(encoding="utf-8")
    there = set(re.findall(r"^- \[`(\S+)`\]", page, re.MULTILINE))
    public = {re.split(r"[( ]", line)[0] for line in API if line.startswith("keras_mp.")}
    assert there <= public
    for name in public - there:
        assert name.rpartition(".")[0] in there, f"{name} is not in docs/reference/api.md"


def test_the_site_has_every_page():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f"- {page.relative_to(ROOT / 'docs').as_posix()}\n" in nav


def test_each_page_is_of_one_kind():
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.parent.name in ("tutorials", "how-to", "reference", "explanation"), page
