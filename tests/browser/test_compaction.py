"""Compaction by hand: a preview, instructions for the summary, what was lost, and undo."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.page_driver import Person
from tests.browser.scripted_model import SPEC, Model, text_reply

ORDERS = [[f"ORD-{number * 7919 + at * 104_729}" for at in range(100)] for number in range(1, 13)]
COUNT_NEW_NOTICES = """() => {
  window.newNotices = 0;
  const isNotice = (node) => node.matches?.(".notice-line") || node.querySelector?.(".notice-line");
  const count = (changes) => {
    for (const { addedNodes } of changes) window.newNotices += [...addedNodes].filter(isNotice).length;
  };
  new MutationObserver(count).observe(document.body, { childList: true, subtree: true });
}"""
SUMMARY = f"The user asked for reports of orders: {' '.join(ORDERS[0])}."


@pytest.fixture
def options(tmp_path: Path) -> ServerOptions:
    """A server whose agents have a small budget, so that there is something to compact."""
    return ServerOptions(root=tmp_path, model=SPEC, budget=9_000)


def with_reports(store: cc.Store, person: Person, model: Model) -> Page:
    for orders in ORDERS:
        store.extend("demo", [cc.user("The next report, please."), cc.assistant(f"It has {' '.join(orders)}.")])
    model.will(*[text_reply(SUMMARY) for _ in range(4)])
    return person.chat("demo").page


def test_a_compaction_is_previewed_guided_examined_and_undone(store: cc.Store, person: Person, model: Model) -> None:
    """Guarantees 7.11 and 7.12: the dialog has the costs, the notice has the receipt, and undo returns the messages."""
    page = with_reports(store, person, model)
    person.item(page.get_by_role("button", name="More"), "Compact conversation")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"would replace \d+ messages with .+ tokens. It costs about \$"))
    dialog.get_by_label("What the summary should keep").fill("keep the last order")
    page.evaluate(COUNT_NEW_NOTICES)
    with page.expect_response(re.compile("/timeline")):  # the last answer of the refresh that follows
        dialog.get_by_role("button", name="Compact").click()
    notice = page.get_by_test_id("notice-compaction")
    expect(notice).to_contain_text("Conversation compacted:")
    assert "keep the last order" in str(model.requests[0]["messages"])
    expect(notice).to_contain_text("of the facts and words of people are kept")
    assert page.evaluate("window.newNotices") == 1  # the refresh has kept its element
    notice.get_by_role("button", name="Show what was lost").click()
    expect(page.get_by_test_id("lost-facts")).to_contain_text("ORD-")
    notice.get_by_role("button", name="Undo").click()
    expect(notice.last).to_contain_text(re.compile(r"Compaction up to message \d+ undone."))
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    page.reload()
    expect(notice).to_have_count(2)


def test_the_notice_of_a_compaction_comes_into_view_and_nothing_covers_it(
    store: cc.Store, person: Person, model: Model
) -> None:
    """Guarantees 7.12 and 12.4: what a notice offers can be clicked at once. Screen readers hear of it."""
    page = with_reports(store, person, model)
    page.get_by_test_id("messages").press("Home")
    expect(page.get_by_role("article", name="You, message 1", exact=True)).to_be_in_viewport()
    person.item(page.get_by_role("button", name="More"), "Compact conversation")
    page.get_by_role("dialog").get_by_role("button", name="Compact").click()
    expect(page.get_by_test_id("notice-compaction")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Go to the end")).to_have_count(0)
    expect(page.get_by_test_id("spoken")).to_contain_text("Conversation compacted:")
    with page.expect_response(re.compile("/compactions")):
        page.get_by_role("button", name="Show what was lost").click(force=True)  # where it is, whatever is above it
    expect(page.get_by_test_id("notice")).to_have_count(0)
