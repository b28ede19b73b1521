"""Tags and notes in the browser: given, filtered by, and shown as text."""

from playwright.sync_api import expect

import contextc as cc
from tests.browser.page_driver import Person

HOSTILE = "<img src=x onerror=alert(1)> **bold**"


def test_tags_filter_the_list(person: Person, store: cc.Store) -> None:
    """Guarantee 2.9."""
    for name in ("one", "two"):
        store.append(name, cc.user(f"Hello {name}."))
    page = person.chat("one").page
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Tags").click()
    page.get_by_label("Tags, separated by commas").fill("bug, <b>later</b>")
    page.get_by_role("button", name="Save").click()
    tags = page.locator(".view-head").get_by_test_id("tags")
    expect(tags).to_contain_text("<b>later</b>")
    assert store.tags("one") == ["<b>later</b>", "bug"]
    listed = page.get_by_test_id("conversation")
    expect(listed).to_have_count(2)
    tags.get_by_role("button", name="bug").click()
    expect(listed).to_have_count(1)
    expect(listed.get_by_test_id("tags")).to_contain_text("bug")
    page.get_by_test_id("tag-filter").select_option("")
    expect(listed).to_have_count(2)
    page.get_by_label("Search conversations").fill("BU")
    expect(page.get_by_text("only the tags above")).to_be_visible()
    page.get_by_test_id("tag-hits").get_by_role("button", name="Tag: bug").click()
    expect(page.get_by_label("Search conversations")).to_have_value("")
    expect(listed).to_have_count(1)


def test_notes_are_text(person: Person, store: cc.Store) -> None:
    """Guarantee 2.9: never markup."""
    store.append("one", cc.user("Hello."))
    page = person.chat("one").page
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Notes").click()
    page.get_by_label("New note").fill(HOSTILE)
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_test_id("note")).to_have_text(HOSTILE)
    assert [(each.text, each.who) for each in store.notes("one")] == [(HOSTILE, "web UI")]
    page.keyboard.press("Escape")
    page.get_by_label("Search conversations").fill("bold")
    expect(page.get_by_test_id("conversation").locator(".entry-excerpt")).to_have_text(HOSTILE)
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Notes").click()
    page.get_by_role("button", name="Delete this note").click()
    expect(page.get_by_test_id("note")).to_have_count(0)
    assert store.notes("one") == []
