"""litellm: the same requests with the adapter while they fit, and requests that fit where they would not."""

import asyncio
from pathlib import Path
from typing import Any

import litellm
import openai
import pytest

import contextc as cc
from contextc.adapters.history_functions import history_functions
from contextc.adapters.litellm import Completions
from contextc.inspection.request_timeline import load_timeline, load_unanswered_requests
from tests.fake_vendors.fake import FakeVendors
from tests.fake_vendors.faults import error_inside, listed, overloaded
from tests.fake_vendors.replies import Reply, ScriptedCall
from tests.fake_vendors.scripts import Scripted
from tests.frameworks.litellm.report_agent import MODELS, SYSTEM, options, question, run
from tests.frameworks.paged_report import ANSWER, STEPS, WINDOW, check_fitted, reading

HELLO = [{"role": "user", "content": "How are you?"}]
LOOP = asyncio.Runner()
"""One event loop for all tests: litellm keeps the HTTP clients of a process."""


@pytest.mark.parametrize("name", [*MODELS])
def test_what_fits_is_sent_unchanged_and_recorded(name: str) -> None:
    """Guarantees 21.2, 21.4 and 21.6: the bytes are those of litellm, and only what is new is stored."""
    runs: list[tuple[list[Any], list[bytes]]] = []
    with cc.open_store("memory:") as store:
        completions = Completions(store)
        for call, more in ((litellm.completion, {}), (completions.completion, {"conversation": "report"})):
            with FakeVendors(reading(4)) as fake:
                messages: list[Any] = [SYSTEM]
                for text in ("When was the valve replaced?", "And the pump?"):
                    messages.append({"role": "user", "content": text})
                    run(call, messages, **more, **options(fake, name))
                assert not fake.refused
                runs.append((messages, [record.raw for record in fake.records]))
        assert runs[0] == runs[1]
        assert len(runs[1][1]) == 10
        stored = store.load("report")
        assert len(stored) == len(messages) - 1
        assert all(message.usage and message.usage.input for message in stored if message.role == "assistant")
        rows = load_timeline(store, "report")
        assert [row.record.usage.input for row in rows] == [each.tokens.input for each in fake.records if each.tokens]
        assert {row.record.epoch for row in rows} == {1}


@pytest.mark.parametrize("name", [*MODELS])
def test_what_does_not_fit_is_cut_in_large_steps(name: str) -> None:
    """Guarantees 21.4 and 21.5; litellm#10696: no request is refused, no call loses its result."""
    with FakeVendors(reading(STEPS), window=WINDOW) as fake, cc.open_store("memory:") as store:
        completions = Completions(store, window=WINDOW)
        messages = run(completions.completion, question(), conversation="report", **options(fake, name))
        check_fitted(fake)
        assert messages[-1]["content"] == ANSWER
        assert len(store.load("report")) == len(messages) - 1


@pytest.mark.parametrize("is_streamed", [False, True])
def test_async_calls_are_recorded_too(is_streamed: bool) -> None:
    """Guarantee 21.6."""

    async def main(completions: Completions, fake: FakeVendors) -> None:
        found = await completions.acompletion(conversation="chat", messages=HELLO, stream=is_streamed, **options(fake))
        if is_streamed:
            texts = [chunk.choices[0].delta.content or "" async for chunk in found]
            assert "".join(texts) == "Fine."

    with FakeVendors(Scripted(["Fine."])) as fake, cc.open_store("memory:") as store:
        LOOP.run(main(Completions(store), fake))
        assert [message.text for message in store.load("chat")] == ["How are you?", "Fine."]


@pytest.mark.parametrize("name", [*MODELS])
@pytest.mark.parametrize("has_usage", [False, True])
def test_a_stream_is_recorded_when_it_has_ended(name: str, has_usage: bool) -> None:
    """Guarantee 21.6: usage that litellm only estimates is not stored as the provider's."""
    call = Reply("I look.", [ScriptedCall("read_page", {"number": 3})])
    usage: dict[str, Any] = {"stream_options": {"include_usage": True}} if has_usage else {}
    with FakeVendors(Scripted([call])) as fake, cc.open_store("memory:") as store:
        completions = Completions(store)
        stream = completions.completion(
            conversation="chat", messages=HELLO, stream=True, **usage, **options(fake, name)
        )
        assert [message.role for message in store.load("chat")] == ["user"]
        assert len([*stream]) > 2
        reply = store.load("chat")[-1]
        assert (reply.text, [call.arguments for call in reply.tool_calls]) == ("I look.", [{"number": 3}])
        (tokens,) = [record.tokens for record in fake.records]
        assert tokens is not None
        assert (reply.usage.input if reply.usage else None) == (tokens.input if has_usage else None)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_that_is_left_early_has_no_reply(is_async: bool) -> None:
    """Guarantee 21.6: the request is kept as unanswered, and the next one continues."""
    with FakeVendors(Scripted(["Quite fine, thank you.", "Good."])) as fake, cc.open_store("memory:") as store:
        completions = Completions(store)
        arguments: dict[str, Any] = {"conversation": "chat", "messages": HELLO, "stream": True, **options(fake)}

        async def leave() -> None:
            stream = await completions.acompletion(**arguments)
            await anext(stream)
            await stream.aclose()

        if is_async:
            LOOP.run(leave())
        else:
            stream = completions.completion(**arguments)
            next(stream)
            stream.close()
        (lost,) = load_unanswered_requests(store, "chat")
        assert "the stream ended early" in lost.why
        completions.completion(conversation="chat", messages=HELLO, **options(fake))
        assert [message.text for message in store.load("chat")] == ["How are you?", "Good."]
        assert load_unanswered_requests(store, "chat") == []


def test_an_error_inside_a_stream_is_recorded() -> None:
    """Guarantees 9.7 and 21.6."""
    faults = listed(error_inside())
    with FakeVendors(Scripted(["Quite fine, thank you."]), faults=faults) as fake, cc.open_store("memory:") as store:
        stream = Completions(store).completion(
            conversation="chat", messages=HELLO, stream=True, **options(fake, "anthropic")
        )
        with pytest.raises(openai.APIError):
            list(stream)
        (lost,) = load_unanswered_requests(store, "chat")
        assert "overloaded" in lost.why.lower()
        assert [message.text for message in store.load("chat")] == ["How are you?"]


def test_an_error_is_raised_as_it_is_and_the_retry_adds_nothing() -> None:
    """Guarantees 9.7 and 21.6: the failed request is kept without a reply."""
    faults = listed(overloaded(), None)
    with FakeVendors(Scripted(["Fine."]), faults=faults) as fake, cc.open_store("memory:") as store:
        completions = Completions(store)
        with pytest.raises(litellm.exceptions.ServiceUnavailableError):
            completions.completion(conversation="chat", messages=HELLO, **options(fake))
        (lost,) = load_unanswered_requests(store, "chat")
        assert "overloaded" in lost.why.lower()
        completions.completion(conversation="chat", messages=HELLO, **options(fake))
        assert fake.records[0].raw == fake.records[1].raw
        assert [message.text for message in store.load("chat")] == ["How are you?", "Fine."]


@pytest.mark.parametrize("name", [*MODELS])
def test_another_process_continues_with_the_recorded_messages(name: str, tmp_path: Path) -> None:
    """Guarantee 21.1: what was sent comes back equal, so a second handle extends the same prefix."""
    address = f"sqlite:///{tmp_path / 'litellm.db'}"
    with FakeVendors(reading(4)) as fake:
        for text in ("When was the valve replaced?", "And the pump?"):
            with cc.open_store(address) as store:
                completions = Completions(store)
                messages = [SYSTEM, *completions.load("report"), {"role": "user", "content": text}]
                run(completions.completion, messages, conversation="report", **options(fake, name))
                assert completions.load("report") == messages[1:]
                assert len(store.branches("report")) == 1
        assert len(fake.records) == 10
        assert fake.breaks() == []


def test_reasoning_of_the_model_is_sent_back() -> None:
    """Guarantees 21.1, 21.4; litellm#36197: signed reasoning is not lost, also in a list that was cut or loaded."""
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
    model = {"max_tokens": 2_000, "model": "anthropic/claude-sonnet-4-5"}

    def reply(ask: Any) -> Reply:
        made = reading(STEPS)(ask)
        return Reply(made.text, made.calls, reasoning=f"I think about page {ask.number}.")

    with FakeVendors(reply, window=WINDOW) as fake, cc.open_store("memory:") as store:
        completions = Completions(store, window=WINDOW)
        settings = {**options(fake, "anthropic"), **model, **thinking, "conversation": "report"}
        run(completions.completion, question(), **settings)
        check_fitted(fake)
        assert all(b'"thinking"' in record.raw for record in fake.records[1:])
        loaded = completions.load("report")
        assert [each["thinking_blocks"][0]["thinking"] for each in loaded if each["role"] == "assistant"] == [
            f"I think about page {number}." for number in range(STEPS + 1)
        ]


def test_a_model_that_only_litellm_knows_is_recorded() -> None:
    """Guarantee 21.6: litellm's own table has its window. Providers without a name here have OpenAI's format."""
    with FakeVendors(Scripted(["Fine."])) as fake, cc.open_store("memory:") as store:
        found = options(fake) | {"model": "my-model", "custom_llm_provider": "openai"}
        with pytest.raises(cc.errors.UnknownModel, match="window"):
            Completions(store).completion(conversation="chat", messages=HELLO, **found)
        Completions(store, window=8_000).completion(conversation="chat", messages=HELLO, **found)
        assert [message.text for message in store.load("chat")] == ["How are you?", "Fine."]


def test_an_agent_searches_its_recorded_history() -> None:
    """Guarantee 22.3: the program runs the functions as its own, and defines them as it defines its own."""
    call = Reply(None, [ScriptedCall("search_history", {"query": "valve spring"})])
    with cc.open_store("memory:") as store, FakeVendors(Scripted(["Noted.", call, "In spring."])) as fake:
        completions, functions = Completions(store), history_functions(store, "report")
        formatter = cc.provider("openai-chat:gpt-4.1").formatter
        tools = formatter.encode_tools([cc.tool(each).tool for each in functions])
        messages: list[Any] = [SYSTEM]
        for text in ("The valve was replaced in spring.", "When was it replaced?"):
            messages.append({"role": "user", "content": text})
            given = {"tools": tools, "functions": functions, "conversation": "report", **options(fake)}
            run(completions.completion, messages, **given)
        assert not fake.refused
    assert "r1 (user)\nThe valve was replaced in spring." in messages[-2]["content"]
    assert messages[-1]["content"] == "In spring."
