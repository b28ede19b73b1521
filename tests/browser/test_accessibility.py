"""Accessibility: axe finds no serious violation in any view, in light and dark mode and on a narrow screen."""

import json
from typing import Any

import pytest
from playwright.sync_api import expect

import contextc as cc
from tests.browser.accessibility import shut_out
from tests.browser.conftest import DESK, Visit
from tests.browser.page_driver import Person
from tests.browser.sample_conversations import busy
from tests.browser.scripted_model import Model, calls, text_reply
from tests.browser.test_navigation import NARROW
from tests.browser.test_open_request import BROKEN
from tests.conftest import THOROUGH, some
from tests.web.sample_conversations import Life

PANEL = "[role=tabpanel]"
LOOKS: dict[str, dict[str, Any]] = {  # the options of a context
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": NARROW},
}
ANSWER = """## An answer

With a [link](https://example.com), `code`, **words** and

```python
def add(a: int, b: int) -> int:
    return a + b  # a comment
```

| a | b |
|---|---|
| 1 | 2 |

- [x] done
- [ ] to do

> quoted
"""


@pytest.fixture
def look(request: pytest.FixtureRequest) -> dict[str, Any]:  # the options of a context
    return {"viewport": DESK, **LOOKS[request.param]}


def looks(quick: str) -> pytest.MarkDecorator:
    """Every look where there is time for it, else one; the tests of this file take a different one each."""
    return pytest.mark.parametrize("look", [*LOOKS] if THOROUGH else [quick], indirect=True)


@looks("light")
def test_the_chat_has_no_accessibility_violations(
    server: str, visiting: Visit, model: Model, look: dict[str, Any]
) -> None:
    """Guarantee 12.2: the beginning, a conversation with everything in it, a question, a menu and a dialog."""
    person = visiting(server, **look).open()
    expect(person.composer).to_be_visible()
    assert shut_out(person.page) == []
    model.will(
        calls(("read_file", {"path": "missing.txt"}), first="Let me see."),
        calls(("write_file", {"path": "a.txt", "content": "a\n"}), id="w"),
        text_reply(ANSWER, thinks="How to put it?"),
    )
    person.says("Show me everything")
    expect(person.page.get_by_test_id("approval")).to_be_visible()
    expect(person.page.get_by_test_id("approval").get_by_role("button", name="Allow")).to_be_enabled()
    expect(person.page.get_by_test_id("needs-approval")).to_have_count(1)
    assert shut_out(person.page) == []
    person.page.get_by_test_id("approval").get_by_role("button", name="Allow").click()
    expect(person.page.get_by_role("heading", name="An answer")).to_be_visible()
    person.sees_ended()
    person.page.get_by_test_id("reasoning").get_by_role("button").click()
    person.page.get_by_test_id("tool-call").first.get_by_role("button").first.click()
    assert shut_out(person.page) == []
    person.page.get_by_test_id("model").click()
    person.page.get_by_role("option").filter(has_text="no key").first.click()
    assert shut_out(person.page) == []
    person.page.get_by_role("combobox").fill("nosuch:model")
    expect(person.page.get_by_test_id("model-wrong")).to_be_visible()
    assert shut_out(person.page) == []
    person.page.keyboard.press("Escape")
    person.page.get_by_role("button", name="Regenerate with another model").last.click()
    expect(person.page.get_by_role("listbox")).to_be_visible()
    assert shut_out(person.page, "[role=listbox]") == []
    person.page.keyboard.press("Escape")
    person.page.get_by_role("button", name="More", exact=True).click()
    expect(person.page.get_by_role("menu")).to_be_visible()
    assert shut_out(person.page, "[role=menu]") == []
    person.page.get_by_role("menu").get_by_text("Delete").click()
    expect(person.page.get_by_test_id("question")).to_be_visible()
    assert shut_out(person.page, "[data-testid=question]") == []


@pytest.mark.thorough
@looks("dark")
def test_the_inspector_has_no_accessibility_violations(
    store: cc.Store, server: str, visiting: Visit, look: dict[str, Any]
) -> None:
    """Guarantee 13.1: every tab, and the timeline as chart and as table."""
    busy(store)
    person: Person = visiting(server, **look).inspects("demo")
    expect(person.page.get_by_test_id("lines")).to_be_visible()
    tabs = (
        "Findings",
        "Messages",
        "Composition",
        "Request",
        "Reply",
        "Changes",
        "Rules",
        "Session",
        "Preview next request",
    )
    for tab in tabs:
        panel = person.tab(tab)
        expect(panel.get_by_role("status", name="Loading")).to_have_count(0)
        expect(panel.locator(".bones")).to_have_count(0)
        assert shut_out(person.page, PANEL) == [], tab
    assert shut_out(person.page) == []
    person.page.get_by_test_id("timeline-button").click()
    expect(person.page.get_by_test_id("timeline")).to_be_visible()
    assert shut_out(person.page) == []
    person.page.get_by_role("button", name="Table", exact=True).click()
    expect(person.page.get_by_test_id("step-table")).to_be_visible()
    assert shut_out(person.page, "[data-testid=step-table]") == []


@looks("narrow")
@pytest.mark.thorough
def test_an_opened_file_has_no_accessibility_violations(server: str, visiting: Visit, look: dict[str, Any]) -> None:
    """Guarantee 13.1: before and after something is opened."""
    person = visiting(server, **look).open("#/open")
    expect(person.page.locator("#paste-field")).to_be_visible()
    assert shut_out(person.page) == []
    person.page.locator("#paste-field").fill(json.dumps(BROKEN))
    person.page.get_by_role("button", name="Open", exact=True).click()
    expect(person.page.get_by_test_id("opened")).to_be_visible()
    for tab in ("Messages", "As JSON", "Rules", "Repair", "Convert"):
        panel = person.tab(tab)
        expect(panel).not_to_be_empty()
        assert shut_out(person.page, PANEL) == [], tab
    assert shut_out(person.page) == []


@looks("dark")
def test_the_other_views_have_no_accessibility_violations(
    store: cc.Store, server: str, visiting: Visit, look: dict[str, Any]
) -> None:
    """Guarantees 12.2, 13.1: resets in a chat, the overview, the search, comparisons, open rows, the live view."""
    busy(store)
    other = Life(store, name="other")
    other.turn("long\n" * 900)
    other.turn("and then?")
    person = visiting(server, **look)
    views = {
        "c/demo": "[data-testid=messages] .marker",
        "overview": "main table",
        "search?q=look": "[data-testid=search-hit] mark",
        "compare/demo/other": "[data-testid=first-difference]",
        "live": "main",
        "c/other/inspect?tab=messages&q=long": "[data-testid=as-sent]",
        "c/demo/inspect?tab=diff&to=1": "[role=tabpanel]",
        "c/demo/inspect?tab=composition": "[role=tabpanel]",
    }
    for view, expected in some([*views.items()], 4):
        person.page.goto("about:blank")  # so that nothing of the view before is still there
        person.open("#/" + view)
        expect(person.page.locator(expected).first).to_be_visible()
        if "/inspect" in view:
            expect(person.page.get_by_test_id("step")).to_be_visible()
            person.shows_figures()
            expect(person.page.get_by_test_id("budget").first).to_be_visible()
        assert shut_out(person.page) == [], view


@looks("dark")
def test_rules_tags_notes_and_raw_responses_have_no_accessibility_violations(
    store: cc.Store, server: str, visiting: Visit, model: Model, look: dict[str, Any]
) -> None:
    """Guarantees 2.9, 16.19 and 18.7: the form of a rule, the lists with an entry, the filter, and the events."""
    person = visiting(server, **look).open()
    page = person.page
    model.will(calls(("run_command", {"command": "ls -l"}), id="one"), text_reply("Done."))
    name = person.begins("Run it")
    store.tag(name, "a tag")
    store.add_note(name, "A note.")
    asked = page.get_by_test_id("approval")
    asked.get_by_role("button", name="Always…").click()
    asked.get_by_label("With").select_option("=command")
    expect(asked.get_by_role("button", name="Always allow")).to_be_enabled()
    assert shut_out(page) == []
    asked.get_by_role("button", name="Always allow").click()
    person.sees_ended()
    person.open(f"#/c/{name}")
    page.reload()
    expect(page.get_by_test_id("call-state")).to_have_text("ok")
    page.get_by_test_id("tool-call").get_by_role("button").first.click()
    expect(page.get_by_test_id("call-answer")).to_be_visible()
    assert shut_out(page) == []
    for item, shown in (("Approval rules", "approval-rules"), ("Notes", "notes")):
        page.get_by_role("button", name="More", exact=True).click()
        page.get_by_role("menuitem", name=item).click()
        expect(page.get_by_test_id(shown).locator("li")).to_have_count(1)
        assert shut_out(page) == [], item
        page.get_by_role("button", name="Close", exact=True).click()
    reply = b"data: [DONE]\n\n"
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}
    seen = cc.observe(store, request=body, reply=reply, format="openai_chat", pieces=[(40, len(reply))])
    person.open(f"#/c/{seen.conversation}/inspect?tab=reply")
    page.get_by_text("Raw response").click()
    expect(page.get_by_test_id("raw-reply").locator("li")).to_have_count(1)
    assert shut_out(page, PANEL) == []
