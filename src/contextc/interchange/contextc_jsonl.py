"""JSON Lines format of conversations: the types of the lines of a file.

The first line is a header: the conversation, its root, its branches. Todo lists follow, one line per agent. Then come
the messages, one per line, in the order of their branches. A blob precedes the first message that uses it. Version 2
has todos and pins, version 3 tags and notes. A file without them has version 1, so that older readers accept it.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import msgspec

from contextc._json import hash_blob
from contextc.errors import ContextcError, ConversationExists, InvalidImport, InvalidInput, StoreCorrupt
from contextc.messages import (
    Media,
    Message,
    ToolResult,
    canonical_content,
    decode_message,
    encode_message,
    make_chain_id,
    validate_message,
)
from contextc.store import Conversation, Store, message_log, tags_and_notes, turn_records
from contextc.store.branches import load_conversation
from contextc.store.message_log import DOCTOR_HINT, load_and_verify
from contextc.store.transaction_engine import Transaction
from contextc.tools.todos import Todo, numbered_todos

VERSION, VERSION_WITHOUT_TAGS, VERSION_WITHOUT_TODOS = 3, 2, 1
CHUNK = 1000
Progress = Callable[[int, int], None]
"""A callback with the number of messages done, and the total."""


class BranchLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A branch of the conversation, or the part of another conversation's branch that it is based on."""

    number: int
    parent: int | None = None
    base: int = 0
    own: bool = True
    edges: tuple[int, ...] = ()
    pins: tuple[int, ...] = ()


class HeaderLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="contextc"):
    """The first line. `branch` is the current branch."""

    version: int
    conversation: str
    root: str
    branch: int
    branches: tuple[BranchLine, ...]
    messages: int


class MessageLine(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="message"
):
    branch: int
    message: Message
    key: str | None = None


class BlobLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="blob"):
    name: str
    data: str


class TodosLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="todos"):
    """The whole todo list of one agent."""

    agent: str
    todos: tuple[Todo, ...]


class TagsLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="tags"):
    """The tags of the conversation."""

    tags: tuple[str, ...]


class NoteLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag="note"):
    """A note, without the request it is about: a file has no requests."""

    text: str
    time: int
    who: str = ""


class HeaderVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a header that every version has."""

    version: int = 0


AnyLine: TypeAlias = HeaderLine | MessageLine | BlobLine | TodosLine | TagsLine | NoteLine
ListLine: TypeAlias = TodosLine | TagsLine | NoteLine

encode_line = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(AnyLine).decode
decode_version = msgspec.json.Decoder(HeaderVersion).decode


def blob_names(message: Message) -> Iterator[str]:
    for part in message.parts:
        inner = part.content if isinstance(part, ToolResult) and not isinstance(part.content, str) else (part,)
        for each in inner:
            if isinstance(each, Media) and each.blob:
                yield each.blob


# ── export ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Export of a whole conversation as JSON Lines: branches, messages, media, todos and pins.


DAMAGED_BRANCH_FIX = (
    "An export contains every branch. Repair the conversation, then export a fork of it without the damaged branch."
)


class BranchRange(NamedTuple):
    """The range of a branch that belongs to a conversation: the messages after `base` up to `until`."""

    number: int
    parent: int | None
    base: int
    until: int
    own: bool


def export_lines(store: Store, conversation: str, progress: Progress | None = None) -> Iterator[bytes]:
    """Return a conversation as lines of JSON, without their line ends.

    Every message and blob is verified as it is read: one that does not match its hash is `StoreCorrupt`.
    """
    header, ranges, lists = store.read(lambda tx: _load_header(tx, conversation))
    yield encode_line(header)
    yield from map(encode_line, lists)
    blobs: set[str] = set()
    done = 0
    for each in ranges:
        for start in range(each.base, each.until, CHUNK):
            stop = min(start + CHUNK, each.until)
            for line in store.read(lambda tx, r=each, a=start, b=stop: _load_lines(tx, conversation, r, a, b)):
                for name in blob_names(line.message):
                    if name not in blobs:
                        blobs.add(name)
                        yield encode_line(BlobLine(name=name, data=base64.b64encode(_load_blob(store, name)).decode()))
                yield encode_line(line)
            done += stop - start
            if progress:
                progress(done, header.messages)


def _load_header(tx: Transaction, conversation: str) -> tuple[HeaderLine, list[BranchRange], list[ListLine]]:
    at = message_log.load_tip(tx, conversation)
    ranges = _branch_ranges(tx, conversation)
    lists: list[ListLine] = [
        TodosLine(agent=agent, todos=tuple(turn_records.load_todos(tx, conversation, agent)))
        for (agent,) in tx.rows(
            "SELECT DISTINCT agent FROM main.todo WHERE conversation = ? ORDER BY agent", conversation
        )
    ]
    lines = tuple(
        BranchLine(
            number=each.number,
            parent=each.parent,
            base=each.base,
            own=each.own,
            edges=_marked_seqs(tx, "edge", each),
            pins=_marked_seqs(tx, "pin", each),
        )
        for each in ranges
    )
    has_todos = bool(lists) or any(line.pins for line in lines)
    tags, notes = tags_and_notes.load_tags(tx, conversation), tags_and_notes.load_notes(tx, conversation)
    lists += [TagsLine(tags=tuple(tags))] if tags else []
    lists += [NoteLine(text=each.text, time=each.time, who=each.who) for each in notes]
    header = HeaderLine(
        version=VERSION if tags or notes else VERSION_WITHOUT_TAGS if has_todos else VERSION_WITHOUT_TODOS,
        conversation=conversation,
        root=message_log.load_root(tx, at.tree).hex(),
        branch=at.branch,
        branches=lines,
        messages=sum(each.until - each.base for each in ranges),
    )
    return header, ranges, lists


def _marked_seqs(tx: Transaction, table: str, range_: BranchRange) -> tuple[int, ...]:
    """Return the seqs of a branch that a table lists."""
    low, high = message_log.make_place(range_.number, 0), message_log.make_place(range_.number, range_.until)
    rows = tx.rows(f"SELECT place FROM main.{table} WHERE place BETWEEN ? AND ? ORDER BY place", low, high)
    return tuple(row[0] & message_log.SEQ_MASK for row in rows)


def _branch_ranges(tx: Transaction, conversation: str) -> list[BranchRange]:
    """Return the branches of a conversation and their parents, oldest first."""
    found: dict[int, BranchRange] = {}
    own = tx.rows("SELECT number, parent, base_seq FROM main.branch WHERE conversation = ?", conversation)
    for number, parent, base in own:
        found[number] = BranchRange(number, parent, base, message_log.load_branch_end(tx, number)[0], True)
    below = [(parent, base) for _, parent, base in own]
    while below:
        number, upto = below.pop()
        if number is None or (number in found and (found[number].own or found[number].until >= upto)):
            continue
        row = tx.row("SELECT parent, base_seq FROM main.branch WHERE number = ?", number)
        if row is None or (row[0] is not None and row[0] >= number):
            raise StoreCorrupt(
                f"Branch {number}, the parent of other branches, is missing or has an invalid parent. {DOCTOR_HINT}"
            )
        found[number] = BranchRange(number, row[0], row[1], upto, False)
        below.append((row[0], row[1]))
    return sorted(found.values())


def _load_lines(tx: Transaction, conversation: str, reach: BranchRange, after: int, upto: int) -> list[MessageLine]:
    low, high = message_log.make_place(reach.number, after + 1), message_log.make_place(reach.number, upto)
    keys = dict(
        tx.rows(
            "SELECT place, key FROM main.append_key WHERE conversation = ? AND place BETWEEN ? AND ?",
            conversation,
            low,
            high,
        )
    )
    try:
        found = load_and_verify(tx, reach.number, after + 1, upto)
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{error} {DAMAGED_BRANCH_FIX}") from error
    return [
        MessageLine(branch=reach.number, message=each, key=keys.get(message_log.make_place(reach.number, each.seq)))
        for each in found
    ]


def _load_blob(store: Store, name: str) -> bytes:
    data = store.blob(name)
    if hash_blob(data) != name:
        raise StoreCorrupt(f"Blob {name!r} is corrupt: its bytes do not match its hash. {DOCTOR_HINT}")
    return data


# ── import ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Import of JSON Lines that contextc exported, verified link by link.
#
# Everything is parsed and checked before the first row is written, and all rows are written in one transaction. So a
# truncated or changed file stores nothing. Ids, uids, keys, branches, todos and pins are restored. A file without a
# header may hold plain messages, one per line. They are appended as new messages.


def import_lines(
    store: Store, lines: Iterable[bytes | str], name: str | None = None, progress: Progress | None = None
) -> Conversation:
    """Import a conversation from JSON Lines, under its own or another name: completely, or not at all."""
    numbered = [(number, _without_bom(line)) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise InvalidImport("the file is empty", line=1)
    if _is_plain(numbered[0][1]):
        return _append_plain(store, numbered, name)
    return _JSONLImport(numbered, name, progress).write_to(store)


MESSAGE_EXAMPLE = '{"role": "user", "parts": [{"type": "text", "text": "hi"}]}'


def _without_bom(line: bytes | str) -> bytes | str:
    """Remove the byte order mark that some editors write."""
    return line.removeprefix(b"\xef\xbb\xbf") if isinstance(line, bytes) else line.removeprefix("\ufeff")


def _is_plain(line: bytes | str) -> bool:
    """Return True if a file begins with a message, and not with a header."""
    try:
        return "role" in msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def _append_plain(store: Store, lines: list[tuple[int, bytes | str]], name: str | None) -> Conversation:
    if name is None:
        raise InvalidImport(
            "the messages do not name their conversation",
            line=1,
            fix="Pass the name of the conversation.",
            case="no-name",
        )
    messages: list[Message] = []
    for number, line in lines:
        try:
            messages.append(validate_message(decode_message(line)).message)
        except (msgspec.MsgspecError, ContextcError, UnicodeDecodeError) as error:
            problem = str(error).rstrip(".")
            raise InvalidImport(problem, line=number, fix=f"Write a message as in {MESSAGE_EXAMPLE}.") from error
    store.extend(name, messages)
    return store.conversation(name)


HEX = "0123456789abcdef"


class _JSONLImport:
    """An import of one file: parsed and checked first, then written in one transaction."""

    def __init__(self, lines: list[tuple[int, bytes | str]], name: str | None, progress: Progress | None) -> None:
        _check_version(lines[0][1])
        first, *rest = [(number, self._parse(number, line)) for number, line in lines]
        if not isinstance(first[1], HeaderLine):
            raise InvalidImport("a contextc file must begin with its header", line=first[0])
        self.header, self.rest = first[1], rest
        self.name = name or self.header.conversation
        self.progress = progress
        self._check()

    def write_to(self, store: Store) -> Conversation:
        return store.write(self._write)

    @staticmethod
    def _parse(number: int, line: bytes | str) -> AnyLine:
        try:
            return decode_line(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidImport(f"{error}.", line=number) from error

    def _check(self) -> None:
        """Check that every message follows the one before it, and that its content matches its id."""
        branches = self._check_header()
        ends: dict[int, int] = {}
        ids: dict[tuple[int, int], str] = {}
        agents: set[str] = set()
        count = 0
        for number, line in self.rest:
            if isinstance(line, BlobLine):
                if hash_blob(_decode_blob(number, line)) != line.name:
                    raise InvalidImport(f"blob {line.name} is corrupt: its bytes do not match its name", line=number)
                continue
            if isinstance(line, TodosLine):
                _check_todos(number, line, agents)
                continue
            if isinstance(line, TagsLine | NoteLine):
                _check_tags_and_notes(number, line)
                continue
            if isinstance(line, HeaderLine):
                raise InvalidImport("a second header", line=number, fix="Import one conversation at a time.")
            branch = branches.get(line.branch)
            if branch is None:
                raise InvalidImport(f"the header has no branch {line.branch}.", line=number)
            message, seq = line.message, ends.get(line.branch, branch.base) + 1
            before = (
                (line.branch, seq - 1)
                if seq > branch.base + 1
                else (_branch_holding(branches, line.branch, seq - 1), seq - 1)
            )
            parent = self.header.root if seq == 1 else ids.get(before)
            if message.seq != seq or parent is None:
                raise InvalidImport(
                    f"message {message.seq} of branch {line.branch} does not follow the message before it", line=number
                )
            if (
                not message.redacted
                and make_chain_id(bytes.fromhex(parent), canonical_content(message)).hex() != message.id
            ):
                raise InvalidImport(
                    f"message {message.seq} was changed: its content does not match its id", line=number
                )
            ends[line.branch], ids[line.branch, seq] = seq, message.id
            count += 1
        if count != self.header.messages:
            raise InvalidImport(
                f"the file is truncated: the header states {self.header.messages} messages, got {count}",
                line=self.rest[-1][0] if self.rest else 1,
            )
        for branch in branches.values():
            if any(not branch.base < pin <= ends.get(branch.number, branch.base) for pin in branch.pins):
                raise InvalidImport(f"branch {branch.number} has a pin on a missing message", line=1)

    def _check_header(self) -> dict[int, BranchLine]:
        """Check the header, and return its branches by number: one starts at the root, the others on an earlier one."""
        header = self.header
        branches: dict[int, BranchLine] = {}
        for branch in sorted(header.branches, key=lambda each: each.number):
            fits = branch.parent in branches if branches else branch.parent is None and branch.base == 0
            if not fits or branch.number in branches:
                raise InvalidImport(f"branch {branch.number} has no valid parent, or is duplicated", line=1)
            branches[branch.number] = branch
        if header.branch not in branches:
            raise InvalidImport(f"the current branch {header.branch} is not among the branches.", line=1)
        if len(header.root) != 40 or not header.root.startswith("00000000") or not set(header.root) <= set(HEX):
            raise InvalidImport(
                f"root must be 40 hexadecimal digits that start with 00000000, got {header.root!r}", line=1
            )
        return branches

    def _write(self, tx: Transaction) -> Conversation:
        if tx.row("SELECT 1 FROM main.conversation WHERE name = ?", self.name):
            raise ConversationExists(self.name)
        numbers = self._write_branches(tx)
        tree = tx.row("SELECT tree FROM main.conversation WHERE name = ?", self.name)
        assert tree is not None, "it was created above"
        blobs: dict[str, bytes] = {}
        batch: list[tuple[int, Message]] = []
        done = 0
        for number, line in self.rest:
            if isinstance(line, BlobLine):
                blobs[line.name] = _decode_blob(number, line)
            elif isinstance(line, TodosLine):
                turn_records.replace_todos(tx, self.name, line.agent, list(line.todos))
            elif isinstance(line, TagsLine):
                tags_and_notes.change_tags(tx, self.name, add=line.tags)
            elif isinstance(line, NoteLine):
                tags_and_notes.add_note(tx, self.name, line.text, who=line.who, time=line.time)
            elif isinstance(line, MessageLine):
                place = message_log.make_place(numbers[line.branch], line.message.seq)
                batch.append((place, line.message))
                if used := {name: blobs.get(name) for name in blob_names(line.message)}:
                    message_log.save_blobs(tx, self.name, place, used)
                if line.key is not None:
                    tx.run(
                        "INSERT INTO main.append_key (conversation, key, place) VALUES (?, ?, ?)",
                        self.name,
                        line.key,
                        place,
                    )
                if len(batch) == CHUNK:
                    done += self._write_messages(tx, tree[0], batch)
                    if self.progress:
                        self.progress(done, self.header.messages)
        self._write_messages(tx, tree[0], batch)
        message_log.update_last_active(tx, self.name)
        if self.progress:
            self.progress(self.header.messages, self.header.messages)
        return load_conversation(tx, self.name)

    def _write_branches(self, tx: Transaction) -> dict[int, int]:
        """Create the branches, and return their new numbers by their old ones."""
        ids = {
            (line.branch, line.message.seq): line.message.id for _, line in self.rest if isinstance(line, MessageLine)
        }
        branches = {branch.number: branch for branch in self.header.branches}
        numbers: dict[int, int] = {}
        for branch in sorted(self.header.branches, key=lambda each: each.number):
            if branch.parent is None:
                head = message_log.insert_conversation(tx, self.name, bytes.fromhex(self.header.root))
                numbers[branch.number] = head.branch
            else:
                holder = _branch_holding(branches, branch.number, branch.base)
                base = ids[holder, branch.base] if branch.base else self.header.root
                numbers[branch.number] = message_log.insert_branch(
                    tx,
                    self.name,
                    tree=min(numbers.values()),
                    parent=numbers[branch.parent],
                    base_seq=branch.base,
                    base_id=bytes.fromhex(base),
                )
            if not branch.own:
                tx.run("UPDATE main.branch SET conversation = NULL WHERE number = ?", numbers[branch.number])
            for edge in branch.edges:
                tx.run("INSERT INTO main.edge (place) VALUES (?)", message_log.make_place(numbers[branch.number], edge))
            for pin in branch.pins:
                tx.run("INSERT INTO main.pin (place) VALUES (?)", message_log.make_place(numbers[branch.number], pin))
        tx.run("UPDATE main.conversation SET branch = ? WHERE name = ?", numbers[self.header.branch], self.name)
        if any(branch.pins for branch in self.header.branches):  # at revision 0, readers skip the pins
            tx.run("UPDATE main.conversation SET revision = revision + 1 WHERE name = ?", self.name)
        return numbers

    @staticmethod
    def _write_messages(tx: Transaction, tree: int, batch: list[tuple[int, Message]]) -> int:
        tx.run_many(
            "INSERT INTO main.message (place, id, time, redacted, body) VALUES (?, ?, ?, ?, ?)",
            [
                (place, bytes.fromhex(message.id), message.time, int(message.redacted), encode_message(message))
                for place, message in batch
            ],
        )
        tx.run_many(
            "INSERT INTO main.early_uid (tree, uid, place) VALUES (?, ?, ?)",
            [(tree, message.uid, place) for place, message in batch],
        )
        count = len(batch)
        batch.clear()
        return count


def _check_version(line: bytes | str) -> None:
    """Raise InvalidImport for a newer version, before unknown kinds of lines are parsed."""
    try:
        version = decode_version(line).version
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return  # reported when the line is parsed
    if version > VERSION:
        raise InvalidImport(
            f"the file has version {version}, this contextc reads up to {VERSION}", line=1, fix="Upgrade contextc."
        )


def _check_tags_and_notes(number: int, line: TagsLine | NoteLine) -> None:
    try:
        for tag in line.tags if isinstance(line, TagsLine) else ():
            tags_and_notes.check_tag(tag)
        if isinstance(line, NoteLine):
            tags_and_notes.check_note(line.text)
    except InvalidInput as error:
        raise InvalidImport(str(error).rstrip("."), line=number) from error


def _check_todos(number: int, line: TodosLine, agents: set[str]) -> None:
    if line.agent in agents:
        raise InvalidImport(f"a second todo list for agent {line.agent!r}", line=number)
    agents.add(line.agent)
    try:
        message_log.check_name(line.agent, "agent")
        if numbered_todos(line.todos) != list(line.todos):
            raise InvalidImport("todos must be numbered from 1, and each text must be a single line", line=number)
    except InvalidInput as error:
        raise InvalidImport(f"{error}", line=number) from error


def _branch_holding(branches: dict[int, BranchLine], number: int, seq: int) -> int:
    """Return the branch that holds message `seq` of the chain that ends on a branch."""
    while branches[number].base >= seq and (parent := branches[number].parent) is not None:
        number = parent
    return number


def _decode_blob(number: int, line: BlobLine) -> bytes:
    try:
        return base64.b64decode(line.data, validate=True)
    except ValueError as error:
        raise InvalidImport(f"blob {line.name} is not valid base64", line=number) from error
