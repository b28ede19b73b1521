"""Import of logged exchanges: each is recorded like an observed request, many of them in one transaction.

The log's own id of a conversation decides which one it is. Without one, it is found as for an observed request: by the
ids of the client, or by content. A request that continues a stored response (`previous_response_id`) waits until that
response is recorded, and a request whose reply is logged apart waits for it. An exchange that was recorded before is
recognised. Content that is left out is reported once, with its first positions.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, decode_json, encode
from contextc.compiler.manifest import RequestRecord
from contextc.compiler.past_requests import load_records
from contextc.errors import ContextcError, ConversationExists, InvalidInput, StoreCorrupt, StoreError
from contextc.interchange.found_conversation import DEFAULT_NAME, parse_time, to_name
from contextc.messages import Message, Usage
from contextc.observation.client_ids import ClientIds
from contextc.observation.conversation_finder import find_exchange, make_key
from contextc.observation.exchange_parser import (
    ElementCache,
    ObservedInput,
    ObservedReply,
    as_bytes,
    parse_input,
    parse_reply,
    parse_special_reply,
)
from contextc.observation.observed_request import NewNames, ObservedRequest, RecordOptions
from contextc.observation.reply_decoding import (
    DECODE_ERRORS,
    FormatDetector,
    decode_logged_reply,
    is_reply,
    parse_events,
)
from contextc.observation.write_observed import ExchangeRecording, record_exchanges
from contextc.store import Store
from contextc.store.conversation_list import IMPORTED
from contextc.store.ledger_schema import Channel
from contextc.store.raw_replies import pack_raw_reply
from contextc.store.transaction_engine import Transaction

# ── entries ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Log entries: a request to a provider, and its reply, in the envelope of any logging tool.
#
# Envelopes differ: both bodies side by side, HTTP messages, a batch and its results, the reply inside the request.
# They are recognised by their content, never by field names alone. A reply in an unknown format is noted. Calls that
# are not chats, such as embeddings, are left out.


REQUEST_FIELDS = ("request", "req", "body", "params", "kwargs", "payload", "json", "data", "input")
REPLY_ONLY_FIELDS = ("response", "resp", "reply", "completion", "output", "answer")
"""Field names of replies only: a text in them is the text of a model."""
REPLY_FIELDS = (*REPLY_ONLY_FIELDS, "result", "body", "message", "json", "data")
TIME_FIELDS = ("timestamp", "time", "ts", "created_at", "createdAt", "date", "start_time", "startTime", "request_time")
END_FIELDS = ("end_time", "endTime", "ended_at", "endedAt", "completed_at", "completedAt", "response_time")
DURATION_FIELDS = ("duration_ms", "durationMs", "latency_ms", "latencyMs", "elapsed_ms")
CONVERSATION_FIELDS = ("conversation_id", "conversationId", "session_id", "sessionId", "thread_id", "chat_id")
ADDRESS_FIELDS = ("url", "path", "endpoint")
NON_CHAT_ADDRESS = re.compile(
    r"[/:](batch)?(embed|moderation|rerank|count_?tokens|tokenize|audio/|images/)", re.IGNORECASE
)
EMBEDDING_FIELDS = ("embedding", "embeddings")
UNKNOWN_REPLY = "a reply in an unknown format"
FIRST_ERROR_STATUS = 400
MAX_DEPTH = 4


class StoredRequest(Struct, frozen=True, kw_only=True):
    """A request in the store that a file was exported from."""

    conversation: str
    agent: str
    provider: str
    model: str
    request: int
    format: str = ""
    inexact: bool = False


class LoggedExchange(Struct, frozen=True, kw_only=True):
    """A request and its reply, as far as they were logged. `id` connects the two if they are in different entries.

    `text` is the body as it was sent, if it was logged as text. `conversation` is the logger's own conversation id.
    `failed` is True for an error reply, `is_chat` for a chat request. `error` is the error reply, `status` the HTTP
    status. `answers` is a reply that is decoded already. Times are in Unix milliseconds; `first_chunk` is when the
    first part of the reply arrived. `usage` is what the logger counted, if the reply does not state it. `inexact`:
    the body was put together from other facts. `raw` is the reply as it was sent. `stored_as` is the request in the
    store it was exported from. `note` is a remark for the user.
    """

    body: JSONObject | None = None
    text: str = ""
    reply: JSON = None
    id: str = ""
    conversation: str = ""
    address: str = ""
    time: int = 0
    ended: int = 0
    first_chunk: int | None = None
    status: int = 0
    failed: bool = False
    error: JSON = None
    headers: dict[str, str] = {}
    format: str = ""
    model: str = ""
    provider: str = ""
    usage: Usage | None = None
    answers: tuple[Message, ...] = ()
    inexact: bool = False
    raw: bytes = b""
    stored_as: StoredRequest | None = None
    is_chat: bool = True
    note: str = ""

    @property
    def is_answered(self) -> bool:
        """True if the log has an answer, and not an error."""
        return not self.failed and (self.reply is not None or bool(self.answers))


class _FoundReply(Struct, frozen=True):
    """A reply, its HTTP status (0 if unknown), and whether its format is unknown."""

    value: JSON = None
    status: int = 0
    is_unknown: bool = False


def parse_exchange(value: JSON) -> LoggedExchange | None:
    """Return the exchange in a value of a log; None if it has none."""
    if not isinstance(value, dict):
        return None
    entry = cast(JSONObject, value)
    found = _find_request(entry)
    body, address, text = found.body, found.address, found.text
    given = entry
    if body is entry:
        given = {name: entry[name] for name in (*REPLY_ONLY_FIELDS, "result") if name in entry}
        body = {
            name: each
            for name, each in entry.items()
            if name not in (*given, *TIME_FIELDS, *END_FIELDS, *DURATION_FIELDS, *CONVERSATION_FIELDS, *ADDRESS_FIELDS)
        }
    reply = _find_reply(given)
    if body is None and not (isinstance(entry.get("custom_id"), str) and (reply.value is not None or reply.status)):
        return None
    if body is not None and "model" not in body and isinstance(entry.get("model"), str):
        body, text = {**body, "model": entry["model"]}, ""
    answer: JSON = reply.value
    if reply.status < FIRST_ERROR_STATUS <= _find_status(given) and (reply.is_unknown or answer is None):
        reply = _FoundReply(answer, _find_status(given), reply.is_unknown)  # the entry has the status of its reply
    failed = reply.status >= FIRST_ERROR_STATUS or _is_error(as_object(answer))
    is_strange = reply.is_unknown and not as_object(answer)  # an object may be an empty reply
    time = next((found for name in TIME_FIELDS if (found := parse_time(entry.get(name)))), 0) or _reply_time(answer)
    return LoggedExchange(
        body=body,
        text=text,
        reply=None if failed or is_strange else answer,
        id=str(entry.get("custom_id") or ""),
        conversation=_conversation_id(entry),
        address=address,
        time=time,
        ended=_end_time(entry, time),
        status=reply.status if reply.status != FIRST_ERROR_STATUS or _states_status(given) else 0,
        failed=failed,
        error=answer if failed else None,
        is_chat=not NON_CHAT_ADDRESS.search(address.partition("?")[0]) and not _is_embedding(answer),
        note=UNKNOWN_REPLY if is_strange and not failed else "",
    )


def is_request_body(value: JSON) -> bool:
    """Return True if this is the body of a request to a model."""
    if not isinstance(value, dict):
        return False
    body = cast(JSONObject, value)
    if isinstance(body.get("messages"), list):
        return bool(body["messages"]) and not any(map(_is_ui_message, as_objects(body["messages"])))
    if isinstance(body.get("contents"), list):
        return True
    return isinstance(body.get("input"), list | str) and ("model" in body or "instructions" in body)


class _FoundRequest(NamedTuple):
    """The body of a request; as text if it was logged as text."""

    body: JSONObject | None
    address: str
    text: str = ""


def _find_request(entry: JSONObject, depth: int = 0) -> _FoundRequest:
    """Return the request in an envelope."""
    address = next((str(entry[name]) for name in ADDRESS_FIELDS if entry.get(name)), "")
    if is_request_body(entry):
        return _FoundRequest(entry, address)
    for name in REQUEST_FIELDS:
        given = entry.get(name)
        inner = _decoded_value(given)
        if isinstance(inner, dict) and depth < MAX_DEPTH:
            found = _find_request(cast(JSONObject, inner), depth + 1)
            if found.body is not None:
                text = given if isinstance(given, str) and found.body is inner else found.text
                return _FoundRequest(found.body, found.address or address, text)
    return _FoundRequest(None, address)


def _find_reply(entry: JSONObject, inside: bool = False) -> _FoundReply:
    """Return the reply in an envelope, or in a nested envelope."""
    strange = _FoundReply()
    for name in REPLY_FIELDS:
        found = _reply_in_field(name, entry[name], inside) if name in entry else _FoundReply()
        if found.is_unknown and strange.value is None:
            strange = found
        elif not found.is_unknown and (found.value is not None or found.status):
            return found
    if strange.value is not None:
        return strange
    return _FoundReply(None, FIRST_ERROR_STATUS if isinstance(entry.get("error"), dict | str) and entry["error"] else 0)


def _reply_in_field(name: str, given: JSON, inside: bool) -> _FoundReply:
    """Return the reply in a field; an empty one if the field holds a request or another value."""
    inner = _decoded_value(given)
    if inner in (None, "", [], {}) or (isinstance(inner, dict) and is_request_body(cast(JSONObject, inner))):
        return _FoundReply()
    if isinstance(inner, dict):
        found = _reply_in_object(cast(JSONObject, inner))
    elif isinstance(inner, list):
        found = _FoundReply(
            cast(JSON, inner), is_unknown=name not in REPLY_ONLY_FIELDS and not as_objects(cast(JSON, inner))
        )
    else:
        is_stream = isinstance(inner, str) and parse_events(inner) != ([], 0)
        found = _FoundReply(
            inner, is_unknown=not is_stream and not (isinstance(inner, str) and name in REPLY_ONLY_FIELDS)
        )
    if found.is_unknown and isinstance(given, str) and name in REPLY_ONLY_FIELDS:
        return _FoundReply(given)  # a text that happens to be JSON
    is_named = name in (*REPLY_ONLY_FIELDS, "result") or (inside and name == "body")
    return found if is_named or not found.is_unknown else _FoundReply()


def _reply_in_object(held: JSONObject) -> _FoundReply:
    status = _find_status(held)
    if held.get("type") in ("errored", "canceled", "expired"):  # of a batch
        return _FoundReply(None, FIRST_ERROR_STATUS)
    if is_reply(held) or _is_error(held):
        return _FoundReply(held, status)
    further = _find_reply(held, inside=True)
    if further.value is None and not further.status and not status:
        return _FoundReply(held, is_unknown=True)
    return _FoundReply(further.value, status or further.status, further.is_unknown)


def _find_status(entry: JSONObject) -> int:
    found = entry.get("status_code", entry.get("status", entry.get("statusCode")))
    return found if isinstance(found, int) else 0


def _states_status(entry: JSONObject) -> bool:
    return bool(_find_status(as_object(entry.get("response"))) or _find_status(entry))


def _is_error(value: JSONObject) -> bool:
    return bool(value.get("error")) and not is_reply(value)


def _is_embedding(reply: JSON) -> bool:
    first = next(iter(as_objects(reply)), as_object(reply))
    return any(name in first for name in EMBEDDING_FIELDS)


def _is_ui_message(message: JSONObject) -> bool:
    """Return True if this is a UI message, which no provider accepts."""
    return isinstance(message.get("parts"), list) and not message.get("content")


def _decoded_value(value: JSON) -> JSON:
    """Return the value; if it is a text with JSON, the decoded one."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return decode_json(value.encode())
    except ValueError:
        return value


def _conversation_id(entry: JSONObject) -> str:
    holders = [entry, as_object(entry.get("metadata")), as_object(entry.get("request"))]
    found = (holder.get(name) for holder in holders for name in CONVERSATION_FIELDS)
    return next((each for each in found if isinstance(each, str) and each), "")


def _end_time(entry: JSONObject, began: int) -> int:
    """Return the time at which the reply ended; 0 if it is not known."""
    ended = next((found for name in END_FIELDS if (found := parse_time(entry.get(name)))), 0)
    took = next((each for name in DURATION_FIELDS if isinstance(each := entry.get(name), int | float)), 0)
    return ended if ended >= began else began + int(took) if began and took > 0 else 0


def _reply_time(reply: JSON) -> int:
    """Return the creation time that a reply states."""
    held = as_object(reply)
    return parse_time(held.get("created")) or parse_time(held.get("created_at"))


# ── recording ─────────────────────────────────────────────────────────────────────────────────────────────────────────


LoggedExchanges = Iterable[tuple[str, LoggedExchange | None]]
OnRequest: TypeAlias = Callable[[str, ObservedRequest], None]
"""Exchanges with their positions; None for an entry without one."""
BATCH_SIZE, BATCH_BYTES = 64, 8 << 20
"""Exchanges and bytes of one transaction."""
MAX_PLACES = 3
"""Places that a note of left out content names."""
PREVIOUS_RESPONSE = "previous_response_id"
NON_CHAT_NOTE = "a call that is not a chat, such as embeddings"
PROVIDER_HISTORY_NOTE = "the history of a request that only the provider stored"


class LoggedConversation:
    """A conversation that exchanges of a log belong to, as far as the log was read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = self.new_requests = self.new = 0
        self.input: int | None = None
        self.output: int | None = None
        self.error: ContextcError | None = None

    def add(self, seen: ObservedRequest) -> None:
        self.requests += 1
        self.new_requests += seen.is_new
        self.new += seen.added
        if seen.usage is not None:
            self.input = (self.input or 0) + seen.usage.input
            self.output = (self.output or 0) + seen.usage.output


class _BatchedExchange(NamedTuple):
    """An exchange on its way into a batch: its position, its body as bytes, and its key. `parsed` is set if it had to
    be parsed for its response id.
    """

    where: str
    exchange: LoggedExchange
    body: bytes
    key: str
    is_provider_history: bool = False
    response_id: str = ""
    parsed: tuple[ObservedInput, ObservedReply] | None = None

    @property
    def is_readable(self) -> bool:
        """False if it was parsed and could not be."""
        return self.parsed is not None or isinstance(self.exchange.reply, dict) or self.exchange.reply is None


class LogImporter:
    """Records the exchanges of a log. Conversations are named after `source` and their id there, or after `into`."""

    def __init__(
        self,
        store: Store,
        source: str,
        *,
        into: str | None = None,
        format: str | None = None,
        on_request: OnRequest | None = None,
    ) -> None:
        self.store, self.source, self.into, self.format = store, source, into, format
        self.on_request = on_request
        self.conversations: dict[str, LoggedConversation] = {}
        self.detector = FormatDetector()
        self.providers: dict[tuple[str, str], str] = {}
        self.left_out: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}
        """The first places of each note."""
        self.has_requests = False
        self.responses: set[str] = set()
        self.repeated: Counter[bytes] = Counter()
        self.elements = ElementCache()
        self.batch: list[_BatchedExchange] = []
        self.batch_bytes = 0
        self.unanswered: dict[str, tuple[str, LoggedExchange]] = {}
        self.waiting_replies: dict[str, tuple[str, LoggedExchange]] = {}
        self.waiting_requests: dict[str, list[tuple[str, LoggedExchange]]] = {}
        self.released: deque[tuple[str, LoggedExchange]] = deque()

    @property
    def scope(self) -> str:
        """The group of conversations that this import may continue: imported ones, or those of `into`."""
        return f"{IMPORTED}{self.into or ''}"

    @property
    def has_stored(self) -> bool:
        return any(each.error is None for each in self.conversations.values())

    def notes(self) -> list[str]:
        """Return the notes of what was left out, each as often as it occurred."""
        notes = {
            note: f"{note}, first at {_join_places(self.places[note])}" if note in self.places else note
            for note in self.left_out
        }
        return [notes[note] for note in self.left_out.elements()]

    def add_note(self, note: str, where: str = "", times: int = 1) -> None:
        self.left_out[note] += times
        if where and len(places := self.places.setdefault(note, [])) < MAX_PLACES:
            places.append(where)

    def add_exchange(self, where: str, exchange: LoggedExchange | None) -> None:
        if exchange is None:
            self.add_note("a line without a request", where)
        elif not exchange.is_chat:
            self.add_note(NON_CHAT_NOTE, where)
        elif exchange.body is None and exchange.note and exchange.reply is None and not exchange.failed:
            self.add_note(exchange.note, where)
        elif exchange.body is None:
            self._add_reply(where, exchange)
        else:
            self.has_requests = True
            self._add_request(where, exchange)
        self._release()

    def close(self) -> None:
        """Record what still waits: requests without a reply, and requests that continue an unknown response."""
        waiting, self.unanswered = self.unanswered, {}
        for where, exchange in waiting.values():
            self._continue(where, exchange)
            self._release()
        here = {_id_in(as_object(each.reply)) for some in self.waiting_requests.values() for _, each in some}
        for before in sorted(self.waiting_requests, key=lambda each: each in here):
            self.released += self.waiting_requests.pop(before, ())
            self._release(is_last=True)
        self.flush()
        if self.waiting_replies and not self.has_requests:
            raise InvalidInput(
                f"The input has {len(self.waiting_replies)} results, and none of the requests they answer",
                fix="Import the file of requests together with the file of results.",
                case="no-requests",
            )
        for where, _ in self.waiting_replies.values():
            self.add_note("a result without its request", where)

    def _add_request(self, where: str, exchange: LoggedExchange) -> None:
        is_open = exchange.reply is None and not (exchange.failed or exchange.note or exchange.answers)
        if is_open and exchange.id:
            if exchange.id not in self.waiting_replies:
                self.unanswered[exchange.id] = where, exchange
                return
            exchange = _with_reply(exchange, self.waiting_replies.pop(exchange.id)[1])
        self._continue(where, exchange)

    def _continue(self, where: str, exchange: LoggedExchange) -> None:
        """Record a request, unless it continues a response that is not recorded yet."""
        before: JSON = (exchange.body or {}).get(PREVIOUS_RESPONSE)
        if isinstance(before, str) and before and before not in self.responses:
            self.waiting_requests.setdefault(before, []).append((where, exchange))
        else:
            self._record(where, exchange)

    def _add_reply(self, where: str, exchange: LoggedExchange) -> None:
        """Process a reply that is logged apart from its request."""
        if exchange.id in self.unanswered:
            place, asked = self.unanswered[exchange.id]
            self.unanswered[exchange.id] = place, _with_reply(asked, exchange)
        else:
            self.waiting_replies[exchange.id] = where, exchange

    def _release(self, *, is_last: bool = False) -> None:
        """Record the requests that no longer wait. Each may release others."""
        while self.released:
            where, exchange = self.released.popleft()
            self._record(where, exchange, is_provider_history=is_last)
            is_last = False

    def _record(self, where: str, exchange: LoggedExchange, *, is_provider_history: bool = False) -> None:
        """Record an exchange with the others of its batch. A later one may continue its response at once."""
        if exchange.note:
            self.add_note(exchange.note, where)
        logged = self._identify(where, exchange, is_provider_history)
        self.batch.append(logged)
        self.batch_bytes += len(logged.body)
        if len(self.batch) >= BATCH_SIZE or self.batch_bytes >= BATCH_BYTES or (self.into and not self.conversations):
            self.flush()
        if logged.response_id:
            self.responses.add(logged.response_id)
            self.released += self.waiting_requests.pop(logged.response_id, ())

    def _identify(self, where: str, exchange: LoggedExchange, is_provider_history: bool) -> _BatchedExchange:
        """Return an exchange with its key: its body, time and reply, and which of several equal ones it is."""
        body = as_bytes(exchange.text or exchange.body or {})
        reply = encode([exchange.reply, exchange.error, exchange.answers])
        about = f"{exchange.conversation}\0{exchange.id}\0{exchange.time}\0".encode(errors="replace")
        made = blake2b(about + blake2b(body).digest() + reply, digest_size=16).digest()
        self.repeated[made] += 1
        logged = _BatchedExchange(where, exchange, body, f"{made.hex()}/{self.repeated[made]}", is_provider_history)
        if logged.is_readable:
            return logged._replace(response_id=_id_in(as_object(exchange.reply)))
        parsed = self._parse_or_note(logged)
        return logged._replace(parsed=parsed, response_id=parsed[1].response_id if parsed is not None else "")

    # ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Record the batch in one transaction. If that fails, record its exchanges one by one."""
        batch, self.batch, self.batch_bytes = self.batch, [], 0
        known = self._find_known(batch)
        ready: list[tuple[_BatchedExchange, ExchangeRecording | None]] = []
        for logged in batch:
            if logged.key in known:
                ready.append((logged, None))
            elif logged.is_readable and (recording := self._prepare(logged)) is not None:
                ready.append((logged, recording))
        recordings = [recording for _, recording in ready if recording is not None]
        try:
            stored = iter(record_exchanges(self.store, recordings) if recordings else [])
        except (ContextcError, *DECODE_ERRORS) as error:
            if isinstance(error, StoreError) and not isinstance(error, StoreCorrupt | ConversationExists):
                raise
            for logged, recording in ready:
                self._record_one(logged, recording, known.get(logged.key))
            return
        for logged, recording in ready:
            self._add_result(logged, known[logged.key] if recording is None else next(stored))

    def _find_known(self, batch: Sequence[_BatchedExchange]) -> dict[str, ObservedRequest]:
        """Return the recorded ones of some exchanges, by their keys."""

        def find(tx: Transaction) -> dict[str, tuple[Channel, RequestRecord]]:
            made = {each.key: find_exchange(tx, make_key("exchange", self.scope, each.key)) for each in batch}
            return {key: each for key, each in made.items() if each is not None}

        found = {
            key: ObservedRequest(store=self.store, channel=channel, request=record.request, record=record, is_new=False)
            for key, (channel, record) in self.store.read(find).items()
        }
        for each in batch:
            if each.key not in found and (exported := self._find_exported(each)) is not None:
                found[each.key] = exported
        return found

    def _prepare(self, logged: _BatchedExchange) -> ExchangeRecording | None:
        """Return the recording of an exchange; None if it cannot be recorded."""
        parsed = logged.parsed or self._parse_or_note(logged)
        if parsed is None:
            return None
        given, answer = parsed
        if given.is_split and not given.parsed.raw and not given.is_partial and _has_no_prompt(given):
            self.add_note("a request without a message", logged.where)
            return None
        return self._make_recording(logged, given, answer)

    def _record_one(
        self, logged: _BatchedExchange, recording: ExchangeRecording | None, known: ObservedRequest | None
    ) -> None:
        try:
            seen = known if recording is None else record_exchanges(self.store, [recording])[0]
        except ConversationExists:
            if not self.has_stored:
                raise
            raise InvalidInput(f"Conversation {self.into!r} already exists.") from None
        except StoreError as error:
            if not isinstance(error, StoreCorrupt):
                raise
            self._add_error(logged.exchange.conversation, error)
        except (ContextcError, *DECODE_ERRORS) as error:
            self.add_note(f"{logged.where}: {error}")
        else:
            if seen is not None:
                self._add_result(logged, seen)

    def _add_result(self, logged: _BatchedExchange, seen: ObservedRequest) -> None:
        for remark in seen.record.remarks if seen.is_new else ():
            self.add_note(f"{logged.where}: {remark}")
        if logged.is_provider_history and seen.is_new and seen.record.request == 1:
            self.add_note(PROVIDER_HISTORY_NOTE, logged.where)
        self.conversations.setdefault(seen.conversation, LoggedConversation(seen.conversation)).add(seen)
        if self.on_request is not None:
            self.on_request(logged.where, seen)

    # ── parse ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _parse_or_note(self, logged: _BatchedExchange) -> tuple[ObservedInput, ObservedReply] | None:
        try:
            return self._parse(logged)
        except (ContextcError, *DECODE_ERRORS) as error:
            self.add_note(f"{logged.where}: {error}")
            return None

    def _parse(self, logged: _BatchedExchange) -> tuple[ObservedInput, ObservedReply]:
        where, exchange = logged.where, logged.exchange
        body = exchange.body or {}
        format = self.format or exchange.format or self.detector.format_of(body, exchange.reply, exchange.address)
        server = format, exchange.address.partition("?")[0]
        given = parse_input(
            logged.body,
            format=format,
            headers=exchange.headers,
            url=exchange.address,
            model=exchange.model,
            provider_name=exchange.provider or self.providers.get(server, ""),
            reply=exchange.reply,
            elements=self.elements,
        )
        if not exchange.provider:
            self.providers[server] = given.provider_name
        if exchange.failed:
            return given, parse_reply(given.form, exchange.error, exchange.status or 400, exchange.time)
        if exchange.answers:
            answer = ObservedReply(status="ok", messages=_with_times(exchange.answers, exchange))
        else:
            answer = self._parse_reply(where, exchange, given)
        if exchange.usage is not None and answer.usage is None:
            answer = replace(answer, usage=exchange.usage, messages=_with_usage(answer.messages, exchange))
        return given, answer

    def _parse_reply(self, where: str, exchange: LoggedExchange, given: ObservedInput) -> ObservedReply:
        if exchange.reply is None:
            has_waited = not exchange.status and exchange.ended > exchange.time
            return ObservedReply(status="unanswered" if has_waited else "unrecorded")
        time = exchange.ended or exchange.time
        try:
            replies = decode_logged_reply(given.form, exchange.reply)
        except (ContextcError, *DECODE_ERRORS):
            if (known := parse_special_reply(exchange.reply, exchange.status)) is not None:
                return known
            self.add_note(UNKNOWN_REPLY, where)
            return ObservedReply(status="unrecorded")
        if replies.unread:
            self.add_note("an event of a stream that cannot be read", where, replies.unread)
        decoded = None if isinstance(exchange.reply, str) else replies
        answer = parse_reply(given.form, exchange.reply, exchange.status or None, time, decoded=decoded)
        is_plain = answer.status in ("unfinished", "error") and bool(replies.messages) and not _states_end(exchange)
        if is_plain:  # logged as a message or as text, which does not state how it ended
            answer = replace(answer, status="ok", error="", messages=_with_times(replies.messages, exchange))
        return answer

    def _make_recording(
        self, logged: _BatchedExchange, given: ObservedInput, answer: ObservedReply
    ) -> ExchangeRecording:
        exchange, name, first = logged.exchange, logged.exchange.conversation, self.into or self.source
        wanted = self.into if self.into is not None and not self.conversations else ""
        names = NewNames(base=first, wanted=wanted or "", scope=self.scope)
        if exchange.stored_as is not None and not name:
            plain = self.into or exchange.stored_as.conversation
            names = replace(names, base="export", identity=exchange.stored_as.conversation, plain=plain)
        elif name:
            names = replace(names, base=self.source, identity=name, plain=f"{first}-{to_name(name) or DEFAULT_NAME}")
        if names.identity:
            given = replace(given, ids=ClientIds(client=self.source))
        else:
            session = f"{self.scope}/{given.ids.session}" if given.ids.session else ""
            given = replace(given, ids=replace(given.ids, client=given.ids.client or self.source, session=session))
        return ExchangeRecording(
            given,
            answer,
            began=exchange.time,
            ended=exchange.ended,
            first_chunk=exchange.first_chunk,
            code=exchange.status,
            options=RecordOptions(
                key=logged.key,
                inexact=exchange.inexact,
                names=names,
                raw=pack_raw_reply(exchange.raw, status=exchange.status) if exchange.raw else b"",
            ),
        )

    def _find_exported(self, logged: _BatchedExchange) -> ObservedRequest | None:
        """Return the request that a file was exported from, if it is in this store."""
        if (origin := logged.exchange.stored_as) is None or self.into is not None:
            return None
        try:
            seen = _load_request(self.store, origin)
        except ContextcError:
            return None
        return seen if seen is not None and seen.body == logged.body else None

    def _add_error(self, name: str, error: ContextcError) -> None:
        shown = f"{self.into or self.source}-{to_name(name) or DEFAULT_NAME}"
        self.conversations.setdefault(shown, LoggedConversation(shown)).error = error


def _join_places(places: Sequence[str]) -> str:
    """Return places such as "log.jsonl, line 2" as one text that names each file once."""
    positions: dict[str, list[str]] = {}
    for place in places:
        file, _, position = place.rpartition(", ")
        positions.setdefault(file, []).append(position)
    return "; ".join([", ".join([part for part in (file, *some) if part]) for file, some in positions.items()])


def _load_request(store: Store, origin: StoredRequest) -> ObservedRequest | None:
    channel = Channel(origin.conversation, origin.agent, origin.provider, origin.model)
    record = next((each for each in load_records(store, channel) if each.request == origin.request), None)
    if record is None:
        return None
    return ObservedRequest(store=store, channel=channel, request=record.request, record=record, is_new=False)


def _with_reply(asked: LoggedExchange, reply: LoggedExchange) -> LoggedExchange:
    """Return a request with the reply that was logged apart from it."""
    return replace(
        asked,
        reply=reply.reply,
        error=reply.error,
        status=reply.status,
        failed=reply.failed,
        time=asked.time or reply.time,
        ended=reply.ended or (reply.time if asked.time else 0),
        usage=reply.usage or asked.usage,
        note=reply.note or asked.note,
    )


def _with_times(messages: Iterable[Message], exchange: LoggedExchange) -> tuple[Message, ...]:
    time = exchange.ended or exchange.time
    return tuple([replace(each, time=time) if time else each for each in messages if each.parts])


def _with_usage(messages: tuple[Message, ...], exchange: LoggedExchange) -> tuple[Message, ...]:
    return (replace(messages[0], usage=exchange.usage), *messages[1:]) if messages else ()


def _states_end(exchange: LoggedExchange) -> bool:
    """Return True if a reply is of a kind that states how it ended: an object of an API, or the events of a stream."""
    reply = exchange.reply
    if isinstance(reply, dict):
        return "role" not in reply or "stop_reason" in reply or "type" in reply
    return isinstance(reply, list)


def _has_no_prompt(given: ObservedInput) -> bool:
    fields = ("system", "instructions", "systemInstruction", "system_instruction")
    return not any(given.json.get(name) for name in fields) and b'"system"' not in given.head


def first_chunk_time(ended: int, receiving: object) -> int | None:
    """Return when a reply began to arrive, from its end and how long it took to arrive; None if they are not known."""
    return ended - int(receiving) if ended and isinstance(receiving, int | float) and receiving > 0 else None


def _id_in(reply: JSONObject) -> str:
    found: JSON = reply.get("id")
    return found if isinstance(found, str) else ""
