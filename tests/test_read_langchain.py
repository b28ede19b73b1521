"""Messages of LangChain are read as data, whichever form their content has."""

import base64

import pytest

from contextc._json import JSON, JSONObject
from contextc.interchange.read_langchain import to_message
from contextc.messages import Media, ProviderBlock, Reasoning, Text, ToolResult

WAV = base64.b64encode(b"sound").decode()
URL = "https://example.com/a"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "image_url", "image_url": {"url": f"{URL}.jpg"}}, Media(mime_type="image/jpeg", url=f"{URL}.jpg")),
        ({"type": "image_url", "image_url": URL}, Media(mime_type="image/png", url=URL)),
        (
            {"type": "input_audio", "input_audio": {"data": WAV, "format": "mp3"}},
            Media(mime_type="audio/mp3", data=b"sound"),
        ),
        ({"type": "audio", "base64": WAV}, Media(mime_type="audio/wav", data=b"sound")),
        ({"type": "image", "url": URL, "mime_type": "image/webp"}, Media(mime_type="image/webp", url=URL)),
        (
            {"type": "document", "source": {"media_type": "text/plain", "data": WAV}, "name": "a"},
            Media(mime_type="text/plain", data=b"sound", name="a"),
        ),
        (
            {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{WAV}", "filename": "a.pdf"}},
            Media(mime_type="application/pdf", data=b"sound", name="a.pdf"),
        ),
    ],
)
def test_media_of_every_shape(block: JSONObject, expected: Media) -> None:
    assert to_message({"type": "human", "content": ["See:", block]}, {}).parts == (Text("See:"), expected)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image"},
        {"type": "image_url"},
        {"type": "input_audio", "input_audio": {"data": "!"}},
        {"type": "audio", "base64": 5},
        {"type": "server_tool_use", "id": "1"},
    ],
)
def test_a_block_without_a_matching_part_is_kept_for_its_provider(block: JSONObject) -> None:
    message = to_message({"type": "ai", "content": [block], "response_metadata": {"model_provider": "openai"}}, {})
    assert message.parts == (ProviderBlock(provider="openai", data=block),)


@pytest.mark.parametrize(("role", "expected"), [("assistant", "assistant"), ("pirate", "user"), (None, "user")])
def test_a_chat_message_names_its_role(role: str | None, expected: str) -> None:
    assert to_message({"type": "ChatMessageChunk", "role": role, "content": "hi"}, {}).role == expected


def test_reasoning_beside_the_content_is_read_once() -> None:
    beside: JSONObject = {"type": "ai", "additional_kwargs": {"reasoning_content": "Hm."}}
    assert to_message({**beside, "content": "Yes."}, {}).parts == (Reasoning(text="Hm."), Text("Yes."))
    both = to_message({**beside, "content": [{"type": "thinking", "thinking": "Hm."}]}, {})
    assert [part.text for part in both.parts if isinstance(part, Reasoning)] == ["Hm."]


@pytest.mark.parametrize(
    ("content", "expected"),
    [("", ""), (["1", "2"], (Text("1"), Text("2"))), ([{"type": "x"}], '[{"type":"x"}]')],
)
def test_a_result_that_names_no_tool_has_the_name_of_its_call(content: JSON, expected: str | tuple[Text, ...]) -> None:
    names: dict[str, str] = {}
    to_message({"type": "ai", "content": "", "tool_calls": [{"id": "a", "name": "look", "args": {}}]}, names)
    (part,) = to_message({"type": "tool", "tool_call_id": "a", "content": content}, names).parts
    assert part == ToolResult(call_id="a", name="look", content=expected)
