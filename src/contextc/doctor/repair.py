"""Repair of stored conversations, as the doctor's findings announce it, in one transaction per conversation.

No message is changed or removed. A call without a result gets one at the end, and a ledger that names lost messages is
emptied. For all other problems, a new branch with the repaired messages becomes the current one, and the old branch
stays. A repair locks the conversation as a turn does. So a conversation with a running turn is skipped, and no turn
begins during a repair. Each chain is checked again under the lock, so a repair by another process is not repeated. A
killed process leaves a conversation repaired or unchanged.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.doctor.branch_check import (
    BranchRow,
    CurrentBranch,
    conversations_with_running_turn,
    load_branches,
    repair_current_branch,
)
from contextc.doctor.chain_check import (
    MOVED_RESULT,
    RENAMED_RESULT,
    ChainCheck,
    ChainRow,
    UnansweredCall,
    becomes_text,
    chain_rows,
    check_chain,
    context_starts,
    media_of,
)
from contextc.doctor.findings import CODES, ChainProblem, Finding, pluralize
from contextc.doctor.ledger_check import repair_ledgers
from contextc.errors import Conflict, ContextcError, InvalidInput, StoreCorrupt, UnknownConversation
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    Text,
    ToolCall,
    ToolResult,
    ValidatedMessage,
    canonical_content,
    decode_message,
    make_synthetic_result,
    validate_message,
)
from contextc.store import Store, message_log
from contextc.store.message_log import DECODE_ERRORS, BranchTip, load_branch_end, make_place, original_uid
from contextc.store.redaction import REPAIR_KEY, get_repair_note
from contextc.store.transaction_engine import Transaction

DATA_ERRORS = (TypeError, ValueError, AttributeError, LookupError)
"""Exceptions that unexpected values in rows can cause."""


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for one conversation: `healed`, `sound` (nothing to repair), or `left` (unchanged), and why."""

    conversation: str
    outcome: Literal["healed", "sound", "left"]
    text: str
    appended: int = 0
    branches: dict[int, int] = {}
    """The new branches, by the branches they replace."""


def repair_conversations(
    store: Store, findings: Iterable[Finding], progress: Callable[[int, int], None] | None = None
) -> list[RepairResult]:
    """Repair the findings, conversation by conversation, and return the outcome of each.

    Pass some of the findings to repair only those. If a repair starts a branch, it fixes all problems of that chain.
    """
    wanted: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.conversation is not None and finding.healing != "none":
            wanted.setdefault(finding.conversation, []).append(finding)
    if wanted:
        store.recover()
    results: list[RepairResult] = []
    for name, group in wanted.items():
        try:
            results.append(
                store.write(lambda tx, name=name, group=group: _repair_conversation(tx, name, group), repeatable=True)
            )
        except (StoreCorrupt, InvalidInput, Conflict, *DATA_ERRORS) as error:
            results.append(_unchanged(name, error))  # the others are repaired all the same
        if progress:
            progress(len(results), len(wanted))
    return results


def _unchanged(name: str, error: Exception) -> RepairResult:
    why = str(error) if isinstance(error, ContextcError) else f"Its stored rows are invalid: {error!r}."
    return RepairResult(conversation=name, outcome="left", text=f"{why} Nothing was changed.")


def _repair_conversation(tx: Transaction, name: str, findings: list[Finding]) -> RepairResult:
    message_log.lock_tree(tx, name)
    tx.row(f"SELECT 1 FROM main.conversation WHERE name = ?{tx.dialect.row_lock}", name)
    if name in conversations_with_running_turn(tx):
        text = "A turn is running in it, so nothing was changed. Repair it when the turn has ended."
        return RepairResult(conversation=name, outcome="left", text=text)
    before = (
        repair_current_branch(tx, name, load_branches(tx)) if any(each.healing == "row" for each in findings) else None
    )
    here, branches = _load_head(tx, name)
    may_branch = any(finding.healing == "branch" for finding in findings)
    others = sorted({line for finding in findings for line in finding.branches} - {here.branch})
    repaired = set(repaired_branches(tx, branches)) if others else set[int]()
    begun: dict[int, int] = {}
    for line in others:
        known = branches.get(line)
        if known is None or known.conversation != name or line in repaired:
            continue
        found = check_chain(tx, branches, line)
        if found.is_damaged and found.end > known.base:  # an empty branch has nothing to repair
            begun[line] = ChainRewriter(tx, name, branches, found).write(here).branch
    found = check_chain(tx, branches, here.branch)
    if may_branch and found.base is not None:
        begun[here.branch] = ChainRewriter(tx, name, branches, found).write(here).branch
        sql = "UPDATE main.conversation SET branch = ?, revision = revision + 1 WHERE name = ?"
        tx.run(sql, begun[here.branch], name)
        message_log.update_last_active(tx, name)
    answers = here.branch in begun or any(finding.healing == "append" for finding in findings)
    results = (
        [message_log.prepare_entry(validate_message(_placeholder_result(asked))) for asked in found.open_calls]
        if answers
        else []
    )
    if results:
        message_log.append_messages(tx, name, results)
    return _describe_result(tx, name, found, begun, len(results), before, repair_ledgers(tx, name))


def _load_head(tx: Transaction, name: str) -> tuple[BranchTip, dict[int, BranchRow]]:
    """Return the head of a conversation, and the branches of its tree as `load_branches` verified them."""
    row = tx.row("SELECT number, tree, branch, revision FROM main.conversation WHERE name = ?", name)
    if row is None:
        raise UnknownConversation(name)
    number, tree, branch, revision = row
    branches = {each.number: each for each in load_branches(tx, tree)}
    if branch not in branches or branches[branch].conversation != name:
        raise StoreCorrupt(
            f"Its current branch {branch} is missing, or belongs to another conversation", fix="Scan the store again."
        )
    end, tip = message_log.load_branch_end(tx, branch)
    return BranchTip(number, tree, branch, revision, end, tip), branches


def _placeholder_result(asked: UnansweredCall) -> Message:
    """Return the placeholder result of a call, to be stored."""
    message, call = asked.message, msgspec.structs.replace(asked.call, id=asked.id)
    reason = "cancelled" if message.status == "cancelled" else "interrupted"
    return Message(
        role="tool",
        parts=(make_synthetic_result(call, reason),),
        author=message.author,
        run=message.run,
        turn=message.turn,
        step=message.step,
        meta={REPAIR_KEY: {"of": message.uid, "because": ["open-call"]}},
    )


def _describe_result(
    tx: Transaction,
    name: str,
    found: ChainCheck,
    started: dict[int, int],
    appended: int,
    switched: CurrentBranch | None,
    ledgers: list[str],
) -> RepairResult:
    turned = switched is not None and switched.fault is not None
    notes = [f"Its current branch is now branch {found.branch}."] if turned and found.branch not in started else []
    for old, new in started.items():
        base = message_log.load_base_seq(tx, new)
        after = f"after message {base}" if base else "at the root"
        notes.append(f"Branch {new}, started {after}, has the repaired messages of branch {old}. Branch {old} stays.")
        notes += [f"The current branch is now branch {new}."] if old == found.branch else []
    if appended:
        notes.append(f"Appended {pluralize(appended, 'result')}.")
    notes += ledgers
    if not notes:
        return RepairResult(conversation=name, outcome="sound", text="Nothing to repair.")
    return RepairResult(conversation=name, outcome="healed", text=" ".join(notes), appended=appended, branches=started)


# ── a chain on a new branch ───────────────────────────────────────────────────────────────────────────────────────────
# Rewrite of a chain after the last message that can stay: the same messages, repaired and rechained.
#
# A copy keeps the content and the fields of its message. Its uid is a new version of the original's (`uid~2`), as after
# an edit, so that the copy can be found by the original uid. `meta["contextc_healed"]` lists the changes.
#
# A marker in the `meta` of the first rewritten message names the branch that was repaired. With it, a scan skips the
# problems of the old branch. The marker is valid while the old branch has the same tip.


LOST_MESSAGE = "{what} This line stands in the place of what could not be read when the conversation was healed."


class ChainRewriter:
    """The rewrite of one chain to a new branch."""

    def __init__(self, tx: Transaction, conversation: str, branches: dict[int, BranchRow], check: ChainCheck) -> None:
        assert check.base is not None, "only a chain with a problem is rewritten"
        self.tx, self.conversation, self.branches, self.check = tx, conversation, branches, check
        self.base, self.tree = check.base, branches[check.branch].tree
        self.marker: JSONObject = {}
        self.by_seq: dict[int, list[ChainProblem]] = {}
        self.moved_results: dict[int, list[ChainProblem]] = {}  # results, by the message of their call
        for trouble in check.problems:
            self.by_seq.setdefault(trouble.seq, []).append(trouble)
            if trouble.code in ("parted-result", MOVED_RESULT):
                self.moved_results.setdefault(trouble.call_seq, []).append(trouble)

    def write(self, here: BranchTip) -> BranchTip:
        """Write the branch and return its head."""
        tx, base, line = self.tx, self.base, self.check.branch
        number = message_log.insert_branch(
            tx, self.conversation, tree=self.tree, parent=base.branch, base_seq=base.seq, base_id=base.id
        )
        edges = context_starts(tx, line)
        for edge in edges:
            if edge <= base.seq:
                tx.run("INSERT INTO main.edge (place) VALUES (?)", make_place(number, edge))
        edges = [edge for edge in edges if edge > base.seq]
        at = BranchTip(here.conversation, self.tree, number, here.revision, base.seq, base.id)
        self.marker = {"branch": line, "tip": load_branch_end(tx, line)[1].hex()}
        at = self._append(at, list(self._moved_results(base.seq)), 0)
        for row in chain_rows(tx, self.branches, line, base.seq, self.check.end):
            while edges and edges[0] < row.seq:
                tx.run("INSERT INTO main.edge (place) VALUES (?) ON CONFLICT DO NOTHING", make_place(number, at.seq))
                edges.pop(0)
            at = self._append(at, [*self._copies(row), *self._moved_results(row.seq)], row.place)
        if edges:
            tx.run("INSERT INTO main.edge (place) VALUES (?) ON CONFLICT DO NOTHING", make_place(number, at.seq))
        return at

    def _append(self, at: BranchTip, messages: list[Message], old: int) -> BranchTip:
        """Append copies to the branch. References to the original's place are moved to the first copy."""
        for order, message in enumerate(messages):
            if self.marker:
                message = _with_note(message, **self.marker)
                self.marker = {}
            uid = message_log.find_free_uid(self.tx, self.tree, original_uid(message.uid))
            blobs = dict.fromkeys([media.blob for part in message.parts for media in media_of(part) if media.blob])
            admitted = ValidatedMessage(replace(message, uid=uid), canonical_content(message), blobs)
            (stored,) = message_log.insert_messages(
                self.tx, self.conversation, at, [message_log.prepare_entry(admitted)]
            )
            new = make_place(at.branch, stored.seq)
            if message.redacted:
                self.tx.run("UPDATE main.message SET redacted = 1 WHERE place = ?", new)
            if order == 0 and old:
                self._move_references(old, new)
            at = BranchTip(at.conversation, at.tree, at.branch, at.revision, stored.seq, bytes.fromhex(stored.id))
        return at

    def _move_references(self, old: int, new: int) -> None:
        tx = self.tx
        tx.run("INSERT INTO main.pin (place) SELECT ? FROM main.pin WHERE place = ?", new, old)
        tx.run("UPDATE main.append_key SET place = ? WHERE conversation = ? AND place = ?", new, self.conversation, old)

    def _copies(self, row: ChainRow) -> Iterator[Message]:
        """Return the messages of the new branch for one message of the old branch."""
        troubles = self.by_seq.get(row.seq, [])
        if row.message is None:
            what = row.problem.text if row.problem is not None else ""
            meta: JSONObject = {REPAIR_KEY: {"because": [row.problem.code if row.problem is not None else ""]}}
            yield Message(role="assistant", status="error", error=LOST_MESSAGE.format(what=what), meta=meta)
            return
        if not troubles:
            yield row.message
            return
        if any(trouble.code == "blank-message" for trouble in troubles):
            return
        message = _with_repair_note(row.message, [trouble.code for trouble in troubles])
        parts, texts = dict(enumerate(_repair_parts(message, troubles))), list[Message]()
        for trouble in troubles:
            if trouble.code in ("stray-result", "second-result", "parted-result", MOVED_RESULT):
                part = parts.pop(trouble.index)
                if isinstance(part, ToolResult) and becomes_text(trouble):
                    texts.append(_result_as_text(message, part, is_duplicate=trouble.code == "second-result"))
        if parts or not row.message.parts:
            yield replace(message, parts=tuple(parts.values()))
        yield from texts

    def _moved_results(self, seq: int) -> Iterator[Message]:
        """Return the results that are moved to the calls of a message, in the messages they came in."""
        asked: dict[int, list[ChainProblem]] = {}
        for trouble in self.moved_results.get(seq, ()):
            asked.setdefault(trouble.seq, []).append(trouble)
        for at, troubles in asked.items():
            for row in chain_rows(self.tx, self.branches, self.check.branch, at - 1, at):
                if row.message is not None:
                    message = _with_repair_note(row.message, ["parted-result"])
                    parts = _repair_parts(message, self.by_seq.get(at, []))
                    yield replace(message, parts=tuple([parts[trouble.index] for trouble in troubles]))


def _with_repair_note(message: Message, codes: Iterable[str]) -> Message:
    """Return the message with a note of its original and the reasons."""
    meta = {name: value for name, value in (message.meta or {}).items() if name != REPAIR_KEY}
    because = sorted({*get_repair_note(message).get("because", ()), *codes} & {*CODES, "open-call"})
    return _with_note(replace(message, meta=meta), of=message.uid, because=because)


def _with_note(message: Message, **more: JSON) -> Message:
    return replace(message, meta={**(message.meta or {}), REPAIR_KEY: {**get_repair_note(message), **more}})


def _repair_parts(message: Message, troubles: list[ChainProblem]) -> list[AnyPart]:
    """Return the parts, with new ids for reused ones, and a text in place of media without bytes."""
    parts = list(message.parts)
    for trouble in troubles:
        part = parts[trouble.index] if trouble.index < len(parts) else None
        if isinstance(part, ToolCall) and trouble.code == "reused-id":
            parts[trouble.index] = replace(part, id=trouble.name)
        elif isinstance(part, ToolResult) and trouble.code == RENAMED_RESULT:
            parts[trouble.index] = replace(part, call_id=trouble.name)
        elif trouble.code in ("missing-blob", "changed-blob") and part is not None:
            parts[trouble.index] = _without_blob(part, trouble.name)
    return parts


def _without_blob(part: AnyPart, blob: str) -> AnyPart:
    if isinstance(part, Media):
        return Text(_describe_media(part)) if part.blob == blob else part
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        content = [
            Text(_describe_media(each)) if isinstance(each, Media) and each.blob == blob else each
            for each in part.content
        ]
        return replace(part, content=tuple(content))
    return part


def _describe_media(media: Media) -> str:
    name = f" {media.name!r}" if media.name else ""
    size = f", {media.size:,} bytes" if media.size else ""
    return f"[{media.kind}{name}: {media.mime_type}{size}; its bytes are lost]"


def _result_as_text(message: Message, result: ToolResult, *, is_duplicate: bool) -> Message:
    """Return a result without a call as a text of the user, worded as in the fixes for requests."""
    content = (Text(result.content),) if isinstance(result.content, str) else result.content
    text = (
        f"[another result of {result.name}:]"
        if is_duplicate
        else f"[a result of {result.name}, whose call is not here:]"
    )
    return replace(message, role="user", author=None, parts=(Text(text), *content))


def repaired_branches(tx: Transaction, branches: dict[int, BranchRow]) -> Iterator[int]:
    """Return the branches that were repaired in their current state: another branch holds their messages."""
    for branch in branches.values():
        row = tx.row("SELECT body FROM main.message WHERE place = ?", make_place(branch.number, branch.base + 1))
        note = _note_of(row[0]) if row is not None else {}
        old = note.get("branch")
        if isinstance(old, int) and old in branches and note.get("tip") == load_branch_end(tx, old)[1].hex():
            yield old


def _note_of(body: bytes) -> JSONObject:
    try:
        return get_repair_note(decode_message(body))
    except DECODE_ERRORS:
        return {}
