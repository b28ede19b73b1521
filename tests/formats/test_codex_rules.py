"""Lint and fix of Codex's threads, in all their shapes."""

import json

import pytest

import contextc as cc
from contextc._json import JSONObject
from tests.formats.codex_samples import FORM, SAMPLES, answer, called, lines, ran, said
from tests.formats.known import problems


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
