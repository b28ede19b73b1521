"""Anthropic's Messages API, encoded and decoded."""

import base64

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import OPENING_TEXT, split_segments
from contextc.messages import SYNTHETIC_RESULTS, pair_tool_calls
from tests.formats.traffic import Exchange, accepted, events, normal

PLAIN = cc.AnthropicFormatter()
BETWEEN = cc.AnthropicFormatter(system_between=True)
PNG = b"\x89PNG"


def text(words: str) -> JSONObject:
    return {"type": "text", "text": words}


def test_a_history_with_everything_becomes_one_body() -> None:
    """Guarantee 10.3: parallel calls stay in one message, their results come first in the next, nothing is lost or
    doubled.
    """
    history = [
        cc.user([cc.Text("What is this?"), cc.Media(mime_type="image/png", data=PNG)]),
        cc.assistant(
            "Let me look.",
            reasoning=cc.Reasoning(text="Hm.", signature="sig", provider="anthropic"),
            tool_calls=[cc.tool_call("a", "read", {"path": "x"}), cc.tool_call("b", "list", '{"dir": ')],
        ),
        cc.user("and hurry"),
        cc.tool_result("b", "list", "no such folder", is_error=True),
        cc.tool_result("a", "read", [cc.Text("a picture"), cc.Media(mime_type="image/png", data=PNG)]),
        cc.assistant([cc.Reasoning(text="foreign", signature="s", provider="google"), cc.Text("A file.")]),
        cc.user(
            [
                cc.Text("thanks"),
                cc.messages.ProviderBlock(provider="openai", data={"type": "program"}),
                cc.messages.UserNotice("for people"),
            ]
        ),
    ]
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
    }
    assert PLAIN.format(history) == [
        {"role": "user", "content": [text("What is this?"), picture]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                text("Let me look."),
                {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
                {"type": "tool_use", "id": "b", "name": "list", "input": {"malformed_arguments": '{"dir": '}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [text("a picture"), picture]},
                {"type": "tool_result", "tool_use_id": "b", "content": "no such folder", "is_error": True},
                text("and hurry"),
            ],
        },
        {"role": "assistant", "content": [text("A file.")]},
        {"role": "user", "content": [text("thanks"), text("[openai program; not shown]")]},
    ]


def test_the_system_prompt_has_a_place_of_its_own() -> None:
    """Guarantee 8.5."""
    assert PLAIN.get_system_prompt("Be brief.") == "Be brief."
    assert PLAIN.get_system_prompt("") is None
    assert PLAIN.format([cc.user("hi")], "Be brief.") == [{"role": "user", "content": [text("hi")]}]


@pytest.mark.parametrize(
    ("history", "wire"),
    [
        ([cc.user("a"), cc.system("s")], [("user", ["a"]), ("system", ["s"])]),
        ([cc.user("a"), cc.system("s"), cc.assistant("b")], [("user", ["a"]), ("system", ["s"]), ("assistant", ["b"])]),
        (
            [cc.user("a"), cc.system("s"), cc.user("b")],
            [("user", ["a", "<system-reminder>\ns\n</system-reminder>", "b"])],
        ),
        ([cc.system("s"), cc.user("a")], [("user", ["<system-reminder>\ns\n</system-reminder>", "a"])]),
    ],
    ids=["last", "before the assistant", "between two of a person", "first"],
)
def test_a_system_message_between_keeps_its_role_where_its_place_allows(
    history: list[cc.Message], wire: list[tuple[str, list[str]]]
) -> None:
    """Guarantee 10.3: it is never dropped; the API takes it after a user message, last or followed by an assistant."""
    found = BETWEEN.format(history)
    assert [(message["role"], [block["text"] for block in message["content"]]) for message in found] == wire
    assert all(message["role"] != "system" for message in PLAIN.format(history))


def test_a_system_message_behind_one_that_keeps_its_role_keeps_it_too() -> None:
    """As text of the user it would follow a system message, where the API accepts only the assistant."""
    (kept,) = PLAIN.decode_request([{"role": "user", "content": "hi"}, {"role": "system", "content": "one"}]).messages[
        1:
    ]

    messages = PLAIN.format([cc.user("hi"), kept, cc.system("two")])

    assert [message["role"] for message in messages] == ["user", "system"]
    assert cc.lint(messages, format="anthropic") == []


def test_content_that_the_api_refuses_is_not_sent() -> None:
    """Guarantee 10.4, hermes-agent#69512: blank text, empty replies, an assistant at the beginning."""
    assert PLAIN.format([cc.assistant("hi"), cc.user([cc.Text("  "), cc.Text("yes")])]) == [
        {"role": "user", "content": [text(OPENING_TEXT)]},
        {"role": "assistant", "content": [text("hi")]},
        {"role": "user", "content": [text("yes")]},
    ]
    assert PLAIN.format([cc.user("a"), cc.assistant(finish="stop"), cc.user("b")]) == [
        {"role": "user", "content": [text("a"), text("b")]}
    ]


def test_a_dangling_call_is_answered() -> None:
    """Guarantee 5.3: one unanswered call must not spoil every later request."""
    *_, last = PLAIN.format([cc.user("a"), cc.assistant(tool_calls=[cc.tool_call("c", "f", {})]), cc.user("b")])
    assert [block["type"] for block in last["content"]] == ["tool_result", "text"]
    assert last["content"][0]["content"] == SYNTHETIC_RESULTS["interrupted"]


def test_a_history_encoded_as_it_grew_equals_the_same_encoded_at_once() -> None:
    """Guarantee 10.1: a segment is encoded once, and never changes."""
    history: list[cc.Message] = []
    sealed: list[JSONObject] = []
    for number in range(20):
        call = cc.tool_call(f"c{number}", "f", {"n": number})
        history += [
            cc.user(f"question {number}"),
            cc.assistant("looking", tool_calls=[call]),
            cc.tool_result(f"c{number}", "f", "ok"),
            *([cc.system("careful")] if number % 3 == 0 else []),
            cc.assistant(f"answer {number}"),
        ]
        parts = list(split_segments(pair_tool_calls(history).messages))
        encoded = [PLAIN.encode(part) for part in parts]
        whole = PLAIN.format(history)
        assert PLAIN.join(encoded) == whole
        assert whole[: len(sealed)] == sealed
        sealed = whole


CASES = accepted("anthropic")


@pytest.mark.parametrize("exchange", CASES, ids=lambda exchange: exchange.case)
def test_an_accepted_request_comes_back_equal(exchange: Exchange) -> None:
    """Guarantee 10.5: wire, messages, the same wire."""
    assert normal(BETWEEN.encode_request(BETWEEN.decode_request(exchange.request))) == normal(exchange.request)


@pytest.mark.parametrize("exchange", CASES, ids=lambda exchange: exchange.case)
def test_every_reply_decodes_and_goes_back_as_it_came(exchange: Exchange) -> None:
    """Guarantees 2.4, 2.5: thinking, signatures and native blocks unchanged; whole or streamed."""
    if isinstance(exchange.reply, str):
        message = BETWEEN.decode_stream(events(exchange.reply))
    else:
        message = BETWEEN.decode_reply(exchange.reply)
        sent = [block for block in exchange.reply["content"] if block.get("text", "x").strip()]
        replayed = BETWEEN.encode([message]).messages
        assert normal([block for each in replayed for block in each["content"]]) == normal(sent)
    assert message.finish is not None
    assert message.usage is not None
    with cc.open_store("memory:") as store:
        assert store.append("demo", message).parts == message.parts
