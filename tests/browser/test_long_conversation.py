"""A conversation of 10,000 messages: open it at its end, scroll to its beginning and back."""

import logging
import time

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from tests.browser.page_driver import MESSAGES, Person

pytestmark = pytest.mark.usefixtures("requests_followed")

log = logging.getLogger(__name__)
MANY = 10_000
RENDERED = 260
FETCHED = 400

TOP = "row => row.getBoundingClientRect().top"
IN_THE_MIDDLE = """(list) => {
  const { x, y, width, height } = document.querySelector(list).getBoundingClientRect();
  return document.elementFromPoint(x + width / 2, y + height / 2)?.closest("[role=article]")?.ariaLabel;
}"""
"""The label of the message in the middle of a list; nothing while rows are not there yet."""
NEAR = """([label, top]) => {
  const row = document.querySelector(`[aria-label="${label}"]`);
  return row && Math.abs(row.getBoundingClientRect().top - top) < 4;
}"""
GAPS = """list => {
  const rows = [...list.querySelectorAll(".virtual-row")];
  return rows.slice(1).map((row, at) => [
    row.getBoundingClientRect().top - rows[at].getBoundingClientRect().bottom,
    Number(row.dataset.index) - Number(rows[at].dataset.index),
  ]);
}"""


@pytest.fixture
def long(store: cc.Store) -> cc.Store:
    """Fill a conversation with short and long messages."""
    for start in range(0, MANY, 1_000):
        texts = [
            cc.user(f"Question {number}?") if number % 2 else cc.assistant(f"Answer {number}. " + "so " * (number % 90))
            for number in range(start + 1, start + 1_001)
        ]
        store.extend("demo", texts)
    return store


def fetched(person: Person) -> int:
    """How many pages of messages were asked for."""
    return len([asked for asked in person.watch.asked if "/messages?" in asked])


def rows(person: Person) -> Locator:
    return person.page.locator(f"{MESSAGES} .virtual-row")


def test_it_opens_at_its_end_and_is_read_to_its_beginning(long: cc.Store, person: Person) -> None:
    """Guarantee 12.4: what is fetched and drawn does not grow with the conversation, and nothing jumps."""
    person.open()
    began = time.monotonic()
    person.open("#/c/demo")
    expect(person.page.get_by_text(f"Answer {MANY}.")).to_be_in_viewport()
    log.info("%s messages: the last one was seen after %.2f s", f"{MANY:,}", time.monotonic() - began)
    assert fetched(person) <= 3
    assert rows(person).count() < RENDERED
    assert (
        sum(int(each.split("limit=")[-1].split("&")[0]) for each in person.watch.asked if "limit=" in each) <= FETCHED
    )

    feed = person.page.locator(MESSAGES)
    feed.hover()
    for _ in range(4):
        person.page.mouse.wheel(0, -1_500)
        expect(feed.locator(".placeholder")).to_have_count(0)
        assert seamless(person)
    feed.focus()
    feed.press("Home")
    expect(feed.get_by_text("Question 1?", exact=True)).to_be_in_viewport()
    expect(feed.locator(".placeholder")).to_have_count(0)
    assert seamless(person)
    assert rows(person).count() < RENDERED
    assert fetched(person) < 12
    feed.press("End")
    expect(person.page.get_by_text(f"Answer {MANY}.")).to_be_in_viewport()
    assert seamless(person)


def seamless(person: Person) -> bool:
    """Every row begins where the one before it ends, and none is left out."""
    gaps = person.page.locator(MESSAGES).evaluate(GAPS)  # at one moment: rows come and go
    assert gaps
    assert all(abs(space) < 1 and step == 1 for space, step in gaps), gaps
    return True


def test_a_click_counts_though_messages_arrive_between_press_and_release(store: cc.Store, person: Person) -> None:
    """Guarantee 12.4: a list that follows its end does not move what is pressed away from the pointer."""
    store.extend("demo", [cc.user("Go on.") if at % 2 else cc.assistant("so " * 900) for at in range(1, 5)])
    page = person.chat("demo").page
    button = page.get_by_role("button", name="Actions for message 4")
    expect(button).to_be_in_viewport()
    button.hover()
    page.mouse.down()
    store.extend("demo", [cc.user("And now?"), cc.assistant("then " * 900)])
    expect(page.get_by_role("article", name="Assistant, message 6")).to_be_attached()
    page.mouse.up()
    expect(page.get_by_role("menu")).to_be_visible()


FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def test_a_click_counts_though_what_is_above_grows_between_press_and_release(store: cc.Store, person: Person) -> None:
    """Guarantee 12.4: what is pressed stays below the pointer, also if the row at the top of the list does so too."""
    store.extend("demo", [cc.user("Go on.") if at % 2 else cc.assistant("so " * 100) for at in range(1, 9)])
    page = person.chat("demo").page
    page.get_by_role("button", name="Actions for message 8").hover()
    page.mouse.down()
    page.get_by_role("article", name="Assistant, message 6").evaluate("row => { row.style.height = '300px'; }")
    page.evaluate(FRAMES)
    page.mouse.up()
    expect(page.get_by_role("menu")).to_be_visible()


def test_nothing_appears_over_the_list_while_the_pointer_is_down(store: cc.Store, person: Person) -> None:
    """Guarantee 12.4: a click on what is below the button to the end is not lost because it appears meanwhile."""
    store.extend("demo", [cc.user("Go on.") if at % 2 else cc.assistant("so " * 900) for at in range(1, 5)])
    page = person.chat("demo").page
    feed, to_end = page.get_by_test_id("messages"), page.get_by_role("button", name="Go to the end")
    expect(page.get_by_role("article", name="Assistant, message 4")).to_be_in_viewport()
    feed.hover()
    page.mouse.down()
    feed.evaluate("list => { list.scrollTop -= 100; }")
    page.evaluate(FRAMES)
    assert to_end.count() == 0
    page.mouse.up()
    expect(to_end).to_be_visible()


@pytest.mark.thorough
def test_what_is_looked_at_stays_where_it_is_while_rows_above_get_their_height(long: cc.Store, person: Person) -> None:
    """Guarantee 12.4: rows have an estimated height until they are loaded; the visible text does not move."""
    person.chat("demo")
    expect(person.page.get_by_text(f"Answer {MANY}.")).to_be_in_viewport()
    feed = person.page.locator(MESSAGES)
    feed.evaluate("list => { list.scrollTop = list.scrollHeight / 2; }")
    expect(feed.locator(".placeholder")).to_have_count(0)
    label = person.page.wait_for_function(IN_THE_MIDDLE, arg=MESSAGES).json_value()
    middle = feed.get_by_role("article", name=label, exact=True)
    for up in (150, 200, 250):
        before = float(middle.evaluate(TOP))
        feed.evaluate("(list, up) => { list.scrollTop -= up; }", up)
        person.page.wait_for_function(NEAR, arg=[label, before + up])
        expect(feed.locator(".placeholder")).to_have_count(0)
        assert abs(float(middle.evaluate(TOP)) - before - up) < 4
