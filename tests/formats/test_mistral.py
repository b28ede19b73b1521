"""Mistral's chat completions, encoded and decoded."""

import base64
import json

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import OPENING_TEXT, Request, split_segments
from contextc.formats.mistral import MistralFormatter
from tests.formats.known import problems
from tests.formats.known.mistral import ID, OLDER, objection

MISTRAL = MistralFormatter()
PNG = b"\x89PNG"
PICTURE: JSONObject = {
    "type": "image_url",
    "image_url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}",
}
A, B = MISTRAL.name_codec.encode_id("a"), MISTRAL.name_codec.encode_id("b")
THOUGHT: JSONObject = {
    "type": "thinking",
    "thinking": [{"type": "text", "text": "2+2"}],
    "signature": "c2lnbmVk",
    "closed": True,
}


def call(id: str, name: str, arguments: JSON) -> JSONObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunk(delta: JSONObject, finish: str | None = None, **rest: JSON) -> JSONObject:
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **rest}


def test_a_history_with_everything_becomes_one_list() -> None:
    """Guarantees 10.3, 10.4: ids of nine letters, results with the names of their tools, media of a result after the
    results, and a system message that follows a result as tagged text."""
    history = [
        cc.user([cc.Text("What is this?"), cc.Media(mime_type="image/png", data=PNG)]),
        cc.system("It is late."),
        cc.assistant(
            "Let me look.",
            reasoning="Hm.",
            tool_calls=[cc.tool_call("a", "files.read", {"path": "x"}), cc.tool_call("b", "list", '{"dir": ')],
        ),
        cc.user("and hurry"),
        cc.tool_result("b", "list", "no such folder", is_error=True),
        cc.tool_result("a", "files.read", [cc.Text("a picture"), cc.Media(mime_type="image/png", data=PNG)]),
        cc.assistant("A ship."),
        cc.system("Memory is low."),
        cc.user(
            [
                cc.Text("thanks"),
                cc.messages.ProviderBlock(provider="anthropic", data={"type": "server_tool_use"}),
                cc.messages.UserNotice("!"),
            ]
        ),
    ]
    body = MISTRAL.format(history, "Be brief.")
    assert body == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, PICTURE]},
        {"role": "system", "content": "It is late."},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [call(A, "files_x2E_read", '{"path":"x"}'), call(B, "list", '{"dir": ')],
        },
        {"role": "tool", "tool_call_id": A, "name": "files_x2E_read", "content": "a picture"},
        {"role": "tool", "tool_call_id": B, "name": "list", "content": "no such folder"},
        {"role": "user", "content": [{"type": "text", "text": "[media returned by files_x2E_read]"}, PICTURE]},
        {"role": "user", "content": "and hurry"},
        {"role": "assistant", "content": "A ship."},
        {"role": "user", "content": "<system-reminder>\nMemory is low.\n</system-reminder>"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "thanks"},
                {"type": "text", "text": "[anthropic server_tool_use; not shown]"},
            ],
        },
    ]
    assert problems("mistral", body) == []


@pytest.mark.parametrize("version", OLDER)
def test_older_models_take_it_too_where_nothing_new_is_in_it(version: str) -> None:
    """The first models with tools required either text or calls; those before v11 have no reasoning."""
    asked = cc.assistant(tool_calls=[cc.tool_call("a", "look", "{}"), cc.tool_call("b", "look", "{}")])
    plain = [cc.user("hi"), asked, cc.tool_result("b", "look", "1"), cc.tool_result("a", "look", "2"), cc.user("so?")]
    assert objection({"messages": MISTRAL.format(plain, "Be brief.")}, version) == ""
    spoken = [cc.user("hi"), cc.assistant("Hm.", tool_calls=asked.tool_calls)]
    assert bool(objection({"messages": MISTRAL.format(spoken)}, version)) is (version == "v3")


def test_an_id_of_its_own_stays_and_any_other_is_always_the_same_nine_letters() -> None:
    """A call and its result agree wherever they are written, and what Mistral wrote is never touched."""
    assert MISTRAL.name_codec.encode_id(ID) == ID
    foreign = ["toolu_01A", "call_PTLP8xhu3uwZk4l3nlnrrJha", "", "ü" * 30, "a1b2c3d4", "a1b2c3d4e\n", "a1b2c3d4_"]
    spelled = [MISTRAL.name_codec.encode_id(each) for each in foreign]
    assert len(set(spelled)) == len(foreign)
    assert all(len(each) == 9 and each.isascii() and each.isalnum() for each in spelled)
    assert spelled == [MISTRAL.name_codec.encode_id(each) for each in spelled]
    assert MISTRAL.name_codec.encode_id("toolu_01A") == "XagOdEPT3"  # as it was in every version


def test_a_conversation_that_ends_with_the_assistant_is_gone_on_with() -> None:
    """`prefix` on the last message alone, also where the history grows afterwards."""
    history = [cc.user("Count."), cc.assistant("One, ")]
    first = MISTRAL.format(history)
    assert first[-1] == {"role": "assistant", "content": "One, ", "prefix": True}
    later = [MISTRAL.encode(segment) for segment in split_segments([cc.user("go on")])]
    assert MISTRAL.join(later, first) == [*first[:-1], {"role": "assistant", "content": "One, "}, *later[0].messages]
    assert MISTRAL.decode_request(first).messages == tuple(history)


def test_a_system_message_at_the_seam_is_tagged_after_a_reply() -> None:
    """Guarantees 9.2, 10.3: an empty reply leaves nothing between a result and what the system says next."""
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[cc.tool_call(ID, "look", "{}")]),
        cc.tool_result(ID, "look", "1"),
        cc.assistant(""),
        cc.system("Be quick."),
    ]
    wire = MISTRAL.format(history)
    assert wire[-1] == {"role": "user", "content": "<system-reminder>\nBe quick.\n</system-reminder>"}
    assert problems("mistral", wire) == []


def test_a_conversation_does_not_begin_with_the_assistant() -> None:
    """Guarantee 7.2: a placeholder message precedes a reply, is marked as such, and is not decoded as a message; a
    system message may begin.
    """
    reply = cc.assistant("Hello!")
    written = MISTRAL.encode_with_notes(Request(messages=(reply, cc.user("hi"))))
    assert written.body["messages"][0] == {"role": "user", "content": OPENING_TEXT}
    assert [note.done for note in written.notes] == ["made up"]
    assert MISTRAL.decode_request(written.body).messages == (reply, cc.user("hi"))
    leading = MISTRAL.encode_with_notes(Request(messages=(cc.system("Be brief."), reply, cc.user("hi"))))
    assert ([each["role"] for each in leading.body["messages"]], leading.notes) == (["system", "assistant", "user"], ())
    assert MISTRAL.encode_request(MISTRAL.decode_request(leading.body)) == leading.body


def test_reasoning_goes_back_to_mistral_alone_and_as_it_came() -> None:
    """Guarantee 2.4: signature, `closed` and references too, before the text; a policy removes all of it."""
    odd: JSONObject = {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "reference"}]}
    odd["thinking"][1]["reference_ids"] = [1]
    content = [THOUGHT, odd, {"type": "text", "text": "4"}]
    reply = MISTRAL.decode_reply({"model": "m", "choices": [{"message": {"content": content}}]})
    assert reply.parts[0] == cc.Reasoning(
        text="2+2", signature="c2lnbmVk", provider="mistral", model="m", extra={"mistral": {"closed": True}}
    )
    history = [cc.user("2+2?"), reply, cc.user("Sure?")]
    assert MISTRAL.format(history)[1] == {"role": "assistant", "content": content}
    for other in (MistralFormatter(provider="elsewhere"), MistralFormatter(reasoning="drop")):
        assert other.format(history)[1] == {"role": "assistant", "content": "4"}
    assert MistralFormatter(reasoning="inline").format(history)[1]["content"] == "2+2a4"
    assert "2+2a" not in json.dumps(cc.AnthropicFormatter().format(history))


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            cc.Media(mime_type="image/jpeg", url="https://example.com/a.jpg"),
            {"type": "image_url", "image_url": "https://example.com/a.jpg"},
        ),
        (
            cc.Media(mime_type="audio/wav", data=b"RIFF"),
            {"type": "input_audio", "input_audio": "data:audio/wav;base64,UklGRg=="},
        ),
        (
            cc.Media(mime_type="application/pdf", data=b"%PDF", name="a.pdf"),
            {
                "type": "document_url",
                "document_url": "data:application/pdf;base64,JVBERg==",
                "document_name": "a.pdf",
            },
        ),
        (
            cc.Media(mime_type="application/octet-stream", file_id="f-1", provider="mistral"),
            {"type": "file", "file_id": "f-1"},
        ),
        (
            cc.Media(mime_type="image/tiff", data=b"II*", name="a.tiff"),
            {"type": "text", "text": "[image 'a.tiff': image/tiff; not shown]"},
        ),
        (
            cc.Media(mime_type="application/pdf", file_id="f-1", provider="openai"),
            {"type": "text", "text": "[document: application/pdf; not shown]"},
        ),
    ],
)
def test_media_as_mistral_takes_it(part: cc.Media, block: JSONObject) -> None:
    """Guarantee 2.6: what it does not take is described."""
    wire = MISTRAL.format([cc.user([cc.Text("Look:"), part])])
    assert wire == [{"role": "user", "content": [{"type": "text", "text": "Look:"}, block]}]
    assert problems("mistral", wire) == []
    if block["type"] != "text":
        assert MISTRAL.decode_request(wire).messages == (cc.user([cc.Text("Look:"), part]),)


WIRE: list[JSONObject] = [
    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a/b", "detail": "low"}}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": "UklGRg=="}, {"type": "text", "text": "?"}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": "https://a/b.mp3"}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": "AAAA"}]},
    {"role": "user", "content": [{"type": "document_url", "document_url": "https://a/b.txt", "document_name": "b"}]},
    {"role": "user", "content": [{"type": "resource_link", "uri": "u", "metadata": {"a": 1}}]},
    {"role": "user", "content": ""},
    {"role": "system", "content": [{"type": "text", "text": "Think so:"}, {"type": "thinking", "thinking": []}]},
    {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1, "b"]}]},
    {"role": "assistant", "content": "", "tool_calls": [call(ID, "look", {"at": 1})]},
    {"role": "tool", "tool_call_id": ID, "content": [{"type": "text", "text": "1"}, PICTURE]},
    {"role": "assistant", "content": [THOUGHT], "tool_calls": [call(ID, "look", "{}")]},
    {"role": "tool", "tool_call_id": ID, "name": "look", "content": ""},
]


def test_mistral_specific_content_survives_a_round_trip() -> None:
    """Guarantee 10.5: objects as arguments, pictures in a result, results without a name, an empty text, sounds and
    references of any kind."""
    assert cc.lint(WIRE, format="mistral") == []
    assert MISTRAL.format(MISTRAL.decode_request(WIRE).messages) == WIRE


def test_what_mistral_would_refuse_is_not_carried_along() -> None:
    """Fields of others on messages, chunks and calls, and the number that a call had in its reply."""
    asked = {**call(ID, "look", "{}"), "index": 0}
    wire: list[JSONObject] = [
        {"role": "user", "name": "ada", "content": [{"type": "text", "text": "hi", "cache_control": {}}]},
        {"role": "assistant", "content": None, "tool_calls": [asked], "refusal": None, "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": ID, "name": "look", "content": "1", "is_error": False},
    ]
    assert MISTRAL.format(MISTRAL.decode_request(wire).messages) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call(ID, "look", "{}")]},
        {"role": "tool", "tool_call_id": ID, "name": "look", "content": "1"},
    ]


def test_a_stream_of_chunks_and_text_is_one_message() -> None:
    """Guarantee 10.1: reasoning arrives in lists and is joined, the last one signed; the usage comes with the last
    chunk, and a call has its number or the SDK's placeholder for no id.
    """
    pieces = [[{"type": "text", "text": text}] for text in ("2", "+", "2")]
    thoughts: list[JSONObject] = [{"type": "thinking", "thinking": piece} for piece in pieces]
    thoughts[-1] |= {"signature": "c2lnbmVk", "closed": True}
    first, rest = call(ID, "look", '{"at"'), {"id": "null", "function": {"name": "", "arguments": ":1}"}, "index": 0}
    events = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": [thought]}) for thought in thoughts),
        chunk({"content": "Hel"}),
        chunk({"content": [{"type": "text", "text": "lo"}]}),
        chunk({"content": "", "tool_calls": [{**first, "index": 0}]}),
        chunk({"content": "", "tool_calls": [rest]}),
        chunk(
            {"content": ""}, "tool_calls", usage={"prompt_tokens": 7, "completion_tokens": 3, "num_cached_tokens": 4}
        ),
    ]
    message = MISTRAL.decode_stream(events)
    assert message.parts == (
        cc.Reasoning(
            text="2+2", signature="c2lnbmVk", provider="mistral", model="m", extra={"mistral": {"closed": True}}
        ),
        cc.Text("Hello"),
        cc.tool_call(ID, "look", '{"at":1}'),
    )
    assert (message.finish, message.usage) == ("tool_calls", cc.Usage(input=7, output=3, cache_read=4))
    assert MISTRAL.decode_stream([{"data": event} for event in events]) == message  # as the SDK gives them
    reader = MISTRAL.create_reader()
    deltas = [delta for event in events for delta in reader.read(event)]
    assert "".join(delta.text for delta in deltas if isinstance(delta, cc.Reasoning)) == "2+2"
    assert "".join(delta.text for delta in deltas if isinstance(delta, cc.Text)) == "Hello"
    assert "".join(delta.raw or "" for delta in deltas if isinstance(delta, cc.ToolCall)) == '{"at":1}'
    assert (reader.message(), reader.finished) == (message, True)


@pytest.mark.parametrize(
    ("said", "finish"),
    [("stop", "stop"), ("length", "length"), ("model_length", "length"), ("tool_calls", "tool_calls")],
)
def test_why_a_reply_ended(said: str, finish: str) -> None:
    """A window that is full is a length too, for whoever goes on from there."""
    reply: JSONObject = {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": said}]}
    assert MISTRAL.decode_reply(reply).finish == finish
    assert MISTRAL.decode_stream([chunk({"content": "a"}), chunk({"content": ""}, said)]).finish == finish


def test_a_reply_that_ends_with_an_error_is_one() -> None:
    """Guarantee 11.10: the stored reply must show it."""
    reply: JSONObject = {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "error"}]}
    message = MISTRAL.decode_reply(reply)
    assert (message.text, message.status, message.finish) == ("a", "error", "error")
    assert "does not say which" in (message.error or "")


def test_settings_have_mistrals_names() -> None:
    """Guarantee 10.1: `any` is read as `required`, its current name; unsupported settings are reported."""
    chat: JSONObject = {
        "model": "m",
        "max_completion_tokens": 9,
        "seed": 7,
        "stop": ["a", "b", "c", "d"],
        "reasoning_effort": "high",
        "tool_choice": "required",
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
        "prompt_cache_key": "k",
        "user": "ada",
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "messages": [{"role": "user", "content": "hi"}],
    }
    there = cc.convert(chat, source="openai_chat", target="mistral")
    assert there == {
        "model": "m",
        "max_tokens": 9,
        "random_seed": 7,
        **{name: chat[name] for name in ("stop", "reasoning_effort", "tool_choice", "response_format")},
        **{name: chat[name] for name in ("prompt_cache_key", "tools", "messages")},
    }
    assert problems("mistral", there) == []
    assert {"left out: the setting `user`, which mistral does not take"} <= set(there.warnings)
    back = cc.convert({**there, "tool_choice": "any"}, source="mistral", target="openai_chat")
    assert back == {name: value for name, value in chat.items() if name not in ("user", "stream_options")}


HI: JSONObject = {"role": "user", "content": "hi"}


def thinks(text: str, **marks: JSON) -> JSONObject:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}] if text else [], **marks}


@pytest.mark.parametrize(
    ("whole", "streamed"),
    [
        pytest.param(
            [thinks("one", signature="s1", closed=True), thinks("two", signature="s2", closed=True)],
            [thinks("o"), thinks("ne", signature="s1", closed=True), thinks("two", signature="s2", closed=True)],
            id="two that are signed and closed",
        ),
        pytest.param(
            [thinks("one", closed=True), thinks("two")],
            [thinks("one"), thinks("", closed=True), thinks("tw"), thinks("o")],
            id="the first is closed",
        ),
        pytest.param(
            [thinks("one", signature="s1", closed=True), thinks("two", signature="s2")],
            [
                thinks("one"),
                thinks("", signature="s1"),
                thinks("", closed=True),
                thinks("two"),
                thinks("", signature="s2"),
            ],
            id="marks that come alone",
        ),
        pytest.param(
            [thinks("", signature="s1"), thinks("", signature="s2")],
            [thinks("", signature="s1"), thinks("", signature="s2")],
            id="two without words",
        ),
    ],
)
def test_thoughts_that_are_two_in_a_reply_are_two_in_its_stream(
    whole: list[JSONObject], streamed: list[JSONObject]
) -> None:
    """Guarantee 2.4: a signature is of its own thought, and goes back with it."""
    text: JSONObject = {"type": "text", "text": "4"}
    reply = MISTRAL.decode_reply(
        {"model": "m", "choices": [{"message": {"content": [*whole, text]}, "finish_reason": "stop"}]}
    )
    events = [*(chunk({"content": [each]}) for each in streamed), chunk({"content": "4"}, "stop")]
    assert MISTRAL.decode_stream(events).parts == reply.parts
    assert MISTRAL.format([cc.user("2+2?"), reply, cc.user("Sure?")])[1]["content"] == [*whole, text]
    assert MISTRAL.format([cc.user("2+2?"), MISTRAL.decode_stream(events), cc.user("Sure?")])[1]["content"] == [
        *whole,
        text,
    ]


def test_a_thought_that_is_one_text_is_read_and_comes_back_so() -> None:
    """Guarantee 10.5: some write it so. A reply's goes back as Mistral takes it, streamed or whole."""
    plain: JSONObject = {"type": "thinking", "thinking": "Hm."}
    wire: list[JSONObject] = [HI, {"role": "assistant", "content": [plain, {"type": "text", "text": "4"}]}, HI]
    messages = MISTRAL.decode_request(wire).messages
    assert [part.text for part in messages[1].parts if isinstance(part, cc.Reasoning)] == ["Hm."]
    assert MISTRAL.format(messages) == wire
    reply = MISTRAL.decode_reply(
        {"model": "m", "choices": [{"message": {"content": [plain]}, "finish_reason": "stop"}]}
    )
    events = [chunk({"content": [plain]}), chunk({"content": ""}, "stop")]
    reader = MISTRAL.create_reader()
    assert [delta for event in events for delta in reader.read(event)] == [
        cc.Reasoning(text="Hm.", provider="mistral", model="m")
    ]
    assert reader.message().parts == reply.parts
    wire = MISTRAL.format([cc.user("hi"), reply, cc.user("hi")])
    assert wire[1]["content"] == [thinks("Hm.")]
    assert problems("mistral", wire) == []
