"""Other ways for a conversation to go: edited, rewound, forked, switched back, and what each leaves as it was."""

import pytest
from playwright.sync_api import expect

import contextc as cc
from tests.browser.model import Model, says
from tests.browser.person import Person


@pytest.fixture
def talked(store: cc.Store) -> cc.Store:
    """Two questions and their answers."""
    store.extend("demo", [cc.user("one?"), cc.assistant("one."), cc.user("two?"), cc.assistant("two.")])
    return store


def test_an_edit_goes_another_way_and_the_first_one_stays(talked: cc.Store, person: Person, model: Model) -> None:
    """SPEC 4.5, 12.2: an edit forks; a switch at the message leads from one way to the other and back."""
    model.will(says("three."))
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
    ways.get_by_role("button", name="Way before").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("two.")
    assert person.texts("user") == ["one?", "two?"]
    expect(ways).to_contain_text("1/2")
    person.item(person.page.get_by_test_id("branches"), "Branch 2")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("three.")
    assert [each.text for each in talked.load("demo")] == ["one?", "one.", "three?", "three."]


def test_a_rewind_goes_back_after_asking(talked: cc.Store, person: Person, model: Model) -> None:
    """SPEC 4.5: what came after stays on its own branch, and the conversation goes on from the message."""
    model.will(says("again."))
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


def test_an_answer_once_more_is_another_way(talked: cc.Store, person: Person, model: Model) -> None:
    """SPEC 4.5: the first answer is kept."""
    model.will(says("two, I think."))
    person.chat("demo")
    last = person.page.locator("[data-seq='4']")
    last.hover()
    last.get_by_role("button", name="Answer again").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("two, I think.")
    person.sees_ended()
    expect(person.page.get_by_test_id("ways")).to_contain_text("2/2")
    assert person.texts("user") == ["one?", "two?"]


def test_a_fork_is_a_conversation_of_its_own(talked: cc.Store, person: Person) -> None:
    """SPEC 4.5: it begins as the other one did, under a name that is asked for."""
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


def test_a_pinned_message_says_so(talked: cc.Store, person: Person) -> None:
    """SPEC 8: pinned by hand, and let go again."""
    person.chat("demo")
    for label, count in (("Pin", 1), ("Unpin", 0)):
        person.page.locator("[data-seq='1']").hover()
        person.item(person.page.get_by_role("button", name="Actions for message 1"), label)
        expect(person.page.locator("[data-seq='1'] .tag.accent")).to_have_count(count)
