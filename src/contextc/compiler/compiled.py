"""A compiled request: its parameters, its bytes, and its manifest.

Sealed content is shared with other requests of the channel as bytes. Parameters are decoded from the bytes, so that a
caller may change them: no other request has the same objects. Both are built on first use.
"""

import os
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from contextc._json import JSONObject, decode, encode
from contextc.compiler.draft import CacheMark, Draft
from contextc.compiler.ledger.channel_loader import ChannelSnapshot
from contextc.compiler.ledger.channel_row_cache import join_messages, split_chunk
from contextc.compiler.ledger.row_encoding import AssembledRows, NewRow
from contextc.compiler.manifest import Manifest, RequestRecord
from contextc.compiler.options import Budget
from contextc.formats.base import Formatter, Request
from contextc.messages import Message, Usage
from contextc.models.tokens import MAX_FACTOR, MIN_FACTOR
from contextc.providers import Provider
from contextc.store.ledger_schema import Channel, ChannelState
from contextc.tools.spec import NativeTool, Tool

RequestMode: TypeAlias = Literal["full", "resume"]
OBSERVED = "observed"
"""The mode of a request that other software sent."""
MESSAGES_PLACEHOLDER: JSONObject = {"role": "system", "here": "the messages"}  # placeholder for the messages
SESSION_PLACEHOLDER = "<the session>"  # placeholder for the session id
MAX_CACHED_CHUNKS = 8
_MESSAGES_BYTES, _SESSION_BYTES = encode(MESSAGES_PLACEHOLDER), encode(SESSION_PLACEHOLDER)


class HeadParts(NamedTuple):
    """Everything of a request except its messages, with placeholders for the messages and for the session id."""

    key: str
    body: JSONObject
    settings: JSONObject
    before: bytes
    after: bytes
    hash: bytes

    @classmethod
    def from_body(cls, key: str, body: JSONObject, settings: JSONObject) -> "HeadParts":
        written = encode(body)
        before, _, after = written.partition(_MESSAGES_BYTES)
        return cls(key, body, settings, before, after, blake2b(written, digest_size=16).digest())

    def bytes(self, chunks: list[bytes], session: str | None) -> bytes:
        """Return the request as bytes, built from chunks of its messages. Empty chunks are skipped."""
        before, after = self.before, self.after
        if session and _SESSION_BYTES in before + after:
            before, after = (each.replace(_SESSION_BYTES, encode(session)) for each in (before, after))
        chunks = [chunk for chunk in chunks if chunk]
        if not chunks:  # the system prompt is the only message
            return before.removesuffix(b",") + after
        parts = [b","] * (2 * len(chunks) + 1)
        parts[0], parts[-1], parts[1::2] = before, after, chunks
        return b"".join(parts)


class Cost(NamedTuple):
    """The loss compared with the previous request: tokens in a prompt cache, and signed reasoning."""

    cached_tokens_lost: int
    cached_tokens_kept: int
    signed_reasoning_lost: int
    dollars: float | None


class RequestAccount(NamedTuple):
    """The record, the manifest and the cost of a compiled request."""

    record: RequestRecord
    manifest: Manifest
    cost: Cost


class Compiled:
    """A request for one model. `is_new` is False if there is nothing to send."""

    def __init__(
        self,
        *,
        channel: Channel,
        provider: Provider,
        formatter: Formatter,
        draft: Draft,
        snapshot: ChannelSnapshot,
        state: ChannelState,
        rows: AssembledRows,
        head: HeadParts,
        build_account: Callable[[], RequestAccount],
        build_session_head: Callable[[], HeadParts],
        session_id: str | None,
        revert_to: str | None,
        dry_run: bool,
        is_new: bool,
        tools: tuple[Tool | NativeTool, ...],
    ) -> None:
        self.channel, self.provider, self.formatter = channel, provider, formatter
        self.mode: RequestMode = "resume" if draft.resume else "full"
        self.session_id, self.revert_to = session_id, revert_to
        self.is_new, self.dry_run = is_new, dry_run
        self.draft, self.snapshot, self.state, self.rows, self.head = draft, snapshot, state, rows, head
        self.tools = tools
        self.new_token_counts: dict[bytes, int] = {}
        self.token = os.urandom(8).hex()
        """Random token that identifies the attempt to send it."""
        self._build_account, self._build_session_head = build_account, build_session_head
        self._account: RequestAccount | None = None
        self.replaced = False
        self._body: bytes | None = None
        self._params: JSONObject | None = None
        self._decoded: Request | None = None

    @property
    def cursor(self) -> str:
        """The provider's position in the session that this request resumes."""
        session = self.snapshot.state.session
        return session.cursor if self.session_id and session is not None else ""

    @property
    def budget(self) -> Budget:
        """The token budget of the request, and what of it is used."""
        return self.draft.budget

    @property
    def account(self) -> RequestAccount:
        """The record, the manifest and the cost, built on first use."""
        if self._account is None:
            self._account = self._build_account()
        return self._account

    @property
    def record(self) -> RequestRecord:
        """The part of the manifest that is stored with the request."""
        return self.account.record

    @property
    def manifest(self) -> Manifest:
        """The account of the request: each message, whether it is included, and why not."""
        return self.account.manifest

    @property
    def cost(self) -> Cost:
        """The loss compared with the previous request."""
        return self.account.cost

    @property
    def request(self) -> int:
        """Its number on the channel."""
        return self.snapshot.state.requests + 1

    @property
    def estimated_input(self) -> int:
        """Tokens of the whole input by our own count. The provider's figure calibrates it."""
        draft = self.draft
        messages = self.state.tokens if draft.kept is None else sum([item.tokens for item in draft.kept])
        return self.state.above + messages

    def measured_input(self, usage: Usage | None) -> int:
        """Return the input tokens that the provider counted; 0 if it reported none.

        A figure below our estimate also counts as none if the provider may exclude cached tokens.
        """
        if usage is None or (usage.input < self.estimated_input and not self.formatter.input_includes_cached):
            return 0
        return usage.input

    def overhead_after(self, usage: Usage | None) -> int:
        """Return the channel's overhead after this request: what the provider counted beyond what calibration explains.

        The overhead stays unchanged while calibration explains the difference.
        """
        before, real, counted = self.state.overhead, self.measured_input(usage), self.estimated_input
        if not real or self.replaced or self.provider.runs_tools:  # its figure includes its own prompt
            return before
        if counted * MIN_FACTOR <= real - before <= counted * MAX_FACTOR:
            return before
        return max(0, real - round(counted * self.draft.factor))

    @property
    def session_head(self) -> JSONObject:
        """System prompt, tools and settings with which the session began, also for a request that resumes it."""
        head = self._build_session_head()
        return deepcopy({name: value for name, value in head.body.items() if name != head.key})

    @property
    def params(self) -> JSONObject:
        """The request as plain data, as the API and most SDKs accept it; see `arguments`.

        A change of it affects neither `body` nor other requests. To send and store the changed request, use `replace`.
        """
        if self._params is None:
            self._params = self.copy()
        return self._params

    @property
    def arguments(self) -> JSONObject:
        """Keyword arguments for the vendor's SDK call: `params`, unless that SDK uses other names (google-genai)."""
        return self.formatter.sdk_arguments(self.params, self.provider.model_id)

    @property
    def body(self) -> bytes:
        """The request as JSON bytes."""
        if self._body is None:
            self._body = self.head.bytes(self._chunks(), self.session_id)
        return self._body

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of the request in contextc's types, as they are sent: trimmed, and with inserted texts.

        They are decoded from the request, so they have its roles, call ids and texts, and no position in the store. The
        system prompt is not one of them.
        """
        return self._decode().messages

    @property
    def system_prompt(self) -> str:
        """The system prompt of the request, as it is sent; "" if it has none."""
        found = self._decode().system
        return found.text if found is not None else ""

    def _decode(self) -> Request:
        if self._decoded is None:
            self._decoded = self.formatter.decode_request(self.copy())
        return self._decoded

    def replace(self, params: JSONObject) -> None:
        """Send `params` instead of the compiled request. They are stored, and the next request begins an epoch."""
        self._params, self._body, self.replaced = params, encode(params), True
        self._decoded = None

    def copy(self) -> JSONObject:
        """Return the request that is sent as plain data of its own, whatever was changed in `params`."""
        return decode(self.body)

    def _messages(self) -> list[JSONObject]:
        new, order = self.rows.new_rows, self.rows.order
        if order is not None:
            whole: list[JSONObject] = []
            for each in order:
                row = new[each] if isinstance(each, int) else each
                if row.row.drop:
                    del whole[-row.row.drop :]
                whole += row.messages if isinstance(row, NewRow) else split_chunk(row.chunk)
            return with_breakpoints(self.formatter, self.draft.marks, whole, 0)
        before = [] if self.draft.resume else self.snapshot.cached.list_messages()
        drop = 0
        added: list[JSONObject] = []
        for row in new:
            if row.row.drop > len(added):
                drop += row.row.drop - len(added)
                added = []
            elif row.row.drop:
                added = added[: -row.row.drop]
            added += row.messages
        if drop:
            before = before[:-drop]
        return with_breakpoints(self.formatter, self.draft.marks, before + added, len(before))

    def _chunks(self) -> list[bytes]:
        new, order, marks = self.rows.new_rows, self.rows.order, self.draft.marks
        if any(row.row.drop for row in new):  # rows that replace preceding wire messages
            return [join_messages(self._messages())]
        if order is not None:
            chunks = [new[each].chunk if isinstance(each, int) else each.chunk for each in order]
        else:
            chunks = [] if self.draft.resume else self.snapshot.cached.join_chunks()
            if "previous" in marks:
                self._mark_last(chunks)
            chunks += [row.chunk for row in new]
        if "end" in marks:
            self._mark_last(chunks)
        return chunks

    def _mark_last(self, chunks: list[bytes]) -> None:
        index = next((index for index in range(len(chunks) - 1, -1, -1) if chunks[index]), None)
        if index is not None:
            chunks[index] = mark_chunk(self.formatter, chunks[index])


@lru_cache(MAX_CACHED_CHUNKS)  # the last chunk of a request is marked in the next one too
def mark_chunk(formatter: Formatter, chunk: bytes) -> bytes:
    messages = split_chunk(chunk)
    last = formatter.with_cache_breakpoint(messages[-1])
    return chunk if last is None else join_messages([*messages[:-1], last])


def with_breakpoints(
    formatter: Formatter, marks: tuple[CacheMark, ...], messages: list[JSONObject], before: int
) -> list[JSONObject]:
    """Return the messages with cache breakpoints. The first `before` of them were in the previous request."""
    at = ([before - 1] if "previous" in marks and before else []) + (
        [len(messages) - 1] if "end" in marks and messages else []
    )
    for index in at:
        if (marked := formatter.with_cache_breakpoint(messages[index])) is not None:
            messages[index] = marked
    return messages
