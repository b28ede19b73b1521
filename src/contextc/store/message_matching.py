"""Comparison of sent messages with stored ones, and of histories with stored chains, for all senders.

Clients, frameworks, recorded traffic and imported files repeat messages that the store has, and change them on the way.
Reasoning, metadata and times are therefore never compared, and texts without the white space at their ends. A
`Strictness` states what is compared besides:

- `CLIENT` (`store.sync`): authors, media, and the ids of calls, if it sends calls. A uid decides, if it sends one.
- `OBSERVED` (recorded requests): names and arguments of calls, not their ids, because some clients number calls again.
  Results that the client truncated are the same.
- `IMPORTED` (files of other programs): authors, media, and ids of calls, unless they were generated. Truncated results
  are the same, and so are system prompts that differ in digits, such as a date.
- Frameworks (`align_histories`): everything that a model reads, part by part. Exact, but however the parts are grouped
  into messages.

All comparisons of histories take time proportional to their lengths.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import encode_canonical, hash_blob
from contextc._sequence_comparison import count_common_ends
from contextc.messages import (
    AnyPart,
    Media,
    Message,
    ProviderBlock,
    Text,
    ToolCall,
    ToolResult,
    canonical_content,
    make_chain_id,
)
from contextc.store.message_log import original_uid

# ── two messages ──────────────────────────────────────────────────────────────────────────────────────────────────────


MessageKey: TypeAlias = tuple[Hashable, ...]
GENERATED_ID = re.compile(r"call_(\d+)")
"""Ids of calls that came without one. The numbers start again in each request, so they identify nothing."""
DIGITS = re.compile(r"\d+")


class Strictness(Struct, frozen=True, kw_only=True):
    """The content of two messages that is compared."""

    calls: Literal["sent ids", "contents", "own ids"]
    results: Literal["ids", "versions"] = "ids"
    media: bool = True
    authors: bool = True
    digits: bool = True
    is_redacted_same: bool = False
    """A redacted message is the same as any message of its role."""


CLIENT = Strictness(calls="sent ids")
OBSERVED = Strictness(calls="contents", results="versions", media=False, authors=False, is_redacted_same=True)
IMPORTED = Strictness(calls="own ids", results="versions", digits=False)
IMPORTED_BY_ID = replace(IMPORTED, results="ids")


def is_same(stored: Message, sent: Message, by: Strictness) -> bool:
    """Return True if a message that was sent is a stored one."""
    if stored.role != sent.role or (by.authors and not may_share_author(stored, sent)):
        return False
    if stored.redacted:
        return by.is_redacted_same
    if message_key(stored, by) != message_key(sent, by):
        return False
    if by.calls == "sent ids":
        return not (ids := _call_ids(sent)) or ids == _call_ids(stored)
    return sent.role != "tool" or by.results == "ids" or has_same_results(stored, sent, media=by.media)


def message_key(message: Message, by: Strictness) -> MessageKey:
    """Return what messages that are the same have in common, for an index."""
    calls = () if by.calls == "sent ids" else _call_keys(message, has_own_ids=by.calls == "own ids")
    if message.role == "tool":
        return message.role, "", calls, ()
    text = message.text.strip()
    if not by.digits and message.role == "system":
        text = DIGITS.sub("0", text)
    return message.role, text, calls, tuple(map(_media_key, _media(message))) if by.media else ()


def may_share_author(one: Message, other: Message) -> bool:
    """Return True if two messages may have the same author. A message without an author matches any."""
    return one.author is None or other.author is None or one.author == other.author


def had_content_of(id: bytes, before: bytes, author: str | None, sent: Message) -> bool:
    """Return True if a message whose content is lost was this one, judged by its id: it must not be stored again.

    `before` is the id of the message before it. A message without an author matches any author.
    """
    versions = [replace(sent, author=each) for each in {sent.author, author}]
    return any(make_chain_id(before, canonical_content(version)) == id for version in versions)


def call_content(call: ToolCall) -> tuple[str, str]:
    """Return the name of a call, and its arguments as text."""
    return call.name, call.raw or "" if call.malformed else encode_canonical(call.arguments).decode()


def _call_ids(message: Message) -> list[str]:
    return [call.id for call in message.tool_calls] + [result.call_id for result in message.tool_results]


def _call_keys(message: Message, *, has_own_ids: bool) -> MessageKey:
    calls = [
        call_content(call) if not has_own_ids or GENERATED_ID.fullmatch(call.id) else call.id
        for call in message.tool_calls
    ]
    results = [
        "" if not has_own_ids or GENERATED_ID.fullmatch(result.call_id) else result.call_id
        for result in message.tool_results
    ]
    return *calls, *results


def _media(message: Message) -> list[Media | ProviderBlock]:
    return [part for part in message.parts if isinstance(part, Media | ProviderBlock)]


def _media_key(part: Media | ProviderBlock) -> str:
    if isinstance(part, ProviderBlock):
        return encode_canonical(part.data).decode()
    return hash_blob(part.data) if part.data is not None else part.blob or part.url or part.file_id or ""


# ── results that a client truncated later ─────────────────────────────────────────────────────────────────────────────
# Tool results that a client truncated later: cleared, cut off, or without the middle.
#
# A text is a truncated form of another only if it shows that: it is a note in brackets, or it has the other's text
# with a mark for the missing part. A text that merely differs is the result of another run of the tool.


TRUNCATION_WORDS = r"clear|omit|remov|truncat|elid|elis|prun|compact|trimm|shorten|redact|dropp|not shown|no longer"
TRUNCATION_NOTE = re.compile(rf"\s*[\[(<{{](?=[^\n]*(?:{TRUNCATION_WORDS}))[^\n]*[\])>}}]\s*", re.IGNORECASE)
TRUNCATION_MARK = re.compile(rf"\.\.\.|…|{TRUNCATION_WORDS}|chars|more|too long", re.IGNORECASE)
MAX_NOTE_LENGTH = 200
MIN_COMMON_PREFIX = 100  # characters; an equal prefix of this length is not a coincidence


def has_same_results(one: Message, other: Message, *, media: bool) -> bool:
    """Return True if two messages have the same results, or truncated forms of them. `media` compares media, too."""
    ours, theirs = one.tool_results, other.tool_results
    return len(ours) == len(theirs) and all(
        _is_version(yours, mine, media) or _is_version(mine, yours, media)
        for mine, yours in zip(ours, theirs, strict=True)
    )


def is_truncated(short: str, long: str) -> bool:
    """Return True if a text is a truncated form of another."""
    if _is_truncation_note(short):
        return not _is_truncation_note(long)
    if len(short) >= len(long):
        return False
    head, tail = count_common_ends(short, long)
    rest = short[head : len(short) - tail]
    if not rest:
        return len(short) >= MIN_COMMON_PREFIX
    return head + tail > 0 and len(rest) <= MAX_NOTE_LENGTH and TRUNCATION_MARK.search(rest) is not None


def _is_version(short: ToolResult, long: ToolResult, media: bool) -> bool:
    """Return True if a result is the other one, perhaps truncated or without its media."""
    if media and not all(part in _result_media(long) for part in _result_media(short)):
        return False
    return short.text == long.text or is_truncated(short.text, long.text)


def _is_truncation_note(text: str) -> bool:
    """Return True if a text is only a note that content was removed."""
    return len(text) <= MAX_NOTE_LENGTH and TRUNCATION_NOTE.fullmatch(text) is not None


def _result_media(result: ToolResult) -> list[Media]:
    return [] if isinstance(result.content, str) else [part for part in result.content if isinstance(part, Media)]


# ── a client's history ────────────────────────────────────────────────────────────────────────────────────────────────
# Stateless clients send their whole history with every request. It may lack entries that they never received (system
# messages, tool calls, a reply whose connection broke). It is therefore matched as a subsequence of the stored chain.
# The unmatched end is new.
#
# User messages are never skipped. If one is missing or has other content, even under the same uid, the client edited
# its history. The new tail then goes to a new branch after the last common message. Only a client that keeps its last
# messages lacks the first ones: its history begins in the middle of the chain.


class HistoryDifference(NamedTuple):
    """The result of a comparison: the last `new_count` messages of the client are new and follow message `after`.

    `rewrites` is True if other messages follow there in the stored chain. `matched` are the indexes of the stored
    messages that the client has, and `compared` is the number of messages that decided; None if all of them did.
    """

    new_count: int
    after: int
    rewrites: bool
    matched: list[int]
    compared: int | None


def compare_last_messages(stored: Sequence[Message], sent: Sequence[Message]) -> HistoryDifference | None:
    """Compare the history of a client that keeps its last messages only: it begins anywhere in the chain.

    None if it has no reply of the chain. Without one, the same texts may be those of a new conversation.
    """
    theirs = [message for message in sent if message.role == "user"]
    authors = {message.author for message in theirs}
    ours = [
        index
        for index, message in enumerate(stored)
        if message.role == "user" and (message.author is None or message.author in authors or None in authors)
    ]
    keys = [(message.uid, message.author, message_key(message, CLIENT)) for message in theirs]
    first, size = find_overlap(len(ours), keys, lambda at, index: _is_sent_again(stored, ours[at], theirs[index]))
    first = first if size else len(ours)
    starts_with_user = bool(size) and sent[0].role == "user"
    found = compare_histories(stored, sent, ours[first] if starts_with_user else ours[first - 1] + 1 if first else 0)
    return found if any(stored[index].role == "assistant" for index in found.matched) else None


def find_overlap(length: int, keys: Sequence[Hashable], is_same: Callable[[int, int], bool]) -> tuple[int, int]:
    """Return the last place in a chain where most of the first messages of a history are, and their number.

    `length` is that of the chain, and `keys` are those of the history. `is_same` compares the messages at an index of
    each. This is the algorithm of Knuth, Morris and Pratt, which takes linear time.
    """
    borders, size = [0] * len(keys), 0
    for index in range(1, len(keys)):
        while size and keys[index] != keys[size]:
            size = borders[size - 1]
        size += keys[index] == keys[size]
        borders[index] = size
    start, most, size = 0, 0, 0
    for at in range(length if keys else 0):
        size = borders[-1] if size == len(keys) else size
        while size and not is_same(at, size):
            size = borders[size - 1]
        size += is_same(at, size)
        if size >= max(most, 1):
            start, most = at + 1 - size, size
    return start, most


def compare_histories(stored: Sequence[Message], sent: Sequence[Message], start: int = 0) -> HistoryDifference:
    """Compare a client's history with a chain, from the stored message at an index on."""
    matched: list[int] = []
    cursor, compared = start, None
    for message in sent:
        for index in range(cursor, len(stored)):
            if _is_sent_again(stored, index, message):
                matched.append(index)
                break
            if stored[index].role == "user" and may_share_author(stored[index], message):
                compared = index + 1
                break
        if not matched or matched[-1] < cursor:
            break
        cursor = matched[-1] + 1
    if len(matched) == len(sent):
        return HistoryDifference(0, len(stored), False, matched, compared)
    first = sent[len(matched)]
    rewrites = any(was_omitted(message, first) for message in stored[cursor:])
    after = cursor if rewrites else len(stored)
    return HistoryDifference(len(sent) - len(matched), after, rewrites, matched, compared)


def may_begin(first: Message, sent: Message) -> bool:
    """Return True if a chain that goes on with a message may match a history that goes on with another one."""
    is_other = first.role == "user" and not first.redacted and may_share_author(first, sent)
    return not is_other or _is_sent(first, sent)


def was_omitted(passed: Message, first_new: Message) -> bool:
    """Return True if the client must have received `passed`, so that it was omitted on purpose."""
    if passed.role == "user":
        return may_share_author(passed, first_new)
    return passed.role == "assistant" and first_new.role == "assistant"


def _is_sent_again(stored: Sequence[Message], index: int, theirs: Message) -> bool:
    ours = stored[index]
    if _is_sent(ours, theirs):
        return True
    if not ours.redacted or ours.role != theirs.role:
        return False
    before = bytes.fromhex(stored[index - 1].id) if index else None
    return before is None or had_content_of(bytes.fromhex(ours.id), before, ours.author, theirs)


def _is_sent(ours: Message, theirs: Message) -> bool:
    if not theirs.uid:
        return is_same(ours, theirs, CLIENT)
    if theirs.uid not in (ours.uid, original_uid(ours.uid)):
        return False
    return ours.role != "user" or ours.redacted or message_key(ours, CLIENT)[1:] == message_key(theirs, CLIENT)[1:]


# ── a framework's history ─────────────────────────────────────────────────────────────────────────────────────────────
# Frameworks keep a list of messages and send all of it. They leave reasoning and metadata out or rewrite them, and
# group parts as they like: one message with two results equals two messages with one each.


PartKey: TypeAlias = tuple[str, ...]


class AlignedBlock(NamedTuple):
    """Equal content: the stored messages `stored[start:end]` and the messages `given[given_start:given_end]`."""

    start: int
    end: int
    given_start: int
    given_end: int


class Alignment(NamedTuple):
    """The common beginning of both histories. `stored` and `given` are the numbers of messages in it.

    `compared` is the number of stored messages that decided.
    """

    blocks: list[AlignedBlock]
    stored: int
    given: int
    compared: int


def align_histories(stored: Sequence[Message], given: Sequence[Message]) -> Alignment:
    """Return the common beginning. A redacted message equals any message of its role."""
    blocks: list[AlignedBlock] = []
    at = index = compared = 0
    while at < len(stored) and index < len(given):
        is_equal, block = _next_block(stored, at, given, index)
        compared = block.end
        if not is_equal:
            break
        blocks.append(block)
        at, index = block.end, block.given_end
    while at < len(stored) and not stored[at].redacted and not list_part_keys(stored[at]):
        at += 1  # an empty reply, which frameworks do not keep
    return Alignment(blocks, at, index, max(at, compared))


def align_last_messages(stored: Sequence[Message], given: Sequence[Message]) -> tuple[int, Alignment] | None:
    """Align the history of a framework that keeps its last messages only. Return the index where it begins.

    None if it has no reply of the chain. Without one, the same texts may be those of a new conversation.
    """
    ours = [
        (index, message.role, None if message.redacted else key)
        for index, message in enumerate(stored)
        for key in ([()] if message.redacted else list_part_keys(message))
    ]
    theirs = [(message.role, key) for message in given for key in list_part_keys(message)]

    def is_same_part(at: int, index: int) -> bool:
        _, role, key = ours[at]
        return role == theirs[index][0] and key in (None, theirs[index][1])

    at, _ = find_overlap(len(ours), theirs, is_same_part)
    start = ours[at][0] if ours else 0
    found = align_histories(stored[start:], given)
    has_reply = any(message.role == "assistant" for message in stored[start : start + found.stored])
    return (start, found) if has_reply else None


def may_match_better(own: Alignment, shared: int, given: Sequence[Message], first: Message | None) -> bool:
    """Return True if another chain may match more of a history than one that was aligned with it.

    It has the first `shared` messages of that one, and then goes on with `first`; None if it ends.
    """
    if shared > own.stored:
        return shared < own.compared
    if any(block.start < shared < block.end for block in own.blocks):
        return True
    number = max([block.given_end for block in own.blocks if block.end <= shared], default=0)
    if first is None:
        return number == own.given
    if first.redacted or first.status != "sent" or not (ours := list_part_keys(first)):
        return True
    return number < len(given) and (not (theirs := list_part_keys(given[number])) or ours[0] == theirs[0])


def _next_block(stored: Sequence[Message], at: int, given: Sequence[Message], index: int) -> tuple[bool, AlignedBlock]:
    start, given_start = at, index
    if stored[at].redacted:
        return stored[at].role == given[index].role, AlignedBlock(at, at + 1, index, index + 1)
    ours, theirs = list_part_keys(stored[at]), list_part_keys(given[index])
    at, index, equal = at + 1, index + 1, 0
    while True:
        end = min(len(ours), len(theirs))
        is_equal, equal = ours[equal:end] == theirs[equal:end], end
        if is_equal and len(ours) < len(theirs) and at < len(stored) and not stored[at].redacted:
            ours += list_part_keys(stored[at])
            at += 1
        elif is_equal and len(theirs) < len(ours) and index < len(given):
            theirs += list_part_keys(given[index])
            index += 1
        else:
            return is_equal and len(ours) == len(theirs), AlignedBlock(start, at, given_start, index)


def list_part_keys(message: Message) -> list[PartKey]:
    """Return what is compared of a message: one key for each part that a model reads."""
    return [key for part in message.parts if (key := get_part_key(message.role, part))]


def get_part_key(role: str, part: AnyPart) -> PartKey:
    """Return what is compared of a part; an empty key if no model reads it."""
    if isinstance(part, Text):
        return ("text", role, part.text) if part.text.strip() else ()
    if isinstance(part, ToolCall):
        return "call", part.id, *call_content(part)
    if isinstance(part, ToolResult):
        return "result", part.call_id, part.text, *map(_media_key, _result_media(part))
    if isinstance(part, Media):
        return "media", role, _media_key(part)
    return ("block", role, _media_key(part)) if isinstance(part, ProviderBlock) else ()
