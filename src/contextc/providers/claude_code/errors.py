"""Errors of Claude Code, mapped to `ProviderFailed`.

A failure is reported by the last line of a turn (`is_error`, whatever the `subtype`), or by the end of the program.
That line contains the API's error with its status. All other messages are the CLI's own.
"""

from collections.abc import Collection, Iterable
from typing import cast

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError, FailureKind, InvalidSetting, ProviderFailed
from contextc.providers.anthropic import TABLE as ANTHROPIC
from contextc.providers.error_mapping import ErrorTable, map_error

MAX_MESSAGE_LENGTH = 600
SETTINGS_FIX = "Check the settings of the request."
LIMITS: dict[str, tuple[FailureKind, str]] = {
    "error_max_turns": ("abort", "The limit `max_turns` was reached: raise it, or send a smaller task."),
    "error_max_budget_usd": ("quota", "The budget `max_budget_usd` is used up: raise it."),
    "max_output_tokens": ("abort", "A reply was truncated four times: allow longer replies, cc.provider(…, output=…)."),
}
TABLE = ErrorTable(
    codes=ANTHROPIC.codes,
    patterns=(
        (r"No conversation found with session ID|not a valid session|Session ID .{0,200} is already in use", "session"),
        (r"Invalid API key|Not logged in|run /login|OAuth token|authentication_failed", "auth"),
        (r"usage limit reached|hit your .{0,200}limit", "quota"),
        *ANTHROPIC.patterns,
    ),
    types=ANTHROPIC.types,
)


def result_failure(provider: str, line: JSONObject, secrets: Iterable[str] = ()) -> ProviderFailed:
    """Return the failure for the last line of a turn."""
    subtype, message = str(line.get("subtype") or ""), _message_of(line)
    error = str(line.get("api_error_type") or line.get("api_error") or ("" if message else subtype))
    for limit in (subtype, error):
        if limit in LIMITS:
            kind, way_out = LIMITS[limit]
            return ProviderFailed(provider, kind, mask_secrets(message or limit, secrets), code=limit, way_out=way_out)
    status: JSON = line.get("api_error_status")
    body = {"error": {"type": error, "message": message}}
    return map_error(provider, TABLE, body, status=status if isinstance(status, int) else None, secrets=secrets)


def event_failure(provider: str, event: JSONObject) -> ProviderFailed:
    """Return the failure for a line that reports one: the last line of a turn, or an error of the API."""
    return result_failure(provider, event) if event.get("type") == "result" else map_error(provider, TABLE, event)


def exception_failure(
    provider: str, error: BaseException, stderr_lines: Collection[str], secrets: Iterable[str] = ()
) -> ContextcError:
    """Return the failure for an exception of the SDK.

    `stderr_lines` are the lines of the program's standard error. Such lines with exit status 1 mean invalid options.
    """
    import claude_agent_sdk as sdk

    if isinstance(error, ContextcError):
        return error
    if isinstance(error, sdk.ResultError):
        return result_failure(provider, error.data, secrets)
    message = mask_secrets(" ".join([str(error).partition("\n")[0], *stderr_lines]).strip(), secrets)[
        :MAX_MESSAGE_LENGTH
    ]
    if isinstance(error, sdk.CLINotFoundError):
        return InvalidSetting(
            f"{message} Install contextc[claude-code], which contains the program, or pass its path: cli_path=…."
        )
    if isinstance(error, sdk.ProcessError):
        found = map_error(provider, TABLE, f"the program ended: {message}")
        is_refused = found.kind == "transient" and error.exit_code == 1 and stderr_lines
        return ProviderFailed(provider, "invalid", found.said, way_out=SETTINGS_FIX) if is_refused else found
    if isinstance(error, sdk.CLIConnectionError) and ("Working directory" in message or "Failed to start" in message):
        return ProviderFailed(
            provider, "invalid", message, way_out="Check the directory, and that the program is executable."
        )
    return map_error(provider, TABLE, message or type(error).__name__)


def _message_of(line: JSONObject) -> str:
    if errors := cast(list[JSON], line.get("errors") or []):
        return "; ".join(str(each) for each in errors)
    return str(line.get("result") or "")
