"""Find the conversation of an observed request: by the caller's name, by the client's own ids, or by its content.

By content, a request belongs to the conversation whose last request and reply it continues. Of several, the most recent
one counts. A request that only begins like another one, or is the same as a first one, starts a conversation of its
own, unless it repeats a request of this run that got no answer, or ends with the last reply of the other one: then the
client left out messages. A request that contains what a model wrote in another conversation of this run belongs to that
one, too: the client edited or trimmed its history. Within one session of a client, a request that continues nothing is
a side request or a sub-agent if its system prompt and tools are other ones; otherwise the client rewrote its history.
The parent of a sub-agent is the request whose reply called a tool with the sub-agent's task. A conversation with
content of our own is never continued: a linked one takes what belongs to it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import count, groupby
from typing import Literal, NamedTuple, TypeAlias, cast

from contextc._json import JSON, JSONObject, as_object, decode_json, encode, encode_canonical
from contextc.compiler import ledger
from contextc.compiler.ledger import load_messages_by_place
from contextc.compiler.manifest import RequestRecord, record_from_json
from contextc.errors import ContextcError, ConversationExists, StoreCorrupt, UnknownConversation
from contextc.messages import Message
from contextc.observation.chain_writer import find_repaired, is_copy
from contextc.observation.client_ids import EXPLICIT
from contextc.observation.exchange_parser import (
    DECODE_ERRORS,
    RESPONSE_ID_FORMATS,
    ElementDecoder,
    ObservedInput,
    ObservedReply,
    decode_elements,
    is_blank,
)
from contextc.observation.observed_request import NewNames, RecordOptions
from contextc.observation.request_rows import is_model_output
from contextc.store.ledger_schema import Channel, ChannelState, HeadHashes, RowRange, state_from_json, unpack_record
from contextc.store.message_log import SEQ_BITS, SEQ_MASK, BranchTip, decode_row, find_tip, load_messages, make_place
from contextc.store.message_matching import GENERATED_ID, OBSERVED, is_same
from contextc.store.transaction_engine import Transaction

# ── the stored index ──────────────────────────────────────────────────────────────────────────────────────────────────
# The stored index of observed conversations: keys by which a request finds its conversation, sessions, and parents.


Kind: TypeAlias = Literal["main", "agent", "side"]
MAX_CANDIDATES = 64
FIRST_BATCH, NEXT_BATCHES = 8, 500
"""The numbers of keys that are looked up in one statement."""
KEY_BYTES = 16
OWN_CONTENT = "own"
"""The kind of the key that marks a conversation with content of our own."""


class ConversationMatch(NamedTuple):
    """The conversation of a request; `name` is "" for a new one. `parent` is the request it belongs to, if it is not
    the main conversation of its session.
    """

    name: str = ""
    kind: Kind = "main"
    parent: int = 0
    parent_place: int = 0


class KnownThread(NamedTuple):
    """An observed conversation: number, name, kind, and the place of its last request."""

    number: int
    name: str
    agent: str
    kind: str


def make_key(kind: str, *values: str | bytes) -> bytes:
    """Return the stored form of a key."""
    joined = b"\0".join([kind.encode(), *(each.encode() if isinstance(each, str) else each for each in values)])
    return blake2b(joined, digest_size=KEY_BYTES, person=b"contextc observe").digest()


def group_content_key(key: bytes, group: str) -> bytes:
    """Return the stored form of the key of a conversation's content, within a group of conversations."""
    return make_key("content", group, key)


def find_known_beginnings(tx: Transaction, keys: Sequence[bytes], group: str) -> Iterator[tuple[int, bytes]]:
    """Yield the index and the stored key of each beginning of a request that an earlier request had, longest first.

    Many are looked up in one statement. Most requests continue one that is a few elements shorter.
    """
    end, size = len(keys), FIRST_BATCH
    while end:
        start = max(0, end - size)
        stored = [group_content_key(each, group) for each in keys[start:end]]
        marks = ", ".join("?" * len(stored))
        known = {
            bytes(key)
            for (key,) in tx.rows(f"SELECT DISTINCT key FROM main.observed_key WHERE key IN ({marks})", *stored)
        }
        for index in range(end - 1, start - 1, -1):
            if stored[index - start] in known:
                yield index, stored[index - start]
        end, size = start, NEXT_BATCHES


def find_by_key(tx: Transaction, key: bytes, model: str = "") -> list[tuple[int, str, int]]:
    """Return conversations with a key: number, name, place of the request. Requests to the model come first, then the
    most recent ones.
    """
    return [
        (number, name, place)
        for place, number, name in tx.rows(
            "SELECT k.place, k.conversation, c.name FROM main.observed_key k JOIN main.conversation c"
            " ON c.number = k.conversation LEFT JOIN main.channel h ON h.number = k.place / 4294967296 WHERE k.key = ?"
            f" ORDER BY CASE WHEN h.model = ? THEN 0 ELSE 1 END, k.place DESC LIMIT {MAX_CANDIDATES}",
            key,
            model,
        )
    ]


def has_key(tx: Transaction, key: bytes, conversation: int) -> bool:
    return tx.row("SELECT 1 FROM main.observed_key WHERE key = ? AND conversation = ?", key, conversation) is not None


def save_key(tx: Transaction, key: bytes, place: int, conversation: int) -> None:
    tx.run(
        "INSERT INTO main.observed_key (key, place, conversation) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        key,
        place,
        conversation,
    )


def find_exchange(tx: Transaction, key: bytes) -> tuple[Channel, RequestRecord] | None:
    """Return the recorded request of an exchange with a key."""
    for (place,) in tx.rows("SELECT place FROM main.observed_key WHERE key = ?", key):
        sql = "SELECT conversation, agent, provider, model FROM main.channel WHERE number = ?"
        row, record = tx.row(sql, place >> SEQ_BITS), load_record(tx, place)
        if row is not None and record is not None:
            return Channel(*row), record
    return None


def session_threads(tx: Transaction, session: str) -> list[KnownThread]:
    """Return the conversations of a client's session, oldest first."""
    rows = tx.rows(
        "SELECT o.conversation, c.name, o.agent, o.kind FROM main.observed_conversation o"
        " JOIN main.conversation c ON c.number = o.conversation WHERE o.session = ? ORDER BY o.conversation",
        session,
    )
    return [KnownThread(*row) for row in rows]


def save_thread(tx: Transaction, number: int, client: str, session: str, agent: str, match: ConversationMatch) -> None:
    tx.run(
        "INSERT INTO main.observed_conversation (conversation, client, session, agent, kind, parent, parent_place)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (conversation) DO UPDATE SET parent = excluded.parent,"
        " parent_place = excluded.parent_place WHERE observed_conversation.parent = 0 AND excluded.parent > 0",
        number,
        client,
        session,
        agent,
        match.kind,
        match.parent,
        match.parent_place,
    )


def last_request(tx: Transaction, conversation: str) -> int:
    """Return the place of the last request of a conversation; 0 if it has none."""
    row = tx.row(
        "SELECT max(m.place) FROM main.channel c JOIN main.manifest m ON m.place BETWEEN c.number * 4294967296 AND"
        " c.number * 4294967296 + 1073741824 WHERE c.conversation = ?",
        conversation,
    )
    return row[0] if row and row[0] is not None else 0


def load_record(tx: Transaction, place: int) -> RequestRecord | None:
    row = tx.row("SELECT body FROM main.manifest WHERE place = ?", place)
    return record_from_json(unpack_record(bytes(row[0]))) if row else None


def last_of_channel(tx: Transaction, place: int) -> int:
    """Return the number of the last request on the channel of a request."""
    channel = place >> SEQ_BITS
    row = tx.row(
        "SELECT max(place) FROM main.manifest WHERE place BETWEEN ? AND ?",
        channel << SEQ_BITS,
        (channel << SEQ_BITS) + (1 << 30),
    )
    return row[0] & SEQ_MASK if row and row[0] is not None else 0


def is_changed_here(tx: Transaction, conversation: str, at: BranchTip, state: ChannelState) -> bool:
    """Return True if a conversation was edited, rewound or continued here: no recent request of a client ends where it
    ends now. `state` is that of the channel that is written next.
    """
    now = make_place(at.branch, at.seq)
    if not at.seq or now in ([each.place for each in state.produced] or [make_place(state.branch, state.seen)]):
        return False
    for number, _, found, _ in ledger.load_channels(tx, conversation):
        for request in range(found.requests, max(0, found.requests - MAX_CANDIDATES), -1):
            record = load_record(tx, make_place(number, request))
            if record is not None and record.observed is not None:
                ends = record.produced or (make_place(record.branch, record.tip),)
                if now in ends:
                    return False
    return find_repaired(tx, at) is None or not is_copy(tx, now)


def has_own_content(tx: Transaction, name: str, at: BranchTip) -> bool:
    """Return True if a conversation has a turn, a request or a message that observation has not recorded.

    Observed traffic is never added to it. The result is remembered: such content stays. If nothing happened since the
    last observed request, which was checked too, one request is read. Otherwise all of them are.
    """
    mark = make_key(OWN_CONTENT)
    if has_key(tx, mark, at.conversation):
        return True
    low, high = make_place(at.conversation, 0), make_place(at.conversation, SEQ_MASK)
    if tx.row("SELECT 1 FROM main.turn WHERE place BETWEEN ? AND ?", low, high) is not None:
        return True
    if tx.row("SELECT 1 FROM main.observed_conversation WHERE conversation = ?", at.conversation) is None:
        return at.seq > 0
    now = make_place(at.branch, at.seq)
    for number, _, state, _ in ledger.load_channels(tx, name):
        ends = [each.place for each in state.produced] or [make_place(state.branch, state.seen)]
        if now in ends and state.revision == at.revision:
            record = load_record(tx, make_place(number, state.requests))
            if record is not None and record.observed is not None:
                return False
    observed = load_observed_places(tx, name)
    branches = tx.rows("SELECT number FROM main.branch WHERE conversation = ?", name)
    if observed is not None and all(
        place in observed or is_copy(tx, place)
        for (branch,) in branches
        for (place,) in tx.rows(
            "SELECT place FROM main.message WHERE place BETWEEN ? AND ?",
            make_place(branch, 0),
            make_place(branch, SEQ_MASK),
        )
    ):
        return False
    save_key(tx, mark, 0, at.conversation)
    return True


def load_observed_places(tx: Transaction, conversation: str) -> set[int] | None:
    """Return the places of all messages of observed requests; None if there is a request that is not one of them."""
    places: set[int] = set()
    try:
        for channel, _, _, attempt in ledger.load_channels(tx, conversation):
            if attempt is not None:
                return None
            for body in ledger.load_manifests(tx, channel, SEQ_MASK):
                record = decode_row(record_from_json, body, "The manifest of a request")
                if record.observed is None:
                    return None
                places.update(record.produced)
            for _, row, _ in ledger.load_row_items(tx, [RowRange(channel, 0, SEQ_MASK)]):
                places.update([item.place for item in row.items])
    except StoreCorrupt:
        return None
    return places


def link_waiting(tx: Transaction, session: str, parent: int, place: int) -> None:
    """Link side requests that came before the first request of their session's main conversation."""
    tx.run(
        "UPDATE main.observed_conversation SET parent = ?, parent_place = ? WHERE session = ? AND parent = 0"
        " AND kind <> 'main'",
        parent,
        place,
        session,
    )


# ── finding ───────────────────────────────────────────────────────────────────────────────────────────────────────────


MAX_NAME_PART, MAX_NAME_LENGTH = 80, 150
TASK_ELEMENTS = 4
"""Elements at the end of a sub-agent's first request that may contain its task."""
MIN_CALL_LENGTH = 8
MIN_TASK_LENGTH = 16
"""Length of a text that is not equal by chance: the task of a sub-agent of a client without ids, a reply."""
MIN_SUMMARY_LENGTH = 40
MAX_SUMMARIES = 4
"""Replies that may be the summary in a request. The most recent ones count."""
MAX_OUTPUT_ELEMENTS = 64
"""Elements at the end of a request in which output of a model is looked up."""


def match_content(
    tx: Transaction,
    keys: Sequence[bytes],
    group: str,
    is_continuation: Callable[[Transaction, RequestRecord, int], bool],
    only: frozenset[int] | None = None,
    model: str = "",
    prefers: Callable[[Transaction, str], bool] | None = None,
    is_retried: Callable[[Transaction, int], bool] = lambda _tx, _number: True,
) -> tuple[str, int] | None:
    """Return the conversation that a request continues by its content, and the place of the request it continues.

    `is_continuation` reports whether the elements after a position begin with the reply of a request. Of several
    conversations, those that `prefers` accepts come first, then those with the same model. `is_retried` reports whether
    a client that repeats a failed request of a conversation goes on with it.
    """
    rewound: tuple[str, int] | None = None
    for index, key in find_known_beginnings(tx, keys, group):
        known = find_by_key(tx, key, model)
        if prefers is not None and len({each[0] for each in known}) > 1:
            known.sort(key=lambda each: not prefers(tx, each[1]))
        for number, name, place in known:
            if only is not None and number not in only:
                continue
            record = load_record(tx, place)
            if record is None or record.observed is None:
                continue
            is_last = last_of_channel(tx, place) == place & SEQ_MASK
            is_end = index == len(keys) - 1
            is_failed = record.observed.status in ("error", "unanswered", "unrecorded")
            if is_end and is_failed and is_last and is_retried(tx, number):
                return name, place
            if not is_end and is_last and is_continuation(tx, record, index + 1):
                return name, place
            if rewound is None and (only is not None or (not is_end and is_continuation(tx, record, index + 1))):
                rewound = name, place
    return rewound


class ConversationFinder:
    """Finds the conversation of one exchange, within its transaction."""

    def __init__(
        self,
        given: ObservedInput,
        answer: ObservedReply,
        conversation: str | None,
        began: int,
        head: HeadHashes,
        options: RecordOptions,
        decoder: ElementDecoder,
    ) -> None:
        self.given, self.answer, self.conversation, self.began, self.head = given, answer, conversation, began, head
        self.options, self.decoder = options, decoder
        self._waiting, self._linked = "", b""
        self.is_summarized = False
        """True if the request begins with the summary that was the last reply of its conversation."""

    @property
    def group(self) -> str:
        """The group of conversations within which content is compared: a session, or all of a format."""
        ids, scope = self.given.ids, self.options.scope
        group = ids.session if ids.session and not ids.is_weak else f"{ids.session}/{self.given.form.name}"
        return f"{scope}/{group}" if scope else group

    def find(self, tx: Transaction) -> tuple[str, ConversationMatch | None, int]:
        """Return the name, the match if the conversation is new, and the place of the request that is continued."""
        given, ids = self.given, self.given.ids
        if self.conversation or ids.client == EXPLICIT:
            name = self.conversation or _printable(ids.session)
            return name, ConversationMatch(name), 0
        names = self.options.names
        own = self._find_by_identity(tx, names) if names is not None and names.identity else None
        if given.previous_response:
            for _, name, place in find_by_key(tx, self._response_key(given.previous_response)):
                if own is None or name == own[0]:
                    return name, None, place
        if own is not None:
            return own
        if ids.session and not ids.is_weak:
            return self._find_in_session(tx, ids.session)
        prefers = self._has_same_prompt
        found = match_content(
            tx,
            given.parsed.keys,
            self.group,
            self._continues,
            model=given.model,
            prefers=prefers,
            is_retried=self._is_of_run,
        )
        found = found or self._match_reply(tx)
        rewritten = self._match_rewritten(tx) if found is None else None
        base = names.base if names is not None else given.provider_name
        if self._is_side:
            found = found or rewritten
            parent = (self._number_of(tx, found[0]), found[1]) if found is not None else (0, 0)
            return self._new_name(tx, base), ConversationMatch("", "side", *parent), 0
        if found is None and rewritten is not None:
            if self._has_same_tools(tx, rewritten[0]):
                return rewritten[0], None, 0
            kind: Kind = "agent" if self.head.tools else "side"
            parent = self._number_of(tx, rewritten[0]), rewritten[1]
            return self._new_name(tx, base), ConversationMatch("", kind, *parent), 0
        if found is not None:
            return found[0], None, found[1]
        caller = next((each for each in self._callers(tx, MIN_TASK_LENGTH) if _is_last(tx, each[2])), None)
        match = ConversationMatch("", "agent", caller[0], caller[2]) if caller is not None else ConversationMatch()
        return self._new_name(tx, base), match, 0

    def find_linked(
        self, tx: Transaction, name: str, own: BranchTip, place: int
    ) -> tuple[str, ConversationMatch | None, BranchTip | None]:
        """Return the conversation beside one with content of our own, which takes the requests that belong to it.

        It is linked to the request that this one continues, or to the last one. It is found again by its link, unless
        it has content of our own by now, too. What only continues a stored response gets one of its own.
        """
        key = make_key("linked", str(own.conversation), str(place if self.given.is_partial else 0))
        for _, linked, _ in find_by_key(tx, key):
            at = find_tip(tx, linked, True)
            if at is not None and not has_own_content(tx, linked, at):
                return linked, None, at
        row = tx.row("SELECT kind FROM main.observed_conversation WHERE conversation = ?", own.conversation)
        self._linked = key
        match = ConversationMatch("", row[0] if row else "main", own.conversation, place or last_request(tx, name))
        return self._new_name(tx, f"{name}-observed"), match, None

    def add_parent(self, tx: Transaction, match: ConversationMatch) -> ConversationMatch:
        """Return the match of a new conversation, with the request that the caller or a header names as its parent."""
        ids = self.given.ids
        named = self.options.parent or (ids.parent if ids.client == EXPLICIT else "")
        if not named:
            return match
        name = named if isinstance(named, str) else named[0].conversation
        if isinstance(named, str):
            place = last_request(tx, name)
        else:
            channel = ledger.find_channel(tx, named[0])
            place = make_place(channel.number, named[1]) if channel is not None else 0
        if not place and self.options.parent:
            raise UnknownConversation(name)
        kind = "side" if self._is_side else "agent"
        return match._replace(kind=kind, parent=self._number_of(tx, name), parent_place=place) if place else match

    def _find_by_identity(self, tx: Transaction, names: NewNames) -> tuple[str, ConversationMatch | None, int]:
        for _, name, _ in find_by_key(tx, self._identity_key(names)):
            return name, None, 0
        if names.wanted:
            return self._wanted_name(tx, names.wanted), ConversationMatch(), 0
        return next(name for name in names.candidates() if find_tip(tx, name, False) is None), ConversationMatch(), 0

    def _wanted_name(self, tx: Transaction, name: str) -> str:
        if find_tip(tx, name, False) is not None:
            raise ConversationExists(name)
        return name

    def _identity_key(self, names: NewNames) -> bytes:
        return make_key("identity", names.scope, names.base, names.identity)

    def _response_key(self, response: str) -> bytes:
        return make_key("response", *([self.options.scope] if self.options.scope else []), response)

    @property
    def _run_key(self) -> bytes | None:
        """The key of conversations with requests of this run of the proxy; None if the run is not known.

        The keys of imported exchanges name files and requests, not runs.
        """
        is_imported = self.options.names is not None or self.options.stored is not None
        run = "" if is_imported else self.options.key.rpartition("/")[0]
        return make_key("run", self.options.scope, run) if run else None

    def _is_of_run(self, tx: Transaction, conversation: int) -> bool:
        key = self._run_key
        return key is None or has_key(tx, key, conversation)

    @property
    def exchange_key(self) -> bytes:
        return make_key("exchange", self.options.scope, self.options.key)

    def _find_in_session(self, tx: Transaction, session: str) -> tuple[str, ConversationMatch | None, int]:
        given, ids = self.given, self.given.ids
        threads = session_threads(tx, session)
        is_unnamed = ids.is_agent and not ids.agent
        mine = [each for each in threads if each.agent == ids.agent and (each.kind == "agent" or not is_unnamed)]
        main = next((each for each in mine if each.kind != "side"), None)
        is_side = self._is_side
        if not is_side and mine:
            numbers = frozenset(each.number for each in mine)
            found = match_content(tx, given.parsed.keys, self.group, self._continues, numbers)
            if found is not None and (
                ids.is_certain or self._has_same_head(tx, found[0]) or self._extends(tx, found[1])
            ):
                return found[0], None, found[1]
        base = f"{ids.client}-{session}"[:MAX_NAME_PART]
        if is_unnamed and not is_side:
            name, parent = self._new_name(tx, f"{base}-agent"), self._find_caller(tx, threads)
            return name, ConversationMatch("", "agent", *parent), 0
        if main is None and not is_side:
            if ids.agent:
                name, parent = self._new_name(tx, f"{base}-{ids.agent}"), self._find_caller(tx, threads)
                return name, ConversationMatch("", "agent", *parent), 0
            self._waiting = session
            return self._new_name(tx, base, is_exact=True), ConversationMatch(), 0
        if (
            main is not None
            and not is_side
            and (ids.is_certain or ids.is_compacted or self._has_same_head(tx, main.name))
        ):
            return main.name, None, 0  # the client rewrote its history
        if main is not None and not is_side and self._is_first_real(tx, main):
            tx.run("UPDATE main.observed_conversation SET kind = 'side' WHERE conversation = ?", main.number)
            self._waiting = session
            return self._new_name(tx, base), ConversationMatch(), 0
        if is_side or not given.json.get("tools"):
            parent = self._last_of(tx, main or _find_main(threads))
            return self._new_name(tx, f"{base}-side"), ConversationMatch("", "side", *parent), 0
        return self._new_name(tx, f"{base}-agent"), ConversationMatch("", "agent", *self._find_caller(tx, threads)), 0

    def _is_first_real(self, tx: Transaction, main: KnownThread) -> bool:
        """Return True if the main conversation so far was one request without tools, such as a probe, and this request
        has tools.
        """
        states = [state for _, _, state, _ in ledger.load_channels(tx, main.name)]
        is_alone = sum([state.requests for state in states]) == 1 and not states[0].head.tools
        return main.kind == "main" and is_alone and bool(self.head.tools)

    @property
    def _is_side(self) -> bool:
        return self.given.ids.is_side or self.answer.is_token_count

    def _find_caller(self, tx: Transaction, threads: Sequence[KnownThread]) -> tuple[int, int]:
        """Return the conversation and the place of the request whose reply started this sub-agent.

        It called a tool with the sub-agent's task, or the sub-agent continues its messages, or it is the last request
        of the conversation that is named as the parent.
        """
        ids = self.given.ids
        numbers = {each.number: each for each in threads if each.kind != "side"}
        callers = [(number, place) for number, _, place in self._callers(tx) if number in numbers]
        if callers:
            named = [each for each in callers if numbers[each[0]].agent == ids.parent]
            return (named or callers)[0]
        found = match_content(tx, self.given.parsed.keys, self.group, self._continues, frozenset(numbers))
        if found is not None:
            return self._number_of(tx, found[0]), found[1]
        named = [each for each in numbers.values() if each.agent == ids.parent]
        return self._last_of(tx, named[0] if named else _find_main(threads))

    def _callers(self, tx: Transaction, least: int = 1) -> list[tuple[int, str, int]]:
        """Return the requests whose reply called a tool with a text of this request: number, name, place."""
        texts = [text for raw in self.given.parsed.bases[-TASK_ELEMENTS:] for text in _user_texts(raw)]
        return [
            found
            for text in reversed(texts)
            if len(text) >= least
            for found in find_by_key(tx, make_key("call", self.group, text))
        ]

    def _match_reply(self, tx: Transaction) -> tuple[str, int] | None:
        """Return the conversation that begins like this one, and whose last reply is the last one in this request. The
        client left out what was between them, or continues the conversation in another format.
        """
        bases = self.given.parsed.bases
        last = next((index for index in range(len(bases) - 1, -1, -1) if is_model_output(bases[index])), None)
        if last is None:
            return None
        try:
            said = decode_elements(self.given.form, bases[last : last + 1])
        except (ContextcError, *DECODE_ERRORS):
            return None
        key = self._reply_key(said[-1]) if said else None
        for _, name, place in find_by_key(tx, key) if key is not None else ():
            if _is_last(tx, place) and (self._has_same_request(tx, place) or self._has_same_messages(tx, name, last)):
                return name, place
        return None

    def _match_rewritten(self, tx: Transaction) -> tuple[str, int] | None:
        """Return the conversation of this run whose history the client rewrote, and the place of a request of it.

        Most of what a model wrote in this request was written there. Otherwise its last request is the beginning of
        this one, and the client changed the reply or left it out; or this request contains its last reply, a summary.
        """
        if self._run_key is None or self.given.is_partial:
            return None
        return self._match_outputs(tx) or self._match_edited_reply(tx) or self._match_summary(tx)

    def _match_outputs(self, tx: Transaction) -> tuple[str, int] | None:
        bases = self.given.parsed.bases
        places: dict[str, dict[bytes, int]] = {}
        for is_output, some in groupby(bases[-MAX_OUTPUT_ELEMENTS:], is_model_output):
            try:
                messages = decode_elements(self.given.form, list(some)) if is_output else ()
            except (ContextcError, *DECODE_ERRORS):
                continue
            for key in {key for message in messages for key in self._output_keys(message)}:
                for _, name, place in find_by_key(tx, key):
                    places.setdefault(name, {}).setdefault(key, place)
        most = max(map(len, places.values()), default=0)
        names = [name for name, found in places.items() if len(found) == most]
        if len(names) > 1:
            asked = {text for raw in bases for text in _user_texts(raw)}
            shared = {name: len(asked & self._texts_of(tx, name)) for name in names[:MAX_CANDIDATES]}
            names = [name for name, found in shared.items() if found == max(shared.values())]
        last = {name: max(places[name].values()) for name in names}
        best = max(names, key=lambda name: (self._has_same_prompt(tx, name), last[name]), default="")
        return (best, last[best]) if best else None

    def _texts_of(self, tx: Transaction, conversation: str) -> set[str]:
        """Return the texts that are not a model's."""
        try:
            return {each.text.strip() for each in load_messages(tx, conversation) if each.role != "assistant"}
        except (ContextcError, *DECODE_ERRORS):
            return set()

    def _output_keys(self, message: Message) -> set[bytes]:
        """Return the keys of what a model wrote in this run: its text, and its calls, by their ids if they have any."""
        found = {message.text.strip()}
        for call in message.tool_calls:
            is_generated = GENERATED_ID.fullmatch(call.id) is not None
            found.add(
                f"{call.name} {encode_canonical(call.arguments).decode()}" if is_generated else f"call id {call.id}"
            )
        long = {each for each in found if len(each) >= MIN_TASK_LENGTH}
        return {make_key("output", self._run_key or b"", self.group, each) for each in long}

    def _has_text(self, text: str) -> bool:
        """Return True if a text is in the request, as JSON writes it with or without other letters than ASCII's."""
        return any([form[1:-1] in self.given.body for form in (encode(text), json.dumps(text).encode())])

    def _match_edited_reply(self, tx: Transaction) -> tuple[str, int] | None:
        """Several conversations may begin like this request. Then it is not known which one it continues."""
        for _, key in find_known_beginnings(tx, self.given.parsed.keys[:-1], self.group):
            known = [each for each in find_by_key(tx, key) if self._is_of_run(tx, each[0]) and _is_last(tx, each[2])]
            same = [each for each in known if self._has_same_prompt(tx, each[1])] or known
            if same:
                return same[0][1:] if len(same) == 1 else None
        return None

    def _match_summary(self, tx: Transaction) -> tuple[str, int] | None:
        texts = [text for raw in self.given.parsed.bases for text in _user_texts(raw) if len(text) > MIN_SUMMARY_LENGTH]
        key = self._summary_key if texts else None
        for _, name, place in find_by_key(tx, key)[:MAX_SUMMARIES] if key is not None else ():
            record = load_record(tx, place) if _is_last(tx, place) else None
            replies = load_messages_by_place(tx, list(record.produced)).values() if record is not None else ()
            if any([reply.text.strip() in text for reply in replies for text in texts]):
                self.is_summarized = True
                return name, place
        return None

    @property
    def _summary_key(self) -> bytes | None:
        """The key of long replies without calls in this run: they may be summaries, if there are tools."""
        if self._run_key is None or not self.head.tools:
            return None
        return make_key("summary", self._run_key, self.group, self.head.static, self.head.tools)

    def _reply_key(self, reply: Message) -> bytes | None:
        """Return the key of a conversation's first question and last reply; None if there is no text."""
        first = next((text for raw in self.given.parsed.bases for text in _user_texts(raw)), "")
        text, ids = reply.text.strip(), self.given.ids
        return make_key("reply", self.options.scope, ids.session, first, text) if first and text else None

    def _has_same_request(self, tx: Transaction, place: int) -> bool:
        """Return True if the last request of a channel has the same model, system prompt and tools."""
        row = tx.row("SELECT model, state FROM main.channel WHERE number = ?", place >> SEQ_BITS)
        if row is None or row[0] != self.given.model:
            return False
        head = state_from_json(bytes(row[1])).head
        return (head.static, head.tools) == (self.head.static, self.head.tools)

    def _has_same_messages(self, tx: Transaction, name: str, last: int) -> bool:
        """Return True if the elements of this request up to a position are all messages of a conversation."""
        try:
            stored = load_messages(tx, name)
            sent = decode_elements(self.given.form, self.given.parsed.bases[: last + 1])
        except (ContextcError, *DECODE_ERRORS):
            return False
        both = [[each for each in some if each.role != "system" and not is_blank(each)] for some in (stored, sent)]
        return len(both[0]) == len(both[1]) and all(
            is_same(ours, theirs, OBSERVED) for ours, theirs in zip(*both, strict=True)
        )

    def _number_of(self, tx: Transaction, name: str) -> int:
        row = tx.row("SELECT number FROM main.conversation WHERE name = ?", name)
        return row[0] if row else 0

    def _last_of(self, tx: Transaction, thread: KnownThread | None) -> tuple[int, int]:
        return (thread.number, last_request(tx, thread.name)) if thread is not None else (0, 0)

    def _new_name(self, tx: Transaction, base: str, *, is_exact: bool = False) -> str:
        if self.options.names is not None and self.options.names.wanted:
            return self._wanted_name(tx, self.options.names.wanted)
        base = _printable(base)
        if is_exact and find_tip(tx, base, False) is None:
            return base
        made = blake2b(f"{base}{self.began}".encode() + self.given.body, digest_size=4).hexdigest()
        names = (f"{base}-{made}" if not number else f"{base}-{made}-{number}" for number in count())
        return next(name for name in names if find_tip(tx, name, False) is None)

    def _has_same_head(self, tx: Transaction, conversation: str) -> bool:
        """Return True if the request has the tools, or else the system prompt, of a request of the conversation."""
        mine = self.head
        states = [state.head for _, _, state, _ in ledger.load_channels(tx, conversation)]
        return any(head.tools == mine.tools and (mine.tools or head.static == mine.static) for head in states)

    def _has_same_tools(self, tx: Transaction, conversation: str) -> bool:
        return any(state.head.tools == self.head.tools for _, _, state, _ in ledger.load_channels(tx, conversation))

    def _has_same_prompt(self, tx: Transaction, conversation: str) -> bool:
        """Return True if a request of the conversation has the same system prompt and tools."""
        heads = [state.head for _, _, state, _ in ledger.load_channels(tx, conversation)]
        return any(head.static == self.head.static and head.tools == self.head.tools for head in heads)

    def _extends(self, tx: Transaction, place: int) -> bool:
        """Return True if the request contains all messages of an earlier request, and more."""
        known = find_known_beginnings(tx, self.given.parsed.keys[:-1], self.group)
        return any(where == place for _, key in known for *_, where in find_by_key(tx, key))

    def _continues(self, tx: Transaction, record: RequestRecord, index: int) -> bool:
        """Return True if the elements from an index on begin with the reply of a request."""
        elements = self.given.parsed.bases
        if index >= len(elements) or not is_model_output(elements[index]):
            return False
        stored = load_messages_by_place(tx, list(record.produced[:1]))
        end = next((at for at in range(index, len(elements)) if not is_model_output(elements[at])), len(elements))
        try:
            mine = self.decoder.decode_first(index, end)
        except (ContextcError, *DECODE_ERRORS):
            return True
        return not stored or mine is None or is_same(next(iter(stored.values())), mine, OBSERVED)

    def save_keys(self, tx: Transaction, conversation: int, place: int) -> None:
        given = self.given
        if self._waiting:
            link_waiting(tx, self._waiting, conversation, place)
        names = self.options.names
        if names is not None and names.identity:
            save_key(tx, self._identity_key(names), 0, conversation)
        if self._linked:
            save_key(tx, self._linked, 0, conversation)
        if self.options.key:
            save_key(tx, self.exchange_key, place, conversation)
        if (key := self._run_key) is not None:
            save_key(tx, key, 0, conversation)
        if self._is_side:
            return
        if given.parsed.keys and not given.is_partial:
            save_key(tx, group_content_key(given.parsed.keys[-1], self.group), place, conversation)
        if self.answer.response_id and given.form.name in RESPONSE_ID_FORMATS:
            save_key(tx, self._response_key(self.answer.response_id), place, conversation)
        for message in self.answer.messages:
            for call in message.tool_calls:
                task = max(_strings_in(call.arguments), key=len, default="").strip()
                if len(task) >= MIN_CALL_LENGTH:
                    save_key(tx, make_key("call", self.group, task), place, conversation)
        if self.answer.messages and not given.is_partial and (not given.ids.session or given.ids.is_weak):
            last = self.answer.messages[-1]
            if not last.tool_calls and (key := self._reply_key(last)) is not None:
                save_key(tx, key, place, conversation)
            if self._run_key is None:
                return
            for message in self.answer.messages:
                if not message.text.strip() or not self._has_text(message.text.strip()):  # an example may have it, too
                    for key in self._output_keys(message):
                        save_key(tx, key, place, conversation)
            is_long = not last.tool_calls and len(last.text.strip()) >= MIN_SUMMARY_LENGTH
            if is_long and (key := self._summary_key) is not None:
                save_key(tx, key, place, conversation)


def _find_main(threads: Sequence[KnownThread]) -> KnownThread | None:
    return next((each for each in threads if each.kind == "main"), None)


def _is_last(tx: Transaction, place: int) -> bool:
    return last_of_channel(tx, place) == place & SEQ_MASK


def _user_texts(raw: bytes) -> list[str]:
    """Return the texts of an element that is input of a user."""
    try:
        value: JSON = decode_json(raw)
    except ValueError:
        return []
    if isinstance(value, str):
        return [value.strip()]
    element = as_object(value)
    if element.get("role") not in ("user", None):
        return []
    content = element.get("content") or element.get("parts")
    blocks = [element] if content is None else cast(list[JSON], content) if isinstance(content, list) else [content]
    texts = [each if isinstance(each, str) else as_object(each).get("text") for each in blocks]
    return [each.strip() for each in texts if isinstance(each, str) and each.strip()]


def _strings_in(value: JSON) -> list[str]:
    """Return the texts in the arguments of a call."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in cast(JSONObject, value).values() for text in _strings_in(each)]
    return [text for each in cast(list[JSON], value) for text in _strings_in(each)] if isinstance(value, list) else []


def _printable(name: str) -> str:
    """Return the id of a client in a form that can be part of a conversation's name."""
    return "".join([each if each.isprintable() else "-" for each in name])[:MAX_NAME_LENGTH]
