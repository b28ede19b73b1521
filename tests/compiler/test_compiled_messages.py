"""`compiled.messages`: the messages of a request in contextc's types, as they are sent."""

import pytest

import contextc as cc
from contextc._json import JSONObject, encode

PROVIDERS = (
    *("anthropic:claude-opus-5-5", "openai:gpt-5.1", "openai-chat:gpt-5.1", "gemini:gemini-3-pro-preview"),
    *("ollama:qwen3", "mistral:mistral-large-2512", "bedrock:claude-opus-5-5", "claude-code", "codex"),
)


def fill(store: cc.Store) -> None:
    store.append("demo", cc.user("Read a.py."))
    calls = [cc.ToolCall(id=f"call-{number}", name="read file", arguments={"n": number}) for number in (1, 2)]
    store.append("demo", cc.assistant("Let me look.", tool_calls=calls))
    for call in reversed(calls):
        store.append("demo", cc.tool_result(call.id, call.name, f"content {call.id} " * 10))
    store.append("demo", cc.assistant("Done."))
    store.append("demo", cc.system("The budget is low."))
    store.append("demo", cc.user("Go on."))


@pytest.mark.parametrize("name", PROVIDERS)
def test_messages_are_those_of_the_request(name: str) -> None:
    """Guarantee 20.4: with their calls, results and inserted texts, and the same when they are encoded again."""
    with cc.open_store("memory:") as store:
        fill(store)
        compiler = cc.MessageCompiler(store, cc.provider(name, window=32_000))
        compiled = compiler.compile("demo", instructions="Be brief.", tools=[cc.Tool(name="read file")])

        before = encode(compiled.params)
        messages = compiled.messages

        assert compiled.system_prompt == "Be brief."
        assert messages[0].text == "Read a.py."
        assert [call.name for message in messages for call in message.tool_calls] == ["read file", "read file"]
        calls = [call.id for message in messages for call in message.tool_calls]
        assert sorted(each.call_id for message in messages for each in message.tool_results) == sorted(calls)
        assert "The budget is low." in " ".join(message.text for message in messages)
        assert "Be brief." not in " ".join(message.text for message in messages)
        key = compiled.formatter.messages_key
        sent = compiled.params[key]
        encoded = compiled.formatter.format(messages, compiled.system_prompt)
        assert compiled.formatter.without_cache_breakpoints(encoded) == compiled.formatter.without_cache_breakpoints(
            sent
        )
        assert encode(compiled.params) == before == compiled.body


def test_messages_are_trimmed_like_the_request() -> None:
    """Guarantee 20.4: an old call and its result are left out, and what is left out is not there."""
    with cc.open_store("memory:") as store:
        for number in range(160):
            call = cc.ToolCall(id=f"c{number}", name="read", arguments={})
            store.append("demo", cc.user(f"question {number}"))
            store.append("demo", cc.assistant("", tool_calls=[call]))
            store.append("demo", cc.tool_result(call.id, "read", "word " * 200))
            store.append("demo", cc.assistant(f"answer {number}"))
        store.append("demo", cc.user("And now?"))
        compiled = cc.MessageCompiler(store, "openai-chat:gpt-5.1").compile("demo", max_input_tokens=4_000)

        texts = [message.text for message in compiled.messages]
        results = [each for message in compiled.messages for each in message.tool_results]
        calls = [call.id for message in compiled.messages for call in message.tool_calls]

        assert len(store.load("demo")) > len(compiled.messages)
        assert texts[-1] == "And now?"
        assert texts[:2] == ["question 0", "answer 0"], "text goes last"
        assert [each.call_id for each in results] == calls
        assert any(len(each.text) < 1_000 for each in results)
        assert len(compiled.messages) == len(compiled.params["messages"])


def test_messages_follow_a_replaced_request() -> None:
    """Guarantee 20.4: `on_prepare_messages` decides what is sent."""
    with cc.open_store("memory:") as store:
        store.append("demo", cc.user("hello"))
        compiled = cc.MessageCompiler(store, "openai-chat:gpt-5.1").compile("demo")
        assert [message.text for message in compiled.messages] == ["hello"]
        params: JSONObject = {**compiled.copy(), "messages": [{"role": "user", "content": "other"}]}
        compiled.replace(params)
        assert [message.text for message in compiled.messages] == ["other"]
        assert compiled.system_prompt == ""


def test_messages_that_continue_a_session_are_the_new_ones() -> None:
    """Guarantee 20.4."""
    with cc.open_store("memory:") as store:
        store.append("demo", cc.user("hello"))
        compiler = cc.MessageCompiler(store, "openai-session:gpt-5.1")
        reply: JSONObject = {"id": "resp_1", "object": "response", "status": "completed", "output": []}
        text: JSONObject = {"type": "output_text", "text": "hi", "annotations": []}
        message: JSONObject = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
        with compiler.attempt(compiler.compile("demo")) as attempt:
            attempt.commit({**reply, "output": [message]})
        store.append("demo", cc.user("and now?"))
        compiled = compiler.compile("demo")
        assert compiled.mode == "resume"
        assert [message.text for message in compiled.messages] == ["and now?"]
