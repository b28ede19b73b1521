"""Options of a call to Claude Code: the request body, split into options of the process and the prompt of this turn.

The keys of a body are options of `ClaudeAgentOptions`, as plain data. Options for session, directory and callbacks are
set by this client and rejected in a body, and so are keys that the SDK does not have. `tools` are our tools. The CLI's
own tools are selected by `builtin_tools`. Our system prompt is appended to Claude Code's, or replaces it if
`prompt="replace"`.
"""

import os
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from contextc._installed_packages import importing
from contextc._json import JSON, JSONObject, encode_canonical
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.formats.claude_code import split_history_and_prompt
from contextc.formats.claude_code.codec import TOOL_PREFIX
from contextc.formats.message_preparation import describe_media
from contextc.messages import SYSTEM_CONTEXT, Media, Message, ToolCall, ToolResult, tool_call
from contextc.providers.client import Host, ProviderCall, check_settings
from contextc.providers.registry import DEFAULT_MODEL, Provider

if TYPE_CHECKING:
    from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext


# ── requests of the program ───────────────────────────────────────────────────────────────────────────────────────────
# Requests that Claude Code sends during a turn: to approve a tool of its own, to run one of ours, and hooks.
#
# Hooks run before each tool call and after each batch of calls. The first can deny a call, both can end the turn, and
# the second can add messages, which the model reads with the results.
#
# Our tools are offered by an MCP server inside this process, with unchanged schemas. The CLI needs no approval for
# them, because the host asks for it. Without a host the CLI's own rules apply, and all that would need approval is
# denied.


SERVER_NAME = TOOL_PREFIX.removeprefix("mcp__").removesuffix("__")
"""Name of our MCP server, which is part of the CLI's tool names."""
CALL_ID_KEY = "claudecode/toolUseId"
"""Metadata key for the id of the tool call in a request to the MCP server."""
RESULT_LIMIT = {"anthropic/maxResultSizeChars": 500_000}
"""Maximum length of a result that the CLI passes to the model. It writes longer ones to a file."""

HOOK_SECONDS = 3_600.0
"""The time that the CLI waits for a hook. Our triggers and our store may be slow."""
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
    return {"type": "text", "text": describe_media(part)}


def tool_names(tools: list[JSONObject]) -> list[str]:
    """Return the CLI's names of these tools."""
    return [TOOL_PREFIX + cast(str, tool["name"]) for tool in tools]


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────────


RESERVED_OPTIONS = {
    *("tools", "cwd", "env", "stderr", "debug_stderr", "can_use_tool", "hooks", "permission_prompt_tool_name", "user"),
    *("resume", "session_id", "fork_session", "resume_session_at", "resume_drops_turn", "continue_conversation"),
    *("session_store", "session_store_flush", "load_timeout_ms", "cli_path"),
}
SEPARATE_KEYS = ("messages", "tools", "resume", "model", "system_prompt", "prompt", "builtin_tools")
PROMPTS = ("append", "replace")
CONTINUE_PROMPT = f"{SYSTEM_CONTEXT}Go on where you were."
"""Prompt for a request without one: an interrupted turn may end with tool results."""
MAX_LINE_BYTES = 64 << 20
"""Maximum length of a line in bytes. An image is one line."""
ONE_TURN_ENV = {
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
}
"""Variables that end a turn with its answer: no repeated request without streaming, and no later background work."""

OUTPUT_VARIABLE, DEFAULT_OUTPUT = "CLAUDE_CODE_MAX_OUTPUT_TOKENS", 32_000
"""Variable for the maximum length of a reply, and the CLI's smallest default in tokens."""


class ClaudeCallOptions(Struct, frozen=True, kw_only=True):
    """Parsed options of a call. `history` are lines to add to the session, `prompt` is the message to answer."""

    options: JSONObject
    tools: list[JSONObject]
    env: dict[str, str]
    directory: str
    has_host: bool
    history: list[JSONObject]
    prompt: JSONObject

    @property
    def process_key(self) -> bytes:
        """Key of the options that a running process must have to serve this call."""
        return encode_canonical([self.options, self.tools, self.env, self.directory, self.has_host])

    def to_sdk_options(
        self, serving: ClaudeCallbacks, **more: object
    ) -> Any:  # the SDK, and so its class, is imported late
        """Return the options as an object of the SDK."""
        from claude_agent_sdk import ClaudeAgentOptions

        options: JSONObject = {
            "max_buffer_size": MAX_LINE_BYTES,
            **self.options,
            "cwd": self.directory or None,
            "env": self.env,
            **more,
        }
        if agents := options.get("agents"):
            options["agents"] = _agents(agents)
        if self.tools:
            servers: JSONObject = options.get("mcp_servers") or {}
            options["mcp_servers"] = {**servers, SERVER_NAME: serving.mcp_server(self.tools)}
            options["allowed_tools"] = [*options.get("allowed_tools", ()), *tool_names(self.tools)]
        if self.has_host:
            options |= {"can_use_tool": serving.approve, "hooks": serving.hooks()}
        return ClaudeAgentOptions(**options)


def parse_call_options(call: ProviderCall, *, prompt: str, retries: int, env: Mapping[str, str]) -> ClaudeCallOptions:
    body = call.full_request()
    history, asked = split_history_and_prompt(body["messages"])
    return ClaudeCallOptions(
        options=_options(body, body.get("prompt", prompt)),
        tools=body.get("tools") or [],
        env={**ONE_TURN_ENV, "CLAUDE_CODE_MAX_RETRIES": str(retries), **_api_env(call, env), **env},
        directory=os.path.abspath(call.directory) if call.directory else "",
        has_host=call.host is not None,
        history=history,
        prompt={"role": "user", "content": asked or [{"type": "text", "text": CONTINUE_PROMPT}]},
    )


def _options(body: JSONObject, prompt: JSON) -> JSONObject:
    from claude_agent_sdk import ClaudeAgentOptions

    if prompt not in PROMPTS:
        raise InvalidSetting('prompt: must be "append" or "replace"', got=prompt)
    options: JSONObject = {"verbatim_prompts": True}  # else the CLI would read files named in a prompt
    options |= {name: value for name, value in body.items() if name not in SEPARATE_KEYS}
    check_settings(options, {field.name for field in fields(ClaudeAgentOptions)} - RESERVED_OPTIONS, "Claude Code")
    if (model := body.get("model")) and model != DEFAULT_MODEL:
        options["model"] = model
    if "builtin_tools" in body:
        options["tools"] = body["builtin_tools"]
    system_prompt: JSON = body.get("system_prompt") or ""
    if isinstance(system_prompt, str) and prompt == "append":
        system_prompt = {
            "type": "preset",
            "preset": "claude_code",
            **({"append": system_prompt} if system_prompt else {}),
        }
    return {**options, "system_prompt": system_prompt}


def _agents(written: JSONObject) -> JSONObject:
    from claude_agent_sdk import AgentDefinition

    try:
        return {name: AgentDefinition(**agent) for name, agent in written.items()}
    except TypeError as error:
        raise InvalidSetting(f"agents: {error}") from None


def _api_env(call: ProviderCall, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the CLI's API URL, key and headers. A custom URL never gets the user's own key.

    With a custom URL, a model whose maximum output is below the CLI's default gets that limit. A small model might not
    stop by itself.
    """
    provider, found = call.provider, dict[str, str]()
    if provider.url:
        found["ANTHROPIC_BASE_URL"] = provider.url
        if provider.model.output < DEFAULT_OUTPUT and OUTPUT_VARIABLE not in os.environ:
            found[OUTPUT_VARIABLE] = str(provider.model.output)
    if provider.key or provider.url:
        found["ANTHROPIC_API_KEY"] = provider_key(provider, env) or "none"
    if call.headers:
        found["ANTHROPIC_CUSTOM_HEADERS"] = "\n".join(f"{name}: {value}" for name, value in call.headers.items())
    return found


def provider_key(provider: Provider, env: Mapping[str, str]) -> str:
    """Return the key that the provider names, or "" if it names none."""
    if not provider.key:
        return ""
    key = (env.get(provider.key) or os.environ.get(provider.key) or "").strip()
    if not key:
        way_out = f"Set {provider.key}, or name another variable: cc.provider(…, key=…)."
        problem = f"the environment variable {provider.key} is not set"
        raise ProviderFailed(provider.name, "auth", problem, way_out=way_out, case="key", detail=provider.key)
    return key
