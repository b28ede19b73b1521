"""From a cause to all its requests, in the overview and in a conversation; what moved, and which tool changed."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.accessibility import shut_out
from tests.browser.broken_caches import EXPIRED, MIXED, MOVING, TOOLS, record_broken_caches
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.scripted_model import SPEC, Model
from tests.browser.server import served

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("broken")
    with cc.open_store(f"sqlite:///{folder}/served.db") as store:
        record_broken_caches(store)
        with served(store, ServerOptions(root=folder, model=SPEC)) as url:
            yield url


@pytest.fixture
def reader(broken: str, model: Model, visiting: Visit) -> Person:
    return visiting(broken)


def figures(table: Locator) -> tuple[list[int], list[float], list[int], list[float]]:
    """Return tokens and costs of the rows of a table, and those of its last row."""
    found = [
        [row.locator("td").all_inner_texts()[-2:] for row in table.locator(part).all()]
        for part in ("tbody tr", "tfoot tr")
    ]
    rows, sums = ([(int(tokens.replace(",", "")), float(cost[1:])) for tokens, cost in some] for some in found)
    return (
        [each[0] for each in rows],
        [each[1] for each in rows],
        [each[0] for each in sums],
        [each[1] for each in sums],
    )


def adds_up(table: Locator, count: int) -> None:
    expect(table.locator("tbody tr")).to_have_count(count)
    tokens, costs, sum_of_tokens, sum_of_costs = figures(table)
    assert sum_of_tokens == [sum(tokens)]
    assert sum_of_costs == [pytest.approx(sum(costs), abs=0.002)]
    assert min(tokens) > 1_000


def fits_a_phone(person: Person) -> None:
    """Nothing is cut at 390 pixels, and nothing is inaccessible at any width."""
    assert shut_out(person.page) == []
    before = person.page.viewport_size
    person.page.set_viewport_size(PHONE)  # pyright: ignore[reportArgumentType]
    person.page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    assert shut_out(person.page) == []
    assert before is not None
    person.page.set_viewport_size(before)


def test_a_cause_of_the_overview_leads_to_all_its_requests(reader: Person) -> None:
    """Guarantee 17.2: five causes and the number of all, those without a cost apart, and each with its requests."""
    page = reader.open("#/overview").page
    causes = page.get_by_test_id("causes")
    costly = causes.locator("ol > li")
    expect(causes).to_contain_text("4 of 4 on this page checked")
    expect(costly).to_have_count(5)
    expect(causes.get_by_test_id("other-findings").locator("li")).to_have_text(re.compile("FAI004"))
    causes.get_by_role("button", name="Show all 9 causes").click()
    expect(costly).to_have_count(9)
    assert all("$" in each for each in costly.all_inner_texts())
    expect(page.get_by_test_id("row-name")).to_have_count(4)
    causes.get_by_role("link", name="An earlier message changed").click()
    page.wait_for_url(re.compile("#/overview[?]cause=CAC007$"))
    section = page.get_by_test_id("cause-requests")
    expect(section).to_be_focused()
    expect(section).to_be_in_viewport()
    expect(section).to_contain_text("3 requests in 1 conversation")
    adds_up(section.get_by_test_id("losses"), 3)
    expect(section.locator("tbody tr").first).to_contain_text(MOVING)
    fits_a_phone(reader)
    page.reload()
    section.get_by_role("link", name="Find the bug in the parser").first.click()
    page.wait_for_url(re.compile(rf"#/c/{MOVING}/inspect/[^/]+/8\?tab=findings&finding=CAC007$"))
    page.go_back()
    section.get_by_role("button", name="Close the list of requests").click()
    expect(section).to_have_count(0)
    page.wait_for_url(re.compile("#/overview$"))


@pytest.mark.thorough
def test_a_conversation_lists_the_requests_of_a_cause_and_what_moved(reader: Person) -> None:
    """Guarantee 17.2: the reminder that left, its two places and a fix for them; also in the changes."""
    page = reader.open(f"#/c/{MOVING}/inspect").page
    group = page.get_by_test_id("cause").filter(has_text="CAC007")
    card = group.get_by_test_id("finding")
    expect(card).to_contain_text("A reminder moved from message 12 to message 14")
    expect(card.get_by_test_id("facts")).to_contain_text(
        re.compile(r"left messages\[12\].*Run the tests.*now at messages\[14\]")
    )
    expect(card).to_contain_text("Leave it where it was first sent")
    group.get_by_text("All 3 requests").click()
    adds_up(group.get_by_test_id("losses"), 3)
    fits_a_phone(reader)
    group.get_by_role("row").filter(has_text="request 6").get_by_role("link", name="Changes of request 6").click()
    expect(page.get_by_test_id("comparison-summary")).to_contain_text("A reminder moved from message 8 to message 10.")
    moved = page.get_by_test_id("difference").first
    expect(moved).to_contain_text(re.compile(r"Moved\s*reminder\s*breaks the prefix\s*from message 8 to message 10"))
    expect(moved).to_contain_text("<system-reminder>Run the tests.")
    page.get_by_role("button", name=f"Copy the name {MOVING}").click()
    expect(page.get_by_text(f"Copied the name {MOVING}")).to_be_visible()


def test_every_miss_has_a_badge_and_a_tool_its_name(reader: Person) -> None:
    """Guarantee 17.2: an expired cache is marked like a reset one, and a new tool is shown as a tool."""
    page = reader.open(f"#/c/{EXPIRED}/inspect").page
    page.get_by_test_id("finding").first.wait_for()
    page.get_by_test_id("mini-timeline").press("ArrowLeft")
    tag = page.locator(".step-facts .tag").first
    expect(tag).to_have_text("Cache expired")
    expect(tag).to_have_class(re.compile("new"))
    page.get_by_test_id("timeline-button").click()
    page.get_by_role("button", name="Table", exact=True).click()
    expect(page.get_by_test_id("step-table").locator(".step-why").nth(3)).to_have_text("Cache expired")
    reader.open(f"#/c/{TOOLS}/inspect")
    group = page.get_by_test_id("cause").filter(has_text="CAC004")
    group.get_by_test_id("all-requests").locator("summary").click()
    group.get_by_role("button", name="Show 1 more in detail").click()
    changes = group.get_by_test_id("tool-change")
    expect(changes).to_have_text(
        [re.compile("tool write changed .description.:.*Never twice"), re.compile(r'tool fetch added:.*"name":"fetch"')]
    )
    expect(changes.last.locator("del")).to_have_count(0)
    reader.open(f"#/c/{MIXED}/inspect")
    why = page.get_by_test_id("step-table").locator(".step-why")
    for index, cause in {
        3: "model settings changed",
        5: "system prompt changed",
        7: "an earlier message was removed",
    }.items():
        expect(why.nth(index)).to_have_text(f"Cache reset: {cause}")
