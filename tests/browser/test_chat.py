"""The chat page: streamed text appears as it arrives, and equals the stored message."""

import re

import pytest
from playwright.sync_api import Route, expect

import contextc as cc
from contextc.web.app_state import ServerOptions
from tests.browser.page_driver import MESSAGES, Person
from tests.browser.scripted_model import NAMED, OTHER, Gate, Model, Reply, calls, text_reply


def test_an_answer_appears_as_it_arrives_and_stays_as_it_is_stored(
    person: Person, model: Model, store: cc.Store
) -> None:
    """Guarantee 12.2: the first message creates the conversation, and its answer is shown while it streams."""
    gate = Gate()
    model.will(text_reply("Good ", "**day**", gate, ", and ", "welcome.", thinks="They greet me."))
    name = person.begins("Hello there")
    live = person.page.locator(".assistant.live")
    expect(live.locator(".prose")).to_have_text("Good day")
    expect(live.locator("strong")).to_have_text("day")
    expect(person.page.get_by_test_id("stop")).to_be_visible()
    gate.open()
    expect(person.rows("assistant").locator(".prose")).to_have_text("Good day, and welcome.")
    person.sees_ended()
    assert (person.texts("user"), person.texts("assistant")) == (["Hello there"], ["Good day, and welcome."])
    assert [message.text for message in store.load(name)] == ["Hello there", "Good **day**, and welcome."]
    expect(person.page.get_by_test_id("conversation")).to_have_count(1)
    expect(person.page.get_by_test_id("conversation")).to_contain_text("Hello there")
    person.page.reload()
    expect(person.rows("assistant").locator(".prose")).to_have_text("Good day, and welcome.")
    assert (person.texts("user"), person.texts("assistant")) == (["Hello there"], ["Good day, and welcome."])


def test_thoughts_are_folded_until_they_are_opened(person: Person, model: Model) -> None:
    """Guarantee 12.2: reasoning does not hide the answer."""
    model.will(text_reply("Forty-two.", thinks="Six times seven is forty-two, I am quite sure of that."))
    person.begins("What is six times seven?")
    person.sees_ended()
    thoughts = person.page.get_by_test_id("reasoning")
    expect(thoughts.get_by_role("button")).to_have_attribute("aria-expanded", "false")
    expect(thoughts.locator(".reasoning-text")).to_have_count(0)
    thoughts.get_by_role("button").click()
    expect(thoughts.locator(".reasoning-text")).to_have_text(re.compile("Six times seven is forty-two"))


def test_a_tool_call_is_a_line_that_opens_to_arguments_and_result(
    person: Person, model: Model, options: ServerOptions
) -> None:
    """Guarantee 12.2: the calls of a step are folded; a failure is shown in its line."""
    (options.root / "notes.txt").write_text("milk\neggs\n")
    model.will(
        calls(("read_file", {"path": "notes.txt"}), ("read_file", {"path": "missing.txt"}), first="Let me look."),
        text_reply("Milk and eggs."),
    )
    person.begins("What is on my list?")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Milk and eggs.")
    person.sees_ended()
    good, bad = person.page.get_by_test_id("tool-call").all()
    expect(good.get_by_role("button").first).to_have_attribute("aria-expanded", "false")
    expect(good).to_contain_text("notes.txt")
    expect(bad).to_contain_text("failed")
    expect(person.page.locator(MESSAGES).get_by_text("eggs")).to_have_count(1)  # only in the answer
    good.get_by_role("button").first.click()
    expect(good.locator("pre").first).to_contain_text('"path": "notes.txt"')
    expect(good.locator("pre").last).to_contain_text("eggs")
    assert person.rows("tool").count() == 0  # results stand with their calls
    assert person.texts("assistant") == ["Let me look.", "Milk and eggs."]


@pytest.mark.thorough
def test_many_calls_of_a_step_are_one_line(person: Person, model: Model) -> None:
    """Guarantee 12.2: folded by step; a notice follows every ten calls, at its position."""
    model.will(calls(*[("list_files", {"path": ".", "depth": n}) for n in range(1, 11)]), text_reply("Nothing there."))
    person.begins("Look everywhere")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Nothing there.")
    person.sees_ended()
    line = person.page.locator(".call-line.group")
    expect(line).to_contain_text("10 calls")
    expect(person.page.get_by_test_id("tool-call")).to_have_count(0)
    line.click()
    expect(person.page.get_by_test_id("tool-call")).to_have_count(10)
    expect(person.page.get_by_test_id("notice-system-hint")).to_contain_text("10")
    person.page.reload()
    expect(person.page.get_by_test_id("notice-system-hint")).to_have_count(1)
    expect(person.page.locator(".call-line")).to_have_count(1)


def test_a_trigger_message_is_at_its_position(person: Person, model: Model) -> None:
    """Guarantees 11.6, 12.2: a system message between two steps, with the name of what spoke."""
    again = [calls(("list_files", {"path": "."}), id=f"c{number}") for number in range(3)]
    model.will(*again, text_reply("I keep looking at the same thing."))
    person.begins("Go")
    expect(person.rows("assistant").last.locator(".prose")).to_be_visible()
    person.sees_ended()
    notice = person.page.get_by_test_id("system-message")
    expect(notice).to_have_count(1)
    expect(notice).to_contain_text("no_progress")
    roles = person.rows().evaluate_all("rows => rows.map(row => row.className.match(/from-(\\w+)/)[1])")
    assert roles == ["user", "assistant", "assistant", "system", "assistant", "assistant"]


def test_a_tool_that_changes_something_waits_for_approval(person: Person, model: Model, options: ServerOptions) -> None:
    """Guarantee 11.12: the action is shown; yes runs it, no sends the reason to the model."""
    model.will(
        calls(("write_file", {"path": "a.txt", "content": "hello\n"}), id="yes"),
        calls(("write_file", {"path": "b.txt", "content": "secret\n"}), id="no"),
        text_reply("As you wish."),
    )
    person.begins("Write two files")
    asked = person.page.get_by_test_id("approval")
    expect(asked).to_contain_text("a.txt")
    expect(asked.locator("pre")).to_contain_text("+hello")
    assert not (options.root / "a.txt").exists()
    asked.get_by_role("button", name="Allow").click()
    expect(asked).to_contain_text("b.txt")
    assert (options.root / "a.txt").read_text() == "hello\n"
    asked.get_by_role("button", name="Deny").click()
    asked.get_by_role("textbox").fill("that one is private")
    asked.get_by_role("textbox").press("Enter")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("As you wish.")
    person.sees_ended()
    expect(asked).to_have_count(0)
    assert not (options.root / "b.txt").exists()
    assert "that one is private" in str(model.requests[-1]["messages"])
    denied = person.page.get_by_test_id("tool-call").last
    denied.get_by_role("button").first.click()
    expect(denied.locator("pre").last).to_contain_text("that one is private")


PRESS_AT_ONCE = """() => {
  window.presses = 0;
  new MutationObserver((_, observer) => {
    const next = document.querySelector('[data-testid=approval]');
    if (!next?.textContent.includes("rm -rf")) return;
    observer.disconnect();
    window.presses += 1;
    next.querySelector("button.primary").click();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true }));
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
"""Presses Allow, and the key for it, as soon as the second call is shown."""


def test_a_second_press_does_not_allow_the_call_that_comes_next(
    person: Person, model: Model, options: ServerOptions, store: cc.Store
) -> None:
    """Both calls have the same id, and the second one has not been shown yet."""
    hidden = "ls\u3164" + " " * 3_000 + "; rm -rf owned.txt"
    model.will(
        calls(("write_file", {"path": "owned.txt", "content": "mine"})),
        calls(("run_command", {"command": hidden})),
        text_reply("As you wish."),
    )
    name = person.begins("List the files")
    asked = person.page.get_by_test_id("approval")
    expect(asked).to_contain_text("owned.txt")
    person.page.evaluate(PRESS_AT_ONCE)
    asked.get_by_role("button", name="Allow").dblclick()
    expect(asked.locator("pre")).to_have_text("ls⟨U+3164⟩⟨3,000 spaces⟩; rm -rf owned.txt")
    expect(asked.get_by_role("button", name="Allow")).to_be_enabled()
    assert person.page.evaluate("window.presses") == 1
    assert (options.root / "owned.txt").read_text() == "mine"
    calls_made = [call.id for message in store.load(name) for call in message.tool_calls]
    assert calls_made == ["call-1", "call-1"]
    assert [len(message.tool_results) for message in store.load(name) if message.role == "tool"] == [1]
    assert asked.locator("pre").evaluate("pre => pre.scrollWidth <= pre.clientWidth"), "nothing is out of sight"
    asked.get_by_role("button", name="Deny").click()
    asked.get_by_role("button", name="Deny").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("As you wish.")
    person.sees_ended()
    assert (options.root / "owned.txt").exists()


def test_the_partial_answer_stays_when_a_turn_is_stopped(person: Person, model: Model, store: cc.Store) -> None:
    """Guarantee 11.10: stopping keeps what came so far, and says that the model does not see it; it can be asked
    again.
    """
    gate = Gate()
    model.will(text_reply("One, two, ", "three", gate, ", four"), text_reply("One to four."))
    name = person.begins("Count")
    expect(person.page.locator(".assistant.live .prose")).to_have_text("One, two, three")
    person.page.get_by_test_id("stop").click()
    expect(person.page.get_by_text("Stopped. Not sent to the model.")).to_be_visible()
    person.sees_ended()
    assert [(message.text, message.status) for message in store.load(name, last=1)] == [
        ("One, two, three", "cancelled")
    ]
    person.page.get_by_test_id("ending").get_by_role("button", name="Regenerate").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("One to four.")
    person.sees_ended()
    assert "One, two, three" not in str(model.requests[-1]["messages"])


@pytest.mark.thorough
def test_a_turn_that_is_stopped_before_it_answers_is_reported(person: Person, model: Model) -> None:
    """Guarantee 11.10: the cancellation is shown in place of the answer, also after a reload."""
    gate = Gate()
    model.will(text_reply(gate, "never said"), text_reply("Here."))
    person.begins("Count")
    gate.reached()
    person.page.get_by_test_id("stop").click()
    ending = person.page.get_by_test_id("ending")
    expect(ending).to_contain_text("You stopped the turn before there was an answer.")
    person.page.reload()
    expect(ending).to_contain_text("You stopped the turn before there was an answer.")
    ending.get_by_role("button", name="Retry").click()
    expect(person.rows("assistant").locator(".prose")).to_have_text("Here.")


def test_escape_stops_from_anywhere_but_closes_what_lies_above_first(person: Person, model: Model) -> None:
    """Guarantees 11.10, 12.2: with the focus in no field too; a menu that is open closes, and the turn goes on."""
    gate = Gate()
    model.will(text_reply("One, ", "two", gate, ", three"))
    person.begins("Count")
    expect(person.page.locator(".assistant.live .prose")).to_have_text("One, two")
    person.page.get_by_role("button", name="More", exact=True).click()
    expect(person.page.get_by_role("menu")).to_be_visible()
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_role("menu")).to_have_count(0)
    expect(person.page.get_by_test_id("stop")).to_be_visible()
    person.page.locator(".assistant.live").click()
    expect(person.composer).not_to_be_focused()
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_text("Stopped.")).to_be_visible()
    person.sees_ended()


@pytest.mark.thorough
def test_letters_walk_through_the_messages_from_anywhere(person: Person, store: cc.Store) -> None:
    """Guarantee 12.2: J, K and G need no click into the feed, and in a field they are letters."""
    store.extend("demo", [each(f"message {n}\n" * 8) for n in range(20) for each in (cc.user, cc.assistant)])
    person.chat("demo")
    expect(person.page.locator("[data-seq='40']")).to_be_in_viewport()
    person.composer.press("j")
    expect(person.composer).to_have_value("j")
    person.composer.fill("")
    person.page.evaluate("document.activeElement.blur()")
    person.page.keyboard.press("j")
    expect(person.page.locator("[role=article]:focus")).to_have_count(1)
    first = person.page.locator("[role=article]:focus").get_attribute("aria-posinset")
    person.page.keyboard.press("k")
    expect(person.page.locator("[role=article]:focus")).to_have_attribute("aria-posinset", str(int(first or 0) - 1))
    person.page.get_by_role("button", name="New conversation").focus()
    person.page.locator(MESSAGES).evaluate("list => list.scrollTo(0, 0)")
    expect(person.page.locator("[data-seq='40']")).to_have_count(0)
    person.page.keyboard.press("g")
    expect(person.page.locator("[data-seq='40']")).to_be_in_viewport()


def test_input_that_arrives_while_a_turn_runs_steers_it_or_waits(person: Person, model: Model) -> None:
    """Guarantee 11.9: Enter steers before the next step, Ctrl+Enter queues for the next turn; nothing is sent twice."""
    gate = Gate()
    model.will(
        Reply((gate, *calls(("list_files", {"path": "."})).pieces), finish="tool_calls"),
        text_reply("Blue it is."),
        text_reply("You are welcome."),
    )
    person.begins("Paint it red")
    gate.reached()
    person.says("No, blue")
    expect(person.page.get_by_test_id("queued")).to_contain_text("No, blue")
    expect(person.composer).to_have_value("")
    person.composer.fill("Thanks")
    person.composer.press("Control+Enter")
    expect(person.page.get_by_test_id("queued")).to_have_count(2)
    gate.open()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("You are welcome.")
    person.sees_ended()
    expect(person.page.get_by_test_id("queued")).to_have_count(0)
    expect(person.rows("user")).to_have_count(3)
    assert person.texts("user") == ["Paint it red", "No, blue", "Thanks"]
    assert person.texts("assistant") == ["Blue it is.", "You are welcome."]


def test_an_answer_never_stands_without_its_question(person: Person, model: Model) -> None:
    """Guarantee 11.9: a queued message is shown in its place before it is fetched, also over a slow network."""
    gate = Gate()
    model.will(text_reply("One ", gate, "two."), text_reply("You are welcome."))
    person.begins("Count")
    gate.reached()
    person.composer.fill("Thanks")
    person.composer.press("Control+Enter")
    expect(person.page.get_by_test_id("queued")).to_have_count(1)
    held: list[Route] = []
    person.page.route(re.compile(r"/messages\?"), lambda route: held.append(route))
    gate.open()
    expect(person.rows("assistant")).to_have_count(2)
    expect(person.page.locator(".prose, .typed")).to_have_text(["Count", "One two.", "Thanks", "You are welcome."])
    assert held
    for each in held:
        each.continue_()
    person.page.unroute_all()
    person.sees_ended()
    expect(person.page.locator(".prose, .typed")).to_have_text(["Count", "One two.", "Thanks", "You are welcome."])


def test_a_state_that_is_fetched_ahead_of_the_events_takes_nothing_off_the_screen(person: Person) -> None:
    """Guarantee 11.9: what waits, and a reply that is read, stay until events or messages follow."""
    person.open()
    shown = person.page.evaluate("""async () => {
      const { initialState, reduce } = await import("/app/chat/conversation_state.js");
      const waits = { number: 7, kind: "follow_up", text: "Thanks" };
      const view = { branch: 1, revision: 0, length: 1, last_event: 2, queued: [waits], approvals: [],
        running: { turn: 1, step: 1 }, pending: null, gauge: null };
      const ended = { type: "view", view: { ...view, length: 4, last_event: 9, queued: [], running: null } };
      const events = [
        { type: "input-taken", number: 3, queued: 7, seq: 3 },
        { type: "turn-start", number: 4, turn: 2, seq: 3 },
        { type: "text-delta", number: 5, uid: "m4", text: "You are welcome." },
      ];
      const late = [
        { type: "step-finish", number: 6, turn: 2, step: 0, seq: 4 },
        { type: "turn-finish", number: 9, turn: 2 },
      ];
      const before = [{ type: "view", view }, ended, { type: "events", events }, ended].reduce(reduce, initialState());
      const after = [{ type: "events", events: late }, ended].reduce(reduce, before);
      const read = ({ sending, live }) => [...sending, ...live].map(({ parts, seq }) => [parts[0].text, seq]);
      return [read(before), before.queued, read(after)];
    }""")
    assert shown == [
        [["Thanks", 3], ["You are welcome.", 0]],
        [],
        [["Thanks", 3], ["You are welcome.", 4]],
    ]


def test_what_waits_can_be_taken_back(person: Person, model: Model) -> None:
    """Guarantee 11.9: as long as no turn has taken it."""
    gate = Gate()
    model.will(text_reply("One ", gate, "two."))
    name = person.begins("Count")
    gate.reached()
    person.composer.fill("Never mind")
    person.composer.press("Control+Enter")
    waits = person.page.get_by_test_id("queued")
    expect(waits).to_contain_text("Never mind")
    waits.get_by_role("button", name="Remove").click()
    expect(waits).to_have_count(0)
    gate.open()
    expect(person.rows("assistant").locator(".prose")).to_have_text("One two.")
    person.sees_ended()
    assert person.texts("user") == ["Count"]
    with person.page.expect_download() as saved:
        person.item(person.page.get_by_role("button", name="More", exact=True), "Export")
    assert saved.value.suggested_filename == f"{name}.jsonl"


@pytest.mark.thorough
def test_a_line_that_opens_at_once_is_not_reported_as_away(person: Person, model: Model) -> None:
    """Guarantee 12.2: "Connecting again…" is for a line that was lost."""
    gate = Gate()
    model.will(text_reply("One ", gate, "two."))
    person.open()
    person.page.evaluate("""() => {
        window.notes = [];
        new MutationObserver(() => {
            for (const each of document.querySelectorAll(".dock-note")) window.notes.push(each.innerText);
        }).observe(document.body, { childList: true, subtree: true });
    }""")
    person.says("Count")
    expect(person.page.locator(".assistant.live .prose")).to_have_text("One")
    gate.open()
    person.sees_ended()
    assert person.page.evaluate("window.notes") == []


def test_another_model_answers_when_it_is_chosen(person: Person, model: Model) -> None:
    """Guarantee 12.2: the next message goes to the chosen model, and the conversation stores the choice."""
    model.will(text_reply("I am one."), text_reply("I am another."))
    person.begins("Who are you?")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("I am one.")
    person.sees_ended()
    person.page.get_by_test_id("model").click()
    person.page.get_by_role("combobox").fill("gpt-4o-mini openai-chat")
    expect(person.page.get_by_role("option", name=NAMED)).to_be_visible()
    person.page.get_by_role("combobox").press("Enter")
    expect(person.page.get_by_test_id("model")).to_contain_text(OTHER)
    person.says("And you?")
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("I am another.")
    person.sees_ended()
    assert [request["model"] for request in model.requests] == ["gpt-4o", "gpt-4o-mini"]
    person.page.reload()
    expect(person.page.get_by_test_id("model")).to_contain_text(OTHER)


def test_what_a_provider_refuses_is_reported_with_its_text(person: Person, model: Model) -> None:
    """Guarantee 15.1: an error is shown where it happened, and the message is not lost."""
    person.begins("Hello?")
    notice = person.page.get_by_test_id("notice-error")
    expect(notice).to_contain_text("openai-chat rejected this request. The script is at its end.")
    expect(notice).not_to_contain_text("ProviderFailed")
    expect(notice).not_to_contain_text("contextc lint")
    person.sees_ended()
    model.will(text_reply("Here I am."))
    person.page.get_by_test_id("ending").get_by_role("button").click()
    expect(person.rows("assistant").last.locator(".prose")).to_have_text("Here I am.")
    assert person.texts("user") == ["Hello?"]


def test_a_first_message_that_the_server_refuses_stays_in_the_field(person: Person, store: cc.Store) -> None:
    """Guarantee 15.1: and no empty conversation is left."""
    refusal = {"error": {"kind": "InvalidSetting", "message": "local model: not found. Install one."}}
    person.watch.expects("status of 400")
    person.page.route("**/turns", lambda route: route.fulfill(status=400, json=refusal))
    person.open().says("Hello?")
    expect(person.page.get_by_text("local model: not found. Install one.")).to_be_visible()
    expect(person.composer).to_have_value("Hello?")
    expect(person.page.get_by_role("heading", name="What do you want to ask?")).to_be_visible()
    assert store.conversations() == []
    person.page.unroute("**/turns")


STILL = """list => new Promise((done) => {
  let top = -1;
  let frames = 0;
  const look = () => {
    frames = list.scrollTop === top ? frames + 1 : 0;
    top = list.scrollTop;
    if (frames < 10) requestAnimationFrame(look);
    else done(top);
  };
  look();
})"""
"""Where a list stands when it does not move any longer."""


def test_a_long_answer_is_followed_unless_the_reader_scrolls_up(person: Person, model: Model) -> None:
    """Guarantee 12.2: the view follows the end while it grows, unless the user scrolls up; one press leads back."""
    first, second = Gate(), Gate()
    paragraphs = [f"Paragraph {number} of a long answer.\n\n" for number in range(120)]
    model.will(text_reply(*paragraphs[:60], first, *paragraphs[60:90], second, *paragraphs[90:]))
    person.begins("Tell me everything")
    first.reached()
    expect(person.page.get_by_text("Paragraph 59 of")).to_be_in_viewport()
    for lines in (3, 8):  # a draft that grows takes room from the messages, and they are followed still
        person.composer.fill("line\n" * lines)
    first.open()
    expect(person.page.get_by_text("Paragraph 89 of")).to_be_in_viewport()
    person.page.locator(MESSAGES).hover()
    person.page.mouse.wheel(0, -1200)
    expect(person.page.get_by_role("button", name="Go to the end")).to_be_visible()
    expect(person.page.get_by_text("Paragraph 89 of")).not_to_be_in_viewport()
    top = person.page.locator(MESSAGES).evaluate(STILL)
    second.open()
    person.sees_ended()
    assert abs(person.page.locator(MESSAGES).evaluate(STILL) - top) < 2
    person.page.get_by_role("button", name="Go to the end").click()
    expect(person.page.get_by_text("Paragraph 119 of")).to_be_in_viewport()
