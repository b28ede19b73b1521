"""Stored form of ledgers: items (one per message or inserted text), rows, channels and the state of a channel.

An item has everything that is needed to render the same text again: role, prefix, how much of a long result, with or
without media and reasoning. Later changes (a second person joins, a limit changes) affect new items only. Items are
stored with every request, so they are small. The state of a channel has its position in the log, the rows of its epoch
and its session.
"""

import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSONObject, encode_canonical
from contextc.messages import Role
from contextc.store.message_log import agent_of

ItemKind: TypeAlias = Literal[
    "message", "dynamic", "turn", "update", "change", "summary", "words", "index", "notice", "late"
]
"""A message of the log, or inserted text: a dynamic fragment; a fragment of one turn; changed instructions, and a
change of the tools or the effort, in the middle of an epoch or of a session; a summary; earlier
messages of people, word for word; an index of what left; a notice about what was left out; a result that arrived after
a placeholder had been sent.
"""


class EpochReason(StrEnum):
    """The reasons why a request does not extend the prefix of the one before it. The values are stored in manifests."""

    FIRST_REQUEST = "first request"
    OVER_BUDGET = "over budget"
    COMPACTED = "compaction"
    COMPACTION_UNDONE = "compaction undone"
    PROVIDER_COMPACTED = "compacted by the provider"
    EDITED = "edited or branched away"
    FORKED = "forked"
    CLEARED = "cleared"
    REDACTED = "redacted"
    SYSTEM_PROMPT_CHANGED = "system prompt changed"
    TOOLS_CHANGED = "tools changed"
    SETTINGS_CHANGED = "reasoning settings changed"
    NEW_ENCODER = "new encoder version"
    PREVIOUS_REPLACED = "the request before it was replaced"
    LOG_LOST = "messages that were sent are missing from the conversation"
    PARENT_DELETED = "the conversation it was forked from was deleted"
    LEAD_MOVED = "stored system messages keep their place"
    CURSOR_VOID = "the conversation changed after the cursor of the session was set"
    NO_SESSION = "no session"
    LOST_SESSION = "the last reply came without a session"
    UNSURE_SESSION = "an earlier prompt may be in the session"
    PARTIAL_REQUEST = "the provider has earlier messages"
    CLIENT_REWOUND = "rewound by the client"
    CLIENT_CHANGED = "the client changed an earlier message"
    CLIENT_REMOVED = "the client removed earlier messages"
    CLIENT_INSERTED = "the client inserted a message"
    CLIENT_COMPACTED = "compacted by the client"


class LeftOutReason(StrEnum):
    """The reasons why trimming leaves a message out. The values are stored in manifests."""

    TURN_CUT = "its turn was cut away"
    STEP_CUT = "its step was cut away"
    CALL_LEFT_OUT = "its call was left out"
    """The text of its step, or of steps around it, is shown."""
    CUT = "cut away"
    TOO_LONG = "too long to be shown"
    NO_ROOM_FOR_TRIGGER = "no room for a trigger's message"
    SAID_ANEW = "said anew"
    SUMMED_UP = "summed up"
    PROVIDER_COMPACTED = "in the provider's compaction"
    FOREIGN_COMPACTION = "another provider's compaction"


CallForm: TypeAlias = Literal["", "short", "none"]
"""Calls and results are sent as they are; or as the shortest valid pair, without arguments and with the result's id;
or not at all, so that only the text of a reply is left.
"""


class Item(Struct, frozen=True, omit_defaults=True, gc=False, rename={
    "kind": "k", "place": "p", "role": "r", "tokens": "t", "opens": "o", "prefix": "x", "text": "w", "limit": "l",
    "decayed": "d", "bare": "b", "blind": "n", "failed": "f", "signed": "s", "media": "m",
    "only": "y", "inline": "i", "results": "c", "fragment": "g", "hash": "h", "verbatim": "v", "texts": "e",
    "calls": "a", "places": "q", "tools": "u", "definitions": "j", "effort": "z", "features": "$", "instructions": "%",
    "compacts": "#",
}):  # fmt: skip
    """One message or inserted text of a request. `place` is the message's place; 0 if there is none."""

    place: int = 0
    role: Role = "user"
    tokens: int = 0
    kind: ItemKind = "message"
    opens: bool = False
    """True if a person speaks and a turn begins."""
    prefix: str = ""
    text: str = ""
    limit: int = 0
    """Results, and texts of triggers, longer than this are shortened to their head and tail."""
    decayed: bool = False
    """True if results are replaced by a stub that tells how to fetch them."""
    bare: bool = False
    """True if sent without its reasoning."""
    blind: bool = False
    """True if each media part is replaced by a description."""
    failed: bool = False
    """True if the message is incomplete, and its text states that."""
    signed: bool = False
    """True if it contains reasoning that its provider signed."""
    media: bool = False
    """True if it contains images, audio, video or documents, other than text files that `texts` stands for."""
    only: tuple[str, ...] = ()
    """If set, only the results for these call ids are included."""
    inline: bool = False
    """True if its reasoning is joined into the text."""
    results: int = 1
    """Number of tool results, if it has any."""
    fragment: str = ""
    """Id of the fragment that this is a copy of. Blocks of older versions contain several fragments and have no
    id.
    """
    hash: str = ""
    """Hash of the fragment's text; empty if the fragment is withdrawn."""
    verbatim: bool = False
    """True if other software sent the message: it is not escaped or changed."""
    texts: bool = False
    """True if it contains text files, and they are sent as text. `limit` also applies to them."""
    calls: CallForm = ""
    """The form in which its calls or results are sent to save room."""
    places: tuple[int, ...] = ()
    """Places of the messages that an inserted text quotes or names."""
    tools: dict[str, str] = {}
    """Tools that a change adds, replaces or removes, each with the hash of its definition; "-" precedes that of a
    removed one.
    """
    definitions: tuple[JSONObject, ...] = ()
    """The definitions of the tools that a change adds or replaces, as they were sent."""
    effort: str = ""
    """The effort that a change sets."""
    features: tuple[str, ...] = ()
    """The features of the provider that a change needs."""
    compacts: str = ""
    """Set if it contains a provider's own compaction, which stands for everything before it: the feature of the
    provider that the block needs.
    """
    instructions: dict[str, str] = {}
    """The fragments of the instructions that hold after an update, with hashes, if the head has others."""

    @property
    def is_kept_history(self) -> bool:
        """True if it was inserted in place of messages that left: people's words, or the index."""
        return self.kind in ("words", "index")


class FragmentCopy(NamedTuple):
    """The latest copy of a dynamic fragment in an epoch: the hash of its text, and the number of tokens before it."""

    hash: str
    position: int


def find_latest_copies(items: Iterable[Item]) -> dict[str, FragmentCopy]:
    """Return the latest copy of each dynamic fragment among the items of an epoch, without withdrawn ones."""
    found: dict[str, FragmentCopy] = {}
    at = 0
    for item in items:
        if item.kind == "turn":
            pass  # it belongs to its turn, and no later text replaces it
        elif item.fragment and item.hash:
            found[item.fragment] = FragmentCopy(item.hash, at)
        elif item.fragment:
            found.pop(item.fragment, None)
        at += item.tokens
    return found


REMOVED = "-"
"""Precedes the hash of the definition of a tool that was removed."""


class HeadChanges(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The sum of the changes in an epoch. They stand in the conversation, so the head of its requests is unchanged.

    `tools` are the added, replaced and removed tools, with hashes as in `Item.tools`. `instructions` are the fragments
    that hold in place of those in the head, with their hashes.
    """

    tools: dict[str, str] = {}
    effort: str = ""
    features: tuple[str, ...] = ()
    instructions: dict[str, str] = {}

    def with_item(self, item: Item) -> "HeadChanges":
        """Return the changes with one more."""
        return HeadChanges(
            tools={**self.tools, **item.tools},
            effort=item.effort or self.effort,
            features=tuple(dict.fromkeys((*self.features, *item.features))),
            instructions=item.instructions or self.instructions,
        )

    def __bool__(self) -> bool:
        return bool(self.tools or self.effort or self.features or self.instructions)


NO_CHANGES = HeadChanges()
CHANGE_KINDS: tuple[ItemKind, ...] = ("update", "change")


def find_head_changes(items: Iterable[Item]) -> HeadChanges:
    """Return what the changes among the items of an epoch add up to."""
    found = NO_CHANGES
    for item in items:
        if item.kind in CHANGE_KINDS:
            found = found.with_item(item)
    return found


class LedgerRow(Struct, frozen=True, omit_defaults=True, gc=False):
    """A segment of the ledger: its items, and facts about its wire form.

    `drop` is the number of preceding wire messages that it replaced. `ids` are the ids of its calls as they were sent;
    `open` are those that got a placeholder result, with the tool's name. `end` is the role of its last wire message.
    `held`: a session had some of it already, so its wire form is incomplete.
    """

    items: tuple[Item, ...]
    tokens: int = 0
    drop: int = 0
    ids: tuple[str, ...] = ()
    open: dict[str, str] = {}
    end: str = ""
    held: bool = False
    packed: int = 0
    """Number of wire bytes, if they are stored compressed against the row's messages."""
    gone: bool = False
    """True if some of its content was redacted, so its wire form was removed."""


class Channel(NamedTuple):
    """One conversation as one agent, provider, model and directory sees it.

    A run that began beside another turn of its agent has a channel of its own: `agent` then names the run, too.
    """

    conversation: str
    agent: str
    provider: str
    model: str
    directory: str = ""

    @property
    def author(self) -> str:
        """The agent, without a run."""
        return agent_of(self.agent)

    @property
    def audiences(self) -> frozenset[str]:
        """The audiences of messages that this channel gets."""
        return frozenset((self.agent, self.author, f"{self.provider}:{self.model}", str(self)))

    def __str__(self) -> str:
        where = f" in {self.directory}" if self.directory else ""
        return f"{self.agent} on {self.provider}:{self.model}{where}"


class RowRange(NamedTuple):
    """A range of rows of one channel. A fork begins with ranges of its parent's rows."""

    channel: int
    first: int
    last: int


class HeadHashes(Struct, frozen=True, omit_defaults=True):
    """Hashes of what precedes the messages. A change of one of them changes the prefix."""

    static: str = ""
    tools: str = ""
    settings: str = ""
    encoder: str = ""


class ProviderSession(Struct, frozen=True, omit_defaults=True):
    """A provider's own memory of the conversation. `cursor` is the provider's position after everything sent, if it has
    one.
    """

    id: str
    cursor: str = ""


class Container(NamedTuple):
    """A provider's container that the next request names, and the place of the reply that named it. `expires` is a Unix
    time in ms; 0 if it is not known.
    """

    place: int
    id: str
    expires: int = 0


class ChannelState(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state of a channel. It is written whole with every commit, so its size does not depend on the history."""

    requests: int = 0
    rows: int = 0
    epoch: int = 0
    layout: tuple[RowRange, ...] = ()
    tokens: int = 0
    """Tokens of all rows of the epoch, by our count."""
    branch: int = 0
    revision: int = 0
    seen: int = 0
    """The seq up to which the log was read."""
    tip: str = ""
    """Id of the last message that the channel knows: its last reply, or the end of the log when it was read."""
    edge: int = 0
    """The seq after which the context was cleared. Messages up to it are not sent."""
    waiting: tuple[int, ...] = ()
    """Places of messages that are hidden now and may become visible."""
    pending: dict[str, str] = {}
    """Calls that were trimmed before their results arrived, with their tools. The results are sent when they arrive."""
    runs: str = ""
    """The run of the last request, and the caller's running runs. While both are unchanged, hidden messages stay
    hidden.
    """
    going: tuple[str, ...] = ()
    """Runs of this agent that have begun and not ended."""
    produced: tuple[Item, ...] = ()
    """The model's last reply. It is part of the next request; a session has it already."""
    head: HeadHashes = HeadHashes()
    tools: tuple[str, ...] = ()
    """Names of the tools in the order they were sent, because another order is another prefix."""
    tool_hashes: tuple[str, ...] = ()
    """Hashes of their definitions as they were sent, in the same order; "" for one that was not sent."""
    effort: str = ""
    """The effort that the requests of the epoch set beside their messages."""
    changed_tools: dict[str, str] = {}
    """The sum of the changes of tools in the epoch, with hashes as in `Item.tools`."""
    changed_effort: str = ""
    """The effort that the last change in the epoch set."""
    features: tuple[str, ...] = ()
    """The features of the provider that the changes in the epoch need."""
    head_static: dict[str, str] = {}
    """The static fragments in the head, with hashes, where a change of them can be appended."""
    changed_static: dict[str, str] = {}
    """The static fragments that hold after the updates in the epoch, with hashes."""
    head_place: tuple[int, str] = (0, "")
    """The channel and the hash under which the last head is stored; a fork begins with its parent's."""
    chain: str = ""
    """Hash of all rows of the epoch."""
    size: int = 0
    """Bytes of all rows of the epoch."""
    above: int = 0
    """Tokens of the system prompt and the tools, by our count."""
    dynamic: str = ""
    """Set by older versions, which sent all dynamic fragments as one block, if this epoch contains such a block."""
    fragments: dict[str, FragmentCopy] = {}
    """The latest copy of each dynamic fragment in this epoch, by its id."""
    turn_fragments: str = ""
    """The turn whose fragments were sent last, as an executor names it."""
    answered: bool = True
    """True if the last turn has ended."""
    turn: int = 0
    humans: tuple[str, ...] = ()
    lead: tuple[int, ...] | None = None
    """Places of the system messages at the start of the conversation, if they are its instructions, because none are
    given.
    """
    reserve: int = 0
    """Tokens reserved for the answer in this epoch, if the reserve had to shrink."""
    cut: bool = False
    """True if something between the context edge and the first item is left out for lack of room."""
    summary: int = 0
    """The place up to which a summary replaces the messages."""
    session: ProviderSession | None = None
    held: int = 0
    """The seq up to which the session has the log, if a caller set it. No rows are stored for it then."""
    lost: str = ""
    """The reason why there is no session any more."""
    input: int = 0
    """Input tokens of the epoch's last request as the provider counted them; 0 if it reported none."""
    measured: tuple[int, int] = (0, 0)
    """The input of the last observed request that was measured, by our own count and by the provider's."""
    overhead: int = 0
    """Tokens that the provider counts on this channel beyond our count and beyond what calibration explains."""
    replaced: bool = False
    """True if another request was sent instead of the compiled one, so the prefix is not that of the rows."""
    again: bool = False
    """True if the provider paused and must be called again without new input (`pause_turn`)."""
    cache_key: str = ""
    """The key that names the channel to the prompt cache, if it has one. A fork keeps its parent's."""
    reply_id: str = ""
    """The provider's id of the last reply, if the next request is to be compared with it."""
    shortened: bool = False
    """True if the session shortened its own history with the last request, so old content may be missing."""
    container: Container | None = None
    """The container of the last reply that named one."""

    @property
    def observed_factor(self) -> float:
        """The factor from our own count to the provider's, by the last observed request that was measured."""
        counted, real = self.measured
        return (real - self.overhead) / counted if counted else 1.0

    @property
    def changes(self) -> HeadChanges:
        """The changes since the epoch began that stand in the conversation."""
        return HeadChanges(
            tools=self.changed_tools,
            effort=self.changed_effort,
            features=self.features,
            instructions=self.changed_static,
        )

    def with_changes(self, changes: HeadChanges) -> "ChannelState":
        """Return the state with other changes."""
        return replace(
            self,
            changed_tools=changes.tools,
            changed_effort=changes.effort,
            features=changes.features,
            changed_static=changes.instructions,
        )

    @property
    def static_hashes(self) -> dict[str, str]:
        """The hashes of the static fragments that hold after the last request, by their ids, if they are known."""
        return self.changed_static or self.head_static


class StoredRow(Struct, frozen=True, gc=False):
    """A stored row with its wire messages, as bytes joined by commas. `place` is channel * 2^32 + number."""

    place: int
    row: LedgerRow
    chunk: bytes


state_to_json = msgspec.json.Encoder().encode
state_from_json = msgspec.json.Decoder(ChannelState).decode
row_to_json = msgspec.json.Encoder().encode
rows_from_json = msgspec.json.Decoder(list[LedgerRow]).decode


def extend_layout(layout: tuple[RowRange, ...], channel: int, first: int, last: int) -> tuple[RowRange, ...]:
    """Return the layout extended by rows of a channel."""
    if last < first:
        return layout
    if layout and layout[-1].channel == channel and layout[-1].last == first - 1:
        return (*layout[:-1], RowRange(channel, layout[-1].first, last))
    return (*layout, RowRange(channel, first, last))


# ── compression ───────────────────────────────────────────────────────────────────────────────────────────────────────
#
# Each observed request stores little, so it is compressed against text that both sides have: a manifest against a fixed
# sample, the wire form of a row against the stored messages of that row, which contain nearly the same text. The sample
# is part of the stored format and never changes.

PACKED = b"\x01"
SAMPLE = (
    b'"layout":[[1,1,1]],"session":"resp_","fragments":[],"remarks":["The messages could not be decoded ()"],'
    b'"partial":true,"code":400,"status":"error","error":"","gaps":[", "],"inexact":true,"status":"unfinished",'
    b'"status":"unanswered","why":"the client changed an earlier message","why":"the client removed earlier messages",'
    b'"why":"the client inserted a message","why":"compacted by the client","why":"rewound by the client",'
    b'"why":"tools changed","why":"system prompt changed","why":"reasoning settings changed","why":"first request",'
    b'{"request":10,"mode":"observed","epoch":1,"rows":10,"head":"","chain":"","added":1,"new":1,"budget":{"window":200000,'
    b'"system":0,"tools":0,"reserve":0,"margin":0,"limit":null,"used":1,"exact":false,"measured":false,"overhead":0,'
    b'"wanted":0},"shared":1,"shared_bytes":1,"branch":1,"tip":1,"time":17000000,"usage":{"input":1,"output":1,'
    b'"cache_read":1,"cache_write":1,"reasoning":1},"produced":[4294967],"observed":{"marks":{"1":[[1,",\\"cache_control\\":'
    b'{\\"type\\":\\"ephemeral\\"}"]],"2":[[1,",\\"cache_control\\":{\\"type\\":\\"ephemeral\\",\\"ttl\\":\\"1h\\"}"]]},'
    b'"began":17000000,"ended":17000000}}'
)
WINDOW = 1 << 15


def pack_record(record: bytes) -> bytes:
    """Return the stored form of the manifest of an observed request."""
    return PACKED + _deflate(record, SAMPLE)


def unpack_record(stored: bytes) -> bytes:
    """Return a manifest from its stored form, which is not compressed for requests of our own."""
    return _inflate(stored[1:], SAMPLE) if stored[:1] == PACKED else stored


def pack_wire(wire: bytes, messages: bytes) -> bytes:
    """Return the stored form of a row's wire bytes."""
    return PACKED + _deflate(wire, messages[-WINDOW:])


def unpack_wire(stored: bytes, messages: bytes) -> bytes:
    return _inflate(stored[1:], messages[-WINDOW:])


def _deflate(data: bytes, known: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, known)
    return packer.compress(data) + packer.flush()


def _inflate(data: bytes, known: bytes) -> bytes:
    unpacker = zlib.decompressobj(-15, known)
    try:
        return unpacker.decompress(data) + unpacker.flush()
    except zlib.error as error:
        raise ValueError(str(error)) from error


# ── ids of channels ───────────────────────────────────────────────────────────────────────────────────────────────────
# The id is a hash of agent, provider, model and directory. It is the same in every conversation and in every process,
# and does not reveal its inputs.


ID_BYTES = 9  # twelve letters


def channel_id(channel: Channel) -> str:
    """Return the id of a channel."""
    key = encode_canonical([channel.agent, channel.provider, channel.model, channel.directory])
    return urlsafe_b64encode(blake2b(key, digest_size=ID_BYTES).digest()).decode()
