"""Validation: which messages a conversation accepts, and the errors for others."""

import re

import pytest

import contextc as cc
from contextc.messages import MAX_BYTES, hash_content, validate_message


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


CALL = cc.ToolCall(id="c1", name="f", arguments={})

REFUSED: dict[str, tuple[object, str]] = {
    "not a message": ({"role": "user", "content": "hi"}, "expected a Message, got dict. Create one"),
    "a result outside a message": (
        cc.ToolResult(call_id="c1", name="f", content="x"),
        "expected a Message, got ToolResult. Pass contextc.tool_result(result.call_id, ",
    ),
    "unknown role": (
        cc.Message(role="robot", parts=(cc.Text("hi"),)),  # pyright: ignore[reportArgumentType]
        "role: must be system, user, assistant or tool, got 'robot'",
    ),
    "empty user": (cc.user(""), "parts: a user message needs text that is not blank"),
    "blank user": (cc.user(" \n\t"), "parts: a user message needs text that is not blank"),
    "hint alone": (cc.user(cc.messages.UserNotice("hi")), "parts: a user message needs text"),
    "blank system": (cc.system("  "), "parts: a system message needs text"),
    "empty assistant": (cc.assistant(), "parts: an assistant message needs text, reasoning, media or a call"),
    "tool without result": (cc.Message(role="tool", parts=(cc.Text("x"),)), "parts: a tool message needs a result"),
    "call without id": (
        cc.assistant(tool_calls=[cc.ToolCall(id="", name="f", arguments={})]),
        "parts[0].id: must be text that is not blank, got ''",
    ),
    "call without name": (
        cc.assistant(tool_calls=[cc.ToolCall(id="c", name=" ", arguments={})]),
        "parts[0].name: must be text",
    ),
    "call without arguments": (
        cc.assistant(tool_calls=[cc.ToolCall(id="c", name="f", arguments=None)]),  # pyright: ignore[reportArgumentType]
        "parts[0].arguments",
    ),
    "result without id": (cc.tool_result("", "f", "x"), "parts[0].call_id: must be text"),
    "result without name": (cc.tool_result("c", "", "x"), "parts[0].name: must be text"),
    "call from a user": (cc.Message(role="user", parts=(cc.Text("x"), CALL)), "parts[1]: a tool call must be in"),
    "result from a user": (
        cc.Message(role="user", parts=(cc.ToolResult(call_id="c", name="f"),)),
        "parts[0]: a tool result must be in a tool message",
    ),
    "reasoning from a user": (cc.user([cc.Text("x"), cc.Reasoning(text="y")]), "parts[1]: reasoning must be in"),
    "text that is none": (cc.user(cc.Text(5)), "parts[0].text: must be text, got int"),  # pyright: ignore[reportArgumentType]
    "part that is none": (
        cc.Message(role="user", parts=("hi",)),  # pyright: ignore[reportArgumentType]
        "parts[0]: must be a part such as Text or ToolCall, got str",
    ),
    "parts that are none": (cc.Message(role="user", parts="hi"), "parts: must be a tuple of parts, got str"),  # pyright: ignore[reportArgumentType]
    "author that is none": (cc.user("x", author=5), "author"),  # pyright: ignore[reportArgumentType]
    "media without bytes": (cc.user(cc.Media(mime_type="image/png")), "media needs exactly one of data, blob"),
    "media with two sources": (
        cc.user(cc.Media(mime_type="image/png", data=b"x", url="https://example.com")),
        "media needs exactly one of",
    ),
    "media data that is text": (
        cc.user(cc.Media(mime_type="image/png", data="x")),  # pyright: ignore[reportArgumentType]
        "parts[0].data: must be bytes, got str",
    ),
    "media type that is none": (
        cc.user(cc.Media(mime_type="png", data=b"x")),
        "parts[0].mime_type: must be a media type such as image/png, got 'png'",
    ),
    "status that is none": (cc.user("x", status="done"), "Use sent, error or cancelled"),  # pyright: ignore[reportArgumentType]
    "NaN": (cc.user("x", meta={"a": [1, {"b": float("nan")}]}), "meta.a[1].b: nan is not a number JSON can hold"),
    "infinity": (
        cc.assistant(tool_calls=[cc.ToolCall(id="c", name="f", arguments={"x": float("inf")})]),
        "parts[0].arguments.x: inf is not a number",
    ),
    "keys that are no text": (cc.user("x", meta={1: 2}), "meta: the key 1 is not a string"),  # pyright: ignore[reportArgumentType]
    "values that are no JSON": (cc.user("x", meta={"a": {1}}), "meta.a: a set is not JSON"),
    "a thousand levels": (
        cc.assistant(tool_calls=[cc.ToolCall(id="c", name="f", arguments=nested(1_000))]),
        "parts[0].arguments: nested deeper than 100 levels. Give it as text instead",
    ),
    "native too deep": (
        cc.assistant(cc.messages.ProviderBlock(provider="x", data=nested(1_000))),
        "parts[0].data: nested deeper",
    ),
    "native of nobody": (
        cc.assistant(cc.messages.ProviderBlock(provider="", data={})),
        "parts[0].provider: must be text",
    ),
    "time that is none": (cc.user("x", time=2**70), "time: must be an integer Unix timestamp in milliseconds"),
    "pending": (cc.user("x", status="pending"), "status: must not be pending"),
    "extra that is no JSON": (cc.user(cc.Text("x", extra={"f": {"a": {1}}})), "parts[0].extra.f.a: a set is not JSON"),
    "extra of a message": (cc.user("x", extra={"f": {"a": float("nan")}}), "extra.f.a: nan is not a number"),
    "blank text with extra": (cc.user(cc.Text(" ", extra={"f": {}})), "parts: a user message needs text"),
    "redacted": (cc.Message(role="user", parts=(cc.Text("x"),), redacted=True), "redacted: must be False"),
}


def test_the_error_for_a_dict_of_an_api_says_how_it_is_decoded() -> None:
    with pytest.raises(cc.errors.InvalidMessage) as caught:
        cc.open_store("memory:").append("demo", {"role": "user", "content": "hi"})  # pyright: ignore[reportArgumentType]
    assert "contextc.OpenAIFormatter().decode_request({'messages': […]}).messages" in caught.value.fix


@pytest.mark.parametrize(("message", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_what_breaks_a_rule_is_refused_with_the_place_and_the_way_out(message: object, problem: str) -> None:
    """Guarantees 2.2, 15.1."""
    with pytest.raises(cc.errors.InvalidMessage, match=re.escape(problem)):
        validate_message(message)  # pyright: ignore[reportArgumentType]


TAKEN: dict[str, cc.Message] = {
    "user with media alone": cc.user(cc.Media(mime_type="image/png", data=b"x")),
    "assistant with reasoning alone": cc.assistant(reasoning="Hm."),
    "assistant with a call alone": cc.assistant(tool_calls=[CALL]),
    "a provider's empty reply": cc.assistant(finish="stop"),
    "a reply that failed at once": cc.assistant(status="error", error="529"),
    "blank text beside a call": cc.assistant(" \n", tool_calls=[CALL]),
    "an empty result": cc.tool_result("c1", "f", None),
    "NUL": cc.user("a\0b"),
    "a hundred levels": cc.assistant(tool_calls=[cc.ToolCall(id="c", name="f", arguments=nested(99))]),
    "huge numbers": cc.user("x", meta={"n": 2**200, "f": 1e300}),
    "every script": cc.user("日本語 العربية 🧑🏽‍🚀 \u2028\u202e"),
}


@pytest.mark.parametrize("message", TAKEN.values(), ids=TAKEN.keys())
def test_what_keeps_the_rules_is_taken_unchanged(message: cc.Message) -> None:
    """Guarantee 2.2: the rules refuse nothing that providers and tools really produce."""
    admitted = validate_message(message).message
    assert admitted.text == message.text
    assert [type(part) for part in admitted.parts] == [type(part) for part in message.parts]


def test_lone_surrogates_become_replacement_characters_and_pairs_are_joined() -> None:
    """No encoding can carry them; a tool's odd file name must not stop an agent."""
    message = cc.user(["a\udcffb", "\ud83d\ude00"], meta={"k\ud800": ["\udfff"]})
    admitted = validate_message(message).message
    assert admitted.text == "a\ufffdb😀"
    assert admitted.meta == {"k\ufffd": ["\ufffd"]}


def test_sixteen_megabytes_of_text_are_taken() -> None:
    text = "x" * (16 << 20)
    assert validate_message(cc.user(text)).message.text == text


def test_more_than_the_limit_is_refused() -> None:
    with pytest.raises(cc.errors.InvalidMessage, match=r"the limit is 268,435,456\. Pass large content as Media"):
        validate_message(cc.user("x" * MAX_BYTES))


def test_what_was_admitted_does_not_change_with_the_callers_dict() -> None:
    """Guarantee 2.1: immutable means that no caller holds references to the content."""
    arguments = {"path": "a.py"}
    admitted = validate_message(cc.assistant(tool_calls=[cc.ToolCall(id="c", name="f", arguments=arguments)]))
    arguments["path"] = "b.py"
    assert admitted.message.tool_calls[0].arguments == {"path": "a.py"}


def test_what_is_not_plainly_one_text_is_checked_and_copied() -> None:
    """The short way for plain texts must let nothing else through."""
    for wrong in (
        cc.assistant(cc.Reasoning(text=5, signature="s")),  # pyright: ignore[reportArgumentType]
        cc.user(cc.Media(mime_type="image/png", url="u", name=5)),  # pyright: ignore[reportArgumentType]
        cc.user("x", audience=5),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(cc.errors.InvalidMessage):
            validate_message(wrong)
    assert validate_message(cc.Message(role="user", parts=[cc.Text("x")])).message.parts == (cc.Text("x"),)  # pyright: ignore[reportArgumentType]
    assert validate_message(cc.user("\ud800")).message.text == "\ufffd"


def test_media_bytes_are_put_aside_under_their_hash() -> None:
    """Guarantee 2.6: bytes once, by sha256."""
    admitted = validate_message(cc.user([cc.Text("look"), cc.Media(mime_type="image/png", data=b"abc")]))
    name = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert admitted.blobs == {name: b"abc"}
    assert admitted.message.parts[1] == cc.Media(mime_type="image/png", blob=name, size=3)


def test_the_hash_covers_content_and_nothing_else() -> None:
    """Guarantee 2.7: role, parts, author and recipients; not time, status, usage, run, turn or step."""
    base = cc.assistant("hi", author="a")
    same = cc.assistant(
        "hi", author="a", run="r", turn=1, step=2, status="error", error="e", time=5, usage=cc.Usage(input=1), uid="u"
    )
    others = [
        cc.user("hi", author="a"),
        cc.assistant("hi!", author="a"),
        cc.assistant("hi", author="b"),
        cc.assistant("hi", author="a", recipients=("b",)),
        cc.assistant("hi", reasoning="?", author="a"),
    ]
    assert hash_content(same) == hash_content(base)
    assert len({hash_content(message) for message in (base, *others)}) == 6


def test_the_order_of_keys_is_kept_but_not_hashed() -> None:
    """A provider may have signed its own order, and equal content is still equal."""
    one = cc.assistant(tool_calls=[cc.ToolCall(id="c", name="f", arguments={"b": 1, "a": 2})])
    two = cc.assistant(tool_calls=[cc.ToolCall(id="c", name="f", arguments={"a": 2, "b": 1})])
    assert list(validate_message(one).message.tool_calls[0].arguments) == ["b", "a"]
    assert hash_content(one) == hash_content(two)
