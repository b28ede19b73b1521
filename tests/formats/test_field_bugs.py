"""What goes wrong in the field, 1 to 18 of FIELD-BUGS: broken pairs, poisoned conversations, lost reasoning.

Each test has the situation of a public issue: what our formatters make of it, and, where another framework's request
is broken by it, that `lint` names it and `fix` heals it.
"""

import json
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.formats import format_names, formatter
from contextc.formats.base import OPENING, Request
from contextc.formats.gemini.encode import STAND_IN
from contextc.pairing import SAID
from tests.formats.vendor import problems

NAMES = format_names()
UNANSWERED = dict(zip(NAMES, ("ANT006", "GEM008", "OAC006", "OAR004", "VER011", "VEL006"), strict=True))
ORPHAN = dict(zip(NAMES, ("ANT008", "GEM009", "OAC007", "OAR005", "VER012", "VEL008"), strict=True))
USE: JSONObject = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
LOOK = cc.Tool(name="look", description="Reads a file.", parameters={"type": "object"})
every_format = pytest.mark.parametrize("name", NAMES)


def call(id: str, arguments: str = "{}") -> cc.ToolCall:
    return cc.tool_call(id, "look", arguments)


def result(id: str, text: str = "print(1)") -> cc.Message:
    return cc.tool_result(id, "look", text)


def sent(name: str, history: Sequence[cc.Message]) -> list[JSONObject]:
    """The messages of a request, which neither our rules nor the vendor's types find fault with."""
    wire = formatter(name).format(history)
    sound(name, wire)
    return wire


def sound(name: str, wire: list[JSONObject]) -> None:
    assert cc.lint(wire, format=name) == []
    assert problems(name, {formatter(name).messages_key: wire}) == []


def outline(name: str, wire: list[JSONObject]) -> list[str]:
    """What is said, asked for and returned, in the order of the wire."""
    found: list[str] = []
    request = formatter(name).decode_request({formatter(name).messages_key: wire})
    for message in [*([request.system] if request.system else []), *request.messages]:
        for part in message.parts:
            if isinstance(part, cc.Text):
                found.append(part.text.removeprefix("<system-reminder>\n").removesuffix("\n</system-reminder>"))
            elif isinstance(part, cc.ToolCall):
                found.append(f"call {part.id}")
            elif isinstance(part, cc.ToolResult):
                found.append(f"result {part.call_id}: {part.text}")
    return found


def without(name: str, history: Sequence[cc.Message], kind: str) -> list[JSONObject]:
    """A request as a framework leaves it that loses all calls, or all results, of a history."""
    wire = formatter(name).format(history)
    for turn in reversed(formatter(name).rules.read(wire).turns):
        for piece in reversed(turn.of("call" if kind == "call" else "result")):
            message = wire[cast(int, turn.path[0])]
            parts: object = message.get("parts", message.get("content"))
            if isinstance(parts, list) and len(cast(list[object], parts)) > 1:
                cast(list[JSONObject], parts).remove(piece.wire)
            else:
                wire.remove(message)
    return wire


def codes(name: str, wire: JSONObject | list[JSONObject]) -> list[str]:
    return [violation.code for violation in cc.lint(wire, format=name)]


# Pairs and cuts


INTERLEAVED = [
    cc.user("What is in these?"),
    cc.assistant("Both at once.", tool_calls=[call("a"), call("b")]),
    result("b", "2"),
    cc.user("and hurry"),
    result("a", "1"),
    cc.assistant("One more.", tool_calls=[call("c")]),
    cc.assistant("And one.", tool_calls=[call("d")]),
    result("d", "4"),
    result("c", "3"),
    cc.system("Be brief."),
    cc.assistant("They print."),
    cc.user("Thanks."),
]


@every_format
def test_a_history_cut_at_any_two_places_makes_a_sound_request(name: str) -> None:
    """litellm#10696, langchain#29637; SPEC 5.1, 5.3: trimming kept a result without its call, or the reverse."""
    for begin in range(len(INTERLEAVED)):
        for end in range(begin + 1, len(INTERLEAVED) + 1):
            part = INTERLEAVED[begin:end]
            if all(message.role == "tool" for message in part):
                assert formatter(name).format(part) == []  # there is nothing to say
            else:
                sent(name, part)


@every_format
def test_a_cut_takes_out_the_half_it_left_and_nothing_else(name: str) -> None:
    """litellm#10696, langchain#29637; SPEC 5.3."""
    assert outline(name, sent(name, INTERLEAVED[8:])) == ["Be brief.", "They print.", "Thanks."]
    assert outline(name, sent(name, INTERLEAVED[:3])) == [
        "What is in these?",
        "Both at once.",
        "call a",
        "call b",
        f"result a: {SAID['interrupted']}",
        "result b: 2",
    ]


@every_format
def test_a_cut_among_interleaved_calls_leaves_no_orphan(name: str) -> None:
    """langchain#38352; SPEC 5.1, 5.2: a "safe" place to cut was not safe where results come in another order."""
    assert outline(name, sent(name, INTERLEAVED[6:])) == [
        "And one.",
        "call d",
        "result d: 4",
        "Be brief.",
        "They print.",
        "Thanks.",
    ]


@every_format
@pytest.mark.parametrize("kind", ["call", "result"])
def test_a_trimmed_request_is_named_and_healed(name: str, kind: str) -> None:
    """litellm#10696, langchain#29637; SPEC 10.6: as another framework's trimming leaves it."""
    history = [cc.user("hi"), cc.assistant("Hm.", tool_calls=[call("a")]), result("a", "found it"), cc.user("and?")]
    broken = without(name, history, kind)
    assert (ORPHAN if kind == "call" else UNANSWERED)[name] in codes(name, broken)
    fixed, _ = cc.fix(broken, format=name)
    sound(name, fixed)
    assert ("found it" in str(fixed)) == (kind == "call")


@every_format
def test_the_last_items_of_a_history_hold_no_unmatched_result(name: str) -> None:
    """openai-agents-python#4322; SPEC 5.3: a limit of items passed a `function_call_output` on alone."""
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[call("a")]),
        result("a"),
        cc.assistant("It prints."),
        cc.user("?"),
    ]
    assert [outline(name, sent(name, history[-limit:])) for limit in range(1, 6)] == [
        ["?"],
        ["It prints.", "?"],
        ["It prints.", "?"],
        ["call a", "result a: print(1)", "It prints.", "?"],
        ["hi", "call a", "result a: print(1)", "It prints.", "?"],
    ]


def test_a_limit_of_items_is_named_and_healed() -> None:
    """openai-agents-python#4322; SPEC 10.6: the items as that session keeps them, the last two."""
    items: list[JSONObject] = [
        {"type": "function_call_output", "call_id": "a", "output": "print(1)"},
        {"role": "user", "content": "and?"},
    ]
    assert codes("openai_responses", items) == ["OAR005"]
    fixed, _ = cc.fix(items, format="openai_responses")
    sound("openai_responses", fixed)
    assert outline("openai_responses", fixed) == [
        "[a result of unknown, whose call is not here:]",
        "print(1)",
        "and?",
    ]


@pytest.mark.parametrize("held", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_an_output_whose_call_the_provider_holds_is_legal_and_kept(held: JSONObject) -> None:
    """agno#9372; SPEC 5.1: a guard against orphans must not fire here."""
    responses = formatter("openai_responses")
    output: JSONObject = {"type": "function_call_output", "call_id": "a", "output": "print(1)"}
    body: JSONObject = {"model": "gpt-5.6", **held, "input": [output]}
    assert cc.lint(body, format="openai_responses") == []
    assert problems("openai_responses", body) == []
    assert responses.encode_request(responses.decode_request(body)) == body
    assert responses.encode_request(Request(messages=(result("a"),), settings={"model": "gpt-5.6", **held})) == body
    assert cc.fix(body, format="openai_responses") == (body, [])


def test_an_output_whose_call_the_provider_holds_survives_another_repair() -> None:
    """agno#9372; SPEC 10.6: `fix` mends the call that has no result, and leaves that result alone."""
    output: JSONObject = {"type": "function_call_output", "call_id": "a", "output": "print(1)"}
    dangling: JSONObject = {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"}
    body: JSONObject = {"previous_response_id": "resp_1", "input": [output, dangling]}
    assert codes("openai_responses", body) == ["OAR004"]
    made_up = {"type": "function_call_output", "call_id": "b", "output": SAID["interrupted"]}
    fixed, _ = cc.fix(body, format="openai_responses")
    assert fixed == {**body, "input": [output, dangling, made_up]}
    assert cc.lint(fixed, format="openai_responses") == []


@every_format
def test_what_goes_to_be_counted_is_as_sound_as_what_goes_to_be_answered(name: str) -> None:
    """inspect_ai#3108; SPEC 5.1: messages, system prompt and tools, and none of the settings of an answer."""
    form = formatter(name)
    for begin in range(len(INTERLEAVED)):
        messages = tuple(INTERLEAVED[begin:])
        body = form.encode_request(Request(messages=messages, system=cc.system("Be good."), tools=(LOOK,)))
        assert cc.lint(body, format=name) == []
        head = 1 if form.system_among_messages else 0
        assert body[form.messages_key][head:] == form.format(messages)
        assert not {"max_tokens", "max_output_tokens", "max_completion_tokens"} & body.keys()


@every_format
def test_a_request_to_be_counted_is_healed_without_settings_it_does_not_take(name: str) -> None:
    """inspect_ai#3108; SPEC 10.6."""
    key = formatter(name).messages_key
    broken: JSONObject = {key: without(name, [cc.user("hi"), cc.assistant(tool_calls=[call("a")])], "result")}
    assert UNANSWERED[name] in codes(name, broken)
    fixed, _ = cc.fix(broken, format=name)
    assert cc.lint(fixed, format=name) == []
    assert fixed.keys() == {key}


@every_format
def test_a_history_of_tools_only_can_be_cut_at_every_step(name: str) -> None:
    """strands harness-sdk#2173; SPEC 5.4, 10.4: it has no plain user turn, and must not grow for ever."""
    steps = [message for id in "abc" for message in (cc.assistant(tool_calls=[call(id)]), result(id))]
    for step, id in enumerate("abc"):
        wire = sent(name, steps[2 * step :])
        assert outline(name, wire)[:2] == [f"call {id}", f"result {id}: print(1)"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("anthropic", {"role": "user", "content": [{"type": "text", "text": OPENING}]}),
        ("gemini", {"role": "user", "parts": [{"text": OPENING}]}),
        ("openai_chat", {"role": "assistant", "content": "Hello!"}),
        ("openai_responses", {"role": "assistant", "content": "Hello!"}),
        ("vercel", {"role": "assistant", "content": "Hello!"}),
        ("vercel_legacy", {"role": "assistant", "content": "Hello!"}),
    ],
)
def test_a_window_that_starts_with_the_assistant_is_sound(name: str, first: JSONObject) -> None:
    """strands harness-sdk#2087; SPEC 10.4: where the provider wants the user first, a line is put before it."""
    wire = sent(name, [cc.assistant("Hello!"), cc.user("hi")])
    assert wire[0] == first
    assert outline(name, wire) == ["Hello!", "hi"]


@pytest.mark.parametrize(("name", "code"), [("anthropic", "ANT003"), ("gemini", "GEM007")])
def test_a_window_that_starts_with_a_call_is_named_and_healed(name: str, code: str) -> None:
    """strands harness-sdk#2087; SPEC 10.6: as it is cut by others."""
    window = formatter(name).format([cc.assistant(tool_calls=[call("a")]), result("a")])
    assert codes(name, window[1:]) == [code]
    assert cc.fix(window[1:], format=name)[0] == window


@every_format
def test_a_dead_call_and_a_late_result_hinder_nothing(name: str) -> None:
    """adk-python#7236, #5602; SPEC 5.2, 5.3: the dead call is closed, and the late result is brought to its call."""
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[call("dead")]),
        cc.user("go on"),
        cc.assistant(tool_calls=[call("late")]),
        cc.user("meanwhile"),
        cc.assistant("I wait."),
        result("late"),
    ]
    assert outline(name, sent(name, history)) == [
        "hi",
        "call dead",
        f"result dead: {SAID['interrupted']}",
        "go on",
        "call late",
        "result late: print(1)",
        "meanwhile",
        "I wait.",
    ]


# Poisoned conversations


@every_format
def test_a_dangling_call_spoils_no_later_request(name: str) -> None:
    """pydantic-ai#4728; SPEC 5.3: and it says the same in all of them, so that the prefix stays."""
    history = [cc.user("hi"), cc.assistant("Hm.", tool_calls=[call("a")])]
    for later in ([], [cc.user("?")], [cc.user("?"), cc.assistant("Yes."), cc.user("!")]):
        wire = sent(name, [*history, *later])
        assert outline(name, wire)[:4] == ["hi", "Hm.", "call a", f"result a: {SAID['interrupted']}"]


PARTIAL = '{"path": "a.'
CALLED: dict[str, JSONObject] = {
    "anthropic": {"type": "tool_use", "id": "a", "name": "look", "input": {"malformed_arguments": PARTIAL}},
    "gemini": {
        "functionCall": {"id": "a", "name": "look", "args": {"malformed_arguments": PARTIAL}},
        "thoughtSignature": STAND_IN,
    },
    "openai_chat": {"id": "a", "type": "function", "function": {"name": "look", "arguments": PARTIAL}},
    "openai_responses": {"type": "function_call", "call_id": "a", "name": "look", "arguments": PARTIAL},
    "vercel": {
        "type": "tool-call",
        "toolCallId": "a",
        "toolName": "look",
        "input": {"malformed_arguments": PARTIAL},
    },
    "vercel_legacy": {"name": "look", "arguments": PARTIAL},
}
CHAT_STREAM: list[JSONObject] = [
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look"}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": PARTIAL[:4]}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": PARTIAL[4:]}}]}}]},
]
RESPONSES_STREAM: list[JSONObject] = [
    {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "function_call", "call_id": "a", "name": "look", "arguments": ""},
    },
    {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": PARTIAL},
]
VERCEL_STREAM: list[JSONObject] = [
    {"type": "start"},
    {"type": "tool-input-start", "toolCallId": "a", "toolName": "look"},
    {"type": "tool-input-delta", "toolCallId": "a", "inputTextDelta": PARTIAL},
    {"type": "abort"},
]


@every_format
@pytest.mark.parametrize(
    ("source", "stream"),
    [
        ("openai_chat", CHAT_STREAM),
        ("openai_responses", RESPONSES_STREAM),
        ("vercel", VERCEL_STREAM),
    ],
)
def test_arguments_cut_off_in_a_stream_do_not_poison_the_conversation(
    source: str, stream: list[JSONObject], name: str
) -> None:
    """pi#5538, vercel/ai#10638; SPEC 2.3: kept as they were written, sent in a form that is taken, and answered."""
    reply = formatter(source).decode_stream(stream)
    (made,) = reply.tool_calls
    assert (made.raw, made.malformed) == (PARTIAL, True)
    wire = sent(name, [cc.user("hi"), reply, cc.user("go on")])
    (piece,) = [piece for turn in formatter(name).rules.read(wire).turns for piece in turn.of("call")]
    assert piece.wire == CALLED[name] or piece.wire.get("function_call") == CALLED[name]
    said = SAID["cancelled" if reply.status == "cancelled" else "interrupted"]
    assert outline(name, wire) == ["hi", "call a", f"result a: {said}", "go on"]


@pytest.mark.parametrize("name", ["anthropic", "gemini"])
def test_arguments_that_are_half_a_text_are_named_and_healed(name: str) -> None:
    """pi#5538, vercel/ai#10638; SPEC 10.6: a framework that stored the text, where an object is wanted."""
    whole = formatter(name).format([cc.user("hi"), cc.assistant(tool_calls=[call("a", PARTIAL)]), result("a")])
    place = {"anthropic": ("content", 0, "input"), "gemini": ("parts", 0, "functionCall", "args")}[name]
    broken = json.loads(json.dumps(whole))
    holder = broken[1]
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = PARTIAL
    assert codes(name, broken)[0] in ("ANT001", "GEM001")
    assert cc.fix(broken, format=name)[0] == whole


@every_format
def test_a_result_whose_approved_call_was_never_stored_is_left_out_alone(name: str) -> None:
    """openai-agents-python#4827; SPEC 5.3: and if the call is stored after it, that is the call's own fate."""
    assert outline(name, sent(name, [cc.user("hi"), result("a"), cc.user("and?")])) == ["hi", "and?"]
    history = [cc.user("hi"), result("a"), cc.assistant(tool_calls=[call("a")]), cc.user("and?")]
    assert outline(name, sent(name, history)) == ["hi", "call a", f"result a: {SAID['interrupted']}", "and?"]


ASKED: JSONObject = {"type": "tool-approval-request", "approvalId": "ok1", "toolCallId": "a"}
CALL: JSONObject = {"type": "tool-call", "toolCallId": "a", "toolName": "look", "input": {}}


def interface(state: str, **fields: object) -> list[JSONObject]:
    """A page's history, in which the user speaks while a call is in this state."""
    part = {"type": "tool-look", "toolCallId": "a", "state": state, **fields}
    return [
        {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"id": "m2", "role": "assistant", "parts": [{"type": "step-start"}, part]},
        {"id": "m3", "role": "user", "parts": [{"type": "text", "text": "never mind"}]},
    ]


@every_format
@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ("approval-requested", {"input": {}, "approval": {"id": "ok1"}}),
        ("approval-responded", {"input": {}, "approval": {"id": "ok1", "approved": True}}),
        ("input-available", {"input": {}}),
        ("input-available", {}),
        ("input-streaming", {}),
    ],
)
def test_a_call_that_a_page_left_open_goes_out_with_a_result(name: str, state: str, fields: JSONObject) -> None:
    """vercel/ai#18451, #14349; SPEC 5.3: an approval nobody gave, a call without `input`."""
    history = formatter("vercel").decode_request({"messages": interface(state, **fields)}).messages
    found = [line for line in outline(name, sent(name, history)) if not line.startswith("[vercel ")]
    assert found == ["hi", "call a", f"result a: {SAID['interrupted']}", "never mind"]


def test_an_approval_that_was_asked_for_in_vain_is_named_and_healed() -> None:
    """vercel/ai#18451; SPEC 10.6: AI_MissingToolResultsError on every later request."""
    broken: list[JSONObject] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [CALL, ASKED]},
        {"role": "user", "content": "never mind"},
    ]
    assert codes("vercel", broken) == ["VER011"]
    output = {"type": "error-text", "value": SAID["interrupted"]}
    made_up = {"type": "tool-result", "toolCallId": "a", "toolName": "look", "output": output}
    fixed, _ = cc.fix(broken, format="vercel")
    assert fixed == [*broken[:2], {"role": "tool", "content": [made_up]}, broken[2]]
    sound("vercel", fixed)


def test_a_call_without_input_is_named_and_healed() -> None:
    """vercel/ai#14349; SPEC 10.6."""
    whole = sent("vercel", [cc.user("hi"), cc.assistant(tool_calls=[call("a")]), result("a")])
    bare = {key: value for key, value in CALL.items() if key != "input"}
    broken: list[JSONObject] = [whole[0], {"role": "assistant", "content": [bare]}, whole[2]]
    assert codes("vercel", broken)[0] == "VER004"
    assert cc.fix(broken, format="vercel")[0] == whole


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000"])
def test_blank_blocks_are_neither_sent_nor_replaced(blank: str) -> None:
    """hermes-agent#69512; SPEC 10.4: Anthropic refuses a blank block, and a blank placeholder as well."""
    history = [
        cc.user([cc.Text("hi"), cc.Text(blank)]),
        cc.assistant([cc.Text(blank), call("a")]),
        cc.tool_result("a", "look", [cc.Text(blank)]),
        cc.assistant(cc.Text(blank)),
        cc.system(cc.Text(blank)),
        cc.user("go on"),
    ]
    assert sent("anthropic", history) == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [USE]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": []},
                {"type": "text", "text": "go on"},
            ],
        },
    ]


@every_format
@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_blank_reply_makes_no_unsound_request(name: str, blank: str) -> None:
    """hermes-agent#69512; SPEC 2.2, 10.4."""
    wire = sent(name, [cc.user("hi"), cc.assistant(cc.Text(blank)), cc.user("go on")])
    assert [line for line in outline(name, wire) if line.strip()] == ["hi", "go on"]


def test_a_blank_block_is_named_and_healed() -> None:
    """hermes-agent#69512; SPEC 10.6."""
    answer = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    broken: list[JSONObject] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": " "}, USE]},
        {"role": "user", "content": [answer]},
    ]
    assert codes("anthropic", broken) == ["ANT005"]
    fixed, _ = cc.fix(broken, format="anthropic")
    assert [message["content"] for message in fixed[1:]] == [[USE], [answer]]
    sound("anthropic", fixed)


@every_format
@pytest.mark.parametrize("remind", [cc.system, cc.user])
def test_a_reminder_between_a_call_and_its_result_comes_after_all_results(
    name: str, remind: Callable[[str], cc.Message]
) -> None:
    """FIELD-BUGS 13, named by no issue; SPEC 5.2: 400 at most providers."""
    history = [
        cc.user("hi"),
        cc.assistant(tool_calls=[call("a"), call("b")]),
        remind("Be quick."),
        result("b", "2"),
        remind("Be brief."),
        result("a", "1"),
    ]
    assert outline(name, sent(name, history)) == [
        "hi",
        "call a",
        "call b",
        "result a: 1",
        "result b: 2",
        "Be quick.",
        "Be brief.",
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "openai_responses"])
def test_a_reminder_before_a_result_is_named_and_healed(name: str) -> None:
    """FIELD-BUGS 13, named by no issue; SPEC 10.6. Responses takes results anywhere after their call."""
    whole = formatter(name).format([cc.user("hi"), cc.assistant(tool_calls=[call("a")]), result("a")])
    broken = [*whole[:2], cast(JSONObject, formatter(name).rules.message("Be quick.")), *whole[2:]]
    assert UNANSWERED[name] in codes(name, broken)
    fixed, _ = cc.fix(broken, format=name)
    sound(name, fixed)
    assert outline(name, fixed) == ["hi", "call a", "result a: print(1)", "Be quick."]


# Reasoning


THINKING: list[JSONObject] = [
    {"type": "thinking", "thinking": "I have to read it.", "signature": "sig1"},
    {"type": "redacted_thinking", "data": "cmVk"},
    {"type": "thinking", "thinking": "", "signature": "sig2"},
]
CLAUDE: JSONObject = {
    "id": "msg_1",
    "model": "claude-opus-5-5",
    "role": "assistant",
    "content": [*THINKING, {"type": "text", "text": "Let me look."}, USE],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
CLAUDE_STREAM: list[JSONObject] = [
    {"type": "message_start", "message": {**CLAUDE, "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "I have to "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "read it."}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig1"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": THINKING[1]},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "signature_delta", "signature": "sig2"}},
    {"type": "content_block_stop", "index": 2},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": "Let me look."}},
    {"type": "content_block_stop", "index": 3},
    {"type": "content_block_start", "index": 4, "content_block": USE},
    {"type": "content_block_stop", "index": 4},
]


def thought_by_claude(*, streamed: bool = False) -> cc.Message:
    form = formatter("anthropic")
    return form.decode_stream(CLAUDE_STREAM) if streamed else form.decode_reply(CLAUDE)


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_goes_back_first_and_unchanged(streamed: bool) -> None:
    """openai-agents-python#1704; SPEC 2.4: "Expected `thinking`… found `tool_use`"; the empty and the redacted too."""
    store = cc.open_store("memory:")
    history = [cc.user("hi"), thought_by_claude(streamed=streamed), result("a")]
    store.extend("demo", history)
    for messages in (history, store.load("demo")):
        wire = sent("anthropic", messages)
        assert wire[1] == {"role": "assistant", "content": CLAUDE["content"]}
        body = {
            "model": "claude-sonnet-4-5",
            "max_tokens": 4096,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }
        assert cc.lint({**body, "messages": wire}, format="anthropic") == []


def test_thinking_that_was_dropped_is_named_and_healed() -> None:
    """openai-agents-python#1704; SPEC 10.6: what is gone cannot be brought back, so thinking is off for once."""
    wire = sent("anthropic", [cc.user("hi"), thought_by_claude(), result("a")])
    later = sent("anthropic", [cc.user("hi"), cc.assistant(tool_calls=[call("b")]), result("b")])
    body: JSONObject = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [*wire, *later[1:]],
    }
    assert codes("anthropic", body) == ["ANT015"]
    fixed, _ = cc.fix(body, format="anthropic")
    assert cc.lint(fixed, format="anthropic") == []
    assert fixed["messages"][1] == wire[1]


REASONING: JSONObject = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
    "encrypted_content": "gAAAAAB",
}
FUNCTION_CALL: JSONObject = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "a",
    "name": "look",
    "arguments": '{ "path":"a.py" }',
    "status": "completed",
}
OPENAI: JSONObject = {
    "id": "resp_1",
    "model": "gpt-5.6",
    "status": "completed",
    "output": [REASONING, FUNCTION_CALL],
}
OPENAI_STREAM: list[JSONObject] = [  # cut off before `response.completed`: items have to be put together
    {"type": "response.created", "response": {**OPENAI, "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**REASONING, "encrypted_content": "gAA"}},
    {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
    {"type": "response.output_item.added", "output_index": 1, "item": {**FUNCTION_CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": FUNCTION_CALL["arguments"]},
    {"type": "response.output_item.done", "output_index": 1, "item": FUNCTION_CALL},
]


def thought_by_gpt(*, streamed: bool = False) -> cc.Message:
    form = formatter("openai_responses")
    return form.decode_stream(OPENAI_STREAM) if streamed else form.decode_reply(OPENAI)


@pytest.mark.parametrize("streamed", [False, True])
def test_encrypted_reasoning_goes_back_as_it_came(streamed: bool) -> None:
    """litellm#36197; SPEC 2.4: also from a stream, of which the finished item counts and not the begun one."""
    wire = sent("openai_responses", [cc.user("hi"), thought_by_gpt(streamed=streamed), result("a")])
    assert wire[1:3] == [REASONING, FUNCTION_CALL]


@pytest.mark.parametrize(
    ("source", "proofs"),
    [("anthropic", ["sig1", "cmVk", "sig2"]), ("openai_responses", ["gAAAAAB"])],
)
def test_reasoning_survives_a_conversion_to_a_format_that_has_a_place_for_it(source: str, proofs: list[str]) -> None:
    """litellm#36197; SPEC 10.5: to the AI SDK's messages and back, with what proves it."""
    reply = thought_by_claude() if source == "anthropic" else thought_by_gpt()
    wire = sent(source, [cc.user("hi"), reply, result("a")])
    there = list(cast(list[JSONObject], cc.convert(wire, source=source, target="vercel")))
    sound("vercel", there)
    back = list(cast(list[JSONObject], cc.convert(there, source="vercel", target=source)))
    sound(source, back)
    for made in (there, back):
        assert [proof for proof in proofs if f'"{proof}"' in json.dumps(made)] == proofs
    if source == "anthropic":
        assert back == wire


@pytest.mark.parametrize("target", [name for name in NAMES if name not in ("openai_responses", "vercel")])
def test_reasoning_that_a_conversion_cannot_take_along_is_said(target: str) -> None:
    """litellm#36197; SPEC 10.6: never silently."""
    wire = sent("openai_responses", [cc.user("hi"), thought_by_gpt(), result("a")])
    made = cc.convert(wire, source="openai_responses", target=target)
    assert [warning for warning in made.warnings if "left out: reasoning" in warning]
    assert cc.lint(cast(list[JSONObject], made), format=target) == []


SIGNED_CALL: JSONObject = {"functionCall": {"id": "a", "name": "look", "args": {}}, "thoughtSignature": "c2ln"}
LAST_SIGNATURE: JSONObject = {"text": "", "thoughtSignature": "bGFzdA=="}


def thought_by_gemini(*, streamed: bool) -> cc.Message:
    parts: list[JSONObject] = [{"text": "I have to read it.", "thought": True}, SIGNED_CALL, LAST_SIGNATURE]
    form = formatter("gemini")
    if not streamed:
        return form.decode_reply({"candidates": [{"content": {"role": "model", "parts": parts}}]})
    halves = [{"text": "I have to ", "thought": True}, {"text": "read it.", "thought": True}, *parts[1:]]
    return form.decode_stream({"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in halves)


@pytest.mark.parametrize("streamed", [False, True])
def test_signatures_of_gemini_go_back_on_the_part_they_came_on(streamed: bool) -> None:
    """litellm#16893; SPEC 2.4: lost in streaming, where the last one comes on an empty text."""
    wire = sent("gemini", [cc.user("hi"), thought_by_gemini(streamed=streamed), result("a")])
    thought = {"text": "I have to read it.", "thought": True}
    assert wire[1] == {"role": "model", "parts": [thought, SIGNED_CALL, LAST_SIGNATURE]}
    body = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}, "contents": wire}
    assert cc.lint(body, format="gemini") == []


def test_a_call_that_lost_its_signature_is_named_and_healed() -> None:
    """litellm#16893; SPEC 10.6: the stand-in that Google's guide names."""
    wire = sent("gemini", [cc.user("hi"), thought_by_gemini(streamed=True), result("a")])
    bare = {"functionCall": SIGNED_CALL["functionCall"]}
    body: JSONObject = {
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}},
        "contents": [wire[0], {"role": "model", "parts": [bare]}, wire[2]],
    }
    assert codes("gemini", body) == ["GEM012"]
    fixed, _ = cc.fix(body, format="gemini")
    assert fixed["contents"][1] == {"role": "model", "parts": [{**bare, "thoughtSignature": STAND_IN}]}
    assert cc.lint(fixed, format="gemini") == []


PROOFS = {
    "anthropic": ("sig1", "cmVk", "sig2"),
    "openai_responses": ("gAAAAAB", "rs_1", "fc_1"),
    "gemini": ("c2ln", "bGFzdA=="),
}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "vercel"])
@pytest.mark.parametrize("source", PROOFS)
def test_a_signature_goes_to_nobody_but_who_gave_it(name: str, source: str) -> None:
    """llxprt-code#2335; SPEC 2.4: after a switch of providers a foreign one is a 400."""
    replies = {
        "anthropic": thought_by_claude(),
        "openai_responses": thought_by_gpt(),
        "gemini": thought_by_gemini(streamed=False),
    }
    wire = sent(name, [cc.user("hi"), replies[source], result("a"), cc.user("go on")])
    found = [proof for proof in PROOFS[source] if f'"{proof}"' in json.dumps(wire)]
    assert found == (list(PROOFS[source]) if name == source else [])
    assert [line for line in outline(name, wire) if line.startswith(("call", "result"))] == [
        "call a",
        "result a: print(1)",
    ]


def test_the_ai_sdk_is_given_a_signature_under_its_owners_name() -> None:
    """llxprt-code#2335; SPEC 2.4: it hands it to that provider, and the others pass over it."""
    wire = sent("vercel", [cc.user("hi"), thought_by_claude(), result("a")])
    assert [part.get("providerOptions") for part in wire[1]["content"]] == [
        {"anthropic": {"signature": "sig1"}},
        {"anthropic": {"redactedData": "cmVk"}},
        {"anthropic": {"signature": "sig2"}},
        None,
        None,
    ]


def test_another_model_of_the_same_provider_is_sent_the_thinking_still() -> None:
    """llxprt-code#2335; WIRE 4: at Anthropic "unreadable blocks are silently dropped. Keep sending them"."""
    reply = thought_by_claude()
    assert {part.model for part in reply.parts if isinstance(part, cc.Reasoning)} == {"claude-opus-5-5"}
    request = Request(
        messages=(cc.user("hi"), reply, result("a")), settings={"model": "claude-haiku-5-5", "max_tokens": 1024}
    )
    body = formatter("anthropic").encode_request(request)
    assert cc.lint(body, format="anthropic") == []
    assert body["messages"][1]["content"] == CLAUDE["content"]


def test_the_same_format_at_another_provider_is_another_provider() -> None:
    """llxprt-code#2335; SPEC 2.4: one API, several hosts, and signatures that only one of them takes."""
    claude, gpt, gemini = thought_by_claude(), thought_by_gpt(), thought_by_gemini(streamed=False)
    rest = [result("a"), cc.user("go on")]
    elsewhere = cc.AnthropicFormatter(provider="elsewhere").format([cc.user("hi"), claude, *rest])
    assert elsewhere[1]["content"] == [{"type": "text", "text": "Let me look."}, USE]
    elsewhere = cc.OpenAIResponsesFormatter(provider="elsewhere").format([cc.user("hi"), gpt, *rest])
    plain = {key: value for key, value in FUNCTION_CALL.items() if key not in ("id", "status")}
    assert elsewhere[1] == plain
    elsewhere = cc.GeminiFormatter(provider="elsewhere").format([cc.user("hi"), gemini, *rest])
    assert elsewhere[1]["parts"] == [{**SIGNED_CALL, "thoughtSignature": STAND_IN}]


def test_a_tail_that_gave_up_its_reasoning_is_otherwise_what_it_was() -> None:
    """pi#9391; SPEC 9.3: after a compaction signatures are bound to a prefix that is gone; text and calls stay."""
    reply = thought_by_claude()
    bare = replace(reply, parts=tuple(part for part in reply.parts if not isinstance(part, cc.Reasoning)))
    tail = [result("a"), cc.user("go on")]
    before, after = sent("anthropic", [cc.user("hi"), reply, *tail]), sent("anthropic", [cc.user("hi"), bare, *tail])
    assert after[1]["content"] == before[1]["content"][len(THINKING) :]
    assert [*after[:1], *after[2:]] == [*before[:1], *before[2:]]


def test_a_call_and_the_reasoning_before_it_go_together() -> None:
    """pydantic-ai#3230; SPEC 2.4: both as they came; and what led to nothing is not sent."""
    reply = thought_by_gpt()
    assert sent("openai_responses", [cc.user("hi"), reply, result("a")])[1:3] == [REASONING, FUNCTION_CALL]
    alone = replace(reply, parts=reply.parts[:1])
    assert sent("openai_responses", [cc.user("hi"), alone, result("a"), cc.user("?")]) == [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "?"},
    ]


@pytest.mark.parametrize(
    ("reasoning", "code"),
    [
        ({**REASONING, "encrypted_content": "gAAAA" + "x" * 90}, "OAR010"),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, "OAR009"),
    ],
)
def test_a_call_whose_reasoning_cannot_be_sent_goes_without_its_id(reasoning: JSONObject, code: str) -> None:
    """pydantic-ai#3230; SPEC 10.6: by its id OpenAI would miss the reasoning."""
    output = {"type": "function_call_output", "call_id": "a", "output": "1"}
    user = {"role": "user", "content": "hi"}
    body: JSONObject = {"model": "gpt-5.6", "store": False, "input": [user, reasoning, FUNCTION_CALL, output]}
    assert codes("openai_responses", body) == [code]
    fixed, _ = cc.fix(body, format="openai_responses")
    nameless = {key: value for key, value in FUNCTION_CALL.items() if key != "id"}
    assert fixed == {**body, "input": [user, nameless, output]}
    assert cc.lint(fixed, format="openai_responses") == []
