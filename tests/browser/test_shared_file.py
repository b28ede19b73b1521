"""A shared file in a browser: from the disk, without a server, with hostile content."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import contextc as cc
from contextc._json import JSONObject
from contextc.sharing import build_shared_file
from tests.browser.accessibility import shut_out
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.sample_conversations import busy
from tests.browser.test_content_injection import deep_json
from tests.web.sample_conversations import SONNET, Life, provider_of

pytestmark = pytest.mark.usefixtures("requests_followed")

NARROW = {"viewport": {"width": 390, "height": 720}}
HOSTILE = (
    "</script><script>alarm(1)</script>",
    "<!--<script>alarm(2)",
    "<img src=x onerror=alarm(3)><svg onload=alarm(4)>",
    "<iframe src='javascript:alarm(5)'></iframe><base href='https://evil.example/'>",
    "<style>body{background:url(https://evil.example/x)}</style><link rel=stylesheet href=https://evil.example/y>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "javascript:alarm(6) data:text/html,<script>alarm(7)</script>",
    "\u202egnp.exe\u2066\u200b\u2028\ufeff\U000e0041",
    "${alarm(8)} {{alarm(9)}} `alarm(10)` \\u003cscript>alarm(11)\\u003c/script>",
    "https://example.com/'onclick=alarm(12) https://user:pass@example.com/x",
)
ALL = "\n".join(HOSTILE)
NEEDLE = "a (needle) [x] $1"


@pytest.fixture
def memory(tmp_path: Path) -> cc.Store:
    return cc.open_store(f"sqlite:///{tmp_path}/shared.db")


def opened(visiting: Visit, folder: Path, data: bytes, **look: object) -> Person:
    """The file in a browser, as from a mail."""
    file = folder / "shared.html"
    file.write_bytes(data)
    person: Person = visiting(file.as_uri(), **look)
    person.page.goto(file.as_uri())
    expect(person.page.locator("h1")).to_be_visible()
    return person


def of_kind(page: Page, kind: str) -> Locator:
    return page.get_by_test_id("row").filter(has=page.locator(".kind").get_by_text(kind, exact=True))


def rows(page: Page) -> Sequence[str]:
    return page.get_by_test_id("row").all_inner_texts()


def hostile(store: cc.Store) -> Life:
    life = Life(store, provider_of(SONNET, window=500_000), name=f"run {HOSTILE[0]}")
    life.fragments = (cc.PromptFragment("identity", ALL),)
    life.tools = [cc.Tool(name="look", description=ALL, parameters={"type": "object", "properties": {HOSTILE[2]: {}}})]
    arguments: JSONObject = {HOSTILE[2]: ALL, "deep": deep_json()}
    life.turn(ALL, cc.assistant(ALL, tool_calls=[cc.tool_call("a", "look", arguments)]))
    store.append(life.name, cc.tool_result("a", "look", ALL + "x" * 300_000))
    life.answer(ALL)
    return life


@pytest.mark.parametrize(
    "look",
    [pytest.param({}, marks=pytest.mark.thorough), {**NARROW, "color_scheme": "dark"}],
    ids=["wide", "narrow"],
)
def test_a_run_is_shown_without_a_server(
    memory: cc.Store, tmp_path: Path, visiting: Visit, look: dict[str, object]
) -> None:
    busy(memory)
    person = opened(visiting, tmp_path, build_shared_file(memory, "demo"), **look)
    page = person.page
    expect(page.locator("h1")).to_have_text("look")  # the title of the conversation
    expect(page.locator("header")).to_contain_text("demo · ")
    expect(page.get_by_role("region", name="Findings")).to_be_visible()
    expect(
        page.get_by_role("group", name="Composition").get_by_role("row", name=re.compile("System prompt"))
    ).to_be_visible()
    page.get_by_role("combobox", name="Request").select_option(index=1)
    expect(page.get_by_role("heading", name="Request 2")).to_be_visible()
    result = of_kind(page, "tool result")
    expect(result).to_contain_text("look")
    result.locator("summary").click()
    expect(result.locator("pre")).to_have_text("line of output " * 20)
    assert shut_out(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("searchbox", name="Search").fill("LINE OF output")
    expect(page.get_by_test_id("row")).to_have_count(1)
    page.get_by_role("searchbox", name="Search").fill("")
    page.get_by_role("combobox", name="Filter").select_option("tool")
    expect(page.get_by_test_id("row").filter(has_text="tool")).not_to_have_count(0)
    assert all("tool" in each.split("\n")[0] for each in rows(page))
    page.get_by_role("combobox", name="Filter").select_option("new")
    expect(page.get_by_test_id("row").locator(".sign")).to_have_text(["+"] * page.get_by_test_id("row").count())
    expect(page.get_by_test_id("explanation")).to_contain_text("6 of 9 parts are the same as in request 1")
    status = page.get_by_role("region", name="Messages").get_by_role("status")
    expect(status).to_have_text(re.compile(r"^3 found among 9 parts of the request: .*; and 1 part of the reply\b"))
    page.get_by_text("Request as JSON").click()
    sent = json.loads(page.get_by_role("group", name="Request as JSON").inner_text())
    assert (sent["model"], sent["messages"][-1]) == (
        "gpt-4o",
        {"role": "tool", "tool_call_id": "a", "content": "line of output " * 20},
    )
    assert sent["tools"][0]["function"]["name"] == "look"
    page.get_by_role("combobox", name="Filter").select_option("reply")
    expect(page.get_by_test_id("row")).to_contain_text(["done"])
    assert len(person.watch.asked) == 1  # the file itself


def test_a_shared_run_is_read_with_keys_alone(memory: cc.Store, tmp_path: Path, visiting: Visit) -> None:
    """Guarantee 13.1: from request to request, to a hit, and nothing is a mouse away."""
    busy(memory)
    page = opened(visiting, tmp_path, build_shared_file(memory, "demo")).page
    steps = page.get_by_role("group", name="Requests in order").get_by_role("button")
    expect(steps).to_have_count(10)
    expect(steps.last).to_have_attribute("aria-current", "true")
    page.keyboard.press("Tab")
    expect(steps.last).to_be_focused()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(steps.nth(7)).to_be_focused()
    expect(page.get_by_role("heading", name="Request 8")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search")).to_be_focused()
    page.keyboard.type("so it goes")
    page.keyboard.press("Enter")
    expect(page.locator("mark.current")).to_be_in_viewport()
    assert shut_out(page) == []


@pytest.mark.thorough
def test_a_finding_leads_to_its_request(memory: cc.Store, tmp_path: Path, visiting: Visit) -> None:
    life = Life(memory, provider_of(SONNET, window=200_000))
    for minute in (30, 31):
        if minute == 31:
            memory.append("demo", cc.tool_result("lost", "look", "a result that no call has asked for"))
        life.fragments = (cc.PromptFragment("identity", f"You are a coder. It is 12:{minute} now."),)
        life.turn(
            "words " * 4_000 + NEEDLE,
            usage=cc.Usage(input=4_000 * (minute - 29), output=9, cache_write=4_000 * (minute - 29)),
        )
    person = opened(visiting, tmp_path, build_shared_file(memory, "demo"))
    person.page.get_by_role("combobox", name="Request").select_option(index=0)
    finding = person.page.get_by_role("region", name="Findings").get_by_role("listitem").filter(has_text="12:31")
    expect(finding.first.locator("del")).to_contain_text("12:30")
    remark = person.page.get_by_role("region", name="Findings").get_by_role("listitem").filter(has_text="FAI005")
    expect(remark.locator(".evidence")).to_contain_text("a result for lost")
    expect(remark.locator("del, ins")).to_have_count(0)  # nothing changed
    finding.first.get_by_role("button", name="Show request 2").click()
    expect(person.page.get_by_role("heading", name="Request 2")).to_be_visible()
    expect(person.page.locator("details[open] pre")).to_contain_text("It is 12:31 now.")
    search = person.page.get_by_role("searchbox", name="Search")
    search.fill(NEEDLE.upper())
    expect(person.page.get_by_test_id("row")).to_have_count(2)
    expect(person.page.get_by_test_id("row").first.locator("summary mark")).to_have_text(NEEDLE)
    search.press("Enter")  # behind "Show all … characters"
    hit = person.page.locator("mark.current")
    expect(hit).to_be_in_viewport()
    first = hit.element_handle()
    search.press("Enter")
    expect(hit).to_be_in_viewport()
    assert not person.page.evaluate("([one, other]) => one === other", [first, hit.element_handle()])
    person.page.get_by_role("button", name="Previous hit").click()
    assert person.page.evaluate("([one, other]) => one === other", [first, hit.element_handle()])


def test_requests_of_several_channels_have_different_names(memory: cc.Store, tmp_path: Path, visiting: Visit) -> None:
    """The letters are those of the inspector. A finding that is not about tokens names none."""
    Life(memory, provider_of(window=60_000)).turn("words " * 900, usage=cc.Usage(input=2_000, output=9))
    memory.append("demo", cc.system("And this in between."))
    Life(memory, provider_of(SONNET, window=60_000)).turn("And you?", usage=cc.Usage(input=2_100, output=9))
    page = opened(visiting, tmp_path, build_shared_file(memory, "demo")).page
    named = page.get_by_role("combobox", name="Request").locator("option").all_inner_texts()
    assert [each.partition(" · ")[0] for each in named] == ["Request 1 of A", "Request 1 of B"]
    remark = page.get_by_role("region", name="Findings").get_by_role("listitem").filter(has_text="FAI005")
    expect(remark.locator(".finding-head")).not_to_contain_text("token")
    expect(remark.get_by_role("button")).to_have_text("Show request 1 of B")


def test_hostile_content_neither_runs_nor_loads(memory: cc.Store, tmp_path: Path, visiting: Visit) -> None:
    life = hostile(memory)
    data = build_shared_file(memory, life.name)
    assert data.count(b"<script") == 2  # the data, and the script of the page
    assert data.count(b"</script>") == 2
    person = opened(visiting, tmp_path, data)
    page = person.page
    count = page.get_by_test_id("row").count()
    assert count >= 6
    for summary in page.get_by_test_id("row").locator("summary").all():
        summary.click()
    expect(page.locator(".rows pre")).to_have_count(count)
    expect(page.locator(".rows pre").first).to_contain_text(HOSTILE[0])
    assert page.locator("#page :is(script, img, svg, iframe, style, link, meta, base, object, embed)").count() == 0
    text = page.locator("body").inner_text()
    assert not re.search("[\u202e\u2066\u200b\u2028\ufeff\U000e0041]", text)
    assert "⟨U+202E⟩" in text
    links = page.locator("a").evaluate_all(
        "all => all.map((each) => [each.protocol, each.rel, each.attributes.length])"
    )
    assert links
    assert {tuple(each) for each in links} == {("https:", "noreferrer noopener", 3)}
    long = page.get_by_role("button", name=re.compile("Show all"))
    long.first.click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    search = page.get_by_role("searchbox", name="Search")
    search.fill(HOSTILE[2])
    search.press("Enter")
    expect(page.locator("mark.current")).to_have_text(HOSTILE[2])
    assert page.locator("#page :is(script, img, svg, iframe, style, link, meta, base, object, embed)").count() == 0
    assert len(person.watch.asked) == 1


def test_the_policy_allows_nothing_else(memory: cc.Store, tmp_path: Path, visiting: Visit) -> None:
    busy(memory)
    person = opened(visiting, tmp_path, build_shared_file(memory, "demo"))
    person.watch.expects(
        "asked another host: https://evil.example/x.png", "request failed: csp", "img-src", "connect-src", "style-src",
        "Content Security Policy", "TrustedScript", "trusted-types",
    )  # fmt: skip
    refused = person.page.evaluate(
        """async () => {
          const refused = [];
          addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
          const image = document.createElement("img");
          image.src = "https://evil.example/x.png";
          document.body.append(image);
          await fetch("https://evil.example/").catch(() => null);
          const style = document.createElement("style");
          style.textContent = "body { display: none }";
          document.head.append(style);
          const button = document.createElement("button");
          try { button.setAttribute("onclick", "alarm(1)"); } catch { refused.push("script-src-attr"); }
          document.body.append(button);
          button.click();
          await new Promise((resolve) => setTimeout(() => {
            try { new Function("alarm(2)")(); } catch { refused.push("eval"); }
            setTimeout(resolve, 50);
          }));
          return refused;
        }"""
    )
    assert {"img-src", "connect-src", "style-src-elem", "script-src-attr", "eval"} <= {*refused}


SECRET = "sk-proj-abcdefghijklmnopqrstuvwx"


def secretive(store: cc.Store) -> Life:
    life = Life(store, provider_of(SONNET, window=200_000))
    life.fragments = (cc.PromptFragment("identity", "Instructions-of-the-house."),)
    call = cc.assistant("Thought-aloud.", tool_calls=[cc.tool_call("a", "look", {"path": "/home/bob/plan.xyz"})])
    life.turn(f"Question-of-bob about plan.xyz with {SECRET} for bob@example.com and Codename-Blue.", call)
    store.append(life.name, cc.tool_result("a", "look", "Result-of-look in src/deep/module.py"))
    life.answer("Answer-of-model.")
    return life


TEXTS = ("Instructions-of-the-house", "Question-of-bob", "Thought-aloud", "Answer-of-model", "Looks.")
PARTS = {
    "texts": (*TEXTS, SECRET, "bob@example.com", "Codename-Blue", "/home/bob"),
    "results": ("Result-of-look", "module.py", "src/deep"),
    "files": ("plan.xyz", "/home/bob", "module.py", "src/deep"),
    "keys": (SECRET,),
    "mail": ("bob@example.com", "bob@exa"),  # the title ends within it
    "Codename-[A-Z][a-z]+": ("Codename-Blue",),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_is_redacted_is_not_in_the_file(memory: cc.Store, name: str) -> None:
    life = secretive(memory)
    everything = {text for texts in PARTS.values() for text in texts}
    whole = build_shared_file(memory, life.name).decode()
    assert [text for text in everything if text not in whole] == []
    for request in (None, 2):
        redacted = build_shared_file(memory, life.name, request=request, redact=[name]).decode()
        assert [text for text in PARTS[name] if text in redacted] == []
        related = {text for text in everything if any(part in text or text in part for part in PARTS[name])}
        if name not in ("texts", "files"):
            assert [text for text in everything - related if text not in redacted] == []


def test_what_is_redacted_is_not_hidden_behind_escapes(memory: cc.Store) -> None:
    """Arguments of a call are JSON in a text, whose escapes spell a word in another way."""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"who":"Codename-\\u00dcber"}'}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "a", "content": "no"}]  # fmt: skip
    cc.observe(memory, format="openai_chat", conversation="c", request={"model": "gpt-4o", "messages": messages},
               reply={"id": "r", "object": "chat.completion", "created": 1, "model": "gpt-4o",
                      "choices": [{"index": 0, "finish_reason": "stop",
                                   "message": {"role": "assistant", "content": "well"}}]})  # fmt: skip
    whole, redacted = (build_shared_file(memory, "c", redact=each).decode() for each in ((), ["Codename-Über"]))
    assert "u00dcber" in whole
    assert "ber" not in redacted.partition("Codename")[2]
    assert "Codename" not in redacted


def test_a_redacted_file_says_so(memory: cc.Store, tmp_path: Path, visiting: Visit) -> None:
    life = secretive(memory)
    data = build_shared_file(memory, life.name, redact=["results", "files", "Codename-[A-Z][a-z]+"])
    page = opened(visiting, tmp_path, data).page
    expect(page.locator(".note")).to_have_text(
        "Removed from this file: results. Removed where found: names of files, matches of patterns."
    )
    expect(of_kind(page, "tool result")).to_contain_text("[redacted: 36 characters]")
    expect(of_kind(page, "tool call")).to_contain_text("[file 1]")


def test_the_button_downloads_a_file(store: cc.Store, person: Person, visiting: Visit, tmp_path: Path) -> None:
    secretive(store)
    store.add_note("demo", "A-note-for-myself")
    person.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    person.inspects("demo")
    person.item(person.page.get_by_test_id("share"), "Copy link")
    expect(person.page.get_by_test_id("notice")).to_contain_text("Copied the link")
    copied = person.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(person.page.url.split("?")[0])
    assert re.search(r"/c/demo/inspect/[^/]+/2\?tab=\w+$", copied)  # this request, also when there is a newer one
    person.item(person.page.get_by_test_id("share"), "Download HTML file")
    dialog = person.page.get_by_test_id("share-dialog")
    expect(dialog.get_by_role("radio", name="All requests")).to_be_checked()
    expect(dialog.get_by_role("radio", name="Request 2")).not_to_be_checked()
    expect(dialog.get_by_role("checkbox", name="Tags")).to_be_checked()
    expect(dialog.get_by_role("checkbox", name="Notes")).not_to_be_checked()
    dialog.get_by_role("checkbox", name="Notes").check()
    assert shut_out(person.page, "[data-testid=share-dialog]") == []
    dialog.get_by_role("checkbox", name=re.compile("^Tool results")).check()
    person.watch.expects("400")
    dialog.get_by_test_id("share-pattern").fill("Codename-[A-Z")
    dialog.get_by_role("button", name="Download").click()
    expect(dialog.get_by_role("alert")).to_contain_text("regular expression")
    expect(dialog.get_by_test_id("share-pattern")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_test_id("share-pattern").fill("Codename-[A-Z][a-z]+")
    with person.page.expect_download() as saved:
        dialog.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename == "demo.html"
    data = saved.value.path().read_bytes()
    for text in (b"Result-of-look", SECRET.encode(), b"Codename-Blue"):
        assert text not in data
    assert b"Question-of-bob" in data
    assert b"A-note-for-myself" in data
    expect(dialog).to_have_count(0)
    expect(opened(visiting, tmp_path, data).page.get_by_role("combobox", name="Request")).to_be_visible()
