"""Branches in the web UI: edit, rewind, fork, switch back, and the messages that each leaves unchanged."""

import re

import pytest
from playwright.sync_api import expect

import contextc as cc
from tests.browser.page_driver import Person
from tests.browser.scripted_model import OTHER, Model, text_reply


@pytest.fixture
def talked(store: cc.Store) -> cc.Store:
    """Two questions and their answers."""
    store.extend("demo", [cc.user("one?"), cc.assistant("one."), cc.user("two?"), cc.assistant("two.")])
    return store


def test_an_edit_goes_another_way_and_the_first_one_stays(talked: cc.Store, person: Person, model: Model) -> None:
    """Guarantees 3.4, 12.2: an edit forks; a switch at the message leads from one way to the other and back."""
    model.will(text_reply("three."))
    person.chat("demo")
    row = person.page.locator("[data-seq='3']")
    row.hover()
    row.get_by_role("button", name="Edit message").click()
    field = person.page.get_by_test_id("edit").get_by_role("textbox")
    expect(field).to_have_value("two?")
    field.fill("three?")
    field.press("Enter")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("three.")
    person.sees_ended()
    assert person.texts("user") == ["one?", "three?"]
    ways = person.page.get_by_test_id("ways")
    expect(ways).to_contain_text("2/2")
    ways.get_by_role("button", name="Previous version").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("two.")
    assert person.texts("user") == ["one?", "two?"]
    expect(ways).to_contain_text("1/2")
    person.page.get_by_test_id("branches").click()
    lines = person.page.get_by_role("menuitemradio")
    expect(lines).to_have_text([re.compile(r"^1 · two\?4 messages · now"), re.compile(r"^2 · three\?4 messages · now")])
    lines.last.click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("three.")
    assert [each.text for each in talked.load("demo")] == ["one?", "one.", "three?", "three."]


@pytest.mark.thorough
def test_a_reply_leads_to_its_own_request_on_whichever_branch(person: Person, model: Model) -> None:
    """Guarantees 3.4, 13.1: a message of another branch with the same number came from another request."""
    model.will(*[text_reply(f"{each}.") for each in ("Paris", "Rome", "Athens", "Madrid", "Madrid again")])
    person.begins("France")
    for question, reply in (("", "Paris."), ("Italy", "Rome."), ("Greece", "Athens.")):
        if question:
            person.says(question)
        expect(person.rows("assistant").last.locator(".prose")).to_have_text(reply)
        person.sees_ended()
    row = person.page.locator("[data-seq='3']")
    row.hover()
    row.get_by_role("button", name="Edit message").click()
    field = person.page.get_by_test_id("edit").get_by_role("textbox")
    field.fill("Spain")
    field.press("Enter")
    reply = person.page.locator("[data-seq='4']")
    expect(reply.locator(".prose")).to_have_text("Madrid.")
    person.sees_ended()
    expect(reply.get_by_test_id("inspect-link")).to_have_attribute("href", re.compile("/4$"))
    expect(person.page.get_by_test_id("gauge")).to_have_attribute("href", re.compile("/4$"))
    reply.hover()
    reply.get_by_role("button", name="Regenerate", exact=True).click()
    expect(reply.locator(".prose")).to_have_text("Madrid again.")
    person.sees_ended()
    expect(reply.get_by_test_id("inspect-link")).to_have_attribute("href", re.compile("/5$"))
    reply.get_by_test_id("ways").get_by_role("button", name="Previous version").click()
    expect(reply.locator(".prose")).to_have_text("Madrid.")
    expect(reply.get_by_test_id("inspect-link")).to_have_attribute("href", re.compile("/4$"))
    expect(person.page.get_by_test_id("gauge")).to_have_attribute("href", re.compile("/4$"))


def test_a_rewind_goes_back_after_asking(talked: cc.Store, person: Person, model: Model) -> None:
    """Guarantee 3.4: what came after stays on its own branch, and the conversation goes on from the message."""
    model.will(text_reply("again."))
    person.chat("demo")
    person.page.locator("[data-seq='2']").hover()
    person.item(person.page.get_by_role("button", name="Actions for message 2"), "Rewind to here")
    question = person.page.get_by_test_id("question")
    question.get_by_role("button", name="Cancel").click()
    assert talked.conversation("demo").length == 4
    person.page.locator("[data-seq='2']").hover()
    person.item(person.page.get_by_role("button", name="Actions for message 2"), "Rewind to here")
    question.get_by_role("button", name="Rewind").click()
    expect(person.page.locator("[data-seq='3']")).to_have_count(0)
    person.says("and now?")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("again.")
    person.sees_ended()
    assert person.texts("user") == ["one?", "and now?"]
    expect(person.page.get_by_test_id("branches")).to_contain_text("2")


def test_a_regenerated_answer_is_another_branch(talked: cc.Store, person: Person, model: Model) -> None:
    """Guarantee 3.4: the first answer is kept."""
    model.will(text_reply("two, I think."))
    person.chat("demo")
    last = person.page.locator("[data-seq='4']")
    last.hover()
    last.get_by_role("button", name="Regenerate", exact=True).click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("two, I think.")
    person.sees_ended()
    expect(person.page.get_by_test_id("ways")).to_contain_text("2/2")
    assert person.texts("user") == ["one?", "two?"]


@pytest.mark.thorough
def test_another_model_may_answer_again(talked: cc.Store, person: Person, model: Model) -> None:
    """Guarantees 3.4, 12.2: the chosen model answers at once; the previous answer stays."""
    model.will(text_reply("two, I am told."))
    person.chat("demo")
    person.page.locator("[data-seq='4']").hover()
    person.page.locator("[data-seq='4']").get_by_role("button", name="Regenerate with another model").click()
    person.page.get_by_role("combobox").fill(OTHER)
    person.page.get_by_role("combobox").press("Enter")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("two, I am told.")
    person.sees_ended()
    assert [request["model"] for request in model.requests] == ["gpt-4o-mini"]
    expect(person.page.get_by_test_id("ways")).to_contain_text("2/2")


def test_a_fork_is_a_conversation_of_its_own(talked: cc.Store, person: Person) -> None:
    """Guarantee 3.4: it begins as the other one did, under a name that is asked for."""
    person.chat("demo")
    person.page.locator("[data-seq='2']").hover()
    person.item(person.page.get_by_role("button", name="Actions for message 2"), "Fork as a new conversation")
    question = person.page.get_by_test_id("question")
    question.get_by_role("textbox").fill("a/b c")
    question.get_by_role("button", name="Fork").click()
    person.page.wait_for_url("**/#/c/a%2Fb%20c")
    expect(person.rows("assistant").locator(".prose")).to_have_text("one.")
    assert person.texts("user") == ["one?"]
    expect(person.page.get_by_test_id("conversation")).to_have_count(2)
    assert [each.text for each in talked.load("a/b c")] == ["one?", "one."]


@pytest.mark.thorough
def test_a_pinned_message_is_reported(talked: cc.Store, person: Person) -> None:
    """Guarantee 7.3: pinned manually, and let go again."""
    person.chat("demo")
    for label, count in (("Pin", 1), ("Unpin", 0)):
        person.page.locator("[data-seq='1']").hover()
        person.item(person.page.get_by_role("button", name="Actions for message 1"), label)
        expect(person.page.locator("[data-seq='1'] .tag.accent")).to_have_count(count)
