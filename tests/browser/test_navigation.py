"""The page around a conversation: list, search, confirmation of deletions, themes, shortcuts, tokens."""

import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.conftest import Visit
from tests.browser.page_driver import MESSAGES, Person
from tests.browser.scripted_model import Gate, Model, text_reply
from tests.browser.server import served

NARROW = {"width": 390, "height": 844}
COLOUR = "getComputedStyle(document.body).backgroundColor"
WATCH_DIALOGS = """window.dialogsOpen = [];
new MutationObserver((changes) => {
  for (const {addedNodes} of changes)
    for (const node of addedNodes) if (node.matches?.("dialog")) dialogsOpen.push(node.open);
}).observe(document.body, {childList: true, subtree: true})"""
"""Records for each dialog whether it was open when it came into the page."""
TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def talks(store: cc.Store) -> cc.Store:
    for name, expected in (("garden", "When do I plant tulips?"), ("kitchen", "How long do eggs boil?")):
        store.extend(name, [cc.user(expected), cc.assistant(f"That depends, says the {name}.")])
    return store


def test_a_search_finds_by_name_and_by_content(talks: cc.Store, person: Person) -> None:
    """Guarantee 12.2: in the server, with the place where it was found."""
    person.open()
    entries = person.page.get_by_test_id("conversation")
    expect(entries).to_have_count(2)
    person.page.get_by_role("searchbox").fill("SAYS THE GARD")
    expect(entries).to_have_count(1)
    expect(entries).to_contain_text("When do I plant tulips?")
    expect(entries.locator("mark")).to_have_text("says the gard")
    person.page.get_by_role("searchbox").fill("nobody said this")
    expect(person.page.get_by_text("No results.")).to_be_visible()
    person.page.get_by_role("searchbox").press("Escape")
    expect(entries).to_have_count(2)


def test_a_conversation_is_deleted_after_confirmation(talks: cc.Store, person: Person) -> None:
    """Guarantee 12.2: it is asked first, and nothing of it is left."""
    person.chat("garden")
    person.item(person.page.get_by_role("button", name="More"), "Delete")
    question = person.page.get_by_test_id("question")
    expect(question).to_contain_text("When do I plant tulips?")
    person.page.keyboard.press("Escape")
    expect(question).to_have_count(0)
    assert {each.name for each in talks.conversations()} == {"garden", "kitchen"}
    person.item(person.page.get_by_role("button", name="More"), "Delete")
    question.get_by_role("button", name="Delete").click()
    expect(person.page.get_by_test_id("conversation")).to_have_count(1)
    person.page.wait_for_url(re.compile(r"#/$"))
    assert [each.name for each in talks.conversations()] == ["kitchen"]


def test_a_dialog_is_open_as_soon_as_it_is_in_the_page(talks: cc.Store, person: Person) -> None:
    """Guarantee 12.2: Escape pressed at once closes the dialog, and not what is behind it."""
    person.chat("garden")
    person.page.evaluate(WATCH_DIALOGS)
    person.item(person.page.get_by_role("button", name="More"), "Delete")
    question = person.page.get_by_test_id("question")
    expect(question).to_be_attached()
    assert person.page.evaluate("dialogsOpen") == [True]
    person.page.keyboard.press("Escape")
    expect(question).to_have_count(0)


def test_missing_objects_are_reported(person: Person) -> None:
    person.watch.expects("404")
    person.open("#/c/nobody")
    expect(person.page.get_by_role("alert")).to_contain_text("Conversation not found")


@pytest.mark.thorough
def test_the_theme_is_the_systems_until_one_is_chosen(talks: cc.Store, server: str, visiting: Visit) -> None:
    """Guarantee 12.2: dark and light, and what was chosen is remembered."""
    person = visiting(server, color_scheme="dark").chat("garden")
    page, body = person.page, person.page.locator("body")
    dark = str(page.evaluate(COLOUR))
    person.item(page.get_by_test_id("theme"), "Light")
    expect(body).not_to_have_css("background-color", dark)
    page.reload()
    expect(person.composer).to_be_visible()
    expect(body).not_to_have_css("background-color", dark)
    person.item(page.get_by_test_id("theme"), "Dark")
    expect(body).to_have_css("background-color", dark)
    person.item(page.get_by_test_id("theme"), "System")
    page.emulate_media(color_scheme="light")
    expect(body).not_to_have_css("background-color", dark)


@pytest.mark.thorough
def test_on_a_narrow_screen_the_list_is_a_drawer(talks: cc.Store, server: str, visiting: Visit) -> None:
    """Guarantee 12.2: nothing is wider than the screen, and everything can be reached."""
    person = visiting(server, viewport=NARROW, has_touch=True).chat("garden")
    drawer = person.page.get_by_role("navigation", name="Conversations")
    expect(drawer).not_to_be_in_viewport()
    person.page.get_by_role("button", name="Conversations", exact=True).tap()
    expect(drawer).to_be_in_viewport()
    person.page.get_by_test_id("conversation").filter(has_text="eggs").get_by_role("link").tap()
    expect(drawer).not_to_be_in_viewport()
    expect(person.rows("assistant").locator(".prose")).to_have_text("That depends, says the kitchen.")
    for address in ("#/", "#/c/kitchen", "#/c/kitchen/inspect", "#/open"):
        person.open(address)
        expect(person.page.locator("main h1")).to_be_visible()
        wide = person.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= NARROW["width"], f"{address} is {wide} wide"


def test_a_whole_conversation_without_a_mouse(talks: cc.Store, person: Person, model: Model) -> None:
    """Guarantee 12.2: begin, stop, search, switch and look around with keys alone."""
    gate = Gate()
    model.will(text_reply("Well ", gate))
    keys, page = person.page.keyboard, person.page
    person.open()
    expect(person.composer).to_be_focused()
    keys.press("Tab")
    expect(page.get_by_text("Skip to main content")).to_be_focused()
    keys.press("Enter")
    expect(page.locator("main")).to_be_focused()
    keys.press("/")
    keys.type("Hello")
    keys.press("Shift+Enter")
    keys.type("there")
    keys.press("Enter")
    expect(page.locator(".assistant.live .prose")).to_have_text("Well")
    assert person.texts("user") == ["Hello\nthere"]
    keys.press("Escape")
    expect(page.get_by_text("Stopped.")).to_be_visible()
    keys.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    keys.type("tulips")
    expect(page.get_by_test_id("conversation")).to_have_count(1)
    keys.press("Enter")
    expect(person.rows("assistant").locator(".prose")).to_have_text("That depends, says the garden.")
    expect(person.composer).to_be_focused()
    page.locator(MESSAGES).focus()
    keys.press("k")
    expect(page.locator("[role=article]:focus")).to_have_count(1)
    keys.press("?")
    expect(page.get_by_test_id("shortcuts")).to_be_visible()
    keys.press("Escape")
    expect(page.get_by_test_id("shortcuts")).to_have_count(0)
    keys.press("/")
    expect(person.composer).to_be_focused()
    keys.press("ArrowUp")
    expect(page.get_by_test_id("edit").get_by_role("textbox")).to_be_focused()
    keys.press("Escape")
    keys.press("Control+Shift+O")
    page.wait_for_url(re.compile(r"#/$"))
    expect(person.composer).to_be_focused()


HOLD_EFFECTS = """() => {
  const frame = requestAnimationFrame, later = setTimeout, held = [];
  window.requestAnimationFrame = (work) => held.push(work);
  window.setTimeout = (work, wait, ...rest) => (wait < 100 ? held.push(work) : later(work, wait, ...rest));
  window.runEffects = () => new Promise((done) => {
    window.requestAnimationFrame = frame;
    window.setTimeout = later;
    for (const work of held) work();
    frame(() => frame(done));
  });
}"""


@pytest.mark.thorough
def test_a_dialog_that_closes_late_leaves_the_focus_where_it_went(talks: cc.Store, person: Person) -> None:
    """On a busy machine the next key comes before the dialog has cleaned up. What is typed then must not be lost."""
    keys, page = person.page.keyboard, person.page
    person.open("#/c/garden")
    page.locator(MESSAGES).focus()
    keys.press("k")
    keys.press("?")
    expect(page.get_by_test_id("shortcuts").get_by_role("button", name="Close")).to_be_focused()
    page.evaluate(HOLD_EFFECTS)
    keys.press("Escape")
    expect(page.get_by_test_id("shortcuts")).to_have_count(0)
    keys.press("/")
    expect(person.composer).to_be_focused()
    page.evaluate("window.runEffects()")
    expect(person.composer).to_be_focused()
    keys.press("?")
    assert person.composer.input_value() == "?"


def test_a_conversation_goes_by_its_title_and_shows_its_name(talks: cc.Store, person: Person) -> None:
    """Guarantee 12.2: in the list, where titles are cut short and alike, and in the inspector."""
    asked = "How does one plant a tulip so that it comes up, and when?"
    talks.extend("2026-01-02-030405", [cc.user(asked), cc.assistant("In autumn.")])
    person.open("#/c/2026-01-02-030405/inspect")
    head = person.page.get_by_test_id("inspector").get_by_role("heading", level=1)
    expect(head).to_have_text(asked)
    expect(person.page.get_by_test_id("conversation-name")).to_have_text("2026-01-02-030405")
    entry = person.page.get_by_test_id("conversation").first.get_by_role("link")
    expect(entry).to_have_attribute("title", re.compile(rf"{re.escape(asked)}\n2026-01-02-030405\n.*\d{{4}}"))


@pytest.fixture
def guarded(talks: cc.Store, options: ServerOptions) -> Iterator[str]:
    with served(talks, replace(options, token=TOKEN)) as url:
        yield url


def test_a_token_is_asked_for_once(guarded: str, visiting: Visit) -> None:
    """Guarantee 12.2: nothing is shown without it; a wrong one is requested again; the printed URL contains it."""
    person = visiting(guarded)
    person.watch.expects("401")
    person.open("#/c/garden")
    asked = person.page.get_by_test_id("token-dialog")
    asked.get_by_label("Token").fill("a wrong one")
    asked.get_by_role("button", name="Continue").click()
    expect(asked).to_contain_text("Invalid token.")
    assert person.page.get_by_test_id("conversation").count() == 0
    asked.get_by_label("Token").fill(TOKEN)
    asked.get_by_role("button", name="Continue").click()
    expect(person.page.get_by_test_id("conversation")).to_have_count(2)
    expect(person.rows("assistant").locator(".prose")).to_have_text("That depends, says the garden.")
    person.page.reload()
    expect(person.page.get_by_test_id("conversation")).to_have_count(2)
    expect(asked).to_have_count(0)
    other = visiting(guarded).open(f"?token={TOKEN}")
    expect(other.page.get_by_test_id("conversation")).to_have_count(2)
    assert TOKEN not in other.page.url
