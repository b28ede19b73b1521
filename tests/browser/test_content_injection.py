"""Text of models, tools, files and names is shown as text: it is not executed and loads nothing."""

import json
import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

import contextc as cc
from contextc._json import JSONObject
from contextc.web.app_state import ServerOptions
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.page_errors import ALARM
from tests.browser.scripted_model import Model, calls, text_reply
from tests.conftest import THOROUGH, some
from tests.web.sample_conversations import SONNET, Life, provider_of

pytestmark = pytest.mark.usefixtures("requests_followed")

MARKUP = (
    f"<script>{ALARM}(1)</script>",
    f"<img src=x onerror={ALARM}(2)>",
    f'"><svg onload={ALARM}(3)><animate onbegin={ALARM}(4) attributeName=x>',
    f"<iframe srcdoc='<script>parent.{ALARM}(5)</script>'></iframe>",
    f"<a href=javascript:{ALARM}(6)>x</a><base href=//elsewhere.example/>",
    f"<style>@import url(//elsewhere.example/x.css)</style><body onload={ALARM}(7)>",
    "${constructor.constructor('" + ALARM + "(8)')()} {{" + ALARM + "(9)}}",
)
LINKS = (
    f"[one](javascript:{ALARM}(10)) [two](JaVaScRiPt&colon;{ALARM}(11)) [three](\tjavascript:{ALARM}(12))",
    f"[four](data:text/html,<script>{ALARM}(13)</script>) [five](vbscript:{ALARM}(14)) [six](blob:x) [s](file:///etc)",
    "![picture](https://elsewhere.example/track.png) ![own](data:image/svg+xml,<svg onload=alarm()>) <https://ok.example>",
    f"```html\n<img src=x onerror={ALARM}(15)>\n```\n\n`<b onclick={ALARM}(16)>`\n\n| a |\n|---|\n| <img src=x> |",
    f"[ref]: javascript:{ALARM}(17)\n\n[ref] <javascript:{ALARM}(18)>",
)
ODD = "left \u202eright\u202c \u2066inner\u2069 \u200bzero \x07bell \x1b[31mred end"
ALL = "\n\n".join([*MARKUP, *LINKS, ODD])
TALL = {"width": 1280, "height": 8_000}
DEPTH, HUGE = 40, 10_000
MADE = "script, iframe, object, embed, base, style, link, animate, img[onerror], [onload], [onclick]"


def check(person: Person) -> None:
    """Nothing was made of it, and no link leads to anything that runs."""
    assert person.page.locator("main").locator(MADE).count() == 0
    targets = person.page.locator("main a[href]").evaluate_all("all => all.map((each) => each.protocol)")
    assert set(targets) <= {"http:", "https:", "mailto:"}
    sources = person.page.locator("main img").evaluate_all("all => all.map((each) => each.src)")
    assert sources == []


def test_output_of_models_and_tools_is_text(server: str, visiting: Visit, model: Model, options: ServerOptions) -> None:
    """Guarantee 12.3: in an answer, in thoughts, in a call, in its result, and in what is asked of a person."""
    person = visiting(server, viewport=TALL)
    (options.root / "evil.txt").write_text(ALL)
    model.will(
        calls(
            ("read_file", {"path": "evil.txt"}),
            (MARKUP[1], {MARKUP[0]: MARKUP[2], "huge": MARKUP[0] * HUGE, "deep": deep_json()}),
            first=ALL,
        ),
        calls(("run_command", {"command": f"echo '{MARKUP[1]}' \u202e # {ODD}"}), id="second"),
        text_reply(*[ALL[at : at + 40] for at in range(0, len(ALL), 40)], thinks=ALL),
    )
    person.begins(ALL)
    asked = person.page.get_by_test_id("approval")
    expect(asked).to_contain_text(MARKUP[1])
    expect(asked).to_contain_text("⟨U+202E⟩")
    asked.get_by_role("button", name="Deny").click()
    asked.get_by_role("button", name="Deny").click()
    expect(person.page.get_by_text(MARKUP[0]).last).to_be_visible()
    person.sees_ended()
    for line in person.page.locator(".call-line, .reasoning-line").all():
        line.click()
    for expected in MARKUP:
        assert expected in person.rows("user").inner_text(), expected
        assert expected.split("<style>")[0] in person.rows("assistant").last.inner_text(), expected
    assert "\u202e" not in person.page.locator("main").inner_text()
    check(person)
    person.page.reload()
    expect(person.page.get_by_text(MARKUP[0]).last).to_be_visible()
    check(person)


NAMES = (f"../..//x?a=b#c{MARKUP[1]}", "../..//x?a=b#c", MARKUP[1], f"javascript:{ALARM}(1)", "100% ✓ naïve")


@pytest.mark.parametrize("name", NAMES if THOROUGH else NAMES[:1])
def test_a_name_is_text_and_leads_to_its_target(store: cc.Store, person: Person, model: Model, name: str) -> None:
    """Guarantee 12.3: names may hold anything; they are shown with what cannot be seen spelled out."""
    store.extend(name, [cc.user("hi"), cc.assistant("hello")])
    store.append("other", cc.user("psst"))
    person.open()
    person.page.get_by_test_id("conversation").filter(has_text="hi").get_by_role("link").click()
    expect(person.rows("assistant").locator(".prose")).to_have_text("hello")
    person.item(person.page.get_by_role("button", name="More"), "Fork")
    question = person.page.get_by_test_id("question")
    question.get_by_role("button", name="Fork").click()
    expect(person.page.get_by_test_id("conversation")).to_have_count(3)
    assert f"{name}-fork" in {each.name for each in store.conversations()}
    person.page.get_by_test_id("inspect").click()
    expect(person.page.get_by_test_id("inspector")).to_contain_text("No request yet")
    assert "\u202e" not in person.page.locator("body").inner_text()
    check(person)


def deep_json() -> JSONObject:
    """JSON that is deep, and looks as if it contained itself."""
    deep: JSONObject = {"$ref": "#", "__proto__": {"$ref": "#/__proto__"}}
    for _ in range(DEPTH):
        deep = {MARKUP[1]: [deep]}
    return deep


def evil_life(store: cc.Store, name: str) -> Life:
    """Two requests. They differ in system prompt, tool, a huge line, and deep JSON."""
    life = Life(store, provider_of(SONNET, window=900_000), name)
    for number in (1, 2):
        life.fragments = (cc.PromptFragment("identity", f"{number} {name} {ALL}"),)
        schema: JSONObject = {"type": "object", "properties": {f"{MARKUP[2]}{number}": {"description": ALL}}}
        life.tools = [cc.Tool(name="look", description=f"{number} {ALL}", parameters=schema)]
        if number == 1:
            call = cc.tool_call("a", "look", {MARKUP[1]: ALL, "deep": deep_json()})
            life.turn(ALL, cc.assistant(ALL, tool_calls=[call]))
            store.append(name, cc.tool_result("a", "look", ALL + MARKUP[0] * HUGE))
    life.answer(ALL)
    return life


def test_the_inspector_shows_text(store: cc.Store, person: Person) -> None:
    """Guarantee 12.3: lines, the request, changes, the ledger, what would be sent next, and two runs compared."""
    life = evil_life(store, "demo")
    person.inspects("demo")
    lines = person.page.get_by_test_id("lines")
    expect(lines.locator(".line").first).to_contain_text(MARKUP[0])
    for button in reversed(lines.locator(".line-button").all()):  # an open row moves those below it
        button.click()
    expect(lines.locator(".line-open").first).to_contain_text(MARKUP[1])
    check(person)
    for tab in ("Findings", "Request", "Reply", "Changes", "Rules", "Session", "Preview next request"):
        panel = person.tab(tab)
        expect(panel.get_by_role("status").filter(has_text="Loading")).to_have_count(0)
        if tab == "Request":
            panel.get_by_role("button", name="Unfold all").click()
        expect(panel).not_to_be_empty()
        check(person)
    expect(person.page.get_by_test_id("next").get_by_test_id("lines")).to_contain_text(MARKUP[0])
    assert "\u202e" not in person.page.locator("main").inner_text()
    for view in ("Inline", "Side by side"):
        panel = person.tab("Changes").get_by_test_id("diff")
        panel.get_by_role("button", name=view).click()
        differences = panel.get_by_test_id("difference")
        expect(differences.first).to_contain_text(MARKUP[0])
        expect(differences.first).to_contain_text("⟨U+2066⟩inner")
        for _ in range(differences.count()):  # to the huge line and the deep JSON
            person.page.keyboard.press("n")
        expect(panel.get_by_test_id("difference-place")).to_contain_text(re.compile(r"\d+ of \d+ differences"))
        check(person)
        assert "\u202e" not in panel.inner_text()
    other = evil_life(store, MARKUP[1])
    person.open(f"#/compare/{life.name}/{quote(other.name, safe='')}")
    compared = person.page.get_by_test_id("compare")
    expect(compared.get_by_role("table").first).to_be_visible()
    expect(compared).to_contain_text(MARKUP[1])
    check(person)
    assert "\u202e" not in compared.inner_text()
    assert person.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("kind", some(["request", "nonsense"], 1))
def test_a_file_of_another_program_is_text(person: Person, kind: str) -> None:
    """Guarantee 12.3: also where it breaks rules with its names, or is nothing at all."""
    call = {"id": MARKUP[0], "type": "function", "function": {"name": MARKUP[1], "arguments": MARKUP[2]}}
    body = {
        "model": MARKUP[1],
        MARKUP[0]: MARKUP[2],
        "messages": [
            {"role": "user", "content": ALL},
            {"role": "assistant", "content": ALL, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": MARKUP[3], "content": ALL},
        ],
    }
    person.open("#/open")
    if kind == "nonsense":
        person.watch.expects("40[0-9]|422")
    person.page.locator("#paste-field").fill(json.dumps(body) if kind == "request" else ALL)
    person.page.get_by_role("button", name="Open", exact=True).click()
    if kind == "nonsense":
        expect(person.page.get_by_role("alert")).to_be_visible()
        check(person)
        return
    expect(person.page.get_by_test_id("opened")).to_contain_text(MARKUP[1])
    for tab in ("Messages", "As JSON", "Rules", "Repair", "Convert"):
        panel = person.tab(tab)
        for press in ("Unfold all", "Repair", "Convert"):
            if panel.get_by_role("button", name=press).count():
                panel.get_by_role("button", name=press).click()
        expect(panel).not_to_be_empty()
        check(person)
