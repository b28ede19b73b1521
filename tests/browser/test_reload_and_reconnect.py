"""Reloaded pages, several tabs and a killed server: nothing is lost or shown twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import contextc as cc
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.scripted_model import SPEC, Gate, Model, calls, text_reply
from tests.browser.server import Process


@pytest.fixture
def process(home: Path, model: Model) -> Iterator[Process]:
    """`contextc serve` in a process of its own."""
    found = Process(home, "--model", SPEC, token="the-same-after-a-restart")
    found.start()
    yield found
    model.open_all()
    found.end()


def test_a_page_that_is_loaded_again_continues_in_the_middle(person: Person, model: Model, store: cc.Store) -> None:
    """Guarantee 12.2: what has come is there at once, what comes follows, and no piece is missing or doubled."""
    gates = [Gate(), Gate()]
    texts = [f"{number} " for number in range(90)]
    model.will(text_reply(*texts[:30], gates[0], *texts[30:60], gates[1], *texts[60:], thinks="Counting is easy."))
    name = person.begins("Count")
    gates[0].reached()
    expect(person.page.locator(".assistant.live .prose")).to_have_text("".join(texts[:30]).strip())
    person.page.reload()
    expect(person.page.locator(".assistant.live .prose")).to_have_text("".join(texts[:30]).strip())
    expect(person.page.get_by_test_id("stop")).to_be_visible()
    gates[0].open()
    gates[1].reached()
    person.page.reload()
    gates[1].open()
    expect(person.rows("assistant").locator(".prose")).to_have_text("".join(texts).strip())
    person.sees_ended()
    assert (person.texts("user"), person.texts("assistant")) == (["Count"], ["".join(texts).strip()])
    expect(person.page.get_by_test_id("reasoning")).to_have_count(1)
    assert store.load(name, last=1)[0].text == "".join(texts)


@pytest.mark.thorough
def test_a_second_tab_sees_the_same(person: Person, visiting: Visit, model: Model) -> None:
    """Guarantee 12.2: any number of readers; what one of them says or allows is seen by all."""
    gate = Gate()
    model.will(
        text_reply("Now ", gate, "then."),
        calls(("write_file", {"path": "x.txt", "content": "x"})),
        text_reply("Written."),
    )
    name = person.begins("Hello")
    gate.reached()
    other = visiting(person.url).chat(name)
    for each in (person, other):
        expect(each.page.locator(".assistant.live .prose")).to_have_text("Now")
    gate.open()
    for each in (person, other):
        expect(each.rows("assistant").locator(".prose")).to_have_text("Now then.")
        each.sees_ended()
    other.says("Write it")
    expect(person.page.get_by_test_id("approval")).to_contain_text("x.txt")
    other.page.get_by_test_id("approval").get_by_role("button", name="Allow").click()
    for each in (person, other):
        expect(each.rows("assistant").last.locator(".prose")).to_have_text("Written.")
        expect(each.page.get_by_test_id("approval")).to_have_count(0)
        each.sees_ended()
        assert each.texts("user") == ["Hello", "Write it"]


def test_a_turn_continues_after_its_server_was_killed(process: Process, visiting: Visit, model: Model) -> None:
    """Guarantees 3.6, 12.2: the page comes back by itself, what was said is there once, and a press goes on."""
    gate = Gate()
    model.will(
        calls(("list_files", {"path": "."}), first="Looking."),
        text_reply("Half of ", "an answer", gate, " and the rest"),
        text_reply("The whole answer."),
    )
    person = visiting(process.url).open(process.login)
    person.begins("Tell me")
    expect(person.page.locator(".assistant.live .prose")).to_have_text("Half of an answer")
    person.watch.expects(r"net::ERR_(CONNECTION|INCOMPLETE|EMPTY)")
    process.kill()
    expect(person.page.get_by_test_id("gone")).to_be_visible()
    process.start()
    expect(person.page.get_by_test_id("gone")).to_have_count(0)
    person.page.get_by_test_id("ending").get_by_role("button").click()
    gate.open()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("The whole answer.")
    person.sees_ended()
    assert person.texts("user") == ["Tell me"]
    text = person.texts("assistant")
    assert text[0] == "Looking."
    assert text[-1] == "The whole answer."
    assert len(text) == len(set(text)) <= 3
    person.page.reload()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("The whole answer.")
    assert person.texts("assistant") == text
    assert len(person.page.get_by_test_id("tool-call").all()) == 1


@pytest.mark.thorough
def test_a_server_that_starts_again_with_a_new_token_is_opened_by_its_new_link(
    home: Path, visiting: Visit, model: Model
) -> None:
    """The cookie of the server before is worth nothing, and the page has to say how to get in again."""
    process = Process(home, "--model", SPEC)
    process.start()
    try:
        person = visiting(process.url).open(process.login)
        expect(person.page.get_by_test_id("composer")).to_be_visible()
        assert "token" not in person.page.url
        old = process.login
        person.page.goto("about:blank")  # an open page would try to reach the server before it has started again
        process.end()
        process.start()
        assert process.login != old
        person.watch.expects("401")
        for address in ("", old):  # an old link leads to the same
            person.open(address)
            asked = person.page.get_by_test_id("token-dialog")
            expect(asked).to_contain_text("Open the link that contextc serve printed")
            assert "token" not in person.page.url
        person.open(process.login)
        expect(person.page.get_by_test_id("composer")).to_be_visible()
        expect(asked).to_have_count(0)
    finally:
        process.end()


def test_a_stream_that_is_cut_is_taken_up_where_it_was(person: Person, model: Model) -> None:
    """Guarantee 12.2: by number, so no piece is shown twice."""
    gate = Gate()
    model.will(text_reply("One ", "two ", gate, "three ", "four."))
    person.begins("Count")
    expect(person.page.locator(".assistant.live .prose")).to_have_text("One two")
    person.watch.expects(r"ERR_INTERNET_DISCONNECTED")
    person.page.context.set_offline(True)
    gate.open()
    person.page.evaluate("fetch('api/info').catch(() => {})")
    person.page.context.set_offline(False)
    expect(person.rows("assistant").locator(".prose")).to_have_text("One two three four.")
    person.sees_ended()
    assert person.texts("assistant") == ["One two three four."]
