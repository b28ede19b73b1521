"""Whether a message is one that is stored, and how much of a history is: one comparison for all that send again.

Clients, frameworks, recorded traffic and imported files repeat messages that the store has, and change them on the way.
Reasoning, metadata and times are therefore never compared, and texts without the white space at their ends. A
`Strictness` states what is compared besides:

- `CLIENT` (`store.sync`): authors, media, and the ids of calls, if it sends calls. A uid decides, if it sends one.
- `OBSERVED` (recorded requests): names and arguments of calls, not their ids, because some clients number calls anew.
  Results that the client truncated are the same.
- `IMPORTED` (files of other programs): authors, media, and ids of calls, unless they were generated. Truncated results
  are the same, and so are system prompts that differ in digits, such as a date.
- Frameworks (`align_histories`): everything that a model reads, part by part. Exact, but however the parts are grouped
  into messages.

All comparisons of histories take time proportional to their lengths.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from contextc._common_prefix import count_common_prefix
from contextc._json import encode_canonical, hash_blob
from contextc.messages import (
    Media,
    Message,
    ProviderBlock,
    ToolCall,
    ToolResult,
    canonical_content,
    make_chain_id,
)

# ── two messages ──────────────────────────────────────────────────────────────────────────────────────────────────────


MessageKey: TypeAlias = tuple[Hashable, ...]
GENERATED_ID = re.compile(r"call_(\d+)")
"""Ids of calls that came without one. The numbers start again in each request, so they identify nothing."""
DIGITS = re.compile(r"\d+")


class Strictness(Struct, frozen=True, kw_only=True):
    """What of two messages is compared. The description of this module explains each."""

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
    head = count_common_prefix(short, long)
    tail = count_common_prefix(short[head:][::-1], long[head:][::-1])
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
    return [part for part in result.content if isinstance(part, Media)] if isinstance(result.content, tuple) else []


# ── two histories ─────────────────────────────────────────────────────────────────────────────────────────────────────


def match_in_order(
    stored: Sequence[Message],
    sent: Sequence[Message],
    is_same: Callable[[int, Message], bool],
    may_skip: Callable[[int, Message], bool],
    start: int = 0,
) -> list[int]:
    """Return the indexes of the stored messages, from `start` on, that are the first ones that were sent.

    `is_same` compares the stored message at an index with a sent one. `may_skip` states whether the sender may lack it.
    """
    found: list[int] = []
    for message in sent:
        while start < len(stored) and not is_same(start, message):
            if not may_skip(start, message):
                return found
            start += 1
        if start == len(stored):
            return found
        found.append(start)
        start += 1
    return found
