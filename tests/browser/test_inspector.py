"""The inspector: all views of a request, with the same figures as the command line."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.sample_conversations import busy, two_models
from tests.browser.scripted_model import KEY, SPEC, Gate, Model, text_reply
from tests.browser.server import served
from tests.compiler.session_conversation import Talk, call, keeper
from tests.observation.test_conversation_match import claude, claude_answer
from tests.web.sample_conversations import SONNET, Life, provider_of

CLIPBOARD = ["clipboard-read", "clipboard-write"]
TAKEN = """async () => {
  for (let tries = 0; tries < 1500; tries += 1) {
    const text = await navigator.clipboard.readText();
    if (text) return text;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return "";
}"""


class Seen(NamedTuple):
    """A server that is only looked at, and the address of its store."""

    url: str
    address: str


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """One for all tests that change nothing."""
    folder = tmp_path_factory.mktemp("seen")
    address = f"sqlite:///{folder}/served.db"
    with cc.open_store(address) as store:
        busy(store)
        with served(store, ServerOptions(root=folder, model=SPEC)) as url:
            yield Seen(url, address)


@pytest.fixture
def reader(seen: Seen, model: Model, visiting: Visit) -> Person:
    """Return a driver with the last request open."""
    person = visiting(seen.url)
    person.page.context.grant_permissions(CLIPBOARD)
    return person.inspects("demo")


def heading(person: Person) -> Locator:
    return person.page.get_by_test_id("step").get_by_role("heading", level=2)


def taken(person: Person, button: str) -> str:
    """What a button puts into the clipboard."""
    person.page.evaluate("navigator.clipboard.writeText('')")
    person.page.get_by_role("button", name=button).click()
    return str(person.page.evaluate(TAKEN))


def chooses(person: Person, request: int) -> None:
    """Click on a bar of the mini timeline; what is drawn above it does not matter."""
    column = person.page.get_by_test_id("mini-timeline").locator("g.mini-bar").nth(request - 1)
    column.element_handle().wait_for_element_state("stable")
    column.click(force=True)
    expect(heading(person)).to_contain_text(f"Request {request} ")


def test_the_timeline_leads_to_every_step(reader: Person) -> None:
    """Guarantee 13.1: a column a step, by click and by key; epochs say why they began; the address names the step."""
    reader.page.get_by_test_id("timeline-button").click()
    timeline = reader.page.get_by_test_id("timeline")
    expect(timeline.locator("g.column")).to_have_count(10)
    expect(heading(reader)).to_contain_text("Request 10")
    chooses(reader, 3)
    expect(reader.page).to_have_url(re.compile(r"/inspect/[^/]+/3$"))
    reader.page.keyboard.press("ArrowRight")
    expect(heading(reader)).to_contain_text("Request 4")
    expect(reader.page.locator(".step-facts")).to_contain_text("Message was edited or branched")
    slider = reader.page.get_by_role("slider", name="Step")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("[Mm]essage was edited or branched"))
    slider.press("Home")
    expect(heading(reader)).to_contain_text("Request 1")
    slider.press("End")
    expect(heading(reader)).to_contain_text("Request 10")
    reader.page.get_by_role("button", name="Table", exact=True).click()
    why = reader.page.get_by_test_id("step-table").locator(".step-why").all_inner_texts()
    wanted = ["First request", "Message was edited or branched", "Cache reset: tools changed"]
    assert [each for each in why if each][:3] == wanted
    totals = reader.page.get_by_test_id("totals")
    expect(totals).to_contain_text("10")
    reader.page.reload()
    expect(heading(reader)).to_contain_text("Request 10")


def test_every_line_reports_whether_it_is_in_and_why_not(reader: Person) -> None:
    """Guarantee 13.1: omitted messages are listed with the reason; a line opens to its whole text."""
    lines = reader.page.get_by_test_id("lines")
    which = lines.get_by_role("group", name="Filter messages")
    expect(lines.locator(".line")).not_to_have_count(0)
    which.get_by_role("button", name="Left out").click()
    expect(lines.locator(".line[data-state=left]").first).to_be_visible()
    expect(lines.locator(".line[data-state=shared], .line[data-state=new]")).to_have_count(0)
    assert all(lines.locator(".line .line-why").all_inner_texts())
    which.get_by_role("button", name=re.compile("^New")).click()
    expect(lines.locator(".line[data-state=left]")).to_have_count(0)
    last = lines.locator(".line").filter(has_text="4 so it goes")
    last.locator(".line-button").click()
    expect(last.locator(".line-open")).to_contain_text("so it goes so it goes")
    lines.get_by_role("searchbox").fill("4 so it")
    expect(lines.get_by_test_id("hit-count")).to_have_text("1 of 1")


def test_the_prefix_of_a_changed_head_is_its_tools_and_larger_rows_are_explained(
    store: cc.Store, person: Person
) -> None:
    """Guarantee 13.1: the line above the rows has the figure of all surfaces, and says why theirs can be larger."""
    life = Life(store, provider_of(SONNET, window=60_000), name="heads")
    life.turn("One?", usage=cc.Usage(input=900, output=2))
    life.turn("Two?", usage=cc.Usage(input=2_000, output=2))
    life.fragments = (cc.PromptFragment("identity", "You are a tester."),)
    life.turn("Three?", usage=cc.Usage(input=2_100, output=2))
    person.inspects("heads", f"/{life.channel}/3")
    same = person.page.get_by_test_id("prefix")
    expect(same).to_have_text(re.compile(r"request: [\d,]+ tokens: the first 3 of 4 rows\. The provider read nothing"))
    person.inspects("heads", f"/{life.channel}/2")
    expect(same).to_contain_text(
        re.compile(r"request: 900 tokens: .*\. In the rows they are 1,\d\d\d: estimated shares")
    )


def test_the_shared_prefix_ends_where_something_broke_it(reader: Person) -> None:
    """Guarantee 13.1: what was sent before is marked, and what broke it is named."""
    chooses(reader, 3)
    same = reader.page.get_by_test_id("prefix")
    expect(same).to_contain_text("Same as in the previous request")
    expect(same).to_have_text(
        re.compile(r"request: [\d,]+ tokens: 3 tool definitions, the system prompt, the first 4 of 6 messages$")
    )
    expect(reader.page.get_by_test_id("row-counts")).to_have_text(
        "10 rows: 3 tool definitions, the system prompt, 6 messages"
    )
    expect(reader.page.get_by_role("button", name=re.compile("^All"))).to_have_text("All10")
    expect(reader.page.get_by_role("tab", name=re.compile("^Messages"))).to_have_text(re.compile(r"Messages\s*6"))
    expect(reader.page.get_by_test_id("prefix-end")).to_contain_text("Nothing before has changed")
    reader.page.keyboard.press("ArrowRight")
    broke = reader.page.get_by_test_id("prefix-break")
    expect(broke).to_contain_text("The conversation was edited")
    reader.page.keyboard.press("ArrowRight")
    expect(broke).to_contain_text("tools")


def test_the_request_is_the_one_that_was_sent(reader: Person, seen: Seen) -> None:
    """Guarantee 13.1: to the byte what `contextc explain --body` says; also as a command and as a program."""
    panel = reader.tab("Request")
    expect(panel.get_by_test_id("json")).to_be_visible()
    program = [sys.executable, "-m", "contextc", "explain", "demo", "10", "--body", "--store", seen.address]
    body = subprocess.run(program, capture_output=True, check=True, timeout=120).stdout
    assert taken(reader, "Copy JSON").encode() == body.rstrip(b"\n")
    expect(panel).to_contain_text(f"{len(body.rstrip()):,} bytes")
    rows = panel.get_by_role("treeitem")
    expect(rows.first).to_be_visible()
    command = taken(reader, "Copy as curl")
    assert "curl" in command
    assert f"${{{KEY}}}" in command  # the name of the key, never the key
    assert "OpenAI(" in taken(reader, "Copy as Python")
    panel.get_by_role("searchbox").fill("so it goes")
    panel.get_by_role("searchbox").press("Enter")
    expect(panel.get_by_role("status").filter(has_text="of")).to_be_visible()
    with reader.page.expect_download() as saved:
        panel.get_by_role("button", name="Download").click()
    assert json.loads(saved.value.path().read_bytes()) == json.loads(body)


def test_what_changed_since_the_request_before_is_reported(reader: Person) -> None:
    """Guarantee 13.1: what is the same is folded; a tool that was added is a difference."""
    chooses(reader, 5)
    panel = reader.tab("Changes")
    expect(panel.get_by_test_id("diff")).to_contain_text("Compared with request 4")
    added = panel.locator(".compare-item.is-added")
    expect(added.filter(has_text="tool dig").first).to_be_visible()
    expect(panel.locator(".compare-fold").first).to_contain_text("unchanged")
    reader.page.get_by_role("slider", name="Request").press("Home")
    expect(panel).to_contain_text("This is the first request to this model.")


def test_the_rules_hold_for_what_was_compiled(reader: Person) -> None:
    """Guarantee 10.6: a request of ours has no findings."""
    expect(reader.tab("Rules").get_by_test_id("findings")).to_contain_text("no findings")


def test_the_next_request_is_previewed_with_the_cost_of_a_change(reader: Person) -> None:
    """Guarantee 13.2: before anything happens."""
    panel = reader.tab("Preview next request")
    expect(panel.get_by_test_id("verdict")).to_contain_text("No cached tokens would be lost.")
    expect(panel.get_by_test_id("verdict")).to_contain_text("Request 11")
    panel.get_by_label("If you").select_option("edit")
    panel.get_by_label("Message", exact=True).fill("1")
    panel.get_by_label("New text").fill("look again")
    panel.get_by_role("button", name="Preview").click()
    expect(panel.get_by_test_id("verdict")).to_contain_text(re.compile(r"[\d,]+ cached tokens would be lost"))


@pytest.mark.thorough
def test_two_channels_are_distinguished(store: cc.Store, person: Person) -> None:
    """Guarantee 9.1: a letter each; one may be looked at alone."""
    two_models(store)
    person.inspects("demo")
    columns = person.page.get_by_test_id("mini-timeline").locator("g.mini-bar")
    expect(columns).to_have_count(3)
    person.page.get_by_test_id("channel-filter").select_option(index=2)
    expect(columns).to_have_count(1)
    expect(person.page.get_by_test_id("step")).to_contain_text("claude-sonnet-4-5")


def test_a_session_is_shown_with_its_content(store: cc.Store, person: Person) -> None:
    """Guarantees 9.1, 13.1: what the provider keeps already, what is news to it, and how the next request will go."""
    talk = Talk(store, keeper())
    store.append("demo", cc.user("hello"))
    talk.step(call("a"), directory="/tmp", tools=[])
    store.extend("demo", [cc.tool_result("a", "look", "nothing"), cc.user("well?")])
    ledger = person.inspects("demo").tab("Session").get_by_test_id("ledger")
    expect(ledger).to_contain_text("Provider keeps a session")
    expect(ledger).to_contain_text("session1")
    expect(ledger.get_by_role("region", name="Already sent", exact=True)).to_contain_text("hello")
    expect(ledger.get_by_role("region", name="Not sent yet")).to_contain_text("well?")
    expect(ledger.get_by_role("region", name="Cache resets")).to_contain_text("first request")


def test_a_conversation_without_an_answer_shows_what_would_be_sent(store: cc.Store, person: Person) -> None:
    """Guarantee 13.2: there is no request yet, and still something to see."""
    store.append("demo", cc.user("anybody?"))
    person.open("#/c/demo/inspect")
    expect(person.page.get_by_test_id("inspector")).to_contain_text("No request yet")
    expect(person.page.get_by_test_id("next").get_by_test_id("lines")).to_contain_text("anybody?")


def test_what_is_wrong_with_a_preview_is_told_at_its_field(seen: Seen, visiting: Visit) -> None:
    """Guarantee 13.2: "Could not load" and "Retry" are for what may go well the second time."""
    person = visiting(seen.url).inspects("demo")
    person.watch.expects("400", "404")
    preview = person.tab("Preview next request").get_by_test_id("next")
    model = preview.get_by_label("With model")
    before = model.input_value()
    model.fill("nosuch:model")
    preview.get_by_role("button", name="Preview").click()
    expect(preview.get_by_role("alert")).to_contain_text("Provider 'nosuch' not found")
    expect(model).to_have_attribute("aria-invalid", "true")
    expect(model).to_have_accessible_description(re.compile("Provider 'nosuch' not found"))
    expect(preview.get_by_role("button", name="Retry")).to_have_count(0)
    model.fill(before)
    preview.get_by_label("If you").select_option("edit")
    preview.get_by_label("New text").fill("another question")
    preview.get_by_label("Message", exact=True).fill("9999")
    preview.get_by_role("button", name="Preview").click()
    expect(preview.get_by_label("Message", exact=True)).to_have_accessible_description(re.compile("no message 9999"))
    expect(model).not_to_have_attribute("aria-invalid", "true")
    preview.get_by_label("Message", exact=True).fill("1")
    preview.get_by_role("button", name="Preview").click()
    expect(preview.get_by_test_id("verdict")).to_be_visible()
    expect(preview.get_by_role("alert")).to_have_count(0)


def test_a_message_leads_to_the_request_that_it_answers(seen: Seen, model: Model, visiting: Visit) -> None:
    """Guarantee 13.1: from the chat to the inspector and back."""
    person = visiting(seen.url).chat("demo")
    person.rows("assistant").last.get_by_test_id("inspect-link").click()
    expect(heading(person)).to_contain_text("Request 10")
    person.page.get_by_role("link", name="Back to the conversation").click()
    expect(person.composer).to_be_visible()


def test_a_request_that_was_stopped_is_not_missing(person: Person, model: Model) -> None:
    """Guarantees 9.7, 13.1: also where there is nothing else; later between the others, in the chart and in the
    table.
    """
    gate = Gate()
    model.will(text_reply("One, ", gate, "two"), text_reply("Three."), text_reply("Four."))
    name = person.begins("count")
    gate.reached()
    expect(person.rows("assistant").last).to_contain_text("One,")
    person.composer.press("Escape")
    person.sees_ended()
    gate.open()
    person.inspects(name)
    inspector = person.page.get_by_test_id("inspector")
    notice = inspector.get_by_test_id("not-answered")
    expect(notice).to_have_text("This request was stopped. It does not count as sent to the model.")
    expect(person.tab("Preview next request").get_by_test_id("next")).to_be_visible()

    person.chat(name)
    person.says("and on")
    person.sees_ended()
    person.inspects(name)
    expect(heading(person)).to_contain_text("Request 1 of 1")
    expect(heading(person)).to_contain_text("step 2 of 2")
    expect(inspector.get_by_test_id("totals")).to_contain_text("failed1")
    person.page.get_by_test_id("timeline-button").click()
    expect(inspector.get_by_test_id("timeline").locator(".hollow")).to_have_count(1)
    person.page.get_by_role("button", name="Table", exact=True).click()
    rows = inspector.get_by_test_id("step-table").locator(".virtual-row")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("stopped")
    expect(rows.last).to_have_attribute("aria-current", "step")
    rows.first.get_by_role("button").click()
    expect(notice).to_contain_text("was stopped.")
    expect(heading(person)).to_contain_text("Request 1 stopped")
    expect(inspector.get_by_test_id("lines").locator(".line[data-seq]")).to_have_count(1)
    expect(person.tab("Reply").get_by_test_id("reply")).to_contain_text("One,")
    person.tab("Messages")
    address = person.page.url

    person.chat(name)
    person.rows("assistant").first.get_by_test_id("inspect-link").click()
    expect(inspector.get_by_test_id("not-answered")).to_be_visible()
    expect(person.page).to_have_url(address.partition("?")[0])


NEEDLE = "the needle is here"


@pytest.mark.thorough
def test_a_shortened_result_is_shown_as_it_was_sent(store: cc.Store, server: str, visiting: Visit) -> None:
    """The row shows the sent text; the stored text is behind a toggle. Search covers both."""
    life = Life(store, provider_of(window=6_000))
    life.turn("look", cc.assistant(tool_calls=[cc.tool_call("a", "look", {"at": "the attic"})]))
    store.append("demo", cc.tool_result("a", "look", "x " * 6_000 + NEEDLE + " y" * 6_000))
    life.answer()
    page = visiting(server).inspects("demo").page
    lines = page.get_by_test_id("lines")
    lines.locator('.line[data-seq="3"] .line-button').click()
    expect(lines.get_by_test_id("as-sent")).to_contain_text("characters were left out")
    expect(lines.get_by_test_id("as-sent")).not_to_contain_text(NEEDLE)
    lines.get_by_test_id("original").locator("summary").click()
    expect(lines.get_by_test_id("original")).to_contain_text(NEEDLE)
    shortened = lines.get_by_role("button", name=re.compile("^Shortened"))
    expect(shortened).to_have_text("Shortened1")
    shortened.click()
    expect(lines.locator(".line")).to_have_count(1)
    lines.get_by_role("button", name=re.compile("^All")).click()
    search = lines.get_by_role("searchbox")
    search.fill(NEEDLE)
    expect(lines.get_by_test_id("hit-count")).to_have_text("1 of 1")
    expect(lines.locator(".line.is-target")).to_have_attribute("data-seq", "3")
    search.fill("the attic")
    expect(lines.get_by_test_id("hit-count")).to_have_text("1 of 1")
    expect(lines.locator(".line-open mark")).to_have_text("the attic")


def test_a_search_leads_to_the_message_that_has_the_text(store: cc.Store, person: Person) -> None:
    """Much of the text is in tool results of long conversations: a match is scrolled into view."""
    store.extend("demo", [cc.user("go"), call("a"), cc.tool_result("a", "look", "x " * 300 + NEEDLE)])
    for number in range(100):
        store.extend("demo", [cc.assistant("so it goes " * 40), cc.user(f"question {number}")])
    person.open("#/")
    person.page.get_by_role("searchbox", name="Search conversations").fill(NEEDLE)
    entry = person.page.get_by_test_id("conversation")
    expect(entry.locator("mark")).to_have_text(NEEDLE)
    entry.get_by_role("link").click()
    expect(person.page.locator('.row[data-seq="4"]')).to_be_in_viewport()
    expect(person.page).to_have_url(re.compile(r"#/c/demo/m/3\?q=the\+needle"))


@pytest.mark.thorough
def test_on_a_narrow_screen_every_tab_is_seen(seen: Seen, model: Model, visiting: Visit) -> None:
    """Guarantee 13.1: nothing is cut off without a hint."""
    person = visiting(seen.url, viewport={"width": 390, "height": 844}).inspects("demo")
    for tab in person.page.get_by_role("tab").all():
        tab.scroll_into_view_if_needed()
        box = tab.bounding_box()
        assert box is not None
        left, right = round(box["x"]), round(box["x"] + box["width"])  # scroll positions are whole pixels, tabs are not
        assert 0 <= left < right <= 390, tab.inner_text()


def test_figures_that_differ_give_the_reason(reader: Person) -> None:
    """Guarantee 6.2: counted by us before, measured by the provider after."""
    note = reader.tab("Composition").get_by_test_id("budget-note")
    expect(note).to_have_text(
        "Estimated 2,299 tokens; provider counted 2,400 (+4%). All numbers here use the provider's count."
    )


def test_an_observed_conversation_opens_in_chat_and_inspector(store: cc.Store, person: Person) -> None:
    """Requests of other software: their client, their outcome, and the parent request of a sub-agent."""
    headers = {"x-claude-code-session-id": "s1"}
    common: dict[str, Any] = {"format": "anthropic", "headers": headers}
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded, try again"}}
    cc.observe(
        store, request=claude("find ann@example.com"), reply=overloaded, status=529, time=1_000, ended=1_400, **common
    )
    main = cc.observe(
        store, request=claude("find ann@example.com"), reply=claude_answer("There she is."), time=2_000, ended=4_000,
        redact="mail", **common,
    )  # fmt: skip
    agent: dict[str, Any] = {**common, "headers": {**headers, "x-claude-code-agent-id": "a1"}}
    sub = cc.observe(store, request=claude("dig", system="Dig."), reply=claude_answer("Dug."), **agent)
    person.chat(sub.conversation)
    expect(person.page.locator("header").get_by_test_id("source")).to_have_text("claude-code · sub-agent")
    expect(person.rows("user")).to_have_count(1)
    assert person.texts("assistant") == ["Dug."]
    person.inspects(sub.conversation)
    expect(person.page.get_by_test_id("agents-button")).to_be_visible()  # it moves the link
    person.page.get_by_test_id("parent-request").click()
    expect(person.page).to_have_url(re.compile(rf"/c/{main.conversation}/inspect/[^/]+/2$"))
    expect(person.page.get_by_test_id("mini-timeline").locator("g.mini-bar")).to_have_count(2)
    facts = person.page.locator(".step-facts")
    expect(facts).to_contain_text("inexact")
    expect(facts).to_contain_text("2")
    expect(person.page.get_by_test_id("step")).to_contain_text("[redacted:mail:")
    expect(person.page.get_by_test_id("totals")).to_contain_text("failed1")
    chooses(person, 1)
    failure = person.page.get_by_test_id("observed-failure")
    expect(failure).to_contain_text("This request failed (529, overloaded_error).")
    expect(failure.locator(".failure-text")).to_have_text("Overloaded, try again")
    reply = person.tab("Reply").get_by_test_id("reply")
    expect(reply).to_contain_text("error typeoverloaded_error")
    expect(person.page.get_by_text("Overloaded, try again")).to_have_count(1)
