"""Stored chats of the Vercel AI SDK."""

import json
from pathlib import Path

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.interchange import import_files

CHAT: list[JSONObject] = [
    {
        "id": "m1",
        "role": "user",
        "createdAt": "2026-01-02T03:04:05Z",
        "parts": [
            {"type": "text", "text": "What grows here?"},
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="},
        ],
    },
    {
        "id": "m2",
        "role": "assistant",
        "metadata": {"createdAt": 1_767_323_046_000},
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "I should look.", "state": "done"},
            {
                "type": "tool-look",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"at": "bed 1"},
                "output": "Thyme.",
            },
            {"type": "step-start"},
            {"type": "text", "text": "Thyme does.", "state": "done"},
        ],
    },
]
TOLD = ["user: What grows here?", "assistant: ", "tool: ", "assistant: Thyme does."]


def texts(store: cc.Store, conversation: str) -> list[str]:
    return [f"{message.role}: {message.text}" for message in store.load(conversation)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (json.dumps(CHAT), "vercel-chat"),
        (json.dumps(CHAT, indent=2), "vercel-chat"),
        ("\n".join(json.dumps(message) for message in CHAT), "vercel-chat"),
        (json.dumps({"id": "abc", "title": "Herbs", "messages": CHAT}, indent=2), "vercel-abc"),
        (json.dumps({"id": "abc", "messages": CHAT}) + "\n" + json.dumps({"id": "d", "messages": []}), "vercel-abc"),
        (json.dumps([{"id": "abc", "messages": CHAT}]), "vercel-abc"),
    ],
    ids=["list", "wide list", "message lines", "chat", "chat lines", "list of chats"],
)
def test_a_chat_comes_in_with_its_steps_calls_and_media(store: cc.Store, tmp_path: Path, text: str, name: str) -> None:
    """Guarantees 3.8, 10.2: however it was stored."""
    path = tmp_path / "chat.json"
    path.write_text(text)
    (taken,) = import_files(store, [path]).conversations
    assert (taken.name, taken.messages, taken.tool_calls) == (name, 4, 1)
    assert texts(store, name) == TOLD
    first, call, result, answer = store.load(name)
    assert (first.uid, call.uid) == ("m1", "m2")
    assert [message.time - 1_767_323_045_000 for message in (first, call, result, answer)] == [0, 1000, 1000, 1000]
    assert isinstance(first.parts[1], cc.Media)
    assert import_files(store, [path]).total("new") == 0


def test_a_chat_that_grew_adds_its_tail_and_an_edited_one_is_refused(store: cc.Store, tmp_path: Path) -> None:
    """Guarantees 3.5, 15.1."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"id": "c", "messages": CHAT}))
    import_files(store, [path])
    more = {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "And in winter?"}]}
    path.write_text(json.dumps({"id": "c", "messages": [*CHAT, more]}))
    assert import_files(store, [path]).total("new") == 1
    edited = {**more, "parts": [{"type": "text", "text": "And in spring?"}]}
    path.write_text(json.dumps({"id": "c", "messages": [*CHAT, edited]}))
    with pytest.raises(cc.errors.InvalidInput, match="differ after message 4"):
        import_files(store, [path])


def test_ids_that_are_there_twice_are_given_once(store: cc.Store, tmp_path: Path) -> None:
    """Pages that make their own ids sometimes do."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{**message, "id": "same"} for message in CHAT]))
    import_files(store, [path])
    assert texts(store, "vercel-chat") == TOLD


def test_several_chats_of_a_file_are_several_conversations(store: cc.Store, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"id": f"c{number}", "messages": CHAT}) + "\n" for number in range(3)))
    summary = import_files(store, [path])
    assert [each.name for each in summary.conversations] == ["vercel-c0", "vercel-c1", "vercel-c2"]
    assert summary.total("messages") == 12
    named = import_files(store, [path], into="mine")
    assert [each.name for each in named.conversations] == ["mine", "mine-c1", "mine-c2"]


def test_an_invalid_line_in_the_middle_imports_nothing(store: cc.Store, tmp_path: Path) -> None:
    """Guarantee 15.1: what the error says is true."""
    path = tmp_path / "chats.jsonl"
    lines = [json.dumps({"id": f"c{number}", "messages": CHAT}) for number in range(4)]
    path.write_text("\n".join([*lines[:2], lines[2][:-9], lines[3]]) + "\n")
    with pytest.raises(cc.errors.InvalidInput, match=r"line 3: .*chats\.jsonl.* Nothing was imported\."):
        import_files(store, [path])
    assert store.conversations() == []
    path.write_text("\n".join([*lines[:3], lines[3][:-9]]) + "\n")
    summary = import_files(store, [path])
    assert (len(summary.conversations), summary.left_out) == (3, ("line 4, the last, which is truncated",))
