"""The option `cache_diagnostics`: requests ask why the cache missed, and the answer is stored."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Unpack

import pytest

import contextc as cc
from contextc._json import JSONObject, as_object, decode
from contextc.compiler.draft import CompilerOptionArguments
from contextc.compiler.past_requests import load_records
from contextc.compiler.prompt_cache import ReplyFacts, read_reply_facts
from contextc.providers import ProviderCall
from contextc.providers.client import Endpoint
from tests.formats.known import problems

LONG = "Be careful with this project, and follow its rules. " * 800
CLAUDE, GPT = "anthropic:claude-opus-5-5", "openai:gpt-6-sol"
TEXT = [{"type": "text", "text": "Yes."}]
ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}


def reply_of(model: str, number: int) -> JSONObject:
    if model == CLAUDE:
        reason = {"type": "tools_changed", "cache_missed_input_tokens": 900}
        found: JSONObject = {"id": f"msg_{number}", "role": "assistant", "content": TEXT, "stop_reason": "end_turn"}
        return {**found, "diagnostics": {"cache_miss_reason": reason}} if number else found
    found = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": [ITEM]}
    miss = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 900}
    return {**found, "prompt_cache_diagnostics": miss} if number else found


def compared_with(body: JSONObject) -> object:
    found, options = as_object(body.get("diagnostics")), as_object(body.get("prompt_cache_options"))
    return found.get("previous_message_id") or options.get("comparison_response_id")


def talk(
    model: str | cc.Provider, **options: Unpack[CompilerOptionArguments]
) -> tuple[cc.MessageCompiler, list[cc.Compiled]]:
    compiler = cc.MessageCompiler(cc.open_store("memory:"), model, **options)
    made: list[cc.Compiled] = []
    for number in range(3):
        compiler.store.append("demo", cc.user(f"Question {number}."))
        compiled = compiler.compile("demo", instructions=LONG)
        compiler.begin(compiled)
        compiler.commit(compiled, reply_of(model if isinstance(model, str) else CLAUDE, number))
        assert compiler.rebuild("demo") == compiled.body
        made.append(compiled)
    return compiler, made


@pytest.mark.parametrize(("model", "ids"), [(CLAUDE, ["msg_0", "msg_1"]), (GPT, ["resp_0", "resp_1"])])
def test_a_request_names_the_reply_before_it(model: str, ids: list[str]) -> None:
    """The first one has none to name. The rest of a request is as without, so that the cache has the same prefix."""
    compiler, made = talk(model, cache_diagnostics=True)
    bodies = [decode(each.body) for each in made]
    assert [compared_with(body) for body in bodies] == [None, *ids]
    assert [each.record.compared for each in made] == ["", *ids]
    key = compiler.provider.formatter.messages_key
    for body, plain in zip(bodies, talk(model)[1], strict=True):
        assert body[key] == decode(plain.body)[key]
        assert compared_with(decode(plain.body)) is None
        assert cc.lint(body, format=compiler.provider.formatter.name) == []
        assert problems(compiler.provider.formatter.name, body) == []
    assert [each.head.hash for each in made[1:]] == [made[1].head.hash] * 2  # so the head is stored once for all


def test_a_lifetime_and_a_comparison_are_in_one_setting() -> None:
    _, made = talk(GPT, cache="12h", cache_diagnostics=True)
    assert decode(made[-1].body)["prompt_cache_options"] == {"ttl": "12h", "comparison_response_id": "resp_1"}


@pytest.mark.parametrize("model", [CLAUDE, GPT])
def test_the_answer_is_stored_with_the_request(model: str) -> None:
    """Findings compare it with their own cause."""
    compiler, made = talk(model, cache_diagnostics=True)
    records = load_records(compiler.store, made[0].channel)
    assert (
        sorted([(each.miss_reason, each.miss_tokens) for each in records]) == [("", 0)] + [("tools_changed", 900)] * 2
    )
    without, made = talk(model)
    assert [each.miss_reason for each in load_records(without.store, made[0].channel)] == [""] * 3


def test_other_addresses_and_providers_are_not_asked() -> None:
    """The field exists at the vendor's own API alone: not on Bedrock, and not at servers with the same format."""
    for model in (cc.provider(CLAUDE, url="http://127.0.0.1:9"), "bedrock:us.anthropic.claude-opus-5-5"):
        provider = cc.provider(model) if isinstance(model, str) else model
        assert provider.cache_comparison == ()
    _, made = talk(cc.provider(CLAUDE, url="http://127.0.0.1:9"), cache_diagnostics=True)
    assert not any(b"diagnostics" in each.body for each in made)
    assert cc.provider("openai:gpt-5").cache_comparison == ()


def test_a_fork_is_compared_with_the_reply_of_its_parent() -> None:
    compiler, _ = talk(CLAUDE, cache_diagnostics=True)
    compiler.store.fork("demo", "fork")
    compiler.store.append("fork", cc.user("And now?"))
    assert compared_with(decode(compiler.compile("fork", instructions=LONG).body)) == "msg_2"


class Streaming(Endpoint):
    """A client of Anthropic that answers with the events of a stream."""

    def __init__(self) -> None:
        self.bodies: list[JSONObject] = []

    async def stream(self, call: ProviderCall) -> AsyncGenerator[JSONObject, None]:
        reply = reply_of(CLAUDE, len(self.bodies))
        self.bodies.append(decode(call.body))
        yield {"type": "message_start", "message": {**reply, "type": "message", "content": [], "stop_reason": None}}
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
        yield {"type": "message_stop"}

    async def close(self) -> None:
        return


def test_an_agent_asks_for_it_too() -> None:
    """Its replies are streamed: the id and the diagnosis are in the events."""
    client = Streaming()
    with cc.open_store("memory:") as store:
        options = cc.CompilerOptions(cache_diagnostics=True)
        agent = cc.Agent(CLAUDE, store=store, endpoint=client, compiler=options, instructions=LONG)

        async def run() -> None:
            for number in range(3):
                await agent.run(f"Question {number}.", conversation="demo")

        asyncio.run(run())
        assert [compared_with(body) for body in client.bodies] == [None, "msg_0", "msg_1"]
        channel = agent.executor.compiler.channel("demo", name=agent.name)
        assert [each.miss_reason for each in load_records(store, channel)].count("tools_changed") == 2


def test_ids_and_reasons_are_read_from_replies_and_events() -> None:
    assert read_reply_facts([]) == ReplyFacts()
    assert read_reply_facts([{"id": "msg_1", "diagnostics": None}]) == ReplyFacts("msg_1")
    event = {
        "type": "response.completed",
        "response": {"id": "resp_1", "prompt_cache_diagnostics": {"type": "cache_hit"}},
    }
    facts = read_reply_facts([{"type": "response.created", "response": {"id": "resp_1"}}, event])
    assert (facts.id, facts.diagnosis.reason) == ("resp_1", "cache_hit")
