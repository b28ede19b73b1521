"""Unusual input of the AI SDK: steering, answers to approvals, and mixed kinds of messages."""

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.vercel import VercelFormatter
from contextc.linting import ConvertedMessages, convert, fix, lint
from contextc.messages import SYNTHETIC_RESULTS, validate_message

VERCEL = VercelFormatter()
HI: JSONObject = {"role": "user", "content": "hi"}
PNG = "data:image/png;base64,iVBORw=="


def text(words: str) -> JSONObject:
    return {"type": "text", "text": words}


def call(call_id: str = "a") -> JSONObject:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "f", "input": {}}


def result(call_id: str, output: JSONObject | None = None) -> JSONObject:
    given = output or {"type": "text", "value": call_id}
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "f", "output": given}


def asked(call_id: str = "a") -> JSONObject:
    return {"type": "tool-approval-request", "approvalId": f"ok-{call_id}", "toolCallId": call_id}


def told(call_id: str = "a", **fields: object) -> JSONObject:
    return {"type": "tool-approval-response", "approvalId": f"ok-{call_id}", "approved": True, **fields}


def said(role: str, *parts: JSONObject) -> JSONObject:
    return {"role": role, "content": list(parts)}


def shown(*parts: JSONObject, role: str = "assistant") -> JSONObject:
    return {"id": "m", "role": role, "parts": list(parts)}


def through(*messages: JSONObject) -> list[JSONObject]:
    return VERCEL.encode_request(VERCEL.decode_request({"messages": list(messages)}))["messages"]


STEERED = shown(
    {"type": "step-start"},
    {"type": "tool-f", "toolCallId": "a", "state": "output-available", "input": {}, "output": "a"},
    {
        "type": "steering-message",
        "id": "s",
        "parts": [text("hurry"), {"type": "file", "mediaType": "image/png", "url": PNG}],
    },
    {"type": "step-start"},
    text("Done."),
)


def test_steering_is_a_user_message_at_its_position() -> None:
    """Guarantee 10.3: no text is dropped or reordered; the SDK makes a user message of it."""
    assert through(STEERED) == [
        said("assistant", call()),
        said("tool", result("a")),
        said("user", text("hurry"), {"type": "file", "mediaType": "image/png", "data": PNG}),
        {"role": "assistant", "content": "Done."},
    ]
    messages = VERCEL.decode_request({"messages": [STEERED]}).messages
    assert [(message.role, message.uid) for message in messages] == [
        ("assistant", "m"),
        ("tool", ""),
        ("user", "s"),
        ("assistant", ""),
    ]


@pytest.mark.parametrize("reason", [{}, {"reason": "not now"}], ids=["without a reason", "with a reason"])
def test_a_declined_call_has_a_result_with_the_refusal(reason: JSONObject) -> None:
    """Guarantee 10.3: whether the tool ran is known; the reason is the user's text."""
    approval = {"id": "ok-a", "approved": False, **reason}
    part = {"type": "tool-f", "toolCallId": "a", "state": "approval-responded", "input": {}, "approval": approval}
    assert through(shown(part)) == [
        said("assistant", call(), asked()),
        said("tool", {**told(approved=False), **reason}, result("a", {"type": "execution-denied", **reason})),
    ]


def test_a_refused_call_of_a_provider_is_answered_in_the_tool_message() -> None:
    """Guarantee 2.5: the provider ran nothing, and gets the refusal; `convertToModelMessages` puts both there."""
    part: JSONObject = {"type": "tool-f", "toolCallId": "a", "state": "approval-responded", "providerExecuted": True}
    wire = through(shown({**part, "input": {}, "approval": {"id": "ok-a", "approved": False}}))
    assert wire == [
        said("assistant", {**call(), "providerExecuted": True}, asked()),
        said("tool", told(approved=False, providerExecuted=True), result("a", {"type": "execution-denied"})),
    ]
    assert lint(wire, format="vercel") == []


def test_further_fields_of_an_approval_request_are_kept() -> None:
    """Guarantee 10.5: the SDK checks the signature of a request before it runs what was approved."""
    more = {"isAutomatic": False, "signature": "sig", "inputSchemaInput": {"x": 1}}
    approval = {"id": "ok-a", "approved": True, "requestReason": "costs money", **more}
    part = {"type": "tool-f", "toolCallId": "a", "state": "approval-responded", "input": {}, "approval": approval}
    assert through(shown(part)) == [
        said("assistant", call(), {**asked(), "reason": "costs money", **more}),
        said("tool", told()),
    ]


def test_a_tool_message_without_results_is_left_out() -> None:
    """Guarantee 10.3: an empty user message must not appear; the SDK leaves it out, too."""
    assert VERCEL.decode_request({"messages": [HI, said("tool")]}).messages == (cc.user("hi"),)
    assert through(HI, said("tool")) == [HI]


def test_the_key_is_the_name_of_a_tool() -> None:
    """Guarantee 10.5: the SDK sends the key to the model, whatever name is inside; and that survives."""
    body: JSONObject = {"messages": [HI], "tools": {"f": {"name": "g", "inputSchema": {"type": "object"}}}}
    request = VERCEL.decode_request(body)
    assert [tool.name for tool in request.tools if isinstance(tool, cc.Tool)] == ["f"]
    assert VERCEL.encode_request(request) == body
    told = convert(body, source="vercel", target="anthropic")
    assert [tool["name"] for tool in told["tools"]] == ["f"]
    assert not [warning for warning in told.warnings if "shape" in warning]
    native: JSONObject = {"type": "provider", "id": "openai.web_search", "name": "g", "args": {}}
    assert list(VERCEL.encode_request(VERCEL.decode_request({**body, "tools": {"f": native}}))["tools"]) == ["f"]


@pytest.mark.parametrize("url", ["", "https://example.com/a.pdf", "data:application/pdf;base64,JVBERg=="])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_file_that_lies_with_a_provider_goes_back_under_its_name(url: str, role: str) -> None:
    """Guarantee 10.5: "takes precedence over `url`", the SDK says."""
    reference = {"openai": "file-1", "anthropic": "file-2"}
    part = {"type": "file", "mediaType": "application/pdf", "url": url, "providerReference": reference}
    data = {"type": "reference", "reference": reference}
    wire = said(role, {"type": "file", "mediaType": "application/pdf", "data": data})
    assert through(shown(part, role=role)) == [wire]
    assert through(wire) == [wire]


def test_a_file_that_lies_with_a_provider_is_described_to_others_unless_it_has_an_address() -> None:
    """Guarantee 2.5: the name is unknown to other providers."""
    part: JSONObject = {"type": "file", "mediaType": "application/pdf", "providerReference": {"openai": "file-1"}}
    for url, kind in (("", "text"), ("https://example.com/a.pdf", "document")):
        made = convert([shown({**part, "url": url}, role="user")], source="vercel", target="anthropic")
        assert isinstance(made, ConvertedMessages)
        assert [block["type"] for block in made[0]["content"]] == [kind]


@pytest.mark.parametrize(
    ("content", "parts", "model"),
    [
        ([text("A")], [text("B")], [text("A"), text("B")]),
        ([text("A")], [{"type": "step-start"}], [text("A")]),
        ("A", [text("B")], [text("B"), text("A")]),
        ("A B", [text("A")], [text("A"), text(" B")]),
        ("A", [], "A"),
        ([], [text("B")], "B"),
        ([text("A")], [7, {"type": "text"}, text("B")], [text("A"), text("B")]),
        ("A B", [text("A"), text(" B")], [text("A"), text(" B")]),
    ],
    ids=[
        "both lists",
        "parts say nothing",
        "content is text",
        "content says more",
        "no parts",
        "no content",
        "parts that are none",
        "the same twice",
    ],
)
def test_of_a_message_of_both_kinds_no_text_is_lost(content: object, parts: list[object], model: object) -> None:
    """Guarantee 10.3: a `UIMessage` never had a list of content, and `modelMessageSchema` strips `parts`."""
    (message,) = through({"role": "user", "content": content, "parts": parts})
    assert (message["role"], message["content"]) == ("user", model)


def test_text_in_content_only_of_a_ui_message_follows_its_results() -> None:
    """Guarantee 10.3: that is where version 4 would have put it."""
    part: JSONObject = {"type": "tool-f", "toolCallId": "a", "state": "output-available", "input": {}, "output": "a"}
    assert through({**shown(part), "content": "Done."}) == [
        said("assistant", call()),
        said("tool", result("a")),
        {"role": "assistant", "content": "Done."},
    ]


def test_unknown_parts_of_a_model_message_come_back() -> None:
    """Guarantee 10.5: where they say nothing new, they are a field like any other."""
    message = {"role": "user", "content": [text("A"), text("B")], "parts": [text("A")]}
    assert through(message) == [message]
    assert lint([message, said("assistant", text("C"))], format="vercel") == []


APPROVED = [
    [HI, said("assistant", text("Hm."), call(), asked()), said("tool", told())],
    [HI, said("assistant", call(), asked()), said("tool", told(approved=False, reason="not now"))],
    [HI, said("assistant", call("a"), call("b"), asked("b")), said("tool", result("a"), told("b"))],
    [HI, said("assistant", call("a"), call("b"), asked("b")), said("tool", result("a")), said("tool", told("b"))],
    [HI, said("assistant", call("a"), call("b"), asked("a"), asked("b")), said("tool", told("a"), told("b"))],
    [HI, said("assistant", call(), asked()), {**said("tool", told()), "providerOptions": {"anthropic": {"x": 1}}}],
    [
        HI,
        said("assistant", call()),
        said("tool", result("a")),
        said("assistant", call(), asked()),
        said("tool", told()),
    ],
    [
        HI,
        said("assistant", call(), asked()),
        said("tool", told()),
        said("tool", result("a")),
        said("assistant", call(), asked()),
        said("tool", told()),
    ],
    [HI, said("assistant", {**call(), "providerOptions": {"google": {"x": 1}}}, asked()), said("tool", told())],
]


@pytest.mark.parametrize("messages", APPROVED)
def test_a_call_that_was_just_approved_goes_back_without_a_result(messages: list[JSONObject]) -> None:
    """Guarantees 10.5, 2.5: the SDK runs it before it asks the model; a result of ours would be taken for the
    tool's.
    """
    assert lint(messages, format="vercel") == []
    assert through(*messages) == messages
    assert convert(messages, source="vercel", target="vercel") == messages
    assert fix([{"role": "user", "content": []}, *messages], format="vercel")[0] == messages
    for message in VERCEL.decode_request({"messages": messages}).messages:
        validate_message(message)


def test_a_call_that_was_just_approved_has_a_result_anywhere_else() -> None:
    """Guarantee 5.3: no other provider would run it."""
    made = convert(APPROVED[0], source="vercel", target="openai_chat")
    assert isinstance(made, ConvertedMessages)
    assert [message["content"] for message in made if message["role"] == "tool"] == [SYNTHETIC_RESULTS["interrupted"]]


@pytest.mark.parametrize(
    "messages",
    [
        [HI, said("assistant", call(), asked())],
        [HI, said("assistant", call(), asked()), said("tool", told()), HI],
        [HI, said("assistant", call(), asked()), HI, said("tool", told())],
        [HI, said("assistant", call("a"), call("b"), asked("b")), said("tool", told("b"))],
    ],
    ids=["not answered", "the user spoke", "the user spoke before", "another call waits"],
)
def test_a_call_that_will_not_run_gets_a_result(messages: list[JSONObject]) -> None:
    """Guarantee 5.3: the SDK acts on answers in the last message alone, and refuses every other call without a
    result.
    """
    assert lint(messages, format="vercel") != []
    assert lint(through(*messages), format="vercel") == []


def test_an_answer_and_its_result_keep_their_messages() -> None:
    """Guarantee 10.1: when the result is there, the request still begins with what was sent before."""
    before = APPROVED[0]
    after = [*before, said("tool", result("a")), {"role": "assistant", "content": "Done."}]
    assert through(*after) == after


def test_a_reply_leaves_out_nothing_but_results() -> None:
    """Guarantee 10.3: one message for all the steps; what others said meanwhile stays in it, and follows it on the
    wire.
    """
    first, ran, steer, *rest = STEERED["parts"]
    approved = {**ran, "toolCallId": "b", "approval": {"id": "ok-b", "approved": True}}
    reply = VERCEL.decode_reply({**STEERED, "metadata": {"n": 1}, "parts": [first, ran, approved, steer, *rest]})
    assert (reply.text, reply.uid, reply.meta) == ("Done.", "m", {"n": 1})
    assert [each.id for each in reply.tool_calls] == ["a", "b"]
    validate_message(reply)
    results = cc.Message(role="tool", parts=tuple(cc.ToolResult(call_id=each, name="f", content=each) for each in "ab"))
    wire = VERCEL.format([reply, results, cc.user("and?")])
    assert wire == [
        said("assistant", call("a"), call("b"), asked("b"), text("Done.")),
        said("tool", result("a"), told("b"), result("b")),
        said("user", text("hurry"), {"type": "file", "mediaType": "image/png", "data": PNG}),
        {"role": "user", "content": "and?"},
    ]
    assert lint(wire, format="vercel") == []


def test_a_reply_without_parts_keeps_its_names() -> None:
    """Guarantee 2.7: it may have broken off before the first text."""
    reply = VERCEL.decode_reply({"id": "m", "role": "assistant", "metadata": {"n": 1}, "parts": []})
    assert (reply.uid, reply.meta, reply.parts) == ("m", {"n": 1}, ())
