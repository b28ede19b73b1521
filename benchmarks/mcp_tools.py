"""Tokens of requests with 178 tools of MCP servers: all of them defined, and searched.

The tools are those of four published servers, and of further servers that list the same definitions again, until there
are 178. The second request follows a search, and a call of what it has found.

Then ten questions, for each of which the model searches a tool and calls it, with the vendors' strict fakes: what the
requests share, and the bill. With all tools defined, the model needs no search.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.fake_vendors import KEY, AcceptedRequest, FakeVendors, Reply, ScriptedCall
from tests.fake_vendors.vendor import vendor
from tests.mcp.published_servers import published
from tests.mcp.servers import plain

import contextc as cc
from contextc.mcp import ServerConnections
from contextc.mcp.search import CALL_TOOL, MAX_FOUND, SEARCH_TOOL, rank_tools, read_found
from contextc.models import cost
from contextc.testing import FakeModel

TOOLS = 178
MODELS: dict[str, tuple[str, ...]] = {
    "anthropic:claude-opus-5-5": (),
    "anthropic:claude-opus-5-5, inline tools": ("inline-tools-2026-09-15",),
    "openai:gpt-5.4": (),
    "mistral:mistral-large-latest": (),
}
SESSIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {  # the vendor's fake, the model, flags of the provider
    "anthropic:claude-opus-5-5": ("anthropic", "anthropic:claude-opus-5-5", ()),
    "the same, inline tools": ("anthropic", "anthropic:claude-opus-5-5", ("inline-tools-2026-09-15",)),
    "openai:gpt-6-astra": ("openai_responses", "openai:gpt-6-astra", ()),
    "bedrock:us.anthropic.claude-opus-5-5": ("bedrock", "bedrock:us.anthropic.claude-opus-5-5", ()),
    "mistral:mistral-large-latest": ("mistral", "mistral:mistral-large-latest", ()),
}
KEY_VARIABLE = "BENCHMARK_KEY"


class Task(NamedTuple):
    """What a model searches for, and the tool that it then calls."""

    query: str
    tool: str
    arguments: dict[str, Any]


TASKS = (
    Task("list the files of a directory", "filesystem__list_directory", {"path": "FOLDER"}),
    Task("write a text to a file", "filesystem__write_file", {"path": "FOLDER/note.txt", "content": "Call Ann."}),
    Task("read a text file", "filesystem__read_text_file", {"path": "FOLDER/note.txt"}),
    Task("rename a file", "filesystem__move_file", {"source": "FOLDER/note.txt", "destination": "FOLDER/old.txt"}),
    Task("size and date of a file", "filesystem__get_file_info", {"path": "FOLDER/old.txt"}),
    Task("remember a fact about a person", "memory__create_entities", {"entities": []}),
    Task("what do I know about someone", "memory__search_nodes", {"query": "Ann"}),
    Task("forget a person", "memory__delete_entities", {"entityNames": ["Ann"]}),
    Task("add two numbers", "everything__get-sum", {"a": 1, "b": 2}),
    Task("repeat a message", "everything__echo", {"message": "Hello."}),
)


async def make_servers(folder: Path) -> list[cc.MCPServer]:
    servers = published(folder)
    connections = ServerConnections(servers)
    tools = [each.tool for each in (await connections.load_tools()).values()]
    await connections.close()
    found = len(tools)
    firsts = [[tool.name for tool in rank_tools(each.query, tools)[:MAX_FOUND]] for each in TASKS]
    hits = sum([each.tool in names for each, names in zip(TASKS, firsts, strict=True)])
    print(f"{found} tools of {len(servers)} published servers: {hits} of {len(TASKS)} searches find the wanted one")
    while found < TOOLS:
        definitions = [
            {"name": each.name.partition("__")[2], "description": each.description, "inputSchema": each.parameters}
            for each in tools[: TOOLS - found]
        ]
        path = folder / f"tools{len(servers)}.json"
        path.write_text(json.dumps(definitions))
        servers.append(plain(f"tools={path}", name=f"team{len(servers)}"))
        found += len(definitions)
    return servers


async def measure(name: str, servers: list[cc.MCPServer], share: float | None) -> list[int]:
    """Return the tokens of the requests of a turn: the question, then what follows a search and a call."""
    provider = cc.provider(name.partition(",")[0], betas=MODELS[name])
    path = {"path": "/tmp"}
    call: Any = ("filesystem__list_directory", path)
    if share == 0 and "inline" not in name and not name.startswith("openai"):
        call = ("call_tool", {"name": call[0], "arguments": path})
    search = cc.tool_call("c1", "search_tools", {"query": "list the files of a directory"})
    model = FakeModel(*([search] if share == 0 else []), cc.tool_call("c2", *call), "Done.", provider=provider)
    with cc.open_store("memory:") as store:
        options: Any = {"defer_tools_above": share, "tool_search": "contextc"}
        async with cc.Agent(model, mcp_servers=servers, store=store, **options) as agent:
            result = await agent.run("What is in this folder?", conversation="demo")
            return [agent.explain("demo", number).record.budget.input for number in range(1, result.steps + 1)]


class SearchingModel:
    """A model that searches a tool for each question and calls it. If it is not found, it searches for its name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.found = folder, 0

    def __call__(self, ask: AcceptedRequest) -> Reply:
        messages = ask.request.messages
        began = max(number for number, each in enumerate(messages) if each.role == "user" and each.text[:5] == "Task ")
        task = TASKS[int(messages[began].text.split()[1])]
        done = [call for each in messages[began:] for call in each.tool_calls]
        tools = {each.name for each in ask.request.tools if isinstance(each, cc.Tool)}
        if done and done[-1].name != SEARCH_TOOL:
            return Reply(f"Done: {task.query}.")
        found = read_found(messages[began:])
        if SEARCH_TOOL in tools and task.tool not in found:
            return Reply(calls=[ScriptedCall(SEARCH_TOOL, {"query": task.tool if done else task.query})])
        self.found += len(done) == 1
        arguments = json.loads(json.dumps(task.arguments).replace("FOLDER", str(self.folder)))
        if CALL_TOOL in tools:
            return Reply(calls=[ScriptedCall(CALL_TOOL, {"name": task.tool, "arguments": arguments})])
        return Reply(calls=[ScriptedCall(task.tool, arguments)])


def found_by_provider(provider: cc.Provider, task: Task, number: int, folder: Path) -> cc.Message:
    """Return a reply within which the provider has searched, and the model calls what was found."""
    id, text = f"{number}", json.dumps(task.arguments).replace("FOLDER", str(folder))
    if provider.name == "openai":
        served = {"execution": "server", "call_id": None, "status": "completed"}
        loaded: Any = {"type": "function", "name": task.tool, "parameters": {}, "strict": False, "defer_loading": True}
        call = {"type": "function_call", "id": f"fc_{id}", "call_id": f"call_{id}", "name": task.tool}
        output: list[Any] = [
            {"type": "tool_search_call", "id": f"tsc_{id}", **served, "arguments": {"paths": [task.tool]}},
            {"type": "tool_search_output", "id": f"tso_{id}", **served, "tools": [loaded]},
            {**call, "arguments": text, "status": "completed"},
        ]
        return provider.formatter.decode_reply({"id": f"resp_{id}", "status": "completed", "output": output})
    search = {"type": "server_tool_use", "id": f"srvtoolu_{id}", "name": "tool_search_tool_bm25"}
    references: Any = [{"type": "tool_reference", "tool_name": task.tool}]
    result: Any = {"type": "tool_search_tool_search_result", "tool_references": references}
    content: list[Any] = [
        {**search, "input": {"query": task.query}},
        {"type": "tool_search_tool_result", "tool_use_id": f"srvtoolu_{id}", "content": result},
        {"type": "tool_use", "id": f"toolu_{id}", "name": task.tool, "input": json.loads(text)},
    ]
    answer: Any = {"id": f"msg_{id}", "role": "assistant", "content": content, "stop_reason": "tool_use"}
    return provider.formatter.decode_reply(answer)


async def run_provider_search(spec: str, servers: list[cc.MCPServer], folder: Path) -> tuple[str, ...]:
    """Return the figures of ten questions whose tools the provider finds within the reply.

    There is no bill, and what a search adds is not counted: the fakes do not simulate that.
    """
    provider = cc.provider(spec)
    replies: list[Any] = []
    for number, task in enumerate(TASKS):
        replies += [found_by_provider(provider, task, number, folder), f"Done: {task.query}."]
    with cc.open_store("memory:") as store:
        model = FakeModel(*replies, provider=provider)
        async with cc.Agent(
            model, mcp_servers=servers, store=store, defer_tools_above=0, tool_search="provider"
        ) as agent:
            steps = 0
            for number in range(len(TASKS)):
                steps += (await agent.run(f"Task {number} of the list, please.", conversation="demo")).steps
            records = [agent.explain("demo", number).record for number in range(1, steps + 1)]
    total = sum([each.budget.input for each in records])
    return spec, "searched by the provider", str(steps), str(records[-1].epoch), "", f"{total:,}", ""


async def run_session(name: str, servers: list[cc.MCPServer], share: float | None, folder: Path) -> tuple[str, ...]:
    """Return the figures of ten questions as cells of a table."""
    format, spec, betas = SESSIONS[name]
    model = SearchingModel(folder)
    with FakeVendors(model) as vendors, cc.open_store("memory:") as store:
        provider = cc.provider(spec, url=vendors.url(format), key=KEY_VARIABLE, betas=betas)
        options: Any = {"defer_tools_above": share, "tool_search": "contextc"}
        async with cc.Agent(provider, mcp_servers=servers, store=store, **options) as agent:
            steps = 0
            for number in range(len(TASKS)):
                steps += (await agent.run(f"Task {number} of the list, please.", conversation="demo")).steps
            records = [agent.explain("demo", number).record for number in range(1, steps + 1)]
        assert not vendors.refused, vendors.refused[0]
        usages = [each.usage for each in store.load("demo") if each.usage]
    shared = [each.shared_tokens / each.budget.input for each in records[1:]]
    dollars = sum([cost(provider.model, each) or 0.0 for each in usages])
    return (
        name,
        "all defined" if share is None else f"searched, {model.found} of {len(TASKS)} found at once",
        str(steps),
        str(records[-1].epoch),
        f"{sum(shared) / len(shared):.0%}",
        f"{sum([each.budget.input for each in records]):,}",
        f"${dollars:.3f}" if vendor(format).cache_rules else "",  # other caches are simulated by bytes only
    )


async def main() -> None:
    with TemporaryDirectory() as place:
        servers = await make_servers(Path(place).resolve())
        table = Table("model", "all defined", "searched", "after search and call")
        for name in MODELS:
            everything, searched = await measure(name, servers, None), await measure(name, servers, 0)
            table.add_row(name, f"{everything[0]:,}", f"{searched[0]:,}", f"{searched[-1]:,}")
        Console(width=120).print(table)
        os.environ[KEY_VARIABLE] = KEY
        sessions = Table("model", "tools", "requests", "epochs", "shared prefix", "input tokens", "bill")
        for name in SESSIONS:
            for share in (None, 0):
                sessions.add_row(*await run_session(name, servers, share, Path(place).resolve()))
        for spec in ("anthropic:claude-opus-5-5", "openai:gpt-5.4"):
            sessions.add_row(*await run_provider_search(spec, servers, Path(place).resolve()))
        Console(width=150).print(sessions)


if __name__ == "__main__":
    asyncio.run(main())
