"""The context meter: usage of the window of the selected model on the shown branch."""

import re

import pytest
from playwright.sync_api import expect

import contextc as cc
from tests.browser.page_driver import Person
from tests.browser.scripted_model import OTHER, Gate, Model, text_reply

pytestmark = pytest.mark.usefixtures("requests_followed")

LONG = "so it goes on and on " * 300


def agrees(person: Person, **query: str) -> tuple[int, int]:
    """Wait until it says what the server says of the next request: tokens used, and those there are."""
    answer = person.page.request.get(f"{person.url}/api/conversations/{person.name}/next", params=dict(query)).json()
    used, available = answer["budget"]["input"], answer["budget"]["room"]
    gauge = person.page.get_by_test_id("gauge")
    expect(gauge).to_contain_text(f"{used:,} of {available:,} tokens")
    expect(gauge).not_to_have_class(re.compile("old"))
    return used, available


def asked_for_it(person: Person) -> int:
    return sum("/next?" in each for each in person.watch.asked)


def test_it_counts_the_answer_that_is_on_the_page(person: Person, model: Model) -> None:
    """Guarantees 12.2, 13.2: not the request alone; and the server is asked once when a turn has ended."""
    model.will(text_reply(LONG, usage=(1_200, 1_500, 0)), text_reply("Short.", usage=(2_700, 4, 0)))
    name = person.begins("Talk")
    expect(person.rows("assistant")).to_contain_text("so it goes")
    person.sees_ended()
    gauge = person.page.get_by_test_id("gauge")
    assert agrees(person)[0] > 1_000
    person.page.wait_for_timeout(1_000)
    assert asked_for_it(person) == 1
    expect(gauge).to_have_attribute("href", re.compile(rf"#/c/{name}/inspect/[^/]+/1$"))
    person.says("More")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Short.")
    person.sees_ended()
    expect(gauge).to_have_attribute("href", re.compile("/2$"))
    agrees(person)
    person.page.wait_for_timeout(1_000)
    assert asked_for_it(person) == 2
    person.page.reload()
    agrees(person)


@pytest.mark.thorough
def test_it_is_that_of_the_branch_that_is_shown(store: cc.Store, person: Person) -> None:
    """Guarantee 3.4: another branch has other content, and a shorter one leaves more room."""
    store.extend("demo", [cc.user("one?"), cc.assistant("one."), cc.user("two?"), cc.assistant(LONG)])
    store.edit("demo", 3, cc.user("three?"))
    person.chat("demo")
    short = agrees(person)
    person.page.get_by_test_id("ways").get_by_role("button", name="Previous version").click()
    expect(person.rows("assistant").last).to_contain_text("so it goes")
    assert agrees(person)[0] > short[0] + 1_000


@pytest.mark.thorough
def test_it_is_that_of_the_model_that_is_chosen(person: Person, model: Model) -> None:
    """Guarantee 13.2: its own window; and what leads to a request leads to one that was sent."""
    model.will(text_reply("I am one."))
    name = person.begins("Who are you?")
    expect(person.rows("assistant").locator(".prose")).to_have_text("I am one.")
    person.sees_ended()
    gauge = person.page.get_by_test_id("gauge")
    expect(gauge).to_contain_text("openai-chat:gpt-4o used")
    expect(gauge).to_contain_text(re.compile(r"context window [\d,]+, the rest is kept for the answer"))
    before = agrees(person)
    choose(person, "anthropic:claude-sonnet-4-5")
    expect(gauge).to_contain_text("anthropic:claude-sonnet-4-5 used")
    assert agrees(person, model="anthropic:claude-sonnet-4-5")[1] > before[1]
    expect(gauge).to_have_attribute("href", re.compile(rf"#/c/{name}/inspect/[^/]+/1$"))


@pytest.mark.thorough
def test_it_is_there_after_a_first_turn_that_was_stopped(person: Person, model: Model) -> None:
    """Guarantee 12.2: nothing was answered, and still the conversation takes what it takes."""
    gate = Gate()
    model.will(text_reply(gate, "never said"))
    name = person.begins("Count")
    gate.reached()
    person.page.get_by_test_id("stop").click()
    person.sees_ended()
    gauge = person.page.get_by_test_id("gauge")
    expect(gauge).to_be_visible()
    agrees(person, model="openai-chat:gpt-4o")
    expect(gauge).to_have_attribute("href", f"#/c/{name}/inspect")


@pytest.mark.thorough
def test_nothing_is_weighed_while_a_turn_runs(person: Person, model: Model) -> None:
    """The turn says by itself what it takes."""
    gate = Gate()
    model.will(text_reply("One ", gate, "two."))
    person.begins("Count")
    gate.reached()
    expect(person.page.get_by_test_id("gauge")).to_be_visible()
    person.page.wait_for_timeout(600)
    assert asked_for_it(person) == 0
    choose(person, OTHER)
    person.page.wait_for_timeout(600)
    assert asked_for_it(person) == 0
    gate.open()
    person.sees_ended()
    expect(person.page.get_by_test_id("gauge")).to_contain_text(f"{OTHER} used")


def choose(person: Person, spec: str) -> None:
    person.page.get_by_test_id("model").click()
    person.page.get_by_role("combobox").fill(spec)
    person.page.get_by_role("option").first.click()
