"""MessageManager, in memory and on every store."""

import logging
import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import contextc as cc
from contextc._json import JSONObject
from contextc.manager.message_manager import PlainFormatter
from contextc.messages import Message
from tests.conftest import often


def fill(manager: cc.MessageManager) -> None:
    manager.add_user_message("What is in a.py?")
    openai = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    manager.add_assistant_message(None, [openai, cc.ToolCall(id="c2", name="list", arguments={})])
    manager.add_tool_result("c1", "read", {"lines": ["print(1)"]})
    manager.add_tool_result("c2", "list", None)
    manager.add_assistant_message("It prints 1.")


def test_a_history_is_handed_to_any_vendor_in_its_own_shape() -> None:
    """Guarantee 14.1: the formatter can be changed at any time, and no call is lost."""
    manager = cc.MessageManager(cc.AnthropicFormatter(), system_prompt="Be brief.")
    fill(manager)
    assert manager.get_formatted_system_prompt() == "Be brief."
    assert [message["role"] for message in manager.get_formatted_messages()] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    manager.formatter = cc.OpenAIFormatter()
    assert manager.get_formatted_system_prompt() is None
    roles = [message["role"] for message in manager.get_formatted_messages()]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert manager.get_formatted_messages()[3]["content"] == '{"lines":["print(1)"]}'
    assert manager.get_formatted_messages()[4]["content"] == ""


def test_a_sliding_window_leaves_out_single_messages() -> None:
    """Guarantee 7.4: as in the compiler, within `max_tokens` or the window of the model less its longest answer."""
    manager = cc.MessageManager(cc.OpenAIFormatter(), "S", 120, policy="sliding_window")
    for number in range(9):
        manager.add_user_message(f"question {number} " + "word " * 8)
        manager.add_assistant_message(f"answer {number} " + "word " * 8)
    manager.add_user_message("the new message")
    sent = manager.get_formatted_messages()
    assert [message["role"] for message in sent[:2]] == ["system", "assistant"]
    assert sent[-1]["content"] == "the new message"
    with pytest.raises(cc.errors.InvalidSetting, match="policy"):
        cc.MessageManager(cc.OpenAIFormatter(), policy="window")  # pyright: ignore[reportArgumentType]


def test_the_system_prompt_may_change_and_go() -> None:
    """Guarantee 8.5: an empty one produces no message."""
    manager = cc.MessageManager(cc.OpenAIFormatter(), "a")
    manager.set_system_prompt("b")
    manager.add_user_message("hi")
    assert (manager.get_system_prompt(), manager.get_formatted_messages()[0]["content"]) == ("b", "b")
    manager.set_system_prompt("")
    assert (manager.get_system_prompt(), len(manager.get_formatted_messages())) == (None, 1)
    with pytest.raises(cc.errors.InvalidSetting, match="system_prompt must be a string, got int"):
        manager.set_system_prompt(5)  # pyright: ignore[reportArgumentType]  # what is wrong is tested


def test_the_prompt_and_the_limit_can_be_set_and_nothing_else() -> None:
    """Guarantee 14.1: an assignment has an effect, or it raises."""
    manager = cc.MessageManager(cc.OpenAIFormatter(), "Be brief.")
    manager.add_user_message("word " * 40)
    manager.system_prompt = "Be kind."
    assert manager.get_formatted_messages()[0]["content"] == manager.system_prompt == "Be kind."
    manager.max_tokens = 20
    with pytest.raises(cc.errors.ContextOverflow):
        manager.get_formatted_messages()
    manager.max_tokens = None
    assert len(manager.get_formatted_messages()) == 2
    for name, value in (("max_tokens", 0), ("system_prompt", 5)):
        with pytest.raises(cc.errors.InvalidSetting, match=name):
            setattr(manager, name, value)
    for name in ("sytem_prompt", "model", "policy", "messages"):
        with pytest.raises(AttributeError, match=name):
            setattr(manager, name, "x")


def test_misspelled_options_of_a_compiler_and_a_prompt_raise() -> None:
    """Guarantee 15.1: an option that is set where it has no effect is refused."""
    for each in (cc.MessageCompiler(cc.open_store("memory:"), "openai-chat:gpt-4o"), cc.PromptBuilder()):
        with pytest.raises(AttributeError, match="policy"):
            setattr(each, "policy", "sliding_window")  # noqa: B010


def test_the_fix_for_an_unknown_model_works() -> None:
    """Guarantee 15.1: what the error advises can be passed, as a provider and as a model."""
    with pytest.raises(cc.errors.UnknownModel) as error:
        cc.MessageManager(cc.OpenAIFormatter(), model="made-up")
    advised = re.findall(r'cc\.provider\("…:(\S+)", window=128_000, output=8_000\)', str(error.value))
    assert advised == ["made-up"]
    provider = cc.provider(f"openai-chat:{advised[0]}", window=128_000, output=8_000)
    for model in (provider, provider.model):
        manager = cc.MessageManager(cc.OpenAIFormatter(), model=model)
        manager.add_user_message("hi")
        assert manager.get_formatted_messages() == [{"role": "user", "content": "hi"}]


def test_plain_dicts_are_taken_and_wrong_ones_refused() -> None:
    """An unknown role is an error, not a log line."""
    manager = cc.MessageManager(cc.OpenAIFormatter())
    for message in (
        {"role": "system", "content": "careful"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "name": "f", "content": "ok"},
    ):
        manager.add_message(message)
    assert [message["role"] for message in manager.get_formatted_messages()] == ["system", "user", "assistant", "tool"]
    for wrong in ({"role": "robot", "content": "x"}, {"role": "user"}, {"content": "x"}):
        with pytest.raises(cc.errors.InvalidMessage):
            manager.add_message(wrong)


def test_reset_starts_over() -> None:
    manager = cc.MessageManager(cc.OpenAIFormatter())
    manager.reset()
    assert manager.get_formatted_messages() == []
    fill(manager)
    manager.reset()
    manager.add_user_message("again")
    assert [message["content"] for message in manager.get_formatted_messages()] == ["again"]


def test_it_works_on_any_store_and_keeps_the_record(store: cc.Store) -> None:
    """Guarantees 14.1, 3.4: a reset on a store destroys nothing."""
    manager = cc.MessageManager(cc.AnthropicFormatter(), store=store, conversation="demo")
    assert manager.get_formatted_messages() == []
    fill(manager)
    manager.add_user_message([cc.Text("look"), cc.Media(mime_type="image/png", data=b"\x89PNG")])
    again = cc.MessageManager(cc.AnthropicFormatter(), store=store, conversation="demo")
    assert again.get_formatted_messages() == manager.get_formatted_messages()
    assert again.get_formatted_messages()[-1]["content"][1]["source"]["data"] == "iVBORw=="
    again.reset()
    assert (again.messages, len(store.load("demo"))) == ([], 6)


def test_a_limit_limits() -> None:
    """Guarantees 14.1, 7.2: whole turns go, oldest first; the last one stays, or an error reports that it
    does not fit.
    """
    manager = cc.MessageManager(cc.OpenAIFormatter(), system_prompt="Be brief.", max_tokens=600, model="gpt-4.1")
    for number in range(20):
        manager.add_user_message(f"question {number} " + "word " * 40)
        messages = manager.get_formatted_messages()
        assert messages[0] == {"role": "system", "content": "Be brief."}
        assert messages[1]["role"] == "user"
        assert messages[-1]["content"].startswith(f"question {number} ")
        manager.add_assistant_message(f"answer {number} " + "text " * 40)
    assert 3 < len(manager.get_formatted_messages()) < 14
    assert len(manager.messages) == 40
    manager.add_user_message("word " * 1000)
    with pytest.raises(cc.errors.ContextOverflow, match=r"but 5.. are available: 600, less.*`max_tokens`"):
        manager.get_formatted_messages()
    for wrong in (0, -1, "8000"):
        with pytest.raises(cc.errors.InvalidSetting, match="max_tokens"):
            cc.MessageManager(cc.OpenAIFormatter(), max_tokens=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(cc.errors.InvalidSetting, match=r"^policy: expected one of 'default', 'sliding_window', got"):
        cc.MessageManager(cc.OpenAIFormatter(), policy="sliding")  # pyright: ignore[reportArgumentType]


def test_an_answer_is_stored_with_what_was_handed_out_and_cuts_stay_where_they_were() -> None:
    """Guarantees 7.4, 9.2: consecutive histories begin alike until the next cut."""
    manager = cc.MessageManager(cc.OpenAIFormatter(), max_tokens=800, model="gpt-4.1")
    before, cuts = list[object](), 0
    for number in range(40):
        manager.add_user_message(f"question {number} " + "word " * 20)
        messages = manager.get_formatted_messages()
        cuts += messages[: len(before)] != before
        before = list(messages)
        manager.add_assistant_message(f"answer {number} " + "text " * 20)
    assert 1 <= cuts <= 9


def test_operations_are_logged_and_content_only_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Guarantee 13.3."""
    manager = cc.MessageManager(cc.OpenAIFormatter())
    with caplog.at_level(logging.INFO, "contextc"):
        manager.add_user_message("my secret")
        manager.get_formatted_messages()
    assert "added message 1: user" in caplog.text
    assert "my secret" not in caplog.text
    with caplog.at_level(logging.DEBUG, "contextc"):
        manager.add_user_message("my secret")
    assert "my secret" in caplog.text


def test_refusals_results_and_changes_of_the_formatter_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Guarantee 13.3: what happened at INFO, content at DEBUG, and keys at no level."""
    key = "sk-abcdef0123456789abcdef"

    def talk() -> None:
        manager = cc.MessageManager(cc.OpenAIFormatter(), f"my prompt {key}")
        manager.set_system_prompt(f"my prompt {key}")
        manager.add_user_message("go")
        manager.add_assistant_message(None, [cc.tool_call("c1", "look", {"q": f"my arguments {key}"})])
        manager.add_tool_result("c1", "look", f"my result {key}")
        with pytest.raises(cc.errors.InvalidMessage):
            manager.add_message({"role": f"robot {key}", "content": "x"})
        with pytest.raises(cc.errors.InvalidMessage):
            manager.add_tool_result("", "look", "x")
        with pytest.raises(cc.errors.InvalidReply):
            manager.add_reply({"content": "x"})
        manager.formatter = cc.AnthropicFormatter()

    with caplog.at_level(logging.INFO, "contextc"):
        talk()
    quiet = caplog.text
    assert "refused a message: InvalidMessage, field role" in quiet
    assert "refused a message: InvalidReply" in quiet
    assert "changed the formatter to anthropic" in quiet
    assert quiet.count("refused a message") == 3
    assert "my " not in quiet
    assert "robot" not in quiet
    with caplog.at_level(logging.DEBUG, "contextc"):
        talk()
    assert all(text in caplog.text for text in ("my prompt", "my arguments", "my result", "robot"))
    assert key not in caplog.text


def test_media_that_the_model_does_not_take_are_described() -> None:
    """Guarantee 10.3: the facts of the model are those that the compiler uses. Without a model all media are sent."""
    image = cc.Media(mime_type="image/png", data=b"\x89PNG\r\n\x1a\n" + b"0" * 40)
    sent: dict[str | None, str] = {}
    for model in ("deepseek-chat", "gpt-4o", None):
        manager = cc.MessageManager(cc.OpenAIFormatter(), model=model)
        manager.add_user_message([cc.Text("See: "), image])
        sent[model] = str(manager.get_formatted_messages())
    assert ["base64" in sent[model] for model in sent] == [False, True, True]
    assert "not shown" in sent["deepseek-chat"]


def test_replies_are_taken_as_the_vendors_sdks_return_them() -> None:
    """Guarantees 14.1, 10.1: with usage and finish reason, and the calls under the names their tools were given."""
    tools = [cc.Tool(name="files.read", description="Reads a file.")]
    manager = cc.MessageManager(cc.OpenAIFormatter())
    (tool,) = manager.get_formatted_tools(tools)
    call = {"id": "c1", "type": "function", "function": {"name": tool["function"]["name"], "arguments": "{}"}}
    from openai.types.chat import ChatCompletion  # loads for a second

    reply = ChatCompletion.model_validate(
        {
            "id": "r",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5.2",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {"role": "assistant", "content": None, "annotations": [], "tool_calls": [call]},
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    )
    message = manager.add_reply(reply)
    assert (message.tool_calls[0].name, message.finish) == ("files.read", "tool_calls")
    assert message.usage is not None
    assert (message.usage.input, message.usage.output) == (7, 3)
    manager.formatter = cc.GeminiFormatter()
    from google.genai.types import GenerateContentResponse  # loads for a second

    text = GenerateContentResponse.model_validate(
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "It prints 1."}]}, "finishReason": "STOP"}]}
    )
    assert manager.add_reply(text).text == "It prints 1."
    manager.formatter = cc.AnthropicFormatter()
    assert manager.add_reply({"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}).text == "Yes."
    with pytest.raises(cc.errors.InvalidInput, match="expected an object of the vendor's SDK or a dict, got int"):
        manager.add_reply(3)
    with pytest.raises(cc.errors.InvalidReply, match="not a reply of anthropic: it is an error"):
        manager.add_reply({"type": "error", "error": {"message": "overloaded"}})
    with pytest.raises(cc.errors.InvalidReply, match="not a reply of anthropic: it has `id`, `choices`"):
        manager.add_reply(reply)
    assert len(manager.messages) == 3


def test_dicts_of_the_formatters_own_provider_are_taken_too() -> None:
    """A call as Anthropic writes it stays a call; the same for tools."""
    manager = cc.MessageManager(cc.AnthropicFormatter())
    manager.add_message({"role": "user", "content": "hi"})
    manager.add_message({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]})
    manager.add_message({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]})
    assert [message.role for message in manager.messages] == ["user", "assistant", "tool"]
    assert cc.lint(manager.get_formatted_messages(), format="anthropic") == []
    function = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    assert manager.get_formatted_tools([function]) == [{"name": "f", "input_schema": {"type": "object"}}]
    with pytest.raises(cc.errors.InvalidMessage, match="must be a Message or a dict, got str"):
        manager.add_message("hi")  # pyright: ignore[reportArgumentType]  # what is wrong is tested
    with pytest.raises(cc.errors.InvalidSetting, match="expected an object with `format`"):
        cc.MessageManager("openai")  # pyright: ignore[reportArgumentType]  # what is wrong is tested
    with pytest.raises(cc.errors.InvalidInput, match="expected Message, got dict"):
        cc.OpenAIFormatter().format([{"role": "user"}])  # pyright: ignore[reportArgumentType]  # what is wrong is tested


def test_openais_own_dicts_are_taken_as_they_are() -> None:
    """A result without a name, content in blocks, the developer's role."""
    manager = cc.MessageManager(cc.AnthropicFormatter())
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    function = {"name": "look", "arguments": "{}"}
    manager.add_message({"role": "developer", "content": "Be brief."})
    manager.add_message({"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]})
    manager.add_message({"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": function}]})
    manager.add_message({"role": "tool", "tool_call_id": "c1", "content": "a ship"})
    assert [message.role for message in manager.messages] == ["system", "user", "assistant", "tool"]
    assert manager.messages[3].tool_results[0].name == "look"
    wire = manager.get_formatted_messages()
    assert manager.get_formatted_system_prompt() == "Be brief."
    assert [block["type"] for block in wire[0]["content"]] == ["text", "image"]
    assert cc.lint(wire, format="anthropic") == []


class Pairs:
    """A formatter of a user's own: two methods, and no base class."""

    def format(self, history: Sequence[cc.Message], system_prompt: str | None) -> list[tuple[str, str]]:
        prompt = [("system", system_prompt)] if system_prompt else []
        return [*prompt, *((message.role, message.text or described(message)) for message in history)]

    def get_system_prompt(self, system_prompt: str | None) -> str | None:
        return None


def described(message: cc.Message) -> str:
    return " ".join([*(call.name for call in message.tool_calls), *(result.text for result in message.tool_results)])


def test_any_object_with_two_methods_is_a_formatter() -> None:
    """It is given our messages, paired and within the limit, and what it returns is handed out as it is."""
    manager = cc.MessageManager(Pairs(), "Be brief.")
    assert manager.get_formatted_messages() == [("system", "Be brief.")]
    manager.add_message({"role": "user", "content": "look"})
    manager.add_assistant_message(None, [cc.tool_call("a", "f", {})])
    manager.add_user_message("and hurry")
    manager.add_tool_result("a", "f", "a ship")
    assert manager.get_formatted_messages() == [
        *(("system", "Be brief."), ("user", "look"), ("assistant", "f"), ("tool", "a ship"), ("user", "and hurry")),
    ]
    manager.add_user_message([cc.Media(mime_type="image/png", data=b"\x89PNG")])
    shown = list[cc.Message]()
    manager.formatter = Kept(shown)
    manager.get_formatted_messages()
    assert shown[-1].parts[0] == cc.Media(mime_type="image/png", data=b"\x89PNG", size=4)
    for needs_more in (lambda: manager.add_reply({}), lambda: manager.get_formatted_tools([])):
        with pytest.raises(cc.errors.InvalidSetting, match=r"Kept cannot .* Subclass cc\.formats\.Formatter"):
            needs_more()


class Lines:
    """A formatter with one method: the system prompt has no field of its own."""

    def format(self, history: Sequence[cc.Message], system_prompt: str | None) -> list[str]:
        return [*([system_prompt] if system_prompt else []), *(message.text for message in history)]


def test_a_formatter_needs_no_method_for_the_system_prompt() -> None:
    """Guarantee 14.3: `get_system_prompt` is optional."""
    manager = cc.MessageManager(Lines(), "Be brief.")
    manager.add_user_message("look")
    assert (manager.get_formatted_messages(), manager.get_formatted_system_prompt()) == (["Be brief.", "look"], None)


class Kept(Pairs):
    """Keeps the messages it was given."""

    def __init__(self, shown: list[cc.Message]) -> None:
        self.shown = shown

    def format(self, history: Sequence[cc.Message], system_prompt: str | None) -> list[tuple[str, str]]:
        self.shown[:] = history
        return super().format(history, system_prompt)


def test_a_limit_limits_formatters_of_ones_own() -> None:
    manager = cc.MessageManager(Pairs(), max_tokens=300, model="gpt-4.1")
    for number in range(12):
        manager.add_user_message(f"question {number} " + "word " * 40)
        manager.add_assistant_message(f"answer {number}")
    sent = manager.get_formatted_messages()
    left = [line for line in manager.explain().lines if not line.shown]
    assert 2 < len(sent) < 14
    assert len(sent) + len(left) == 24


def test_what_lacks_a_method_is_not_a_formatter() -> None:
    for wrong in (object(), cc.OpenAIFormatter, "openai", None):
        with pytest.raises(cc.errors.InvalidSetting, match="expected an object with `format`"):
            cc.MessageManager(wrong)  # pyright: ignore[reportArgumentType]  # what is wrong is tested
    manager = cc.MessageManager(cc.OpenAIFormatter())
    with pytest.raises(cc.errors.InvalidSetting, match="it is a string"):
        manager.formatter = "{}"  # pyright: ignore[reportAttributeAccessIssue]  # what is wrong is tested


def test_explain_reports_what_was_left_out_and_why(caplog: pytest.LogCaptureFixture) -> None:
    """An unreported cut looks like a model that forgets."""
    manager = cc.MessageManager(cc.OpenAIFormatter(), "Be brief.", max_tokens=300, model="gpt-4.1")
    assert manager.explain().lines == ()
    with caplog.at_level(logging.INFO, "contextc"):
        for number in range(8):
            manager.add_user_message(f"question {number} " + "word " * 20)
            manager.get_formatted_messages()
            manager.add_assistant_message(f"answer {number} " + "text " * 20)
    assert "left out messages: 4 (its turn was cut away)" in caplog.text
    account = manager.explain()
    left = [line for line in account.lines if not line.shown]
    assert [line.seq for line in left] == list(range(1, len(left) + 1))
    assert {line.why for line in left} == {"its turn was cut away"}
    assert len(manager.get_formatted_messages()) == 1 + 16 - len(left)
    assert "question 0" in str(account)
    manager.add_tool_result("zz", "f", "1")
    assert [line.why for line in manager.explain().lines if line.role == "tool"] == ["no call asked for it"]


def test_the_system_prompt_is_sent_before_the_first_message() -> None:
    manager = cc.MessageManager(cc.OpenAIFormatter(), "Be brief.")
    assert manager.get_formatted_messages() == [{"role": "system", "content": "Be brief."}]
    manager.add_user_message("hi")
    manager.reset()
    assert manager.get_formatted_messages() == [{"role": "system", "content": "Be brief."}]


def test_a_reset_and_a_new_prompt_are_logged(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = cc.MessageManager(cc.OpenAIFormatter())
    manager.add_user_message("hi")
    manager.set_system_prompt("my secret")
    manager.reset()
    assert capsys.readouterr().err == ""
    with caplog.at_level(logging.INFO, "contextc"):
        manager.set_system_prompt("my secret")
        manager.add_user_message("hi")
        manager.reset()
    assert "set the system prompt: 9 characters" in caplog.text
    assert "reset the history: 1 messages" in caplog.text
    assert "my secret" not in caplog.text


def test_an_empty_reply_is_stored_and_not_sent_on() -> None:
    """A model that is shown an empty answer of its own tends to give another one, and some endpoints refuse it."""
    chat: JSONObject = {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}]
    }
    forms: list[tuple[cc.formats.Formatter, JSONObject]] = [
        (cc.OpenAIFormatter(), chat),
        (cc.OpenAIFormatter(reasoning_field="reasoning_content"), chat),
        (cc.formats.MistralFormatter(), chat),
        (cc.formats.OllamaFormatter(), {"message": {"role": "assistant", "content": ""}, "done": True}),
        (cc.AnthropicFormatter(), {"role": "assistant", "content": [], "stop_reason": "end_turn"}),
        (cc.GeminiFormatter(), {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP"}]}),
        (cc.formats.OpenAIResponsesFormatter(), {"object": "response", "status": "completed", "output": []}),
    ]
    for form, reply in forms:
        manager = cc.MessageManager(form)
        manager.add_user_message("one")
        manager.get_formatted_messages()  # so that the reply answers what was handed out
        manager.add_reply(reply)
        manager.add_user_message("two")
        for sent in (manager.get_formatted_messages(), form.format(manager.messages)):
            roles = {message["role"] for message in sent}
            assert (form.name, len(manager.messages), roles) == (form.name, 3, {"user"})


def test_an_account_without_a_limit_names_none() -> None:
    """Guarantee 13.1: a figure of a trillion tokens is no limit of anybody."""
    manager = cc.MessageManager(cc.OpenAIFormatter())
    manager.add_user_message("Hello.")
    account = str(manager.explain())
    assert "available" not in account
    assert "messages" in account


class Changing:
    """A formatter of a user that changes what it gets."""

    def __init__(self) -> None:
        self.given: list[Message] = []

    def format(self, history: Sequence[Message], system_prompt: str | None) -> list[JSONObject]:
        self.given = [cc.user(system_prompt)] if system_prompt else []
        self.given += [replace(each, parts=tuple(deepcopy(each.parts))) for each in history]
        for message in history:
            for call in message.tool_calls:
                call.arguments["changed"] = True
        return [{"text": message.text} for message in history]


OPERATIONS = st.one_of(
    st.tuples(st.just("user"), st.text(max_size=30)),
    st.tuples(st.just("answer"), st.text(min_size=1, max_size=30)),
    st.tuples(st.just("calls"), st.integers(1, 3)),
    st.tuples(st.just("result"), st.integers(0, 2)),
    st.tuples(st.just("prompt"), st.sampled_from(["", "Be brief.", "Be long."])),
    st.tuples(st.just("limit"), st.sampled_from([None, 120, 400])),
    st.tuples(st.just("reset"), st.none()),
)


@settings(max_examples=often(25, 2_000), deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=14), policy=st.sampled_from(["", "sliding_window"]))
def test_a_formatter_of_a_user_gets_what_the_request_has(
    operations: list[tuple[str, object]], policy: Literal["", "sliding_window"]
) -> None:
    """Guarantee 14.1: the history of the request, after any operations, also if the formatter changed what it got."""
    own, plain = Changing(), PlainFormatter()
    managers = [cc.MessageManager(each, policy=policy) for each in (own, plain)]
    open_calls: list[str] = []
    for number, (name, value) in enumerate(operations):
        calls = [cc.ToolCall(id=f"c{number}-{at}", name="f", arguments={"a": {"b": at}}) for at in range(3)]
        answered = open_calls.pop(int(str(value)) % len(open_calls)) if name == "result" and open_calls else ""
        for manager in managers:
            match name, value:
                case "user", str(text):
                    manager.add_user_message(f"{number}: {text}")
                case "answer", str(text):
                    manager.add_assistant_message(f"{number}: {text}")
                case "calls", int(count):
                    manager.add_assistant_message(None, calls[:count])
                case "result", _ if answered:
                    manager.add_tool_result(answered, "f", {"of": answered})
                case "prompt", str(prompt):
                    manager.set_system_prompt(prompt)
                case "limit", limit:
                    manager.max_tokens = limit if isinstance(limit, int) else None
                case "reset", _:
                    manager.reset()
                case _:
                    pass
        if name == "calls":
            open_calls = [call.id for call in calls[: int(str(value))]]
        elif name != "result":
            open_calls = open_calls if name in ("prompt", "limit") else []
        try:
            sent = managers[1].get_formatted_messages()
        except cc.errors.ContextOverflow:
            with pytest.raises(cc.errors.ContextOverflow):
                managers[0].get_formatted_messages()
            continue
        managers[0].get_formatted_messages()
        prompt = managers[1].system_prompt
        expected = [*([cc.user(prompt)] if prompt else []), *plain.decode_request(sent).messages]
        assert [(each.role, each.parts) for each in own.given] == [(each.role, each.parts) for each in expected]
