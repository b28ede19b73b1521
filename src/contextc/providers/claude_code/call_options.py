"""Options of a call to Claude Code: the request body, split into options of the process and the prompt of this turn.

The keys of a body are options of `ClaudeAgentOptions`, as plain data. Options for session, directory and callbacks are
set by this client and rejected in a body, and so are keys that the SDK does not have. `tools` are our tools. The CLI's
own tools are selected by `builtin_tools`. Our system prompt is appended to Claude Code's, or replaces it if
`prompt="replace"`.
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from msgspec import Struct

from contextc._json import JSON, JSONObject, encode_canonical
from contextc.errors import InvalidSetting, ProviderFailed
from contextc.formats.claude_code import split_prompt
from contextc.prompts import SYSTEM_CONTEXT
from contextc.providers.claude_code.callbacks import SERVER_NAME, ClaudeCallbacks, tool_names
from contextc.providers.client import ProviderCall, check_settings
from contextc.providers.registry import DEFAULT_MODEL, Provider

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
    history, asked = split_prompt(body["messages"])
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
    if prompt not in PROMPTS:
        raise InvalidSetting('prompt: must be "append" or "replace"', got=prompt)
    options: JSONObject = {"verbatim_prompts": True}  # else the CLI would read files named in a prompt
    options |= {name: value for name, value in body.items() if name not in SEPARATE_KEYS}
    check_settings(options, _known(), "Claude Code")
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


def _known() -> set[str]:
    from claude_agent_sdk import ClaudeAgentOptions

    return {field.name for field in fields(ClaudeAgentOptions)} - RESERVED_OPTIONS


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
