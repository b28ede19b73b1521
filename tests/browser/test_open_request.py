"""Requests opened in the page: detected, counted, linted, fixed and converted, and never stored."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from contextc._json import JSONObject, decode, encode
from contextc.messages import encode_message
from tests.browser.page_driver import Person

BROKEN: JSONObject = {
    "model": "gpt-4o",
    "messages": [
        {"role": "user", "content": "What is in the file?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
        },
        {"role": "user", "content": "Hello?"},
    ],
}
CLAUDE: JSONObject = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "system": "Be brief.",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Good day"}]}],
}


@pytest.fixture
def opener(person: Person) -> Person:
    person.open("#/open")
    expect(person.page.get_by_test_id("open-file")).to_be_visible()
    return person


def paste(person: Person, text: str) -> Locator:
    person.page.locator("#paste-field").fill(text)
    person.page.get_by_role("button", name="Open", exact=True).click()
    return person.page.get_by_test_id("opened")


def test_a_pasted_request_is_recognised_and_its_finding_leads_to_its_place(opener: Person) -> None:
    """Guarantee 10.6: the broken rule as text, and the position."""
    opened = paste(opener, json.dumps(BROKEN))
    expect(opened).to_contain_text("a request in format openai_chat")
    expect(opened).to_contain_text("gpt-4o")
    findings = opener.tab("Rules").get_by_test_id("findings")
    finding = findings.locator(".finding").first
    place = finding.locator(".finding-path").inner_text()
    assert place.startswith("messages[")
    finding.locator(".finding-code").click()
    expect(opener.page.get_by_test_id("rule")).to_contain_text(finding.locator(".finding-code").inner_text())
    opener.page.keyboard.press("Escape")
    finding.locator("button.finding-path").click()
    active = opener.page.locator(".json-row.is-active")
    expect(active).to_be_in_viewport()
    assert active.get_attribute("data-path") == place


def test_broken_requests_are_repaired_and_converted(opener: Person, store: cc.Store) -> None:
    """Guarantee 10.6: each change is reported, and nothing is stored."""
    paste(opener, json.dumps(BROKEN))
    repair = opener.tab("Repair").get_by_test_id("repair")
    repair.get_by_role("button", name="Repair").click()
    expect(repair.locator(".repaired")).to_contain_text("messages[")
    expect(repair.get_by_role("tree")).to_contain_text('"tool"')
    convert = opener.tab("Convert").get_by_test_id("convert")
    convert.get_by_role("combobox").select_option("anthropic")
    convert.get_by_role("button", name="Convert").click()
    expect(convert.get_by_role("tree", name="The request in format anthropic")).to_contain_text('"tool_use"')
    assert store.conversations() == []


@pytest.mark.thorough
def test_a_file_of_another_vendor_is_opened_too(opener: Person, tmp_path: Path) -> None:
    """Guarantee 10.6: by its own format, with a budget of its model's window."""
    (tmp_path / "theirs.json").write_text(json.dumps(CLAUDE))
    opener.page.locator("input[type=file]").set_input_files(tmp_path / "theirs.json")
    opened = opener.page.get_by_test_id("opened")
    expect(opened).to_contain_text("theirs.json")
    expect(opened).to_contain_text("in format anthropic")
    expect(opened.get_by_test_id("budget")).to_contain_text("200,000")
    expect(opener.page.get_by_test_id("lines")).to_contain_text("Good day")
    expect(opener.tab("Rules").get_by_test_id("findings")).to_contain_text("no findings")
    opener.page.get_by_role("button", name="Close", exact=True).click()
    expect(opener.page.locator("#paste-field")).to_be_visible()


def recorded(url: str, body: JSONObject, status: int = 200) -> JSONObject:
    return {"request": {"url": url, "postData": {"text": json.dumps(body)}}, "response": {"status": status}}


def recording() -> str:
    calls = [
        recorded("https://api.anthropic.com/v1/messages", CLAUDE),
        recorded("https://api.openai.com/v1/chat/completions", BROKEN, 400),
    ]
    return json.dumps({"log": {"entries": calls}})


def test_a_recording_opens_the_overview_of_its_conversations_and_can_be_imported(
    opener: Person, store: cc.Store, tmp_path: Path
) -> None:
    """Guarantee 13.1: the whole inspector, in a store of its own; nothing is kept that is not imported."""
    (tmp_path / "calls.har").write_text(recording())
    opener.page.locator("input[type=file]").set_input_files(tmp_path / "calls.har")
    box = opener.page.get_by_test_id("opened-file")
    expect(box).to_contain_text("calls.har")
    expect(box).to_contain_text("2 conversations")
    rows = opener.page.get_by_test_id("conversation")
    expect(rows).to_have_count(2)
    rows.filter(has_text="What is in the file?").locator("a").click()
    expect(opener.page.get_by_text("Import it to continue it")).to_be_visible()
    expect(opener.page.get_by_test_id("live")).to_have_count(0)
    opener.page.get_by_test_id("inspect").click()
    expect(opener.page.get_by_test_id("totals")).to_contain_text(
        "failed"
    )  # the provider refused it, so no tokens count
    expect(opener.tab("Rules").get_by_test_id("findings")).to_contain_text("messages[")
    assert store.conversations() == []
    opener.page.reload()
    expect(box).to_contain_text("calls.har")
    box.get_by_role("button", name="Import").click()
    expect(box).to_have_count(0)
    expect(rows).to_have_count(2)
    notice = opener.page.get_by_test_id("notice")
    expect(notice).to_contain_text("Imported 2 conversations.")
    expect(notice.get_by_role("link")).to_have_attribute("href", "#/overview")
    assert len(store.conversations()) == 2


@pytest.mark.thorough
def test_a_file_that_is_dropped_anywhere_is_opened_and_closed(person: Person) -> None:
    person.open("#/")
    person.page.evaluate(
        """text => {
            const held = new DataTransfer();
            held.items.add(new File([text], "dropped.har"));
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: held, bubbles: true, cancelable: true}));
        }""",
        recording(),
    )
    box = person.page.get_by_test_id("opened-file")
    expect(box).to_contain_text("dropped.har")
    box.get_by_role("button", name="Close").click()
    expect(person.page.get_by_test_id("open-file")).to_be_visible()
    expect(box).to_have_count(0)


def test_a_link_to_a_file_that_was_closed_says_so(person: Person) -> None:
    person.watch.expects("404")
    person.open("#/file/0123456789abcdef/overview")
    expect(person.page.get_by_test_id("opened-file")).to_contain_text("This file is not open any more")


@pytest.mark.thorough
def test_a_request_that_is_alone_is_compared_with_nothing(opener: Person) -> None:
    """There is no request before it: nothing is the same, and nothing new."""
    opened = paste(opener, json.dumps(BROKEN))
    lines = opener.page.get_by_test_id("lines")
    expect(lines.locator(".line")).to_have_count(3)
    assert lines.locator(".line-sign").all_inner_texts() == ["", "", ""]
    expect(lines.get_by_role("group", name="Filter messages").get_by_role("button")).to_have_count(1)
    expect(opened.locator(".budget-legend")).to_contain_text("Messages")
    expect(opened.locator(".budget-legend")).not_to_contain_text("Already sent")
    expect(opened.locator(".budget-legend")).not_to_contain_text("New in this request")


@pytest.mark.thorough
def test_what_python_prints_is_opened_and_a_model_can_be_named(opener: Person) -> None:
    """People paste what they have, and a list of messages has no model."""
    opened = paste(opener, repr(BROKEN["messages"]))
    expect(opened).to_contain_text("a list of messages in format openai_chat")
    opened.get_by_test_id("whose-model").fill("gpt-4o")
    opened.get_by_role("button", name="Show").click()
    expect(opened.get_by_test_id("budget")).to_contain_text("128,000")


def test_our_own_form_is_not_given_a_clean_bill(opener: Person, store: cc.Store) -> None:
    """Guarantee 10.6: no provider takes it so, and no rule was asked."""
    store.append("demo", cc.user("hi"))
    paste(opener, encode([decode(encode_message(message)) for message in store.load("demo")]).decode())
    expect(opener.page.get_by_role("tab", name="Rules")).not_to_contain_text("✓")
    expect(opener.tab("Rules").get_by_test_id("not-judged")).to_be_visible()
    expect(opener.page.get_by_role("tab", name="Repair")).to_have_count(0)


def test_invalid_input_is_reported_and_can_be_corrected(opener: Person) -> None:
    opener.watch.expects("40[0-9]|422")
    opener.page.locator("#paste-field").fill("{not json")
    opener.page.get_by_role("button", name="Open", exact=True).click()
    expect(opener.page.get_by_role("alert")).to_be_visible()
    expect(opener.page.locator("#paste-field")).to_have_value("{not json")
