"""The model picker: search by name, available models first, and errors for unavailable ones."""

import re

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from tests.browser.conftest import DESK, Visit
from tests.browser.page_driver import Person
from tests.browser.scripted_model import SPEC, Model, text_reply


@pytest.fixture(autouse=True)
def nobodys_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def opened(person: Person) -> Locator:
    """Open the list and return its options."""
    person.page.get_by_test_id("model").click()
    expect(person.page.get_by_role("listbox")).to_be_visible()
    return person.page.get_by_role("listbox").get_by_role("option")


def test_available_models_come_first_and_others_are_folded(person: Person) -> None:
    """Guarantee 12.2: not a screen of models of one vendor that has no key."""
    person.open()
    expect(person.page.get_by_test_id("model")).to_contain_text(SPEC)
    options = opened(person)
    expect(options.first).to_contain_text(SPEC)
    ready = options.evaluate_all("all => all.findIndex(each => each.classList.contains('not-ready'))")
    assert options.evaluate_all(f"all => all.slice({ready}).every(each => !each.innerText.includes(':claude'))")
    anthropic = options.filter(has_text=re.compile("^anthropic"))
    expect(anthropic).to_have_count(1)
    expect(anthropic).to_contain_text("no key")
    anthropic.click()
    expect(options.filter(has_text="anthropic:claude-sonnet-4-5").first).to_be_visible()
    anthropic.first.click()
    expect(options.filter(has_text="anthropic:claude")).to_have_count(0)


def test_an_unknown_provider_is_refused_in_the_input_field(person: Person) -> None:
    """Guarantee 12.2: said when it is chosen, not when something is sent; another name of one that there is will do."""
    person.open()
    opened(person)
    field = person.page.get_by_role("combobox")
    field.fill("nosuch:foo")
    expect(person.page.get_by_test_id("model-wrong")).to_contain_text("Unknown provider “nosuch”. Known: openai")
    field.press("Enter")
    expect(person.page.get_by_test_id("model")).to_contain_text(SPEC)
    expect(field).to_be_visible()
    field.fill("claude:some-model-of-mine")
    expect(person.page.get_by_test_id("model-wrong")).to_have_count(0)
    field.press("Enter")
    expect(person.page.get_by_test_id("model")).to_contain_text("claude:some-model-of-mine")


def test_a_missing_key_is_reported_with_a_fix_that_works_here(person: Person, model: Model, store: cc.Store) -> None:
    """Guarantee 15.1: the missing key, and a fix for this server; no advice for programs."""
    model.will(text_reply("Good day."))
    person.begins("Hello")
    expect(person.rows("assistant").locator(".prose")).to_have_text("Good day.")
    person.sees_ended()
    opened(person)
    person.page.get_by_role("combobox").fill("anthropic:claude-sonnet-4-5")
    person.page.get_by_role("combobox").press("Enter")
    person.says("And you?")
    notice = person.page.get_by_test_id("notice-error")
    expect(notice).to_contain_text("No API key for anthropic.")
    expect(notice).to_contain_text("Set ANTHROPIC_API_KEY")
    expect(notice).to_contain_text("restart the server")
    for text in ("ProviderFailed", "cc.provider", "(auth)"):
        expect(notice).not_to_contain_text(text)


COUNT_STREAMS = """
const signals = [], send = window.fetch;
window.fetch = (url, options) => {
  if (String(url).includes("/events?")) signals.push(options.signal);
  if (options?.method === "DELETE") window.streamsAtDeletion = signals.filter((each) => !each.aborted).length;
  return send(url, options);
};
"""


def test_a_first_message_that_returns_is_for_the_model_that_was_chosen(
    visiting: Visit, server: str, store: cc.Store
) -> None:
    """Sent again, it goes to the same model, not to the default one, which may be of another vendor.

    The events of its conversation are not asked for when that is deleted.
    """
    person = visiting(server, viewport=DESK)  # a page of its own, for the script
    person.page.add_init_script(COUNT_STREAMS)
    person.open()
    opened(person)
    person.page.get_by_role("combobox").fill("anthropic:claude-sonnet-4-5")
    person.page.get_by_role("combobox").press("Enter")
    person.says("Hello?")
    expect(person.page.get_by_text("Nothing was stored.")).to_be_visible()
    expect(person.composer).to_have_value("Hello?")
    expect(person.page.get_by_test_id("model")).to_contain_text("anthropic:claude-sonnet-4-5")
    assert store.conversations() == []
    assert person.page.evaluate("() => window.streamsAtDeletion") == 0
    person.open("#/overview")
    expect(person.page.get_by_role("heading", name="Overview")).to_be_visible()
    person.open("#/")
    expect(person.page.get_by_test_id("model")).to_contain_text(SPEC)


def test_a_conversation_that_is_not_there_is_reported_by_the_page(person: Person) -> None:
    """Guarantee 12.2: the advice does not mention `store`."""
    person.watch.expects("404")
    person.open("#/c/nowhere")
    alert = person.page.get_by_role("alert")
    expect(alert).to_contain_text("Conversation not found")
    expect(alert).not_to_contain_text("store.")
    expect(alert).not_to_contain_text("append")
