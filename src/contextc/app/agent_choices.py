"""The options of an agent that a user of the command line or of the server chooses. It imports little, because commands
begin with it.
"""

from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from contextc.config import PolicyName
from contextc.store.message_log import DEFAULT_AGENT

ToolSelection: TypeAlias = Literal["all", "read", "none"]


class AgentChoices(Struct, frozen=True, kw_only=True):
    """`root` is the working directory of tools. `system` and `policy` replace what is configured. `budget` limits the
    input and `output` an answer, in tokens; `steps` limits a turn.

    Without `tools`, an agent has all tools; none for the local model, which is too small and slow for them, and for a
    program with tools of its own. `mcp` are the configured MCP servers: `all`, `none`, or names separated by commas. By
    default it has all if it has all tools.
    """

    agent: str = DEFAULT_AGENT
    system: str | None = None
    tools: ToolSelection | None = None
    root: Path = Path(".")
    budget: int | None = None
    output: int | None = None
    policy: PolicyName | None = None
    steps: int | None = None
    mcp: str | None = None
