"""Work of other processes appears in the sidebar, the chat and the inspector by itself."""

import json
import re
import subprocess
import sys

import pytest
from playwright.sync_api import Route, expect

import contextc as cc
from contextc.proxy.proxy_server import ProxyServer, listen
from contextc.proxy.upstreams import load_upstreams
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.scripted_model import Model, text_reply
from tests.observation.test_observe import answer, chat

PROGRAM = """
import json, sys
import contextc as cc
with cc.open_store(sys.argv[1]) as store:
    for line in sys.stdin:
        seen = cc.observe(store, format="openai_chat", **json.loads(line))
        print(seen.conversation, flush=True)
"""


class Observer:
    """Another process, which records requests to the same store."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def observe(self, *texts: str, reply: str, **more: object) -> str:
        """Record a request with its reply; the name of its conversation."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"request": chat(*texts), "reply": answer(reply, input=20), **more}) + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def __enter__(self) -> "Observer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def test_requests_of_another_process_appear_without_a_reload(
    person: Person, visiting: Visit, server: str, address: str
) -> None:
    """Guarantee 12.2: in the sidebar, the chat and the inspector of every page."""
    inspecting = visiting(server)
    with Observer(address) as other:
        page = person.open("#/live/1").page
        expect(page.get_by_test_id("waiting")).to_be_visible()
        page.evaluate("() => { window.isSame = true; }")
        name = other.observe("first question", reply="first answer")
        expect(page.get_by_test_id("conversation")).to_contain_text("first question")
        expect(page).to_have_url(re.compile(f"#/c/{name}/inspect"))
        expect(page.get_by_test_id("step")).to_have_attribute("aria-label", re.compile("^Request 1"))
        page.get_by_test_id("conversation").locator("a").click()
        expect(person.rows("assistant").locator(".prose")).to_have_text(["first answer"])
        inspecting.inspects(name)
        expect(inspecting.page.get_by_test_id("step")).to_have_attribute("aria-label", re.compile("^Request 1"))
        inspecting.page.evaluate("() => { window.isSame = true; }")

        other.observe("first question", "first answer", "second question", reply="second answer", conversation=name)
        expect(person.rows("assistant").locator(".prose")).to_have_text(["first answer", "second answer"])
        expect(inspecting.page.get_by_test_id("step")).to_have_attribute("aria-label", re.compile("^Request 2"))
        context = f"<system-reminder>{'x' * 5_000}<img src=x></system-reminder>\n"
        other.observe(f"{context}another program", reply="its answer", conversation="another")
        for each in (page, inspecting.page):
            expect(each.get_by_test_id("conversation")).to_have_count(2)
            expect(each.get_by_test_id("conversation").first).to_contain_text("another program")
            assert each.evaluate("() => window.isSame")
        page.get_by_test_id("conversation").first.locator("a").click()
        expect(person.rows("user").locator(".typed")).to_have_text("another program")
        page.get_by_test_id("client-context").get_by_role("button").click()
        expect(page.get_by_test_id("client-context").locator(".typed")).to_contain_text("<img src=x>")
        assert page.locator("main img").count() == 0


def test_a_list_that_was_asked_for_earlier_does_not_replace_a_newer_one(person: Person, store: cc.Store) -> None:
    """An entry that disappeared for a moment would be another one when it is clicked."""
    store.append("one", cc.user("Question one"))
    page, held = person.open().page, list[Route]()
    entries, listing = page.get_by_test_id("conversation"), re.compile(r"/api/conversations\?")
    expect(entries).to_have_count(1)
    page.route(listing, lambda route: held.append(route))
    page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
    while not held:
        page.wait_for_timeout(5)
    older = held[0].fetch()
    store.append("two", cc.user("Question two"))
    expect(entries).to_contain_text(["Question two", "Question one"])
    with page.expect_request(listing):  # it is asked for again, and that is not answered yet
        held[0].fulfill(response=older)
    expect(entries).to_contain_text(["Question two", "Question one"])
    while len(held) < 2:
        page.wait_for_timeout(5)
    held[1].continue_()
    page.unroute(listing)
    expect(entries).to_contain_text(["Question two", "Question one"])


@pytest.mark.thorough
def test_deleted_conversations_disappear_and_proxies_are_shown(person: Person, store: cc.Store, address: str) -> None:
    store.append("one", cc.user("Question one"))
    page = person.open().page
    expect(page.get_by_test_id("conversation")).to_have_count(1)
    expect(page.get_by_test_id("proxy-status")).to_have_count(0)
    with cc.open_store(address) as other:
        other.delete("one")
    expect(page.get_by_test_id("conversation")).to_have_count(0)
    proxy = ProxyServer(address, load_upstreams(()))
    with listen("127.0.0.1", 0) as listening, proxy.running(listening) as url:
        expect(page.get_by_test_id("proxy-status")).to_contain_text("Recording · 0 requests")
        proxy.gaps.add(1, "the spool was full")
        expect(page.get_by_test_id("proxy-status")).to_contain_text("1 not recorded")
        page.get_by_test_id("proxy-status").locator("summary").click()
        expect(page.get_by_test_id("proxy-status")).to_contain_text(url)
        expect(page.get_by_test_id("proxy-status")).to_contain_text("the spool was full")
    proxy.close()
    expect(page.get_by_test_id("proxy-status")).to_have_count(0)
    page.evaluate("() => new BroadcastChannel('contextc.changes').postMessage({ type: 'ended', data: {} })")
    expect(page.get_by_test_id("ended")).to_contain_text("contextc serve shows it")
    expect(page.get_by_test_id("gone")).to_have_count(0)


@pytest.mark.thorough
def test_visiting_a_conversation_does_not_move_it(person: Person, model: Model) -> None:
    model.will(text_reply("One."), text_reply("Two."))
    name = ""
    for text, reply in (("first", "One."), ("second", "Two.")):
        name = person.begins(text)
        expect(person.rows("assistant").locator(".prose")).to_have_text(reply)
        person.sees_ended()
    entries = person.page.get_by_test_id("conversation")
    expect(entries.first).to_contain_text("second")
    with person.page.expect_response(re.compile("/timeline$")):  # the old events have been read by then
        entries.last.locator("a").click()
    expect(person.rows("assistant").locator(".prose")).to_have_text("One.")
    expect(entries.first).to_contain_text("second")
    assert person.name != name
