"""The tools that changed, as evidence of a cache miss."""

from collections.abc import Callable
from typing import Any

import pytest

import contextc as cc
from contextc.analysis.conversation_loader import load_conversation_view
from contextc.analysis.request_comparison import compare_two_requests
from tests.analysis.cached_client import Client, tool


def add_last(client: Client) -> None:
    client.tools.append(tool("fetch"))


def add_first(client: Client) -> None:
    client.tools.insert(0, tool("fetch"))


def remove(client: Client) -> None:
    del client.tools[1]


def remove_all(client: Client) -> None:
    client.tools = []


def describe(client: Client) -> None:
    client.tools[1] = tool("write", client.tools[1]["description"] + "Never twice.")


def exchange(client: Client) -> None:
    client.tools = [tool("read"), tool("fetch"), tool("write", "Write it.")]


@pytest.mark.parametrize(
    ("change", "title", "evidence"),
    [
        (add_last, "The tools changed (1 added: fetch)", [("tools[3]", "fetch", False, True)]),
        (add_first, "The tools changed (1 added: fetch)", [("tools[0]", "fetch", False, True)]),
        (remove, "The tools changed (1 removed: write)", [("tools", "write", True, False)]),
        (
            remove_all,
            "The tools changed (3 removed: read, search, write)",
            [("tools", name, True, False) for name in ("read", "write", "search")],
        ),
        (describe, "The definition of the tool write changed", [("tools[1].description", "write", True, True)]),
        (
            exchange,
            "The tools changed (1 added: fetch; 1 removed: search; 1 changed: write)",
            [
                *(("tools[1]", "fetch", False, True), ("tools", "search", True, False)),
                ("tools[2].description", "write", True, True),
            ],
        ),
    ],
)  # fmt: skip
def test_evidence_has_each_tool_and_nothing_else(
    change: Callable[[Client], None], title: str, evidence: list[tuple[str, str, bool, bool]]
) -> None:
    """Guarantee 17.2: a tool is compared with the tool of its name, not with the system prompt at its place."""
    client = Client().work(4)
    change(client)
    client.send(0)
    found = client.last()
    assert (found.cause, found.title) == ("tools_changed", title)
    assert [(each.path, each.name, bool(each.before), bool(each.after)) for each in found.evidence] == evidence
    for each in found.evidence:
        assert "You help with this project" not in each.before + each.after
        if not (each.before and each.after):
            assert (each.before or each.after).startswith(f'{{"name":"{each.name}","description":"Run {each.name}.')
    *_, before, now = load_conversation_view(client.store, "c").requests
    compared = compare_two_requests(client.store, before, now)
    assert {each.name for each in compared.differences if each.section == "tools"} == {name for _, name, *_ in evidence}


def test_the_words_that_changed_in_a_definition_are_evidence() -> None:
    client = Client().work(4)
    describe(client)
    client.send(0)
    (evidence,) = client.last().evidence
    assert "Never twice." in evidence.after
    assert "Never twice." not in evidence.before


def test_four_tools_are_evidence_and_all_are_counted() -> None:
    client = Client().work(4)
    client.tools += [tool(f"extra{number}") for number in range(6)]
    client.send(0)
    found = client.last()
    assert [each.name for each in found.evidence] == [f"extra{number}" for number in range(4)]
    assert found.title.startswith("The tools changed (6 added: extra0, ")


@pytest.mark.parametrize("index", [None, 0, 1])
def test_tools_that_have_only_a_type_are_told_apart_by_their_content(index: int | None) -> None:
    """Two MCP servers have one type and no names. One of them is removed, or none is and another tool is added."""
    client = Client()
    client.tools += [{"type": "mcp_toolset", "mcp_server_name": name} for name in ("notes", "mail")]
    client.work(4)
    if index is None:
        client.tools.append(tool("fetch"))
    else:
        del client.tools[index - 2]
    client.send(0)
    changed = "1 added: fetch" if index is None else "1 removed: mcp_toolset"
    assert client.last().title == f"The tools changed ({changed})"
    assert len(client.last().evidence) == 1


# ── changes that a message could have stated ──────────────────────────────────────────────────────────────────────────

OPUS = {"model": "claude-opus-5-5", "output_config": {"effort": "high"}}
INLINE = "inline-tools-2026-09-15"
EFFORT = "mid-conversation-output-config-2026-07-01"


def use_effort(client: Client) -> None:
    client.settings["output_config"] = {"effort": "low"}


def use_clock(client: Client) -> None:
    client.tools[1] = tool("write", f"It is 12:31. {tool('write')['description']}")


@pytest.mark.parametrize(
    ("change", "says", "fix"),
    [
        (add_last, "1 added: fetch", ("`tool_addition`", f"with `{INLINE}` in the header `anthropic-beta`")),
        (remove, "1 removed: write", ("`tool_removal`", f"with `{INLINE}` in")),
        (exchange, "1 removed: search; 1 changed: write", ("`tool_removal`, `tool_addition`", f"with `{INLINE}` in")),
        (use_effort, "cached prefix: output_config.effort", (f"with `{EFFORT}` in",)),
    ],
)
def test_a_change_that_could_have_been_appended_names_the_beta_flags(
    change: Callable[[Client], None], says: str, fix: tuple[str, ...]
) -> None:
    """The prefix is lost for want of a flag: provider and model accept the change as a message."""
    client = Client(**OPUS).work(4)
    change(client)
    found = client.send(0).last()
    assert found.cause == ("settings_changed" if change is use_effort else "tools_changed")
    assert says in found.title
    assert found.title.endswith("; claude-opus-5-5 accepts the change as a message")
    assert [each for each in fix if each not in found.fix] == [], found.fix
    assert found.tokens > 1_000
    assert (found.cost or 0) > 0


@pytest.mark.parametrize("case", ["old model", "system too", "history too", "clock", "settings too", "no input"])
def test_a_change_that_no_message_can_state_has_the_usual_fix(case: str) -> None:
    """Advice that would not have kept the prefix is wrong."""
    client = Client(**(OPUS if case != "old model" else {"model": "claude-opus-4-5"})).work(4)
    match case:
        case "system too":
            client.system = [f"{client.system[0]} Be brief."]
        case "history too":
            client.messages[0] = {"role": "user", "content": [{"type": "text", "text": "Find two bugs."}]}
        case "settings too":
            client.settings["speed"] = "fast"
        case "no input":
            client.messages = client.messages[:-2]
        case _:
            pass
    (use_clock if case == "clock" else add_last)(client)
    found = client.send(0).findings()[-1]
    assert "accepts the change" not in found.title
    assert "anthropic-beta" not in found.fix


def test_an_own_agent_is_told_which_flag_to_allow() -> None:
    """With the flag, the compiler appends the change, and nothing is lost."""
    for betas in ((), (INLINE,)):
        store, model = cc.open_store("memory:"), cc.provider("anthropic:claude-opus-5-5", betas=betas)
        compiler, offered = cc.MessageCompiler(store, model), [cc.Tool(name="read", description="Reads files.")]
        for number in range(3):
            store.append("c", cc.user(f"Question {number}. {'Be exact. ' * 1_000}"))
            more = [cc.Tool(name="mails", description="Reads mails.")] if number == 2 else []
            compiled = compiler.compile("c", tools=[*offered, *more], system_prompt="Be careful. " * 2_000)
            read = compiled.record.shared_tokens if number else 0
            size = compiled.budget.input
            usage = cc.Usage(input=size, output=5, cache_read=read, cache_write=size - read)
            with compiler.attempt(compiled) as attempt:
                attempt.commit(cc.assistant("Done.", usage=usage))
        found = [each for each in cc.findings(store, "c") if each.cause == "tools_changed"]
        if betas:
            assert found == []
        else:
            (lost,) = found
            assert "1 added: mails); claude-opus-5-5 accepts the change as a message" in lost.title
            assert f'`cc.provider("anthropic:claude-opus-5-5", betas=["{INLINE}"])`' in lost.fix


def test_openai_needs_no_flag_for_added_tools() -> None:
    """Facts are data: the same code names the item of another provider, and none where the model has no such item."""
    for model, is_told in (("gpt-5.6-sol", True), ("gpt-5.2", False)):
        store = cc.open_store("memory:")
        tools: list[dict[str, Any]] = [{"type": "function", "name": "read", "parameters": {}}]
        items: list[dict[str, Any]] = [{"role": "user", "content": "Go. " * 4_000}]
        for number in range(3):
            if number == 2:
                tools = [*tools, {"type": "function", "name": "mails", "parameters": {}}]
            usage = {"input_tokens": 4_100, "output_tokens": 5, "total_tokens": 4_105,
                     "input_tokens_details": {"cached_tokens": 3_968 if number == 1 else 0}}  # fmt: skip
            said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
            cc.observe(
                store, format="openai_responses", provider="openai", conversation="c", time=1 + number * 20_000,
                request={"model": model, "prompt_cache_key": "c", "tools": tools, "input": items},
                reply={"id": f"r{number}", "status": "completed", "model": model, "output": [said], "usage": usage},
            )  # fmt: skip
            items = [*items, said, {"role": "user", "content": f"And {number}?"}]
        (found,) = [each for each in cc.findings(store, "c") if each.cause == "tools_changed"]
        assert ("accepts the change as a message" in found.title) is is_told
        assert ("(`additional_tools`). Then" in found.fix) is is_told
