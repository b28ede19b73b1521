"""Notices between messages: they are shown at their message and on their branch, at any age."""

from typing import Any

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from contextc.events import (
    AnyEvent,
    ErrorOccurred,
    FailureDetails,
    StepFinish,
    TextDelta,
    TurnFinish,
    UserNoticeCreated,
)
from contextc.store import turn_records
from contextc.store.message_log import load_tip
from tests.browser.page_driver import MESSAGES, Person
from tests.browser.scripted_model import Model, text_reply
from tests.observation.test_observe import answer, chat

pytestmark = pytest.mark.usefixtures("requests_followed")

DELTAS = 60
HINTS = "[data-testid=notice-system-hint]"


@pytest.fixture
def talked(store: cc.Store) -> cc.Store:
    """A conversation in which 20 answers came in 60 pieces each, with a hint after every one of them."""
    messages = [cc.assistant(f"Answer {seq}.") if seq % 2 == 0 else cc.user(f"Question {seq}?") for seq in range(1, 41)]
    store.extend("demo", messages)
    answers = [message for message in store.load("demo") if message.role == "assistant"]
    texts = [event for turn, message in enumerate(answers, 1) for event in events_of(turn, message)]
    store.write(lambda tx: turn_records.append_events(tx, load_tip(tx, "demo").conversation, texts))
    return store


def events_of(turn: int, message: cc.Message) -> list[AnyEvent]:
    pieces = [TextDelta(agent="assistant", turn=turn, step=1, uid=message.uid, text="so ") for _ in range(DELTAS)]
    return [
        *pieces,
        StepFinish(agent="assistant", turn=turn, step=1, uid=message.uid, seq=message.seq),
        UserNoticeCreated(agent="assistant", turn=turn, text=f"A hint at {message.seq}."),
        TurnFinish(agent="assistant", turn=turn, finish="stop", steps=1),
    ]


def at(person: Person, seq: int) -> Locator:
    """The hints at a message."""
    return person.page.locator(f"[data-seq='{seq}'] {HINTS}")


def asked(person: Person) -> int:
    return len([each for each in person.watch.asked if "/notices?" in each])


def test_a_hint_is_where_it_happened_however_long_ago(talked: cc.Store, person: Person, model: Model) -> None:
    """Guarantee 12.2: hundreds of events later, once, and new notices follow it."""
    assert len(talked.events("demo")) > 1_200
    person.chat("demo")
    for seq in (40, 38):
        expect(at(person, seq)).to_have_text([f"A hint at {seq}."])
    feed = person.page.locator(MESSAGES)
    feed.focus()
    feed.press("Home")
    for seq in (2, 4):
        expect(at(person, seq)).to_have_text([f"A hint at {seq}."])
    expect(at(person, 3)).to_have_count(0)
    person.says("And?")
    expect(person.page.get_by_test_id("notice-error")).to_contain_text("The script is at its end.")
    feed.press("Home")
    expect(at(person, 2)).to_have_text(["A hint at 2."])
    assert asked(person) == 1


@pytest.mark.thorough
def test_hints_go_with_the_line_they_belong_to(talked: cc.Store, person: Person, model: Model) -> None:
    """Guarantees 3.4, 12.2: what comes after an edit has none of them, what stays keeps its own; and so back again."""
    model.will(text_reply("Otherwise."))
    person.chat("demo")
    row = person.page.locator("[data-seq='37']")
    row.hover()
    row.get_by_role("button", name="Edit message").click()
    field = person.page.get_by_test_id("edit").get_by_role("textbox")
    field.fill("Or?")
    field.press("Enter")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Otherwise.")
    person.sees_ended()
    expect(at(person, 36)).to_have_text(["A hint at 36."])
    expect(person.page.get_by_text("A hint at 38.")).to_have_count(0)
    expect(person.page.get_by_text("A hint at 40.")).to_have_count(0)
    person.page.reload()
    expect(at(person, 36)).to_have_text(["A hint at 36."])
    expect(person.page.get_by_text("A hint at 38.")).to_have_count(0)
    expect(person.page.get_by_text("A hint at 40.")).to_have_count(0)
    person.page.get_by_test_id("ways").get_by_role("button", name="Previous version").click()
    expect(at(person, 40)).to_have_text(["A hint at 40."])
    expect(at(person, 38)).to_have_text(["A hint at 38."])


@pytest.mark.thorough
def test_a_pin_takes_no_hint_away(talked: cc.Store, person: Person) -> None:
    """Guarantee 12.2: what changes a conversation silently has it read again, and its notices with it."""
    person.chat("demo")
    expect(at(person, 40)).to_have_text(["A hint at 40."])
    person.page.locator("[data-seq='40']").hover()
    person.item(person.page.get_by_role("button", name="Actions for message 40"), "Pin")
    expect(person.page.locator("[data-seq='40'] .tag.accent")).to_have_count(1)
    expect(at(person, 40)).to_have_text(["A hint at 40."])


DETAILS = FailureDetails(provider="openai", message="Slow down", status=429, retry_after=90)
TEXT = (
    "ProviderFailed: openai failed (rate: status 429): Slow down. Too many requests in a short time. Wait, then retry."
)
FAILURES: list[tuple[ErrorOccurred, str]] = [
    (
        ErrorOccurred(kind="rate", error=TEXT, failure=DETAILS),
        "openai: rate limit reached. Slow down. It requested a wait of 1 min 30 s. Wait, then retry.",
    ),
    (
        ErrorOccurred(
            kind="invalid", error=TEXT, failure=FailureDetails(provider="ollama", message="No model.", fix="Pull it.")
        ),
        "ollama rejected this request. No model. Pull it. "
        "Open Inspect to see what was sent; its Rules tab lists problems.",
    ),
    (
        ErrorOccurred(
            kind="auth", error=TEXT, failure=FailureDetails(provider="codex", case="login", detail="codex login")
        ),
        "codex: not logged in. Log in on the server: codex login",
    ),
    (ErrorOccurred(kind="rate", error=TEXT), TEXT.removeprefix("ProviderFailed: ")),
    (ErrorOccurred(kind="internal", error="RuntimeError: broken"), "broken"),
    (ErrorOccurred(kind="rate", error="", failure=FailureDetails()), ""),
]


def test_provider_failures_are_described_from_the_fields_of_the_event(store: cc.Store, person: Person) -> None:
    """Guarantee 15.1: a headline, the provider's message and a fix. Events without `failure` show their text."""
    store.append("demo", cc.user("Hello"))
    reply = store.append("demo", cc.assistant("Half", status="error", error=TEXT))
    at_reply = StepFinish(agent="assistant", turn=1, step=1, uid=reply.uid, seq=reply.seq)
    events: list[AnyEvent] = [at_reply, *(event for event, _ in FAILURES)]
    store.write(lambda tx: turn_records.append_events(tx, load_tip(tx, "demo").conversation, events))
    person.chat("demo")
    notices = person.page.get_by_test_id("notice-error").locator(".failure")
    expect(notices).to_have_text([text for _, text in FAILURES])
    expect(person.page.locator(".state-note")).to_contain_text("Failed: openai: rate limit reached. Slow down.")


def test_failed_requests_of_other_software_are_shown_where_they_happened(store: cc.Store, person: Person) -> None:
    """Guarantee 12.2: after the message that was sent; those of another branch after the last common message."""
    options: Any = {"format": "openai_chat", "conversation": "bot"}
    failed: Any = {"reply": {"error": {"message": "overloaded"}}, "status": 529}
    for moment in (1_000, 2_000):
        cc.observe(store, request=chat("a"), time=moment, **failed, **options)
    cc.observe(store, request=chat("a"), reply=answer("b"), time=3_000, **options)
    cc.observe(store, request=chat("a", "b", "wrong"), time=4_000, **failed, **options)
    cc.observe(store, request=chat("a", "b", "right"), reply=answer("c"), time=5_000, **options)
    person.chat("bot")
    notices = person.page.get_by_test_id("notice-failed-request")
    expect(notices).to_have_count(2)
    expect(person.page.locator("[data-seq='1']").get_by_test_id("notice-failed-request")).to_contain_text(
        "Requests 1 to 2: failed (529) overloaded"
    )
    second = person.page.locator("[data-seq='2']").get_by_test_id("notice-failed-request")
    expect(second).to_contain_text("Its messages are on another branch.")
    second.get_by_role("link", name="Inspect").click()
    expect(person.page.get_by_test_id("reply")).to_contain_text("overloaded")
