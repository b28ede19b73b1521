"""Rules specific to the AI SDK's older format."""

import pytest

from contextc._json import JSON, JSONObject
from contextc.linting import fix, lint

HI: JSONObject = {"role": "user", "content": "hi"}


def call(name: str = "look", call_id: str | None = None, **fields: JSON) -> JSONObject:
    asked: JSONObject = {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": "{}"}}
    return {**asked, **({"tool_call_id": call_id} if call_id else {}), **fields}


def result(name: str = "look", call_id: str | None = None, content: str = "1") -> JSONObject:
    return {"role": "function", "name": name, "content": content, **({"tool_call_id": call_id} if call_id else {})}


def invoked(state: str, **fields: JSON) -> JSONObject:
    each: JSONObject = {"state": state, "toolCallId": "a", "toolName": "look", "args": {}, **fields}
    return {"role": "assistant", "content": "", "toolInvocations": [each]}


def codes(body: JSON) -> list[str]:
    return [violation.code for violation in lint(body, format="vercel_legacy")]


@pytest.mark.parametrize(
    "messages",
    [
        [HI, call("look"), result("look"), call("find"), result("find")],
        [HI, call("look"), call("find"), result("find"), result("look")],
        [HI, call("look", "a"), result("look", "a")],
        [HI, call("look", "a"), result("look")],
        [HI, call("look"), result("look", "a")],
        [HI, call("look"), result("look", content="")],
        [HI, call("look"), {"role": "data", "data": [1]}, result("look")],
        [HI, {**call(), "function_call": '{"function_call": {"name": "look", "arguments": "{}"}}'}, result("look")],
        [HI, invoked("result", result="1")],
        [{"role": "assistant", "content": "Hello!"}, HI],
    ],
)
def test_sound_histories_are_not_flagged(messages: list[JSONObject]) -> None:
    """Guarantee 10.6: a call and its result may be matched by id or by name, and several calls may be pending."""
    assert lint(messages, format="vercel_legacy") == []


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([HI, call(), HI, result()], "VEL006 VEL008"),
        ([HI, call(), {"role": "assistant", "content": "Hm."}, result()], "VEL006 VEL008"),
        ([HI, result(), call()], "VEL008 VEL006"),
        ([HI, call("look", "a"), result("look", "b")], "VEL006 VEL008"),
        ([HI, call("look"), result("find")], "VEL006 VEL008"),
        ([HI, call("look", "a"), result("look", "a"), result("look", "a", "2")], "VEL009"),
        ([HI, {**result(), "function_call": {"name": "look", "arguments": "{}"}}], "VEL001"),
        ([HI, invoked("call")], "VEL007"),
        ([HI, invoked("partial-call", args='{"at": ')], "VEL007"),
        ([HI, {"role": "assistant", "content": ""}], "VEL003"),
        ([HI, {"role": "assistant", "content": None}], "VEL001"),
        ([HI, call(function_call={"arguments": "{}"}), result()], "VEL001 VEL008"),
    ],
)
def test_what_does_not_belong_together_is_flagged_and_fixed(messages: list[JSONObject], found: str) -> None:
    """Guarantee 5.1."""
    assert codes(messages) == found.split()
    assert codes(fix(messages, format="vercel_legacy")[0]) == []


def test_a_call_that_was_stopped_gets_a_result() -> None:
    """FIELD-BUG 9: partial arguments are kept as they were written."""
    fixed, _ = fix([HI, invoked("partial-call", args='{"at": ')], format="vercel_legacy")
    assert fixed[1]["function_call"] == {"name": "look", "arguments": '{"at": '}
    assert fixed[2]["role"] == "function"


def test_a_result_is_brought_back_to_its_call() -> None:
    """Guarantee 5.2: what was said between them comes after."""
    fixed, _ = fix(
        [HI, call("look", "a"), {"role": "user", "content": "hurry"}, result("look", "a")], format="vercel_legacy"
    )
    assert [message["role"] for message in fixed] == ["user", "assistant", "function", "user"]


def test_a_second_result_with_other_content_becomes_text() -> None:
    """Guarantee 5.3: the first wins, and no text is lost."""
    fixed, _ = fix([HI, call(), result(content="one"), result(content="two")], format="vercel_legacy")
    assert [message["role"] for message in fixed] == ["user", "assistant", "function", "user"]
    assert "two" in fixed[3]["content"]


def test_a_result_takes_the_name_of_its_call() -> None:
    """Guarantee 10.4: role `function` needs a name."""
    messages = [HI, call("look", "a"), {"role": "function", "content": "1", "tool_call_id": "a"}]
    assert codes(messages) == ["VEL010"]
    assert fix(messages, format="vercel_legacy")[0][2] == result("look", "a")


def test_roles_that_were_mixed_up_are_put_right() -> None:
    """Guarantee 10.6: a call belongs to the assistant, whatever its role."""
    messages = [HI, {**call(), "role": "user"}, result()]
    assert codes(messages) == ["VEL005"]
    assert fix(messages, format="vercel_legacy")[0] == [HI, call(), result()]


def test_the_error_names_the_place() -> None:
    """Guarantee 10.6."""
    [violation] = lint({"messages": [HI, invoked("call")]}, format="vercel_legacy")
    assert violation.path == "messages[1]"
    assert violation.error.startswith("AI_MessageConversionError: ToolInvocation must have a result: {")


def test_a_call_written_as_text_that_names_no_function_is_repaired() -> None:
    """Guarantee 10.6: text in the place of a call may be any JSON."""
    for text in ('{"name": {"first": "Ada"}}', '{"function_call": "look"}', '{"function_call": [1]}', "{", "hi"):
        fixed, _ = fix([HI, {**call(), "function_call": text}, HI], format="vercel_legacy")
        assert lint(fixed, format="vercel_legacy") == []
