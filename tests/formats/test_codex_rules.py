"""Lint and fix of Codex's threads, in all their shapes."""

import json

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.messages import SYNTHETIC_RESULTS
from tests.formats.codex_samples import FORM, SAMPLES, answer, called, lines, ran, said
from tests.formats.known import problems

THREAD = "01a1dfae-c98f-7581-8000-c4b760b71211"


def codes(body: JSONObject | list[JSONObject]) -> list[tuple[str, str]]:
    return [(found.code, found.path) for found in cc.lint(body, format="codex")]


@pytest.mark.parametrize("name", SAMPLES)
def test_all_real_codex_output_is_accepted(name: str) -> None:
    """Guarantee 10.6: whole, and cut off anywhere but inside of a call."""
    assert codes(lines(name)) == []
    assert cc.fix(lines(name), format="codex") == (lines(name), [])
    for end in range(len(lines(name))):
        assert codes(lines(name)[:end]) == []


@pytest.mark.parametrize("name", SAMPLES)
def test_all_real_codex_output_converts_to_every_format(name: str) -> None:
    """Guarantees 9.10, 10.5."""
    for target in ("anthropic", "openai_chat", "openai_responses", "gemini", "vercel", "codex"):
        made = cc.convert(lines(name), source="codex", target=target)
        assert len(made) == 0 or cc.lint(made, format=target) == []
        assert problems(target, made) == []


@pytest.mark.parametrize("content", [5, "text", {"type": "text"}])
def test_the_content_of_a_hook_prompt_is_not_read(content: object) -> None:
    """Guarantee 10.6: Codex has no such field, so its value may be anything."""
    item = {"type": "hookPrompt", "id": "h1", "fragments": [{"hookRunId": "1", "text": "Hi."}], "content": content}
    assert codes([item]) == []


BROKEN: list[tuple[str, JSONObject, str]] = [
    ("unknown type", {"type": "thought", "id": "1"}, "unknown item type 'thought'."),
    ("no type", {"id": "1", "text": "hi"}, "`type` is missing."),
    ("no object", {"type": "agentMessage", "id": "1", "text": {"a": 1}}, "`text` must be a string, got an object."),
    ("wrong shape", {**ran(), "command": ["echo"]}, "`command` must be a string, got a list."),
    ("missing field", {**answer("hi"), "text": None}, "`text` must be a string, got null."),
    ("status", {**called(), "status": "done"}, "`status` must be one of"),
    (
        "no arguments",
        {"type": "dynamicToolCall", "id": "1", "tool": "a", "status": "completed"},
        "`arguments` is missing",
    ),
    ("returned", {**called(), "contentItems": [{"type": "text", "text": "x"}]}, "`contentItems` has an invalid block"),
    ("thoughts", {"type": "reasoning", "id": "1", "summary": [{"text": "x"}]}, "`summary` must be a list of strings."),
    (
        "change",
        {"type": "fileChange", "id": "1", "status": "completed", "changes": [{"path": "a"}]},
        "has an invalid change",
    ),
    ("id", {**answer("hi"), "id": 3}, "`id` must be a string, got a number."),
    ("block", {**said("hi"), "content": [{"type": "input_text", "text": "hi"}]}, "unknown block type 'input_text'"),
    ("picture", {**said("hi"), "content": [{"type": "image"}]}, "`url` is missing."),
]


@pytest.mark.parametrize(("item", "message"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_an_item_with_an_invalid_shape_is_reported_and_fixed(item: JSONObject, message: str) -> None:
    """Guarantee 10.6: so say the vendor's own types, too."""
    assert problems("codex", [item]) != []
    (found,) = cc.lint([item, answer("ok", "2")], format="codex")
    assert (found.code, found.path[:3]) == ("COD001", "[0]")
    assert message in found.message
    assert found.error.startswith("Invalid request: ")
    fixed, _ = cc.fix([item, answer("ok", "2")], format="codex")
    assert cc.lint(fixed, format="codex") == []
    assert problems("codex", fixed) == []


@pytest.mark.parametrize("name", ["contentItems", "changes", "fragments", "commandActions", "summary", "result"])
@pytest.mark.parametrize("item", [said("hi"), answer("hi"), {"type": "plan", "id": "1", "text": "x"}])
def test_a_field_of_another_kind_is_not_read(item: JSONObject, name: str) -> None:
    """Guarantee 10.6: it is neither a finding nor a failure."""
    assert cc.lint([{**item, name: True}], format="codex") == cc.lint([item], format="codex")


@pytest.mark.parametrize("item", [said("hi"), answer("hi"), called(), ran()], ids=lambda item: item["type"])
@pytest.mark.parametrize("name", ["", None])
def test_an_item_without_an_id_is_named_and_gets_one(item: JSONObject, name: str | None) -> None:
    """Guarantee 10.6: deltas and approvals are distinguished by it."""
    nameless = {**item, "id": name} if name is not None else {key: each for key, each in item.items() if key != "id"}
    assert codes([nameless]) == [("COD002", "[0]")]
    fixed, _ = cc.fix([nameless], format="codex")
    assert fixed[0]["id"]
    assert {**fixed[0], "id": item["id"]} == item


@pytest.mark.parametrize("name", ["thread_1", "", "01a1dfae", THREAD[:-1], 7])
def test_a_thread_id_that_is_not_a_uuid_is_reported_and_dropped(name: object) -> None:
    """`codex exec resume` begins a new thread with it, and says nothing."""
    body: JSONObject = {"threadId": name, "items": [said("hi")]}
    assert codes(body) == [("COD003", "threadId")]
    assert cc.fix(body, format="codex")[0] == {"items": [said("hi")]}
    assert codes({"threadId": THREAD, "items": [said("hi")]}) == []


@pytest.mark.parametrize(
    "item",
    [
        called("inProgress"),
        ran("inProgress", None),
        {"type": "fileChange", "id": "f", "status": "inProgress", "changes": []},
        {"type": "mcpToolCall", "id": "m", "status": "inProgress", "server": "s", "tool": "t", "arguments": {}},
    ],
    ids=lambda item: item["type"],
)
def test_a_call_that_still_runs_though_the_thread_has_gone_on_is_named_and_answered(item: JSONObject) -> None:
    """Guarantee 5.3: a crash leaves it so, and imported so it would have no result."""
    assert codes([item, said("and?")]) == [("COD004", "[0]")]
    fixed, _ = cc.fix([item, said("and?")], format="codex")
    assert (fixed[0]["status"], fixed[0]["type"]) == ("failed", item["type"])
    assert problems("codex", fixed) == []
    (_, answered, _) = FORM.decode_request(fixed).messages
    assert answered.tool_results[0].text in (SYNTHETIC_RESULTS["interrupted"], "failed")


def test_a_call_that_runs_at_the_end_or_beside_others_is_sound() -> None:
    """A turn that is going on looks so."""
    assert codes([said("hi"), called("inProgress")]) == []
    assert codes([said("hi"), called("inProgress", "a"), called("completed", "b")]) == []
    assert codes([called("inProgress", "a"), called("completed", "b"), answer("ok")]) == [("COD004", "[0]")]


def test_messages_of_other_apis_become_items() -> None:
    """Guarantee 10.6: what was meant."""
    mixed: list[JSONObject] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
        {"type": "command_execution", "id": "item_1", "command": "ls", "aggregated_output": "", "status": "completed"},
    ]
    fixed, _ = cc.fix(mixed, format="codex")
    assert cc.lint(fixed, format="codex") == []
    assert [(item["type"], item.get("text"), item.get("command")) for item in fixed] == [
        ("userMessage", None, None),
        ("agentMessage", "Hello.", None),
        ("commandExecution", None, "ls"),
    ]


def test_the_file_on_disk_is_read_as_the_api_request() -> None:
    """Guarantee 9.8: context and skills that Codex adds are not messages of the conversation."""
    asked, called_for, returned, final = FORM.decode_request(lines("rollout")).messages
    assert (asked.role, asked.text) == ("user", "Say hello with the shell.")
    assert [type(part) for part in called_for.parts] == [cc.Reasoning, cc.Text, cc.ToolCall]
    assert called_for.tool_calls[0].arguments == {"cmd": "echo hello"}
    assert returned.tool_results[0].text.endswith("Output:\nhello\n")
    assert final.text == "It says hello."


def test_a_compacted_record_begins_with_what_took_the_place_of_the_history() -> None:
    """Guarantee 9.3: the summary is what the model is shown."""
    first, summary, again, final = FORM.decode_request(lines("rollout_compacted")).messages
    assert (first.text, again.text, final.text) == ("Hi", "Again?", "Again.")
    assert summary.text.endswith("SUMMARY: they said hi.")
    old = [
        {**line, "payload": {"message": "They said hi."}} if line["type"] == "compacted" else line
        for line in lines("rollout_compacted")
    ]
    assert [message.text for message in FORM.decode_request(old).messages] == ["They said hi.", "Again?", "Again."]


def test_an_interruption_marker_is_not_user_text() -> None:
    """Guarantee 9.8: Codex writes it into the record in the user's name; older ones do not say that it was Codex."""
    assert [message.text for message in FORM.decode_request(lines("rollout_interrupted")).messages] == ["Hi"]
    old = json.loads(json.dumps(lines("rollout_interrupted")))
    for line in old:
        line["payload"].pop("internal_chat_message_metadata_passthrough", None)
    assert [message.text for message in FORM.decode_request(old).messages] == ["Hi"]


def test_turns_that_were_rolled_back_are_not_in_the_history() -> None:
    """Guarantee 9.8: older versions write so into the record that the prompt was taken back."""
    back = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    record = [*lines("rollout_compacted"), back]
    assert [message.text[:4] for message in FORM.decode_request(record).messages] == ["Hi", "Anot"]
