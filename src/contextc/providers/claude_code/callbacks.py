"""Requests that Claude Code sends during a turn: to approve a tool of its own, to run one of ours, and hooks.

Hooks run before each tool call and after each batch of calls. The first can deny a call, both can end the turn, and the
second can add messages, which the model reads with the results.

Our tools are offered by an MCP server inside this process, with unchanged schemas. The CLI needs no approval for them,
because the host asks for it. Without a host the CLI's own rules apply, and all that would need approval is denied.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from contextc._installed_packages import importing
from contextc._json import JSONObject
from contextc.formats.claude_code.decode import TOOL_PREFIX
from contextc.messages import Media, Message, ToolCall, ToolResult, tool_call
from contextc.providers.client import Host

if TYPE_CHECKING:
    from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext

SERVER_NAME = TOOL_PREFIX.removeprefix("mcp__").removesuffix("__")
"""Name of our MCP server, which is part of the CLI's tool names."""
CALL_ID_KEY = "claudecode/toolUseId"
"""Metadata key for the id of the tool call in a request to the MCP server."""
RESULT_LIMIT = {"anthropic/maxResultSizeChars": 500_000}
"""Maximum length of a result that the CLI passes to the model. It writes longer ones to a file."""

HOOK_SECONDS = 3_600.0
"""How long the CLI waits for a hook. Our triggers and our store may be slow."""
USER_CONTEXT = "The user sent this message while you were working: "
"""Begins a message of the user among what a hook adds, all of which the CLI passes to the model as system text."""


class ClaudeCallbacks:
    """Callbacks of one process, for the host of its current call."""

    def __init__(self) -> None:
        self.host: Host | None = None

    def mcp_server(self, tools: list[JSONObject]) -> JSONObject:
        """Return the MCP server in the form of the SDK."""
        with importing("mcp", extra="claude-code"):
            from mcp.types import CallToolResult, ListToolsResult, Tool

        offered = ListToolsResult(tools=[Tool.model_validate({**tool, "_meta": RESULT_LIMIT}) for tool in tools])

        async def listed(context: object, params: object) -> ListToolsResult:
            return offered

        async def called(context: object, params: Any) -> CallToolResult:  # its class name differs between versions
            call_id = cast(str, _meta(params).get(CALL_ID_KEY, ""))
            result = await self._run(tool_call(call_id, params.name, params.arguments or {}))
            return CallToolResult.model_validate({"content": _content(result), "isError": result.is_error})

        made = _create_server(listed, called)
        return {"type": "sdk", "name": SERVER_NAME, "instance": made, "alwaysLoad": True, "disableAutoBackground": True}

    async def approve(
        self, name: str, input: JSONObject, context: "ToolPermissionContext"
    ) -> "PermissionResultAllow | PermissionResultDeny":
        """Ask the host to approve a call of the CLI's own tools."""
        from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

        if self.host is None:
            return PermissionResultDeny(message="Nobody is there to be asked.")
        try:
            why_not = await self.host.approve(tool_call(context.tool_use_id or "", name, input))
        except Exception as error:
            why_not = f"Asking failed: {error}"
        return PermissionResultDeny(message=why_not) if why_not else PermissionResultAllow()

    def hooks(self) -> dict[str, list[Any]]:
        """Return the hooks in the form of the SDK."""
        from claude_agent_sdk import HookMatcher

        return {
            "PreToolUse": [HookMatcher(hooks=[self._before_call], timeout=HOOK_SECONDS)],
            "PostToolBatch": [HookMatcher(hooks=[self._after_calls], timeout=HOOK_SECONDS)],
        }

    async def _before_call(self, given: Any, tool_use_id: str | None, context: object) -> Any:
        call = tool_call(given["tool_use_id"], given["tool_name"].removeprefix(TOOL_PREFIX), given["tool_input"])
        why_not = "" if self.host is None else await self.host.admit(call)
        if not why_not:
            return {}
        decision = {"permissionDecision": "deny", "permissionDecisionReason": why_not}
        return {**_ending(why_not), "hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}

    async def _after_calls(self, given: Any, tool_use_id: str | None, context: object) -> Any:
        if given.get("agent_id"):  # a sub-agent of the CLI, whose messages are not part of the reply
            return {}
        texts: list[str] = []

        async def deliver(messages: Sequence[Message]) -> bool:
            texts.extend([_context_text(message) for message in messages])
            return True

        calls = [call["tool_use_id"] for call in given["tool_calls"]]
        why_not = "" if self.host is None else await self.host.between_calls(deliver, calls)
        added = {"hookEventName": "PostToolBatch", "additionalContext": "\n\n".join(texts)}
        return {**(_ending(why_not) if why_not else {}), **({"hookSpecificOutput": added} if texts else {})}

    async def _run(self, call: ToolCall) -> ToolResult:
        reason = "Nobody is there to run it."
        if self.host is not None:
            try:
                return await self.host.run(call)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
        return ToolResult(call_id=call.id, name=call.name, content=reason, is_error=True)


def _ending(why: str) -> JSONObject:
    """Return the fields of a hook's output that end the turn."""
    return {"continue_": False, "stopReason": why}


def _context_text(message: Message) -> str:
    return message.text if message.role == "system" else f"{USER_CONTEXT}{message.text}"


def _create_server(listed: Callable[..., Any], called: Callable[..., Any]) -> object:
    """Return a server with these handlers, as mcp 2 takes them. In mcp 1 they are registered by type of request."""
    types, server_class = cast(Any, import_module("mcp.types")), cast(Any, import_module("mcp.server")).Server
    if not hasattr(server_class, "list_tools"):
        return server_class(SERVER_NAME, on_list_tools=listed, on_call_tool=called)

    async def list_tools(request: Any) -> Any:
        return types.ServerResult(await listed(None, request.params))

    async def call_tool(request: Any) -> Any:
        return types.ServerResult(await called(None, request.params))

    made = server_class(SERVER_NAME)
    made.request_handlers |= {types.ListToolsRequest: list_tools, types.CallToolRequest: call_tool}
    return made


def _meta(params: Any) -> JSONObject:
    """Return the metadata of a request: a dict in mcp 2, an object in mcp 1."""
    found: Any = params.meta
    if found is None or isinstance(found, dict):
        return cast(JSONObject, found or {})
    return cast(JSONObject, found.model_extra or {})


def _content(result: ToolResult) -> list[JSONObject]:
    if isinstance(result.content, str):
        return [{"type": "text", "text": result.content}]
    return [_media(part) if isinstance(part, Media) else {"type": "text", "text": part.text} for part in result.content]


def _media(part: Media) -> JSONObject:
    if part.data is not None and part.kind in ("image", "audio"):
        return {"type": part.kind, "data": b64encode(part.data).decode(), "mimeType": part.mime_type}
    return {"type": "text", "text": f"[{part.kind}: {part.name or part.url or part.mime_type}]"}


def tool_names(tools: list[JSONObject]) -> list[str]:
    """Return the CLI's names of these tools."""
    return [TOOL_PREFIX + cast(str, tool["name"]) for tool in tools]
