"""Tools that the client of a turn runs itself, such as the tools of an AG-UI client.

Their definitions are in the metadata of the message that opens the turn, so that any process can run it. A call of such
a tool suspends the turn. The client's result is stored as the answer, and continues the turn in any process.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from msgspec.structs import replace as replace_fields

from contextc.executor.agent_config import AgentConfig, Suspend
from contextc.messages import Message
from contextc.tools import FunctionTool, tool
from contextc.tools.spec import Tool

META_KEY = "client_tools"


def add_definitions(message: Message, tools: Sequence[Tool]) -> Message:
    """Return the input of a turn with the definitions of the client's tools."""
    if not tools:
        return message
    return replace_fields(message, meta={**(message.meta or {}), META_KEY: msgspec.to_builtins(list(tools))})


def read_definitions(message: Message) -> tuple[Tool, ...]:
    """Return the definitions of the client's tools in the metadata of a message. Unreadable ones are left out."""
    try:
        return msgspec.convert((message.meta or {}).get(META_KEY, ()), tuple[Tool, ...])
    except msgspec.ValidationError:
        return ()


def with_client_tools(config: AgentConfig, tools: Sequence[Tool]) -> AgentConfig:
    """Return the configuration of an agent with the client's tools. A tool of the agent with the same name stays.

    An agent whose approvals are answered by a callback cannot be suspended, and gets none of them.
    """
    new = {each.name: tool(each, run_by_client, approval=True) for each in tools if each.name not in config.tools}
    if not new or not (config.approve is None or isinstance(config.approve, Suspend)):
        return config
    before = config.compile_arguments
    settings = dict(before.get("settings") or {})
    if not before.get("tools"):  # these settings are for requests without tools
        settings = {name: each for name, each in settings.items() if name not in config.provider.prose_settings}
    return replace(
        config,
        tools={**config.tools, **new},
        compile_arguments={
            **before,
            "tools": (*(before.get("tools") or ()), *[each.tool for each in new.values()]),
            "settings": settings,
        },
        approve=config.approve or Suspend(),
    )


def is_client_tool(tool: FunctionTool | None) -> bool:
    return tool is not None and tool.function is run_by_client


def run_by_client(**arguments: object) -> str:
    """Stand in for the function of a client's tool."""
    raise RuntimeError("The client runs this tool. It was called here.")
