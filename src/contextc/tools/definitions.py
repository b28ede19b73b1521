"""Tool definitions as they are sent to a model."""

from typing import TypeAlias

from msgspec import Struct

from contextc._json import JSONObject
from contextc.messages import Extra


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A function a model may call. `parameters` is the JSON Schema of its arguments; `strict` enforces the schema."""

    name: str
    description: str = ""
    parameters: JSONObject = {}
    strict: bool | None = None
    extra: Extra | None = None


class NativeTool(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A tool that one provider defines and runs itself. It is sent unchanged, and only to that provider."""

    provider: str
    data: JSONObject
    extra: Extra | None = None


AnyTool: TypeAlias = Tool | NativeTool


def get_tool_name(tool: AnyTool) -> str:
    return tool.name if isinstance(tool, Tool) else str(tool.data.get("name") or tool.data.get("type") or "")
