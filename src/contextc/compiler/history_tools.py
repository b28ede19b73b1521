"""The tools with which a model reads what its request has no room for: `search_history` and `fetch_result`.

They are offered from the first request on, because a tool that is added later changes the prefix. So a channel that was
begun without them, or with an earlier form of them, keeps what it has until its next epoch.
"""

from collections.abc import Sequence

from contextc._json import JSONObject
from contextc.formats.base import Formatter
from contextc.models.tokens import TokenCounter
from contextc.prompts import hash_tools
from contextc.providers import Provider
from contextc.providers.structured_output import has_structured_output
from contextc.tools.spec import AnyTool, Tool, get_tool_name

FETCH_TOOL = Tool(
    name="fetch_result",
    description="Reads a message or result by its id.",
    parameters={
        "type": "object",
        "properties": {"id": {"type": "string"}, "offset": {"type": "integer"}},
        "required": ["id"],
    },
)
SEARCH_TOOL = Tool(
    name="search_history",
    description="Searches all of this conversation, also what is no longer shown.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
HISTORY_TOOLS = (FETCH_TOOL, SEARCH_TOOL)
MAX_SHARE_ALONE = 0.02
"""Share of the window that they may take if there are no other tools."""
HISTORY_TOOL_NAMES = tuple([tool.name for tool in HISTORY_TOOLS])

FORMER_FETCH_TOOL = Tool(
    name="fetch_result",
    description=(
        "Reads a tool result that was left out of the conversation, or shortened, to save room. The line that stands "
        "in its place says its id."
    ),
    parameters={
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id of the result, such as r57."},
            "offset": {"type": "integer", "description": "The character to begin at; 0 is the first."},
            "length": {"type": "integer", "description": "How many characters to read; at most 20000."},
        },
        "required": ["id"],
    },
)
"""What requests of version 0.1 had. It never changes, so that their channels keep their prefix."""


def list_variants(names: Sequence[str], *, offers: bool) -> list[tuple[Tool, ...]]:
    """Return the history tools that a request may have: first those of a new epoch, then those of earlier ones.

    A caller's own tool with one of their names replaces it.
    """
    variants = [HISTORY_TOOLS, (FORMER_FETCH_TOOL,), ()] if offers else [(), HISTORY_TOOLS, (FORMER_FETCH_TOOL,)]
    return [tuple([tool for tool in each if tool.name not in names]) for each in variants]


def choose_tools(
    tools: Sequence[AnyTool],
    variants: Sequence[Sequence[Tool]],
    stand_in: Tool | None,
    order: Sequence[str],
    sent: str | None,
) -> tuple[list[AnyTool], str, bool]:
    """Return the tools of a request, their hash, and whether a new epoch would have others.

    `order` and `sent` are the names and the hash of those of the previous request. Without any, the first variant is
    used, otherwise the one that was sent.
    """
    place_of = {name: index for index, name in enumerate(order)}
    lists: list[list[AnyTool]] = []
    for added in variants:
        told: list[AnyTool] = [*tools, *added] if tools or added or stand_in is None else [stand_in]
        if order and all(get_tool_name(tool) in place_of for tool in told):
            told.sort(key=lambda tool: place_of[get_tool_name(tool)])
        lists.append(told)
    hashes = [hash_tools(told) if told else "" for told in lists]
    at = hashes.index(sent) if sent in hashes else 0
    return lists[at], hashes[at], hashes[at] != hashes[0]


def can_offer_alone(provider: Provider, counter: TokenCounter, settings: JSONObject, budget: int | None) -> bool:
    """Return True if a request without other tools may have these.

    That is so if the provider is known to accept them with such settings, and if they are a small part of the window:
    some providers add several hundred tokens to the first tool.
    """
    model = provider.model
    if provider.runs_tools or not model.tools or (provider.format == "openai_chat" and not model.tools_in_chat):
        return False
    has_output_format = provider.formatter.settings.read(settings).settings.output is not None
    if has_output_format and not has_structured_output(provider, with_tools=True):
        return False
    tokens = counter.count_tools(provider.formatter.encode_tools(HISTORY_TOOLS))
    return tokens <= min(budget or model.window, model.window) * MAX_SHARE_ALONE


def forces_call(formatter: Formatter, settings: JSONObject) -> bool:
    """Return True if the settings make the model call a tool."""
    choice = formatter.settings.read(settings).settings.tool_choice
    return choice is not None and choice.mode in ("required", "named")
