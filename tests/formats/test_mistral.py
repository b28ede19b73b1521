"""Mistral's chat completions, encoded and decoded."""

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.base import split_segments
from contextc.formats.mistral import MistralFormatter
from tests.formats.known import problems
from tests.formats.known.mistral import ID, OLDER, objection

MISTRAL = MistralFormatter()


def call(id: str, name: str, arguments: JSON) -> JSONObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chunk(delta: JSONObject, finish: str | None = None, **rest: JSON) -> JSONObject:
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **rest}


@pytest.mark.parametrize("version", OLDER)
def test_older_models_take_it_too_where_nothing_new_is_in_it(version: str) -> None:
    """The first models with tools required either text or calls; those before v11 have no reasoning."""
    asked = cc.assistant(tool_calls=[cc.tool_call("a", "look", "{}"), cc.tool_call("b", "look", "{}")])
    plain = [cc.user("hi"), asked, cc.tool_result("b", "look", "1"), cc.tool_result("a", "look", "2"), cc.user("so?")]
    assert objection({"messages": MISTRAL.format(plain, "Be brief.")}, version) == ""
    spoken = [cc.user("hi"), cc.assistant("Hm.", tool_calls=asked.tool_calls)]
    assert bool(objection({"messages": MISTRAL.format(spoken)}, version)) is (version == "v3")


def test_an_id_of_its_own_stays_and_any_other_is_always_the_same_nine_letters() -> None:
    """A call and its result agree wherever they are written, and what Mistral wrote is never touched."""
    assert MISTRAL.name_codec.encode_id(ID) == ID
    foreign = ["toolu_01A", "call_PTLP8xhu3uwZk4l3nlnrrJha", "", "ü" * 30, "a1b2c3d4", "a1b2c3d4e\n", "a1b2c3d4_"]
    spelled = [MISTRAL.name_codec.encode_id(each) for each in foreign]
    assert len(set(spelled)) == len(foreign)
    assert all(len(each) == 9 and each.isascii() and each.isalnum() for each in spelled)
    assert spelled == [MISTRAL.name_codec.encode_id(each) for each in spelled]
    assert MISTRAL.name_codec.encode_id("toolu_01A") == "XagOdEPT3"  # as it was in every version


def test_a_conversation_that_ends_with_the_assistant_is_gone_on_with() -> None:
    """`prefix` on the last message alone, also where the history grows afterwards."""
    history = [cc.user("Count."), cc.assistant("One, ")]
    first = MISTRAL.format(history)
    assert first[-1] == {"role": "assistant", "content": "One, ", "prefix": True}
    later = [MISTRAL.encode(segment) for segment in split_segments([cc.user("go on")])]
    assert MISTRAL.join(later, first) == [*first[:-1], {"role": "assistant", "content": "One, "}, *later[0].messages]
    assert MISTRAL.decode_request(first).messages == tuple(history)


def test_a_stream_of_chunks_and_text_is_one_message() -> None:
    """Guarantee 10.1: reasoning arrives in lists and is joined, the last one signed; the usage comes with the last
    chunk, and a call has its number or the SDK's placeholder for no id.
    """
    pieces = [[{"type": "text", "text": text}] for text in ("2", "+", "2")]
    thoughts: list[JSONObject] = [{"type": "thinking", "thinking": piece} for piece in pieces]
    thoughts[-1] |= {"signature": "c2lnbmVk", "closed": True}
    first, rest = call(ID, "look", '{"at"'), {"id": "null", "function": {"name": "", "arguments": ":1}"}, "index": 0}
    events = [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": [thought]}) for thought in thoughts),
        chunk({"content": "Hel"}),
        chunk({"content": [{"type": "text", "text": "lo"}]}),
        chunk({"content": "", "tool_calls": [{**first, "index": 0}]}),
        chunk({"content": "", "tool_calls": [rest]}),
        chunk(
            {"content": ""}, "tool_calls", usage={"prompt_tokens": 7, "completion_tokens": 3, "num_cached_tokens": 4}
        ),
    ]
    message = MISTRAL.decode_stream(events)
    assert message.parts == (
        cc.Reasoning(
            text="2+2", signature="c2lnbmVk", provider="mistral", model="m", extra={"mistral": {"closed": True}}
        ),
        cc.Text("Hello"),
        cc.tool_call(ID, "look", '{"at":1}'),
    )
    assert (message.finish, message.usage) == ("tool_calls", cc.Usage(input=7, output=3, cache_read=4))
    assert MISTRAL.decode_stream([{"data": event} for event in events]) == message  # as the SDK gives them
    reader = MISTRAL.create_reader()
    deltas = [delta for event in events for delta in reader.read(event)]
    assert "".join(delta.text for delta in deltas if isinstance(delta, cc.Reasoning)) == "2+2"
    assert "".join(delta.text for delta in deltas if isinstance(delta, cc.Text)) == "Hello"
    assert "".join(delta.raw or "" for delta in deltas if isinstance(delta, cc.ToolCall)) == '{"at":1}'
    assert (reader.message(), reader.finished) == (message, True)


HI: JSONObject = {"role": "user", "content": "hi"}


def thinks(text: str, **marks: JSON) -> JSONObject:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}] if text else [], **marks}


def test_a_thought_that_is_one_text_is_read_and_comes_back_so() -> None:
    """Guarantee 10.5: some write it so. A reply's goes back as Mistral takes it, streamed or whole."""
    plain: JSONObject = {"type": "thinking", "thinking": "Hm."}
    wire: list[JSONObject] = [HI, {"role": "assistant", "content": [plain, {"type": "text", "text": "4"}]}, HI]
    messages = MISTRAL.decode_request(wire).messages
    assert [part.text for part in messages[1].parts if isinstance(part, cc.Reasoning)] == ["Hm."]
    assert MISTRAL.format(messages) == wire
    reply = MISTRAL.decode_reply(
        {"model": "m", "choices": [{"message": {"content": [plain]}, "finish_reason": "stop"}]}
    )
    events = [chunk({"content": [plain]}), chunk({"content": ""}, "stop")]
    reader = MISTRAL.create_reader()
    assert [delta for event in events for delta in reader.read(event)] == [
        cc.Reasoning(text="Hm.", provider="mistral", model="m")
    ]
    assert reader.message().parts == reply.parts
    wire = MISTRAL.format([cc.user("hi"), reply, cc.user("hi")])
    assert wire[1]["content"] == [thinks("Hm.")]
    assert problems("mistral", wire) == []
