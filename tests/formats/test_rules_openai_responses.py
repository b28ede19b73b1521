"""Rules of the Responses API: requests that OpenAI refuses, and valid ones that look broken."""

import base64
import json
from typing import cast

import pytest

import contextc as cc
from contextc._json import JSON, JSONObject
from contextc.formats.openai_responses.codec import ITEMS
from contextc.formats.openai_responses.rules import RULES
from contextc.linting import fix
from tests.formats.traffic import FILES

HI: JSONObject = {"role": "user", "content": "hi"}
THOUGHT: JSONObject = {"type": "reasoning", "id": "rs_1", "summary": []}
ANSWER: JSONObject = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello!", "annotations": []}],
}
TOKEN = base64.urlsafe_b64encode(
    b"\x80" + bytes(4) + bytes(range(84))
).decode()  # version, time, vector, two blocks, digest
OWN_ID = "rs_" + "0a" * 25
ODD: list[JSON] = [None, 5, "hi", True, [[]], [None], {}, {"input": 5}, {"input": [{}], "tools": "x"}]
CUSTOM: JSONObject = {"type": "custom_tool_call", "call_id": "a", "name": "sh", "input": "ls"}
CUSTOM_OUTPUT: JSONObject = {"type": "custom_tool_call_output", "call_id": "a", "output": "x"}
SHELL: JSONObject = {"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}}
SCREEN: JSONObject = {"type": "computer_call_output", "call_id": "a", "output": {}}


def call(call_id: str = "a", **fields: JSON) -> JSONObject:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}", **fields}


def output(call_id: str = "a", content: JSON = "1") -> JSONObject:
    return {"type": "function_call_output", "call_id": call_id, "output": content}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in RULES.lint(body)]


def repaired(body: JSON) -> JSON:
    """What `fix` makes of it, which must break no rule any more."""
    fixed, _ = fix(cast(JSONObject, body), format="openai_responses")
    assert codes(fixed) == []
    return cast(JSON, fixed)


@pytest.mark.parametrize(
    "body",
    [
        {"input": "hi", "instructions": None, "tools": None},
        {"conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}, "input": []},
        [HI, call(), HI, call("b"), output("b"), output()],
        [HI, call(), output(), call(), output()],
        [HI, {**call(), "async": True}, HI],
        [HI, {"type": "function_call_output", "name": "timer", "output": "It is noon."}],
        [HI, {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}}],
        [HI, {"role": "assistant", "content": ""}, {"role": "user", "content": []}],
        [HI, {"type": "openrouter:datetime", "id": "x"}],
        [HI, {"type": "compaction_trigger"}],
    ],
)
def test_what_looks_odd_and_is_taken_breaks_no_rule(body: JSON) -> None:
    """Guarantee 10.6: results may stand anywhere later, input may be a string; a checker that cries wolf is turned
    off.
    """
    assert codes(body) == []


@pytest.mark.parametrize("kind", ITEMS.schemas)
def test_every_kind_of_item_is_known_and_missed_when_it_is_empty(kind: str) -> None:
    """Guarantee 10.6: what the vendor's SDK lists is never called unknown; what an item must have is asked for."""
    made: dict[object, JSON] = {str: "a", list: [], dict: {}, bool: True}
    item: JSONObject = {"type": kind, "role": "developer"} if kind == "additional_tools" else {"type": kind}
    for name, kinds in ITEMS.schemas[kind].items():
        if kinds is object:
            continue
        item[name.removesuffix("?")] = made[kinds[0] if isinstance(kinds, tuple) else kinds]
    assert "OAR001" not in codes([HI, item])
    if any(not name.endswith("?") for name in ITEMS.schemas[kind]):
        assert "OAR001" in codes([HI, {"type": kind}])


@pytest.mark.parametrize(
    "held",
    [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"conversation": {"id": "conv_1"}}],
)
def test_a_result_alone_is_sound_where_openai_holds_its_call(held: JSONObject) -> None:
    """FIELD-BUG 4 (agno#9372): the orphan guard must not fire there, and a repair of something else leaves it alone."""
    assert codes({**held, "input": [output()]}) == []
    assert codes([{"type": "item_reference", "id": "fc_1"}, output()]) == []
    assert codes({**held, "input": [output(), output()]}) == ["OAR006"]
    body = {**held, "input": [output(), {"role": "assistant", "content": [{"type": "input_text", "text": "so"}]}]}
    assert codes(body) == ["OAR003"]
    assert repaired(body)["input"][0] == output()


def test_a_result_without_its_call_is_refused_and_becomes_text() -> None:
    """litellm#10696, openai-agents-python#4322: a trimmed history keeps a result without its call."""
    (found,) = RULES.lint([HI, output("call_x", "the weather")])
    assert found.error == "No tool call found for function call output with call_id call_x."
    assert "the weather" in json.dumps(repaired([HI, output("call_x", "the weather")]))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([HI, call()], ["OAR004"]),
        ([HI, output(), call()], ["OAR005", "OAR004"]),
        ([HI, call(), output("b")], ["OAR004", "OAR005"]),
        ([HI, call(), output(), output("a", "2")], ["OAR006"]),
        ([HI, CUSTOM], ["OAR004"]),
        ([HI, CUSTOM, output()], ["OAR004", "OAR005"]),
        ([HI, SHELL], ["OAR004"]),
        ([HI, SCREEN], ["OAR005"]),
    ],
)
def test_calls_and_results_are_held_against_each_other_kind_by_kind(items: JSON, expected: list[str]) -> None:
    """Guarantee 5.1, FIELD-BUG 8 (pydantic-ai#4728): one dangling call makes every later request fail."""
    assert codes(items) == expected
    repaired(items)


def test_a_call_whose_arguments_are_an_object_is_still_a_call() -> None:
    """Guarantee 10.6: one mistake is one finding; its result is not an orphan, and nothing of it is lost."""
    items = [HI, call(arguments={"path": "a.py"}), output()]
    assert codes(items) == ["OAR001"]
    assert repaired(items) == [HI, call(arguments='{"path":"a.py"}'), output()]


def test_an_edited_answer_leaves_reasoning_without_its_item() -> None:
    """The refusal among the recordings (test_openai_responses_thinking_with_modified_history)."""
    edited = [HI, THOUGHT, {"role": "assistant", "content": "The meaning of life is 42"}, HI]
    (found,) = RULES.lint(edited)
    assert found.path == "[1]"
    assert found.error == "Item 'rs_1' of type 'reasoning' was provided without its required following item."
    assert repaired(edited) == [HI, edited[2], HI]


def test_reasoning_before_a_result_without_its_call_is_left_out() -> None:
    """The result becomes text, which is not what the reasoning led to."""
    given = [HI, THOUGHT, CUSTOM_OUTPUT, HI]
    assert codes(given) == ["OAR008", "OAR005"]
    found, _ = fix(given, format="openai_responses")
    assert codes(found) == []
    assert [item.get("role") for item in found] == ["user", "user", "user"]
    assert str(found[1]["content"]).endswith("\nx")


def test_the_finding_equals_the_recorded_refusal() -> None:
    """Guarantee 10.6: each violation with the provider's own error."""
    recorded = [json.loads(line) for line in FILES[0].read_text().splitlines()]
    (refused,) = [each for each in recorded if each["status"] == 400 and "modified_history" in each["case"]]
    assert [found.error for found in RULES.lint(refused["request"])] == [refused["reply"]["error"]["message"]]


def test_a_misplaced_trigger_that_another_repair_removes_is_repaired() -> None:
    trigger = {"type": "compaction_trigger", "encrypted_content": "gAAAAABq" + "Altered" * 10}
    assert repaired([trigger, HI]) == [HI]


@pytest.mark.parametrize("after", [[], [HI], [output()], [{"type": "compaction_trigger"}]])
def test_reasoning_leads_to_something(after: list[JSONObject]) -> None:
    """FIELD-BUG 18 (pydantic-ai#3230) from its other end: a cut behind the reasoning, or a dropped call."""
    assert "OAR008" in codes([HI, THOUGHT, *after])
    repaired([HI, THOUGHT, *after])
    assert codes([HI, THOUGHT, ANSWER, HI]) == []
    assert codes([HI, THOUGHT, {**THOUGHT, "id": "rs_2"}, call(id="fc_1"), output()]) == []


@pytest.mark.parametrize(
    "thought",
    [
        {**THOUGHT, "id": "5d25-46e8"},
        {**THOUGHT, "content": [{"type": "reasoning_text", "text": "hm"}]},
        {**THOUGHT, "encrypted_content": "rsn_of_another_vendor"},
        {"type": "reasoning", "summary": [], "encrypted_content": TOKEN},
    ],
)
def test_reasoning_that_is_not_openais_is_tied_to_nothing(thought: JSONObject) -> None:
    """Guarantee 10.6: DeepSeek, Bedrock and OpenRouter have this API too, and do not tie reasoning to an item."""
    assert codes([HI, thought, {"role": "assistant", "content": "Hello!"}, HI]) == []


def test_without_a_store_nothing_is_known_by_its_id_alone() -> None:
    """The API reference: "Items are not persisted when `store` is set to false"."""
    items = [HI, THOUGHT, ANSWER, {"type": "item_reference", "id": "msg_0"}]
    assert codes({"input": items}) == []
    assert codes({"store": False, "input": items}) == ["OAR009", "OAR009"]
    nameless = {name: value for name, value in ANSWER.items() if name != "id"}
    assert repaired({"store": False, "input": items}) == {"store": False, "input": [HI, nameless]}
    whole = {**THOUGHT, "encrypted_content": TOKEN}
    assert codes({"store": False, "input": [HI, whole, ANSWER]}) == []


@pytest.mark.parametrize(
    "damaged", [TOKEN[:-1], TOKEN[:-4], TOKEN + "AAAA", TOKEN[::-1], TOKEN[8:], TOKEN[:20] + "!" + TOKEN[21:]]
)
def test_truncated_or_overwritten_encrypted_content_is_reported(damaged: str) -> None:
    """FIELD-BUG 16 (llxprt-code#2335): what OpenAI cannot decrypt is refused. What it led to must lose its id as well,
    or OpenAI asks for the reasoning (FIELD-BUG 18)."""
    thought: JSONObject = {"type": "reasoning", "id": OWN_ID, "summary": [], "encrypted_content": TOKEN}
    assert codes([HI, thought, call(id="fc_1"), output()]) == []
    items = [HI, {**thought, "encrypted_content": damaged}, call(id="fc_1"), output()]
    assert codes(items) == ["OAR010"]
    assert repaired(items) == [HI, call(), output()]
    stand_in = {**THOUGHT, "encrypted_content": "not really"}
    assert codes([HI, stand_in, call(id="fc_1"), output()]) == []


def test_a_duplicated_history_is_detected_by_its_ids() -> None:
    """FIELD-BUG 19 (openai-agents-python#1789): "Duplicate item found with id …"."""
    turn = [THOUGHT, ANSWER]
    assert codes([HI, *turn, HI, *turn]) == ["OAR011", "OAR011"]
    nameless = {name: value for name, value in ANSWER.items() if name != "id"}
    assert repaired([HI, *turn, HI, *turn]) == [HI, *turn, HI, nameless]


def test_only_openai_is_held_to_openais_own_limits() -> None:
    """Guarantee 10.6: an id that another vendor gave goes back to it; OpenAI wants its own."""
    foreign: list[JSON] = [HI, call(id="call_a"), output()]
    assert codes({"model": "gpt-5.6", "input": foreign, "max_output_tokens": 1}) == ["OAR012", "OAR016"]
    for model in ("deepseek-v4-flash", "openai/gpt-oss-20b", "gpt-oss-20b", "openai.gpt-5.5", None):
        assert codes({"model": model, "input": foreign, "max_output_tokens": 1}) == []
    assert codes(foreign) == []


def test_a_renamed_tool_is_still_the_chosen_one() -> None:
    """Guarantee 10.4: the name of a tool is the same everywhere."""
    tool: JSONObject = {"type": "function", "name": "files.read", "parameters": {"type": "object"}}
    fixed = repaired({"tools": [tool], "tool_choice": {"type": "function", "name": "files.read"}, "input": "hi"})
    assert fixed["tool_choice"]["name"] == fixed["tools"][0]["name"]


def test_tools_that_came_later_can_be_chosen() -> None:
    """Tools are added by items too, and in groups."""
    tool: JSONObject = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    choice: JSONObject = {"type": "function", "name": "look"}
    added: JSONObject = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    assert codes({"tool_choice": choice, "input": [added, HI]}) == []
    group: JSONObject = {"type": "namespace", "name": "eyes", "description": "", "tools": [tool]}
    assert codes({"tool_choice": choice, "tools": [group], "input": "hi"}) == []
    assert codes({"tool_choice": choice, "tools": [], "input": "hi"}) == ["OAR014"]


def test_shapes_of_the_chat_api_are_reported_and_converted() -> None:
    """Guarantee 10.6: the commonest mistake is a request in OpenAI's other format."""
    body: JSONObject = {
        "instructions": [{"type": "text", "text": "Be brief."}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "input": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
            call(),
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ],
    }
    assert set(codes(body)) == {"OAR001", "OAR004"}
    fixed = repaired(body)
    assert fixed["instructions"] == "Be brief."
    assert fixed["tools"][0]["name"] == "look"
    assert fixed["input"][0]["content"][0]["image_url"] == "https://example.org/a.png"
    assert fixed["input"][1:] == [call(), output()]


@pytest.mark.parametrize("body", ODD)
def test_nothing_is_too_odd_to_be_judged(body: JSON) -> None:
    """Guarantee 10.6: a request comes from anywhere, and may be broken in any way."""
    assert codes(body)


@pytest.mark.parametrize("block", [{"type": "text"}, {"type": "text", "text": [1]}], ids=["missing", "list"])
def test_a_block_of_another_vendor_without_a_text_is_kept_as_it_is(block: JSONObject) -> None:
    """Other vendors know more kinds of blocks, so their shapes are not checked; reading them must not fail."""
    body: JSONObject = {"model": "claude-sonnet-4-5", "input": [{"role": "user", "content": [block]}]}

    fixed, _ = cc.fix(body, format="openai_responses")

    assert fixed["input"] == body["input"]
    there = cc.convert(body, source="openai_responses", target="openai_chat")
    assert cc.lint(dict(there), format="openai_chat") == []


@pytest.mark.parametrize("thought", [{"type": "text", "text": [1]}, "a word", None], ids=["list", "string", "null"])
def test_a_thought_of_another_vendor_without_a_text_is_kept_as_it_is(thought: JSON) -> None:
    """Its shape is not checked, as that of other items is not; reading it must not fail."""
    item: JSONObject = {"type": "reasoning", "id": "a", "summary": [], "content": [thought]}
    body: JSONObject = {"model": "deepseek-v4", "input": [HI, item]}

    fixed, _ = cc.fix(body, format="openai_responses")

    assert fixed["input"] == body["input"]
    assert dict(cc.convert(body, source="openai_responses", target="openai_responses"))["input"] == body["input"]
    there = cc.convert(body, source="openai_responses", target="openai_chat")
    assert cc.lint(dict(there), format="openai_chat") == []


@pytest.mark.parametrize("items", [[SHELL, {"type": "shell_call_output", "output": []}], [CUSTOM, CUSTOM_OUTPUT]])
def test_a_long_id_of_a_native_call_is_shortened_on_the_call_and_its_result(items: list[JSONObject]) -> None:
    given = [HI, *({**item, "call_id": "x" * 70} for item in items), call("b"), output("b")]
    assert codes(given) == ["OAR007"]
    found, _ = fix(given, format="openai_responses")
    assert codes(found) == []
    assert found[1]["call_id"] == found[2]["call_id"]
    assert found[3:] == given[3:]


def test_a_custom_tool_with_an_invalid_name_is_renamed_everywhere() -> None:
    body: JSONObject = {
        "input": [HI, {**CUSTOM, "name": "s.h"}, CUSTOM_OUTPUT],
        "tools": [{"type": "custom", "name": "s.h"}],
        "tool_choice": {"type": "custom", "name": "s.h"},
    }
    found, _ = fix(body, format="openai_responses")
    assert codes(found) == []
    names = {found["input"][1]["name"], found["tools"][0]["name"], found["tool_choice"]["name"]}
    assert names == {"s_x2E_h"}


@pytest.mark.parametrize(
    ("content", "intact"),
    [
        ("rsn_" + "QUJD" * 20, True),
        ("rsn_" + "QUJD" * 20 + "!", False),
        ("AbC-_.:|~" * 10 + "==", True),
        ("AbC def " * 10, False),
    ],
)
def test_encrypted_content_of_other_vendors_has_no_characters_that_were_never_there(content: str, intact: bool) -> None:
    thought: JSONObject = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": content}
    assert ("OAR010" not in codes([HI, thought, ANSWER])) is intact


def test_a_text_as_input_stays_while_tools_are_repaired() -> None:
    body: JSONObject = {"input": "hi", "tools": [{"type": "custom", "name": "s.h"}]}
    found, _ = fix(body, format="openai_responses")
    assert (found["input"], found["tools"]) == ("hi", [{"type": "custom", "name": "s_x2E_h"}])
