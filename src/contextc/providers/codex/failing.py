"""How Codex says that it failed, and what helps.

A turn that failed says why in one word (`codexErrorInfo`), sometimes with the status of the API. Where the word is
"other", its sentence is often the body of the API's own refusal, which says more. A request that the program itself
refuses is told apart by its sentence: there are no codes.
"""

import re
from typing import cast

from contextc._json import JSON, JSONObject, parse_object
from contextc.errors import FailureKind, ProviderFailed
from contextc.providers.codex.server import Ended
from contextc.providers.failures import Table, failure, masked
from contextc.providers.openai import TABLE as OPENAI

TABLE = Table(
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
    words=OPENAI.words,
    types=OPENAI.types,
)
LOST = re.compile(r"no rollout found|(thread|turn) not (found|loaded)|is archived|active writer")
HELD = re.compile(r"active writer")


def of_turn(provider: str, turn: JSONObject, secrets: tuple[str, ...]) -> ProviderFailed:
    """What a turn says that did not complete."""
    if turn.get("status") == "interrupted":
        return ProviderFailed(provider, "abort", "the turn was interrupted")
    error: JSONObject = turn.get("error") or {}
    return of_error(provider, error, secrets)


def of_error(provider: str, error: JSONObject, secrets: tuple[str, ...]) -> ProviderFailed:
    said = str(error.get("message") or "it did not say why")
    name, status = _info(error.get("codexErrorInfo"))
    whole = parse_object(said)
    if whole is None or "error" not in whole:
        if details := error.get("additionalDetails"):
            said = f"{said} ({details})"
        whole = {"error": {"message": said, "code": name}}
    return failure(provider, TABLE, whole, status=status, secrets=secrets)


def of_request(provider: str, said: str, secrets: tuple[str, ...]) -> ProviderFailed:
    """What the program itself refused."""
    kind: FailureKind = "session" if LOST.search(said) else "invalid"
    way_out = "Check the settings of the request, and its directory." if kind == "invalid" else ""
    return ProviderFailed(provider, kind, masked(said, secrets), way_out=way_out)


def of_end(provider: str, ended: Ended, secrets: tuple[str, ...], *, at_once: bool = False) -> ProviderFailed:
    """The program is gone. It can be started again, unless it ended at once and by itself: it would do so again."""
    kind: FailureKind = "abort" if at_once and (ended.code or 0) >= 0 else "transient"
    way_out = "The program `codex` does not run; its own words may say why." if kind == "abort" else ""
    return ProviderFailed(provider, kind, masked(f"the program: {ended}", secrets)[:1_000], way_out=way_out)


def _info(info: JSON) -> tuple[str | None, int | None]:
    """The word for what happened, where it says more than a status; and the status."""
    if isinstance(info, str):
        return (info if info != "other" else None), None
    if not isinstance(info, dict) or not info:
        return None, None
    name, detail = next(iter(cast(dict[str, JSONObject], info).items()))
    return name, (detail or {}).get("httpStatusCode")
