"""Ollama's `/api/chat`, encoded and decoded."""

import base64
import json
from typing import Any

import httpx
import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import Request
from contextc.formats.request_settings import OutputFormat, RequestSettings
from contextc.store.turn_records import join_deltas
from tests.formats.known import problems

OLLAMA = cc.formats.OllamaFormatter()
PNG, JPEG = b"\x89PNG", b"\xff\xd8\xff\xe0"
PICTURE, PHOTO = (base64.b64encode(each).decode() for each in (PNG, JPEG))
LOOK = cc.Tool(name="look", description="Look at a thing.", parameters={"type": "object", "properties": {}})


def call(name: str, arguments: JSONObject, id: str = "") -> JSONObject:
    named: JSONObject = {"id": id} if id else {}
    return {**named, "function": {"name": name, "arguments": arguments}}


def asks(*calls: JSONObject) -> JSONObject:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def result(name: str, content: str, id: str = "") -> JSONObject:
    named: JSONObject = {"tool_call_id": id} if id else {}
    return {"role": "tool", "content": content, "tool_name": name, **named}


def again(messages: list[JSONObject]) -> list[JSONObject]:
    """Messages that were read and written."""
    return OLLAMA.encode_request(OLLAMA.decode_request(messages))["messages"]


def test_a_history_with_everything_becomes_one_list() -> None:
    """Guarantee 10.3: parallel calls in one message, a tool message each; pictures beside the text; the system
    anywhere.
    """
    history = [
        cc.user([cc.Text("What is this?"), cc.Media(mime_type="image/png", data=PNG), cc.Text("And why?")]),
        cc.assistant(
            ["Let me ", "look."],
            reasoning=cc.Reasoning(text="Hm.", provider="ollama"),
            tool_calls=[cc.tool_call("a", "read", {"path": "x"}), cc.tool_call("b", "list", '{"dir": ')],
        ),
        cc.user("and hurry"),
        cc.tool_result("b", "list", "no such folder", is_error=True),
        cc.tool_result("a", "read", [cc.Text("a picture"), cc.Media(mime_type="image/jpeg", data=JPEG)]),
        cc.system("Memory is low."),
        cc.user(
            [
                cc.Text("thanks"),
                cc.messages.ProviderBlock(provider="anthropic", data={"type": "server_tool_use"}),
                cc.messages.UserNotice("!"),
            ]
        ),
    ]
    wire = OLLAMA.format(history, "Be brief.")
    assert wire == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is this?\n\nAnd why?", "images": [PICTURE]},
        {
            "role": "assistant",
            "content": "Let me look.",
            "thinking": "Hm.",
            "tool_calls": [
                call("read", {"path": "x"}, "a"),
                call("list", {"malformed_arguments": '{"dir": '}, "b"),
            ],
        },
        result("read", "a picture", "a"),
        result("list", "no such folder", "b"),
        {"role": "user", "content": "[media returned by read]", "images": [PHOTO]},
        {"role": "user", "content": "and hurry"},
        {"role": "system", "content": "Memory is low."},
        {"role": "user", "content": "thanks\n\n[anthropic server_tool_use; not shown]"},
    ]
    assert again(wire) == wire
    assert problems("ollama", wire) == []
    notes = OLLAMA.encode_with_notes(Request(messages=tuple(history))).notes
    assert [str(note) for note in notes] == [
        "changed: the malformed arguments of list, into an object that holds their text",
        "moved: media of read, into a user message after the results",
        "left out: that the result of list is an error",
        "described: a block of anthropic",
    ]


@pytest.mark.parametrize(
    ("media", "said"),
    [
        (
            cc.Media(mime_type="image/png", url="https://e.com/a.png"),
            "[image: image/png, https://e.com/a.png; not shown]",
        ),
        (cc.Media(mime_type="image/tiff", data=b"II*"), "[image: image/tiff; not shown]"),
        (cc.Media(mime_type="audio/wav", data=b"RIFF"), "[audio: audio/wav; not shown]"),
        (
            cc.Media(mime_type="application/pdf", data=b"%PDF", name="a.pdf"),
            "[document 'a.pdf': application/pdf; not shown]",
        ),
        (cc.Media(mime_type="image/png", data=b""), "[image: image/png; not shown]"),
    ],
    ids=["an address", "a picture it cannot read", "a sound", "a document", "nothing"],
)
def test_what_it_cannot_be_shown_is_described(media: cc.Media, said: str) -> None:
    """Guarantee 2.6: a server takes the bytes of pictures, and of few kinds."""
    assert OLLAMA.format([cc.user(["Look:", media])]) == [{"role": "user", "content": f"Look:\n\n{said}"}]


def test_pictures_of_others_than_the_user_are_described() -> None:
    picture = cc.Media(mime_type="image/png", data=PNG)
    wire = OLLAMA.format([cc.system([picture]), cc.user("hi"), cc.assistant([picture])])
    assert [message["content"] for message in wire] == [
        "[image: image/png; not shown]",
        "hi",
        "[image: image/png; not shown]",
    ]


def test_thinking_is_sent_back_to_the_same_model() -> None:
    """Guarantee 2.4."""
    history = [cc.user("hi"), cc.assistant("Hello", reasoning=cc.Reasoning(text="Hm.", provider="ollama"))]
    assert OLLAMA.format(history)[1] == {"role": "assistant", "content": "Hello", "thinking": "Hm."}
    elsewhere = cc.formats.OllamaFormatter(provider="mine")
    assert elsewhere.format(history)[1] == {"role": "assistant", "content": "Hello"}
    assert cc.formats.OllamaFormatter(reasoning="drop").format(history)[1] == {"role": "assistant", "content": "Hello"}
    assert cc.formats.OllamaFormatter(reasoning="inline").format(history)[1]["content"] == "Hm.Hello"


def test_a_reply_of_thinking_alone_is_not_lost() -> None:
    """It was cut off before the first text; an empty message is left out."""
    thought: JSONObject = {"role": "assistant", "content": "", "thinking": "Hm."}
    assert again([thought]) == [thought]
    assert OLLAMA.format([cc.user("hi"), cc.Message(role="assistant")]) == [{"role": "user", "content": "hi"}]


UNNAMED = [
    pytest.param([asks(call("look", {}), call("find", {})), result("find", "2"), result("look", "1")], id="by name"),
    pytest.param([asks(call("look", {}), call("look", {})), result("look", "1"), result("look", "2")], id="by order"),
    pytest.param([asks(call("look", {}, "a")), result("look", "1")], id="only the call has an id"),
    pytest.param([asks(call("look", {})), result("look", "1", "a")], id="only the result has an id"),
    pytest.param([asks(call("look", {})), {"role": "tool", "content": "1"}], id="neither id nor name"),
    pytest.param(
        [asks(call("look", {}), call("look", {}, "call_0")), result("look", "1", "call_0"), result("look", "2")],
        id="one has the id that the other would get",
    ),
    pytest.param(
        [asks(call("look", {})), result("look", "1"), asks(call("look", {})), result("look", "2")], id="twice"
    ),
]


@pytest.mark.parametrize("messages", UNNAMED)
def test_calls_without_ids_find_their_results_and_stay_as_they_are(messages: list[JSONObject]) -> None:
    """Guarantees 5.1, 10.5: older servers give no ids, and Ollama's own client drops them."""
    hi: JSONObject = {"role": "user", "content": "hi"}
    assert cc.lint([hi, *messages], format="ollama") == []
    assert again([hi, *messages]) == [hi, *messages]
    decoded = OLLAMA.decode_request([hi, *messages]).messages
    calls = [each for message in decoded for each in message.tool_calls]
    results = [each for message in decoded for each in message.tool_results]
    assert sorted(each.id for each in calls) == sorted(each.call_id for each in results)
    assert len({each.id for each in calls}) == len(calls)
    assert {each.name for each in results} <= {"look", "find"}


def test_a_result_has_the_id_of_its_call_only_if_the_call_has_one() -> None:
    """A new result for a call that was read without an id."""
    request = OLLAMA.decode_request([{"role": "user", "content": "hi"}, asks(call("look", {}))])
    made = request.messages[1].tool_calls[0].id
    assert OLLAMA.format([*request.messages, cc.tool_result(made, "look", "1")])[1:] == [
        asks(call("look", {})),
        result("look", "1"),
    ]


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


def test_a_reply_is_read_with_its_figures_and_goes_back_as_it_came() -> None:
    """Guarantee 10.5: the index of a call too."""
    message = OLLAMA.decode_reply(REPLY)
    assert (message.text, message.finish, message.status) == ("Let me look.", "tool_calls", "sent")
    assert [part.text for part in message.parts if isinstance(part, cc.Reasoning)] == ["Hm."]
    assert message.usage == cc.Usage(input=26, output=298)
    assert OLLAMA.encode([message]).messages == (REPLY["message"],)


def test_calls_without_an_id_get_one_and_go_back_with_it() -> None:
    """Results have to be distinguished; the id is the same however the reply came."""
    said = {"role": "assistant", "content": "", "tool_calls": [call("look", {"n": 1}), call("look", {"n": 2})]}
    message = OLLAMA.decode_reply({"message": said, "done": True})
    assert [each.id for each in message.tool_calls] == ["call_0", "call_1"]
    parts = [{"message": {**said, "tool_calls": [each]}, "done": False} for each in said["tool_calls"]]
    streamed = OLLAMA.decode_stream([*parts, {"message": {"role": "assistant", "content": ""}, "done": True}])
    assert streamed.tool_calls == message.tool_calls
    wire = OLLAMA.format([message, cc.tool_result("call_1", "look", "2"), cc.tool_result("call_0", "look", "1")])
    assert wire == [
        asks(call("look", {"n": 1}, "call_0"), call("look", {"n": 2}, "call_1")),
        result("look", "1", "call_0"),
        result("look", "2", "call_1"),
    ]


@pytest.mark.parametrize(
    ("end", "finish"),
    [
        ({"done": True, "done_reason": "length"}, "length"),
        ({"done": True, "done_reason": "load"}, "load"),
        ({"done": True}, "stop"),
        ({"done": False}, None),
        ({}, "stop"),
    ],
    ids=str,
)
def test_why_a_reply_ended(end: JSONObject, finish: str | None) -> None:
    assert OLLAMA.decode_reply({"message": {"role": "assistant", "content": "x"}, **end}).finish == finish


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


def test_a_truncated_stream_is_not_reported_as_done() -> None:
    """Guarantee 11.10."""
    assert OLLAMA.decode_stream([line("Hel")]).finish is None
    broken = OLLAMA.decode_stream([line("Hel"), {"error": "runner process has terminated"}])
    assert (broken.text, broken.finish, broken.error) == ("Hel", "error", "runner process has terminated")


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


def test_a_request_states_its_window_if_known() -> None:
    """And never gets cut silently. What the caller says wins."""
    request = Request(messages=(cc.user("hi"),), settings={"options": {"temperature": 0}})
    assert "truncate" not in OLLAMA.encode_request(request)
    body = cc.formats.OllamaFormatter(num_ctx=8_192).encode_request(request)
    assert (body["options"], body["truncate"]) == ({"num_ctx": 8_192, "temperature": 0}, False)
    mine: JSONObject = {"options": {"num_ctx": 4_096}, "truncate": True}
    own = cc.formats.OllamaFormatter(num_ctx=8_192).encode_request(Request(messages=(cc.user("hi"),), settings=mine))
    assert (own["options"], own["truncate"]) == ({"num_ctx": 4_096}, True)


def test_unknown_fields_survive_a_round_trip() -> None:
    """Guarantee 10.5: fields of tomorrow, a role in capitals, lists that are empty."""
    body: JSONObject = {
        "model": "m",
        "keep_alive": -1,
        "messages": [
            {"role": "User", "content": "hi", "colour": "red", "images": []},
            {"role": "assistant", "tool_calls": [{"type": "function", **call("look", {}, "a"), "extra": 1}]},
            {**result("look", "1", "a"), "is_error": False},
            {"role": "assistant", "content": "", "tool_calls": []},
        ],
        "tools": [
            {"type": "function", "function": {"name": "look", "parameters": {}, "strict": True}, "cache": 1},
            {"function": {"name": "find"}},
        ],
    }
    before: JSON = json.dumps(body)
    assert OLLAMA.encode_request(OLLAMA.decode_request(body)) == body
    assert json.dumps(body) == before


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


def test_paragraphs_of_a_model_stay_apart_and_a_sentence_in_pieces_flows_on() -> None:
    """Guarantee 10.3: no text is changed, and two paragraphs do not run into each other."""
    said = cc.assistant([cc.Text("First paragraph."), cc.Text("Second"), cc.Text(", which "), cc.Text("goes on.")])
    wire = cc.formats.OllamaFormatter().format([cc.user("?"), said])
    assert wire[1]["content"] == "First paragraph.\n\nSecond, which goes on."
