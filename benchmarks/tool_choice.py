"""How often the local model chooses the right tool: 20 tasks, with 178 tools of MCP servers, 37, 10 and searched ones.

The tools are those of `mcp_tools.py`. A task is right if the model calls a tool with the wanted name, whatever the
arguments are, in its first step, or after searches within three. The local model is a toy, so the figures say how
far a small model gets, not how good the search is: for that, the last rows have the searches of the tasks' own words.

It needs about twenty minutes of CPU time. An argument selects the rows whose names contain it.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.mcp_tools import make_servers

import contextc as cc
from contextc.mcp import ServerConnections
from contextc.mcp.search import CALL_TOOL, MAX_FOUND, SEARCH_TOOL, rank_tools

WINDOW = 49_152
"""More than the model has. The definitions are estimated in full, but its template has a line for each tool only, so
that 178 of them fit into its 8,192 tokens."""
STEPS, OUTPUT = 3, 80
TASKS: dict[str, tuple[str, ...]] = {
    "List the files in the folder /tmp/notes.": ("list_directory", "list_directory_with_sizes"),
    "List the files in /tmp/notes with their sizes.": ("list_directory_with_sizes",),
    "Show the folder /tmp/notes as a recursive tree.": ("directory_tree",),
    "Read the text file /tmp/notes/a.txt.": ("read_text_file", "read_file"),
    "Read the files a.txt and b.txt in /tmp/notes at once.": ("read_multiple_files",),
    "Write the text 'Call Ann.' to the new file /tmp/notes/c.txt.": ("write_file",),
    "In the file /tmp/notes/a.txt, replace the line 'one' by 'two'.": ("edit_file",),
    "Create the folder /tmp/notes/old.": ("create_directory",),
    "Rename the file /tmp/notes/a.txt to /tmp/notes/z.txt.": ("move_file",),
    "Find all files in /tmp/notes that match *.md.": ("search_files",),
    "When was the file /tmp/notes/a.txt last changed?": ("get_file_info",),
    "Which folders may you access?": ("list_allowed_directories",),
    "Read the image /tmp/notes/logo.png.": ("read_media_file",),
    "What is the sum of 12 and 30?": ("get-sum",),
    "Echo the message 'Hello.'": ("echo",),
    "Show all environment variables.": ("get-env",),
    "Compress the file a.txt with gzip.": ("gzip-file-as-resource",),
    "Create an entity for the person Ann in the knowledge graph.": ("create_entities",),
    "Search the knowledge graph for Ann.": ("search_nodes", "open_nodes"),
    "Read the entire knowledge graph.": ("read_graph",),
}


class Choices(NamedTuple):
    """How many tasks were right, in how many a tool was called at all, and the input tokens of a first request."""

    right: int
    called: int
    tokens: int


def first_tools(servers: list[cc.MCPServer], count: int) -> list[cc.MCPServer]:
    """Return servers with the wanted tools of the first tasks, as many as that."""
    wanted = list(dict.fromkeys([name for names in TASKS.values() for name in names]))[:count]
    return [
        cc.MCPServer(name=each.name, command=each.command, args=each.args, env=each.env, tools=wanted)
        for each in servers
        if each.name in ("everything", "filesystem", "memory")
    ]


async def choose(servers: list[cc.MCPServer], share: float | None) -> Choices:
    right = called = tokens = 0
    provider = cc.provider("local", window=WINDOW)
    with cc.open_store("memory:") as store:
        limits = cc.Limits(steps=1 if share is None else STEPS)
        executor = cc.AgentExecutor(
            store,
            provider,
            mcp_servers=servers,
            triggers=(),
            limits=limits,
            max_output_tokens=OUTPUT,
            defer_tools_above=share,
            tool_search="contextc",
        )
        for number, (task, wanted) in enumerate(TASKS.items()):
            await executor.start(f"task {number}", task).wait()
            messages = store.load(f"task {number}")
            made = [call for each in messages for call in each.tool_calls]
            tokens = max(tokens, next((each.usage.input for each in messages if each.usage), 0))
            names = [_name(call) for call in made if call.name != SEARCH_TOOL]
            called += bool(made)
            right += bool(names) and names[0] in wanted
            print(f"{task} {[call.name for call in made]} {names[:1]}", file=sys.stderr)
        await executor.close()
    return Choices(right, called, tokens)


def _name(call: cc.ToolCall) -> str:
    name: Any = call.arguments.get("name") if call.name == CALL_TOOL else call.name
    return str(name).partition("__")[2]


async def main() -> None:
    with TemporaryDirectory() as place:
        servers = await make_servers(Path(place).resolve())
        connections = ServerConnections(servers)
        tools = [each.tool for each in (await connections.load_tools()).values()]
        await connections.close()
        table = Table("tools", "right", "a tool was called", "tokens of the first request")
        rows = {
            f"all {len(tools)} sent": (servers, None),
            "37 sent, those of the published servers": (servers[:4], None),
            "10 sent, all of them wanted by a task": (first_tools(servers, 10), None),
            f"{len(tools)} searched": (servers, 0),
        }
        chosen = {name: row for name, row in rows.items() if not sys.argv[1:] or sys.argv[1] in name}
        for name, (given, share) in chosen.items():
            found = await choose(given, share)
            table.add_row(name, f"{found.right} of {len(TASKS)}", f"{found.called}", f"{found.tokens:,}")
        for name, some in (("178 tools", tools), ("37 tools", tools[:37])):
            hits = 0
            for task, wanted in TASKS.items():
                firsts = [each.name.partition("__")[2] for each in rank_tools(task, some)[:MAX_FOUND]]
                hits += any(each in wanted for each in firsts)
            table.add_row(f"{name}, searched by the task's own words", f"{hits} of {len(TASKS)} found", "", "")
        Console(width=120).print(table)


if __name__ == "__main__":
    asyncio.run(main())
