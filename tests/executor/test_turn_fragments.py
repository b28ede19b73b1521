"""Fragments for one turn, and async renderers, in turns of an agent: retried, resumed, killed, with other models."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Any

import pytest

import contextc as cc
from contextc._json import JSONObject
from contextc.errors import FragmentFailed, ProviderFailed
from contextc.prompts import PromptContext
from contextc.providers.client import ProviderCall
from contextc.testing import FakeModel

CALL = cc.tool_call("c1", "look", {})
ANTHROPIC, OPENAI = "anthropic:claude-opus-5-5", "openai-chat:gpt-4o"
PROCESSES = multiprocessing.get_context("forkserver")


def look() -> str:
    """Look."""
    return "seen"


class Search:
    """An async renderer that finds something else each time."""

    def __init__(self, name: str = "passage") -> None:
        self.name, self.asked = name, list[str]()

    async def __call__(self, context: PromptContext) -> str:
        self.asked.append(context.input_text)
        await asyncio.sleep(0)
        return f"{self.name} {len(self.asked)} for {context.input_text}"


def make_agent(model: Any, search: Any, **options: Any) -> cc.Agent[str]:
    instructions = ["Be brief.", cc.PromptFragment("passages", search, "turn")]
    return cc.Agent(model, tools=[look], instructions=instructions, **options)


def found(request: Any) -> list[str]:
    return [line for message in request.messages for line in message.text.splitlines() if line.startswith("passage")]


def test_an_async_search_runs_once_for_a_turn_and_its_passages_stay_beside_the_input() -> None:
    """Guarantees 8.6 and 8.7."""
    model, search = FakeModel(CALL, "Yes.", "No.", provider=OPENAI), Search()
    agent = make_agent(model, search)
    agent.run_sync("Bread?", conversation="x")
    agent.run_sync([cc.user("Milk?"), cc.user("And eggs?")], conversation="x")
    assert search.asked == ["Bread?", "Milk?\n\nAnd eggs?"]
    first, second, third = model.requests
    assert [message.role for message in second.messages] == ["user", "system", "assistant", "tool"]
    assert second.messages[:2] == first.messages == third.messages[:2]
    assert [message.role for message in third.messages[-3:]] == ["user", "user", "system"]
    assert "updated" not in str(third.messages)


@pytest.mark.parametrize("lifecycle", ["static", "dynamic", "turn"])
@pytest.mark.parametrize("form", ["async", "plain", "object"])
def test_renderers_of_every_lifecycle_may_be_async(lifecycle: Any, form: str) -> None:
    """Guarantee 8.7: also a function that returns what another one does."""

    async def search(context: PromptContext) -> str:
        await asyncio.sleep(0)
        return f"passage for {context.input_text}"

    def calls_search(context: PromptContext) -> Awaitable[str]:
        return search(context)

    renderer = {"async": search, "plain": calls_search, "object": Search()}[form]
    model = FakeModel("Yes.", provider=OPENAI)
    agent = cc.Agent(model, instructions=[cc.PromptFragment("passages", renderer, lifecycle)])
    agent.run_sync("Bread?")
    (request,) = model.requests
    instructions = request.system.text if request.system is not None else ""
    assert "for Bread?" in f"{instructions}{[message.text for message in request.messages]}"
    assert ("for Bread?" in instructions) == (lifecycle == "static")


def test_an_async_renderer_runs_on_the_event_loop_of_its_turn() -> None:
    """Guarantee 8.7: connections of a database belong to one event loop."""
    loops: list[object] = []

    async def search(context: PromptContext) -> str:
        loops.append(asyncio.get_running_loop())
        return str(context.deps)

    async def main() -> object:
        model = FakeModel("Yes.")
        await make_agent(model, search).run("Bread?", deps="the shop")
        assert "the shop" in str(model.requests[0].messages)
        return asyncio.get_running_loop()

    assert [asyncio.run(main())] == loops


def test_a_renderer_that_fails_ends_the_turn_and_no_coroutine_is_left() -> None:
    async def fails(context: PromptContext) -> str:
        raise OSError("no index")

    model = FakeModel("Yes.")
    others = [cc.PromptFragment("other", Search(), "turn", priority=200)]
    agent = cc.Agent(model, instructions=[cc.PromptFragment("passages", fails, "turn"), *others])
    with pytest.raises(FragmentFailed, match="'passages': its renderer raised OSError: no index"):
        agent.run_sync("Bread?", conversation="x")
    assert model.requests == []


def test_a_retry_sends_the_same() -> None:
    """Guarantee 8.6."""
    busy = ProviderFailed("fake", "transient", "busy", retry_after=0.001)
    model, search = FakeModel(busy, "Yes.", provider=OPENAI), Search()
    make_agent(model, search).run_sync("Bread?")
    first, second = model.requests
    assert (first.messages, search.asked) == (second.messages, ["Bread?"])


@pytest.mark.parametrize("steps", [0, 1])
def test_the_next_model_gets_what_the_one_before_it_got(steps: int) -> None:
    """Guarantees 8.6 and 20.8: beside the input, also in the middle of a turn."""
    failure = ProviderFailed("fake", "quota", "no credit left")
    first = FakeModel(*[CALL] * steps, failure, provider=ANTHROPIC)
    second, search = FakeModel("Yes.", provider=OPENAI), Search()
    result = make_agent([first, second], search).run_sync("Bread?")
    assert (result.text, search.asked) == ("Yes.", ["Bread?"])
    (request,) = second.requests
    assert [message.role for message in request.messages] == ["user", "system", *["assistant", "tool"] * steps]
    assert found(request) == found(first.requests[0]) == ["passage 1 for Bread?"]


def test_input_that_steers_a_turn_gets_no_passages_of_its_own() -> None:
    """Guarantee 8.6: they belong to the turn, which goes on."""
    search = Search()

    def steer() -> str:
        """Steer."""
        agent.store.enqueue("x", cc.user("Be quick."), kind="steer")
        return "steered"

    model = FakeModel(cc.tool_call("c1", "steer", {}), "Yes.", provider=OPENAI)
    agent = cc.Agent(model, tools=[steer], instructions=[cc.PromptFragment("passages", search, "turn")])
    agent.run_sync("Bread?", conversation="x")
    assert search.asked == ["Bread?"]
    assert [message.role for message in model.requests[1].messages] == ["user", "system", "assistant", "tool", "user"]


def test_a_reply_that_goes_on_after_its_limit_gets_them_once() -> None:
    """Guarantee 8.6: a reply without calls does not end the turn here."""
    short = cc.assistant("It is", finish="length")
    model, search = FakeModel(short, "bread.", provider=OPENAI), Search()
    make_agent(model, search).run_sync("Bread?")
    assert (search.asked, found(model.requests[1])) == (["Bread?"], ["passage 1 for Bread?"])


def test_a_turn_that_a_system_message_opens_has_them_too() -> None:
    model, search = FakeModel(CALL, "Yes.", provider=OPENAI), Search()
    make_agent(model, search).run_sync(cc.system("An hour is over."))
    assert search.asked == ["An hour is over."]
    assert found(model.requests[1]) == ["passage 1 for An hour is over."]


def test_a_fork_has_turns_of_its_own() -> None:
    """Guarantee 8.6: the number of a turn in it may be that of a turn of its parent."""
    model, search = FakeModel("1.", "2.", "3.", "4.", provider=OPENAI), Search()
    agent = make_agent(model, search)
    agent.run_sync("Bread?", conversation="x")
    agent.store.fork("x", "y")
    for number, question in enumerate(("Milk?", "Eggs?"), 2):
        agent.run_sync(question, conversation="y")
        assert found(model.requests[number - 1])[-1] == f"passage {number} for {question}"
    agent.run_sync("Salt?", conversation="x")
    assert found(model.requests[-1]) == ["passage 1 for Bread?", "passage 4 for Salt?"]


def test_passages_are_redacted_where_they_are_stored() -> None:
    """Guarantee 8.6: their text is stored for a turn that is resumed."""
    model = FakeModel("Yes.", "No.", provider=OPENAI)
    agent = make_agent(model, Search("passage walrus"))
    agent.run_sync("Bread?", conversation="x")
    agent.store.redact_text("x", "passage walrus 1")
    agent.run_sync("Milk?", conversation="x")
    assert "walrus 1" not in str(model.requests[1].messages)


def test_a_compaction_and_its_preview_work_with_async_renderers() -> None:
    """Guarantee 8.7: neither opens a turn."""
    search, mood = Search(), Search("mood")
    model = FakeModel(lambda request: "Yes.", provider=OPENAI)
    fragments = [cc.PromptFragment("passages", search, "turn"), cc.PromptFragment("mood", mood, "dynamic")]
    agent = cc.Agent(model, instructions=fragments, summarize=lambda messages, previous: "A summary.")
    for number in range(8):
        agent.run_sync(f"{number} " * 2_000, conversation="x")
    assert agent.executor.preview_compaction("x") is not None
    assert asyncio.run(agent.compact("x")) is not None
    assert len(search.asked) == 8


# ── kill -9 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class KilledWhileAnswering(FakeModel):
    """The process is killed after the request was sent, before anything of the reply arrives."""

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        if len(self.requests) + 1 == 1:
            async for _ in super().stream(call):
                os.kill(os.getpid(), signal.SIGKILL)
        yield {}


def die() -> str:
    """Look, and be killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def run_and_die(address: str, moment: str) -> None:
    with cc.open_store(address) as store:
        model = FakeModel(CALL, provider=OPENAI) if moment == "tool" else KilledWhileAnswering("No.", provider=OPENAI)
        cc.Agent(
            model,
            store=store,
            tools=[cc.tool(die, name="look")],
            instructions=["Be brief.", cc.PromptFragment("passages", Search(), "turn")],
        ).run_sync("Bread?", conversation="x")


@pytest.mark.parametrize("moment", ["tool", "request"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_turn_that_was_killed_goes_on_with_what_was_sent(tmp_path: Path, moment: str, fails: bool) -> None:
    """Guarantee 8.6: another process renders nothing, and the next model gets the same, too."""
    address = f"sqlite:///{tmp_path / 'x.db'}"
    process = PROCESSES.Process(target=run_and_die, args=(address, moment))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    search = Search("passage of another process")
    failure = ProviderFailed("fake", "quota", "no credit left")
    first, second = FakeModel(failure if fails else "Yes.", provider=OPENAI), FakeModel("Yes.", provider=ANTHROPIC)
    with cc.open_store(address) as store:
        result = make_agent([first, second], search, store=store).resume_sync("x")
        assert (result.text, search.asked) == ("Yes.", [])
    for model in (first, second) if fails else (first,):
        (request,) = model.requests
        assert found(request) == ["passage 1 for Bread?"]
        assert [message.role for message in request.messages][:2] == ["user", "system"]
