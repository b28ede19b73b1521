"""Cache misses of conversations that contextc ran itself."""

import pytest

import contextc as cc
from tests.analysis.cached_client import FILE, SYSTEM
from tests.analysis.observed_run import find_by_request
from tests.executor.scripted_provider import SONNET, Scripted, add, call, run_turn, says


def test_own_conversations_have_findings_too() -> None:
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, "anthropic:claude-sonnet-4-5")
    for number in range(4):
        store.append("c", cc.user(f"Question {number}: {FILE}"))
        compiled = compiler.compile("c", instructions=SYSTEM if number < 3 else f"{SYSTEM} It is 10:3{number}.")
        total = compiled.estimated_input
        read = 0 if number in (0, 3) else total - 2_500
        usage = cc.Usage(input=total, output=10, cache_read=read, cache_write=total - read)
        compiler.commit(compiled, cc.assistant(f"Answer {number}"), usage=usage)
    found = [each for each in find_by_request(store, "c") if each.code.startswith("CAC")]
    assert [(each.cause, each.request) for each in found] == [("first_request", 1), ("system_changed", 4)]
    assert found[1].evidence[0].path == "system[0].text"


def test_an_unknown_conversation_is_an_error() -> None:
    with pytest.raises(cc.errors.UnknownConversation):
        find_by_request(cc.open_store("memory:"), "nope")


def test_turns_of_an_executor_hit_the_cache() -> None:
    store = cc.open_store("memory:")

    def run(system_prompt: str, text: str) -> None:
        script = Scripted(says(call(text), input=4_000), says("Done.", input=4_200))
        agent = cc.AgentExecutor(store, SONNET, tools=[add], instructions=system_prompt, endpoint=script, triggers=())
        run_turn(agent, text, conversation="c")

    for number in range(3):
        run(SYSTEM, f"q{number}")
    assert [each.cause for each in find_by_request(store, "c") if each.code.startswith("CAC")] == ["first_request"]
    run(f"{SYSTEM} Today is Monday.", "q3")
    found = [each for each in find_by_request(store, "c") if each.code.startswith("CAC")]
    assert [(each.cause, each.request) for each in found] == [("first_request", 1), ("system_changed", 7)]


def test_a_summary_of_the_compiler_is_a_compaction() -> None:
    store = cc.open_store("memory:")
    compiler = cc.MessageCompiler(store, cc.provider(SONNET, window=26_000, output=500))
    for number in range(6):
        store.append("c", cc.user(f"Question {number}: {FILE}"))
        if number == 5:
            made = compiler.compact("c", lambda messages, previous: "The user asked questions.", system_prompt=SYSTEM)
            assert made is not None
        compiled = compiler.compile("c", instructions=SYSTEM)
        compiler.commit(compiled, cc.assistant(f"Answer {number}"))
    found = [each for each in find_by_request(store, "c") if each.code.startswith("CAC")]
    assert [(each.cause, each.request) for each in found] == [("first_request", 1), ("compacted", 6)]
