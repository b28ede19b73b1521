"""litellm: the same requests with the adapter while they fit, and requests that fit where they would not."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import litellm
import pytest

import contextc as cc
from contextc.adapters.litellm import Completions
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import listed, overloaded
from tests.fake_vendors.scripts import Scripted
from tests.fake_vendors.vendor import KEY
from tests.frameworks.paged_report import ANSWER, QUESTION, STEPS, WINDOW, check_fitted, read_page, reading

PARAMETERS = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
FUNCTION = {"name": "read_page", "description": "Read a page of the report.", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
SYSTEM = {"role": "system", "content": "Answer from the report."}


def options(fake: FakeVendors) -> dict[str, Any]:
    return {"model": "openai/gpt-4.1", "api_base": fake.url("openai_chat"), "api_key": KEY, "max_retries": 0}


def run(call: Callable[..., Any], fake: FakeVendors, **more: Any) -> list[Any]:
    """Run an agent as litellm's documentation writes one."""
    messages: list[Any] = [SYSTEM, {"role": "user", "content": QUESTION}]
    while True:
        reply = call(messages=messages, tools=TOOLS, **options(fake), **more).choices[0].message
        calls = [call.model_dump() for call in reply.tool_calls or ()]
        messages.append({"role": "assistant", "content": reply.content, **({"tool_calls": calls} if calls else {})})
        if not calls:
            return messages
        for each in reply.tool_calls:
            result = read_page(**json.loads(each.function.arguments))
            messages.append({"role": "tool", "tool_call_id": each.id, "content": result})


def test_what_fits_is_sent_unchanged_and_recorded() -> None:
    """Guarantees 21.2, 21.4 and 21.6: the bytes are those of litellm, and only what is new is stored."""
    with FakeVendors(reading(4)) as fake, cc.open_store("memory:") as store:
        completions = Completions(store)
        plain = run(litellm.completion, fake)
        fitted = run(completions.completion, fake, conversation="report")
        assert len(fitted) == len(plain) == 12
        bodies = [json.loads(record.raw.replace(b"\r", b"")) for record in fake.records]
        assert [len(body["messages"]) for body in bodies[:5]] == [len(body["messages"]) for body in bodies[5:]]
        assert bodies[5] == bodies[0]
        assert len(store.load("report")) == len(fitted) - 1
        assert store.load("report")[-1].usage is not None


def test_what_does_not_fit_is_cut_in_large_steps() -> None:
    """Guarantees 21.4 and 21.5; litellm#10696: no request is refused, no call loses its result."""
    with FakeVendors(reading(STEPS), window=WINDOW) as fake, cc.open_store("memory:") as store:
        messages = run(Completions(store, window=WINDOW).completion, fake, conversation="report")
        check_fitted(fake)
        assert messages[-1]["content"] == ANSWER
        assert len(store.load("report")) == len(messages) - 1


@pytest.mark.parametrize("is_streamed", [False, True])
def test_async_calls_are_recorded_too(is_streamed: bool) -> None:
    async def main(completions: Completions, fake: FakeVendors) -> None:
        messages = [{"role": "user", "content": "How are you?"}]
        found = await completions.acompletion(
            conversation="chat", messages=messages, stream=is_streamed, **options(fake)
        )
        if is_streamed:
            texts = [chunk.choices[0].delta.content or "" async for chunk in found]
            assert "".join(texts) == "Fine."

    with FakeVendors(Scripted(["Fine."])) as fake, cc.open_store("memory:") as store:
        asyncio.run(main(Completions(store), fake))
        assert [message.text for message in store.load("chat")] == ["How are you?", "Fine."]


def test_an_error_is_raised_as_it_is_and_the_retry_adds_nothing() -> None:
    """Guarantee 9.7."""
    faults = listed(overloaded(), None)
    with FakeVendors(Scripted(["Fine."]), faults=faults) as fake, cc.open_store("memory:") as store:
        completions = Completions(store)
        messages = [{"role": "user", "content": "How are you?"}]
        with pytest.raises(litellm.exceptions.ServiceUnavailableError):
            completions.completion(conversation="chat", messages=messages, **options(fake))
        completions.completion(conversation="chat", messages=messages, **options(fake))
        assert [message.text for message in store.load("chat")] == ["How are you?", "Fine."]
