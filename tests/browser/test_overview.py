"""The overview of the store, the search over it, the sidebar, and opened files after a reload."""

import json
import re
import time

import pytest
from playwright.sync_api import expect

import contextc as cc
from tests.browser.accessibility import shut_out
from tests.browser.page_driver import Person
from tests.browser.sample_conversations import busy
from tests.observation.test_conversation_match import claude, claude_answer
from tests.web.sample_conversations import SONNET, Life, provider_of

NARROW = {"width": 390, "height": 720}
DAY = 86_400_000
ROWS, FIGURES = "overview-row", "totals"


@pytest.fixture
def filled(store: cc.Store) -> cc.Store:
    """Three conversations: of our own with findings, of another model, and one that Claude Code made."""
    busy(store, "busy")
    Life(store, provider_of(SONNET), "cheap").turn(
        "A cheap question", usage=cc.Usage(input=100, output=10, cache_read=90)
    )
    cc.observe(
        store, request=claude("Refactor it"), reply=claude_answer("b"), format="anthropic",
        headers={"x-claude-code-session-id": "s1"}, conversation="theirs", time=int(time.time() * 1000) - 40 * DAY,
    )  # fmt: skip
    return store


def names(person: Person) -> list[str]:
    return [each.get_attribute("title") or "" for each in person.page.get_by_test_id(ROWS).locator("th a").all()]


def shows(person: Person, *wanted: str) -> None:
    rows = person.page.get_by_test_id(ROWS)
    expect(rows).to_have_count(len(wanted))
    for index, name in enumerate(wanted):
        expect(rows.nth(index).locator("th a")).to_have_attribute("title", name)


def test_the_overview_lists_costs_and_findings(filled: cc.Store, person: Person) -> None:
    """From the sidebar: totals, a chart, causes that lead to their requests, and rows with their findings."""
    person.open()
    person.page.get_by_test_id("overview-link").click()
    person.page.wait_for_url(re.compile("#/overview$"))
    shows(person, "busy", "cheap", "theirs")
    totals = person.page.get_by_test_id(FIGURES)
    expect(totals).to_contain_text(re.compile(r"Conversations\s*3"))
    expect(totals).to_contain_text(re.compile(r"Cost\s*\$"))
    expect(person.page.get_by_test_id("cost-chart").locator(".day-bar").first).to_be_visible()
    row = person.page.get_by_test_id(ROWS).first
    expect(row.get_by_test_id("row-findings")).to_have_text(re.compile(r"^\d+ largest cause (at least )?\$"))
    cause = person.page.get_by_test_id("causes").get_by_role("link").first
    expect(cause).to_have_attribute("href", re.compile(r"#/overview\?cause=[A-Z]+\d+$"))
    row.get_by_role("link", name=re.compile("^Inspect")).click()
    person.page.wait_for_url(re.compile("#/c/busy/inspect"))
    person.page.go_back()
    person.page.get_by_test_id("row-findings").get_by_role("link").first.click()
    person.page.wait_for_url(re.compile(r"#/c/\w+/inspect/[^/]+/\d+\?tab=findings&finding=[A-Z]+\d+$"))
    dearest = person.page.get_by_test_id("cause").first
    expect(dearest).to_be_focused()
    expect(dearest).to_be_in_viewport()


@pytest.mark.thorough
def test_columns_sort_and_filters_are_in_the_url(filled: cc.Store, person: Person) -> None:
    person.open("#/overview")
    shows(person, "busy", "cheap", "theirs")
    person.page.get_by_role("button", name="Conversation", exact=True).click()
    person.page.get_by_role("button", name=re.compile("^Conversation")).click()
    shows(person, "theirs", "cheap", "busy")
    expect(person.page.locator("th[aria-sort]")).to_have_attribute("aria-sort", "descending")
    person.page.get_by_role("button", name="7 days").click()
    shows(person, "cheap", "busy")
    person.page.get_by_label("Model").select_option(filled.overview("cheap").model)
    expect(person.page.get_by_test_id(ROWS)).to_have_count(1)
    person.page.reload()
    expect(person.page.get_by_test_id(ROWS)).to_have_count(1)
    assert "range=7d" in person.page.url
    assert "model=" in person.page.url
    person.page.get_by_role("button", name="Clear filters").click()
    expect(person.page.get_by_test_id(ROWS)).to_have_count(3)
    person.page.get_by_label("Source").select_option("claude-code")
    shows(person, "theirs")
    person.page.get_by_label("Source").select_option("")
    person.page.get_by_label("Name or title").fill("CHEAP QUES")
    shows(person, "cheap")
    person.page.get_by_label("Name or title").fill("absent")
    expect(person.page.get_by_test_id("nothing")).to_be_visible()


def test_a_bar_selects_its_day(filled: cc.Store, person: Person) -> None:
    person.open("#/overview")
    bars = person.page.get_by_test_id("cost-chart").locator(".day-bar")
    expect(bars).to_have_count(41)
    bars.last.focus()
    person.page.keyboard.press("Home")
    expect(bars.first).to_be_focused()
    person.page.keyboard.press("Enter")
    shows(person, "theirs")
    expect(person.page.get_by_label("From")).to_have_value(re.compile(r"\d{4}-"))


def test_bars_of_many_years_are_wide_enough_to_be_seen(filled: cc.Store, person: Person) -> None:
    cc.observe(
        filled, request=claude("Begin"), reply=claude_answer("b"), format="anthropic", conversation="early", time=DAY
    )  # fmt: skip
    person.open("#/overview")
    chart = person.page.get_by_test_id("cost-chart")
    expect(chart.locator("figcaption")).to_contain_text("Cost per year")
    expect(chart.get_by_role("button", name="Year", exact=True)).to_have_attribute("aria-pressed", "true")
    widths = chart.locator(".day-bar").evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
    assert min(widths) > 2
    expect(chart.locator(".cost-axis span").first).to_contain_text("1970")


@pytest.mark.thorough
def test_costs_are_shown_by_hour_and_by_model(filled: cc.Store, person: Person) -> None:
    """The choice is in the URL; one day alone is shown by its hours; a bar of a model shows only its requests."""
    person.open("#/overview")
    chart = person.page.get_by_test_id("cost-chart")
    chart.get_by_role("button", name="Hour", exact=True).click()
    expect(chart.locator("figcaption")).to_contain_text("Cost per hour")
    expect(chart.locator(".day-bar")).to_have_count(48)
    expect(chart.locator(".cost-axis span")).to_have_count(2)  # the days, which do not follow each other
    chart.get_by_role("button", name="Model", exact=True).click()
    models = chart.get_by_test_id("model-bars").get_by_role("button")
    expect(models).to_have_count(3)
    assert shut_out(person.page, "[data-testid=cost-chart]") == []
    person.page.reload()
    expect(models).to_have_count(3)
    models.filter(has_text=filled.overview("cheap").model).click()
    shows(person, "cheap")
    person.open("#/overview?range=today")
    expect(chart.locator("figcaption")).to_contain_text("Cost per hour")
    expect(chart.locator(".day-bar")).to_have_count(24)


@pytest.mark.thorough
def test_pages_and_a_check_of_all(store: cc.Store, person: Person) -> None:
    for number in range(60):
        Life(store, name=f"c{number:02}").turn("hi", usage=cc.Usage(input=1_000 + number, output=10))
    person.open("#/overview?sort=name&order=up")
    rows = person.page.get_by_test_id(ROWS)
    expect(rows).to_have_count(50)
    person.page.get_by_role("button", name="Next", exact=True).click()
    expect(rows).to_have_count(10)
    assert names(person)[0] == "c50"
    expect(person.page.get_by_text("Page 2 of 2")).to_be_visible()
    person.page.get_by_role("button", name="Check all 60").click()
    expect(person.page.get_by_test_id("causes")).to_contain_text("10 of 10 on this page checked")


def test_a_new_request_appears_without_a_reload(filled: cc.Store, person: Person) -> None:
    person.open("#/overview")
    shows(person, "busy", "cheap", "theirs")
    Life(filled, name="late").turn("hello", usage=cc.Usage(input=100, output=10))
    expect(person.page.get_by_test_id(ROWS)).to_have_count(4)


def test_both_views_are_accessible_and_fit_a_phone(filled: cc.Store, person: Person) -> None:
    for address in ("#/overview", "#/search?q=question"):
        person.open(address)
        expect(person.page.get_by_test_id(ROWS if "overview" in address else "search-hit").first).to_be_visible()
        assert shut_out(person.page) == []
        person.page.set_viewport_size(NARROW)  # pyright: ignore[reportArgumentType]
        person.page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
        person.page.wait_for_function("() => document.documentElement.scrollHeight <= innerHeight")
        assert shut_out(person.page) == []
        if "overview" in address:
            person.page.get_by_label("Sort by").select_option("name down")
            shows(person, "theirs", "cheap", "busy")
        person.page.set_viewport_size({"width": 1440, "height": 900})


@pytest.fixture
def talks(store: cc.Store) -> cc.Store:
    call = cc.ToolCall(id="1", name="read_file", arguments={"path": "src/tulips.py"})
    store.extend(
        "garden",
        [
            cc.user("What is in the file?"),
            cc.assistant("I look.", tool_calls=[call]),
            cc.tool_result("1", "read_file", "def plant(): bulbs"),
            *[cc.user(f"hay {number} " + "filling " * 40) for number in range(60)],
        ],
    )
    store.append("tulips", cc.user("nothing"))
    return store


def test_a_search_finds_calls_and_results_and_jumps_to_the_message(talks: cc.Store, person: Person) -> None:
    """In all conversations, with what has been searched; a hit opens the chat at its message."""
    person.open()
    person.page.get_by_label("Search conversations").fill("tulips")
    person.page.get_by_test_id("all-hits").click()
    person.page.wait_for_url(re.compile("#/search[?]q=tulips"))
    found = person.page.get_by_test_id("search-conversation")
    expect(found).to_have_count(2)
    hit = person.page.get_by_test_id("search-hit")
    expect(hit).to_have_count(1)
    expect(hit).to_contain_text("Call of read_file, message 2")
    expect(hit.locator("mark")).to_have_text("tulips")
    expect(person.page.get_by_test_id("searched")).to_contain_text("Searched 64 messages of 2 conversations.")
    field = person.page.get_by_label("Text in messages")
    field.fill("plant(): bulbs")
    expect(hit).to_contain_text("Result of read_file, message 3")
    hit.get_by_role("link").first.click()
    person.page.wait_for_url(re.compile("#/c/garden/m/3[?]q="))
    person.page.wait_for_function("() => [...CSS.highlights.get('search-hit') ?? []].join() === 'plant(): bulbs'")
    expect(person.page.get_by_role("article", name="Assistant, message 2")).to_be_in_viewport()
    person.page.go_back()
    field.fill("absent")
    expect(person.page.get_by_test_id("searched")).to_contain_text("No results.")
    life = Life(talks, name="rounds")
    for number in range(1, 5):
        life.turn(f"crocus {number}", f"answer about crocus {number}")
    field.fill("crocus")
    expect(hit).to_have_count(5)
    expect(person.page.get_by_test_id("searched")).to_contain_text("8 hits in 1 conversation.")
    expect(person.page.get_by_test_id("hits-shown")).to_contain_text("5 of 8 hits")
    person.page.get_by_role("button", name="Show more hits in").click()
    expect(hit).to_have_count(8)
    expect(person.page.get_by_test_id("hits-shown")).to_have_count(0)
    person.page.get_by_label("Search conversations").fill("crocus")
    listed = person.page.get_by_test_id("conversation").filter(has_text="about crocus")
    person.item(listed.get_by_role("button"), "All hits here")
    expect(person.page.get_by_test_id("search-only")).to_contain_text("Only hits in rounds.")
    expect(hit).to_have_count(5)
    person.page.get_by_test_id("search-only").get_by_role("button").click()
    expect(person.page.get_by_test_id("search-only")).to_have_count(0)
    person.page.get_by_role("button", name="Show more hits in").click()
    person.page.get_by_role("link", name="Inspect message 3").click()
    person.page.wait_for_url(re.compile(r"#/c/rounds/inspect/[^/]+/2\?tab=messages&q=crocus&line=\d+$"))
    row = person.page.locator(".line.is-target")
    expect(row).to_have_attribute("data-seq", "3")
    expect(row).to_be_in_viewport()
    person.page.go_back()
    person.page.get_by_role("link", name="Inspect message 8").click()
    person.page.wait_for_url(re.compile(r"#/c/rounds/inspect/[^/]+/4\?tab=reply$"))
    expect(person.page.get_by_test_id("reply")).to_contain_text("answer about crocus 4")


def test_a_visit_does_not_move_a_conversation(store: cc.Store, person: Person) -> None:
    for number, name in enumerate(("oldest", "middle", "newest")):
        Life(store, name=name).turn(f"I am {name}", usage=cc.Usage(input=5, output=5))
        store.append(name, cc.user("later", time=1_700_000_000_000 + number * 1_000))
    person.open()
    entries = person.page.get_by_test_id("conversation")
    expect(entries).to_have_count(3)
    order = entries.locator(".entry-title").all_inner_texts()
    entries.last.get_by_role("link").click()
    expect(person.page.get_by_test_id("messages")).to_be_visible()
    expect(entries.last).to_have_class(re.compile("here"))
    assert entries.locator(".entry-title").all_inner_texts() == order


def test_the_sidebar_shows_what_is_new_and_what_is_live(store: cc.Store, person: Person) -> None:
    """Messages of other processes are marked until the conversation is opened; observed ones are live for a minute."""
    store.append("quiet", cc.user("a question of " + "many words " * 20))
    person.open()
    entry = person.page.get_by_test_id("conversation").filter(has_text="a question")
    expect(entry.locator(".entry-title")).to_have_text(re.compile("…$"))
    expect(entry.get_by_test_id("unread")).to_have_count(0)
    store.append("quiet", cc.assistant("an answer", time=int(time.time() * 1000) + 1_000))
    expect(entry.get_by_test_id("unread")).to_have_count(1)
    entry.get_by_role("link").click()
    expect(entry.get_by_test_id("unread")).to_have_count(0)
    cc.observe(store, request=claude("Refactor"), reply=claude_answer("b"), format="anthropic", conversation="theirs")
    theirs = person.page.get_by_test_id("conversation").filter(has_text="Refactor")
    expect(theirs.get_by_test_id("live")).to_be_visible()
    person.page.get_by_role("link", name="contextc", exact=True).click()
    person.page.reload()
    expect(theirs).to_be_visible()
    expect(entry.get_by_test_id("unread")).to_have_count(0)


REQUEST = {
    "model": "gpt-4o",
    "messages": [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "x", "content": "orphan"}],
}


@pytest.mark.thorough
def test_an_opened_file_and_its_repair_survive_a_reload_until_it_is_closed(person: Person) -> None:
    person.open("#/open")
    person.page.locator("#paste-field").fill(json.dumps(REQUEST))
    person.page.get_by_role("button", name="Open", exact=True).click()
    expect(person.page.get_by_test_id("opened")).to_be_visible()
    person.tab("Repair")
    person.page.get_by_test_id("repair").get_by_role("button", name="Repair").click()
    expect(person.page.get_by_label("The repaired request")).to_be_visible()
    person.page.reload()
    expect(person.page.get_by_test_id("opened")).to_contain_text("openai_chat")
    expect(person.page.get_by_label("The repaired request")).to_be_visible()
    person.page.get_by_role("button", name="Close", exact=True).click()
    expect(person.page.locator("#paste-field")).to_be_visible()
    person.page.reload()
    expect(person.page.locator("#paste-field")).to_be_visible()
    expect(person.page.get_by_test_id("opened")).to_have_count(0)


def test_truncated_json_is_reported_with_its_place(person: Person) -> None:
    person.watch.expects("40[0-9]|422")
    person.open("#/open")
    person.page.locator("#paste-field").fill(json.dumps(REQUEST, indent=1)[:-20])
    person.page.get_by_role("button", name="Open", exact=True).click()
    expect(person.page.get_by_role("alert")).to_contain_text(
        re.compile(r"Line \d+, column \d+: this is not JSON: it is truncated")
    )
