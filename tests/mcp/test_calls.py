"""Tools of MCP servers are tools of an agent (guarantees 24.1 to 24.3)."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import contextc as cc
from contextc.events import ToolProgress
from contextc.testing import FakeModel
from tests.mcp.servers import calling, plain, results


def run(model: FakeModel, *servers: cc.MCPServer, **options: Any) -> list[cc.ToolResult]:
    """Let an agent make the calls of its model, and return their results."""

    async def work() -> list[cc.ToolResult]:
        async with cc.Agent(model, mcp_servers=servers, **options) as agent:
            return results(await agent.run("Go."))

    return asyncio.run(work())


def test_the_tools_of_a_server_are_offered_and_called_by_a_name_with_its_prefix() -> None:
    model = calling(("plain__echo", {"text": "hello"}))
    (result,) = run(model, plain(tools=["echo", "process"]))
    assert (result.name, result.content, result.is_error) == ("plain__echo", "hello", False)
    offered = [each for each in model.requests[0].tools if isinstance(each, cc.Tool)]
    assert [each.name for each in offered][:2] == ["plain__echo", "plain__process"]
    assert offered[0].description == "Return the text."
    assert offered[0].parameters["required"] == ["text"]


def test_a_call_without_a_required_argument_does_not_reach_the_server() -> None:
    (result,) = run(calling(("plain__echo", {})), plain())
    assert result.is_error
    assert "The parameter `text` is missing." in result.text


def test_text_media_and_values_become_the_content_of_a_result() -> None:
    picture, structured = run(calling(("plain__picture", {}), ("plain__structured", {})), plain())
    (media,) = picture.content
    assert isinstance(media, cc.Media)
    assert (media.mime_type, media.size) == ("image/png", 58)
    assert json.loads(structured.text) == {"answer": 42}


def test_an_image_that_is_none_is_described() -> None:
    """A provider refuses a request with such an image, and every one after it."""
    (result,) = run(calling(("plain__forged", {})), plain())
    assert result.text == "[image/png: 9 bytes, not shown]\n[image/jpeg: not valid base64, not shown]"


def test_errors_of_tools_and_of_the_protocol_are_error_results() -> None:
    failed, refused, nonsense = run(
        calling(("plain__fails", {}), ("plain__refuses", {}), ("plain__nonsense", {})), plain()
    )
    assert (failed.is_error, failed.text) == (True, "no such file")
    assert (refused.is_error, refused.text) == (True, "The server plain answered with an error: out of order")
    assert nonsense.is_error
    assert nonsense.text.startswith("The answer of the server plain could not be read")


def test_input_sampling_and_roots_are_refused_and_the_call_goes_on() -> None:
    """The older protocol asks within a call. Nobody is there to answer: the server is told so at once."""
    (result,) = run(calling(("plain__asks", {})), plain())
    assert result.text.split("; ") == [
        "Elicitation not supported",
        "Sampling not supported",
        "List roots not supported",
    ]


def test_a_program_gets_the_declared_variables_and_a_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is another party's program: the keys of providers are not for it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-for-servers")
    monkeypatch.setenv("GITHUB_TOKEN", "gh-for-this-one")
    declared = plain(env={"TOKEN": "${GITHUB_TOKEN}", "PLACE": "${NOT_SET:-here}"})
    (result,) = run(calling(("plain__environment", {})), declared)
    found = json.loads(result.text)
    assert (found["TOKEN"], found["PLACE"], found["PATH"]) == ("gh-for-this-one", "here", os.environ["PATH"])
    assert not [name for name in found if "ANTHROPIC" in name or name == "GITHUB_TOKEN"]
    assert "gh-for-this-one" not in repr(declared)


def test_a_server_is_started_once_and_ended_with_its_agent() -> None:
    async def work() -> tuple[set[str], int]:
        model = calling(("plain__process", {}), ("plain__process", {}))
        async with cc.Agent(model, mcp_servers=[plain()]) as agent:
            first = await agent.run("Go.")
            second = await agent.run("Again.", model=calling(("plain__process", {})))
        found = {each.text for result in (first, second) for each in results(result)}
        return found, int(found.pop())

    others, process = asyncio.run(work())
    assert others == set()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_turns_that_begin_together_wait_for_the_same_start() -> None:
    async def work() -> list[str]:
        model = FakeModel(lambda request: "Done." if request.messages[-1].tool_results else call)
        async with cc.Agent(model, mcp_servers=[plain()]) as agent:
            found = await asyncio.gather(*[agent.run("Go.") for _ in range(3)])
        return [results(each)[0].text for each in found]

    call = cc.tool_call("c1", "plain__process", {})
    texts = asyncio.run(work())
    assert len(texts) == 3
    assert len({*texts}) == 1
    assert texts[0].isdecimal()


def test_all_servers_end_if_the_wait_for_their_end_is_cancelled() -> None:
    async def work() -> tuple[int, int]:
        agent = cc.Agent(FakeModel("Hi."), mcp_servers=[plain(), plain(name="other")])
        await agent.run("Go.")
        assert agent.executor.config.servers is not None
        owners = {each for each in asyncio.all_tasks() if each.get_name().startswith("MCP server ")}
        closing = asyncio.create_task(agent.executor.config.servers.close())
        await asyncio.sleep(0)
        closing.cancel()
        ended, _ = await asyncio.wait(owners, timeout=60)
        return len(owners), len(ended)

    assert asyncio.run(work()) == (2, 2)


def test_an_agent_without_an_event_loop_leaves_no_process() -> None:
    agent = cc.Agent(calling(("plain__process", {})), mcp_servers=[plain()])
    (result,) = results(agent.run_sync("Go."))
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.text), 0)


def test_an_agent_that_is_not_closed_leaves_no_process(caplog: pytest.LogCaptureFixture) -> None:
    """The event loop ends it, and that is not a failure of the server."""

    async def work() -> int:
        agent = cc.Agent(calling(("plain__process", {})), mcp_servers=[plain()])
        (result,) = results(await agent.run("Go."))
        return int(result.text)

    process = asyncio.run(work())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert "contextc.mcp" not in [each.name for each in caplog.records]


def test_progress_of_a_call_becomes_an_event_of_the_turn() -> None:
    async def work() -> list[str]:
        async with cc.Agent(calling(("plain__counts", {})), mcp_servers=[plain(timeout=1)]) as agent:
            return [each.text async for each in agent.stream("Go.").events() if isinstance(each, ToolProgress)]

    assert asyncio.run(work()) == ["line 2 (2 of 2)"]


def test_a_call_that_takes_too_long_is_stopped_and_the_server_is_told() -> None:
    hung, cancelled = run(calling(("plain__hangs", {}), ("plain__cancelled", {})), plain(timeout=0.2))
    assert hung.is_error
    assert "had not ended after 0.2 seconds" in hung.text
    assert len(json.loads(cancelled.text)) == 1


def test_a_person_approves_the_tools_that_the_declaration_names() -> None:
    asked: list[str] = []

    def approve(call: cc.ToolCall, _: object) -> bool:
        asked.append(call.name)
        return False

    model = calling(("plain__echo", {"text": "a"}), ("plain__process", {}))
    declined, ran = run(model, plain(needs_approval=["echo"]), approve=approve)
    assert asked == ["plain__echo"]
    assert (declined.is_error, ran.is_error) == (True, False)


def test_own_tools_and_other_servers_are_not_shadowed() -> None:
    """A server chooses the names of its tools, but not the prefix that keeps them apart."""

    def plain__echo(text: str) -> str:
        return f"mine: {text}"

    model = calling(("plain__echo", {"text": "a"}), ("other__echo", {"text": "b"}))
    mine, others = run(model, plain(), plain(name="other"), tools=[plain__echo])
    assert (mine.text, others.text) == ("mine: a", "b")


Declare = Callable[[], object]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: cc.MCPServer(name="a__b", command="x"), "name must begin with a letter"),
        (lambda: cc.MCPServer(name="a_", command="x"), "name must begin with a letter"),
        (lambda: cc.MCPServer(name="mcp", command="x"), "this name is reserved"),
        (lambda: cc.MCPServer(name="a"), "must have a command or a url"),
        (lambda: cc.MCPServer(name="a", command="x", url="https://example.com"), "must have a command or a url"),
        (lambda: cc.MCPServer(name="a", url="ftp://example.com"), "url must start with"),
        (lambda: cc.MCPServer(name="a", command="x", timeout=0), "timeout must be a number"),
        (lambda: cc.Agent(FakeModel("Hi."), mcp_servers=[plain(), plain()]), "two servers are named 'plain'"),
        (lambda: cc.Agent(FakeModel("Hi."), mcp_servers=["plain"]), "must be declarations of servers, got str"),  # type: ignore[list-item]
    ],
)
def test_a_wrong_declaration_is_refused_when_it_is_made(make: Declare, problem: str) -> None:
    with pytest.raises(cc.errors.InvalidSetting, match=problem):
        make()


def test_a_variable_that_is_not_set_keeps_the_server_from_starting_and_the_turn_goes_on() -> None:
    async def work() -> tuple[str, Awaitable[None] | dict[str, str]]:
        server = plain(env={"TOKEN": "${NOT_SET_ANYWHERE}"})
        async with cc.Agent(FakeModel("Hi."), mcp_servers=[server]) as agent:
            servers = agent.executor.config.servers
            assert servers is not None
            return (await agent.run("Hello.")).text, servers.problems()

    text, problems = asyncio.run(work())
    assert text == "Hi."
    assert "the variable NOT_SET_ANYWHERE is not set" in str(problems)
