"""Errors of Codex, mapped to `ProviderFailed`.

A failed turn has an error name (`codexErrorInfo`), sometimes with the API's status. If the name is "other", the message
is often the body of the API's error, which is more precise. Requests that the program itself rejects have no codes, so
they are matched by message.
"""

import re
from typing import cast

from contextc._credential_mask import mask_secrets
from contextc._json import JSON, JSONObject, parse_object
from contextc.errors import FailureKind, ProviderFailed
from contextc.formats.codex.exec_lines import is_exec_line, to_notification
from contextc.providers.codex.app_server import ProgramEnded
from contextc.providers.error_mapping import ErrorTable, map_error
from contextc.providers.openai import TABLE as OPENAI

TABLE = ErrorTable(
    codes={
        **OPENAI.codes,
        "contextWindowExceeded": "context",
        "sessionBudgetExceeded": "quota",
        "usageLimitExceeded": "quota",
        "rateLimitExceeded": "rate",
        "unauthorized": "auth",
        "serverOverloaded": "transient",
        "internalServerError": "transient",
        "flexUnavailable": "transient",
        "badRequest": "invalid",
        "cyberPolicy": "invalid",
        "misalignmentPolicyViolation": "invalid",
        "tooManyDenials": "abort",
        "sandboxError": "abort",
        "threadRollbackFailed": "session",
    },
    patterns=OPENAI.patterns,
    types=OPENAI.types,
)
LOST_THREAD = re.compile(r"no rollout found|(thread|turn) not (found|loaded)|is archived|active writer")
HELD_THREAD = re.compile(r"active writer")


def turn_failure(provider: str, turn: JSONObject, secrets: tuple[str, ...]) -> ProviderFailed:
    """Return the failure of a turn that did not complete."""
    if turn.get("status") == "interrupted":
        return ProviderFailed(provider, "abort", "the turn was interrupted")
    error: JSONObject = turn.get("error") or {}
    return error_failure(provider, error, secrets)


def event_failure(provider: str, event: JSONObject) -> ProviderFailed:
    """Return the failure for an event that reports one: the end of a turn, or an error."""
    params: JSONObject = to_notification(event).params if is_exec_line(event) else event.get("params") or {}
    turn: JSONObject = params.get("turn") or {"error": params.get("error")}
    return turn_failure(provider, turn, ())


def error_failure(provider: str, error: JSONObject, secrets: tuple[str, ...]) -> ProviderFailed:
    """Return the failure for an error object of Codex."""
    message = str(error.get("message") or "no error message")
    name, status = _info(error.get("codexErrorInfo"))
    whole = parse_object(message)
    if whole is None or "error" not in whole:
        if details := error.get("additionalDetails"):
            message = f"{message} ({details})"
        whole = {"error": {"message": message, "code": name}}
    return map_error(provider, TABLE, whole, status=status, secrets=secrets)


def request_failure(provider: str, message: str, secrets: tuple[str, ...]) -> ProviderFailed:
    """Return the failure for a request that the program itself rejected."""
    kind: FailureKind = "session" if LOST_THREAD.search(message) else "invalid"
    way_out = "Check the settings and the directory of the request." if kind == "invalid" else ""
    return ProviderFailed(provider, kind, mask_secrets(message, secrets), way_out=way_out)


def exit_failure(
    provider: str, ended: ProgramEnded, secrets: tuple[str, ...], *, at_once: bool = False
) -> ProviderFailed:
    """Return the failure for a program that has ended. If it exited at startup, a restart would not help."""
    kind: FailureKind = "abort" if at_once and (ended.code or 0) >= 0 else "transient"
    way_out = "The program `codex` does not start: see its output above." if kind == "abort" else ""
    return ProviderFailed(
        provider, kind, mask_secrets(f"the program failed: {ended}", secrets)[:1_000], way_out=way_out
    )


def _info(info: JSON) -> tuple[str | None, int | None]:
    """Return the error name, or None if it is "other", and the HTTP status."""
    if isinstance(info, str):
        return (info if info != "other" else None), None
    if not isinstance(info, dict) or not info:
        return None, None
    name, detail = next(iter(cast(dict[str, JSONObject], info).items()))
    return name, (detail or {}).get("httpStatusCode")
