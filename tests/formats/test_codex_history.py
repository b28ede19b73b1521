"""Uses of items in a Codex client: imported history, and the prompt of a turn."""

import pytest
from hypothesis import given, settings

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.codex.codec import CONTINUE_TEXT, split_history_and_prompt, to_response_items
from contextc.messages import SYSTEM_CONTEXT
from tests.conftest import often
from tests.formats.codex_samples import FORM, SAMPLES, answer, called, lines, ran, said
from tests.formats.histories import History, histories

PICTURE: JSONObject = {"type": "image", "url": "data:image/png;base64,iVBORw=="}


def test_history_ends_with_the_last_thing_the_agent_did() -> None:
    """Guarantee 9.10: what the user said after it is the prompt, of however many messages."""
    before = [said("hi"), called(), answer("Rain.")]
    after = [
        said(f"{SYSTEM_CONTEXT}It is late."),
        {**said("And now?"), "content": [PICTURE, *said("And now?")["content"]]},
    ]
    history, prompt = split_history_and_prompt([*before, *after])
    assert history == before
    assert prompt == [
        {"type": "text", "text": f"{SYSTEM_CONTEXT}It is late."},
        PICTURE,
        {"type": "text", "text": "And now?"},
    ]


def test_without_user_text_the_agent_is_prompted_to_continue() -> None:
    """Guarantee 9.9: a turn needs a prompt."""
    assert split_history_and_prompt([said("hi"), called()]) == (
        [said("hi"), called()],
        [{"type": "text", "text": CONTINUE_TEXT}],
    )
    assert split_history_and_prompt([]) == ([], [{"type": "text", "text": CONTINUE_TEXT}])
    assert split_history_and_prompt([said("hi")]) == ([], [{"type": "text", "text": "hi"}])


def test_history_is_imported_as_items_of_the_responses_api() -> None:
    """Guarantee 9.10: whole messages, every call with its output, context as the developer's."""
    items = [
        said(f"{SYSTEM_CONTEXT}It is late."),
        {
            **said("Weather?"),
            "content": [*said("Weather?")["content"], PICTURE, {"type": "localImage", "path": "a.png"}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": ["Hm."], "content": []},
        {**answer("Let me see."), "phase": "commentary"},
        called(),
        ran("failed", "no\n"),
        {"type": "contextCompaction", "id": "x"},
        {"type": "plan", "id": "p", "text": "Look."},
        answer("Rain."),
    ]
    assert to_response_items(items) == [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "It is late."}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Weather?"},
                {"type": "input_image", "detail": "auto", "image_url": PICTURE["url"]},
                {"type": "input_text", "text": "[localImage: a.png]"},
            ],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {
            "type": "function_call",
            "call_id": "x1",
            "name": "shell",
            "arguments": '{"command":"echo hello","cwd":"/project"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "x1", "output": "no\n"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Look."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]},
    ]


def test_an_unfinished_call_is_imported_with_an_interrupted_result() -> None:
    """Guarantee 5.3: the API would refuse every later request."""
    call, output, words = to_response_items([called("inProgress"), answer("Anyway.")])
    assert (call["type"], output["type"], words["role"]) == ("function_call", "function_call_output", "assistant")
    assert output["output"].startswith("Interrupted")


@pytest.mark.parametrize("name", [name for name in SAMPLES if not name.startswith("rollout")])
def test_real_codex_output_can_be_imported_again(name: str) -> None:
    """Guarantee 9.6: a new session gets the whole history."""
    items = to_response_items(lines(name))
    assert cc.lint(items, format="openai_responses") == [] or items == []


@settings(max_examples=often(15, 200), deadline=None)
@given(history=histories())
def test_any_log_can_be_imported(history: History) -> None:
    """Guarantee 9.10: by the rules of the Responses API; Codex wants a type and blocks in every message."""
    before, prompt = split_history_and_prompt(FORM.format(history.messages))
    assert prompt
    items = to_response_items(before)
    assert cc.lint(items, format="openai_responses") == [] or items == []
    assert all(item.get("type") and isinstance(item.get("content", []), list) for item in items)
    calls = [call for message in history.messages for call in message.tool_calls]
    assert len([item for item in items if item["type"] == "function_call"]) == len(calls)
