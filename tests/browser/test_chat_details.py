"""Details of the chat: drafts, titles, denied calls, approvals, math, symbols, and narrow screens."""

import json
import re
from typing import Any, cast

import pytest
from playwright.sync_api import Page, expect

import contextc as cc
from contextc._json import JSONObject
from contextc.store import turn_records as records
from contextc.store.message_log import find_tip
from contextc.store.submitted_turns import park_unknown_agent
from contextc.web.app_state import ServerOptions
from tests.browser.accessibility import shut_out
from tests.browser.conftest import Visit
from tests.browser.page_driver import Person
from tests.browser.scripted_model import KEY, NAMED, OTHER, Gate, Model, calls, text_reply
from tests.conftest import THOROUGH

PHONES: list[dict[str, Any]] = [  # the options of a context
    {"viewport": {"width": 390, "height": 720}, "has_touch": True},
    {"viewport": {"width": 320, "height": 568}, "has_touch": True},
    {"viewport": {"width": 844, "height": 390}, "has_touch": True},
]
ALL_VIOLATIONS = (
    "() => axe.run('body', { runOnly: ['landmark-unique', 'landmark-no-duplicate-main', 'color-contrast'] })"
)


# ── drafts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_a_draft_survives_a_reload_and_other_conversations(store: cc.Store, person: Person, model: Model) -> None:
    """Guarantee 12.2: each conversation has its own, and sending removes it."""
    for name in ("one", "two"):
        store.append(name, cc.user(f"question {name}"))
    person.chat("one").composer.fill("half a thought\nand more")
    person.chat("two")
    expect(person.composer).to_have_value("")
    person.composer.fill("another")
    person.page.reload()
    expect(person.composer).to_have_value("another")
    person.chat("one")
    expect(person.composer).to_have_value("half a thought\nand more")
    model.will(text_reply("Well."))
    person.composer.press("Enter")
    expect(person.rows("assistant").locator(".prose")).to_have_text("Well.")
    person.page.reload()
    expect(person.rows("assistant").locator(".prose")).to_have_text("Well.")
    expect(person.composer).to_have_value("")
    assert _drafts(person.page) == ["two"]
    person.item(person.page.get_by_role("button", name="Actions for question two"), "Delete")
    person.page.get_by_test_id("question").get_by_role("button", name="Delete").click()
    expect(person.page.get_by_test_id("conversation")).to_have_count(1)
    assert _drafts(person.page) == []


def test_a_text_file_is_sent_and_a_file_that_is_not_says_so_before(person: Person, model: Model) -> None:
    """Guarantee 2.6: the model reads the text of a source file. The chip of an archive says that it is not sent."""
    person.open()
    person.page.locator("input[type=file]").set_input_files(
        [
            {"name": "main.rs", "mimeType": "", "buffer": b"fn main() {}"},
            {"name": "all.zip", "mimeType": "application/zip", "buffer": b"PK\x03\x04\x00"},
        ]
    )
    chips = person.page.get_by_role("list", name="Attached").get_by_role("listitem")
    expect(chips.filter(has_text="all.zip")).to_contain_text("not sent")
    expect(chips.filter(has_text="main.rs")).not_to_contain_text("not sent")
    model.will(text_reply("Seen."))
    person.composer.fill("Look.")
    person.composer.press("Enter")
    expect(person.rows("assistant").locator(".prose")).to_have_text("Seen.")
    assert "fn main() {}" in json.dumps(model.requests[-1])


def test_drafts_are_bounded(store: cc.Store, person: Person) -> None:
    """The newest are kept, up to a number and a total length; what is no draft is ignored."""
    store.append("demo", cc.user("hello"))
    person.chat("demo")
    names = cast(
        list[str],
        person.page.evaluate("""async () => {
      const { keepDraft, loadDraft } = await import("/app/chat/drafts.js");
      localStorage.setItem("contextc.drafts", '{"not": "a list"}');
      if (loadDraft("n1").text !== "") throw new Error("it read something else");
      for (let n = 0; n < 60; n += 1) keepDraft(`n${n}`, { text: `draft ${n}`, media: [] });
      keepDraft("long", { text: "x".repeat(300_000), media: [] });
      dispatchEvent(new Event("pagehide"));
      return JSON.parse(localStorage.getItem("contextc.drafts")).map(([name]) => name);
    }"""),
    )
    assert names == [f"n{number}" for number in range(59, 10, -1)]


def _drafts(page: Page) -> list[str]:
    return cast(list[str], page.evaluate("JSON.parse(localStorage.getItem('contextc.drafts') ?? '[]').map(([n]) => n)"))


# ── titles ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_is_renamed_from_its_header_and_from_the_list(store: cc.Store, person: Person) -> None:
    """Guarantee 12.2: at once in both places; an empty title restores the first message. A cut one has an ellipsis."""
    long = "When do I plant tulips, " * 8
    store.append("garden", cc.user(long))
    person.chat("garden")
    heading, entry = person.page.get_by_role("heading", level=1), person.page.get_by_test_id("conversation")
    expect(heading).to_have_text(f"{long[:80].rstrip()}…")
    expect(entry.locator(".entry-title")).to_have_text(f"{long[:80].rstrip()}…")
    person.item(person.page.get_by_role("button", name="More", exact=True), "Rename")
    _rename(person, "Tulips & <b>bulbs</b>")
    expect(heading).to_have_text("Tulips & <b>bulbs</b>")
    expect(entry.locator(".entry-title")).to_have_text("Tulips & <b>bulbs</b>")
    expect(person.page).to_have_title(re.compile(r"^Tulips & <b>bulbs</b> · "))
    assert store.overview("garden").title == "Tulips & <b>bulbs</b>"
    person.item(person.page.get_by_role("button", name="Actions for Tulips"), "Rename")
    _rename(person, "")
    expect(heading).to_have_text(f"{long[:80].rstrip()}…")
    assert store.overview("garden").title == long[:80]


def _rename(person: Person, title: str) -> None:
    question = person.page.get_by_test_id("question")
    question.get_by_role("textbox").fill(title)
    question.get_by_role("button", name="Rename").click()
    expect(question).to_have_count(0)


# ── tool calls and keys ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_denied_call_is_shown_as_denied_with_its_reason(person: Person, model: Model) -> None:
    """Guarantee 11.12: not as failed, neither live nor after a reload."""
    model.will(
        calls(("write_file", {"path": "b.txt", "content": "secret\n"}), ("read_file", {"path": "missing.txt"})),
        text_reply("As you wish."),
    )
    person.begins("Write it")
    asked = person.page.get_by_test_id("approval")
    asked.get_by_role("button", name="Deny").click()
    asked.get_by_role("textbox").fill("that one is private")
    asked.get_by_role("textbox").press("Enter")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("As you wish.")
    person.sees_ended()
    for _ in range(2):
        denied, failed = person.page.get_by_test_id("tool-call").all()
        expect(denied.get_by_test_id("call-state")).to_have_text("denied")
        expect(denied.get_by_test_id("call-reason")).to_have_text("Denied: that one is private")
        expect(denied).not_to_contain_text("failed")
        expect(failed.get_by_test_id("call-state")).to_have_text("failed")
        person.page.reload()
        expect(person.rows("assistant").last.locator(".prose")).to_have_text("As you wish.")


def test_a_missing_key_is_shown_as_missing_with_its_variable(
    person: Person, model: Model, store: cc.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 12.2: before anything is sent, and after; not as a rejected key. The message stays in its field."""
    monkeypatch.delenv(KEY)
    person.open()
    note = person.page.get_by_test_id("model-note")
    expect(note).to_contain_text(f"No API key for openai-chat. Set {KEY}")
    person.says("Hello")
    failure = person.page.get_by_test_id("notice")
    expect(failure).to_contain_text("No API key for openai-chat.")
    expect(failure).to_contain_text(f"Set {KEY} in the server's environment. Then restart the server.")
    expect(failure).not_to_contain_text("rejected")
    expect(note).to_be_visible()
    expect(person.composer).to_have_value("Hello")
    assert store.conversations() == []
    assert model.requests == []


# ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_parked_turn_is_shown_with_its_reason(store: cc.Store, person: Person) -> None:
    """Guarantee 19.6: in the list and in the chat, until it is resumed or cancelled."""
    store.append("demo", cc.user("Is anybody there?"))
    person.chat("demo")
    expect(person.page.get_by_test_id("ending")).to_contain_text("Not answered yet.")
    insert = "INSERT INTO main.worker_turn (conversation, agent, queue) SELECT number, ?, ? FROM main.conversation"
    store.write(lambda tx: tx.run(insert, "assistant", "contextc"))
    number = store.read(lambda tx: find_tip(tx, "demo", False))
    assert number is not None
    store.write(lambda tx: records.enqueue_message(tx, number.conversation, "assistant", "follow-up", cc.user("Hey?")))
    assert store.write(lambda tx: park_unknown_agent(tx, "demo", number.conversation, "assistant", "nobody has it"))
    parked = person.page.get_by_test_id("parked-turn")
    expect(parked).to_contain_text("Parked: nobody has it")
    expect(person.page.get_by_test_id("notice-error")).to_contain_text("The turn was parked: nobody has it")
    expect(person.page.get_by_test_id("parked")).to_have_text("parked: nobody has it")
    assert shut_out(person.page) == []
    parked.get_by_role("button", name="Cancel").click()
    expect(parked).to_have_count(0)
    expect(person.page.get_by_test_id("parked")).to_have_count(0)


def test_a_pending_approval_is_visible_everywhere(person: Person, model: Model) -> None:
    """Guarantee 11.12: in the header, the list and the title of the tab, also from another conversation."""
    model.will(calls(("write_file", {"path": "a.txt", "content": "a\n"})), text_reply("Done."))
    name = person.begins("Write a file")
    state = person.page.get_by_test_id("turn-state")
    expect(state).to_have_text("needs approval")
    expect(person.page.get_by_test_id("call-state")).to_have_text("needs approval")
    entry = person.page.get_by_test_id("conversation")
    expect(entry.get_by_test_id("needs-approval")).to_be_visible()
    expect(person.page).to_have_title(re.compile("^Needs approval · Write a file"))
    person.open("#/")
    expect(person.page).to_have_title("1 needs approval · contextc")
    person.page.reload()
    expect(entry.get_by_test_id("needs-approval")).to_be_visible()
    person.chat(name)
    expect(person.page.get_by_test_id("call-state")).to_have_text("needs approval")  # the page came after the event
    person.page.get_by_test_id("approval").get_by_role("button", name="Allow").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Done.")
    person.sees_ended()
    expect(state).to_have_count(0)
    expect(entry.get_by_test_id("needs-approval")).to_have_count(0)
    expect(person.page).to_have_title("Write a file · contextc")


HIDDEN = "\u3164\u2800\ufe0f\u200b\u202e\U000e0041\U000e0101\u200d\u2066"
"""A filler, a blank, variation selectors, a zero-width space and joiner, controls of the direction, and a tag."""


def test_an_approval_hides_nothing_of_a_command(person: Person, model: Model) -> None:
    """Guarantee 11.12: invisible characters are marked, spaces counted, lines numbered, and long ones wrapped."""
    command = f"echo {'x' * 900}{HIDDEN}{' ' * 200}; rm b\nsecond line"
    model.will(calls(("run_command", {"command": command})), text_reply("No."))
    person.begins("Run it")
    asked = person.page.get_by_test_id("approval")
    marks = asked.locator("mark.spelled")
    expect(marks).to_have_text([*[f"⟨U+{ord(each):04X}⟩" for each in HIDDEN], "⟨200 spaces⟩"])
    lines = asked.locator(".preview-line")
    expect(lines).to_have_count(2)
    expect(lines.last).to_have_text("second line")
    ends = lines.evaluate_all("all => all.map(each => getComputedStyle(each, '::after').content)")
    assert ends == ['"↵"', "none"]
    assert asked.locator("pre").evaluate("pre => pre.scrollWidth <= pre.clientWidth")
    expect(asked.get_by_role("button", name="Allow")).to_be_enabled()
    assert shut_out(person.page) == []
    asked.get_by_role("button", name="Deny").click()
    asked.get_by_role("button", name="Deny").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("No.")


def test_a_long_approval_is_allowed_only_when_all_of_it_was_visible(
    person: Person, model: Model, options: ServerOptions
) -> None:
    """Guarantee 11.12: by the button or by the key; the end of a preview may be what matters."""
    content = "".join(f"line {number}\n" for number in range(400))
    model.will(calls(("write_file", {"path": "a.txt", "content": content})), text_reply("Done."))
    person.begins("Write a file")
    asked = person.page.get_by_test_id("approval")
    deny, allow = (asked.get_by_role("button", name=name) for name in ("Deny", "Allow"))
    expect(deny).to_be_enabled()
    expect(allow).to_be_disabled()
    person.page.evaluate("document.activeElement.blur()")
    person.page.keyboard.press("a")
    expect(person.page.get_by_test_id("notice")).to_contain_text("Scroll to the end")
    person.page.get_by_role("button", name="Dismiss").click()
    assert not (options.root / "a.txt").exists()
    asked.get_by_role("button", name="show all lines").click()
    expect(asked.get_by_text("+line 399")).to_be_visible()
    allow.click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Done.")
    assert (options.root / "a.txt").read_text() == content


@pytest.mark.thorough
def test_an_approval_of_an_edit_is_a_diff(person: Person, model: Model, options: ServerOptions) -> None:
    """Guarantee 11.12: the old text too, also where it does not occur in the file."""
    (options.root / "a.txt").write_text("one\ntwo\n")
    model.will(
        calls(("edit_file", {"path": "a.txt", "old": "two", "new": "three"}), id="a"),
        calls(("edit_file", {"path": "a.txt", "old": "absent", "new": "present"}), id="b"),
        text_reply("Done."),
    )
    person.begins("Edit it")
    asked = person.page.get_by_test_id("approval")
    expect(asked.locator(".preview-line.removed")).to_have_text("-two")
    expect(asked.locator(".preview-line.added")).to_have_text("+three")
    asked.get_by_role("button", name="Allow").click()
    expect(asked.locator(".preview-line.removed")).to_have_text("-absent")
    expect(asked.locator(".preview-line.added")).to_have_text("+present")
    expect(asked).to_contain_text("it would fail")
    asked.get_by_role("button", name="Deny").click()
    asked.get_by_role("button", name="Deny").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Done.")


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_another_model_answers_again_with_two_clicks(store: cc.Store, person: Person, model: Model) -> None:
    store.extend("demo", [cc.user("two?"), cc.assistant("two.")])
    model.will(text_reply("two, says the other one."))
    person.chat("demo")
    person.rows("assistant").hover()
    person.rows("assistant").get_by_role("button", name="Regenerate with another model").click()
    person.page.get_by_role("option", name=NAMED).click()
    expect(person.rows("assistant").locator(".prose")).to_have_text("two, says the other one.")
    person.sees_ended()
    assert [request["model"] for request in model.requests] == [OTHER.partition(":")[2]]
    expect(person.page.get_by_test_id("ways")).to_contain_text("2/2")


FORMULAS = {
    "Inline $a^2 + b_1$ here.": ["msup", "msub"],
    r"The root \(\sqrt[3]{x}\) of it.": ["mroot"],
    "$$\n\\frac{1}{2}\n= \\sum_{i=0}^{n} i\n$$": ["mfrac", "munderover"],
    r"\[ \begin{pmatrix} a & b \\ c & d \end{pmatrix} \]": ["mtable", "mtr", "mtd"],
    r"- in a list: $x \in \mathbb{R}$": ["mi", "mo"],
    r"$\left( \text{if } x \right)' \le \hat{y}$": ["mtext", "mover"],
}
PLAIN = [
    "It costs $5 and $6.", "From $5-$10, or $5/$10.", "US$5 and US$6, or 20$ and 30$.", "Set $HOME/$USER and $PATH.",
    "`$a^2$` is code.", r"Escaped \$a^2\$ too.", r"A \[1\] and \(see there\).", "$5 is y_0 and not 6$",
]  # fmt: skip
RENDER = """async (texts) => {
  const [{ html, render }, { Markdown }] = await Promise.all([import("/app/html.js"), import("/app/markdown.js")]);
  return texts.map((text) => {
    const box = document.createElement("div");
    render(html`<${Markdown} text=${text} />`, box);
    const math = [...box.querySelectorAll("math")];
    const names = math.flatMap((each) => [...each.querySelectorAll("*")]);
    const isMath = names.every((each) => each.namespaceURI === "http://www.w3.org/1998/Math/MathML");
    const sources = [...box.querySelectorAll(".math-source")].map((each) => each.textContent);
    return { count: math.length, names: names.map((each) => each.localName), isMath, sources, text: box.textContent };
  });
}"""


def rendered(person: Person, texts: list[str]) -> list[JSONObject]:
    return cast(list[JSONObject], person.page.evaluate(RENDER, texts))


def test_formulas_become_mathml(person: Person) -> None:
    """Guarantee 12.3: element by element, never as markup."""
    person.open()
    for (text, names), found in zip(FORMULAS.items(), rendered(person, [*FORMULAS]), strict=True):
        assert (found["count"], found["isMath"], found["sources"]) == (1, True, []), text
        assert {*names} <= {*found["names"]}, text


def test_prices_variables_and_code_stay_text(person: Person) -> None:
    person.open()
    for text, found in zip(PLAIN, rendered(person, PLAIN), strict=True):
        assert (found["count"], found["sources"]) == (0, []), text
        plain = text.replace("`", "").replace("\\", "")
        assert found["text"].strip() == plain


def test_formulas_that_are_not_supported_are_shown_as_source(person: Person) -> None:
    """Unknown commands, unbalanced braces and hostile sizes; markup in them is text."""
    person.open()
    deep = "{" * 500 + "x" + "}" * 500
    texts = [r"$\unknown{x}$", r"$\frac{1}{2$", f"$${deep}$$", r"$\href{javascript:alarm()}{x}$", "$x^{<img src=x>}_1$"]
    *sources, image = rendered(person, texts)
    assert [len(each["sources"]) for each in sources] == [1] * 4
    assert "img" not in image["names"]
    assert "<img" in image["text"].replace(" ", "") or image["count"] == 1


@pytest.mark.thorough
def test_a_formula_that_streams_is_shown_when_it_is_complete(person: Person, model: Model) -> None:
    gate = Gate()
    model.will(text_reply("Look:\n\n$$\nx^2\n- ", gate, "y\n$$\n\nThat is $5 or $6."))
    person.begins("Show me")
    expect(person.page.locator(".math-source")).to_contain_text("x^2")
    gate.open()
    expect(person.page.locator("math msup")).to_be_visible()
    person.sees_ended()
    expect(person.page.locator(".math-source")).to_have_count(0)
    expect(person.rows("assistant").locator("p").last).to_have_text("That is $5 or $6.")
    assert shut_out(person.page) == []


# ── symbols and the context meter ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.thorough
def test_the_keyboard_help_has_a_legend_of_symbols(person: Person) -> None:
    person.open()
    expect(person.composer).to_be_visible()
    person.page.evaluate("document.activeElement.blur()")
    person.page.keyboard.press("?")
    legend = person.page.get_by_test_id("legend")
    expect(legend).to_have_count(3)
    expect(legend.nth(1)).to_contain_text("Sent again, uncached")
    expect(legend.last).to_contain_text("rewrite factor")
    expect(legend.first).to_contain_text("Tool call denied")
    assert shut_out(person.page) == []


def test_the_context_meter_counts_every_part(person: Person, model: Model) -> None:
    """Guarantee 13.2: the parts add up to the whole window."""
    model.will(text_reply("Yes."))
    name = person.begins("Hello")
    expect(person.rows("assistant").locator(".prose")).to_have_text("Yes.")
    person.sees_ended()
    budget = person.page.request.get(f"{person.url}/api/conversations/{name}/next").json()["budget"]
    gauge = person.page.get_by_test_id("gauge")
    messages = budget["input"] - budget["system"] - budget["tools"]
    parts = {
        "system prompt": budget["system"], "tool definitions": budget["tools"], "messages": messages,
        "free": budget["free"], "kept for the answer": budget["reserve"], "safety margin": budget["margin"],
    }  # fmt: skip
    assert sum(parts.values()) == budget["window"]
    for part, count in parts.items():
        if count:
            expect(gauge).to_contain_text(f"{part} {count:,}")
    expect(gauge.locator(".gauge-fill")).to_have_count(3)
    expect(gauge.locator(".gauge-kept")).to_have_count(1)


# ── screens ───────────────────────────────────────────────────────────────────────────────────────────────────────────

SMALL_TARGETS = """() => [...document.querySelectorAll("button, a[href], input[type=search], textarea, summary")]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }))
  .filter((each) => !each.closest(".prose :is(p, li, td), .skip, .preview-rest, .home-more"))
  .map((each) => [each, each.getBoundingClientRect()])
  .filter(([, { width, left, right }]) => width > 1 && right > 0 && left < innerWidth)
  .filter(([, { width, height }]) => width < 40 || height < 40)
  .map(([each, { width, height }]) => `${each.outerHTML.slice(0, 120)} ${width}x${height}`)"""
"""Controls that are too small; links within a sentence are not counted."""
COVERED = """() => {
  const list = document.querySelector("[data-testid=messages]").getBoundingClientRect();
  const head = document.querySelector(".view-head").getBoundingClientRect();
  const dock = document.querySelector(".dock").getBoundingClientRect();
  return [list.top >= head.bottom - 1, list.bottom <= dock.top + 1, dock.bottom <= innerHeight + 1, list.height > 150];
}"""
OVERFLOW = (
    "document.documentElement.scrollWidth > innerWidth || document.querySelector('.view').scrollWidth > innerWidth"
)
WIDE = "https://example.com/" + "a" * 300


@pytest.mark.parametrize("phone", PHONES if THOROUGH else PHONES[:1], ids=lambda phone: phone["viewport"]["width"])
def test_the_chat_fits_on_a_phone(server: str, visiting: Visit, model: Model, phone: dict[str, Any]) -> None:
    """Guarantee 12.2: nothing beside the screen, nothing covered, and every control as large as a finger."""
    person = visiting(server, **phone)
    model.will(
        calls(("run_command", {"command": f"curl {WIDE}"}), first="Let me see."),
        text_reply(
            f"# Title\n\n{WIDE}\n\n$$x_1 + {' + '.join('y' * 60)}$$\n\n| a | b |\n|-|-|\n| {WIDE} | 2 |", thinks="Hm."
        ),
    )
    person.begins(f"A very long question about {WIDE} and so on " * 3)
    asked = person.page.get_by_test_id("approval")
    expect(asked.get_by_role("button", name="Deny")).to_be_enabled()
    _fits(person.page)
    asked.get_by_role("button", name="Deny").click()
    _fits(person.page)
    asked.get_by_role("button", name="Deny").click()
    expect(person.page.get_by_role("heading", name="Title")).to_be_visible()
    person.sees_ended()
    _fits(person.page)
    person.page.get_by_test_id("model").click()
    expect(person.page.get_by_role("listbox")).to_be_visible()
    _fits(person.page)
    person.page.keyboard.press("Escape")
    person.composer.fill("line\n" * 30)
    _fits(person.page)
    if phone["viewport"]["width"] < 800:
        person.page.get_by_role("button", name="Conversations").click()
        expect(person.page.get_by_test_id("conversation")).to_be_visible()
        _fits(person.page)
    assert shut_out(person.page) == []


def _fits(page: Page) -> None:
    assert not page.evaluate(OVERFLOW)
    assert page.evaluate(SMALL_TARGETS) == []
    if page.viewport_size is not None and page.viewport_size["height"] > 600:
        assert page.evaluate(COVERED) == [True] * 4


@pytest.mark.thorough
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_landmarks(server: str, visiting: Visit, model: Model, scheme: str) -> None:
    """Guarantee 12.2: the preview of thoughts is readable, and no two landmarks have one name."""
    table = "| a |\n|-|\n| 1 |\n\n"
    model.will(text_reply(f"{table}{table}", thinks="Six times seven is forty-two, I am quite sure of that."))
    person = visiting(server, color_scheme=scheme)
    person.begins("What is six times seven?")
    person.sees_ended()
    expect(person.page.locator(".reasoning-peek")).to_be_visible()
    assert shut_out(person.page) == []
    found = cast(JSONObject, person.page.evaluate(ALL_VIOLATIONS))
    assert [each["id"] for each in cast(list[JSONObject], found["violations"])] == []
