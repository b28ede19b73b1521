"""Rewrite of a chain after the last message that can stay: the same messages, repaired and rechained.

A copy keeps the content and the fields of its message. Its uid is a new version of the original's (`uid~2`), as after
an edit, so that the copy can be found by the original uid. `meta["contextc_healed"]` lists the changes.

A marker in the `meta` of the first rewritten message names the branch that was repaired. With it, a scan skips the
problems of the old branch. The marker is valid while the old branch has the same tip.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from contextc._json import JSON, JSONObject
from contextc.doctor.findings import CODES, ChainProblem
from contextc.doctor.hash_check import BranchRow, ChainRow, media_of
from contextc.doctor.message_chain_check import ChainCheck, chain_rows, context_starts
from contextc.doctor.tool_pair_check import MOVED_RESULT, RENAMED_RESULT, becomes_text
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
)
from contextc.store import append_and_load
from contextc.store.backend_interface import Transaction
from contextc.store.history_comparison import original_uid
from contextc.store.message_rows import DECODE_ERRORS, BranchTip, load_branch_end, make_place
from contextc.store.redaction import REPAIR_KEY, get_repair_note

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
        number = append_and_load.insert_branch(
            tx, self.conversation, tree=self.tree, parent=base.branch, base_seq=base.seq, base_id=base.id
        )
        edges = context_starts(tx, line)
        for edge in edges:
            if edge <= base.seq:
                tx.run("INSERT INTO edge (place) VALUES (?)", make_place(number, edge))
        edges = [edge for edge in edges if edge > base.seq]
        at = BranchTip(here.conversation, self.tree, number, here.revision, base.seq, base.id)
        self.marker = make_marker(tx, line)
        at = self._append(at, list(self._moved_results(base.seq)), 0)
        for row in chain_rows(tx, self.branches, line, base.seq, self.check.end):
            while edges and edges[0] < row.seq:
                tx.run("INSERT INTO edge (place) VALUES (?) ON CONFLICT DO NOTHING", make_place(number, at.seq))
                edges.pop(0)
            at = self._append(at, [*self._copies(row), *self._moved_results(row.seq)], row.place)
        if edges:
            tx.run("INSERT INTO edge (place) VALUES (?) ON CONFLICT DO NOTHING", make_place(number, at.seq))
        return at

    def _append(self, at: BranchTip, messages: list[Message], old: int) -> BranchTip:
        """Append copies to the branch. References to the original's place are moved to the first copy."""
        for order, message in enumerate(messages):
            if self.marker:
                message = _with_note(message, **self.marker)
                self.marker = {}
            uid = append_and_load.find_free_uid(self.tx, self.tree, original_uid(message.uid))
            blobs = dict.fromkeys([media.blob for part in message.parts for media in media_of(part) if media.blob])
            admitted = ValidatedMessage(replace(message, uid=uid), canonical_content(message), blobs)
            (stored,) = append_and_load.insert_messages(
                self.tx, self.conversation, at, [append_and_load.prepare_entry(admitted)]
            )
            new = make_place(at.branch, stored.seq)
            if message.redacted:
                self.tx.run("UPDATE message SET redacted = 1 WHERE place = ?", new)
            if order == 0 and old:
                self._move_references(old, new)
            at = BranchTip(at.conversation, at.tree, at.branch, at.revision, stored.seq, bytes.fromhex(stored.id))
        return at

    def _move_references(self, old: int, new: int) -> None:
        tx = self.tx
        tx.run("INSERT INTO pin (place) SELECT ? FROM pin WHERE place = ?", new, old)
        tx.run("UPDATE append_key SET place = ? WHERE conversation = ? AND place = ?", new, self.conversation, old)

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


def make_marker(tx: Transaction, branch: int) -> JSONObject:
    return {"branch": branch, "tip": load_branch_end(tx, branch)[1].hex()}


def repaired_branches(tx: Transaction, branches: dict[int, BranchRow]) -> Iterator[int]:
    """Return the branches that were repaired in their current state: another branch holds their messages."""
    for branch in branches.values():
        row = tx.row("SELECT body FROM message WHERE place = ?", make_place(branch.number, branch.base + 1))
        note = _note_of(row[0]) if row is not None else {}
        old = note.get("branch")
        if isinstance(old, int) and old in branches and note.get("tip") == load_branch_end(tx, old)[1].hex():
            yield old


def _note_of(body: bytes) -> JSONObject:
    try:
        return get_repair_note(decode_message(body))
    except DECODE_ERRORS:
        return {}
