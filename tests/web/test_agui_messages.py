"""Messages of AG-UI: a client's messages are decoded, and stored messages are encoded as its models want them."""

import base64

import pytest
from pydantic import TypeAdapter

import contextc as cc
from contextc._json import JSON
from contextc.errors import InvalidRequest
from contextc.messages import AnyPart, Media, Reasoning, Text
from contextc.web.api.agui import decode_messages, encode_messages

PNG = base64.b64encode(b"picture").decode()


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "hi"}, Text("hi")),
        (
            {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/jpeg"}},
            Media(mime_type="image/jpeg", data=b"picture"),
        ),
        (
            {"type": "audio", "source": {"type": "url", "value": "https://example.com/a"}},
            Media(mime_type="audio/mpeg", url="https://example.com/a"),
        ),
        (
            {"type": "document", "source": {"type": "file", "value": "file_1", "provider": "openai"}},
            Media(mime_type="application/octet-stream", file_id="file_1", provider="openai"),
        ),
    ],
)
def test_parts_of_a_user_message_are_decoded(part: JSON, expected: AnyPart) -> None:
    (message,) = decode_messages([{"role": "user", "id": "u", "content": [part]}])
    assert (message.uid, message.parts) == ("u", (expected,))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (5, r"messages\[0\]\.content.*must be a string or a list of parts"),
        ([{"type": "binary"}], r"messages\[0\]\.content\[0\].*must be a text, image"),
        ([{"type": "image", "source": {"type": "disk", "value": "a"}}], r"content\[0\].*must be a text, image"),
        ([{"type": "image", "source": {"type": "data", "value": "!"}}], r"content\[0\].*invalid base64"),
    ],
)
def test_content_of_another_shape_is_refused_with_its_path(content: JSON, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=f"(?s){problem}"):
        decode_messages([{"role": "user", "id": "u", "content": content}])


def test_a_message_needs_an_id() -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.id"):
        decode_messages([{"role": "user", "id": "u", "content": "hi"}, {"role": "assistant", "content": "yes"}])


def test_messages_of_other_roles_only_keep_their_position() -> None:
    given = [{"role": role, "id": role} for role in ("assistant", "tool", "system", "activity")]
    assert [(message.role, message.uid) for message in decode_messages([*given])] == [
        ("assistant", "assistant"),
        ("assistant", "tool"),
    ]


def test_stored_messages_are_messages_of_agui() -> None:
    picture = Media(mime_type="image/png", blob="b1")
    film = Media(mime_type="video/mp4", url="https://example.com/a.mp4")
    messages = [
        cc.Message(role="system", uid="s", parts=(Text("Be brief."),)),
        cc.Message(role="user", uid="u", parts=(Text("Look"), picture)),
        cc.Message(role="user", uid="v", parts=(film,)),
        cc.Message(
            role="assistant",
            uid="a",
            parts=(Reasoning(text="Two files."), cc.ToolCall(id="1", name="read", arguments={"path": "x"})),
        ),
        cc.Message(
            role="tool",
            uid="t",
            parts=(
                cc.ToolResult(call_id="1", name="read", content="text"),
                cc.ToolResult(call_id="2", name="read", content="no file", is_error=True),
            ),
        ),
    ]
    from ag_ui.core import Message as AGUIMessage

    found = encode_messages(messages)
    models = TypeAdapter[AGUIMessage](AGUIMessage)
    for each in found:
        models.validate_python(each)
    system, look, film_only, thought, call, first, second = found
    assert system == {"id": "s", "role": "system", "content": "Be brief."}
    image = {"type": "image", "source": {"type": "url", "value": "/api/blobs/b1", "mimeType": "image/png"}}
    assert look["content"] == [{"type": "text", "text": "Look"}, image]
    assert [(part["type"], part["source"]["value"]) for part in film_only["content"]] == [("video", film.url)]
    assert thought == {"id": "a-reasoning", "role": "reasoning", "content": "Two files."}
    assert call["toolCalls"][0]["function"] == {"name": "read", "arguments": '{"path":"x"}'}
    assert first == {"id": "t", "role": "tool", "toolCallId": "1", "content": "text"}
    assert second == {"id": "t-1", "role": "tool", "toolCallId": "2", "content": "no file", "error": "no file"}


@pytest.mark.parametrize("name", ["role", "name", "toolCallId", "error"])
def test_fields_that_are_not_strings_are_refused_with_their_path(name: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"messages\[0\]\.{name}: must be a string, got 'dict'"):
        decode_messages([{"role": "tool", "id": "t", "content": "x", name: {"a": 1}}])
