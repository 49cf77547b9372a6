"""The page of a ledger: it says what the rows say, in any parser and in Chromium."""

import json
import re
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings, strategies as st

from keras_mp.migration.ledger_page import ledger_page, write_ledger_page
from keras_mp.migration.ledger_reading import Ledger
from keras_mp.rendering.text import duration, size
from tests import browser
from tests.fuzzing import examples
from tests.html_pages import Page
from tests.ledgers import DIFFERS, HOSTILE, RENAMED, lines, many, row

COUNT = 250
HOSTILE_ROW = row(
    HOSTILE,
    "refused",
    bytes=10**12,
    reason='no </script> "counterpart" & more',
    why=f"{HOSTILE}: <img src=x onerror=alert(1)>",
    changes=[DIFFERS],
    notes=["<b>\x1b[1m"],
)
WRITTEN = [*many(COUNT), HOSTILE_ROW]
LEDGER = Ledger.of([*lines(WRITTEN), b'{"schema": 1'])


@pytest.fixture(scope="module")
def text():
    return ledger_page(LEDGER, "out")


@pytest.fixture(scope="module")
def page(text):
    return Page(text).root


def shown(text):
    """Returns a text as a page may hold it."""
    return re.sub("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


def rows_of(root, identity):
    return list(root.one("table", id=identity).one("tbody").all("tr"))


def check_numbers(root):
    """Asserts that the summary on a page says what the rows say."""
    facts = {each.attributes["id"]: each.data("value") for each in root.one(id="facts").all("dd")}
    results = [each["result"] for each in WRITTEN]
    assert facts["count"] == str(len(WRITTEN))
    for result in ("done", "done before", "refused", "failed"):
        assert facts[result.replace(" ", "-")] == str(results.count(result))
    assert facts["size"] == str(sum(each["bytes"] for each in WRITTEN))
    reasons = [(each["result"], each["reason"]) for each in WRITTEN if each["reason"]]
    assert {
        (each.data("result"), each.data("reason")): int(each.data("count"))
        for each in rows_of(root, "refusals")
    } == {each: reasons.count(each) for each in reasons}
    kinds = [each["kind"] for each in WRITTEN if each["result"] == "done"]
    assert {each.data("name"): int(each.data("done")) for each in rows_of(root, "kinds")} == {
        kind: kinds.count(kind) for kind in kinds
    }
    largest = sorted(WRITTEN, key=lambda each: each["bytes"], reverse=True)[:10]
    assert [(each.data("name"), each.one("td").text) for each in rows_of(root, "bytes")] == [
        (each["name"], size(each["bytes"])) for each in largest
    ]


def test_the_summary_says_what_the_rows_say(page):
    check_numbers(page)
    assert "1 torn line, as a killed run leaves" in page.text
    assert "it ends early" in page.one(id="examples").text
    share = page.one("div", class_="share")
    assert share.attributes["aria-label"].startswith("done ")
    widths = {each.attributes["class"]: each.attributes["style"] for each in share.all("span")}
    results = [each["result"] for each in WRITTEN]
    assert widths["refused"] == f"flex: {results.count('refused')}"


def test_the_rows_are_in_the_page(page):
    found = json.loads(page.one("script", id="rows").text)
    assert found["count"] == len(WRITTEN)

    def values(name):
        column = found["columns"][name]
        return column if isinstance(column, list) else [column["values"][i] for i in column["at"]]

    for key in ("name", "result", "kind", "bytes", "reason", "sha256", "out", "when"):
        assert values(key) == [each[key] for each in WRITTEN], key
    told = [[list(found["changes"][i]) for i in each] for each in values("changes")]
    assert told == [[list(change.values()) for change in each["changes"]] for each in WRITTEN]
    assert values("why")[-1] == "<img src=x onerror=alert(1)>", "without its name once more"


def test_a_row_takes_little_room():
    by_count = {count: len(ledger_page(Ledger.of(lines(many(count))), "out")) for count in (1, 400)}
    assert (by_count[400] - by_count[1]) / 399 < 300, "bytes a row"


def test_nothing_is_loaded_and_one_script_may_run(page, text):
    data, script = page.all("script")
    assert (data.attributes["type"], script.attributes) == ("application/json", {})
    assert text.count("<script") == text.count("</script") == 2, "names are escaped"
    for element in page.all():
        for key, value in element.attributes.items():
            assert not key.startswith("on"), f"{key} of <{element.tag}>"
            if key in ("src", "href", "action", "data", "srcset", "poster"):
                assert value.startswith(("data:", "#")), f"{key}={value}"
    policy = page.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    assert re.fullmatch(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[^']{44}'; "
        "img-src data:",
        policy,
    )
    style = page.one("style").text
    assert "url(" not in style
    assert "@import" not in style


def test_without_a_script_the_page_says_where_the_rows_are(page):
    assert "migration.jsonl" in page.one("noscript").text
    assert "hidden" in page.one(id="all").attributes


def test_ids_are_of_one_element_only(page):
    seen = [each.attributes["id"] for each in page.all() if each.attributes.get("id")]
    assert sorted(seen) == sorted(set(seen))


@settings(deadline=None, max_examples=examples(40))
@given(st.text(min_size=1))
@example("\0\ud800\r\x1b[1m]]></style>--></script><!--<script>\u2028")
def test_any_text_is_shown_as_text(tmp_path_factory, name):
    written = row(
        name,
        "refused",
        reason=name,
        why=name,
        where=name,
        kind=name,
        written_by=name,
        policies={name: 1},
        model={name: name},
        optimizer=name,
        notes=[name],
        changes=[{**RENAMED, "what": name}],
        host=name,
        run=name,
        source=name,
        versions={name: name},
    )
    ledger = Ledger.of(lines([written]))
    text = ledger_page(ledger, name)
    text.encode()
    root = Page(text).root
    for identity in ("refusals", "kinds", "writers", "policies", "bytes", "versions"):
        assert rows_of(root, identity)[0].one("th").text == shown(name)
    # Equal columns are kept once; `values` is there where they are many.
    assert json.loads(root.one("script", id="rows").text)["columns"]["name"] == [name]
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_ledger_page(ledger, name, path)
    assert path.read_bytes().decode() == text


def test_a_ledger_without_rows():
    root = Page(ledger_page(Ledger(()), "out")).root
    assert "The ledger has no artefact." in root.text
    assert root.one("dd", id="count").text == "0"
    assert json.loads(root.one("script", id="rows").text)["count"] == 0


def test_nothing_was_refused():
    root = Page(ledger_page(Ledger.of(lines([row("a")])), "out")).root
    assert not list(root.all("table", id="refusals"))


# In Chromium.


@pytest.fixture(scope="module")
def chromium():
    found = browser.find()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def file(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(text, "utf-8")
    return path


def table(root):
    """Returns the cells of the rows that the table of all artefacts shows."""
    rows = [each for each in rows_of(root, "artefacts") if each.data("name") is not None]
    return [[next(each.all("button")).text, *(c.text for c in each.all("td"))] for each in rows]


def test_chromium_shows_what_the_rows_say(chromium, file):
    found = chromium.open(file)
    assert (found.console, found.requests) == ([], [])
    root = Page(found.dom).root
    check_numbers(root)
    assert "hidden" not in root.one(id="all").attributes
    assert root.one(id="shown").text == f"1 to 100 of {len(WRITTEN)}"
    assert table(root) == [
        [
            each["name"],
            each["result"] if each["reason"] is None else f"{each['result']}: {each['reason']}",
            each["kind"],
            size(each["bytes"]),
            duration(each["seconds"]),
            "" if each["peak_memory"] is None else size(each["peak_memory"]),
            str(sum(change["matters"] for change in each["changes"]) or ""),
        ]
        for each in WRITTEN[:100]
    ]
    links = [next(each.all("a")).attributes["href"] for each in rows_of(root, "refusals")]
    assert "#result=refused&reason=needs+--model" in links


def test_the_address_says_what_is_shown(chromium, file):
    found = chromium.open(file, "q=COUNTERPART+odd+team3&result=refused&sort=-bytes")
    assert (found.console, found.requests) == ([], [])
    root = Page(found.dom).root
    wanted = [
        each
        for each in WRITTEN
        if each["reason"] == "no counterpart" and each["name"].startswith("team3/")
    ]
    names = [each["name"] for each in sorted(wanted, key=lambda each: -each["bytes"])]
    assert len(names) > 1
    assert [each[0] for each in table(root)] == names
    assert root.one(id="shown").text == f"1 to {len(names)} of {len(names)} found in {len(WRITTEN)}"
    sorted_by = [each for each in root.all("th") if "aria-sort" in each.attributes]
    assert [each.data("key") for each in sorted_by] == ["bytes"]


def test_a_row_of_the_address_is_open_whatever_its_name(chromium, file):
    found = chromium.open(file, f"row={quote(shown(HOSTILE))}&q=%3Cb%3Emask")
    assert (found.console, found.requests) == ([], [])
    root = Page(found.dom).root
    assert root.one("button", **{"aria-expanded": "true"}).text == shown(HOSTILE)
    details = root.one("tr", class_="details")
    assert not list(details.all("b")) + list(details.all("img")) + list(details.all("script"))
    for told in (
        "$.layers[1] differs: one <b>mask</b>",
        "<img src=x onerror=alert(1)>",
        shown("<b>\x1b[1m"),
        "0" * 64,
        "mixed_float16: 3, float32: 1",
        "keras: 3.15.1",
        "model_only: false",
    ):
        assert told in details.text


def test_what_is_clicked_and_typed(chromium, text, tmp_path):
    """By a second script, which a copy of the page allows."""
    clicks = """
    const click = (selector) => document.querySelector(selector).click();
    click('th[data-key="seconds"] button');
    click('th[data-key="seconds"] button');
    click("#after");
    click("#artefacts tbody tr:nth-child(3) button");
    document.title = location.hash;
    const shown = [...document.querySelectorAll("#artefacts tbody tr")];
    console.log(JSON.stringify(shown.slice(0, 5).map((each) => each.className)));
    const search = document.getElementById("search");
    search.value = "team3";
    search.form.requestSubmit();  // as Enter does
    """
    path = tmp_path / "page.html"
    free = re.sub("script-src '[^']*'", "script-src 'unsafe-inline'", text)
    path.write_text(free.replace("</body>", f"<script>{clicks}</script></body>"), "utf-8")
    found = chromium.open(path)
    slowest = sorted(WRITTEN, key=lambda each: each["seconds"])
    root = Page(found.dom).root
    name = quote(slowest[102]["name"], "")
    assert root.one("head").one("title").text == f"#sort=seconds&page=2&row={name}"
    assert any('["","","","details",""]' in re.sub(r'\\"', '"', line) for line in found.console)
    assert not list(root.all("tr", class_="details")), "another search closes it"
    assert [each[0] for each in table(root)] == [
        each["name"] for each in slowest if "team3" in each["name"]
    ]


def test_no_other_script_runs(chromium, text, tmp_path):
    path = tmp_path / "page.html"
    other = "<script>document.title = 'taken over'</script></body>"
    path.write_text(text.replace("</body>", other), "utf-8")
    found = chromium.open(path)
    assert Page(found.dom).root.one("head").one("title").text == "Migration to out"
    assert any("Content Security Policy" in line for line in found.console)
