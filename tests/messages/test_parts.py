"""Message parts: their content, and unusual output of models and tools."""

import pytest

import contextc as cc
from contextc.messages import decode_message, encode_message

DEEP = 1_000

EVERY_PART = cc.Message(
    role="assistant",
    author="coder",
    recipients=("ann", "bob"),
    parts=(
        cc.Reasoning(text="Hm.", signature="sig", data="enc", id="rs_1", provider="anthropic", model="claude"),
        cc.Text("Let me look."),
        cc.Media(mime_type="image/png", url="https://example.com/a.png", name="a.png"),
        cc.messages.ProviderBlock(
            provider="openai", data={"type": "program", "fingerprint": "ü", "n": [1, 2.5, None, True]}
        ),
        cc.ToolCall(id="c1", name="read_file", arguments={"path": "a.py", "lines": {"from": 1}}),
        cc.messages.UserNotice("This may take a while."),
    ),
    usage=cc.Usage(input=10, output=5, cache_read=4),
    meta={"trace": "t1"},
)


def test_every_part_kind_survives_json_both_ways() -> None:
    """Guarantee 2.1: what is stored is what was said."""
    assert decode_message(encode_message(EVERY_PART)) == EVERY_PART


def test_messages_and_parts_are_frozen() -> None:
    """Guarantee 2.1: content cannot be changed, not even by mistake."""
    message = cc.user("hi")
    with pytest.raises(AttributeError):
        message.role = "system"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError):
        message.parts[0].text = "bye"  # pyright: ignore[reportAttributeAccessIssue]


def test_equal_content_is_equal() -> None:
    assert cc.user("hi") == cc.user("hi")
    assert cc.user("hi") != cc.user("hi", author="ann")


def test_unknown_fields_are_refused_not_dropped() -> None:
    """A file of a newer version must not be read as if it said less."""
    with pytest.raises(ValueError, match="unknown field `colour`"):
        decode_message(b'{"role":"user","parts":[{"type":"text","text":"hi","colour":"red"}]}')


def test_arguments_given_as_text_are_parsed_and_kept_raw() -> None:
    """Guarantee 2.3: a provider wants its own spelling back, spaces and all."""
    call = cc.ToolCall(id="c1", name="f", arguments='{ "b": 1, "a": 2 }')  # pyright: ignore[reportArgumentType]
    assert (call.arguments, call.raw, call.malformed) == ({"b": 1, "a": 2}, '{ "b": 1, "a": 2 }', False)


@pytest.mark.parametrize(
    "text",
    ['{"path": "a.py', "[1, 2]", "null", '"text"', "no JSON at all", '{"a": NaN}', "{" * DEEP],
    ids=["cut off", "list", "null", "string", "words", "NaN", "braces"],
)
def test_malformed_arguments_are_kept_raw_and_marked(text: str) -> None:
    """Guarantee 2.3, pi#5538: an abort in the middle of the arguments must not make the conversation unusable."""
    call = cc.ToolCall(id="c1", name="f", arguments=text)  # pyright: ignore[reportArgumentType]
    assert (call.arguments, call.raw, call.malformed) == ({}, text, True)


def test_arguments_nested_a_thousand_deep_are_kept_raw_and_marked() -> None:
    """Guarantee 2.3: nothing crashes, and what is stored can always be loaded."""
    text = '{"a":' * DEEP + "1" + "}" * DEEP
    call = cc.ToolCall(id="c1", name="f", arguments=text)  # pyright: ignore[reportArgumentType]
    assert (call.raw, call.malformed) == (text, True)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_blank_arguments_mean_no_arguments(text: str) -> None:
    """vercel/ai#14349: models call a tool without parameters by writing nothing."""
    call = cc.ToolCall(id="c1", name="f", arguments=text)  # pyright: ignore[reportArgumentType]
    assert (call.arguments, call.raw, call.malformed) == ({}, text, False)


def test_half_an_emoji_in_the_arguments_does_not_spoil_the_call() -> None:
    """A model that cuts an emoji in two still meant the rest."""
    text = '{"mood": "\\ud83d", "n": 1}'
    call = cc.ToolCall(id="c1", name="f", arguments=text)  # pyright: ignore[reportArgumentType]
    assert (call.arguments, call.malformed) == ({"mood": "\ufffd", "n": 1}, False)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, ""),
        ("", ""),
        ("plain", "plain"),
        (3, "3"),
        (True, "true"),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([], "[]"),
        (["x", "y"], '["x","y"]'),
        (["bad \udcff name"], '["bad \ufffd name"]'),
        ({1: ("a", 2)}, '{"1":["a",2]}'),
    ],
)
def test_results_become_text(value: object, stored: str) -> None:
    """Guarantee 2.2: `None` becomes the empty text, other values JSON; a file name that is not UTF-8 raises
    no error.
    """
    (result,) = cc.tool_result("c1", "f", value).tool_results
    assert result.content == stored


def test_results_may_hold_media() -> None:
    picture = cc.Media(mime_type="image/png", data=b"\x89PNG")
    (result,) = cc.tool_result("c1", "screenshot", ["The page:", picture][1:]).tool_results
    assert result.content == (picture,)
    (result,) = cc.tool_result("c1", "screenshot", [cc.Text("The page:"), picture]).tool_results
    assert result.text == "The page:"


def test_texts_and_media_may_be_mixed_in_a_result() -> None:
    """As in a user message: text among parts is a part."""
    picture = cc.Media(mime_type="image/png", data=b"\x89PNG")
    (result,) = cc.tool_result("c1", "f", ["The page:", picture]).tool_results
    assert result.content == (cc.Text("The page:"), picture)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), r"content: cannot convert object to a tool result .* Return text"),
        (float("nan"), r"content: nan is not a number"),
        ({"a": [float("inf")]}, r"content\.a\[0\]: inf is not a number"),
        (b"abc", r"content: a bytes is not JSON.*\[Media"),
        ({"shot": cc.Media(mime_type="image/png", data=b"x")}, r"content\.shot.*Pass bytes as a list of parts"),
        ([cc.Text("x"), {"a": 1}], r"content: a tool result may contain only text and media"),
    ],
)
def test_a_result_that_cannot_be_stored_is_reported(value: object, problem: str) -> None:
    """Guarantee 15.1: what is wrong, where, and the way out."""
    with pytest.raises(cc.errors.InvalidMessage, match=problem):
        cc.tool_result("c1", "f", value)


def test_the_short_forms_take_what_sdks_give() -> None:
    """OpenAI's content is None whenever there are calls."""
    call = cc.tool_call("c1", "f", '{"a": 1}')
    assert call == cc.ToolCall(id="c1", name="f", arguments={"a": 1}, raw='{"a": 1}')
    assert cc.assistant(None, tool_calls=[call]).parts == (call,)
    for wrong in (5, b"abc"):
        with pytest.raises(cc.errors.InvalidMessage, match=r"content: must be text, a part such as Media, .* got \w+"):
            cc.user(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidMessage, match="tool_calls: must be a list of calls, got one call"):
        cc.assistant(tool_calls=call)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("mime_type", "kind"),
    [("image/png", "image"), ("audio/wav", "audio"), ("video/mp4", "video"), ("application/pdf", "document")],
)
def test_media_has_a_kind(mime_type: str, kind: str) -> None:
    assert cc.Media(mime_type=mime_type, url="https://example.com").kind == kind


def test_a_message_reads_as_its_text_calls_and_results() -> None:
    call = cc.ToolCall(id="c1", name="f", arguments={})
    message = cc.assistant("Let me look.", reasoning="Where?", tool_calls=[call])
    assert (message.text, message.tool_calls) == ("Let me look.", (call,))
    assert [type(part) for part in message.parts] == [cc.Reasoning, cc.Text, cc.ToolCall]
