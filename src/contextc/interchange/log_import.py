"""Import of logged exchanges: each is decoded in its format, and all are merged into conversations.

A request that continues a stored response (`previous_response_id`, a `conversation`) is inserted after it. If that
response comes later in the log, the request waits. Content that is left out is reported once, with its first position.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from contextc._json import JSON, JSONObject, as_object, as_objects, encode
from contextc.errors import ContextcError, InvalidInput
from contextc.formats import formatter
from contextc.formats.base import Formatter
from contextc.interchange.found_conversation import FoundConversation
from contextc.interchange.log_entries import UNKNOWN_REPLY, Exchange
from contextc.interchange.merge_requests import MergeNode, RequestEnd, RequestTree
from contextc.linting.tolerant_decoding import coerce_request
from contextc.messages import Message
from contextc.observation.format_detection import FormatDetector
from contextc.observation.reply_decoding import DECODE_ERRORS, decode_logged_reply

LoggedExchanges = Iterable[tuple[str, Exchange | None]]
"""Exchanges with their positions; None for an entry without one."""
PREVIOUS_RESPONSE, CONVERSATION = "previous_response_id", "conversation"
UNREPORTED_SETTINGS = ("model", "modelId", "stream", "stream_options", PREVIOUS_RESPONSE, CONVERSATION)
"""Settings whose omission is not reported: a reply names its model, and streaming does not matter."""
SETTINGS_NOTE = "the tools and settings of the requests"
NON_CHAT_NOTE = "a call that is not a chat, such as embeddings"


def read_conversations(
    logged: LoggedExchanges, *, format: str | None = None, is_batch: bool = False
) -> Iterator[FoundConversation]:
    """Return the conversations in a log. With `is_batch`, each exchange with an id is a conversation, as in a batch."""
    log = _LogReader(format, is_batch)
    for where, exchange in logged:
        log.add_exchange(where, exchange)
    log.close()
    left_out = log.notes()
    for found in log.tree.conversations():
        yield replace(found, left_out=[*left_out, *found.left_out])
        left_out = []
    if left_out:
        yield FoundConversation(id="", lines=[], left_out=left_out)


class _LogReader:
    def __init__(self, format: str | None, apart: bool) -> None:
        self.format, self.apart = format, apart
        self.tree = RequestTree()
        self.detector = FormatDetector()
        self.left_out: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.has_settings = False
        self.ends: dict[bytes, MergeNode] = {}
        self.requests: dict[str, tuple[RequestEnd, Formatter, JSONObject]] = {}
        self.waiting_replies: dict[str, tuple[str, Exchange]] = {}
        self.reply_nodes: dict[tuple[str, str], MergeNode] = {}
        self.waiting_requests: dict[str, list[tuple[str, Exchange]]] = {}
        self.released: deque[tuple[str, Exchange]] = deque()

    def notes(self) -> list[str]:
        """Return the notes of what was left out, each as often as it occurred."""
        notes = {note: f"{note}, first at {self.first[note]}" if note in self.first else note for note in self.left_out}
        found = [notes[note] for note in self.left_out.elements()]
        return [*found, SETTINGS_NOTE] if self.has_settings else found

    def add_note(self, note: str, where: str = "", times: int = 1) -> None:
        self.left_out[note] += times
        if where:
            self.first.setdefault(note, where)

    def add_exchange(self, where: str, exchange: Exchange | None) -> None:
        if exchange is None:
            self.add_note("a line without a request")
            return
        if not exchange.is_chat:
            self.add_note(NON_CHAT_NOTE)
            return
        if exchange.failed:
            self.add_note("a reply that is an error")
        if exchange.note:
            self.add_note(exchange.note, where)
        if exchange.body is None:
            self._answer(where, exchange)
        elif (before := _id_in(exchange.body, PREVIOUS_RESPONSE)) and (
            PREVIOUS_RESPONSE,
            before,
        ) not in self.reply_nodes:
            self.waiting_requests.setdefault(before, []).append((where, exchange))
        else:
            self._request(where, exchange, exchange.body)
        self._release()

    def close(self) -> None:
        here = {
            _id_in(as_object(exchange.reply), "id") for each in self.waiting_requests.values() for _, exchange in each
        }
        for before in sorted(
            self.waiting_requests, key=lambda each: each in here
        ):  # first those whose response is not in the log
            for where, exchange in self.waiting_requests.pop(before, ()):
                self.add_note("the history of a request that only the provider stored", where)
                self.released.append((where, exchange))
            self._release()
        if self.waiting_replies and not self.requests:
            raise InvalidInput(
                f"The input has {len(self.waiting_replies)} results, and none of the requests they answer",
                fix="Import the file of requests together with the file of results.",
                case="no-requests",
            )
        if self.waiting_replies:
            self.add_note("a result without its request", times=len(self.waiting_replies))

    def _release(self) -> None:
        """Insert the requests that no longer wait. Each may release others."""
        while self.released:
            where, exchange = self.released.popleft()
            self._request(where, exchange, exchange.body or {})

    def _request(self, where: str, exchange: Exchange, body: JSONObject) -> None:
        form = formatter(self.format or self.detector.format_of(body, exchange.reply, exchange.address))
        try:
            place = self._asked(form, exchange, body)
        except (ContextcError, *DECODE_ERRORS) as error:
            self.add_note(f"{where}: {error}")
            return
        if place is None:
            self.add_note("a request without a message")
            return
        if exchange.reply is not None:
            self._reply(place, form, exchange, body, where)
        elif exchange.id:
            self.requests[exchange.id] = place, form, body
            if exchange.id in self.waiting_replies:
                self._answer(*self.waiting_replies.pop(exchange.id))

    def _asked(self, form: Formatter, exchange: Exchange, body: JSONObject) -> RequestEnd | None:
        """Insert a request. If it continues another one, only the new messages are decoded."""
        name = exchange.conversation or exchange.id
        root = self.tree.root(name if exchange.conversation or self.apart else "")
        for field in (PREVIOUS_RESPONSE, CONVERSATION):
            root = self.reply_nodes.get((field, _id_in(body, field)), root)
        wire = _WireMessages(form, body, root.path)
        known = next(wire.ends(self.ends), None)
        node, shown = (root, body) if known is None else (self.ends[wire.hashes[known]], wire.tail(known))
        system, messages = self._history(form, shown, exchange.time)
        if not system and not messages:
            return None
        place = self.tree.add_request(node, system, messages, name=name, time=exchange.time)
        if wire.hashes:
            self.ends[wire.hashes[-1]] = place.node
        return place

    def _history(self, form: Formatter, body: JSONObject, time: int) -> tuple[Sequence[Message], Sequence[Message]]:
        """Return the system prompt, and the messages."""
        request = form.decode_request(coerce_request(form, body).body)
        self.has_settings = self.has_settings or bool(request.tools or request.settings.keys() - {*UNREPORTED_SETTINGS})
        messages = [*([request.system] if request.system is not None else []), *request.messages]
        messages = [replace(message, time=time) for message in messages] if time else messages
        leads = next((number for number, message in enumerate(messages) if message.role != "system"), len(messages))
        return messages[:leads], messages[leads:]

    def _answer(self, where: str, exchange: Exchange) -> None:
        """Process a reply that is logged apart from its request."""
        if exchange.id not in self.requests:
            self.waiting_replies[exchange.id] = where, exchange
            return
        place, form, body = self.requests[exchange.id]
        self._reply(place, form, exchange, body, where)

    def _reply(self, place: RequestEnd, form: Formatter, exchange: Exchange, body: JSONObject, where: str) -> None:
        """Insert a reply. Of several answers, the first is inserted last, because it becomes the current branch."""
        if exchange.reply is None:
            return
        try:
            replies = decode_logged_reply(form, exchange.reply)
        except (ContextcError, *DECODE_ERRORS):
            self.add_note(UNKNOWN_REPLY, where)
            return
        if replies.unread:
            self.add_note("an event of a stream that cannot be read", where, replies.unread)
        for message in reversed(replies.messages):
            timed = replace(message, time=exchange.time) if exchange.time and not message.time else message
            node = self.tree.add_reply(place, timed, time=exchange.time)
            self._remember_reply(node, message, _id_in(body, CONVERSATION))

    def _remember_reply(self, node: MergeNode, message: Message, conversation: str) -> None:
        """Remember the node of a reply, by the ids that a later request may refer to."""
        if conversation:
            self.reply_nodes[CONVERSATION, conversation] = node
        for facts in (message.extra or {}).values():
            if reply := _id_in(facts, "id"):
                self.reply_nodes[PREVIOUS_RESPONSE, reply] = node
                self.released += self.waiting_requests.pop(reply, ())


class _WireMessages:
    """The encoded messages of a request, with a hash for each position: equal hashes mean equal messages up to there.

    A leading system prompt is not included, because it may contain the time. `path` identifies the start.
    """

    def __init__(self, form: Formatter, body: JSONObject, path: bytes) -> None:
        self.form, self.body = form, body
        given = as_objects(body.get(form.messages_key))
        others = (number for number, each in enumerate(given) if each.get("role") not in ("system", "developer"))
        self.first = next(others, len(given))
        self.messages = given
        self.hashes: list[bytes] = []
        mark = path + form.name.encode()
        for message in given[self.first :]:
            mark = blake2b(mark + encode(message), digest_size=16).digest()
            self.hashes.append(mark)

    def ends(self, known: Mapping[bytes, object]) -> Iterator[int]:
        """Return the last position at which another request ended, if a reply of the model follows it."""
        for place in range(len(self.hashes) - 2, -1, -1):
            if self.hashes[place] in known:
                before, after = self.messages[self.first + place], self.messages[self.first + place + 1]
                if _is_model_output(after) and not _is_model_output(before):
                    yield place
                return

    def tail(self, place: int) -> JSONObject:
        """Return the request without the messages up to a position."""
        kept = [*self.messages[: self.first], *self.messages[self.first + place + 1 :]]
        return {**self.body, self.form.messages_key: kept}


def _is_model_output(message: JSONObject) -> bool:
    """Return True if this is output of a model."""
    return message.get("role") in ("assistant", "model") or message.get("type") in ("function_call", "reasoning")


def _id_in(holder: JSONObject, field: str) -> str:
    """Return the id in a field, plain or in an object; "" if there is none."""
    value: JSON = holder.get(field)
    found: JSON = as_object(value).get("id") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""
