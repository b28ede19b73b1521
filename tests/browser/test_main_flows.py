"""The main flows of the web UI on every screen size, in light and dark mode. They run in `make prove` only."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.analysis.observed_run import ObservedRun, define_tool, words
from tests.browser.accessibility import shut_out
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.scripted_model import SPEC, Model, calls, text_reply
from tests.browser.server import served
from tests.browser.test_inspector_compare import clocked
from tests.browser.test_shared_file import opened

SIZES = [(1440, 900), (1280, 720), (768, 1024), (390, 844)]
TOUCH = 1_000
"""Narrower screens are touch screens."""
DRAWER = 832
"""Up to this width the list of conversations is a drawer."""
OVERFLOW = """() => [...document.querySelectorAll("html, .view")]
  .filter((each) => each.scrollWidth > innerWidth).map((each) => `${each.className} is ${each.scrollWidth} wide`)"""
CUT_OFF = """() => {
  const isReached = ({ overflowX, textOverflow }) => /auto|scroll/.test(overflowX) || textOverflow === "ellipsis";
  const isInClosedDrawer = (each) => {  // entries that are not rendered keep the visibility that they had
    const drawer = each.closest(".sidebar");
    return drawer && getComputedStyle(drawer).visibility === "hidden";
  };
  const scrolls = (each) => {
    for (let at = each.parentElement; at; at = at.parentElement)
      if (at.scrollWidth > at.clientWidth && isReached(getComputedStyle(at))) return true;
    return false;
  };
  return [...document.querySelectorAll("button, a[href], input, select, textarea, summary, h1, h2, th, td, dd")]
    .filter((each) => each.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
    .map((each) => [each, each.getBoundingClientRect()])
    .filter(([, { width, height, left, right }]) => width > 1 && height > 1 && (left < -1 || right > innerWidth + 1))
    .filter(([each]) => !each.closest(".skip") && !scrolls(each) && !isInClosedDrawer(each))
    .map(([each, { left, right }]) => `${each.outerHTML.slice(0, 120)} from ${left} to ${right}`);
}"""
"""Controls and texts that are beside the screen, where no scrolling reaches them and no ellipsis shows it."""
BRIGHTNESS = """() => {
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.fillStyle = getComputedStyle(document.body).backgroundColor;
  canvas.fillRect(0, 0, 1, 1);
  return Math.max(...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3));
}"""
ANSWER = "# An answer\n\nWith `code` and a [link](https://example.com).\n\n| a | b |\n|---|---|\n| 1 | 2 |"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.parametrize("scheme", ["light", "dark"]),
    pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}"),
]


class Recorded(NamedTuple):
    """A server with an observed conversation that has findings, and with two runs that differ: `one` and `two`."""

    url: str
    run: str


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("recorded")
    with cc.open_store(f"sqlite:///{folder}/served.db") as store:
        run = ObservedRun(tools=[define_tool("read"), define_tool("draw", 3_000)], store=store)
        run.ask("Read the log of the import of last night, and find out why it took so long.")
        run.fail(529, "Overloaded, try again")
        run.call("read", words(8_000), path="huge.log")
        for number in range(10):
            run.call("read", f"line {number}", path=f"{number}.txt")
            if number % 3 == 0:
                run.system, run.cached = f"You help. It is {number} o'clock.", 0
        run.send()
        clocked(store, "one").turn("left")
        clocked(store, "two").turn("right")
        with served(store, ServerOptions(root=folder, model=SPEC)) as url:
            yield Recorded(url, run.conversation)


@pytest.fixture
def look(size: tuple[int, int], scheme: str) -> dict[str, Any]:  # the options of a context
    width, height = size
    return {"viewport": {"width": width, "height": height}, "color_scheme": scheme, "has_touch": width < TOUCH}


@pytest.fixture
def reader(recorded: Recorded, model: Model, visiting: Visit, look: dict[str, Any]) -> Person:
    return visiting(recorded.url, **look)


def fits(page: Page, scheme: str) -> None:
    """Assert the theme, that nothing is beside the screen, and that axe finds nothing."""
    assert shut_out(page) == []
    assert page.evaluate(OVERFLOW) == []
    assert page.evaluate(CUT_OFF) == []
    assert (page.evaluate(BRIGHTNESS) < 100) == (scheme == "dark")


def inspected(person: Person, name: str, tab: str) -> Locator:
    """Open a tab of the inspector at the last request, and wait for its content; its panel."""
    person.inspects(name, f"?tab={tab}")
    panel = person.page.get_by_role("tabpanel")
    expect(person.page.get_by_test_id("totals").get_by_role("status")).to_have_count(0)
    expect(panel.get_by_role("status", name="Loading")).to_have_count(0)
    expect(person.page.get_by_role("tab", selected=True)).to_be_in_viewport(ratio=1)
    return panel


def test_findings(reader: Person, recorded: Recorded, scheme: str) -> None:
    """Guarantee 13.1: from a finding to the place in the request, and to the changes."""
    panel = inspected(reader, recorded.run, "findings")
    group = panel.get_by_test_id("cause").filter(has_text="CAC006")
    expect(panel.get_by_test_id("finding").first).to_be_in_viewport()
    group.get_by_test_id("all-requests").locator("summary").click()
    group.get_by_role("button", name="Show").click()
    fits(reader.page, scheme)
    group.get_by_test_id("finding").first.get_by_test_id("place").first.click()
    expect(reader.page.locator(".json-row.is-active")).to_be_in_viewport()
    fits(reader.page, scheme)
    reader.page.go_back()
    group.get_by_test_id("finding").first.get_by_role("link", name="Changes of request").click()
    expect(panel.get_by_test_id("difference").first.locator("ins").first).to_be_in_viewport()
    reader.page.get_by_test_id("timeline-button").click()
    expect(reader.page.get_by_test_id("timeline").locator("g.column")).to_have_count(13)
    fits(reader.page, scheme)


def test_rows(reader: Person, recorded: Recorded, scheme: str) -> None:
    """Guarantee 13.1: rows are filtered, searched and opened."""
    lines = inspected(reader, recorded.run, "messages").get_by_test_id("lines")
    expect(lines.locator(".line").first).to_be_in_viewport()
    fits(reader.page, scheme)
    reader.shows_filters()
    lines.get_by_label("Tool", exact=True).select_option("read")
    lines.get_by_label("Cause").select_option("result")
    expect(lines.get_by_test_id("active-filters").get_by_role("listitem")).to_have_count(2)
    lines.get_by_role("searchbox").fill("line 7")
    hit = lines.locator(".line.is-target")
    expect(hit.locator(".line-open mark").first).to_be_in_viewport()
    fits(reader.page, scheme)
    lines.get_by_test_id("active-filters").get_by_role("button", name="Remove all").click()
    hit.get_by_test_id("as-sent").get_by_role("button", name="Go to the call").click()
    expect(hit.get_by_test_id("as-sent")).to_contain_text("7.txt")
    fits(reader.page, scheme)


def test_composition(reader: Person, recorded: Recorded, scheme: str) -> None:
    """Guarantee 13.1: the map opens down to a tool; the table and the chart over all requests have the same parts."""
    panel = inspected(reader, recorded.run, "composition")
    tree = panel.get_by_role("tree")
    expect(tree.get_by_role("treeitem").first).to_be_in_viewport()
    fits(reader.page, scheme)
    tree.get_by_role("treeitem", name=re.compile("^Tool results")).click()
    tree.get_by_role("treeitem", name=re.compile("^read")).click()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^huge\.log"))).to_be_in_viewport()
    fits(reader.page, scheme)
    panel.get_by_role("button", name="All requests").click()
    panel.get_by_role("button", name="Table").click()
    expect(panel.get_by_test_id("composition-table")).to_be_in_viewport()
    fits(reader.page, scheme)
    reader.page.get_by_test_id("timeline-button").click()
    views = reader.page.get_by_role("group", name="Timeline view")
    views.get_by_role("button", name="Composition", exact=True).click()
    expect(reader.page.get_by_test_id("composition-over-time").locator("g.column").first).to_be_in_viewport()
    fits(reader.page, scheme)


def test_compare(reader: Person, scheme: str) -> None:
    """Guarantee 13.1: two requests, and two runs."""
    panel = inspected(reader, "one", "diff")
    reader.page.get_by_role("button", name="Previous request").click()
    expect(panel.get_by_test_id("difference").first).to_be_in_viewport()
    panel.get_by_role("button", name="Side by side").click()
    expect(panel.locator(".compare-sides").first).to_be_visible()
    fits(reader.page, scheme)
    panel.get_by_test_id("pick-request").click()
    picker = reader.page.get_by_test_id("request-picker")
    expect(picker.get_by_role("button", name=re.compile("Request 1"))).to_be_in_viewport()
    fits(reader.page, scheme)
    picker.get_by_role("button", name=re.compile("Request 1")).click()
    expect(panel.get_by_test_id("difference").first.locator("del").first).to_be_visible()
    reader.page.get_by_test_id("compare-runs").click()
    page = reader.page.get_by_test_id("compare")
    page.get_by_test_id("picker-search").fill("two")
    fits(reader.page, scheme)
    page.get_by_role("button", name=re.compile("two")).click()
    expect(page.get_by_test_id("first-difference")).to_contain_text("Request 3 differs")
    expect(page.get_by_role("link", name="Show the difference")).to_be_in_viewport()
    expect(page.get_by_role("heading", name="Cost by cause")).to_be_visible()
    fits(reader.page, scheme)


def test_share(
    reader: Person, recorded: Recorded, visiting: Visit, look: dict[str, Any], tmp_path: Path, scheme: str
) -> None:
    """Guarantee 13.1: a file is downloaded without tool results, and shown without a server."""
    inspected(reader, recorded.run, "messages")
    reader.page.get_by_test_id("share").click()
    expect(reader.page.get_by_role("menu")).to_be_in_viewport(ratio=1)
    fits(reader.page, scheme)
    reader.page.get_by_role("menu").get_by_text("Download HTML file").click()
    dialog = reader.page.get_by_test_id("share-dialog")
    expect(dialog.get_by_role("button", name="Download")).to_be_in_viewport(ratio=1)
    fits(reader.page, scheme)
    dialog.get_by_role("checkbox", name=re.compile("^Tool results")).check()
    with reader.page.expect_download() as saved:
        dialog.get_by_role("button", name="Download").click()
    page = opened(visiting, tmp_path, saved.value.path().read_bytes(), **look).page
    fits(page, scheme)
    page.get_by_role("combobox", name="Request").select_option(index=4)
    expect(page.get_by_role("heading", name="Request 5")).to_be_visible()
    page.get_by_role("combobox", name="Filter").select_option("Tool results")
    expect(page.get_by_test_id("row")).to_have_count(3)
    page.get_by_test_id("row").first.locator("summary").click()
    expect(page.get_by_test_id("row").first).to_contain_text("[redacted: ")
    expect(page.get_by_test_id("row").first.get_by_text("messages[2]")).to_be_visible()
    fits(page, scheme)


def test_overview(reader: Person, recorded: Recorded, size: tuple[int, int], scheme: str) -> None:
    """Guarantee 13.1: from the list of conversations to the overview, to a search, and to the findings of a row."""
    reader.open()
    expect(reader.composer).to_be_visible()
    if size[0] <= DRAWER:
        reader.page.get_by_role("button", name="Conversations").click()
    fits(reader.page, scheme)
    reader.page.get_by_test_id("overview-link").click()
    if size[0] <= DRAWER:
        expect(reader.page.get_by_test_id("overview-link")).to_be_hidden()
    rows = reader.page.get_by_test_id("overview-row")
    expect(rows).to_have_count(3)
    expect(reader.page.get_by_test_id("totals")).to_be_in_viewport(ratio=1)
    expect(reader.page.get_by_test_id("causes").get_by_role("link").first).to_be_visible()
    if size[0] <= DRAWER:  # without a heading of the table
        by_name = reader.page.get_by_role("combobox", name="Sort by")
        by_name.select_option("name up")
        expect(by_name).to_have_value("name up")
    else:
        by_name = reader.page.get_by_test_id("overview-table").get_by_role("button", name="Conversation", exact=True)
        by_name.click()
        expect(reader.page.locator("th[aria-sort]")).to_contain_text("Conversation")
        expect(by_name).to_be_in_viewport(ratio=1)
    fits(reader.page, scheme)
    reader.page.get_by_label("Name or title").fill("log")
    expect(rows).to_have_count(1)
    rows.get_by_test_id("row-findings").get_by_role("link").click()
    linked = parse_qs(urlsplit(reader.page.url).fragment.partition("?")[2])["finding"][0]
    expect(reader.page.locator(f"[data-testid=cause][data-code={linked}]")).to_be_in_viewport()
    reader.open("#/search?q=clock")
    expect(reader.page.get_by_test_id("searched")).to_be_visible()
    fits(reader.page, scheme)


def test_chat_with_approval(
    server: str, visiting: Visit, model: Model, look: dict[str, Any], options: ServerOptions, scheme: str
) -> None:
    """Guarantees 11.12, 12.2: the action is in view before it is allowed; the answer and its call can be read."""
    person = visiting(server, **look)
    model.will(
        calls(("write_file", {"path": "a.txt", "content": "hello\n" * 12}), id="w", first="I write it."),
        text_reply(ANSWER, thinks="How to put it?"),
    )
    person.begins("Write the file, and tell me about it")
    asked = person.page.get_by_test_id("approval")
    for button in ("Allow", "Deny"):
        expect(asked.get_by_role("button", name=button)).to_be_enabled()
        expect(asked.get_by_role("button", name=button)).to_be_in_viewport(ratio=1)
    expect(asked.locator("pre")).to_be_in_viewport()
    fits(person.page, scheme)
    asked.get_by_role("button", name="Allow").click()
    expect(person.page.get_by_role("heading", name="An answer")).to_be_in_viewport()
    person.sees_ended()
    assert (options.root / "a.txt").exists()
    person.page.get_by_test_id("tool-call").first.get_by_role("button").first.click()
    expect(person.composer).to_be_in_viewport(ratio=1)
    fits(person.page, scheme)
    person.page.get_by_test_id("inspect").click()
    expect(person.page.get_by_test_id("step")).to_be_visible()
    fits(person.page, scheme)
