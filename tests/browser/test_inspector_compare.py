"""The comparison of requests and of runs in the web UI."""

import re

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from tests.browser.accessibility import shut_out
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.web.sample_conversations import SONNET, Life, provider_of

NARROW = {"viewport": {"width": 390, "height": 720}}


def clocked(store: cc.Store, name: str = "demo") -> Life:
    """Two requests: the time in the system prompt changes, and there is a new message."""
    life = Life(store, provider_of(SONNET), name)
    for minute in (30, 31):
        text = f"You are a coder.\nIt is 12:{minute} now.\nBe brief."
        life.fragments = (cc.PromptFragment("identity", text),)
        life.turn(f"question {minute}\nsecond line", usage=cc.Usage(input=900, output=5, cache_write=900))
    return life


def changes(person: Person, name: str = "demo", rest: str = "") -> Locator:
    person.open(f"#/c/{name}/inspect{rest}")
    return person.tab("Changes").get_by_test_id("diff")


def test_the_break_comes_first_with_its_cost(store: cc.Store, person: Person) -> None:
    clocked(store)
    panel = changes(person)
    summary = panel.get_by_test_id("comparison-summary")
    expect(summary).to_contain_text("The system prompt changed: it contains the time.")
    expect(summary).to_contain_text(re.compile(r"[\d,]+ tokens that both have were not read from the cache \(\$"))
    expect(summary).to_contain_text("Fix: Move the time")
    first = panel.get_by_test_id("difference").first
    expect(first).to_contain_text("breaks the prefix")
    expect(first.locator("del")).to_have_text("30")
    expect(first.locator("ins")).to_have_text("31")
    expect(first.locator("pre")).to_have_text("You are a coder.\nIt is 12:3031 now.\nBe brief.", use_inner_text=True)
    expect(panel.get_by_test_id("difference").filter(has_text="question 31")).to_contain_text("Added user message")
    expect(panel.locator(".compare-fold").first).to_contain_text("unchanged")


@pytest.mark.thorough
def test_side_by_side_is_in_the_url(store: cc.Store, person: Person) -> None:
    clocked(store)
    panel = changes(person)
    panel.get_by_role("button", name="Side by side").click()
    person.page.wait_for_url(re.compile(r"view=side"))
    sides = panel.locator(".compare-sides").first.locator("pre")
    expect(sides.nth(0)).to_contain_text("12:30 now")
    expect(sides.nth(1)).to_contain_text("12:31 now")
    person.page.reload()
    expect(panel.locator(".compare-sides").first).to_be_visible()


def test_keys_move_between_differences(store: cc.Store, person: Person) -> None:
    clocked(store)
    panel = changes(person)
    expect(panel.get_by_test_id("difference").first).to_be_visible()
    place = panel.get_by_test_id("difference-place")
    count = int((re.search(r"\d+", place.inner_text()) or ["0"])[0])
    assert count >= 3
    person.page.keyboard.press("n")
    expect(place).to_contain_text("1 of")
    expect(panel.locator("[aria-current]")).to_contain_text("breaks the prefix")
    person.page.keyboard.press("n")
    expect(place).to_contain_text("2 of")
    person.page.keyboard.press("p")
    person.page.keyboard.press("p")
    expect(place).to_contain_text(f"{count} of")


@pytest.mark.thorough
def test_any_request_is_picked(store: cc.Store, person: Person) -> None:
    life = clocked(store)
    life.turn("third")
    other = clocked(store, "other")
    panel = changes(person)
    expect(panel.get_by_test_id("pick-request")).to_contain_text("request 2")
    panel.get_by_test_id("pick-request").click()
    picker = person.page.get_by_test_id("request-picker")
    expect(picker.get_by_role("button", name=re.compile("Request 3"))).to_be_disabled()
    picker.get_by_role("button", name=re.compile("Request 1")).click()
    person.page.wait_for_url(re.compile(rf"to={life.channel}%2F1"))
    expect(panel.get_by_test_id("pick-request")).to_contain_text("request 1")
    expect(panel.get_by_test_id("comparison-summary")).to_contain_text("it contains the time")
    panel.get_by_test_id("pick-request").click()
    picker.get_by_role("button", name="Other conversation").click()
    picker.get_by_test_id("picker-search").fill("other")
    picker.get_by_role("button", name=re.compile("other")).click()
    picker.get_by_role("button", name=re.compile("Request 2")).click()
    person.page.wait_for_url(re.compile(rf"to=other%2F{other.channel}%2F2"))
    expect(panel.get_by_test_id("pick-request")).to_contain_text("request 2 of other")
    person.page.reload()
    expect(panel.get_by_test_id("pick-request")).to_contain_text("request 2 of other")
    panel.get_by_role("button", name="Previous request").click()
    expect(panel.get_by_test_id("pick-request")).to_contain_text("request 2")
    assert "to=" not in person.page.url


@pytest.mark.parametrize(
    "look",
    [pytest.param({}, marks=pytest.mark.thorough), {**NARROW, "color_scheme": "dark"}],
    ids=["wide", "narrow"],
)
def test_two_runs_are_compared(store: cc.Store, server: str, visiting: Visit, look: dict[str, object]) -> None:
    one, two = clocked(store), clocked(store, "a/b")
    one.turn("left")
    two.turn("right")
    two.turn("more", usage=cc.Usage(input=900, output=5))
    person = visiting(server, **look).open("#/compare/demo/a%2Fb")
    page = person.page.get_by_test_id("compare")
    expect(page.get_by_test_id("first-difference")).to_contain_text(
        "The first 2 requests are the same. Request 3 differs"
    )
    row = page.get_by_role("row", name=re.compile("^Requests"))
    expect(row.get_by_role("cell")).to_have_text(["3", "4", "+33%"])
    cost = page.get_by_role("row", name=re.compile("^Cost")).first.get_by_role("cell")
    expect(cost.last).to_have_text(re.compile(r"^\+\$0\.\d+ \(\+\d+%\)$"))
    expect(page.get_by_role("heading", name="Cost by cause")).to_be_visible()
    assert shut_out(person.page, "main") == []
    assert person.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    last = page.get_by_role("columnheader", name="Difference").first
    assert person.page.evaluate("each => each.getBoundingClientRect().right <= innerWidth", last.element_handle())
    expect(page.get_by_test_id("costliest")).to_have_count(0)  # both have the same findings
    page.get_by_role("button", name="Swap").click()
    expect(cost.last).to_have_text(re.compile(r"^\$0\.\d+ saved \(\u2212\d+%\)$"))
    assert person.page.evaluate("each => each.getBoundingClientRect().right <= innerWidth", last.element_handle())
    page.get_by_role("button", name="Swap").click()
    expect(cost.last).to_have_text(re.compile(r"^\+\$0"))
    page.get_by_role("link", name="Show the difference").click()
    panel = person.page.get_by_test_id("diff")
    expect(panel.get_by_test_id("pick-request")).to_contain_text("request 3 of demo")
    expect(panel.get_by_test_id("difference").first.locator("del")).to_have_text("left")
    expect(person.page.locator(".inspect [aria-busy=true]")).to_have_count(0)
    assert shut_out(person.page, "[data-testid=diff]") == []
    assert person.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    panel.get_by_role("link", name="Compare the conversations").click()
    expect(page.get_by_test_id("first-difference")).to_be_visible()


@pytest.mark.thorough
def test_the_second_run_is_searched(store: cc.Store, person: Person) -> None:
    clocked(store)
    clocked(store, "other")
    person.inspects("demo")
    person.page.get_by_test_id("compare-runs").click()
    page = person.page.get_by_test_id("compare")
    page.get_by_test_id("picker-search").fill("other")
    page.get_by_role("button", name=re.compile("other")).click()
    person.page.wait_for_url(re.compile(r"#/compare/demo/other"))
    expect(page.get_by_test_id("first-difference")).to_contain_text("All 2 requests of both have the same content.")
    page.get_by_role("button", name="Swap").click()
    person.page.wait_for_url(re.compile(r"#/compare/other/demo"))
    Life(store, name="trip").turn("Plan a trip to Lisbon.")
    page.get_by_role("button", name="Second: demo").click()
    person.page.get_by_role("dialog").get_by_role("button", name=re.compile("trip")).click()
    person.page.wait_for_url(re.compile(r"#/compare/other/trip"))
    expect(page.get_by_test_id("first-difference")).to_contain_text("These are different conversations.")


@pytest.mark.thorough
def test_the_picker_is_accessible(store: cc.Store, person: Person) -> None:
    clocked(store)
    changes(person).get_by_test_id("pick-request").click()
    expect(
        person.page.get_by_test_id("request-picker").get_by_role("button", name=re.compile("Request 1"))
    ).to_be_visible()
    assert shut_out(person.page, "[data-testid=request-picker]") == []
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_test_id("request-picker")).to_have_count(0)
    expect(person.page.get_by_test_id("pick-request")).to_be_focused()


def test_hostile_text_is_text(store: cc.Store, person: Person) -> None:
    bad = "<img src=x onerror=alarm(1)><script>alarm(2)</script>\u202egnp.exe\u200b [x](javascript:alarm(3))"
    life = Life(store, provider_of(SONNET))
    life.fragments = (cc.PromptFragment("identity", f"one {bad}"),)
    life.turn(bad, cc.assistant(bad, tool_calls=[cc.tool_call("a", "look", {"where": bad})]))
    store.append("demo", cc.tool_result("a", "look", bad))
    life.fragments = (cc.PromptFragment("identity", f"two {bad}"),)
    life.answer()
    panel = changes(person)
    expect(panel.get_by_test_id("difference").filter(has_text="<script>").first).to_be_visible()
    expect(panel.get_by_test_id("difference").first).to_contain_text("⟨U+202E⟩")
    assert panel.locator("img, script, a[href^=javascript]").count() == 0
    person.open("#/c/demo/inspect?tab=diff&to=%3Cimg%20src%3Dx%3E%2F1")
    person.watch.expects("404", "404")
    expect(person.page.get_by_role("tabpanel").get_by_role("alert")).to_contain_text("Not found")


@pytest.mark.thorough
def test_added_white_space_is_visible(store: cc.Store, person: Person) -> None:
    life = Life(store, provider_of(SONNET))
    for end in ("", "\n\n"):
        life.fragments = (cc.PromptFragment("identity", f"You are{end} a coder, and so on."),)
        life.turn("hi")
    expect(changes(person).get_by_test_id("difference").first.locator("ins")).to_contain_text("↵")
