"""Streams of real endpoints: split at odd places, truncated, or with an error in the middle."""

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats import formatter
from tests.formats.known import having, known


def chunk(**delta: JSON) -> JSONObject:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


END: JSONObject = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
CHAT = cc.OpenAIFormatter()


def piece(arguments: str, *, id: str | None = None, index: int | None = None, name: str | None = None) -> JSONObject:
    made: JSONObject = {"function": {"arguments": arguments} | ({"name": name} if name else {})}
    return made | ({"id": id} if id else {}) | ({"index": index} if index is not None else {})


@pytest.mark.parametrize(
    "pieces",
    [
        [piece('{"x":', id="a", index=0, name="f"), piece("1}", index=0), piece("{}", id="b", index=1, name="g")],
        [piece('{"x":', id="a", name="f"), piece("1}"), piece("{}", id="b", name="g")],
        [piece('{"x":', id="a", index=0, name="f"), piece("1}", index=0), piece("{}", id="b", index=0, name="g")],
        [
            piece('{"x":', id="a", index=0, name="f"),
            piece("1}", id="a", index=0, name="f"),
            piece("{}", id="b", name="g"),
        ],
    ],
    ids=["as OpenAI", "without index", "one index for all", "names repeated"],
)
def test_calls_are_put_together_however_they_were_cut(pieces: list[JSONObject]) -> None:
    """Guarantee 10.1: a new id is a new call; a piece without one goes on with the last."""
    message = CHAT.decode_stream([*(chunk(tool_calls=[each]) for each in pieces), END])
    assert [(call.id, call.name, call.arguments) for call in message.tool_calls] == [
        ("a", "f", {"x": 1}),
        ("b", "g", {}),
    ]


def test_blocks_and_text_may_take_turns_in_a_stream() -> None:
    """Mistral's thinking comes in blocks, its answer as text."""
    thought: JSONObject = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    message = CHAT.decode_stream([chunk(content=[thought]), chunk(content="Hel"), chunk(content="lo"), END])
    assert message.text == "Hello"
    assert (
        CHAT.decode_stream([chunk(content="Hi "), chunk(content=[{"type": "text", "text": "you"}]), END]).text
        == "Hi you"
    )


def test_a_stream_that_was_cut_off_does_not_look_complete() -> None:
    """Guarantee 4.5: the stored reply must show it."""
    assert CHAT.decode_stream([chunk(content="half")]).finish is None
    assert CHAT.decode_stream([chunk(content="whole"), END]).finish == "stop"


@pytest.mark.parametrize("name", having("BROKEN"))
def test_an_error_in_the_middle_is_kept_with_what_came_before(name: str) -> None:
    """Guarantee 11.10: the partial text with its status, and the provider's reason."""
    message = formatter(name).decode_stream(known(name).BROKEN)
    assert (message.text, message.status, message.error, message.finish) == ("half", "error", "overloaded", "error")


def test_figures_that_come_late_do_not_wipe_out_earlier_ones() -> None:
    """Anthropic repeats its usage at the end, with nulls for what it said before."""
    message = cc.AnthropicFormatter().decode_stream(
        [
            {"type": "message_start", "message": {"role": "assistant", "usage": {"input_tokens": 7}}},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"input_tokens": None, "output_tokens": 3},
            },
        ]
    )
    assert message.usage is not None
    assert (message.usage.input, message.usage.output) == (7, 3)
