"""The two tools that stand for many: one searches the tools of MCP servers, one runs any of them by its name.

The definitions of many tools would fill a share of every request. What a search finds is then added as a tool, where
the provider can append one. Elsewhere the result has the schema, and `call_tool` runs it: with the arguments checked,
and with the approval and the limits of the tool that it names.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum, log

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, encode
from contextc._worker_threads import run_blocking
from contextc.messages import Message, ToolCall, ToolResult
from contextc.tools.context import ToolContext
from contextc.tools.definitions import Tool
from contextc.tools.execution import unknown_tool_result
from contextc.tools.function_tool import FunctionTool, tool

SEARCH_TOOL, CALL_TOOL = "search_tools", "call_tool"
MAX_FOUND = 5
MAX_LISTED_NAMES = 60
MAX_SHOWN_CHARACTERS = 400
NAME_WEIGHT = 3
MIN_START = 3
"""Characters of a word that also match the beginning of a longer one."""
WORD = re.compile(r"[^\W_]+")
CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
LINE = re.compile(r"^- (\S+)", re.MULTILINE)

Catalog = Callable[[], Mapping[str, FunctionTool]]
"""Returns the tools of all servers as they are now, by the names that models call them by."""


def search_tool(catalog: Catalog, servers: Iterable[str], *, appends: bool) -> FunctionTool:
    """Return the tool that searches others. With `appends`, the executor adds what it finds."""
    then = "They are yours from your next step on." if appends else f"Run them with {CALL_TOOL}."
    spec = Tool(
        name=SEARCH_TOOL,
        description=f"Search for further tools, of these servers: {', '.join(servers)}. {then}",
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What the tool should do, in a few words."}},
            "required": ["query"],
        },
    )

    async def search(query: str) -> str:
        tools = catalog()
        found = (await run_blocking(rank_tools, query, [each.tool for each in tools.values()]))[:MAX_FOUND]
        if not found:
            names = sorted(tools)
            some = ", ".join(names[:MAX_LISTED_NAMES])
            more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
            return f"No tool matches. There are: {some}{more}." if names else "There are no tools."
        return f"Found {len(found)} of {len(tools)} tools. {then}\n" + "\n".join(
            [_describe(each, with_schema=not appends) for each in found]
        )

    return tool(spec, search)


def call_tool(catalog: Catalog) -> FunctionTool:
    """Return the tool that runs others. Approval, limits and order of a call are those of the tool that it names."""
    spec = Tool(
        name=CALL_TOOL,
        description=f"Run a tool that {SEARCH_TOOL} has found.",
        parameters={
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "object", "description": "Its arguments, by its schema."},
            },
            "required": ["name", "arguments"],
        },
    )

    async def call(contextc_context: ToolContext, /, name: str, arguments: JSON) -> ToolResult:
        inner = ToolCall(id=contextc_context.call.id, name=name, arguments=arguments)
        tools = catalog()
        if (wanted := tools.get(name)) is None:
            return unknown_tool_result(inner, tools)
        return await wanted.run(inner, contextc_context)

    def find_target(given: ToolCall) -> FunctionTool | None:
        """Return the generic tool with what holds for the tool that the call names."""
        name = given.arguments.get("name")
        wanted = catalog().get(name) if isinstance(name, str) else None
        if wanted is None:
            return None
        return replace(
            made, tool=wanted.tool, approval=wanted.approval, parallel=wanted.parallel, timeout=wanted.timeout
        )

    made = replace(tool(spec, call), find_target=find_target)
    return made


def read_found(messages: Iterable[Message]) -> set[str]:
    """Return the names that searches have found, in the results of these messages."""
    results = [each for message in messages for each in message.tool_results if each.name == SEARCH_TOOL]
    return {name for each in results if not each.is_error for name in LINE.findall(each.text)}


def rank_tools(query: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools that have a word of the query, the best first. Rare words weigh more, and those of names.

    A word also matches the beginning of a longer one: "issue" finds "issues".
    """
    find_alike = _alike_to(_words(query))
    texts = [
        (find_alike(_words(each.name)), find_alike(_words(f"{each.description} {' '.join(_fields(each))}")))
        for each in tools
    ]
    having = Counter([word for name, text in texts for word in name | text])
    weights = {word: log(1 + len(tools) / number) for word, number in having.items()}
    scores: list[tuple[float, str, Tool]] = []
    for each, (name, text) in zip(tools, texts, strict=True):
        score = 1_000.0 if each.name == query.strip() else 0.0
        score += NAME_WEIGHT * fsum([weights[word] for word in name]) + fsum([weights[word] for word in text])
        if score:
            scores.append((-score, each.name, each))
    return [each for _, _, each in sorted(scores, key=lambda score: score[:2])]


def _alike_to(query: Iterable[str]) -> Callable[[Iterable[str]], set[str]]:
    """Return a function that finds the words of a query that are in a text: as they are, or one the start of the other.

    Its time grows with the text alone, however many words the query has.
    """
    wanted = set(query)
    longest = max(map(len, wanted), default=0)
    starts: defaultdict[str, set[str]] = defaultdict(set)
    for word in wanted:
        for end in range(MIN_START, len(word)):
            starts[word[:end]].add(word)

    def find(text: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for word in set(text):
            found |= starts.get(word, set()) | ({word} & wanted)
            found |= {start for end in range(MIN_START, min(len(word), longest + 1)) if (start := word[:end]) in wanted}
        return found

    return find


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(CAPITAL.sub(" ", text))]


def _fields(each: Tool) -> list[str]:
    properties: JSONObject = each.parameters.get("properties") or {}
    return [*properties]


def _describe(each: Tool, *, with_schema: bool) -> str:
    text = " ".join(each.description.split())
    text = text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"
    schema = f"\n  schema of its arguments: {encode(each.parameters).decode()}" if with_schema else ""
    return f"- {each.name} {text}{schema}"
