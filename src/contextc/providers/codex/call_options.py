"""Options of a call to Codex: the request body, split into parameters of a thread and of one turn.

Each turn gets a name that is a digest of session, cursor, history and prompt. Codex stores it with the user message.
Later the name shows whether exactly this prompt was answered. It also shows whether history was injected before the
turn, which the turns themselves do not show.
"""

from hashlib import sha256
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from contextc._json import JSONObject, encode_canonical
from contextc.errors import ProviderFailed
from contextc.formats.codex.codec import split_history_and_prompt, to_response_items
from contextc.providers.client import ProviderCall, check_settings
from contextc.providers.registry import DEFAULT_MODEL

TURN_SETTINGS = (
    "additionalContext",
    "collaborationMode",
    "effort",
    "outputSchema",
    "sandboxPolicy",
    "serviceTierForTurn",
    "summary",
)
"""Settings of a turn. All others are settings of a thread."""
PERMANENT_SETTINGS = ("dynamicTools", "ephemeral", "historyMode")
"""Settings that a thread keeps for its lifetime. Instructions are not among them: new ones have no effect at first, but
when Codex compacts the history, it writes the latest instructions."""
THREAD_SETTINGS = (
    *("approvalPolicy", "approvalsReviewer", "baseInstructions", "config", "developerInstructions", "model"),
    *("modelProvider", "personality", "sandbox", "serviceName", "serviceTier", "sessionStartSource", "threadSource"),
)
"""Settings of a thread. They are checked here, because Codex ignores unknown names, even for its sandbox."""
PROMPT_PREFIX, HISTORY_PREFIX = "contextc-prompt-", "contextc-history-"
"""Prefixes of turn names: without and with injected history."""


class CodexCallOptions(Struct, frozen=True, kw_only=True):
    """Parsed options of a call.

    `new_thread_params`, `thread_params` and `turn_params` are parameters of a new thread, of any thread, and of one
    turn. `history` contains items of the Responses API, and `input` is the prompt.
    """

    session: str
    cursor: str
    revert: bool
    turn_name: str
    new_thread_params: JSONObject
    thread_params: JSONObject
    turn_params: JSONObject
    history: list[JSONObject]
    input: list[JSONObject]


def parse_call_options(call: ProviderCall) -> CodexCallOptions:
    body = call.full_request()
    items: list[JSONObject] = body.pop("items", [])
    session = call.session or str(body.pop("threadId", None) or "")
    body.pop("threadId", None)
    if session and not _is_uuid(session):  # Codex might silently start a new thread
        raise ProviderFailed(call.provider.name, "session", f"invalid thread id {session!r}: expected a UUID")
    if call.provider.model_id == DEFAULT_MODEL:
        body.pop("model", None)
    history, prompt = split_history_and_prompt(items)
    directory = Path(call.directory or ".").resolve()
    if not directory.is_dir():  # Codex would not report it
        problem = f"directory not found: {directory}"
        raise ProviderFailed(call.provider.name, "invalid", problem, way_out="Pass an existing directory: directory=….")
    check_settings(body, (*THREAD_SETTINGS, *TURN_SETTINGS, *PERMANENT_SETTINGS), "Codex")
    turn, begins = (
        {name: body.pop(name) for name in names if name in body} for names in (TURN_SETTINGS, PERMANENT_SETTINGS)
    )
    if call.provider.resends_head:
        begins.setdefault("dynamicTools", [])
    digest = sha256(encode_canonical([session, call.cursor, items])).hexdigest()[:40]
    return CodexCallOptions(
        session=session,
        cursor=call.cursor,
        revert=call.revert,
        turn_name=f"{HISTORY_PREFIX if history else PROMPT_PREFIX}{digest}",
        new_thread_params=begins,
        thread_params={**body, "cwd": str(directory)},
        turn_params=turn,
        history=to_response_items(history),
        input=prompt,
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
