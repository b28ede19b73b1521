"""What a call asks of Codex: its body, taken apart into what belongs to a thread and what to one turn of it.

A turn is given a name that stands for everything about it: where the thread stood, the history that was taken in, the
prompt. The thread keeps it with the user's message. So it can be told later whether exactly this was answered, and
whether anything was taken in before it, which no turn holds.
"""

from hashlib import sha256
from pathlib import Path
from uuid import UUID

from msgspec import Struct

from contextc._json import JSONObject, canonical
from contextc.errors import ProviderFailed
from contextc.formats.codex.history import response_items, split
from contextc.providers.endpoint import Call, check_settings
from contextc.providers.named import OWN_CHOICE

TURN = (
    "additionalContext",
    "collaborationMode",
    "effort",
    "outputSchema",
    "sandboxPolicy",
    "serviceTierForTurn",
    "summary",
)
"""What is said with a turn. The rest is said of a thread."""
FOR_GOOD = ("dynamicTools", "ephemeral", "historyMode")
"""What a thread has from its beginning to its end. Its instructions are not among them: said again they change nothing,
until Codex shortens its history, for then it writes down anew what it was told last."""
THREAD = (
    *("approvalPolicy", "approvalsReviewer", "baseInstructions", "config", "developerInstructions", "model"),
    *("modelProvider", "personality", "sandbox", "serviceName", "serviceTier", "sessionStartSource", "threadSource"),
)
"""What is said of any thread. Codex passes over what it does not know, also where that was to be its sandbox."""
PLAIN, WITH_HISTORY = "contextc-prompt-", "contextc-history-"
"""How the names of turns begin."""


class Asked(Struct, frozen=True, kw_only=True):
    """`begins`, `thread` and `turn` are parameters: of a thread that begins, of any, and of one turn. `history` is in
    items of the Responses API; `input` is the prompt."""

    session: str
    cursor: str
    revert: bool
    name: str
    begins: JSONObject
    thread: JSONObject
    turn: JSONObject
    history: list[JSONObject]
    input: list[JSONObject]


def asked(call: Call) -> Asked:
    body = call.request()
    items: list[JSONObject] = body.pop("items", [])
    session = call.session or str(body.pop("threadId", None) or "")
    body.pop("threadId", None)
    if session and not _is_uuid(session):  # Codex might begin a new thread, and not say so
        raise ProviderFailed(call.provider.name, "session", f"{session!r} is not the id of a thread")
    if call.provider.asks_for == OWN_CHOICE:
        body.pop("model", None)
    history, prompt = split(items)
    directory = Path(call.directory or ".").resolve()
    if not directory.is_dir():  # Codex would work in it all the same
        said = f"{directory} is no directory"
        raise ProviderFailed(call.provider.name, "invalid", said, way_out="Name one that is there: directory=….")
    check_settings(body, (*THREAD, *TURN, *FOR_GOOD), "Codex")
    turn, begins = ({name: body.pop(name) for name in names if name in body} for names in (TURN, FOR_GOOD))
    if call.provider.resends_head:
        begins.setdefault("dynamicTools", [])
    digest = sha256(canonical([session, call.cursor, items])).hexdigest()[:40]
    return Asked(
        session=session,
        cursor=call.cursor,
        revert=call.revert,
        name=f"{WITH_HISTORY if history else PLAIN}{digest}",
        begins=begins,
        thread={**body, "cwd": str(directory)},
        turn=turn,
        history=response_items(history),
        input=prompt,
    )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
