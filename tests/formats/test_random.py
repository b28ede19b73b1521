"""Random histories in every format: whatever a log holds, the request keeps the provider's rules and loses no text."""

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contextc as cc
from contextc._json import JSONObject
from contextc.formats.base import Formatter, segments
from contextc.pairing import pair

IDS = st.sampled_from(["a", "b", "c"])
WORDS = st.sampled_from(["yes", "no", "日本", " ", "x\0y"])
ARGUMENTS = st.sampled_from(["{}", '{"path": "a.py"}', '{"cut": ', ""])
PNG = cc.Media(mime_type="image/png", data=b"\x89PNG")

USER = st.lists(
    st.one_of(
        WORDS.map(cc.Text),
        st.sampled_from(
            [
                PNG,
                cc.Media(mime_type="audio/wav", data=b"RIFF"),
                cc.Media(mime_type="application/pdf", url="https://example.com/a.pdf"),
                cc.Native(provider="nobody", data={"type": "odd"}),
                cc.Hint("for people"),
            ]
        ),
    ),
    min_size=1,
    max_size=3,
).map(cc.user)


@st.composite
def replies(draw: st.DrawFn) -> cc.Message:
    thought = draw(st.sampled_from([None, "hm", cc.Reasoning(text="t", signature="s", provider="anthropic")]))
    ids = draw(st.lists(IDS, max_size=3, unique=True))
    calls = [cc.tool_call(id, f"tool_{id}", draw(ARGUMENTS)) for id in ids]
    return cc.assistant(draw(WORDS), reasoning=thought, tool_calls=calls, finish="stop")


@st.composite
def results(draw: st.DrawFn) -> cc.Message:
    id, content = draw(IDS), draw(st.sampled_from(["", "ok", {"n": 1}, [cc.Text("see"), PNG]]))
    return cc.tool_result(id, f"tool_{id}", content, is_error=draw(st.booleans()))


HISTORY = st.lists(st.one_of(USER, replies(), results(), WORDS.map(cc.system)), max_size=10)


def check_anthropic(messages: list[JSONObject]) -> None:
    """The rules of Anthropic's grammar that have nothing to do with a model."""
    waiting: list[str] = []
    for number, message in enumerate(messages):
        blocks = cast(list[JSONObject], message["content"])
        assert message["role"] == ("user" if number % 2 == 0 else "assistant")
        assert blocks
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answers == waiting
        assert [block["type"] for block in blocks[: len(answers)]] == ["tool_result"] * len(answers)
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len(set(waiting)) == len(waiting)
    assert waiting == []


def check_chat(messages: list[JSONObject]) -> None:
    """Each call is answered by a tool message before anything else is said."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert waiting == []
        calls = cast(list[JSONObject], message.get("tool_calls") or [])
        waiting = [call["id"] for call in calls]
        assert message["content"] or calls
    assert waiting == []


FORMATS: dict[str, tuple[Formatter, Callable[[list[JSONObject]], None]]] = {
    "anthropic": (cc.AnthropicFormatter(), check_anthropic),
    "openai_chat": (cc.OpenAIFormatter(), check_chat),
}


def said(history: list[cc.Message]) -> list[str]:
    """The words of a history, in order."""
    return [
        part.text for message in history for part in message.parts if isinstance(part, cc.Text) and part.text.strip()
    ]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=1_000)
@given(history=HISTORY)
def test_every_request_keeps_the_rules(name: str, history: list[cc.Message]) -> None:
    """SPEC 5.1, 10.4, 10.5."""
    formatter, check = FORMATS[name]
    check(formatter.format(history))


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=1_000)
@given(history=HISTORY)
def test_no_text_is_lost_doubled_or_reordered(name: str, history: list[cc.Message]) -> None:
    """SPEC 10.3: what people and models said comes back in its order, and so do calls and arguments."""
    formatter, _ = FORMATS[name]
    paired = pair(history).messages
    request = formatter.decode_request({"messages": formatter.format(history)})
    decoded = [*([request.system] if request.system else []), *request.messages]
    found = " ".join(said(decoded))
    for words in said(paired):
        assert words in found
        found = found[found.index(words) + len(words) :]
    calls = [(call.id, call.name, call.malformed) for message in paired for call in message.tool_calls]
    assert len([call for message in decoded for call in message.tool_calls]) == len(calls)


EVERY = [
    cc.AnthropicFormatter(),
    cc.GeminiFormatter(),
    cc.OpenAIFormatter(),
    cc.OpenAIResponsesFormatter(),
    cc.VercelFormatter(),
    cc.VercelLegacyFormatter(),
]


@pytest.mark.parametrize("formatter", EVERY, ids=lambda formatter: formatter.name)
@settings(max_examples=300)
@given(history=HISTORY)
def test_a_segment_encoded_alone_is_what_it_is_in_the_whole(formatter: Formatter, history: list[cc.Message]) -> None:
    """SPEC 10.1: encoding as it grew equals encoding at once, for any history and every format."""
    parts = list(segments(pair(history, unique_ids=formatter.unique_ids).messages))
    encoded = [formatter.encode(part) for part in parts]
    before = [list(each.messages) for each in encoded]
    assert formatter.join(encoded) == formatter.format(history)
    assert [list(each.messages) for each in encoded] == before
