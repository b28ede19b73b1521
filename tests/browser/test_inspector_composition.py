"""Composition by cause in the inspector: bar, window gauge, treemap, table, and the chart over all requests."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.accessibility import shut_out
from tests.browser.conftest import DESK, Visit
from tests.browser.page_driver import Person
from tests.browser.sample_conversations import busy
from tests.browser.scripted_model import SPEC, Model
from tests.browser.server import served
from tests.web.sample_conversations import SONNET, Life, provider_of
from tests.web.test_composition import observed

MANY = 2_000
MOST_COLUMNS = 400


class Seen(NamedTuple):
    """A server that is only looked at, and the name of an observed conversation."""

    url: str
    run: str


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """One for all tests that change nothing."""
    folder = tmp_path_factory.mktemp("seen")
    with cc.open_store(f"sqlite:///{folder}/served.db") as store:
        busy(store)
        run = observed(store)
        with served(store, ServerOptions(root=folder, model=SPEC)) as url:
            yield Seen(url, run.conversation)


@pytest.fixture
def reader(seen: Seen, model: Model, visiting: Visit) -> Person:
    """Return a driver with the last request of the observed conversation."""
    person = visiting(seen.url).inspects(seen.run)
    expect(bar(person).locator(".bar-part")).to_have_count(6)
    return person


def bar(person: Person) -> Locator:
    return person.page.get_by_test_id("budget").first.get_by_test_id("budget-bar")


def parts(person: Person) -> dict[str, int]:
    """Return the tokens of the parts of the bar, by their names."""
    labels = [each.get_attribute("aria-label") or "" for each in bar(person).locator(".bar-part").all()]
    found = [re.match(r"(.*): (?:≈ )?([\d,]+) tokens", each) for each in labels]
    return {each[1]: int(each[2].replace(",", "")) for each in found if each is not None}


def wait_for_query(person: Person, *pairs: str) -> None:
    for each in pairs:
        expect(person.page).to_have_url(re.compile(rf"[?&]{re.escape(each)}(&|$)"))


def test_the_bar_is_the_request_and_the_gauge_is_the_window(seen: Seen, model: Model, visiting: Visit) -> None:
    """Guarantees 7.1, 13.1: causes add up to the tokens of the request, the gauge to the context window."""
    person = visiting(seen.url).inspects("demo")
    for request, tokens in (("Request 10", 2_400), ("Request 9", 2_300)):
        budget = person.page.get_by_test_id("budget")
        expect(person.page.get_by_test_id("step").get_by_role("heading", level=2)).to_contain_text(request)
        expect(bar(person)).to_have_attribute("aria-label", f"{tokens:,} input tokens by cause")
        found = parts(person)
        assert {"System prompt", "Tool definitions", "History", "Added by the provider or program"} == {*found}
        assert sum(found.values()) == tokens
        gauge = budget.get_by_test_id("window-gauge")
        expect(gauge).to_contain_text(f"Context window 3,600 · used: {tokens:,} of 3,600 tokens")
        expect(gauge).to_contain_text("1,000 kept for the answer")
        sizes = gauge.locator(".gauge-part").evaluate_all("all => all.map((each) => Number(each.dataset.tokens))")
        assert sum(sizes) == 3_600
        widths = (
            bar(person).locator("> .bar-part").evaluate_all("all => all.reduce((sum, one) => sum + one.offsetWidth, 0)")
        )
        assert widths <= bar(person).evaluate("bar => bar.offsetWidth") + 1
        person.page.get_by_role("button", name="Previous request").click()
    expect(person.page.get_by_test_id("budget-wanted")).to_contain_text("were kept")


@pytest.mark.thorough
def test_a_part_filters_the_messages(reader: Person) -> None:
    """By click and by keyboard; its figures appear on hover and on focus; the same part again removes the filter."""
    reader.tab("Request")
    results = bar(reader).get_by_role("button", name=re.compile("^read results"))
    results.hover()
    bubble = reader.page.locator(".part-bubble")
    expect(bubble).to_contain_text("from cache")
    expect(bubble).to_contain_text("≈")
    results.click()
    wait_for_query(reader, "tab=messages", "cause=result", "tool=read")
    expect(results).to_have_attribute("aria-pressed", "true")
    expect(reader.page.get_by_role("tab", name=re.compile("^Messages"))).to_have_attribute("aria-selected", "true")
    results.click()
    expect(results).to_have_attribute("aria-pressed", "false")
    expect(reader.page).not_to_have_url(re.compile("cause="))
    history = bar(reader).get_by_role("button", name=re.compile("^History"))
    history.focus()
    expect(bubble).to_contain_text("History")
    reader.page.keyboard.press("Enter")
    wait_for_query(reader, "cause=history")
    expect(reader.page).not_to_have_url(re.compile("tool="))
    reader.page.locator(".budget-legend li", has_text="Media").first.click()
    wait_for_query(reader, "cause=media")


@pytest.mark.thorough
def test_the_treemap_opens_down_to_a_message(reader: Person) -> None:
    """By click, and back by the breadcrumb; a result leads to its message."""
    panel = reader.tab("Composition")
    tree = panel.get_by_role("tree")
    expect(tree.get_by_role("treeitem")).to_have_count(6)
    tree.get_by_role("treeitem", name=re.compile("^Tool results")).click()
    expect(tree.get_by_role("treeitem")).to_have_count(1)
    wait_for_query(reader, "in=result")
    tree.get_by_role("treeitem", name=re.compile("^read")).click()
    expect(tree.get_by_role("treeitem")).to_have_count(2)
    crumbs = panel.get_by_role("navigation", name="Place in the composition")
    expect(crumbs).to_have_text(re.compile("Request 6.*Tool results.*read$"))
    reader.page.reload()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^a\.txt"))).to_be_visible()
    crumbs.get_by_role("button", name="Request 6").click()
    expect(tree.get_by_role("treeitem")).to_have_count(6)
    tree.get_by_role("treeitem", name=re.compile("^Tool results")).click()
    tree.get_by_role("treeitem", name=re.compile("^read")).click()
    tree.get_by_role("treeitem", name=re.compile(r"^a\.txt")).click()
    wait_for_query(reader, "tab=messages", "line=2")


@pytest.mark.thorough
def test_the_treemap_by_keyboard(reader: Person) -> None:
    """One tab stop: arrows go to neighbours and not to other requests, Enter opens, Escape goes back."""
    tree = reader.tab("Composition").get_by_role("tree")
    first = tree.get_by_role("treeitem", name=re.compile("^Tool results"))
    first.focus()
    reader.page.keyboard.press("ArrowRight")
    expect(first).not_to_be_focused()
    expect(tree.locator("[tabindex='0']")).to_be_focused()
    expect(tree.locator("[tabindex='0']")).to_have_count(1)
    reader.page.keyboard.press("Home")
    expect(first).to_be_focused()
    reader.page.keyboard.press("Enter")
    expect(tree.get_by_role("treeitem", name=re.compile("^read"))).to_be_focused()
    reader.page.keyboard.press("Escape")
    expect(first).to_be_focused()
    expect(reader.page.get_by_test_id("step")).to_contain_text("Request 6")


@pytest.mark.thorough
def test_tiles_have_the_area_of_their_tokens(reader: Person) -> None:
    tree = reader.tab("Composition").get_by_role("tree")
    expect(tree.get_by_role("treeitem")).to_have_count(6)
    boxes = tree.get_by_role("treeitem").evaluate_all(
        "all => all.map((each) => [each.offsetWidth * each.offsetHeight, Number(each.dataset.tokens)])"
    )
    area, total = tree.evaluate("tree => tree.clientWidth * tree.clientHeight"), sum(tokens for _, tokens in boxes)
    for size, tokens in boxes:
        assert abs(size / area - tokens / total) < 0.03


def test_cost_and_all_requests_and_table(reader: Person, seen: Seen) -> None:
    """The table has the same figures as the endpoint; costs include the answers."""
    panel = reader.tab("Composition")
    panel.get_by_role("button", name="All requests").click()
    panel.get_by_role("button", name="Cost").click()
    panel.get_by_role("button", name="Table").click()
    wait_for_query(reader, "of=run", "by=cost", "as=table")
    table = panel.get_by_role("table")
    expect(table).to_contain_text("Answers")
    answer: dict[str, Any] = json.loads(
        reader.page.request.get(f"{seen.url}/api/conversations/{seen.run}/composition").text()
    )
    results = sum(line["tokens"] for line in answer["costs"]["lines"] if line["kind"] == "result")
    row = table.get_by_role("row", name=re.compile("Tool results"))
    expect(row).to_contain_text(f"≈ {results:,}")
    row.get_by_role("button").click()
    expect(table.get_by_role("rowheader")).to_have_text(["read"])
    table.get_by_role("button", name="read").click()
    wait_for_query(reader, "tab=messages", "cause=result", "tool=read")


def shows_over_time(person: Person) -> None:
    person.page.get_by_test_id("timeline-button").click()
    group = person.page.get_by_role("group", name="Timeline view")
    group.get_by_role("button", name="Composition", exact=True).click()


@pytest.mark.thorough
def test_the_chart_selects_a_request(seen: Seen, model: Model, visiting: Visit) -> None:
    person = visiting(seen.url).inspects("demo")
    shows_over_time(person)
    chart = person.page.get_by_test_id("composition-over-time")
    expect(chart.locator("g.column")).to_have_count(10)
    expect(chart.get_by_role("list", name="Legend")).to_contain_text("Tool results")
    heading = person.page.get_by_test_id("step").get_by_role("heading", level=2)
    chart.locator("g.column").nth(2).click(force=True)
    expect(heading).to_contain_text("Request 3 ")
    slider = chart.get_by_role("slider")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("request 3; 1,150 tokens in: System prompt"))
    slider.press("ArrowRight")
    expect(heading).to_contain_text("Request 4 ")
    expect(chart.locator(".timeline-bubble")).to_contain_text("History")


@pytest.mark.thorough
@pytest.mark.parametrize("look", ["narrow", "light", "dark"])
def test_no_accessibility_violations(seen: Seen, model: Model, visiting: Visit, look: str) -> None:
    options: dict[str, Any] = {"viewport": {"width": 390, "height": 720} if look == "narrow" else DESK}
    if look != "narrow":
        options["color_scheme"] = look
    person = visiting(seen.url, **options).inspects(seen.run, "?tab=composition")
    expect(bar(person).locator(".bar-part")).to_have_count(6)
    expect(person.page.get_by_role("treeitem")).to_have_count(6)
    assert shut_out(person.page, "[role=tabpanel]") == []
    assert shut_out(person.page, "[data-testid=budget]") == []
    person.page.get_by_role("button", name="Table", exact=True).last.click()
    expect(person.page.get_by_test_id("composition-table")).to_be_visible()
    assert shut_out(person.page, "[role=tabpanel]") == []
    body = person.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert body, "nothing is wider than the screen"
    shows_over_time(person)
    expect(person.page.get_by_test_id("composition-over-time").locator("g.column").first).to_be_visible()
    assert shut_out(person.page, "[data-testid=composition-over-time]") == []


@pytest.mark.thorough
def test_two_thousand_requests_are_drawn_in_part(store: cc.Store, person: Person) -> None:
    """What is drawn does not grow with the conversation; every request can be selected."""
    life = Life(store, provider_of(SONNET, window=1_000_000))
    store.append("demo", cc.user("begin"))
    for number in range(MANY):
        call = cc.tool_call(f"c{number}", "look", {})
        life.answer(cc.assistant(tool_calls=[call]), cc.Usage(input=1_000 + 60 * number, output=9))
        store.append("demo", cc.tool_result(f"c{number}", "look", "so it goes " * 8))
    person.inspects("demo")
    shows_over_time(person)
    chart = person.page.get_by_test_id("composition-over-time")
    expect(chart.locator("g.column").first).to_be_visible()
    assert chart.locator("g.column").count() < MOST_COLUMNS
    chart.get_by_role("slider").press("Home")
    expect(person.page.get_by_test_id("step").get_by_role("heading", level=2)).to_contain_text("Request 1 ")
    chart.get_by_role("slider").press("End")
    panel = person.tab("Composition")
    panel.get_by_role("treeitem", name=re.compile("^Tool results")).click()
    panel.get_by_role("treeitem", name=re.compile("^look")).click()
    expect(panel.get_by_role("treeitem")).to_have_count(51)
    expect(panel.get_by_role("treeitem", name=re.compile("smaller parts"))).to_be_visible()
