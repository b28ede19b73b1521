"""The Vercel AI SDK's older format: one call per message, role function, no ids; nothing is lost."""

import base64

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import ConversionNote, Request, split_segments
from contextc.formats.vercel_legacy import VercelLegacyFormatter
from contextc.messages import SYNTHETIC_RESULTS, pair_tool_calls, validate_message
from contextc.tools.definitions import Tool

LEGACY = VercelLegacyFormatter()
PNG = b"\x89PNG"
PICTURE: JSONObject = {"contentType": "image/png", "url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}

HISTORY = [
    cc.user([cc.Text("What is this?"), cc.Media(mime_type="image/png", data=PNG)]),
    cc.assistant(
        "Let me look.",
        reasoning=cc.Reasoning(text="Hm.", signature="sig", provider="anthropic"),
        tool_calls=[cc.tool_call("a", "read", '{"path":  "x"}'), cc.tool_call("b", "list", '{"dir": ')],
    ),
    cc.user("and hurry"),
    cc.tool_result("b", "list", "no such folder", is_error=True),
    cc.tool_result("a", "read", [cc.Text("a picture"), cc.Media(mime_type="image/png", data=PNG)]),
    cc.system("low memory"),
    cc.assistant(tool_calls=[cc.tool_call("c", "now", {})]),
    cc.tool_result("c", "now", "noon"),
    cc.assistant("A file."),
    cc.user(
        [
            cc.Text("thanks"),
            cc.messages.ProviderBlock(provider="openai", data={"type": "program"}),
            cc.messages.UserNotice("for people"),
        ]
    ),
]


def test_a_history_with_everything_becomes_one_list() -> None:
    """Guarantee 10.3: parallel calls survive, each with its result."""
    assert LEGACY.format(HISTORY, "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is this?", "experimental_attachments": [PICTURE]},
        {
            "role": "assistant",
            "content": "Let me look.",
            "function_call": {"name": "read", "arguments": '{"path":  "x"}'},
            "tool_call_id": "a",
            "id": "a",
        },
        {"role": "function", "name": "read", "content": "a picture", "tool_call_id": "a"},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "list", "arguments": '{"dir": '},
            "tool_call_id": "b",
            "id": "a",
        },
        {"role": "function", "name": "list", "content": "no such folder", "tool_call_id": "b"},
        {"role": "user", "content": "[media returned by tools]", "experimental_attachments": [PICTURE]},
        {"role": "user", "content": "and hurry"},
        {"role": "system", "content": "low memory"},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "now", "arguments": "{}"},
            "tool_call_id": "c",
        },
        {"role": "function", "name": "now", "content": "noon", "tool_call_id": "c"},
        {"role": "assistant", "content": "A file."},
        {"role": "user", "content": "thanks\n\n[openai program; not shown]"},
    ]


def test_segment_by_segment_is_the_same_as_at_once() -> None:
    """Guarantee 10.1: what was sent is sealed, so a longer history must begin with the same messages."""
    sealed = [LEGACY.encode(segment) for segment in split_segments(pair_tool_calls(HISTORY).messages)]
    assert LEGACY.join(sealed) == LEGACY.format(HISTORY)
    assert [note for segment in sealed for note in segment.notes] == [
        ConversionNote("left out", "reasoning of another provider"),
        ConversionNote("moved", "media of read, into a user message after the results"),
        ConversionNote("left out", "that the result of list is an error"),
        ConversionNote("described", "a block of openai"),
    ]


def test_parallel_calls_survive_the_way_there_and_back() -> None:
    """Guarantee 10.3: texts, order, calls, arguments, results and which calls belong together."""
    history = [
        cc.user("go"),
        cc.assistant("Two things.", tool_calls=[cc.tool_call(f"x{n}", "f", f'{{"n": {n}}}') for n in range(3)]),
        cc.Message(
            role="tool", parts=tuple(cc.ToolResult(call_id=f"x{n}", name="f", content=str(n)) for n in range(3))
        ),
        cc.assistant(tool_calls=[cc.tool_call("x3", "f", '{"n": 3}')]),
        cc.tool_result("x3", "f", "3"),
        cc.assistant("Done."),
    ]
    body = LEGACY.encode_request(Request(messages=tuple(history), system=cc.system("Be brief.")))
    request = LEGACY.decode_request(body)
    assert request.system == cc.system("Be brief.")
    assert list(request.messages) == history
    assert LEGACY.encode_request(request) == body


def test_calls_without_ids_get_them_by_order() -> None:
    """The shape has no ids; a result belongs to the oldest call of its name that waits."""
    wire: list[JSONObject] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Hm.", "function_call": {"name": "f", "arguments": '{"n":  1}'}},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "assistant", "content": "", "function_call": {"name": "g", "arguments": "{broken"}},
        {"role": "function", "name": "g", "content": ""},
        {"role": "assistant", "content": None, "function_call": {"name": "h", "arguments": ""}},
    ]
    messages = LEGACY.decode_request({"messages": wire}).messages
    assert [(call.id, call.name, call.raw, call.malformed) for each in messages for call in each.tool_calls] == [
        ("call_1", "f", '{"n":  1}', False),
        ("call_2", "g", "{broken", True),
        ("call_3", "h", "", False),
    ]
    assert [(each.call_id, each.text) for message in messages for each in message.tool_results] == [
        ("call_1", "1"),
        ("call_2", ""),
    ]
    assert LEGACY.format(messages) == [
        *wire,
        {"role": "function", "name": "h", "content": SYNTHETIC_RESULTS["interrupted"]},
    ]


def test_an_id_made_up_is_never_one_that_was_given() -> None:
    """Guarantee 5.1: matching is by id, so two calls that both wait must not share one."""
    wire: list[JSONObject] = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "f", "arguments": "{}"},
            "tool_call_id": "call_1",
        },
        {"role": "function", "name": "f", "content": "2", "tool_call_id": "call_1"},
    ]
    messages = LEGACY.decode_request({"messages": wire}).messages
    assert [call.id for each in messages for call in each.tool_calls] == ["call_2", "call_1"]
    assert LEGACY.format(messages) == wire


def test_what_we_have_no_place_for_comes_back() -> None:
    """Guarantees 10.5, 2.5: ids, dates, role data, and a function_call that was still text."""
    wire: list[JSONObject] = [
        {"id": "m1", "createdAt": "2024-01-01", "role": "user", "content": "hi", "experimental_attachments": [PICTURE]},
        {"id": "m2", "role": "data", "content": "", "data": {"progress": 1}},
        {"id": "m3", "role": "assistant", "content": "yes", "reasoning": "Hm.", "annotations": [1]},
    ]
    body: JSONObject = {"messages": wire, "functions": [{"name": "f", "parameters": {}, "strict": True}], "model": "x"}
    request = LEGACY.decode_request(body)
    assert [message.uid for message in request.messages] == ["m1", "", "m3"]
    assert LEGACY.encode_request(request) == body
    assert request.settings == {"model": "x"}
    for message in request.messages:
        validate_message(message)


@pytest.mark.parametrize(
    ("written", "name", "raw", "malformed"),
    [
        ('{"function_call": {"name": "f", "arguments": "{}"}}', "f", "{}", False),
        ('{"function_call": {"na', "unknown", '{"function_call": {"na', True),
    ],
    ids=["whole", "cut off"],
)
def test_a_function_call_that_is_text_is_read_or_kept_raw(written: str, name: str, raw: str, malformed: bool) -> None:
    """Guarantee 2.3: a stream that broke off leaves the text of a call, and nothing crashes."""
    message = LEGACY.decode_reply({"role": "assistant", "content": "", "function_call": written})
    assert [(call.name, call.raw, call.malformed) for call in message.tool_calls] == [(name, raw, malformed)]


def test_tool_calls_of_old_messages_are_read() -> None:
    """Between function_call and toolInvocations there was OpenAI's own shape."""
    wire: list[JSONObject] = [
        {
            "role": "assistant",
            "content": "Hm.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": '{"n":1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "name": "f", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": "1"},
    ]
    assert LEGACY.decode_request({"messages": wire}).messages == (
        cc.assistant("Hm.", tool_calls=[cc.tool_call("a", "f", "{}"), cc.tool_call("b", "f", '{"n":1}')]),
        cc.Message(
            role="tool",
            parts=(
                cc.ToolResult(call_id="b", name="f", content="2"),
                cc.ToolResult(call_id="a", name="f", content="1"),
            ),
        ),
    )


def test_tool_invocations_of_old_messages_are_read() -> None:
    """Call and result in one, several steps in a message, the text with the last."""
    invocations: list[JSONObject] = [
        {"state": "result", "step": 0, "toolCallId": "a", "toolName": "f", "args": {"n": 1}, "result": {"ok": True}},
        {"state": "call", "step": 1, "toolCallId": "b", "toolName": "f", "args": {"n": 2}},
        {"state": "partial-call", "step": 1, "toolCallId": "c", "toolName": "f", "args": {"n": 3}},
    ]
    wire: JSONObject = {"id": "m", "role": "assistant", "content": "Done.", "toolInvocations": invocations}
    messages = LEGACY.decode_request({"messages": [wire]}).messages
    assert [(message.role, message.text, message.parts[-1]) for message in messages] == [
        ("assistant", "", cc.tool_call("a", "f", {"n": 1})),
        ("tool", "", cc.ToolResult(call_id="a", name="f", content='{"ok":true}')),
        ("assistant", "Done.", cc.ToolCall(id="c", name="f", arguments={}, raw='{"n":3}', malformed=True)),
    ]
    in_parts = {**wire, "toolInvocations": None}
    in_parts["parts"] = [{"type": "tool-invocation", "toolInvocation": each} for each in invocations]
    assert LEGACY.decode_request({"messages": [in_parts]}).messages == messages


def test_whole_messages_of_a_reply_are_gathered() -> None:
    """Guarantee 10.1: a reply with several calls is several messages here, and one of ours."""
    wire = LEGACY.format([cc.assistant("Go.", tool_calls=[cc.tool_call("a", "f", "{}"), cc.tool_call("b", "g", "{}")])])
    said = cc.assistant("Go.", tool_calls=[cc.tool_call("a", "f", "{}"), cc.tool_call("b", "g", "{}")])
    assert LEGACY.decode_stream(wire) == said
    assert LEGACY.decode_reply({"content": "hi"}) == cc.assistant("hi")


def test_tools_are_functions_and_the_system_prompt_is_a_message() -> None:
    """Guarantee 10.1: the shape has no place of its own for the system prompt."""
    tool = Tool(name="f", description="Does.", parameters={"type": "object"})
    assert LEGACY.encode_request(Request(messages=(cc.user("hi"),), tools=(tool,))) == {
        "messages": [{"role": "user", "content": "hi"}],
        "functions": [{"name": "f", "description": "Does.", "parameters": {"type": "object"}}],
    }
    assert LEGACY.get_system_prompt("Be brief.") is None


def test_content_of_parts_only_is_not_lost() -> None:
    """Guarantee 10.3: version 4 reads `parts` where there are any, whatever `content` holds."""
    wire: JSONObject = {"role": "assistant", "content": "", "parts": [{"type": "text", "text": "HELLO"}]}
    request = LEGACY.decode_request({"messages": [wire]})
    assert request.messages == (cc.assistant("HELLO"),)
    assert LEGACY.encode_request(request)["messages"] == [{"role": "assistant", "content": "HELLO"}]


def test_parts_keep_their_order_and_their_steps() -> None:
    """Guarantee 10.3: what was said before a call stays before it; a text after calls begins a step."""
    asked = {"state": "result", "toolCallId": "a", "toolName": "f", "args": {"n": 1}, "result": "1"}
    wire: JSONObject = {
        "id": "m",
        "role": "assistant",
        "content": "Let me look.Done.",
        "reasoning": "Hm.",
        "annotations": [1],
        "toolInvocations": [asked, {**asked, "toolCallId": "b", "step": 1}],
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "reasoning": "Hm.", "details": [{"type": "text", "text": "Hm."}]},
            {"type": "text", "text": "Let me look."},
            {"type": "tool-invocation", "toolInvocation": asked},
            {"type": "text", "text": "Done."},
            {"type": "file", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()},
            {"type": "source", "source": {"id": "s", "url": "https://example.com"}},
        ],
    }
    request = LEGACY.decode_request({"messages": [wire]})
    assert request.messages == (
        cc.Message(
            role="assistant",
            parts=(
                cc.Reasoning(text="Hm.", provider="vercel_legacy"),
                cc.Text("Let me look."),
                cc.tool_call("a", "f", {"n": 1}),
            ),
            uid="m",
            extra={"vercel_legacy": {"id": "m", "annotations": [1]}},
        ),
        cc.tool_result("a", "f", "1"),
        cc.assistant(
            [
                cc.Text("Done."),
                cc.Media(mime_type="image/png", data=PNG),
                cc.messages.ProviderBlock(provider="vercel_legacy", data=wire["parts"][6]),
            ],
            tool_calls=[cc.tool_call("b", "f", {"n": 1})],
        ),
        cc.tool_result("b", "f", "1"),
    )
    sent = LEGACY.encode_with_notes(request)
    assert [(each["role"], each["content"]) for each in sent.body["messages"]] == [
        ("assistant", "Let me look."),
        ("function", "1"),
        ("assistant", "Done.[image: image/png; not shown]"),
        ("function", "1"),
    ]
    assert ConversionNote("left out", "source, which only a user interface is shown") in sent.notes


def test_content_missing_from_parts_is_kept() -> None:
    """Guarantee 10.3: if only one of them has a text, it is neither lost nor duplicated."""
    for content, found in (("Hello.", "Hello."), ("Hello. Bye.", "Hello. Bye."), (" Bye.", "Hello. Bye.")):
        wire: JSONObject = {"role": "assistant", "content": content, "parts": [{"type": "text", "text": "Hello."}]}
        (message,) = LEGACY.format(LEGACY.decode_request({"messages": [wire]}).messages)
        assert message == {"role": "assistant", "content": found}


@pytest.mark.parametrize("given", [[1], True, 7, {"n": 1}, None, '{"n":  1}'])
def test_arguments_of_any_kind_are_read(given: object) -> None:
    """Guarantee 2.3: nothing crashes, and what is not an object is kept as the text of it."""
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": given}}
    wire: JSONObject = {"role": "assistant", "content": "", "tool_calls": [called]}
    (call,) = LEGACY.decode_request({"messages": [wire]}).messages[0].tool_calls
    assert call.malformed == (given in ([1], True, 7))
    assert call.raw == {"[1]": "[1]", "True": "true", "7": "7", "None": "", '{"n":  1}': given}.get(str(given))


@pytest.mark.parametrize("given", [[1], {"a": 1}, 7, None])
def test_an_id_that_is_not_a_text_is_ignored(given: object) -> None:
    """Guarantee 2.3: nothing crashes; a message that we keep whole comes back as it was."""
    wire: JSONObject = {"role": "data", "content": "", "tool_call_id": given, "data": 1}
    request = LEGACY.decode_request({"messages": [wire]})
    assert LEGACY.encode_request(request) == {"messages": [wire]}
    asked: JSONObject = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    answer: JSONObject = {"role": "function", "name": "f", "content": "1", "tool_call_id": given}
    messages = LEGACY.decode_request({"messages": [{**asked, "tool_call_id": given}, answer]}).messages
    assert [each.call_id for message in messages for each in message.tool_results] == ["call_1"]


def test_an_empty_id_is_an_id() -> None:
    """Guarantee 10.5: some models give none; what is written for it comes back the same."""
    history = [cc.assistant("Hm.", tool_calls=[cc.tool_call("", "f", {})]), cc.tool_result("", "f", "1")]
    body = LEGACY.encode_request(Request(messages=tuple(history)))
    assert LEGACY.encode_request(LEGACY.decode_request(body)) == body
