"""Rules specific to the AI SDK. Each was tried with version 7.0.169 and a fake model."""

import pytest

from contextc._json import JSON, JSONObject
from contextc.formats.vercel.rules import find_unknown_fields, parse_request
from contextc.linting import fix, lint

LONG = "EqMBCkYICxgCKkBDb3Vu" * 5


def call(call_id: str = "a", **fields: JSON) -> JSONObject:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "look", "input": {}, **fields}


def result(call_id: str = "a", value: str = "1") -> JSONObject:
    output = {"type": "text", "value": value}
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "look", "output": output}


def said(role: str, *parts: JSONObject | str) -> JSONObject:
    return {"role": role, "content": parts[0] if isinstance(parts[0], str) else list(parts)}


def shown(role: str, *parts: JSONObject) -> JSONObject:
    return {"id": "m", "role": role, "parts": list(parts)}


def tool_part(state: str, **fields: JSON) -> JSONObject:
    return {"type": "tool-look", "toolCallId": "a", "state": state, "input": {}, **fields}


HI = said("user", "hi")
ASKED = {"type": "tool-approval-request", "approvalId": "ok1", "toolCallId": "a"}
APPROVED = {"type": "tool-approval-response", "approvalId": "ok1", "approved": True}
TEXT = {"type": "text", "text": "hi"}
SPOKEN = shown("user", TEXT)


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format="vercel")]


@pytest.mark.parametrize(
    "messages",
    [
        [HI, said("assistant", call()), said("assistant", "Wait."), said("tool", result())],
        [HI, said("assistant", call("a"), call("b")), said("tool", result("b")), said("tool", result("a"))],
        [HI, said("assistant", call(providerExecuted=True)), said("user", "and?")],
        [HI, said("assistant", call(providerExecuted=True), result()), said("user", "and?")],
        [HI, said("assistant", call(), ASKED), said("tool", APPROVED)],
        [HI, said("assistant", call(), ASKED), said("tool", {**APPROVED, "approved": False})],
        [HI, said("tool", APPROVED), said("user", "and?")],
        [HI, said("assistant", call(input=None)), said("tool", result())],
        [said("user", {"type": "file", "mediaType": "image/png", "data": {"type": "url", "url": "https://a.b/c"}})],
        [said("system", "Be brief."), HI],
    ],
)
def test_what_the_sdk_takes_is_not_flagged(messages: list[JSONObject]) -> None:
    """Guarantee 10.6: results may come until the user speaks; what a provider ran, or a person just approved, needs
    none.
    """
    assert lint(messages, format="vercel") == []


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([HI, said("assistant", call()), said("user", "and?"), said("tool", result())], "VER011 VER012"),
        ([HI, said("tool", result()), said("assistant", call())], "VER012 VER011"),
        ([HI, said("assistant", call(), ASKED)], "VER011"),
        ([HI, said("assistant", call(), ASKED), said("tool", APPROVED), said("user", "and?")], "VER011"),
        ([HI, said("assistant", call(), result())], "VER014"),
        ([HI, said("assistant", result())], "VER012"),
        ([HI, said("assistant", call()), said("tool", result(), TEXT)], "VER014"),
        ([said("user", {"type": "reasoning", "text": "hm"})], "VER014"),
        ([HI, said("assistant", {"type": "text", "text": ""})], "VER007"),
        ([said("user", {"type": "file", "data": "AAAA"})], "VER001"),
        ([said("user", {"type": "file", "mediaType": "image/png", "data": "data:nothing"})], "VER005"),
    ],
)
def test_what_the_sdk_or_the_provider_behind_it_refuses_is_flagged(messages: list[JSONObject], code: str) -> None:
    """Guarantee 5.1: and once fixed, nothing is left."""
    assert codes(messages) == code.split()
    assert lint(fix(messages, format="vercel")[0], format="vercel") == []


@pytest.mark.parametrize(
    ("state", "fields", "found"),
    [
        ("output-available", {"output": 1}, []),
        ("output-error", {"errorText": "bad"}, []),
        ("output-denied", {"approval": {"id": "ok1", "approved": False}}, []),
        ("input-streaming", {}, []),
        ("approval-responded", {"approval": {"id": "ok1", "approved": True}}, []),
        ("input-available", {}, ["VER011"]),
        ("approval-requested", {"approval": {"id": "ok1"}}, ["VER011"]),
        ("input-available", {"output": 1}, ["VER001"]),
        ("running", {}, ["VER001"]),
    ],
)
def test_a_call_of_a_ui_message_is_judged_by_its_state(state: str, fields: JSONObject, found: list[str]) -> None:
    """FIELD-BUG 11: `convertToModelMessages` makes a call without a result of one that waits."""
    assert codes([SPOKEN, shown("assistant", tool_part(state, **fields))]) == found


@pytest.mark.parametrize(("state", "found"), [("approval-requested", []), ("input-available", ["VER011"])])
def test_a_user_message_cancels_an_approval_request(state: str, found: list[str]) -> None:
    """FIELD-BUG 11: the SDK leaves it out of a `UIMessage` then, and nothing else that waits."""
    part = tool_part(state, **({"approval": {"id": "ok1"}} if state == "approval-requested" else {}))
    assert codes([SPOKEN, shown("assistant", part), SPOKEN]) == found


def test_a_call_of_a_ui_message_without_input_is_flagged() -> None:
    """FIELD-BUG 11: a call without arguments lost the field in JSON, and the provider refuses what becomes of it."""
    part = {"type": "tool-look", "toolCallId": "a", "state": "output-available", "output": 1}
    assert codes([SPOKEN, shown("assistant", part)]) == ["VER004"]
    fixed, _ = fix([SPOKEN, shown("assistant", part)], format="vercel")
    assert fixed[1]["content"][0]["input"] == {}


def test_steps_of_a_ui_message_keep_calls_and_results_together() -> None:
    """Guarantee 5.1: the result of a step's call precedes the next step, and steering follows it."""
    steer = {"type": "steering-message", "id": "s", "parts": [{"type": "text", "text": "hurry"}]}
    step = [{"type": "step-start"}, tool_part("output-available", output=1)]
    again = [{"type": "step-start"}, {**tool_part("output-available", output=2), "toolCallId": "b"}]
    assert codes([SPOKEN, shown("assistant", *step, steer, *again)]) == []


def test_a_ui_message_of_the_user_cannot_hold_calls() -> None:
    """Guarantee 10.3: the SDK leaves them out silently, when two roles were mixed up."""
    assert codes([shown("user", TEXT, tool_part("output-available", output=1))]) == ["VER014"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"at": 1}'}},
            call("call_look", input={"at": 1}),
        ),
        (
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": "{"}}],
            },
            call(input={"malformed_arguments": "{"}),
        ),
        (
            {
                "role": "assistant",
                "content": "",
                "toolInvocations": [{"state": "call", "toolCallId": "a", "toolName": "look", "args": {"at": 1}}],
            },
            call(input={"at": 1}),
        ),
    ],
)
def test_calls_of_older_shapes_are_flagged_because_the_sdk_strips_them(old: JSONObject, new: JSONObject) -> None:
    """Guarantee 10.3: `function_call` on an assistant message is accepted, and gone."""
    assert codes([HI, old]) == ["VER003"]
    fixed, repairs = fix([HI, old], format="vercel")
    assert fixed[1] == {"role": "assistant", "content": [new]}
    assert [repair.code for repair in repairs] == ["VER003"]


def test_results_of_older_shapes_find_their_calls() -> None:
    """Guarantee 5.2: a `function_call` and its `function` message are a pair, though neither has an id."""
    asked = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    fixed, _ = fix([HI, asked, {"role": "function", "name": "look", "content": "1"}], format="vercel")
    assert fixed == [HI, said("assistant", call("call_look")), said("tool", result("call_look"))]


def test_system_messages_are_checked_in_whole_requests_only() -> None:
    """Guarantee 10.3: a list of messages does not say whether `allowSystemInMessages` is set."""
    messages = [said("system", "Be brief."), HI]
    assert codes(messages) == []
    assert codes({"model": "m", "messages": messages, "allowSystemInMessages": True}) == []
    body: JSONObject = {"model": "m", "messages": messages, "allowSystemInMessages": False}
    assert codes(body) == ["VER008"]
    assert fix(body, format="vercel")[0]["allowSystemInMessages"] is True


@pytest.mark.parametrize("given", [7, ["Be brief."], {"text": "Be brief."}, [{"role": "system", "content": ["x"]}]])
def test_instructions_are_text_or_system_messages(given: JSON) -> None:
    """Guarantee 10.6: the SDK would send a system message without content, and say nothing."""
    body: JSONObject = {"instructions": given, "messages": [HI]}
    assert codes(body) == ["VER001"]
    assert codes(fix(body, format="vercel")[0]) == []


def test_what_the_sdk_would_forget_is_joined() -> None:
    """Guarantee 10.3: of `instructions` and `system`, and of `prompt` and `messages`, it takes the first."""
    body: JSONObject = {"instructions": "One.", "system": "Two.", "prompt": "three", "messages": [HI]}
    assert codes(body) == ["VER010", "VER009"]
    assert fix(body, format="vercel")[0] == {"instructions": "One.\n\nTwo.", "messages": [HI, said("user", "three")]}


def test_a_prompt_needs_no_messages() -> None:
    """Guarantee 10.6: the other way to ask."""
    assert codes({"prompt": "hi"}) == []


def test_a_tool_keeps_the_schema_an_older_version_called_parameters() -> None:
    """Guarantee 10.6: otherwise the model would get a tool without parameters."""
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    body: JSONObject = {"tools": {"look": {"parameters": schema}}, "messages": [HI]}
    assert codes(body) == ["VER001"]
    assert fix(body, format="vercel")[0]["tools"] == {"look": {"inputSchema": schema}}


@pytest.mark.parametrize(("proof", "found"), [("s", []), (LONG[:-3] + "!!!", ["VER016"])])
def test_a_damaged_signature_is_taken_off_and_the_reasoning_stays(proof: str, found: list[str]) -> None:
    """FIELD-BUG 16: Anthropic refuses it; without one the SDK leaves the reasoning out by itself."""
    thought = {"type": "reasoning", "text": "hm", "providerOptions": {"anthropic": {"signature": proof}}}
    messages = [HI, said("assistant", thought, TEXT)]
    assert codes(messages) == found
    fixed, _ = fix(messages, format="vercel")
    assert fixed[1]["content"][0]["text"] == "hm"


def test_the_error_is_the_sdks_own() -> None:
    """Guarantee 10.6: with our notation of the position, and the sentence that is in the log."""
    [violation] = lint([HI, said("assistant", call("c1"))], format="vercel")
    assert violation.path == "[1].content[0]"
    assert violation.error == "AI_MissingToolResultsError: Tool result is missing for tool call c1."


def test_calls_with_one_id_may_have_as_many_results() -> None:
    """The SDK accepts a result for each of them; one more is a duplicate."""
    calls = said("assistant", call(), call())
    assert codes([HI, calls, said("tool", result(), result())]) == []
    assert codes([HI, calls, said("tool", result(), result(), result())]) == ["VER013"]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("look", "the tools must be an object, keyed by tool name."),
        ({"look": {"type": "strange"}}, "unknown tool type 'strange'."),
    ],
)
def test_tools_of_another_shape_are_flagged_and_left_out(tools: JSON, message: str) -> None:
    body: JSONObject = {"messages": [HI], "tools": tools}
    assert [violation.message for violation in lint(body, format="vercel")] == [message]
    fixed, _ = fix(body, format="vercel")
    assert codes(fixed) == []
    assert not fixed.get("tools")


def test_parts_for_the_interface_alone_are_no_content() -> None:
    source: JSONObject = {"type": "source-url", "sourceId": "s", "url": "https://a.b"}
    parts = [source, {"type": "data-weather", "data": {"any": "thing"}}, {"type": "custom", "kind": "x.y"}, TEXT]
    assert codes([SPOKEN, shown("assistant", *parts), SPOKEN]) == []


def test_unknown_fields_of_a_ui_message_are_found_once() -> None:
    """A message with several steps is several turns, and its fields are looked at once."""
    message = {
        **shown(
            "assistant",
            {"type": "step-start"},
            {**tool_part("output-available", output="1"), "colour": 1},
            {"type": "data-weather", "data": 1, "anything": 1},
            {"type": "step-start"},
            {**TEXT, "size": 2},
        ),
        "mood": "good",
    }
    found = find_unknown_fields(parse_request({"messages": [SPOKEN, message]}))
    assert sorted(".".join(map(str, finding.path)) for finding in found) == [
        "messages.1.mood",
        "messages.1.parts.1.colour",
        "messages.1.parts.4.size",
    ]
