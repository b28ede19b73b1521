"""How Claude Code says that it failed, in the terms of `ProviderFailed`.

It says so in a line at the end of a turn (`is_error`, whatever the `subtype` is), or by ending. What the API answered
stands in that line with its status; the rest are the CLI's own sentences.
"""

from collections.abc import Collection, Iterable
from typing import cast

from contextc._json import JSON, JSONObject
from contextc.errors import ContextcError, FailureKind, InvalidSetting, ProviderFailed
from contextc.providers.anthropic import TABLE as ANTHROPIC
from contextc.providers.failures import Table, failure, masked

LONGEST = 600
SETTINGS = "Check the settings of the request."
LIMITS: dict[str, tuple[FailureKind, str]] = {
    "error_max_turns": ("abort", "It has made as many steps as `max_turns` allows: raise it, or send a smaller task."),
    "error_max_budget_usd": ("quota", "It has spent `max_budget_usd`: raise it."),
    "max_output_tokens": ("abort", "A reply was cut four times over: allow longer ones, cc.provider(…, output=…)."),
}
TABLE = Table(
    codes=ANTHROPIC.codes,
    words=(
        (r"No conversation found with session ID|not a valid session|Session ID .* is already in use", "session"),
        (r"Invalid API key|Not logged in|run /login|OAuth token|authentication_failed", "auth"),
        (r"usage limit reached|hit your .*limit", "quota"),
        *ANTHROPIC.words,
    ),
    types=ANTHROPIC.types,
)


def refusal(provider: str, line: JSONObject, secrets: Iterable[str] = ()) -> ProviderFailed:
    """What went wrong, from the line that ends a turn."""
    error = str(line.get("api_error_type") or line.get("api_error") or "")
    said = _said(line)
    for limit in (str(line.get("subtype") or ""), error):
        if limit in LIMITS:
            kind, way_out = LIMITS[limit]
            return ProviderFailed(provider, kind, masked(said or limit, secrets), code=limit, way_out=way_out)
    status: JSON = line.get("api_error_status")
    body = {"error": {"type": error, "message": said}}
    return failure(provider, TABLE, body, status=status if isinstance(status, int) else None, secrets=secrets)


def failed(provider: str, error: BaseException, heard: Collection[str], secrets: Iterable[str] = ()) -> ContextcError:
    """What an exception of the SDK means. `heard` is what the program wrote to its standard error: where it leaves with
    words and status 1, it does not take its options."""
    import claude_agent_sdk as sdk

    if isinstance(error, ContextcError):
        return error
    if isinstance(error, sdk.ResultError):
        return refusal(provider, error.data, secrets)
    said = masked(" ".join([str(error).partition("\n")[0], *heard]).strip(), secrets)[:LONGEST]
    if isinstance(error, sdk.CLINotFoundError):
        return InvalidSetting(f"{said} The package contextc[claude-code] brings one; or name it: cli_path=…")
    if isinstance(error, sdk.ProcessError):
        found = failure(provider, TABLE, f"the program ended: {said}")
        is_refused = found.kind == "transient" and error.exit_code == 1 and heard
        return ProviderFailed(provider, "invalid", found.said, way_out=SETTINGS) if is_refused else found
    if isinstance(error, sdk.CLIConnectionError) and ("Working directory" in said or "Failed to start" in said):
        return ProviderFailed(provider, "invalid", said, way_out="Check the directory, and that the program may run.")
    return failure(provider, TABLE, said or type(error).__name__)


def _said(line: JSONObject) -> str:
    if errors := cast(list[JSON], line.get("errors") or []):
        return "; ".join(str(each) for each in errors)
    return str(line.get("result") or "")
