"""Claude Code's lines: complete requests, encoded and decoded, as complete as in Anthropic's own format."""

import pytest
from hypothesis import given, settings

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT, Request, split_segments
from contextc.formats.claude_code.codec import TOOL_PREFIX
from contextc.messages import SYSTEM_CONTEXT
from tests.conftest import often
from tests.formats.claude_code_samples import FORM, assistant, outline, result, text, use, user
from tests.formats.histories import History, histories

HISTORY = [
    cc.user(["Look:", cc.Media(mime_type="image/png", data=b"\x89PNG")]),
    cc.assistant(
        [cc.Reasoning(text="Hm.", signature="c2lnbmVk", provider="claude-code"), cc.Text("Let me see.")],
        tool_calls=[cc.tool_call("a", "look", {"at": 1}), cc.tool_call("b", "find", {})],
    ),
    cc.tool_result("a", "look", "a ship"),
    cc.tool_result("b", "find", [cc.Text("two")], is_error=True),
    cc.system("It is late."),
    cc.user("And?"),
]
LINES = [
    user(
        [text("Look:"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}]
    ),
    assistant(
        {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
        text("Let me see."),
        use("a", at=1),
        use("b", "find"),
    ),
    user(
        [
            result("a", "a ship"),
            result("b", [text("two")], is_error=True),
            text("[System Context]: It is late."),
            text("And?"),
        ]
    ),
]


def test_a_request_is_a_set_of_options_and_a_list_of_lines() -> None:
    """Guarantees 10.1, 10.4: the complete body."""
    request = Request(
        messages=tuple(HISTORY),
        system=cc.system("Be brief."),
        tools=(cc.Tool(name="look", description="Looks.", parameters={"type": "object"}),),
        settings={"model": "claude-opus-5-5", "max_turns": 3},
    )
    assert FORM.encode_request(request) == {
        "model": "claude-opus-5-5",
        "max_turns": 3,
        "messages": LINES,
        "system_prompt": "Be brief.",
        "tools": [{"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}],
    }


def test_a_request_comes_back_as_it_was() -> None:
    """Guarantee 10.5: ids, names, errors, media and signed reasoning; system text becomes marked user text."""
    read = FORM.decode_request(LINES)
    assert outline(list(read.messages)) == [
        "user: Look:",
        "user: Media",
        "assistant thinks: Hm.",
        "assistant: Let me see.",
        "assistant calls look as a",
        "assistant calls find as b",
        "tool answers look as a: a ship",
        "tool answers find as b: two",
        "user: [System Context]: It is late.",
        "user: And?",
    ]
    assert read.messages[1].parts == HISTORY[1].parts
    assert FORM.encode_request(read)["messages"] == LINES


@settings(max_examples=often(15, 200), deadline=None)
@given(history=histories())
def test_what_anthropic_keeps_is_kept_here(history: History) -> None:
    """Guarantee 10.5: messages → lines → messages gives what Anthropic's format gives, but for how the system is
    marked.
    """
    other = cc.AnthropicFormatter(provider=FORM.provider)
    theirs = other.decode_request(other.encode_history(history.messages)).messages
    ours = FORM.decode_request(FORM.encode_history(history.messages)).messages
    if theirs and theirs[0].text == OPENING_TEXT:
        theirs = theirs[1:]
    assert [_plain(each) for each in outline(list(ours))] == [_plain(each) for each in outline(list(theirs))]
    assert [(call.id, call.arguments, call.raw) for each in ours for call in each.tool_calls] == [
        (call.id, call.arguments, call.raw) for each in theirs for call in each.tool_calls
    ]
    assert [answer.is_error for each in ours for answer in each.tool_results] == [
        answer.is_error for each in theirs for answer in each.tool_results
    ]


def _plain(said: str) -> str:
    for mark in ("<system-reminder>\n", "\n</system-reminder>", SYSTEM_CONTEXT):
        said = said.replace(mark, "")
    return said.replace("system: ", "user: ")


def test_what_is_marked_already_is_not_marked_again() -> None:
    """Guarantee 9.4: one mark, also if it was set before."""
    marked = FORM.format([cc.user("hi"), cc.assistant("Hi."), cc.system(f"{SYSTEM_CONTEXT}It is late."), cc.user("?")])
    assert marked[-1] == user([text("[System Context]: It is late."), text("?")])


def test_lines_for_a_session_may_begin_with_a_reply() -> None:
    """Guarantee 9.10: what another provider said meanwhile; the session holds what it answers, so nothing is made
    up.
    """
    (segment,) = [FORM.encode(each) for each in split_segments([cc.assistant("Meanwhile."), cc.user("Go on.")])]
    once = FORM.join([segment])
    assert once == [assistant(text("Meanwhile.")), user([text("Go on.")])]
    assert FORM.join([segment], once) == once * 2
    assert FORM.join([segment], once)[0] is once[0]


def test_results_of_calls_that_the_session_holds_are_sent() -> None:
    """Guarantee 9.4: a request that continues a session does not contain the call, and its result is not an orphan."""
    body: JSONObject = {"resume": "6f1d9a52-7a1c-4c0e-9a86-0d4c6f1b2e3a", "messages": [user([result("a", "42")])]}
    assert cc.lint(body, format="claude_code") == []
    assert FORM.encode_request(FORM.decode_request(body)) == body
    assert FORM.encode_request(FORM.decode_request(body["messages"])) == {"messages": []}


def test_our_tools_have_their_own_names_here_and_the_whole_ones_there() -> None:
    """Guarantee 10.4: Claude Code knows them by the server that offers them, and is given back what it said."""
    lines = [user([text("hi")]), assistant(use("a", TOOL_PREFIX + "files_x2E_read")), user([result("a")])]
    read = FORM.decode_request(lines)
    assert [call.name for call in read.messages[1].tool_calls] == ["files.read"]
    assert read.messages[2].tool_results[0].name == "files.read"
    assert FORM.encode_request(read)["messages"] == lines
    assert cc.convert(lines, source="claude_code", target="anthropic").warnings == []


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (
            {"type": "preset", "preset": "claude_code"},
            {"type": "preset", "preset": "claude_code", "append": "Be brief."},
        ),
        ({"type": "custom", "snapshot": False}, {"type": "custom", "snapshot": False, "prompt": "Be brief."}),
    ],
    ids=["preset", "custom"],
)
def test_a_prompt_that_is_an_object_takes_our_text(given: JSONObject, made: JSONObject) -> None:
    """Guarantee 10.1: what the caller set stays, and says what we have to say."""
    request = Request(messages=(cc.user("hi"),), system=cc.system("Be brief."), settings={"system_prompt": given})
    body = FORM.encode_request(request)
    assert body["system_prompt"] == made
    assert FORM.encode_request(FORM.decode_request(body)) == body


def test_settings_go_over_as_far_as_there_is_a_place() -> None:
    """Guarantee 10.1."""
    body: JSONObject = {
        "model": "gpt-5.2",
        "temperature": 0.2,
        "stream": True,
        "reasoning_effort": "minimal",
        "response_format": {"type": "json_schema", "json_schema": {"name": "ship", "schema": {"type": "object"}}},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
    }
    made = cc.convert(body, source="openai_chat", target="claude_code")
    assert made == {
        "model": "gpt-5.2",
        "include_partial_messages": True,
        "effort": "low",
        "output_format": {"type": "json_schema", "schema": {"type": "object"}},
        "messages": [user([text("hi")])],
        "system_prompt": "Be brief.",
    }
    assert "left out: the setting `temperature`, which claude_code does not take" in made.warnings


@pytest.mark.parametrize(
    "reply",
    [
        assistant(text("Hello!"), session_id="s"),
        {"type": "result", "subtype": "success", "is_error": False, "result": "Hello!", "session_id": "s"},
        {"role": "assistant", "content": [text("Hello!")], "session_id": "s"},
    ],
    ids=["line", "result", "message"],
)
def test_a_reply_is_read_in_every_form_it_comes_in(reply: JSONObject) -> None:
    """Guarantee 9.7: `commit` takes what the SDK returned."""
    assert FORM.decode_reply(reply).text == "Hello!"
    assert FORM.session_id_of(reply, "resume") == "s"


def test_a_failed_result_is_a_failed_reply() -> None:
    """Guarantee 11.11: its subtype says success all the same."""
    reply = FORM.decode_reply({"type": "result", "subtype": "success", "is_error": True, "result": "API Error: 529"})
    assert (reply.status, reply.error, reply.parts) == ("error", "API Error: 529", ())


def test_a_session_is_given_only_what_it_does_not_hold() -> None:
    """Guarantee 9.4: the compiler joins lines onto a session of which it has none available."""
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "claude-code:claude-opus-5-5")
    session = "6f1d9a52-7a1c-4c0e-9a86-0d4c6f1b2e3a"
    store.append("talk", cc.user("Hello"))
    first = compiler.compile("talk")
    with compiler.attempt(first) as attempt:
        attempt.commit(assistant(text("Hi."), session_id=session))
    store.append("talk", cc.user("Again"))
    second = compiler.compile("talk")
    assert (first.mode, first.params["messages"]) == ("full", [user([text("Hello")])])
    assert (second.mode, second.params["messages"]) == ("resume", [user([text("Again")])])
    assert second.params["resume"] == session
    assert cc.lint(second.params, format="claude_code") == []


def test_invalid_replies_are_refused() -> None:
    with pytest.raises(cc.errors.InvalidReply):
        FORM.decode_reply({"type": "system", "subtype": "init"})
