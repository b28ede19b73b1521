"""Claude Code's lines: complete requests, encoded and decoded, as complete as in Anthropic's own format."""

import pytest
from hypothesis import given, settings

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT, split_segments
from contextc.messages import SYSTEM_CONTEXT
from tests.conftest import often
from tests.formats.claude_code_samples import FORM, assistant, outline, text, user
from tests.formats.histories import History, histories


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


def test_lines_for_a_session_may_begin_with_a_reply() -> None:
    """Guarantee 9.10: what another provider said meanwhile; the session holds what it answers, so nothing is made
    up.
    """
    (segment,) = [FORM.encode(each) for each in split_segments([cc.assistant("Meanwhile."), cc.user("Go on.")])]
    once = FORM.join([segment])
    assert once == [assistant(text("Meanwhile.")), user([text("Go on.")])]
    assert FORM.join([segment], once) == once * 2
    assert FORM.join([segment], once)[0] is once[0]


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
