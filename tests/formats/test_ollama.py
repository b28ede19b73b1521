"""Ollama's `/api/chat`, encoded and decoded."""

import json
from typing import Any

import httpx
import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import Request
from contextc.formats.request_settings import OutputFormat, RequestSettings
from contextc.store.turn_records import join_deltas

OLLAMA = cc.formats.OllamaFormatter()
PNG, JPEG = b"\x89PNG", b"\xff\xd8\xff\xe0"
LOOK = cc.Tool(name="look", description="Look at a thing.", parameters={"type": "object", "properties": {}})


def call(name: str, arguments: JSONObject, id: str = "") -> JSONObject:
    named: JSONObject = {"id": id} if id else {}
    return {**named, "function": {"name": name, "arguments": arguments}}


REPLY: JSONObject = {
    "model": "qwen3:8b",
    "created_at": "2026-11-15T10:00:00Z",
    "message": {
        "role": "assistant",
        "content": "Let me look.",
        "thinking": "Hm.",
        "tool_calls": [{"id": "call_x", "function": {"index": 0, "name": "look", "arguments": {"at": 1}}}],
    },
    "done": True,
    "done_reason": "stop",
    "total_duration": 10,
    "prompt_eval_count": 26,
    "eval_count": 298,
}


def test_an_invalid_reply_is_reported() -> None:
    """Guarantee 15.1."""
    with pytest.raises(cc.errors.InvalidReply):
        OLLAMA.decode_reply({"choices": []})


def line(content: str = "", **rest: object) -> JSONObject:
    return {"model": "m", "message": {"role": "assistant", "content": content, **rest}, "done": False}


END: JSONObject = {**line(), "done": True, "done_reason": "stop", "eval_count": 3}
STREAMS = [
    pytest.param([line("Hel"), line("lo"), END], id="text"),
    pytest.param([line(thinking="H"), line(thinking="m."), line("Hel"), line("lo"), END], id="thinking"),
    pytest.param([line("a", thinking="b"), line(thinking="c"), line("d"), END], id="both at once"),
    pytest.param([line(tool_calls=[call("f", {})]), line(tool_calls=[call("g", {"a": 1})]), END], id="calls"),
    pytest.param([{**END, **line("Hello", tool_calls=[call("f", {}, "x")]), "done": True}], id="whole"),
    pytest.param([line("Hel"), line("lo")], id="cut off"),
    pytest.param([], id="nothing"),
    pytest.param([{}, {"message": None}, {"message": {"content": None, "tool_calls": None}}, END], id="nulls"),
    pytest.param([line("half"), {"error": "overloaded"}], id="an error"),
    pytest.param([line("x", tool_calls=[{}, None, "f", {"function": {"name": "f"}}]), END], id="odd calls"),
]


@pytest.mark.parametrize("events", STREAMS)
def test_what_is_shown_while_it_comes_is_what_is_kept(events: list[JSONObject]) -> None:
    """Guarantee 12.1: the deltas, joined, are the message."""
    reader = OLLAMA.create_reader()
    deltas = [delta for event in events for delta in reader.read(event)]
    message = OLLAMA.decode_stream(events)
    shown, kept = join_deltas(deltas), message.parts
    assert "".join(part.text for part in shown if isinstance(part, cc.Text)) == message.text
    thoughts = [[part.text for part in each if isinstance(part, cc.Reasoning)] for each in (shown, kept)]
    assert "".join(thoughts[0]) == "".join(thoughts[1])
    calls = [[(part.id, part.arguments) for part in each if isinstance(part, cc.ToolCall)] for each in (shown, kept)]
    assert calls[0] == calls[1]
    assert reader.message() == message
    assert reader.finished is any(event.get("done") is True for event in events)
    assert (reader.error is not None) is (message.status == "error")


WORDS: list[tuple[RequestSettings, JSONObject]] = [
    (RequestSettings(effort="none"), {"think": False}),
    (RequestSettings(effort="medium"), {"think": True}),
    (RequestSettings(model="gpt-oss:20b", effort="xhigh"), {"model": "gpt-oss:20b", "think": "high"}),
    (RequestSettings(output=OutputFormat()), {"format": "json"}),
    (RequestSettings(output=OutputFormat(schema={"type": "object"})), {"format": {"type": "object"}}),
    (
        RequestSettings(max_output_tokens=9, temperature=0.5, top_p=0.9, top_k=5, seed=7, stop=["END"], stream=False),
        {
            "stream": False,
            "options": {"num_predict": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 7, "stop": ["END"]},
        },
    ),
]


@pytest.mark.parametrize(("settings", "body"), WORDS, ids=[str(body)[:40] for _, body in WORDS])
def test_settings_in_its_own_words(settings: RequestSettings, body: JSONObject) -> None:
    """Guarantee 10.1."""
    assert OLLAMA.settings.write(settings).body == body
    read = OLLAMA.settings.read(body)
    assert read.unread == []
    assert OLLAMA.settings.write(read.settings).body == body


def test_what_only_it_has_is_named() -> None:
    read = OLLAMA.settings.read({"keep_alive": "5m", "truncate": False, "options": {"num_ctx": 9, "repeat_penalty": 1}})
    assert sorted(read.unread) == ["keep_alive", "options.num_ctx", "options.repeat_penalty", "truncate"]


def test_what_ollamas_client_sends_is_what_we_write() -> None:
    """Guarantees 10.1, 10.5: `arguments` are those of its `chat`, and it writes the same, but for what it does not
    know.
    """
    from ollama import Client

    caught: list[JSONObject] = []

    def answer(request: httpx.Request) -> httpx.Response:
        caught.append(json.loads(request.content))
        return httpx.Response(200, json=REPLY)

    form = cc.formats.OllamaFormatter(num_ctx=8_192)
    history = (
        cc.user(["What is this?", cc.Media(mime_type="image/png", data=PNG)]),
        OLLAMA.decode_reply(REPLY),
        cc.tool_result("call_x", "look", "a ship"),
    )
    settings: JSONObject = {"model": "qwen3:8b", "stream": False, "think": True, "format": {"type": "object"}}
    body = form.encode_request(Request(messages=history, tools=(LOOK,), settings=settings))
    # Any: its stubs leave a part of `chat` without a type
    client: Any = Client("http://nowhere.invalid", transport=httpx.MockTransport(answer))
    reply = client.chat(**form.sdk_arguments(body, "qwen3:8b"))
    lost = json.loads(json.dumps({name: value for name, value in body.items() if name != "truncate"}))
    del lost["messages"][1]["tool_calls"][0]["id"]
    del lost["messages"][1]["tool_calls"][0]["function"]["index"]
    del lost["messages"][2]["tool_call_id"]
    assert caught == [lost]
    assert cc.lint(caught[0], format="ollama") == []
    message = OLLAMA.decode_reply(reply)  # its own class, without the id
    assert (message.text, message.tool_calls[0].id, message.finish) == ("Let me look.", "call_0", "tool_calls")


@pytest.mark.parametrize("limit", [-1, -2])
def test_an_answer_without_a_limit_has_none_elsewhere(limit: int) -> None:
    """Guarantee 10.1: -1 and -2 are not lengths."""
    body: JSONObject = {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "options": {"num_predict": limit},
    }
    assert OLLAMA.settings.read({"options": {"num_predict": limit, "top_k": 5}}) == (RequestSettings(top_k=5), [])
    assert "max_tokens" not in cc.convert(body, source="ollama", target="mistral")
    assert str(limit) not in str(cc.convert(body, source="ollama", target="openai_chat"))
