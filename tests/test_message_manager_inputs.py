"""Shapes that `MessageManager.add_message` accepts: each is stored whole, or refused with the unsupported field."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from hypothesis import example, given

import contextc as cc
from contextc._json import JSON, JSONObject, as_objects
from contextc.formats import format_names, formatter
from contextc.formats.base import Formatter
from contextc.messages import ProviderBlock
from contextc.store.ledger_schema import LeftOutReason
from tests.conftest import some
from tests.formats.histories import History, histories
from tests.formats.test_random import FORMATTERS as EVERY_FORMATTER
from tests.formats.test_random import examples
from tests.formats.traffic import accepted, normal
from tests.message_manager_inputs import FORMATTERS, SHAPES, outcome, table

NATIVE = {
    "Anthropic: results beside text": "anthropic",
    "Gemini: results without ids": "gemini",
    "AI SDK: `tool-result`": "vercel",
    "Responses: items, with reasoning": "openai_responses",
}
NOT_SENT = ("no call asked for it", LeftOutReason.PROVIDER_COMPACTED)
"""Why a message is left out although nothing was trimmed."""
SAYING = ("text", "content", "output", "arguments", "encrypted_content", "data", "bytes", "thoughtSignature")
DOCS = Path(__file__).parent.parent / "docs" / "reference" / "formats.md"


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_is_kept_whole_or_refused_by_every_formatter(shape: str) -> None:
    """A call or a result that is lost on the way in makes the model repeat work, and nothing says why."""
    for name, form in FORMATTERS.items():
        items = SHAPES[shape](form)
        if items is None:
            continue
        refused = "does not have" in shape or NATIVE.get(shape, name) != name
        assert outcome(form, items).partition(" ")[0] == ("refused" if refused else "kept"), name
        if "does not have" in shape:
            assert outcome(form, items).endswith("shoeSize"), name


def test_the_table_in_the_docs_is_what_happens() -> None:
    """`python -m tests.message_manager_inputs` prints it."""
    assert table() in DOCS.read_text()


@pytest.mark.parametrize("name", format_names())
def test_recorded_requests_are_taken_message_by_message(name: str) -> None:
    """Real dicts have fields and blocks that no example thinks of: none of their text may be lost."""
    form = formatter(name)
    for exchange in some(accepted(name), 10):
        messages = exchange.request.get(form.messages_key)
        if not isinstance(messages, list):
            continue
        manager = cc.MessageManager(form)
        try:
            for message in cast(list[JSONObject], messages):
                manager.add_message(message)
        except cc.errors.InvalidMessage as error:
            assert "needs text" in error.problem, exchange.case  # noqa: PT017  # an empty reply is the only one refused
            continue
        wire = manager.get_formatted_messages()
        if normal(wire) != normal(messages):  # joined with a neighbour, in the place of the system prompt, an orphan
            prompt = manager.get_formatted_system_prompt()
            orphans = [line.text for line in manager.explain().lines if line.why in NOT_SENT]
            sent = "\n".join([*texts(wire), prompt or "", *orphans])
            assert [text for text in texts(messages) if text not in sent] == [], exchange.case


def texts(value: JSON, key: str = "") -> list[str]:
    """The texts, results, arguments and signatures in a request."""
    if isinstance(value, str):
        return [value] if key in SAYING else []
    if isinstance(value, dict):
        return [text for name, each in cast(JSONObject, value).items() for text in texts(each, name)]
    return [text for each in cast(list[JSON], value) for text in texts(each, key)] if isinstance(value, list) else []


def since_compaction(form: Formatter, wires: list[JSONObject]) -> list[JSONObject]:
    """The messages that are sent: what the provider compacted stands in its block."""
    blocks = [[wire, *as_objects(wire.get("content"))] for wire in wires]
    found = [at for at, some in enumerate(blocks) if any(form.read_compaction(block) for block in some)]
    return wires[found[-1] if found else 0 :]


COMPACTED = History(
    [
        cc.user("«t1»"),
        cc.Message(
            role="assistant",
            parts=(ProviderBlock(provider="openai", data={"type": "compaction", "encrypted_content": "«n2»"}),),
        ),
    ]
)


@examples(3)
@example(COMPACTED)
@given(histories())
def test_any_history_comes_through_one_message_at_a_time(history: History) -> None:
    """Whatever a provider's own messages hold, what was accepted is sent again."""
    for name, form in EVERY_FORMATTER.items():
        wires = form.format(history.messages)
        manager = cc.MessageManager(form)
        try:
            for wire in wires:
                manager.add_message(wire)
        except cc.errors.InvalidMessage as error:
            assert error.field, name  # noqa: PT017
            continue
        sent = json.dumps([manager.get_formatted_messages(), manager.get_formatted_system_prompt()], ensure_ascii=False)
        given_marks = Counter(re.findall(r"«\w+»", json.dumps(since_compaction(form, wires), ensure_ascii=False)))
        assert not given_marks - Counter(re.findall(r"«\w+»", sent)), name


def test_one_dict_may_become_several_messages_and_the_last_is_returned() -> None:
    """A caller that keeps ids needs to know what was stored."""
    manager = cc.MessageManager(cc.AnthropicFormatter())
    manager.add_user_message("go")
    manager.add_assistant_message(None, [cc.tool_call("a", "f", {}), cc.tool_call("b", "g", {})])
    results = [{"type": "tool_result", "tool_use_id": name, "content": name.upper()} for name in ("a", "b")]
    last = manager.add_message({"role": "user", "content": [*results, {"type": "text", "text": "and hurry"}]})
    assert (last.role, last.text, last.seq) == ("user", "and hurry", 4)
    assert [(each.name, each.text) for each in manager.messages[2].tool_results] == [("f", "A"), ("g", "B")]


def test_calls_without_ids_do_not_share_one() -> None:
    """Each dict is read alone, so that its decoder gives the first call of every dict the same id."""
    manager = cc.MessageManager(cc.formats.OllamaFormatter())
    manager.add_user_message("go")
    for number in range(3):
        call = {"function": {"name": "f", "arguments": {"number": number}}}
        manager.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
        manager.add_message({"role": "tool", "tool_name": "f", "content": f"result {number}"})
    calls = [call for message in manager.messages for call in message.tool_calls]
    results = [result for message in manager.messages for result in message.tool_results]
    assert len({call.id for call in calls}) == 3
    assert [result.call_id for result in results] == [call.id for call in calls]


def test_a_result_without_id_needs_a_call_that_waits() -> None:
    manager = cc.MessageManager(cc.GeminiFormatter())
    answer = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "1"}}}]}
    with pytest.raises(cc.errors.InvalidMessage, match="no open call has that name"):
        manager.add_message(answer)
    assert manager.messages == []


def test_a_result_of_a_call_that_another_writer_stored_is_named() -> None:
    """Two managers on one store: the names of calls are read again after another writer."""
    store = cc.open_store("memory:")
    first, second = (cc.MessageManager(cc.AnthropicFormatter(), store=store) for _ in range(2))
    first.add_user_message("go")
    second.add_assistant_message(None, [cc.tool_call("a", "look", {})])
    first.add_message({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]})
    assert first.messages[-1].tool_results[0].name == "look"


def test_reasoning_waits_for_the_item_it_belongs_to() -> None:
    """OpenAI refuses reasoning without the item after it, so the two are one message."""
    manager = cc.MessageManager(cc.formats.OpenAIResponsesFormatter())
    manager.add_user_message("go")
    thought: JSONObject = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABo"}
    assert manager.add_message(thought).id == ""
    assert [message.role for message in manager.messages] == ["user", "assistant"]
    call = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}"}
    with pytest.raises(cc.errors.InvalidMessage, match="shoeSize"):
        manager.add_message({**call, "shoeSize": 44})
    manager.add_message(call)
    assert [message.role for message in manager.messages] == ["user", "assistant"]
    assert manager.get_formatted_messages()[1:3] == [thought, call]
    manager.add_message(thought)
    manager.add_user_message("never mind")  # the item did not come: the reasoning is stored alone
    assert [message.role for message in manager.messages] == ["user", "assistant", "assistant", "user"]


def test_a_field_given_in_both_spellings_is_refused() -> None:
    manager = cc.MessageManager(cc.OpenAIFormatter())
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    with pytest.raises(cc.errors.InvalidMessage, match=r"^toolCalls: .*the same field"):
        manager.add_message({"role": "assistant", "content": None, "toolCalls": [call], "tool_calls": [call]})


def test_a_call_with_a_field_of_its_own_is_refused() -> None:
    """`add_assistant_message` takes calls as dicts too."""
    manager = cc.MessageManager(cc.OpenAIFormatter())
    with pytest.raises(cc.errors.InvalidMessage, match="shoeSize"):
        manager.add_assistant_message(None, [{"id": "a", "function": {"name": "f", "arguments": {}}, "shoeSize": 44}])
    message = manager.add_assistant_message(None, [{"id": "a", "name": "f", "arguments": {"at": 1}}])
    assert (message.tool_calls[0].name, message.tool_calls[0].arguments) == ("f", {"at": 1})


def test_what_is_around_a_message_is_refused_where_it_is_not_stored() -> None:
    """Lines and events have ids and times of their own, which no message has a place for."""
    message = {"role": "user", "content": "hi"}
    item = {"type": "userMessage", "id": "1", "content": [{"type": "text", "text": "hi"}]}
    for form, wire, field in (
        (cc.formats.ClaudeCodeFormatter(), {"type": "user", "message": message, "uuid": "1"}, "uuid"),
        (cc.formats.ClaudeCodeFormatter(), {"type": "user", "message": {**message, "id": "1"}}, "message.id"),
        (cc.formats.CodexFormatter(), {"method": "item/completed", "params": {"item": item, "turnId": "1"}}, "item"),
        (cc.formats.OllamaFormatter(), {**message, "images": ["not base64!"]}, "images[0]"),
    ):
        manager = cc.MessageManager(form)
        with pytest.raises(cc.errors.InvalidMessage) as caught:
            manager.add_message(wire)
        assert (caught.value.field, manager.messages) == (field, [])


def test_a_whole_reply_is_refused_with_the_way_out() -> None:
    manager = cc.MessageManager(cc.AnthropicFormatter())
    reply: JSONObject = {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "hi"}], "usage": {}}
    with pytest.raises(cc.errors.InvalidMessage, match=r"^id: .*add_reply"):
        manager.add_message(reply)
